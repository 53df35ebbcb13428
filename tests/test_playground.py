"""MuJoCo Playground's environments: whole resets, true ends, and theirs step for step."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from envs.adapters import playground
from envs.adapters.from_playground import FromPlayground
from envs.adapters.playground import Playground
from experiments import cli, make_data, play, ppo, sac
from rl import policy, rollout, runs
from rl.env import State
from rl.types import view

CARTPOLE, COUNTER = "playground:CartpoleBalance", "playground:Counter"


@jax.tree_util.register_dataclass
@dataclass
class Data:
    qpos: Any
    qvel: Any
    mocap_pos: Any = field(default_factory=lambda: jnp.zeros((0, 3)))
    mocap_quat: Any = field(default_factory=lambda: jnp.zeros((0, 4)))


@jax.tree_util.register_dataclass
@dataclass
class Theirs:
    """What Playground's own State has."""

    data: Data
    obs: Any
    reward: Any
    done: Any
    metrics: Any
    info: Any


class Counter:
    """Moves by its action, pays where it is, ends at 2 or beyond, and remembers in `info`.

    Below -2 it is no number, which ends it, too.  As theirs, it alters the `info` that it is given.
    """

    action_size, dt = 1, 0.02
    mj_model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><joint type='slide'/><geom size='1'/></body></worldbody></mujoco>"
    )

    def reset(self, rng: jax.Array) -> Theirs:
        at = jax.random.uniform(rng, (1,), minval=-0.1, maxval=0.1)
        info = {"rng": rng, "reached": 0, "last": jnp.zeros(1)}  # one of them is Python's own
        return self._told(at, info, {"far": jnp.zeros(())})

    def step(self, state: Theirs, action: jax.Array) -> Theirs:
        at = state.data.qpos + action
        at = jnp.where(at < -2, jnp.nan, at)
        state.info["reached"] = jnp.where(at[0] > 0.5, 1, state.info["reached"])
        state.info["last"] = action
        return self._told(at, state.info, {"far": jnp.abs(at[0])})

    def _told(self, at: jax.Array, info: dict[str, Any], metrics: dict[str, Any]) -> Theirs:
        obs = {"state": at, "privileged_state": jnp.append(at, info["reached"])}
        done = ((at[0] >= 2) | jnp.isnan(at[0])).astype(float)
        return Theirs(Data(at, jnp.zeros(1)), obs, at[0], done, metrics, info)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of the package: an environment of the name Counter."""
    monkeypatch.setattr(playground, "_made", lambda task, impl: (Counter(), 4, 1))


def counter(horizon: int = 4, repeat: int = 1) -> FromPlayground:
    return FromPlayground(Counter(), None, "mjx", horizon, repeat)


def acts(*actions: float) -> tuple[list[State], FromPlayground]:
    """The states that these actions lead to, from a reset on."""
    env = counter()
    states = [env.reset(jax.random.key(0))]
    for action in actions:
        states.append(env.step(states[-1], jnp.array([action])))
    return states, env


def test_time_is_up_and_the_value_goes_on() -> None:
    states, _ = acts(0.1, 0.1, 0.1, 0.1)
    assert [bool(x.truncated) for x in states] == [False] * 4 + [True]
    assert not any(x.terminated for x in states)


def test_an_end_of_theirs_ends_it() -> None:
    states, _ = acts(1.0, 1.0, 1.0)
    assert bool(states[-1].terminated)
    assert not states[-1].truncated
    assert float(states[-1].reward) == pytest.approx(float(states[0].obs["policy"][0]) + 3)


def test_actions_beyond_1_are_clipped() -> None:
    (before, after), _ = acts(7.0)
    np.testing.assert_allclose(after.obs["policy"] - before.obs["policy"], 1, rtol=1e-6)


def test_what_is_no_number_ends_the_episode_unrewarded() -> None:
    states, _ = acts(-1.0, -1.0, -1.0)
    last = states[-1]
    assert (bool(last.terminated), bool(last.truncated)) == (False, True)
    assert float(last.reward) == 0
    assert float(last.metrics["failed"]) == 1
    np.testing.assert_array_equal(last.obs["policy"], states[-2].obs["policy"])
    assert all(np.isfinite(x) for x in last.metrics.values())


def test_critics_see_what_is_privileged() -> None:
    (_, after), _ = acts(1.0)
    assert view(after.obs, "policy").shape == (1,)
    np.testing.assert_array_equal(view(after.obs, "critic")[1:], [1.0])


def test_nothing_of_an_episode_lives_on() -> None:
    """Not `info`, which the training wrapper of theirs leaves as it was."""
    states, env = acts(1.0, 1.0, 1.0)
    fresh = env.restart(states[-1])
    assert float(view(fresh.obs, "critic")[1]) == 0
    assert float(view(env.step(fresh, jnp.zeros(1)).obs, "critic")[1]) == 0
    np.testing.assert_array_equal(fresh.obs["critic"], env.reset(states[-1].key).obs["critic"])
    going = env.restart(states[1])
    assert jax.tree.all(jax.tree.map(lambda x, y: (x == y).all(), going, states[1]))


def test_a_rollout_has_the_true_last_observation_and_starts_anew() -> None:
    env = counter()
    act = policy.memoryless(lambda params, obs, key: (jnp.full(1, 0.2), ()))

    @jax.jit
    def run() -> Any:
        worlds = rollout.start(env, act, (), jax.random.key(0), 3)
        return rollout.collect(env, act, (), worlds, jax.random.key(1), 9)

    _, seen, ends = run()
    at, after = seen.obs["policy"][..., 0], seen.next_obs["policy"][..., 0]
    np.testing.assert_allclose(after, at + 0.2, atol=1e-6)  # at episodes' ends as well
    np.testing.assert_array_equal(ends.ended[:, 0], [False, False, False, True] * 2 + [False])
    firsts = np.concatenate([at[0], at[4]])
    assert len({*firsts.tolist()}) == 6
    assert np.abs(firsts).max() <= 0.1
    assert view(seen.obs, "critic")[..., 1].max() == 1
    assert view(seen.obs, "critic")[4, :, 1].max() == 0


def test_a_held_action_pays_for_each_step_and_stops_at_the_end() -> None:
    env = counter(horizon=2, repeat=3)
    before = env.reset(jax.random.key(0))
    x = float(before.obs["policy"][0])
    after = env.step(before, jnp.array([0.5]))
    assert float(after.reward) == pytest.approx(3 * x + 0.5 + 1 + 1.5, abs=1e-5)
    ended = env.step(before, jnp.array([1.0]))
    steps = 2 if x >= 0 else 3
    assert float(ended.reward) == pytest.approx(steps * x + sum(range(steps + 1)), abs=1e-5)
    assert bool(ended.terminated)
    assert env.control_dt == pytest.approx(0.06)


def test_checkpoints_get_no_arrays_of_nothing() -> None:
    (first, second), _ = acts(1.0)
    assert all(x.size for x in first.sim)
    assert [x.dtype for x in first.sim] == [x.dtype for x in second.sim]
    assert not any(x.aval.weak_type for x in second.sim)


@pytest.mark.parametrize(
    ("name", "words", "match"),
    [
        ("playground:", [], "names no environment: playground:NAME does"),
        ("playground:a:b", [], "names no environment"),
        (CARTPOLE, ["--physics", "native"], "stepped by mjx or warp"),
        (CARTPOLE, ["--env.config-overrides", "[1]"], "it takes JSON as"),
        (CARTPOLE, ["--env.config-overrides", '{"impl": "jax"}'], "has impl, which is --physics"),
    ],
)
def test_refused(name: str, words: list[str], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        ppo.main(cli.parse(ppo.Args, ["--env", name, *words]))


def test_where_tasks_of_ours_are_needed_there_is_a_sentence(tmp_path: Path, fake: None) -> None:
    with pytest.raises(ValueError, match=r"Counter is MuJoCo Playground's: .*ppo"):
        make_data.main(cli.parse(make_data.Args, ["--env", COUNTER, "--by", "random"]))
    for words, match in (
        (["--hindsight", "0.5"], "--hindsight needs a task"),
        (["--demos", str(tmp_path)], "--demos are of tasks of ours"),
    ):
        with pytest.raises(ValueError, match=match):
            sac.main(cli.parse(sac.Args, ["--env", COUNTER, *words]))


@pytest.mark.long
def test_it_is_learned_recorded_filmed_and_gone_on_with(
    tmp_path: Path, fake: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--env", COUNTER, "--steps", "2048", "--num-envs", "8", "--unroll", "16", "--seeds",
             "2", "--agent.minibatches", "4", "--agent.lr", "3e-3", "--evals", "1",
             "--eval-episodes", "4", "--save-s", "0", "--out", str(tmp_path / "run")]  # fmt: skip
    monkeypatch.setattr("sys.argv", ["ppo.py", *given])
    ppo.main(cli.parse(ppo.Args, given))
    run = tmp_path / "run"
    whole, steps = runs.read_manifest(run), [int(x.name) for x in run.glob("checkpoints/*")]
    told = {name: whole[name] for name in ("env", "physics", "horizon", "status")}
    assert told == {"env": COUNTER, "physics": "mjx", "horizon": 4, "status": "done"}
    assert np.mean(whole["eval_returns"]) > 2  # who stands still has 0, the best end with 3
    assert (run / "video.mp4").stat().st_size > 0
    assert not [*run.glob("artefact*")]
    monkeypatch.setattr("sys.argv", ["ppo.py", *given])
    ppo.main(cli.parse(ppo.Args, ["--resume", str(run / "checkpoints" / str(min(steps)))]))
    again = runs.read_manifest(run)
    assert min(steps) < whole["steps"]
    assert whole["parameters_sha256"] == again["parameters_sha256"]
    assert whole["eval_returns"] == again["eval_returns"]
    capsys.readouterr()
    play.main(play.Args(run, episodes=4, video=False))
    assert "eval_return" in capsys.readouterr().out
    with pytest.raises(ValueError, match="--viewer shows worlds of ours"):
        play.main(play.Args(run, episodes=4, viewer=True))


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(playground, "import_module", missing)
    with pytest.raises(ValueError, match=r"mujoco_playground, .*'robotrl\[playground\]'"):
        Playground("playground:PointMass").world()
