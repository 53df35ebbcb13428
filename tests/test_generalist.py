"""One policy of several robots: what it is told, whom it learns from, what it leaves behind."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from experiments import cli, generalist, play
from experiments.generalist import Args, Lesson
from rl import manifest, runs
from rl.policy import Policy

GO1 = Path(__file__).parent.parent / "benchmarks" / "policies" / "go1-joystick-flat"
GO2 = GO1.parent / "go2-joystick-flat"
KEY = jax.random.key(4)
AS_TRAINED = ["--env", "go1-joystick-flat", "--env.embodied", "--env.curriculum-on"]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Go1's policy as if it were of a Go2 that sees as much."""
    out = tmp_path_factory.mktemp("runs") / "go2"
    shutil.copytree(GO1, out)
    told = json.loads((out / "manifest.json").read_text())
    task = envs.make_task("go2-joystick-flat", measured=False, history=1)
    told |= {"env": "go2-joystick-flat", "config": told["config"] | {"env": manifest.plain(task)}}
    (out / "manifest.json").write_text(json.dumps(told))
    return out


def parsed(*words: Any) -> Args:
    return cli.parse(Args, [*AS_TRAINED, *map(str, words)])


@pytest.mark.parametrize("history", [1, 3])
@pytest.mark.parametrize("robot", ["go1", "go2"])
def test_observations_end_with_which_robot_it_is(robot: str, history: int) -> None:
    fields: Any = {"measured": False, "history": history}
    plain, embodied = (
        envs.make_task(f"{robot}-joystick-flat", **fields, embodied=x) for x in (False, True)
    )
    env: Any = envs.simulate(plain, "native", threads=1)
    raw = env.physics.read(env.physics.blank())
    raw = raw | {"orientation": jnp.array([1.0, 0, 0, 0])}
    start = plain.reset(KEY, plain.context())
    command = jnp.array([0.3, -0.2, 0.1])
    seen = [x.observe(raw, command, x.memory())[0] for x in (plain, embodied)]
    np.testing.assert_array_equal(seen[1][:-2], seen[0])
    np.testing.assert_array_equal(seen[1][-2:], [robot == "go1", robot == "go2"])
    known = [
        x.privileged(raw, y, start.episode) for x, y in zip((plain, embodied), seen, strict=True)
    ]
    np.testing.assert_array_equal(np.delete(known[1], [48, 49]), known[0])
    image = embodied.mirror.obs["policy"](seen[1])
    np.testing.assert_array_equal(image[:-2], plain.mirror.obs["policy"](seen[0]))
    np.testing.assert_array_equal(image[-2:], seen[1][-2:])


def test_a_teacher_acts_in_its_share_and_looks_past_which_robot_it_has() -> None:
    """What the student is to do is the teacher's action in either case."""

    def count(params: Any, carry: Any, obs: Any, key: Any) -> Any:
        return obs["policy"][:3] * params, carry + obs["policy"].size, ()

    teacher = generalist.unaware(Policy(lambda params: jnp.int32(0), count))
    env: Any = envs.simulate(envs.make_task("go1-joystick-flat", embodied=True), "native")
    lesson = Lesson("go1-joystick-flat", env, teacher, jnp.float32(4))
    args = parsed("--teachers", GO1, GO2)
    obs = {"policy": jnp.full(50, 0.5), "critic": jnp.zeros(3)}
    learner = args.agent.init(KEY, obs, jnp.zeros(3))
    params = args.agent.deploy(learner), lesson.params
    wanted, mine = np.ones(3), args.agent.policy(False, 3).step(params[0], (), obs, KEY)[0]
    env = replace(env, task=Three())
    for share, does in ((1.0, wanted), (0.0, mine)):
        policy = generalist.taught(args, lesson._replace(env=env))
        given = *params, jnp.float32(share)
        action, carry, aux = policy.step(given, policy.init(given), obs, KEY)
        np.testing.assert_allclose(action, does, rtol=1e-6)
        np.testing.assert_allclose(aux, wanted)  # clipped from 2
        assert carry[1] == 48
    assert np.abs(mine - wanted).max() > 0.1


class Three:
    """A task of three actions."""

    class spec:
        actions = actuators = "a", "b", "c"


def test_who_cannot_teach_is_told_of(other: Path, tmp_path: Path) -> None:
    def refused(*words: Any) -> str:
        args = parsed(*words)
        with pytest.raises(ValueError, match=r".") as caught:
            generalist.lessons_of(args, envs.simulate(args.env, "native"))
        return str(caught.value)

    assert "at least two runs" in refused("--teachers", GO1)
    assert "give a joystick --env.embodied" in refused("--env.no-embodied", "--teachers", GO1)
    assert "go1-joystick-flat 50, go2-joystick-flat" in refused("--teachers", GO1, GO2)
    assert "two are of one task" in refused("--teachers", GO1, GO1)
    assert "no specialist" in refused("--teachers", GO1.parent / "hopper-medium", other)
    assert "env.curriculum_on" in refused("--env.no-curriculum-on", "--teachers", GO1, other)
    assert "env.robot" in refused("--teachers", other, GO1)


@pytest.mark.slow
def test_it_leaves_a_run_of_each_robot(other: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["--teachers", GO1, other, "--steps", "4096", "--num-envs", "32", "--unroll", "8"]
    words += ["--eval-episodes", "2", "--no-video", "--threads", "1", "--out", out]
    generalist.main(parsed(*words))
    told = runs.read_manifest(out)
    assert {*told["robots"]} == {"go1-joystick-flat", "go2-joystick-flat"}
    mine, theirs = (play.load(x) for x in (out, out / "go2-joystick-flat"))
    assert (mine[0].task.robot, theirs[0].task.robot) == ("go1", "go2")  # type: ignore[attr-defined]
    for x, y in zip(jax.tree.leaves(mine[2]), jax.tree.leaves(theirs[2]), strict=True):
        np.testing.assert_array_equal(x, y)
    assert (out / "go2-joystick-flat" / "artefact-0.zip").exists()


def test_it_is_told_which_robot_it_has_unless_another_task_is_named() -> None:
    """A program's own task is as the program has it, not as others of its name."""
    assert cli.parse(Args, ["--teachers", str(GO1)]).env.embodied
    assert not cli.parse(Args, ["--env", "go1-joystick-flat"]).env.embodied
