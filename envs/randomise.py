"""Robots that differ: model parameters drawn anew for each world and episode.

What is drawn is a set of MjModel fields; physics derives every constant that follows from them
(`mj_setConst`).  Terms that are off are not in the set, and the model is then the nominal one to
the last bit.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from envs.task import ParamsByField
from rl.types import Array, Key

Range = tuple[float, float]
SCALES = (
    "friction", "frictionloss", "armature", "mass", "density", "inertia", "stiffness", "damping",
    "strength",
)  # fmt: skip


@dataclass(frozen=True)
class Ranges:
    """Uniform ranges to draw from; the default is the nominal robot.

    Factors are drawn for each link, joint or motor apart.  All of it is physically possible: a
    payload is a point mass at the centre of mass, and `inertia` scales how the mass spreads along
    each principal axis, so that principal moments always obey the triangle inequality (Wensing
    et al. 2018, arXiv:1701.04395).
    """

    friction: Range = (1.0, 1.0)  # x the ground's sliding friction
    frictionloss: Range = (1.0, 1.0)  # x each joint's
    armature: Range = (1.0, 1.0)  # x each joint's
    mass: Range = (1.0, 1.0)  # x each link's, its moments of inertia left as they are
    density: Range = (1.0, 1.0)  # x each link's mass and moments of inertia
    inertia: Range = (1.0, 1.0)  # x each link's second moments about its centre of mass
    stiffness: Range = (1.0, 1.0)  # x each motor's kp
    damping: Range = (1.0, 1.0)  # x each motor's kd and each joint's damping
    strength: Range = (1.0, 1.0)  # x each motor's most force
    payload: Range = (0.0, 0.0)  # kg more, in the root link
    com: Range = (0.0, 0.0)  # m, the root link's centre of mass is off, along each axis
    encoder: Range = (0.0, 0.0)  # rad, each joint's encoder is off: motor and policy believe it

    def __post_init__(self) -> None:
        for name, (low, high) in self.items():
            if not (-math.inf < low <= high < math.inf):
                raise ValueError(f"{name} is {(low, high)}; it needs finite numbers, least first.")
            if name in SCALES and low <= 0:
                raise ValueError(
                    f"{name} is {(low, high)}; a factor of 0 or less is no physical robot."
                )

    def items(self) -> list[tuple[str, Range]]:
        """Every term's name and range."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)]

    def scaled(self, level: float) -> "Ranges":
        """These ranges drawn in around the nominal robot: all of them at 1, none at 0."""
        if not 0 <= level <= 1:
            raise ValueError(f"randomised is {level}; it is a share of the ranges, from 0 to 1.")

        def drawn_in(name: str, low: float, high: float) -> Range:
            nominal = float(name in SCALES)
            return nominal + level * (low - nominal), nominal + level * (high - nominal)

        return Ranges(**{name: drawn_in(name, *values) for name, values in self.items()})

    def check(self, model: mujoco.MjModel, root: str) -> None:
        """Raise if `root` would have no mass, or a centre of mass outside it or that is fixed."""
        if self.com != (0.0, 0.0) and model.body_simple[model.body(root).id]:
            raise ValueError(
                f"com is {self.com} m, but MuJoCo compiled {root!r} with its centre of mass fixed "
                "in its frame: give the body inertial pos other than 0, or simple='false'."
            )
        mine = model.geom_bodyid == model.body(root).id
        spread = np.linalg.norm(model.geom_pos[mine], axis=-1) + model.geom_rbound[mine]
        if mine.any() and np.abs(self.com).max() > spread.max():
            raise ValueError(
                f"com is {self.com} m; {root!r} reaches no farther than {spread.max():.2f} m."
            )
        least = model.body(root).mass[0] * self.mass[0] * self.density[0] + self.payload[0]
        if least <= 0:
            raise ValueError(
                f"payload is {self.payload} kg; it may leave {root!r} a mass of {least:.3g} kg."
            )

    def draw(self, key: Key, model: mujoco.MjModel, root: str, ground: str) -> ParamsByField:
        """Fields of `model` of one robot; `root` is a body's name.

        `ground` is that of its geoms, up to an underscore.
        """
        keys = dict(zip(dict(self.items()), jax.random.split(key, len(self.items())), strict=True))

        def uniform(name: str, *shape: int) -> Array:
            low, high = getattr(self, name)
            return jax.random.uniform(keys[name], shape, minval=low, maxval=high)

        on = {name for name, values in self.items() if values != getattr(Ranges(), name)}
        trunk, params = model.body(root).id, {}
        if "friction" in on:
            names = [model.geom(i).name for i in range(model.ngeom)]
            floor = [i for i, name in enumerate(names) if name.partition("_")[0] == ground]
            params["geom_friction"] = (
                jnp.array(model.geom_friction).at[np.array(floor), 0].mul(uniform("friction"))
            )
        for name in on & {"frictionloss", "armature"}:
            field = f"dof_{name}"
            params[field] = getattr(model, field) * uniform(name, model.nv)
        if on & {"mass", "density", "payload"}:
            mass = model.body_mass * uniform("mass", model.nbody) * uniform("density", model.nbody)
            params["body_mass"] = mass.at[trunk].add(uniform("payload"))
        if on & {"density", "inertia"}:
            moments = model.body_inertia * uniform("density", model.nbody)[:, None]
            params["body_inertia"] = spread(moments, uniform("inertia", model.nbody, 3))
        if "com" in on:
            params["body_ipos"] = jnp.array(model.body_ipos).at[trunk].add(uniform("com", 3))
        if "encoder" in on:
            hinges = np.isin(model.jnt_type, [mujoco.mjtJoint.mjJNT_HINGE])
            at = model.jnt_qposadr[hinges]
            params["qpos0"] = jnp.array(model.qpos0).at[at].add(uniform("encoder", len(at)))
        return params | self._motors(model, on, uniform)

    def _motors(
        self, model: mujoco.MjModel, on: set[str], uniform: Callable[..., Array]
    ) -> ParamsByField:
        """The fields of motors: force = gain[0] * target + bias[1] * q + bias[2] * dq, limited."""
        params, count = {}, model.nu
        kp, kd = uniform("stiffness", count), uniform("damping", count)
        if "stiffness" in on:
            params["actuator_gainprm"] = jnp.array(model.actuator_gainprm).at[:, 0].mul(kp)
        if on & {"stiffness", "damping"}:
            bias = jnp.array(model.actuator_biasprm)
            params["actuator_biasprm"] = bias.at[:, 1].mul(kp).at[:, 2].mul(kd)
        if "damping" in on:
            # A motor's own axis: the joint's damping goes with its kd.
            dofs = model.jnt_dofadr[model.actuator_trnid[:, 0]]
            params["dof_damping"] = jnp.array(model.dof_damping).at[dofs].mul(kd)
        if "strength" in on:
            most = uniform("strength", count, 1)
            params["actuator_forcerange"] = model.actuator_forcerange * most
        return params


def spread(moments: Array, factors: Array) -> Array:
    """Principal moments [..., 3] of bodies whose second moments were scaled by `factors`."""
    second = (moments.sum(-1, keepdims=True) / 2 - moments) * factors
    return second.sum(-1, keepdims=True) - second
