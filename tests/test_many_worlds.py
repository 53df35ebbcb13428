"""Learning from thousands of worlds with few updates: what is explored, replayed, seen and kept."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import envs
from experiments import cli, fast_sac, fast_td3, off_policy
from experiments.fast_td3 import FAST_TD3
from rl import buffer, record, rollout, runs
from rl.samples import sample
from rl.types import Transition
from tests.learners import KEY, f64
from tests.test_rollout import Count

SMALL = [
    "--env", "InvertedPendulum-v5", "--no-video", "--num-envs", "256", "--batch-size", "512",
    "--learning-starts", "2560", "--buffer-size", "25600", "--eval-episodes", "2",
    "--agent.hidden", "16", "8", "--agent.critic-hidden", "16", "8",
]  # fmt: skip
EACH = pytest.mark.parametrize("experiment", [fast_td3, fast_sac], ids=lambda x: x.__name__)


def test_every_world_has_noise_of_its_own_for_an_episode() -> None:
    env, agent = Count(horizon=3, endless=True), replace(FAST_TD3, hidden=(4,), critic_hidden=(4,))
    policy = agent.policy(explore=True, action_dim=1)
    params = agent.deploy(agent.init(KEY, jnp.zeros(2), jnp.zeros(1)))
    step = jax.jit(lambda worlds, key: rollout.collect(env, policy, params, worlds, key, 1)[0])
    worlds, stds = rollout.start(env, policy, params, KEY, 512), []
    for t in range(5):
        worlds = step(worlds, jax.random.key(t))
        stds.append(np.asarray(worlds.carry))
    assert len({*stds[0]}) > 500
    assert 0.001 <= stds[0].min() < 0.01 < 0.38 < stds[0].max() <= 0.4
    assert (stds[0] == stds[1]).all()
    assert (stds[3] == stds[4]).all()  # after the end of an episode, of another size
    assert (stds[3] != stds[0]).all()


def test_windows_of_thousands_of_worlds_end_with_their_episodes() -> None:
    """Rewards tell world and time: what is sampled is what a loop over that world finds."""
    rows, worlds, gamma = 7, 2_048, 0.9
    rng = np.random.default_rng(5)
    row, world = np.meshgrid(np.arange(rows), np.arange(worlds), indexing="ij")
    reward, ends = (row + 10 * world).astype("f4"), rng.random((2, rows, worlds)) < 0.2
    seen = Transition(
        obs=reward[..., None], action=reward[..., None], reward=reward, terminated=ends[0],
        truncated=ends[1], next_obs=reward[..., None] + 0.5,
    )  # fmt: skip
    ring = buffer.add(buffer.init(rows, jax.tree.map(lambda x: x[0], seen)), seen)
    drawn = sample(buffer.sample(ring, KEY, 4_096, 3), gamma, lambda obs: obs)
    drawn = jax.tree.map(np.asarray, drawn)
    begun = f64(drawn.obs.policy)[:, 0].astype(int)
    assert len({*(begun // 10)}) > 1_700  # of the worlds, by chance 1,771
    cut = 0
    for i, code in enumerate(begun):
        t, where = code % 10, code // 10
        total = 0.0
        for k in range(3):
            total += gamma**k * reward[t + k, where]
            terminated, truncated = ends[:, t + k, where]
            if terminated or truncated:
                break
        cut += truncated and not terminated
        left = 0.0 if terminated else gamma ** (k + 1)
        found = drawn.reward[i], drawn.discount[i], drawn.next_obs.policy[i, 0]
        assert np.allclose(found, (total, left, reward[t + k, where] + 0.5), rtol=1e-5)
    assert cut > 500  # time limits, which bootstrap


@EACH
def test_critics_see_what_a_robot_does_not(experiment: Any) -> None:
    args = cli.parse(experiment.Args, ["--env", "go1-joystick-flat", "--num-envs", "8"])
    env = envs.simulate(args.env, "native")
    run = jax.eval_shape(lambda key: off_policy.begin(args, env, key), jax.random.key(0))
    obs = jax.eval_shape(env.reset, jax.random.key(0)).obs
    actor = run.learner.actor.params["params"]
    actor = actor.get("MLP_0", actor)["Dense_0"]["kernel"].shape
    critic = run.learner.critic.params["params"]["MLP_0"]["Dense_0"]["kernel"].shape
    policy, whole = (sum(x.size for x in jax.tree.leaves(obs[who])) for who in ("policy", "critic"))
    assert actor == (policy, 512)
    assert critic[1] == whole + 12 > policy + 12


@pytest.mark.long
@pytest.mark.parametrize(
    "experiment", [fast_td3, pytest.param(fast_sac, marks=pytest.mark.slow)],
    ids=lambda x: x.__name__,
)  # fmt: skip
def test_few_updates_of_many_worlds_go_on_where_they_were_stopped(
    experiment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the run itself has them: fewer updates than environment steps, and one after a stop."""
    run, words = tmp_path / "run", [*SMALL, "--steps", "7680", "--evals", "3", "--save-s", "0"]
    given = [*words, "--out", str(run)]
    monkeypatch.setattr("sys.argv", [f"{experiment.__name__.split('.')[1]}.py", *given])
    off_policy.main(cli.parse(experiment.Args, given))
    whole, policy = runs.read_manifest(run), (run / "policy-0.safetensors").read_bytes()
    each = experiment.Args().updates_per_step
    assert whole["utd"] == each / 256
    rows = runs.read_metrics(run)
    assert [row["updates"] for row in rows] == [each * (row["step"] - 2560) / 256 for row in rows]
    first = min(int(path.name) for path in (run / "checkpoints").iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(record.Record, "spent", lambda *_: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            off_policy.main(
                cli.parse(experiment.Args, ["--resume", str(run / "checkpoints" / str(first))])
            )
    off_policy.main(cli.parse(experiment.Args, ["--resume", str(run)]))
    assert json.loads((run / "manifest.json").read_text())["status"] == "done"
    assert (run / "policy-0.safetensors").read_bytes() == policy


def test_a_replay_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    words = ["--env", "InvertedPendulum-v5", "--num-envs", "4096", "--out", str(tmp_path / "run")]
    with pytest.raises(ValueError, match=r"a replay of 40,000,000,000 steps.*lower --buffer-size"):
        off_policy.main(cli.parse(fast_td3.Args, [*words, "--buffer-size", "40000000000"]))


@pytest.mark.slow
@pytest.mark.optimised
@pytest.mark.parametrize(
    ("experiment", "steps"), [(fast_td3, "40000"), (fast_sac, "100000")], ids=["td3", "sac"]
)
def test_they_learn_to_balance(experiment: Any, steps: str, tmp_path: Path) -> None:
    words = [*SMALL, "--num-envs", "64", "--learning-starts", "640", "--updates-per-step", "4",
             "--steps", steps, "--eval-episodes", "4", "--evals", "6",
             "--agent.lr", "1e-3", "--agent.critic-lr", "1e-3",
             "--agent.hidden", "64", "64", "--agent.critic-hidden", "64", "64", "agent.head:c51",
             "--agent.head.low", "0", "--agent.head.high", "40"]  # fmt: skip
    off_policy.main(cli.parse(experiment.Args, [*words, "--out", str(tmp_path / "run")]))
    assert np.mean(runs.read_manifest(tmp_path / "run")["eval_returns"]) > 300  # untrained: 6
