"""DrQ: whose loss moves what, what a policy remembers, its run from pictures and its resume."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import envs
from agents.drq import DrQ
from experiments import cli, drq, host, off_policy, play
from rl import buffer, rollout, runs
from rl.types import Transition

SMALL: dict[str, Any] = {
    "channels": (4, 4), "strides": (2, 2), "features": 8, "hidden": (16,), "critic_hidden": (16,),
}  # fmt: skip
AGENT = DrQ(**SMALL, delay=1)
SIDE, B = 20, 6
TINY = ["--env", "dmc-cartpole-swingup", "--env.pixels", "16", "--env.repeat", "8", "--steps", "64"]
TINY += ["--learning-starts", "32", "--batch-size", "4", "--buffer-size", "128", "--agent.hidden"]
TINY += ["16", "--agent.critic-hidden", "16", "--agent.channels", "4", "--agent.strides", "2"]
TINY += ["--eval-episodes", "1", "--evals", "2", "--no-video", "--save-s", "0"]


@pytest.fixture(scope="module")
def given() -> tuple[Any, Transition]:
    """A state, and a batch of random windows with pictures and two numbers beside them."""
    rng = np.random.default_rng(0)
    shape = B, AGENT.history + 2
    image = lambda: jnp.asarray(rng.integers(0, 256, (*shape, SIDE, SIDE, 3)), jnp.uint8)  # noqa: E731
    number = lambda *more: jnp.asarray(rng.normal(size=(*shape, *more)), jnp.float32)  # noqa: E731
    no = jnp.zeros(shape, bool)
    obs, after = ({"image": image(), "policy": number(2)} for _ in range(2))
    batch = Transition(obs, jnp.tanh(number(1)), number(), no, no, after)
    one = jax.tree.map(lambda x: x[0, 0], obs)
    return AGENT.init(jax.random.key(0), one, jnp.zeros(1)), batch


def moved(before: Any, after: Any) -> bool:
    return any(
        (np.asarray(x) != np.asarray(y)).any()
        for x, y in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    )


@pytest.mark.long
def test_the_critics_loss_moves_the_encoder_and_the_actors_does_not(
    given: tuple[Any, Transition],
) -> None:
    state, batch = given
    keys = jax.random.split(jax.random.key(1), 3)
    whole = jax.tree.map(lambda x: x[None], batch)
    new, metrics = jax.jit(AGENT.update)(state, whole, keys[0])
    for part in ("encoder", "trunk", "q"):
        assert moved(state.critic.params[part], new.critic.params[part])
    assert moved(state.actor.params, new.actor.params)
    # With critics that stay nothing moves the encoder.
    still = DrQ(**SMALL, delay=1, critic_lr=0.0)
    held, _ = jax.jit(still.update)(state, whole, keys[0])
    assert not moved(state.critic.params, held.critic.params)
    assert moved(state.actor.params, held.actor.params)
    slow = optax.incremental_update(new.critic.params, state.target, AGENT.tau)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), new.target, slow)
    assert {"q", "critic_loss", "actor_loss", "alpha"} <= metrics.keys()
    assert jnp.isfinite(jnp.array(list(metrics.values()))).all()


@pytest.mark.long
def test_values_and_targets_are_those_of_the_papers(given: tuple[Any, Transition]) -> None:
    state, batch = given
    keys = jax.random.split(jax.random.key(1))
    sample = AGENT.sample(batch, keys[0])
    assert sample.obs.image.shape == (B, SIDE, SIDE, 9)
    assert (sample.obs.numbers == batch.obs["policy"][:, AGENT.history]).all()
    ahead = batch.reward[:, 2] + AGENT.gamma * batch.reward[:, 3]
    assert np.allclose(sample.reward, ahead, atol=1e-5)
    certain = state._replace(log_alpha=state.log_alpha._replace(params=jnp.float32(-jnp.inf)))
    target = AGENT.backup(certain, sample, keys[1])
    numbers = sample.next_obs.numbers
    encoded = AGENT.encode(state.critic.params, sample.next_obs)
    mean, log_std = AGENT.outputs(state.actor.params, encoded, numbers, 1)
    action = jnp.tanh(mean + jnp.exp(log_std) * jax.random.normal(keys[1], mean.shape))
    q = AGENT.q(state.target, AGENT.encode(state.target, sample.next_obs), numbers, action)
    assert q.shape == (2, B)
    assert np.allclose(target, sample.reward + AGENT.gamma**2 * q.min(0), atol=1e-4)
    loss, _ = AGENT.critic_loss(state.critic.params, sample, target)
    now = AGENT.encode(state.critic.params, sample.obs)
    q = AGENT.q(state.critic.params, now, sample.obs.numbers, sample.action)
    assert loss == pytest.approx(
        float(((np.asarray(q) - np.asarray(target)) ** 2).mean()), rel=1e-4
    )


def test_a_policy_sees_what_is_learned_from() -> None:
    """What it stacks as it acts is what replay gives back of the same steps, over ends and all."""
    env = envs.make("dmc-cartpole-swingup", max_episode_steps=5, pixels=SIDE, repeat=4)
    agent = DrQ(**SMALL, shift=0)
    policy = agent.policy(explore=True, action_dim=1)

    def step(params: Any, carry: Any, obs: Any, key: Any) -> Any:
        action, after, _ = policy.step(params, carry, obs, key)
        before = jnp.where(carry.begun, carry.images, obs["image"])
        return action, after, jnp.concatenate([before, obs["image"][None]])

    def run(key: Any) -> Any:
        learner = agent.init(key, env.reset(key).obs, jnp.zeros(1))
        params, told = agent.deploy(learner), policy._replace(step=step)
        worlds = rollout.start(env, told, params, key, 2)
        seen = rollout.collect(env, told, params, worlds, key, 12)[1]
        ring = buffer.add(buffer.init(12, jax.tree.map(lambda x: x[0], seen)), seen)
        at = buffer.Place(jnp.arange(10), jnp.ones(10, int))
        return seen, agent.sample(buffer.windows(ring, at, agent.history + 1), key)

    seen, sample = jax.jit(run)(jax.random.key(3))
    stacks = np.asarray(seen.aux)[2:, 1]  # [10, F, H, W, 3] of the second world
    stacks = np.moveaxis(stacks, 1, 3).reshape(10, SIDE, SIDE, -1)
    assert np.asarray(seen.truncated)[:, 1].sum() == 2
    assert (stacks == np.asarray(sample.obs.image)).all()
    inner = ~np.asarray(seen.truncated)[2:-1, 1]
    assert (np.asarray(sample.next_obs.image)[:-1] == stacks[1:])[inner].all()
    # The last picture of an episode is a true one, and the next episode's first is fresh.
    last = np.asarray(seen.next_obs["image"])[4, 1]
    assert (np.asarray(sample.next_obs.image)[2, ..., -3:] == last).all()
    assert (stacks[3, ..., :3] == stacks[3, ..., -3:]).all()  # step 5 begins one
    assert (stacks[3, ..., -3:] != last).any()


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong, said in (
        ({"strides": (2, 1)}, "as many counts"), ({"frames": 0}, "frames is 0"),
        ({"shift": -1}, "shift is -1"), ({"channels": ()}, "sizes of at least 1"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            DrQ(**wrong)


def test_a_replay_holds_each_picture_twice_and_one_too_large_is_refused() -> None:
    args = cli.parse(drq.Args, [*TINY, "--buffer-size", "100000000", "--env.pixels", "84"])
    env = envs.simulate(args.env)
    row = 2 * 84 * 84 * 3
    with pytest.raises(ValueError, match=r"lower --buffer-size") as told:
        off_policy.check(args, env)
    assert f"{2 * 100_000_000 * row / 1e9:.0f}"[:2] in str(told.value)


def test_numbers_alone_are_refused_and_so_are_pictures_by_others() -> None:
    args = cli.parse(drq.Args, ["--env", "dmc-cartpole-swingup"])
    with pytest.raises(ValueError, match="give --env"):
        off_policy.check(args, envs.simulate(args.env))
    args = cli.parse(off_policy.Args, ["--env", "dmc-cartpole-swingup", "--env.pixels", "16"])
    with pytest.raises(ValueError, match="sees no pictures"):
        off_policy.check(args, envs.simulate(args.env))
    args = cli.parse(off_policy.Args, ["--env", "panda-reach", "--env.pixels", "16"])
    with pytest.raises(ValueError, match="SAC sees no pictures"):
        host.world(args)


def test_a_picture_of_which_nothing_would_be_left_is_refused() -> None:
    for strides, least in (((2, 1, 1, 1), 15), ((2, 2, 2), 15), ((1,), 3)):
        encoder = DrQ(channels=(4,) * len(strides), strides=strides).encoder
        assert encoder.least == least
        image = jnp.zeros((least, least, 9), jnp.uint8)
        assert jax.eval_shape(encoder.init, jax.random.key(0), image)
        with pytest.raises(ValueError, match=f"give --env.pixels of at least {least}"):
            jax.eval_shape(encoder.init, jax.random.key(0), image[1:, 1:])


@pytest.mark.long
def test_a_run_from_the_command_line_goes_on_as_if_never_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr("sys.argv", ["experiments/drq.py", *TINY, "--out", str(run)])
    cli.run(off_policy.main, drq.Args)
    found = runs.read_manifest(run)
    assert (found["status"], found["algorithm"], found["horizon"]) == ("done", "drq", 125)
    name = "policy-0.safetensors"
    last, rows = (run / name).read_bytes(), runs.read_metrics(run)
    first = min((run / "checkpoints").iterdir(), key=lambda path: int(path.name))
    assert int(first.name) < rows[-1]["step"]
    monkeypatch.setattr("sys.argv", ["experiments/drq.py", "--resume", str(first)])
    cli.run(off_policy.main, drq.Args)
    assert (run / name).read_bytes() == last
    assert [x["critic_loss"] for x in runs.read_metrics(run)] == [x["critic_loss"] for x in rows]
    env, policy, params = play.load(run)
    assert np.isfinite(play.judge(env, policy, params, 1)).all()


@pytest.mark.slow
def test_it_learns_to_swing_up_from_pictures(tmp_path: Path) -> None:
    """Random actions earn 124, a standard deviation of 63 between episodes; three seeds, 195 on."""
    words = ["--env", "dmc-cartpole-swingup", "--env.pixels", "48", "--env.repeat", "8"]
    words += ["--steps", "7000", "--batch-size", "64", "--updates-per-step", "2", "--no-video"]
    words += ["--buffer-size", "7000", "--agent.shift", "2", "--agent.delay", "1"]
    words += ["--agent.channels", "16", "16", "16", "--agent.strides", "2", "2", "1"]
    words += ["--agent.hidden", "256", "256", "--agent.critic-hidden", "256", "256"]
    words += ["--evals", "1", "--eval-episodes", "32", "--out", str(tmp_path / "run")]
    off_policy.main(cli.parse(drq.Args, words))
    assert np.mean(runs.read_manifest(tmp_path / "run")["eval_returns"]) > 160
