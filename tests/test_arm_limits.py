"""What a Franka's motors hear keeps its maker's limits of motion, whatever a policy says.

And what its tasks say is within them, so that a policy is not cut on the robot.
"""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.manipulation.expert import Expert
from envs.revealed import WORLD, Revealed
from rl import export, rollout
from rl.bridge import states
from rl.bridge.limiter import Limiter
from rl.bridge.limits import Limits
from rl.motion import motion
from rl.policy import uniform
from rl.spec import Spec
from tests.rig import Rig

DT, TICKS = 0.02, 4_000
FAR = 350  # ticks from one end of a joint's range to the other, and more
ACCELERATION = np.array([15, 7.5, 10, 12.5, 15, 20, 20])  # rad/s^2, Franka's own
SPEED = np.array([2.175] * 4 + [2.61] * 3)  # rad/s
TORQUE = np.array([87.0] * 4 + [12.0] * 3)  # N m
RATE, JERK = 1000.0, np.array([7500, 3750, 5000, 6250, 7500, 10_000, 10_000])


def spec_of(task: Any) -> Spec:
    """Of a task's arm alone."""
    spec = task.spec
    names = [f"{joint}_{what}" for joint in task.table.arm.moving for what in ("pos", "vel")]
    motors = export.actuators(
        task.model(), spec.actuators, names, task.table.rest.tolist(), spec.speeds,
        spec.accelerations, spec.torque_rates,
    )  # fmt: skip
    sensors = export.sensors(task.model(), names)
    return Spec("arm", sensors, motors, (), spec.control_dt, 0.005, 180.0)


@cache
def panda() -> Spec:
    return spec_of(envs.make_task("panda-reach", actions="joints"))


def of(field: str) -> np.ndarray:
    return np.array([getattr(motor, field) for motor in panda().actuators])


def told(angles: np.ndarray, speeds: Any = 0.0) -> dict[str, np.ndarray]:
    speeds = np.broadcast_to(speeds, angles.shape)
    found = {sensor.name: np.zeros(sensor.size) for sensor in panda().sensors}
    for motor, angle, speed in zip(panda().actuators, angles, speeds, strict=True):
        found |= {motor.position: np.array([angle]), motor.velocity: np.array([speed])}
    return found


def driven(limits: Limits, seed: int, follow: float) -> dict[str, np.ndarray]:
    """Targets [T, 8] of spells of extreme wishes, of joints that go a share of what is left."""
    rng, limiter = np.random.default_rng(seed), Limiter(panda(), limits, 1)
    at, wish, rows, angles = limiter.targets.copy(), of("rest"), [], []
    for t in range(TICKS):
        if t < 2 * FAR:
            wish = of("high") if t < FAR else of("low")
        elif rng.random() < 0.1:
            kind = rng.integers(4)
            wish = (
                np.where(rng.random(8) < 0.5, of("low"), of("high")) if kind == 0
                else rng.uniform(of("low"), of("high")) if kind == 1
                else limiter.targets + rng.normal(0, 0.3, 8) if kind == 2
                else rng.normal(0, 1e6, 8)
            )  # fmt: skip
        angles.append(at.copy())
        made = limiter.tick(wish, at, np.zeros(8))
        at = at + follow * (limiter.targets - at)
        rows.append((made.targets, made.kp))
    targets, kp = map(np.array, zip(*rows, strict=True))
    return {"targets": targets, "kp": kp, "at": np.array(angles)}


def test_the_limits_are_frankas() -> None:
    np.testing.assert_array_equal(of("acceleration")[:7], ACCELERATION)
    np.testing.assert_array_equal(of("speed")[:7], SPEED)
    np.testing.assert_array_equal(of("torque")[:7], TORQUE)
    np.testing.assert_array_equal(of("torque_rate")[:7], RATE)
    for task in map(envs.make_task, ("panda-reach", "panda-peg-insertion")):
        # Between two ticks acceleration turns over at most, which jerk allows in that time.
        assert (task.spec.control_dt > 2 * ACCELERATION / JERK).all()


@pytest.mark.parametrize("seed", range(3))
def test_targets_keep_speed_acceleration_range_and_torque_rate(seed: int) -> None:
    made = driven(Limits(), seed, follow=1.0)
    assert (made["kp"] == of("kp")).all()
    targets = made["targets"]
    assert ((targets >= of("low")) & (targets <= of("high"))).all()
    speed = np.diff(targets, axis=0)[:, :7] / DT
    assert (np.abs(speed) <= SPEED + 1e-6).all()
    assert (np.abs(speed) * of("kp")[:7] <= RATE + 1e-3).all()  # how fast torque grows
    gained = np.diff(speed, axis=0) / DT
    assert (np.abs(gained) <= ACCELERATION + 1e-6).all()
    # None of it idly: they come to their speeds, their accelerations, and their ranges' ends.
    torque = TORQUE / of("kp")[:7] / DT  # of joints that are where they were told to be
    most = np.minimum(SPEED, np.minimum(RATE / of("kp")[:7], torque))
    np.testing.assert_allclose(np.abs(speed).max(0), most, rtol=1e-6)
    np.testing.assert_allclose(np.abs(gained).max(0), ACCELERATION, rtol=1e-6)
    span = (of("high") - of("low"))[:7]
    assert (targets[:, :7].min(0) < of("low")[:7] + 0.05 * span).all()
    assert (targets[:, :7].max(0) > of("high")[:7] - 0.05 * span).all()


