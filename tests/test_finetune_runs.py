"""Runs that fine-tune a policy that plans: they begin as it does, leave it as it was, go on as if
nothing had been, come out as artefacts, and refuse what does not fit."""

import shutil
import signal
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from experiments import cli, finetune, finetune_ppo, fql, host, offline, play
from rl import checkpoint, record, runs
from tests.test_offline import SMALL, balancing

QUICK = ["--evals", "3", "--eval-episodes", "4", "--no-video", "--threads", "1"]
OFF = [*QUICK, "--steps", "800", "--learning-starts", "200", "--warm", "200", "--num-envs", "4",
       "--updates-per-step", "2", "--batch-size", "16", "--buffer-size", "4000",
       "--agent.critics.hidden", "8"]  # fmt: skip
ON = [*QUICK, "--steps", "512", "--num-envs", "4", "--unroll", "16", "--agent.passes", "2",
      "--agent.minibatches", "2", "--agent.epochs", "1", "--agent.warm", "1",
      "--agent.baseline.hidden", "8"]  # fmt: skip
WORDS = {
    "fql": OFF, "qc": [*OFF, "--agent.candidates", "2"],
    "expo": [*OFF, "--agent.hidden", "8", "--agent.delay", "2", "--agent.candidates", "2"],
    "dsrl": [*OFF, "--agent.hidden", "8", "--agent.delay", "2"],
    "noise": [*OFF, "--agent.hidden", "8", "--agent.delay", "2", "--agent.critics-of", "noise"],
    "pa_rl": [*OFF, "--agent.delay", "2", "--agent.climbs", "2", "--agent.warm", "100"],
    "idql": OFF, "qam": [*OFF, "--agent.warm", "100"],
    "reinflow": ON, "dppo": [*ON, "--agent.learned", "1"],
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return balancing(tmp_path_factory.mktemp("data") / "balancing.npz")


def imitator(data: Path, out: Path, agent: str, *words: str) -> Path:
    """A run whose policy plans four actions at a time."""
    small = [w for w in SMALL if w not in ("--agent.hidden", "32")]
    offline.main(cli.parse(offline.Args, [
        *small, "--agent", agent, "--data", str(data), "--out", str(out), "--evals", "0",
        "--steps", "300", "--agent.chunks.horizon", "4", "--agent.chunks.execute", "2",
        *words, "agent.net:dense", "--agent.net.hidden", "16",
    ]))  # fmt: skip
    return out


@pytest.fixture(scope="module")
def flow(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return imitator(data, tmp_path_factory.mktemp("runs") / "flow", "flow_bc")


@pytest.fixture(scope="module")
def diffusion(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return imitator(data, tmp_path_factory.mktemp("runs") / "diffusion", "diffusion_bc")


def experiment(name: str) -> Any:
    return finetune_ppo if name in ("reinflow", "dppo") else finetune


def words_of(name: str, base: Path, *more: str) -> list[str]:
    agent = "dsrl" if name == "noise" else name
    return ["--agent", agent, "--base", str(base), *WORDS[name], *more]


def run(name: str, base: Path, *more: str) -> None:
    module = experiment(name)
    module.main(cli.parse(module.Args, words_of(name, base, *more)))


pytestmark = pytest.mark.long
QUICKEST = "dsrl", "reinflow"
EACH = [name if name in QUICKEST else pytest.param(name, marks=pytest.mark.slow) for name in WORDS]


@pytest.mark.parametrize("name", EACH)
def test_a_run_that_is_stopped_goes_on_as_if_it_had_not_been(
    name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    """Its base is judged beside it, left as it was, and not needed to play what came of it."""
    flow: Path = request.getfixturevalue("diffusion" if name == "dppo" else "flow")
    own, whole, cut = tmp_path / "base", tmp_path / "whole", tmp_path / "cut"
    shutil.copytree(flow, own)
    mixed = ["--data", str(data)] * (name in ("fql", "dsrl", "idql"))
    module, words = experiment(name), words_of(name, own, *mixed, "--save-s", "0")
    run(name, own, *mixed, "--save-s", "0", "--out", str(whole))
    assert "of the base, " in capsys.readouterr().out
    words = [f"{module.__name__.split('.')[1]}.py", *words, "--out", str(cut)]
    monkeypatch.setattr("sys.argv", words)
    spent, count = record.Record.spent, iter(range(99))

    def stop(self: Any, on: str) -> float:
        if on == "train" and next(count) == 1:
            signal.raise_signal(signal.SIGINT)
        return spent(self, on)

    with monkeypatch.context() as patched:
        patched.setattr(record.Record, "spent", stop)
        with pytest.raises(SystemExit):
            run(name, own, *mixed, "--save-s", "0", "--out", str(cut))
    with pytest.raises(ValueError, match=r"cut has no checkpoint 99; it has \[\d+"):
        cli.parse(module.Args, ["--resume", str(cut / "checkpoints" / "99")])
    module.main(cli.parse(module.Args, ["--resume", str(cut)]))
    told, begun = runs.read_manifest(cut), runs.read_manifest(whole)
    assert told["parameters_sha256"] == begun["parameters_sha256"]
    assert told["finetuned"] == begun["finetuned"]
    assert told["base"]["sha256"] == checkpoint.fingerprint(play.load(flow)[2])
    assert (own / "policy-0.safetensors").read_bytes() == (
        flow / "policy-0.safetensors"
    ).read_bytes()
    shutil.rmtree(own)
    assert np.isfinite(play.judge(*play.load(whole), 2)).all()
    assert learned(whole, flow, name)


def learned(out: Path, flow: Path, name: str) -> bool:
    """Whether what acts is another than the base, which steering keeps as it was."""
    mine, theirs = load_file(out / "policy-0.safetensors"), load_file(flow / "policy-0.safetensors")
    if name in ("dsrl", "noise"):
        same = all(np.array_equal(mine[f"base/{n}"], x) for n, x in theirs.items())
        return same and bool(mine["steered"])
    scales = [n for n in theirs if n.startswith("scales")]
    kept = all(np.array_equal(mine[n], theirs[n]) for n in scales)
    nets = [n for n in theirs if n.startswith("net")]
    return kept and any(np.abs(mine[n] - theirs[n]).max() > 0 for n in nets)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [("dsrl", []), ("idql", ["agent.guide:doit"]), ("idql", ["agent.guide:cdsa"])],
)
def test_a_diffusion_is_steered(
    name: str, words: list[str], diffusion: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    run(name, diffusion, "--agent.passes", "4", "--out", str(out), *words)
    assert learned(out, diffusion, name)


@pytest.mark.parametrize(
    ("name", "words", "why"),
    [
        ("fql", ["--env", "Hopper-v5"], "another observation, normaliser, action, rate"),
        ("dsrl", ["--agent", "sac"], "SAC learns above no base; dppo, dsrl, .*reinflow"),
        ("dsrl", ["--agent", "resfit"], "here: dsrl, .*qc can; ResFiT is for .*residual"),
        ("reinflow", ["--agent", "dsrl"], "here: dppo, reinflow can; DSRL is for .*finetune"),
        ("fql", ["--mix", "1", "--data", "{data}"], "--mix is 1.0"),
        ("fql", ["--data", "{none}"], "there is no such file"),
        ("noise", ["--data", "{data}"], "{data} tells nothing: leave --data out"),
        ("fql", ["--mix", "nan", "--data", "{data}"], "--mix is nan"),
        ("fql", ["--mix", "-0.1"], "--mix is -0.1"),
        ("dsrl", ["--reward-scale", "nan"], "--reward-scale is nan; it takes a finite number"),
        ("dsrl", ["--reward-shift", "inf"], "--reward-shift is inf; it takes a finite number"),
        ("reinflow", ["--reward-scale", "inf"], "--reward-scale is inf; it takes a finite number"),
        ("dsrl", ["--steps", "400"], "the base acts for 400: give at least 401, or lower"),
        ("dsrl", ["--batch-size", "100000000000"], r"are free: lower --batch-size\."),
        ("dsrl", ["--agent.base.lr", "1"], r"under --agent\.base is as --base has it"),
        ("reinflow", ["--agent.minibatches", "99"], "do not fill 99 minibatches"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    name: str, words: list[str], why: str, data: Path, flow: Path, tmp_path: Path
) -> None:
    known = {"data": str(data), "none": str(tmp_path / "none.npz")}
    words = [w.format(**known) for w in words]
    module, kept = experiment(name), words_of(name, flow)
    if "--agent" in words:  # whose flags the other's are not
        kept = ["--base", str(flow)]
    with pytest.raises(ValueError, match=why.format(**known)):
        module.main(cli.parse(module.Args, [*kept, *words]))


def test_a_base_that_cannot_is_refused_with_the_reason(
    data: Path, flow: Path, diffusion: Path, tmp_path: Path
) -> None:
    for name, why in (("fql", "FQL needs a flow"), ("reinflow", "ReinFlow needs a flow")):
        with pytest.raises(ValueError, match=f"{why}.* and DiffusionBC is none"):
            run(name, diffusion)
    with pytest.raises(ValueError, match=r"DPPO needs a diffusion.* and FlowBC is none"):
        run("dppo", flow)
    words = [*SMALL, "--agent", "bc", "--data", str(data), "--evals", "0", "--steps", "20"]
    offline.main(cli.parse(offline.Args, [*words, "--out", str(tmp_path / "bc")]))
    for name in WORDS:
        with pytest.raises(ValueError, match=r"needs a (flow|diffusion).* and BC is none"):
            run(name, tmp_path / "bc")
    late = imitator(data, tmp_path / "late", "flow_bc", "--agent.chunks.late", "1")
    with pytest.raises(ValueError, match=r"made with --agent\.chunks\.late, so that plans overlap"):
        run("dsrl", late)


def test_a_base_that_is_damaged_is_told_of_with_what_mends_it(flow: Path, tmp_path: Path) -> None:
    own = shutil.copytree(flow, tmp_path / "base")
    (own / "policy-0.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"cannot be read .*; make it anew, or name another run"):
        run("dsrl", own)


def test_an_iteration_is_done_whole_and_that_is_said(
    flow: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = cli.parse(finetune_ppo.Args, words_of("reinflow", flow, "--steps", "100"))
    finetune_ppo.check(args, host.simulated(args))
    assert "--steps is 100; an iteration, which is done whole, has 128" in capsys.readouterr().out


def test_a_base_keeps_its_task_where_that_is_named(flow: Path) -> None:
    run = Path(__file__).parent.parent / "benchmarks" / "policies" / "panda-peg-insertion-base"
    words = ["--base", str(run), "--env.rewards", "dense"]
    for more in ([], ["--env", "panda-peg-insertion"]):
        env = cli.parse(finetune.Args, [*words, *more]).env
        assert (env.clearance, env.rewards) == (0.005, "dense")
    assert cli.parse(finetune.Args, [*words, "--env", "panda-push-t"]).env.rewards == "dense"


def test_nothing_to_build_upon_is_told_of(flow: Path) -> None:
    for module in (finetune, finetune_ppo):
        with pytest.raises(ValueError, match="name a run with --base"):
            module.main(cli.parse(module.Args, ["--no-video"]))
        with pytest.raises(ValueError, match=r"--base, of whose task --env.rewards is then a flag"):
            cli.parse(module.Args, ["--agent", "dppo", "--env.rewards", "dense"])
    with pytest.raises(ValueError, match=r"under --agent\.base is as --base has it"):
        run("fql", flow, "--agent.base.lr", "1")


def test_values_that_explode_stop_a_run_whose_base_stays(flow: Path, tmp_path: Path) -> None:
    out, before = tmp_path / "run", (flow / "policy-0.safetensors").read_bytes()
    with pytest.raises(SystemExit, match="failed"):
        run("dsrl", flow, "--agent.critics.lr", "1e9", "--evals", "0", "--out", str(out))
    assert (out / "diverged.json").exists()
    assert (flow / "policy-0.safetensors").read_bytes() == before
    params = jax.tree.leaves(play.load(out)[2])
    assert all(np.isfinite(x).all() for x in params)


def test_a_flow_is_learned_from_data_and_from_nothing_else(data: Path, tmp_path: Path) -> None:
    """Its authors' way, at a small size."""
    out, small = tmp_path / "run", [w for w in SMALL if w not in ("--agent.hidden", "32")]
    words = [*small, "--data", str(data), "--out", str(out), "--evals", "0", "--steps", "300"]
    net = "agent.base.net:dense", "--agent.base.net.hidden", "16"
    fql.main(cli.parse(fql.Args, [*words, "--agent.critics.hidden", "16", *net]))
    assert np.isfinite(play.judge(*play.load(out), 2)).all()
    with pytest.raises(ValueError, match="FQL cannot learn from data"):
        offline.main(cli.parse(offline.Args, [*small, "--agent", "fql", "--data", str(data)]))
