"""What a run leaves for a robot: a Go2's policy, which does on its own what it does in training."""

import sys
import tempfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from agents.flow_bc import FlowBC
from agents.one_step import OneStep
from agents.ppo import PPO
from agents.resfit import ResFiT
from envs.locomotion.commands import COMMAND
from envs.locomotion.quadruped import ANGLES, JOINTS, SPEEDS
from envs.simulation import Sim
from experiments.deploy import GOLDEN, Deployer, artefact_of, possible, prompt
from rl import artefact
from rl.artefact import Artefact, Deployed
from rl.chunks import Chunks
from rl.policy import memoryless

NAME = "go2-joystick-flat"
SENSORS = *ANGLES, *SPEEDS, "gyro", "orientation"
WORLDS = 10


@cache
def trained() -> tuple[Any, Any, Any]:
    """Environment, policy and parameters, with a memory of three frames."""
    env, agent = envs.make(NAME, physics="native", history=3), PPO((16, 16), (2,))
    obs = {"policy": jnp.zeros(3 * 42 + 3), "critic": jnp.zeros(2)}
    key, rng = jax.random.key(0), np.random.default_rng(0)
    like = jax.eval_shape(lambda: agent.deploy(agent.init(key, obs, jnp.zeros(12))))
    made = {
        "actor": jax.tree.map(lambda x: rng.normal(0, 0.25, x.shape), like["actor"]),
        "obs": jax.tree.map(lambda x: rng.uniform(0.1, 2, x.shape), like["obs"]),
    }
    params = jax.tree.map(np.float32, made)
    return env, agent.policy(False, 12), params


