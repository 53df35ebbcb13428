"""A student comes to do what its teacher would, from less than the teacher knows."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.dagger import DAgger
from experiments import cli, play, teacher_student
from rl import artefact
from rl.types import Transition

SMALL = "--num-envs", "8", "--unroll", "8", "--no-video", "--eval-episodes", "2"


def batch_of(rng: np.random.Generator, weights: np.ndarray) -> Transition:
    """Steps [16, 32] of a teacher that is linear in what the student sees."""
    obs = rng.normal(3, 2, (16, 32, 6)).astype("f4")
    wanted = np.tanh((obs - 3) / 2 @ weights)
    done = np.zeros((16, 32), bool)
    return Transition({"policy": obs}, wanted, done * 0.0, done, done, obs, wanted)


def test_a_student_learns_what_the_teacher_does() -> None:
    agent, rng = DAgger(hidden=(32,)), np.random.default_rng(0)
    weights = rng.normal(size=(6, 3)) / 3
    batch = batch_of(rng, weights)
    state = agent.init(jax.random.key(0), {"policy": jnp.zeros(6)}, jnp.zeros(3))
    update, losses = jax.jit(agent.update), []
    for i in range(60):
        state, metrics = update(state, batch_of(rng, weights), jax.random.key(i))
        losses.append(float(metrics["imitation_loss"]))
    assert losses[-1] < 0.02 * losses[0]
    act = jax.jit(partial(agent.policy(False, 3).step, agent.deploy(state), ()))
    got = jax.vmap(lambda o: act({"policy": o}, jax.random.key(0))[0])(batch.obs["policy"][0])
    assert np.std(got - batch.aux[0]) < 0.15 * np.std(batch.aux[0])


def test_the_loss_is_the_mean_square() -> None:
    agent, rng = DAgger(hidden=(4,)), np.random.default_rng(0)
    state = agent.init(jax.random.key(0), jnp.zeros(5), jnp.zeros(2))
    obs, wanted = rng.normal(size=(7, 5)), rng.normal(size=(7, 2))
    policy = agent.policy(False, 2)
    still = state.obs._replace(count=jnp.float32(1))  # mean 0, variance 1
    params = {"actor": state.actor.params, "obs": still}
    done = [policy.step(params, (), jnp.array(o), jax.random.key(0))[0] for o in obs]
    loss, _ = agent.loss(state.actor.params, jnp.array(obs), jnp.array(wanted))
    np.testing.assert_allclose(loss, np.mean((np.array(done) - wanted) ** 2), rtol=1e-5)


POLICIES = Path(__file__).parent.parent / "benchmarks" / "policies"
TEACHER = POLICIES / "go2-rough-teacher"


def student(out: Path, *words: str) -> Any:
    given = ["--env", "go2-joystick-rough", "--teacher", str(TEACHER), "--steps", "256", *SMALL]
    given += ["--agent.hidden", "8", "--agent.minibatches", "2", "--out", str(out), *words]
    return cli.parse(teacher_student.Args, given)


@pytest.mark.slow
def test_a_student_leaves_an_artefact(tmp_path: Path) -> None:
    args = student(tmp_path / "run", "--env.history", "5")
    teacher_student.main(args)
    found = artefact.read(tmp_path / "run" / "artefact-0.zip")
    assert sum(sensor.size for sensor in found.spec.sensors) == 12 + 12 + 3 + 4
    artefact.deploy(found, "numpy")
    env, policy, params = play.load(tmp_path / "run")
    assert np.isfinite(play.judge(env, policy, params, 2)).all()


def test_students_of_other_worlds_are_refused(tmp_path: Path) -> None:
    assert not list(TEACHER.glob("artefact*"))  # no robot could run it
    with pytest.raises(ValueError, match=r"was told 155 numbers, and this task has 150 to tell"):
        teacher_student.main(student(tmp_path / "run", "--env.randomised", "0"))
    with pytest.raises(ValueError, match=r"acts with --env.action-scale 0.5, and this"):
        teacher_student.main(student(tmp_path / "run", "--env.action-scale", "0.1"))
    with pytest.raises(ValueError, match=r"--env\.omniscient is for a teacher"):
        teacher_student.main(student(tmp_path / "run", "--env.omniscient"))
    cheetah = cli.parse(
        teacher_student.Args, ["--env", "HalfCheetah-v5", "--teacher", str(TEACHER)]
    )
    with pytest.raises(ValueError, match="HalfCheetah-v5 tells a teacher no more than a student"):
        teacher_student.main(cheetah)
    walker = ["--teacher", str(POLICIES / "go2-joystick-flat")]
    with pytest.raises(ValueError, match=r"is no teacher: train it with --env\.omniscient"):
        teacher_student.main(student(tmp_path / "run", *walker))
