"""Runs above a base: what they begin as, what they leave as it was, what is refused."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import envs
from agents.flow_bc import FlowBC
from agents.one_step import OneStep
from experiments import base, cli, host, offline, play, residual, residual_ppo
from rl import checkpoint, manifest, record, runs
from rl import residual as combined
from rl.chunks import Chunks
from rl.data import npz
from rl.denoisers import Dense
from rl.residual import BASE
from tests.test_offline import SMALL, balancing

KEY = jax.random.key(1)
ABOVE = ["--evals", "2", "--eval-episodes", "4", "--no-video", "--threads", "1", "--steps", "900",
         "--learning-starts", "300", "--num-envs", "2", "--updates-per-step", "1"]  # fmt: skip
NETS = ["--agent.hidden", "8", "--agent.critic-hidden", "8", "--agent.critics", "2",
        "--agent.warm", "0"]  # fmt: skip
QUICK = [*ABOVE, *NETS, "--batch-size", "32", "--buffer-size", "4000"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return balancing(tmp_path_factory.mktemp("data") / "balancing.npz")


@pytest.fixture(scope="module")
def flow(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose policy plans four actions at a time."""
    out = tmp_path_factory.mktemp("runs") / "flow"
    small = [w for w in SMALL if w not in ("--agent.hidden", "32")]
    words = [*small, "--agent", "flow_bc", "--data", str(data), "--out", str(out), "--evals", "0",
             "--steps", "400", "--agent.chunks.horizon", "4", "--agent.chunks.execute", "2",
             "--agent.lr", "1e-3", "agent.net:dense", "--agent.net.hidden", "32"]  # fmt: skip
    offline.main(cli.parse(offline.Args, words))
    return out


def parsed(flow: Path, *words: str) -> Any:
    return cli.parse(residual.Args, ["--base", str(flow), *QUICK, *words])


def test_demonstrations_tell_what_the_base_would_have_done(data: Path, flow: Path) -> None:
    """At every step, going on with its chunks along the episode, and after the last."""
    env, policy, params = play.load(flow)
    found = base.along(npz.read(data), policy, params)
    keys = jax.random.split(jax.random.key(0), len(found.starts))
    for i in (0, 7):
        first, length = found.starts[i], found.episodes["length"][i]
        own = found.steps["obs/policy"][first : first + length]
        seen = np.concatenate([own, found.episodes["last_obs/policy"][i : i + 1]])
        longest = np.concatenate([seen, np.repeat(seen[-1:], 101 - len(seen), 0)])
        want = combined.followed(policy, params, longest, keys[i])
        got = found.steps[f"obs/{BASE}"][first : first + length]
        np.testing.assert_allclose(got, want[:length], atol=1e-5)
        np.testing.assert_allclose(found.episodes[f"last_obs/{BASE}"][i], want[length], atol=1e-5)
    assert np.abs(found.steps[f"obs/{BASE}"] - found.steps["action"]).max() > 0.1
    assert env.action_dim == 1


