"""The off-policy experiments as their users meet them: they learn, record, and refuse."""

import json
import shlex
import signal
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

import envs
from agents.crossq import CrossQ
from agents.sac import SAC
from agents.td3 import TD3
from experiments import cli, crossq, off_policy, play, sac, simbav2, td3
from rl import record, runs
from rl.checkpoint import named

SMALL = shlex.split(
    "--env InvertedPendulum-v5 --no-video --steps 8000 --num-envs 4 --learning-starts 400 "
    "--buffer-size 20000 --eval-episodes 4 --evals 4 --save-s 1000 --agent.hidden 64 64 "
    "--agent.critic-hidden 64 64"
)

FAST = ["--agent.lr", "2e-3", "--agent.critic-lr", "2e-3", "--updates-per-step", "2"]
TAU = ["--agent.tau", "0.02"]
TINY = shlex.split("--agent.hidden 16 --agent.critic-hidden 32 --batch-size 64 --agent.halve-lr 0")
BINS = shlex.split("agent.head:c51 --agent.head.low -5 --agent.head.high 5 --agent.head.bins 21")


def trained(experiment: Any, out: Path, *words: str) -> Path:
    off_policy.main(cli.parse(experiment.Args, [*SMALL, "--out", str(out), *words]))
    return out


def critic_steps(run: Path) -> list[int]:
    """Of each seed, as the optimiser in the last checkpoint counted them."""
    last = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name))
    state = ocp.StandardCheckpointer().restore((last / "state").absolute())
    counts = [x for name, x in named(state["learner"]["critic"]["opt"]) if name.endswith("count")]
    return np.asarray(counts[0]).tolist()


@pytest.mark.long
@pytest.mark.optimised
@pytest.mark.parametrize(
    ("experiment", "total", "words"),
    [
        (sac, 10_000, TAU),
        pytest.param(td3, 24_000, TAU, marks=pytest.mark.slow),
        pytest.param(crossq, 10_000, ["--agent.warm", "3000"], marks=pytest.mark.slow),
        pytest.param(simbav2, 10_000, [*TAU, *TINY, *BINS], marks=pytest.mark.slow),
    ],
    ids=["sac", "td3", "crossq", "simbav2"],
)
def test_it_learns_to_balance_and_leaves_a_record(
    experiment: Any, total: int, words: list[str], tmp_path: Path
) -> None:
    more = [*FAST, "--steps", str(total), "--seeds", "2", *words]
    run = trained(experiment, tmp_path / "run", *more)
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["status"] == "done"
    returns = np.mean(manifest["eval_returns"], axis=1)
    assert np.mean(returns) > 300  # of 1,000; untrained: about 6
    steps = [row["step"] for row in runs.read_metrics(run)]
    assert steps == sorted(set(steps))
    assert steps[-1] >= total
    assert manifest["started"] < manifest["ended"]
    assert manifest["physics"] == "native"
    assert manifest["packages"]["jax"] == metadata.version("jax")
    assert manifest["utd"] == 0.5  # two updates for each step of four worlds
    assert critic_steps(run) == runs.read_metrics(run)[-1]["updates"]
    assert critic_steps(run)[0] == (steps[-1] - 400) / 2
    evals = runs.read_rows(run / "evals.jsonl")
    assert len(evals) == 4
    assert np.shape(evals[0]["returns"]) == (2, 4)
    assert np.allclose(np.mean(evals[0]["returns"], 1), evals[0]["eval_return"])
    env, policy, params = play.load(run, 1)
    assert np.isfinite(play.judge(env, policy, params, 2)).all()


@pytest.mark.parametrize("experiment", [td3, crossq, simbav2], ids=lambda x: x.__name__)
def test_a_phase_gives_back_what_it_takes(experiment: Any) -> None:
    args = cli.parse(experiment.Args, SMALL)
    env = envs.simulate(args.env, "native")

    def runs_of(key: Any) -> Any:
        run = off_policy.begin(args, env, key)
        return run, off_policy.phase(args, env, (), run)[0]

    taken, given = jax.eval_shape(runs_of, jax.random.key(0))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), taken) == jax.tree.map(
        lambda x: (x.shape, x.dtype), given
    )


