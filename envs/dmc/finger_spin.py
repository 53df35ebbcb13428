"""dm_control's finger-spin: keep a body spinning with a two-link finger."""

from copy import copy
from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import mujoco

from envs.dmc import models
from envs.dmc.suite import Suite
from envs.task import Readings, Start, TaskSpec
from rl.types import Array, Key, Metrics, PyTree

SPIN_SPEED = 15.0  # rad/s
CANDIDATES = 32  # poses drawn at once, one in eleven of which touches


@dataclass(frozen=True)
class FingerSpin(Suite):
    hinge_damping: float = 0.03  # N m s/rad, of the spinner; the model's own is for other tasks

    @property
    def spec(self) -> TaskSpec:
        return self.asks(substeps=2,
            sensors=(
                "proximal", "distal", "proximal_velocity", "distal_velocity", "hinge_velocity",
                "tip", "spinner", "touchtop", "touchbottom",
            ),
        )  # fmt: skip

    def model(self) -> mujoco.MjModel:
        return _model(self.hinge_damping)

    def reset(self, key: Key, context: PyTree) -> Start:
        """A pose without contact: the first of many draws, where the suite redraws until it is."""
        draw = jax.vmap(lambda key: models.pose(key, self.model()))
        poses = draw(jax.random.split(key, CANDIDATES))
        clear = jax.vmap(self.clearance)(poses) > 0
        return Start(poses[jnp.argmax(clear)], jnp.zeros(self.model().nv))

    def state(self, readings: Readings) -> Array:
        tip = (readings["tip"] - readings["spinner"])[::2]
        touch = jnp.log1p(jnp.concatenate([readings["touchtop"], readings["touchbottom"]]))
        angles = [readings[name] for name in ("proximal", "distal")]
        speeds = [readings[f"{name}_velocity"] for name in ("proximal", "distal", "hinge")]
        return jnp.concatenate([*angles, tip, *speeds, touch])

    def earned(self, after: Readings) -> tuple[Array, Metrics]:
        speed = after["hinge_velocity"][0]
        return (speed <= -SPIN_SPEED).astype(jnp.float32), {"speed": -speed}

    def clearance(self, qpos: Array) -> Array:
        """Gap [] between fingertip and spinner in the plane of motion, m: nothing else can meet.

        Both are capsules.  A fingertip so short has an end within a radius of what it crosses, so
        the distances of the four ends decide.
        """
        model = self.model()
        proximal, distal, spin = qpos - jnp.asarray(model.qpos0, jnp.float32)
        wrist = _plane(model.body("proximal").pos) + _turn(
            proximal, _plane(model.body("distal").pos)
        )
        tip = wrist + _turn(proximal + distal, _ends(model, "fingertip"))
        hub = _plane(model.body("spinner").pos)
        gaps = []
        for cap in ("cap1", "cap2"):
            bar = hub + _turn(spin, _ends(model, cap))
            radii = model.geom("fingertip").size[0] + model.geom(cap).size[0]
            ends = [_distance(tip[0], bar), _distance(tip[1], bar)]
            ends += [_distance(bar[0], tip), _distance(bar[1], tip)]
            gaps.append(jnp.stack(ends).min() - radii)
        return jnp.stack(gaps).min()


def _plane(point) -> Array:
    """x and z of a point [3]."""
    return jnp.asarray(point[::2], jnp.float32)


def _turn(angle: Array, points: Array) -> Array:
    """Points [..., 2] of the plane turned by `angle` [], as a hinge about -y turns them."""
    x, z, cos, sin = points[..., 0], points[..., 1], jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([cos * x - sin * z, sin * x + cos * z], -1)


def _ends(model: mujoco.MjModel, capsule: str) -> Array:
    """The ends of an upright capsule's axis in its body's frame [2, 2]."""
    half = jnp.array([[0, model.geom(capsule).size[1]]])
    return _plane(model.geom(capsule).pos) + jnp.concatenate([half, -half])


def _distance(point: Array, segment: Array) -> Array:
    """Distance [] of a point [2] from a segment between two [2, 2]."""
    along = segment[1] - segment[0]
    share = jnp.clip(((point - segment[0]) * along).sum() / jnp.square(along).sum(), 0, 1)
    return jnp.linalg.norm(point - segment[0] - share * along)


@cache
def _model(hinge_damping: float) -> mujoco.MjModel:
    model = copy(models.load("finger.xml"))
    model.joint("hinge").damping = hinge_damping
    return model
