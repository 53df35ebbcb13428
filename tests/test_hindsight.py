"""Goals in hindsight: from the same episode, later, and rewarded as if they had been asked."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from agents.sac import SAC
from agents.td3 import TD3
from envs.revealed import Revealed, in_hindsight
from experiments import make_data, off_policy, prior
from rl import buffer, rollout, runs
from rl.data import npz
from rl.policy import uniform
from rl.types import Transition

HORIZON = 12


@pytest.fixture(scope="module", autouse=True)
def judged_on_few() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_data, "JUDGED", 8)
        yield


def numbered(ticks: int, ring: int, worlds: int, ends: np.ndarray) -> buffer.Buffer:
    """A replay whose steps know their number and episode."""
    episode = np.cumsum(ends, 0) - ends
    off = jnp.zeros((ticks, worlds), bool)
    when = np.broadcast_to(np.arange(ticks)[:, None], (ticks, worlds))
    obs = jnp.stack([when, episode, np.broadcast_to(np.arange(worlds), when.shape)], -1)
    seen = Transition(obs, obs, jnp.zeros((ticks, worlds)), jnp.asarray(ends), off, obs)
    return buffer.add(buffer.init(ring, jax.tree.map(lambda x: x[0], seen)), seen)


@pytest.mark.parametrize("seed", range(20))
def test_later_steps_are_of_the_same_episode(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ticks, worlds = int(rng.integers(1, 80)), int(rng.integers(1, 4))
    ring = int(rng.integers(1, 50))
    ends = rng.random((ticks, worlds)) < 0.2
    for world in range(worlds):  # episodes are cut at the horizon
        since = 0
        for t in range(ticks):
            since = 0 if t and ends[t - 1, world] else since + 1
            ends[t, world] |= since >= HORIZON
    replay = numbered(ticks, ring, worlds, ends)
    keys = jax.random.split(jax.random.key(seed))
    at = buffer.places(replay, keys[0], 400)
    then = buffer.later(replay, keys[1], at, HORIZON + 1)
    now, after = (np.asarray(buffer.windows(replay, x).obs[:, 0]) for x in (at, then))
    np.testing.assert_array_equal(now[:, 1:], after[:, 1:])  # the episode and the world
    assert (after[:, 0] >= now[:, 0]).all()
    # And every one of them, the last as well as the first.
    reach = {tuple(x) for x in np.concatenate([now, after[:, :1]], 1)[:, [0, 2, 3]]}
    begun = now[0]
    mine = {t for a, w, t in reach if (a, w) == (begun[0], begun[2])}
    assert mine <= set(range(int(begun[0]), ticks))


def test_later_reaches_first_and_last_alike() -> None:
    ends = np.zeros((6, 1), bool)
    ends[5] = True
    replay = numbered(6, 6, 1, ends)
    at = buffer.Place(jnp.full(6000, 2), jnp.zeros(6000, int))
    then = buffer.later(replay, jax.random.key(0), at, 6).row
    counts = np.bincount(np.asarray(then), minlength=6)
    assert (counts[:2] == 0).all()
    np.testing.assert_allclose(counts[2:] / 6000, 0.25, atol=0.03)


@pytest.fixture(scope="module")
def lived() -> tuple[Any, buffer.Buffer]:
    """Random steps of a task that is hardly ever done, in a replay."""
    env = Revealed(envs.make("panda-reach", rewards="sparse"))
    policy = uniform(env.action_dim)

    @jax.jit
    def run(key: Any) -> Transition:
        worlds = rollout.start(env, policy, (), key, 4)
        return rollout.collect(env, policy, (), worlds, key, 150)[1]

    seen = run(jax.random.key(0))
    empty = buffer.init(150, jax.tree.map(lambda x: x[0], seen))
    return env, buffer.add(empty, seen)


def test_a_share_is_asked_for_what_was_reached(lived: tuple[Any, buffer.Buffer]) -> None:
    env, replay = lived

    def rewarded(share: float) -> float:
        task, key = env.task, jax.random.key(1)
        batch = in_hindsight(task, replay, key, 4096, 1, share, env.horizon)
        assert not isinstance(batch.obs, dict)  # the world is seen no more
        return float(batch.reward.mean())

    none, half, all_ = map(rewarded, (0.0, 0.5, 1.0))
    assert none < 0.02
    assert all_ > 0.05
    np.testing.assert_allclose(half, (none + all_) / 2, atol=0.02)


def test_windows_keep_one_goal(lived: tuple[Any, buffer.Buffer]) -> None:
    env, replay = lived
    batch = in_hindsight(env.task, replay, jax.random.key(2), 256, 3, 1.0, env.horizon)
    goal = batch.obs[..., -3:] + batch.obs[..., -6:-3]  # how far off, and where the tool is
    inside = ~np.asarray(batch.truncated[:, :2].any(1))
    np.testing.assert_allclose(goal[inside, 0], goal[inside, 2], atol=1e-6)
    np.testing.assert_allclose(batch.next_obs[inside, 0], batch.obs[inside, 1], atol=1e-6)


def test_half_of_a_batch_is_demonstrations(lived: tuple[Any, buffer.Buffer]) -> None:
    env, replay = lived
    shown = replay._replace(data=replay.data._replace(action=replay.data.action * 0 + 7))
    args = off_policy.Args(hindsight=0.5)
    batch = prior.batch(args, env, (replay, shown), jax.random.key(0), (64,))
    from_demos = np.asarray((batch.action == 7).all((1, 2)))
    np.testing.assert_array_equal(from_demos, np.arange(64) % 2 == 1)


SPARSE = envs.make_task("panda-reach", rewards="sparse")


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> make_data.Args:
    out = tmp_path_factory.mktemp("data") / "d.npz"
    args = make_data.Args(env=SPARSE, env_name="panda-reach", episodes=4, out=out)
    make_data.main(args)
    return args


def learner(agent: Any, demos: make_data.Args, out: Path) -> off_policy.Args:
    return off_policy.Args(
        env=SPARSE, env_name="panda-reach", steps=700, num_envs=2, learning_starts=200,
        batch_size=32, buffer_size=2_000, evals=0, eval_episodes=2, video=False,
        agent=agent(hidden=(16,), critic_hidden=(16,)), demos=demos.out, hindsight=0.8, out=out,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("agent", [SAC, TD3])
def test_agents_learn_from_both_and_go_on_with_no_other_demonstrations(
    agent: Any, demos: make_data.Args, tmp_path: Path
) -> None:
    made = learner(agent, demos, tmp_path / "run")
    off_policy.main(made)
    facts = runs.read_manifest(tmp_path / "run")
    assert facts["status"] == "done"
    assert len(facts["demos_sha256"]) == 64
    assert len(facts["eval_successes"][0]) == 2

    assert demos.out is not None
    told = facts | {"status": "stopped by SIGTERM"}
    runs.write(tmp_path / "run" / "manifest.json", json.dumps(told).encode())
    others = tmp_path / "others.npz"
    data = npz.read(demos.out)
    npz.write(others, data._replace(steps=data.steps | {"action": data.steps["action"] / 2}))
    with pytest.raises(ValueError, match="was begun with other demonstrations"):
        off_policy.main(replace(made, demos=others, resume=tmp_path / "run"))


@pytest.mark.long
def test_what_learns_from_both_gives_back_what_it_takes(demos: make_data.Args) -> None:
    args = learner(SAC, demos, Path("unused"))
    env = envs.simulate(args.env, "native")
    world, (shown, _) = prior.world(env, args), prior.demonstrations(env, args)

    def runs_of(key: Any) -> Any:
        run = off_policy.begin(args, world, key)
        return run, off_policy.phase(args, world, shown, run)[0]

    taken, given = jax.eval_shape(runs_of, jax.random.key(0))
    assert jax.tree.map(jnp.shape, taken) == jax.tree.map(jnp.shape, given)
    with pytest.raises(ValueError, match="--batch-size is 33"):
        off_policy.main(replace(args, batch_size=33))


@pytest.mark.parametrize(
    ("name", "flags", "why"),
    [
        ("panda-reach", {"hindsight": 1.2}, "--hindsight is 1.2"),
        ("panda-stack", {"hindsight": 0.5}, "panda-stack has none"),
        ("panda-reach", {"demos": Path("x.npz")}, "x.npz is no dataset"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, flags: dict[str, Any], why: str) -> None:
    task = envs.make_task(name)
    with pytest.raises(ValueError, match=why):
        off_policy.main(off_policy.Args(env=task, env_name=name, **flags))
