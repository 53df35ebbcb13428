"""Programs as runs: the same as where experts are asked, on what a robot has, and built upon."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from agents.resfit import ResFiT
from agents.scripted import Scripted
from envs.manipulation.expert import Expert
from envs.manipulation.plan import SHUT, Plan, Stage, plan
from envs.manipulation.script import Script
from envs.revealed import Revealed
from experiments import cli, play, residual, scripted
from rl import manifest, rollout, runs
from rl.residual import BASE
from rl.types import view

SHAKY = Scripted(speed=0.8, noise=0.05, mistake=0.004)
ARMS = [name for name in envs.names() if hasattr(envs.make_task(name), "scripted")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "script"
    words = ["--env", "panda-reach", "--agent.mistake", "0.01", "--agent.speed", "0.8"]
    words += ["--eval-episodes", "4", "--no-video", "--threads", "1", "--out", str(out)]
    scripted.main(cli.parse(scripted.Args, words))
    return out


@pytest.mark.long
@pytest.mark.optimised
def test_it_acts_by_what_a_robot_has_as_an_expert_does_by_what_is() -> None:
    """Nothing stands between sensors and robot here, so that the two are the same."""
    plain = envs.make_task("panda-reach", actions="joints")  # by targets of before as well
    env = envs.simulate(scripted.shown(plain), "native", threads=1)
    mine = cli.found(SHAKY, env.task).policy(False, env.action_dim)
    theirs = Expert(speed=0.8, noise=0.05, mistake=0.004).policy(plain)
    other = Revealed(envs.simulate(plain, "native", threads=1))
    key = jax.random.key(3)
    got, want = (
        jax.jit(lambda e=e, p=p: rollout.evaluate(e, p, (), key, 8).returns)()
        for e, p in ((env, mine), (other, theirs))
    )
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ARMS)
def test_what_others_see_stays_as_it_was(name: str) -> None:
    task, key = envs.make_task(name), jax.random.key(1)
    like, shown = (
        jax.eval_shape(envs.simulate(t, "native").reset, key).obs
        for t in (task, scripted.shown(task))
    )
    for who in ("policy", "critic"):
        assert view(like, who).shape == view(shown, who).shape
    read = shown["script"]
    assert {*read.told} == {*task.spec.sensors}
    assert manifest.identity({"env": manifest.plain(task)}) == manifest.identity(
        {"env": {n: x for n, x in manifest.plain(task).items() if n != "scripted"}}
    )


@pytest.mark.long
def test_a_run_of_it_is_a_run_like_any_other(run: Path) -> None:
    env, policy, params = play.load(run)
    told = runs.read_manifest(run)
    assert told["status"] == "done"
    assert told["config"]["agent"]["mistake"] == 0.01
    assert told["config"]["agent"]["program"] is True
    assert (run / "artefact-0.zip").exists()  # with golden vectors that were played back
    returns = play.judge(env, policy, params, 4)
    np.testing.assert_allclose(returns, np.asarray(told["eval_returns"])[0], rtol=1e-6)


@pytest.mark.long
def test_a_residual_begins_as_the_program_it_is_above(run: Path, tmp_path: Path) -> None:
    words = ["--base", str(run), "--threads", "1", "--out", str(tmp_path / "above")]
    args = cli.parse(residual.Args, words)
    env, _, params = play.load(run)
    sure = replace(args.agent, base=replace(args.agent.base, way=0, mistake=0.0))
    agent: ResFiT = cli.found(sure, env.task)
    policy = agent.base.policy(False, env.action_dim)
    obs = jax.tree.map(jnp.zeros_like, env.reset(jax.random.key(0)).obs)
    state = agent.init(jax.random.key(0), obs, jnp.zeros(env.action_dim))
    state = state._replace(base=params, passed=jnp.bool(True))
    above = agent.policy(False, env.action_dim)
    ends = [
        jax.jit(lambda p=p, x=x: rollout.evaluate(env, p, x, jax.random.key(5), 4).returns)()
        for p, x in ((policy, params), (above, agent.deploy(state)))
    ]
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-5)
    assert BASE not in obs


class Precise:
    """A task whose tool cannot come nearer to where its stages are than 2 mm."""

    table = envs.make_task("panda-peg-insertion").table
    ways = ("one",)

    def plan(self, readings: Any, command: Any, way: Any, kept: Any) -> Plan:
        at = readings["tool_pos"] + jnp.array([0.002, 0.0, 0.0])
        stages = [Stage(at, SHUT, near) for near in (0.0004, 0.0001, 0.01, 0.01)]
        return plan(jnp.float32(0), *stages)


@pytest.mark.parametrize("patience", [0.0, 0.5])
def test_who_is_patient_for_a_while_goes_on_from_nearby(patience: float) -> None:
    """Not from farther than ten times as near as it should be, and not before."""
    told = {"tool_pos": jnp.zeros(3), "tool_quat": jnp.array([0.0, 1.0, 0.0, 0.0])}
    expert, world = Expert(patience=patience), Script(told, (), ())  # type: ignore[arg-type]
    carry, stages = expert.policy(Precise()).init(()), []  # type: ignore[arg-type]
    act = jax.jit(lambda carry: expert.act(Precise(), world, carry)[1])  # type: ignore[arg-type]
    for start in (0, 1, 2):
        now = carry._replace(stage=jnp.int32(start))
        for _ in range(30):
            now = act(now)
            stages.append(int(now.stage))
    waits = round(patience / Precise.table.period) + 1
    goes_on = [0] * waits + [1] * (30 - waits) if patience else [0] * 30
    assert stages == [*goes_on, *[1] * 30, *[3] * 30]


def test_tasks_without_a_program_are_told_of(tmp_path: Path) -> None:
    words = ["--env", "Hopper-v5", "--out", str(tmp_path / "run")]
    with pytest.raises(ValueError, match=r"no program for this task; there are for panda-"):
        scripted.main(cli.parse(scripted.Args, words))
    task = envs.make_task("panda-reach")
    agent = cli.found(Scripted(), task)
    with pytest.raises(ValueError, match=r"--env\.scripted"):
        agent.policy(False, 3)
    with pytest.raises(ValueError, match="this task has none"):
        Scripted().policy(False, 3)
    with pytest.raises(ValueError, match="way is 9"):
        cli.found(Scripted(way=9), scripted.shown(task)).policy(False, 3)
    with pytest.raises(ValueError, match="mistake"):
        Scripted(mistake=-1.0)