@pytest.mark.slow  # test_finetune_runs does the same with what learns above a base
def test_a_run_that_is_stopped_goes_on_as_if_it_had_not_been(
    data: Path, flow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins as its base does, leaves it as it was, and is played without it."""
    own = tmp_path / "base"
    shutil.copytree(flow, own)
    words = ["--base", str(own), *QUICK, "--data", str(data), "--save-s", "0"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    residual.main(cli.parse(residual.Args, [*words, "--out", str(whole)]))
    monkeypatch.setattr("sys.argv", ["residual.py", *words, "--out", str(cut)])
    spent, count = record.Record.spent, iter(range(99))

    def stop(self: Any, on: str) -> float:
        if on == "train" and next(count) == 1:
            signal.raise_signal(signal.SIGINT)
        return spent(self, on)

    with monkeypatch.context() as patched:
        patched.setattr(record.Record, "spent", stop)
        with pytest.raises(SystemExit):
            residual.main(cli.parse(residual.Args, [*words, "--out", str(cut)]))
    residual.main(cli.parse(residual.Args, ["--resume", str(cut)]))
    told, begun = runs.read_manifest(cut), runs.read_manifest(whole)
    assert told["parameters_sha256"] == begun["parameters_sha256"]
    params = play.load(flow)[2]
    assert told["base"]["sha256"] == checkpoint.fingerprint(params)
    evals = runs.read_rows(whole / "evals.jsonl")
    assert evals[0]["step"] == 300
    again = {f"base/{name}": x for name, x in load_file(flow / "policy-0.safetensors").items()}
    shutil.rmtree(own)
    tensors = load_file(whole / "policy-0.safetensors")
    assert all(np.array_equal(tensors[name], x) for name, x in again.items())
    actor = {name: x for name, x in tensors.items() if name.startswith("learned/actor")}
    assert max(np.abs(x).max() for name, x in actor.items() if "Dense_1" in name) > 0
    assert np.isfinite(play.judge(*play.load(whole), 2)).all()


def test_another_base_is_not_gone_on_with(
    flow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, out = tmp_path / "base", tmp_path / "run"
    shutil.copytree(flow, own)
    words = ["--base", str(own), *QUICK, "--evals", "0", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["residual.py", *words])

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    args = cli.parse(residual.Args, words)
    with monkeypatch.context() as patched:
        patched.setattr(host, "started", stop)
        with pytest.raises(KeyboardInterrupt):
            residual.main(args)
    saved, told = own / "policy-0.safetensors", runs.read_manifest(own)
    save_file({name: np.asarray(1.1 * x) for name, x in load_file(saved).items()}, saved)
    other = checkpoint.fingerprint(checkpoint.load_params(saved, play.load(flow)[2]))
    runs.write(own / "manifest.json", json.dumps(told | {"parameters_sha256": [other]}).encode())
    with pytest.raises(ValueError, match=f"begun above another policy .* and this is {other[:12]}"):
        residual.main(cli.parse(residual.Args, ["--resume", str(out)]))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--env", "Hopper-v5"], r"another observation, normaliser, action, rate.\n  base  .*"
         r"\[4\].* 25 Hz\n  task  .*\[11\].* 125 Hz"),
        (["--env", "InvertedPendulum-v5", "--env.frame-skip", "4"], "another rate.*25 Hz.*12.5 Hz"),
        (["--agent", "sac"], "SAC learns above no base; dppo, dsrl, .*resfit, resip do"),
        (["--mix", "1", "--data", "{data}"], "--mix is 1.0"),
        (["--data", "{none}"], "there is no such file"),
        (["--steps", "300"], "learning starts after 300"),
        (["--mix", "nan"], "--mix is nan"),
        (["--reward-shift", "inf"], "--reward-shift is inf; it takes a finite number"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    words: list[str], why: str, data: Path, flow: Path, tmp_path: Path
) -> None:
    known = {"data": str(data), "none": str(tmp_path / "none.npz")}
    with pytest.raises(ValueError, match=f"(?s){why}"):
        residual.main(parsed(flow, *[w.format(**known) for w in words]))


def test_a_base_with_a_mirror_has_it_above_as_well() -> None:
    """Of its task, which a manifest only tells that there is."""
    run = Path(__file__).parent.parent / "benchmarks" / "policies" / "go1-joystick-flat"
    args = cli.parse(residual_ppo.Args, ["--base", str(run)])
    config = json.loads(json.dumps(manifest.plain(args)))
    assert config["agent"]["base"]["mirror"] is True
    again = cli.learned_by("resip", config["agent"])
    env, policy, params = play.load(run)
    obs = {"policy": jax.random.normal(jax.random.key(0), (48,))}
    want = policy.step(params, (), obs, KEY)[0]
    for agent in (args.agent, again):
        base_policy = cli.found(agent, env.task).base.policy(False, 12)
        np.testing.assert_array_equal(base_policy.step(params, (), obs, KEY)[0], want)
    plain = replace(args.agent.base, mirror=None).policy(False, 12)
    assert np.abs(plain.step(params, (), obs, KEY)[0] - want).max() > 0.01


def test_no_base_is_told_of(flow: Path) -> None:
    for experiment in (residual, residual_ppo):
        with pytest.raises(ValueError, match="name a run with --base"):
            experiment.main(cli.parse(experiment.Args, ["--no-video"]))
    for name, home in (("one_step", r"\."), ("resip", r"; ResiP is for .*residual_ppo")):
        with pytest.raises(ValueError, match=f"does not learn .* here: resfit can{home}"):
            residual.main(cli.parse(residual.Args, ["--base", str(flow), "--agent", name]))
    with pytest.raises(ValueError, match=r"nowhere is no run.*; make it anew, or name another"):
        cli.parse(residual.Args, ["--base", "nowhere"])


def test_each_agent_above_a_base_has_an_experiment() -> None:
    for agent in (cli.agent(name) for name in cli.agent_names()):
        homes = [home for ability, home in base.HOMES.items() if hasattr(agent, ability)]
        assert len(homes) == (hasattr(agent, "base") and not isinstance(agent, OneStep))
        if hasattr(agent, "passes"):
            with pytest.raises(ValueError, match=r"passes is 100000; it takes a count .*1,?000"):
                replace(agent, passes=100_000)


def test_an_interface_tells_of_chunks() -> None:
    env = envs.make("InvertedPendulum-v5")
    agent = FlowBC(chunks=Chunks(history=2, horizon=4, execute=3), net=Dense((8,)))
    params = agent.deploy(agent.init(jax.random.key(0), base.blank(env), base.action(env)))
    said = str(base.interface(env, agent, params))
    assert "observation [4]; normaliser [4], [1]; action [1] slide" in said
    assert "chunk of 4, 3 done, seeing 2; rate 25 Hz" in said


@pytest.mark.long
def test_values_that_explode_stop_a_run_whose_base_stays(
    flow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, before = tmp_path / "run", (flow / "policy-0.safetensors").read_bytes()
    words = ["--agent.critic-lr", "1e6", "--agent.max-grad-norm", "1e6", "--out", str(out)]
    with pytest.raises(SystemExit, match="failed"):
        residual.main(parsed(flow, *words))
    assert (out / "diverged.json").exists()
    assert (flow / "policy-0.safetensors").read_bytes() == before
    kept = load_file(out / "policy-0.safetensors")
    mine = {n.removeprefix("base/"): x for n, x in kept.items() if n.startswith("base/")}
    assert all(
        np.array_equal(mine[n], x) for n, x in load_file(flow / "policy-0.safetensors").items()
    )


@pytest.mark.slow
def test_ppo_learns_above_a_planner(flow: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["--base", str(flow), "--evals", "1", "--eval-episodes", "2", "--no-video", "--threads",
             "1", "--num-envs", "4", "--unroll", "16", "--steps", "256", "--agent.ppo.hidden", "8",
             "--agent.ppo.critic-hidden", "8", "--agent.ppo.minibatches", "2", "--warm", "1",
             "--out", str(out)]  # fmt: skip
    residual_ppo.main(cli.parse(residual_ppo.Args, words))
    kept = load_file(out / "policy-0.safetensors")
    again = {f"base/{name}": x for name, x in load_file(flow / "policy-0.safetensors").items()}
    assert all(np.array_equal(kept[name], x) for name, x in again.items())
    assert np.isfinite(play.judge(*play.load(out), 2)).all()
