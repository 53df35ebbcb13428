"""From data into the world: what is taken over, what is learned from, and what is refused."""

import shutil
import signal
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from agents.cql import CQL
from agents.sac import SAC
from experiments import cli, offline, offline_to_online, play, start
from rl import buffer, record, runs
from rl.data import sampling
from rl.data.dataset import Dataset
from rl.types import Transition
from tests.test_offline import NAME, SMALL, balancing

ONLINE = ["--evals", "2", "--eval-episodes", "4", "--no-video", "--threads", "1", "--steps", "1500",
          "--learning-starts", "300", "--buffer-size", "4000", "--batch-size", "64"]  # fmt: skip
NETS = ["--agent.hidden", "32", "--agent.critic-hidden", "32"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return balancing(tmp_path_factory.mktemp("data") / "balancing.npz")


def learned(data: Path, out: Path, *words: str) -> Path:
    small = [w for w in SMALL if w not in ("--agent.hidden", "32")]
    given = [*small, "--data", str(data), "--out", str(out), "--steps", "500", "--evals", "0"]
    offline.main(cli.parse(offline.Args, [*given, *words]))
    return out


@pytest.fixture(scope="module")
def calql(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "calql"
    words = ["--agent", "cql", "--agent.calibrated", "--agent.actions", "2", *NETS, "--seeds", "2"]
    return learned(data, out, *words, "--seed", "3")


@pytest.fixture(scope="module")
def bc(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "bc"
    words = ["--agent", "bc", "--agent.hidden", "32", "--steps", "2000", "--agent.lr", "1e-3"]
    return learned(data, out, *words)


def parsed(*words: str) -> offline_to_online.Args:
    return cli.parse(offline_to_online.Args, [*ONLINE, *words])


def begun(args: offline_to_online.Args) -> tuple[Any, Any]:
    """A run as it begins, of each seed, and its course."""
    env = envs.simulate(args.env, "native")
    data = offline.prepared(args, env) if args.data else None
    course = offline_to_online.course(args, env, data, start.start(args, env))
    keys = jax.vmap(jax.random.key)(jnp.arange(args.seed, args.seed + args.seeds))
    return jax.vmap(lambda *one: course.begin(*course.given, *one))(keys, *course.start), course


def episodes(rng: np.random.Generator, worlds: int, rows: int) -> tuple[Transition, Dataset]:
    """Steps [T, N] with ends of both kinds, and the same as a dataset of whole episodes."""
    reward = rng.normal(-0.2, 1, (rows, worlds)).astype("f4")
    over = rng.random((rows, worlds)) < 0.2
    over[rows // 3 :: 7] = True  # episodes of a few steps, or `most` would be many
    over[-1] = True
    terminated = over & (rng.random(over.shape) < 0.5)
    seen = Transition(reward, reward, reward, terminated, over & ~terminated, reward)
    flat = {n: x.T.ravel() for n, x in (("reward", reward), ("mask", ~terminated))}
    lengths = np.diff(np.flatnonzero(over.T.ravel()), prepend=-1)
    return seen, Dataset(flat, {"length": lengths}, {})


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_what_steps_came_to_online_is_what_data_say(seed: int, gamma: float) -> None:
    seen, same = episodes(np.random.default_rng(seed), worlds=3, rows=40)
    replay = buffer.init(40, jax.tree.map(lambda x: jnp.asarray(x[0]), seen))
    replay = buffer.add(replay, jax.tree.map(jnp.asarray, seen))
    at = buffer.Place(jnp.tile(jnp.arange(40), 3), jnp.repeat(jnp.arange(3), 40))
    found = buffer.to_go(replay, at, gamma, 40, -7.0)
    np.testing.assert_allclose(found, sampling.to_go(same, gamma), rtol=1e-4, atol=1e-5)
    off = seen._replace(terminated=seen.terminated & False, truncated=seen.truncated & False)
    unfinished = replay._replace(data=jax.tree.map(jnp.asarray, off))
    assert (buffer.to_go(unfinished, at, gamma, 40, -7.0) == -7).all()


def test_a_warm_start_keeps_the_learner_and_sees_no_data(
    calql: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = parsed("--start-from", str(calql), "--agent", "sac", *NETS, "--seed", "4")
    assert (args.env_name, type(args.agent)) == (NAME, SAC)
    run, course = begun(args)
    assert "actor, critic, target, log_alpha, obs of" in capsys.readouterr().out
    assert course.given == ((),)  # nothing is retained
    theirs = play.load(calql, seed=4)[2]
    jax.tree.map(
        lambda x, y: np.testing.assert_array_equal(x[0], y),
        run.learner.actor.params,
        theirs["actor"],
    )
    assert int(run.learner.critic.opt[0].count[0]) == 500  # the optimiser's state came along


@pytest.mark.long
def test_who_goes_on_goes_on_with_its_own_settings(calql: Path) -> None:
    args = parsed("--start-from", str(calql), "--seed", "3", "--agent.penalty", "0.5")
    assert args.agent == CQL((32,), (32,), calibrated=True, actions=2, penalty=0.5)
    both, _ = begun(parsed("--start-from", str(calql), "--seed", "3", "--seeds", "2"))
    alone, _ = begun(args)
    first = jax.tree.leaves(both.learner.critic.params)[0]
    np.testing.assert_array_equal(first[0], jax.tree.leaves(alone.learner.critic.params)[0][0])
    assert not np.array_equal(first[0], first[1])


def test_a_run_is_not_asked_for_what_is_named() -> None:
    args = parsed("--start-from", "nowhere", "--env", NAME, "--agent", "cql", *NETS)
    assert (args.start_from, args.env_name) == (Path("nowhere"), NAME)
    assert args.agent == CQL((32,), (32,))


def test_an_actor_alone_is_taken_and_critics_begin_afresh(
    bc: Path, calql: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--agent", "iql", "--agent.hidden", "32", "--agent.normalise"]
    run, _ = begun(parsed("--start-from", str(bc), *words))
    assert "start    actor, obs of" in (said := capsys.readouterr().out)
    assert "fresh: critic, target, value" in said
    theirs = play.load(bc)[2]
    found = jax.tree.leaves(run.learner.actor.params)
    for x, y in zip(found, jax.tree.leaves(theirs["actor"]), strict=True):
        np.testing.assert_array_equal(x[0], y)
    # What it has seen, it saw by its policy, not by chance.
    seen, policy = jax.tree.map(lambda x: x[0, :100, 0], run.replay.data), play.load(bc)[1]
    mean = jax.vmap(lambda o: policy.step(theirs, (), o, jax.random.key(0))[0])(seen.obs)
    assert np.corrcoef(mean[:, 0], seen.action[:, 0])[0, 1] > 0.7
    afresh, _ = begun(parsed("--start-from", str(calql), "--take", "actor", "--seed", "3"))
    assert int(afresh.learner.critic.opt[0].count[0]) == 0
    assert int(afresh.learner.actor.opt[0].count[0]) == 500


@pytest.mark.parametrize("mix", [0.25, 0.5])
def test_every_batch_has_its_share_of_the_data(calql: Path, data: Path, mix: float) -> None:
    """Of each update, and not of all together: an update must not see the data alone."""
    seen = []

    class Spy(CQL):
        def update(self, state: Any, batch: Transition, key: Any) -> Any:
            jax.debug.callback(lambda x: seen.append(np.asarray(x)), batch.obs[..., 0, 1])
            return state, {}

    words = ["--start-from", str(calql), "--seed", "3", "--data", str(data), "--mix", str(mix)]
    args = parsed(*words, "--updates-per-step", "3")
    run, course = begun(args)
    one, (source,) = jax.tree.map(lambda x: x[0], run), course.given[0]
    spied = offline_to_online.replace(args, agent=Spy(**vars(args.agent)))
    env = envs.simulate(args.env, "native")
    jax.jit(lambda run: offline_to_online.iterate(spied, env, run, (source,))[0].iteration)(one)
    jax.effects_barrier()
    angles = {float(x) for x in np.asarray(source.obs)[:, 1]}
    assert len(seen) == 3
    for batch in seen:
        assert sum(float(x) in angles for x in batch.ravel()) == round(64 * mix)


@pytest.mark.long
def test_it_goes_on_where_it_was_stopped_without_the_run_it_started_from(
    bc: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = tmp_path / "origin"
    shutil.copytree(bc, origin)
    words = [*ONLINE, "--start-from", str(origin), "--agent", "iql", "--agent.hidden", "32",
             "--agent.normalise", "--data", str(data), "--save-s", "0"]  # fmt: skip
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    offline_to_online.main(cli.parse(offline_to_online.Args, [*words, "--out", str(whole)]))
    monkeypatch.setattr("sys.argv", ["offline_to_online.py", *words, "--out", str(cut)])
    spent, count = record.Record.spent, iter(range(99))

    def stop(self: Any, on: str) -> float:
        if on == "train" and next(count) == 1:
            signal.raise_signal(signal.SIGINT)
        return spent(self, on)

    with monkeypatch.context() as patched:
        patched.setattr(record.Record, "spent", stop)
        with pytest.raises(SystemExit):
            offline_to_online.main(cli.parse(offline_to_online.Args, [*words, "--out", str(cut)]))
    shutil.rmtree(origin)
    offline_to_online.main(cli.parse(offline_to_online.Args, ["--resume", str(cut)]))
    told, begun = runs.read_manifest(cut), runs.read_manifest(whole)
    assert told["parameters_sha256"] == begun["parameters_sha256"]
    assert told["start"] == begun["start"]
    assert told["start"]["taken"] == ["actor", "obs"]
    evals = runs.read_rows(whole / "evals.jsonl")
    assert evals[0]["step"] == 300  # before anything is learned: what it started from
    first = np.mean(play.judge(*play.load(bc), 4))
    np.testing.assert_allclose(np.mean(evals[0]["eval_return"]), first, rtol=0.05)
    assert [row["step"] for row in evals] == [
        row["step"] for row in runs.read_rows(cut / "evals.jsonl")
    ]


OF_CALQL = ["--start-from", "{calql}", "--seed", "3"]
LATE = ["--start-from", "{bc}", "--agent", "bc", "--learning-starts", "2000"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--data", "{data}", "--mix", "1"], "--mix is 1.0; it takes a share above 0 and below 1"),
        ([], "There is nothing to begin with"),
        (["--take", "actor", "--data", "{data}"], "--take actor is for a run"),
        (["--start-from", "{calql}", "--seed", "9"], r"has no seed 9; it has \[3, 4\]"),
        ([*OF_CALQL, "--agent", "sac"], r"The actor of .*hidden \[32\], and this has \[256"),
        ([*OF_CALQL, "--agent", "iql", "--agent.hidden", "32"], "IQL has another kind of it"),
        ([*OF_CALQL, "--agent.critics", "3"], "The critic .*critics 2.*--take actor leaves"),
        ([*OF_CALQL, "--reward-scale", "2"], "learned with --reward-scale 1.0, and this has 2.0"),
        ([*OF_CALQL, "--agent.normalise"], "learned without normalised .*: --agent.no-normalise"),
        ([*OF_CALQL, "--env", "Hopper-v5"], f"it learned {NAME}, and this is Hopper-v5"),
        (["--start-from", "nowhere"], "nowhere"),
        (["--start-from", "{calql}/checkpoints/7", "--seed", "3"], r"no checkpoint 7; it has \["),
        (["--start-from"], "--start-from takes a run"),
        (LATE, "--steps is 1,500; learning starts after 2,000"),
    ],
)
def test_what_does_not_fit_is_refused(
    words: list[str], why: str, data: Path, calql: Path, bc: Path, tmp_path: Path
) -> None:
    given = [word.format(data=data, calql=calql, bc=bc) for word in words]
    named = [] if "--env" in words or "--start-from" in words else ["--env", NAME]
    with pytest.raises((ValueError, FileNotFoundError), match=why):
        offline_to_online.main(parsed(*named, *given, "--out", str(tmp_path / "run")))
    assert not (tmp_path / "run").exists()


def test_a_policy_alone_is_no_start(calql: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(calql, bare, ignore=shutil.ignore_patterns("checkpoints"))
    args = parsed("--start-from", str(bare), "--seed", "3")
    with pytest.raises(ValueError, match="has no checkpoint"):
        start.start(args, envs.simulate(args.env, "native"))