def stream(ticks: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Random readings [ticks, size] and commands."""
    rng = np.random.default_rng(seed)
    sizes = dict.fromkeys(SENSORS, 1) | {"gyro": 3, "orientation": 4}
    readings = {name: rng.normal(size=(ticks, size)).astype("f4") for name, size in sizes.items()}
    return readings, rng.uniform(-1, 1, (ticks, 3)).astype("f4")


@cache
def written() -> Artefact:
    """As a run of two seeds writes it: the second's."""
    env, policy, params = trained()
    told, command = jax.tree.map(lambda x: x.reshape(2, WORLDS, -1), stream(2 * WORLDS, 0))
    sim = Sim((), {}, command, (), (), {}, told, ())
    both = jax.tree.map(lambda x: np.stack([0 * x, x]), params)
    with tempfile.TemporaryDirectory() as folder:
        log: Any = SimpleNamespace(
            out=Path(folder), manifest={"seeds": [3, 4]}, attempt=lambda name, write: write()
        )
        worlds: Any = SimpleNamespace(state=SimpleNamespace(sim=sim))
        Deployer(env, policy, NAME).write(log, both, worlds)
        assert sorted(x.name for x in log.out.iterdir()) == ["artefact-3.zip", "artefact-4.zip"]
        return artefact.read(artefact_of(log.out, 4))


def followed(deployed: Deployed, readings: dict[str, np.ndarray], command: np.ndarray) -> Any:
    """Targets [T, A]."""
    told = [{name: x[t] for name, x in readings.items()} for t in range(len(command))]
    return np.stack([deployed.step(*now) for now in zip(told, command, strict=True)])


@pytest.mark.parametrize("runtime", ["jax", "numpy"])
def test_it_does_what_the_policy_in_training_does(runtime: Any) -> None:
    """Over 200 ticks with a memory, and again after a reset."""
    (env, policy, params), (readings, command) = trained(), stream(200, 1)
    task, deployed, want = env.task, artefact.deploy(written(), runtime), []

    @jax.jit
    def tick(memory: Any, told: Any, command: Any) -> Any:
        obs, memory = task.observe(told, command, memory)
        action, _, _ = policy.step(params, (), obs, jax.random.key(0))
        return task.control(action, told, memory)

    memory = task.memory()
    for t in range(200):
        targets, memory = tick(memory, {name: x[t] for name, x in readings.items()}, command[t])
        want.append(targets)
    assert np.std(want, axis=0).min() > 0.05
    for _ in range(2):
        deployed.reset()
        got = followed(deployed, readings, command)
        np.testing.assert_allclose(got, np.stack(want), rtol=0, atol=1e-6)


@pytest.mark.parametrize("runtime", ["jax", "numpy"])
def test_golden_vectors_are_what_its_worlds_were_told(runtime: Any) -> None:
    golden, (readings, command) = written().golden, stream(2 * WORLDS, 0)
    ticks = WORLDS + np.arange(GOLDEN) % WORLDS  # the second seed's
    np.testing.assert_array_equal(golden.command, command[ticks])
    for name, x in golden.readings.items():
        np.testing.assert_array_equal(x, readings[name][ticks])
    got = followed(artefact.deploy(written(), runtime), golden.readings, golden.command)
    np.testing.assert_allclose(got, golden.targets, rtol=0, atol=1e-6)


def test_it_names_no_folder_of_the_machine_it_was_made_on() -> None:
    for folder in (str(Path(__file__).parent.parent), sys.prefix):
        assert folder.encode() not in written().compiled


def test_the_spec_is_the_robots() -> None:
    spec, legged = written().spec, trained()[0].task.legged
    assert [s.name for s in spec.sensors] == [*SENSORS]
    assert [a.name for a in spec.actuators] == [*JOINTS]
    assert [(a.position, a.velocity) for a in spec.actuators] == [*zip(ANGLES, SPEEDS, strict=True)]
    assert [(c.name, c.unit, -c.low, c.high) for c in spec.command] == [
        (name, unit, most, most) for name, unit, most in COMMAND
    ]
    assert (spec.name, spec.control_dt, spec.physics_dt) == (NAME, 0.02, legged.timestep)
    low, high = legged.robot.limits().T
    speeds = [motor.speed for motor in legged.robot.motors] * 4
    ours = {"low": low, "high": high, "rest": legged.pose, "torque": legged.robot.torques(),
            "speed": speeds, "kp": np.full(12, legged.robot.kp),
            "kd": np.full(12, legged.robot.kd)}  # fmt: skip
    for field, want in ours.items():
        np.testing.assert_allclose([getattr(a, field) for a in spec.actuators], want, rtol=1e-6)


def swapped(names: tuple[str, ...], i: int) -> list[str]:
    return [*names[:i], names[i + 1], names[i], *names[i + 2 :]]


def renamed(names: tuple[str, ...], i: int) -> list[str]:
    return [*names[:i], "new", *names[i + 1 :]]


@pytest.mark.parametrize(("what", "theirs", "said"), [
    ("actuator", swapped(JOINTS, 4), f"{JOINTS[5]!r} as its actuator 4, and not {JOINTS[4]!r}"),
    ("actuator", renamed(JOINTS, 7), f"no actuator {JOINTS[7]!r}, .* it has FR_hip, .*new"),
    ("actuator", JOINTS[:-1], "no actuator 'RL_calf', which is needed; it has FR_hip, "),
    ("actuator", (*JOINTS, "arm"), "'arm' as its actuator 12, and not 'none'"),
    ("actuator", (*JOINTS[:3], "arm", *JOINTS[3:]), "'arm' as its actuator 3, and not 'FL_hip'"),
    ("sensor", swapped(SENSORS, 24), "'orientation' as its sensor 24, and not 'gyro'"),
    ("sensor", renamed(SENSORS, 24), "no sensor 'gyro', which is needed; it has FR_hip_pos"),
    ("sensor", SENSORS[1:], "no sensor 'FR_hip_pos', which is needed; it has FR_thigh_pos"),
    ("sensor", (*SENSORS, "up"), "'up' as its sensor 26, and not 'none'"),
])  # fmt: skip
def test_another_robot_is_told_by_its_first_difference(what: str, theirs: Any, said: str) -> None:
    names = {"sensor": SENSORS, "actuator": JOINTS}
    written().spec.require(names["sensor"], names["actuator"], "The robot")
    names[what] = theirs
    with pytest.raises(ValueError, match=f"^The robot has {said}"):
        written().spec.require(names["sensor"], names["actuator"], "The robot")


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "dmc-cheetah-run", "dmc-finger-spin"])
def test_a_task_of_raw_fields_leaves_none(name: str, tmp_path: Path) -> None:
    """With a sensor besides, or without."""
    env = envs.make(name, physics="native")
    deployer = Deployer(env, trained()[1], name)
    log: Any = SimpleNamespace(out=tmp_path, manifest={"seeds": [0]})
    worlds: Any = SimpleNamespace()
    deployer.write(log, {}, worlds)
    assert not possible(env)
    assert not [*tmp_path.iterdir()]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "runtime"),
    [
        ("go2-getup", "numpy"),
        *(pytest.param("go1-footstand", x, marks=pytest.mark.slow) for x in ("jax", "numpy")),
        pytest.param("go2-getup", "jax", marks=pytest.mark.slow),
    ],
)
def test_a_task_without_a_command_is_deployed_as_well(
    name: str, runtime: Any, tmp_path: Path
) -> None:
    env, agent = envs.make(name), PPO(hidden=(8,), critic_hidden=(8,))
    state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 2))
    obs = jax.tree.map(lambda x: x[0], state.obs)
    params = agent.deploy(agent.init(jax.random.key(0), obs, np.zeros(12)))
    log: Any = SimpleNamespace(
        out=tmp_path, manifest={"seeds": [0]}, attempt=lambda name, write: write()
    )
    worlds: Any = SimpleNamespace(state=jax.tree.map(lambda x: x[None], state))
    one = jax.tree.map(lambda x: np.asarray(x)[None], params)
    Deployer(env, agent.policy(False, 12), name).write(log, one, worlds)
    policy = artefact.deploy(artefact.read(artefact_of(tmp_path, 0)), runtime)
    told = {n: np.asarray(x[0]) for n, x in state.sim.told.items()}
    seen, memory = env.task.observe(told, (), env.task.memory())
    action = agent.policy(False, 12).step(params, (), {"policy": seen}, jax.random.key(0))[0]
    want, _ = env.task.control(action, told, memory)
    np.testing.assert_allclose(policy.step(told, np.zeros(0)), want, atol=1e-6)
    pose = env.task.legged.pose  # type: ignore[attr-defined]
    assert [x.rest for x in policy.spec.actuators] == pytest.approx([*pose])