@pytest.mark.slow  # test_interface resumes one from a checkpoint, and counts its rows
def test_a_run_goes_back_to_a_checkpoint_and_forgets_what_came_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--steps", "3000", "--save-s", "0"]
    monkeypatch.setattr("sys.argv", ["sac.py", *SMALL, *words, "--out", str(tmp_path / "run")])
    run = trained(sac, tmp_path / "run", *words)
    whole, policy = runs.read_manifest(run), (run / "policy-0.safetensors").read_bytes()
    with pytest.raises(SystemExit) as done:
        sac.main(cli.parse(sac.Args, ["--resume", str(run)]))
    assert done.value.code == 0
    assert "is done: nothing to go on with" in capsys.readouterr().out
    assert runs.read_manifest(run) == whole

    first, *later = sorted(int(path.name) for path in (run / "checkpoints").iterdir())
    back = str(run / "checkpoints" / str(first))
    with monkeypatch.context() as patched:
        patched.setattr(record.Record, "spent", lambda *_: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            sac.main(cli.parse(sac.Args, ["--resume", back]))
    said = f"goes on from its checkpoint {first}, without {', '.join(map(str, later))}"
    assert said in capsys.readouterr().out
    assert [row["step"] for row in runs.read_metrics(run)][-1] == first
    assert not runs.read_manifest(run).keys() & {"eval_returns", "parameters_sha256"}
    assert (run / "policy-0.safetensors").read_bytes() != policy

    sac.main(cli.parse(sac.Args, ["--resume", str(run)]))
    again = runs.read_manifest(run)
    assert again["status"] == "done"
    assert again["eval_returns"] == whole["eval_returns"]
    assert (run / "policy-0.safetensors").read_bytes() == policy


def test_heads_are_chosen_on_the_command_line_and_come_back(tmp_path: Path) -> None:
    run = trained(sac, tmp_path / "run", "--steps", "800", "--evals", "0", "agent.head:hl-gauss",
                  "--agent.head.bins", "21")  # fmt: skip
    config = json.loads((run / "manifest.json").read_text())["config"]["agent"]
    assert (config["head"]["is"], config["head"]["bins"]) == ("HLGauss", 21)
    play.load(run)


def test_an_agent_is_named_by_its_file(tmp_path: Path) -> None:
    for name, kind in (("td3", TD3), ("crossq", CrossQ)):
        assert cli.parse(off_policy.Args, ["--agent", name]).agent == kind()
    assert cli.parse(off_policy.Args, ["--agent=td3", "--agent.tau", "0.1"]).agent.tau == 0.1
    with pytest.raises(ValueError, match="Unknown agent 'tde'"):
        cli.parse(off_policy.Args, ["--agent", "tde"])
    with pytest.raises(ValueError, match="PPO cannot learn from replay: it has no delay, observe"):
        off_policy.main(
            cli.parse(off_policy.Args, ["--agent", "ppo", "--out", str(tmp_path / "x")])
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--updates-per-step", "0"], "--updates-per-step is 0"),
        (["--learning-starts", "-1"], "--learning-starts is -1; it needs at least 0"),
        (["--n-step", "1001"], "--n-step is 1001; an episode of InvertedPendulum-v5 has 1000"),
        (["--evals", "-1"], "--evals is -1"),
        (["--save-s", "nan"], "--save-s is nan"),
        (["--steps", "400"], "learning starts after 400: give at least 401, or lower"),
        (["--threads", "1000000"], "--threads is 1000000; it takes at most 16 for each core"),
        (["--buffer-size", "300"], "must hold the 400 steps before learning starts"),
        (["--buffer-size", "100000000000"], "are free: lower --buffer-size"),
        (["--batch-size", "100000000000"], "are free: lower --batch-size or --n-step"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], why: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=why):
        trained(sac, tmp_path / "run", *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--resume", "nowhere"], "nowhere is no run: there is no such directory"),
        (["--resume=nowhere"], "nowhere is no run: there is no such directory"),
        (["--resume", "nowhere", "--seed", "1"], "takes no other flags"),
        (["--resume=nowhere", "--seed=1"], "takes no other flags"),
        (["--seed=1", "--resume=nowhere"], "takes no other flags"),
        (["--resume=nowhere", "--env", "Hopper-v5"], "takes no other flags"),
    ],
)
def test_what_cannot_be_resumed_is_refused(words: list[str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        cli.parse(sac.Args, words)


@pytest.mark.parametrize(
    "facts", [{}, {"argv": []}, {"argv": ["a"], "seeds": []}, {"argv": ["a"], "seeds": [1]}, []]
)
def test_a_manifest_without_what_a_resume_needs_is_refused(facts: Any, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match=r"manifest\.json is damaged: it (has|holds) no"):
        cli.parse(sac.Args, ["--resume", str(tmp_path)])


def test_a_checkpoint_is_named_by_its_step() -> None:
    assert runs.step_of(Path("runs/sac/checkpoints/500")) == 500
    assert runs.step_of(Path("runs/sac")) is None
    with pytest.raises(ValueError, match="are numbers of steps"):
        runs.step_of(Path("runs/sac/checkpoints/last"))


def test_a_run_of_another_experiment_or_version_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "--steps", "800", "--evals", "0"
    given = [*SMALL, *words, "--out", str(tmp_path / "run")]
    monkeypatch.setattr("sys.argv", ["experiments/sac.py", *given])
    run = trained(sac, tmp_path / "run", *words)
    assert cli.parse(sac.Args, ["--resume", str(run)]).agent.hidden == (64, 64)
    where = run / "manifest.json"
    manifest = json.loads(where.read_text())
    manifest["config"]["agent"]["gamma"] = 0.5
    where.write_text(json.dumps(manifest))
    with pytest.raises(
        ValueError, match=r"has config.agent.gamma = 0.5, not 0.99.*commit in its manifest"
    ):
        cli.parse(sac.Args, ["--resume", str(run)])
    monkeypatch.setattr("sys.argv", ["experiments/td3.py"])
    with pytest.raises(ValueError, match=r"was begun by experiments/sac\.py"):
        cli.parse(td3.Args, ["--resume", str(run)])


def test_an_iteration_lets_the_actor_learn_a_whole_time() -> None:
    def pace(updates: int, delay: int) -> tuple[int, int]:
        agent = SAC(delay=delay)
        return off_policy.pace(off_policy.Args(updates_per_step=updates, agent=agent))

    assert pace(1, 1) == (1, 1)
    assert pace(1, 2) == (2, 1)  # TD3: two steps, two of the critics, one of the actor
    assert pace(20, 20) == (1, 1)  # REDQ
    assert pace(8, 1) == (1, 8)
    assert pace(2, 3) == (3, 2)


@pytest.mark.parametrize(
    ("steps", "evals", "phases"),
    [(100_000, 10, 90), (13_000, 20, 20), (10_025, 20, 13), (10_025, 0, 1), (10_001, 5, 1)],
)
def test_phases_are_short_enough_to_judge_as_often_as_asked(
    steps: int, evals: int, phases: int
) -> None:
    found, each = off_policy.plan(off_policy.Args(steps=steps, evals=evals))
    assert found == phases
    assert 0 <= found * each - (steps - 10_000) < each  # rounded up to whole phases
