"""What walking on command is worth: the reward of MuJoCo Playground's Go1 joystick task.

Zakka et al. 2025, arXiv:2502.08844; the terms and weights are those of its code.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp

from envs.locomotion.legged import CONTROL_DT, Feet, Legged
from rl.types import Array, Metrics, Readings

POSE_WEIGHT = (1.0, 1.0, 0.1) * 4  # hips are to stay, knees may move
SOFT = 0.95  # share of the joints' ranges that is free


class Gait(NamedTuple):
    """Of each foot [4], up to the step before."""

    air_time: Array  # s since it left the ground
    peak: Array  # m, the highest it has been since
    contact: Array  # bool, at the step before

    def advance(self, feet: Feet) -> "Gait":
        up = ~feet.contact
        peak = jnp.maximum(self.peak, feet.height)
        return Gait((self.air_time + CONTROL_DT) * up, peak * up, feet.contact)


def standing() -> Gait:
    return Gait(jnp.zeros(4), jnp.zeros(4), jnp.zeros(4, bool))


@dataclass(frozen=True)
class Weights:
    """Of the reward's terms, per second."""

    tracking_lin_vel: float = 1.0
    tracking_ang_vel: float = 0.5
    lin_vel_z: float = -0.5
    ang_vel_xy: float = -0.05
    orientation: float = -5.0
    dof_pos_limits: float = -1.0
    pose: float = 0.5
    termination: float = -1.0
    stand_still: float = -1.0
    torques: float = -0.0002
    action_rate: float = -0.01
    energy: float = -0.001
    feet_clearance: float = -2.0
    feet_height: float = -0.2
    feet_slip: float = -0.1
    feet_air_time: float = 0.1


# Where feet are to swing higher, walking costs more than Playground's tracking pays: at its weights
# a Go2 learned to stand.
ROUGH = Weights(tracking_lin_vel=2.0, tracking_ang_vel=1.0)


def tracking(raw: Readings, command: Array) -> tuple[Array, Array]:
    """How well the command [3] is followed in velocity and in turning, each in [0, 1]."""
    linear = jnp.sum((command[:2] - raw["velocity"][:2]) ** 2)
    turn = (command[2] - raw["gyro"][2]) ** 2
    return jnp.exp(-linear / 0.25), jnp.exp(-turn / 0.25)


def terms(
    legged: Legged, raw: Readings, change: Array, command: Array, gait: Gait, fell: Array
) -> Metrics:
    """Each term of the reward [], before its weight; `change` [12] of the action."""
    angles, speeds = legged.joints(raw)
    feet, force = legged.feet(raw), raw["actuator_force"]
    landed = (gait.air_time > 0) & (feet.contact | gait.contact)
    peak, air_time = jnp.maximum(gait.peak, feet.height), gait.air_time + CONTROL_DT
    asked = jnp.linalg.norm(command) > 0.01
    slide = jnp.linalg.norm(feet.velocity[:, :2], axis=-1)
    swing = legged.terrain.swing
    square = lambda x: jnp.sum(x**2)  # noqa: E731
    linear, turn = tracking(raw, command)
    return {
        "tracking_lin_vel": linear,
        "tracking_ang_vel": turn,
        "lin_vel_z": raw["linvel"][2] ** 2,
        "ang_vel_xy": square(raw["angvel"][:2]),
        "orientation": square(raw["upright"][:2]),
        "dof_pos_limits": legged.beyond(angles, SOFT * legged.robot.limits()),
        "pose": jnp.exp(-jnp.sum(angles**2 * jnp.array(POSE_WEIGHT))),
        "termination": fell.astype(jnp.float32),
        "stand_still": jnp.abs(angles).sum() * ~asked,
        "torques": jnp.linalg.norm(force) + jnp.abs(force).sum(),
        "action_rate": square(change),
        "energy": jnp.sum(jnp.abs(speeds * force)),
        # The root of a speed: so it is in Playground.
        "feet_clearance": jnp.sum(jnp.abs(feet.height - swing) * jnp.sqrt(slide)),
        "feet_height": jnp.sum((peak / swing - 1) ** 2 * landed) * asked,
        "feet_slip": jnp.sum(slide**2 * feet.contact) * asked,
        "feet_air_time": jnp.sum((air_time - 0.1) * landed) * asked,
    }