def test_on_a_robot_no_lateness_is_drawn() -> None:
    """Of an agent's own plans or of those it is above; all else stays."""
    slow = FlowBC(chunks=Chunks(horizon=8, execute=4, late=3))
    fast = FlowBC(chunks=Chunks(horizon=8, execute=4))
    assert prompt(slow) == fast
    assert prompt(ResFiT(base=slow, scale=0.2)) == ResFiT(base=fast, scale=0.2)
    assert prompt(OneStep(base=slow)) == OneStep(base=fast)
    for agent in (PPO(), fast, ResFiT(base=PPO())):
        assert prompt(agent) == agent


def test_what_a_policy_draws_is_new_at_each_tick_and_the_same_in_each_episode() -> None:
    """Of a policy that plans by noise: with the same noise for ever it may be stuck."""
    env, _, _ = trained()
    noisy = memoryless(lambda params, obs, key: (jax.random.normal(key, (12,)) / 3, ()))
    deployer, (readings, command) = Deployer(env, noisy, NAME), stream(3, 1)
    task = env.task

    def episode() -> list[np.ndarray]:
        carry, made = (task.memory(), (), jnp.int32(0)), []
        for _ in range(3):
            now = {name: jnp.asarray(x[0]) for name, x in readings.items()}
            targets, carry = deployer._step((), carry, now, jnp.asarray(command[0]))
            made.append(np.asarray(targets))
        return made

    one, other = episode(), episode()
    np.testing.assert_array_equal(one, other)
    assert np.abs(one[1] - one[0]).max() > 0.05
    assert np.abs(one[2] - one[1]).max() > 0.05