@pytest.mark.parametrize("seed", range(3))
def test_torque_comes_before_gentleness(seed: int) -> None:
    """Of joints that lag behind or are held fast."""
    made = driven(Limits(), seed, follow=0.02)
    ahead = made["targets"] - made["at"]
    assert (made["kp"] == of("kp")).mean() > 0.9
    assert (np.abs(ahead * made["kp"]) <= of("torque") + 1e-6).all()
    gained = np.diff(made["targets"], n=2, axis=0)[:, :7] / DT**2
    assert (np.abs(gained) > ACCELERATION + 1e-3).any()


@pytest.mark.parametrize("ticks", [1, 10])
def test_a_hold_brakes_as_joints_may_and_stays(ticks: int) -> None:
    """Whatever is said meanwhile; and who arms it again begins gently."""
    rig, at = Rig(ticks=ticks, episodes=True, spec=panda()), of("rest")
    far, rest = at + np.array([0.3] * 7 + [0.0]), rig.tick(told(at), at, reset=True)
    assert rest.state == states.ARMED
    for _ in range(8 * ticks):
        rig.tick(told(rig.core.limiter.targets), far)
    way = [rig.core.limiter.told[-1 - ticks], rig.core.limiter.targets]
    for t in range(60 * ticks):
        event = states.WAIT if t == 0 else ""
        rig.tick(told(rig.core.limiter.targets), far, event=event)
        way.append(rig.core.limiter.targets)
    assert rig.core.state == states.HOLD
    moved = np.stack(way)[:, :7]
    speed = (moved[1 + ticks :] - moved[1:-ticks]) / DT
    assert np.abs(speed[0]).max() > 0.3
    assert (np.abs(speed[ticks:] - speed[:-ticks]) / DT <= ACCELERATION + 1e-6).all()
    np.testing.assert_array_equal(moved[-20:], moved[-20:-19].repeat(20, 0))
    rig.tick(told(rig.core.limiter.targets), far, event=states.ARM)
    gained = (rig.core.limiter.targets - way[-1])[:7]
    assert (np.abs(gained) <= ACCELERATION * DT**2 + 1e-9).all()


def test_a_factor_loosens_them() -> None:
    made = driven(Limits(acceleration=100, torque=100), 0, follow=1.0)
    gained = np.diff(made["targets"], n=2, axis=0)[:, :7] / DT**2
    assert (np.abs(gained).max(0) > 2 * ACCELERATION).all()
    with pytest.raises(ValueError, match=r"limits.acceleration is 0"):
        Limits(acceleration=0).check()


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "actions", "expert"),
    [
        ("panda-reach", "joints", False),
        ("panda-pick-cube", "ee", True),
        ("so101-pick-cube", "joints", False),
        pytest.param("panda-push-t", "ee", False, marks=pytest.mark.slow),
        pytest.param("panda-peg-insertion", "joints", True, marks=pytest.mark.slow),
    ],
)
def test_the_limiter_cuts_nothing_that_a_task_asks_for(
    name: str, actions: str, expert: bool
) -> None:
    task: Any = envs.make_task(name, actions=actions)
    env = Revealed(envs.simulate(task, "native"))
    policy = Expert().policy(task) if expert else uniform(env.action_dim)

    @jax.jit
    def run(key: Any) -> Any:
        worlds = rollout.start(env, policy, (), key, 4)
        return rollout.collect(env, policy, (), worlds, key, env.horizon - 1)[1]

    seen, spec = jax.device_get(run(jax.random.key(0))), spec_of(task)
    told, wishes = seen.obs[WORLD].told, seen.next_obs[WORLD].memory.targets
    assert not seen.terminated.any()
    for world in range(4):
        rig = Rig(episodes=True, spec=spec)
        for t, wish in enumerate(wishes[:, world]):
            readings = {s.name: told[s.name][t, world].reshape(-1) for s in spec.sensors}
            made = rig.tick(readings, wish, reset=t == 0)
            assert made.state == states.ARMED, rig.core.why
            np.testing.assert_array_equal(made.command.targets.astype(np.float32), wish)


def test_joints_that_move_together_keep_their_direction_and_limits() -> None:
    names = "low", "high", "kp", "kd", "torque", "speed", "acceleration", "torque_rate"
    limits = motion({name: of(name) for name in names}, DT)
    rng, most, gain = np.random.default_rng(0), limits.step[:7], limits.gain[:7]
    reached = []
    for _ in range(2_000):
        size = rng.random() ** 2
        moved, by = size * rng.uniform(-most, most), size * rng.normal(0, 0.05, 7)
        found = limits.together(by, moved, np)
        np.testing.assert_allclose(limits.together(by, moved, jnp), found, atol=1e-7)
        assert (np.abs(found) <= most + 1e-12).all()
        assert (np.abs(found - moved) <= gain + 1e-12).all()
        within = by * min(1, (most / np.abs(by)).min())  # as fast as may be, as straight
        share = (found - moved) / (within - moved)
        np.testing.assert_allclose(share, share[0], rtol=1e-6)
        reached.append(share[0])
        if share[0] < 1 - 1e-9:  # and some joint can no more
            assert np.isclose(np.abs(found - moved), gain).any()
    assert 0 < np.mean(np.array(reached) > 1 - 1e-9) < 1
    still = limits.together(np.zeros(7), gain / 2, np)
    np.testing.assert_allclose(still, 0, atol=1e-12)
