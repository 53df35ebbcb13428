"""MJX: MuJoCo in JAX, for accelerators.  The state is what integration needs and no more."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import mjx

from envs.physics.native import Native
from envs.task import ParamsByField, Readings, TaskSpec
from rl.types import Array

STATE = ("qpos", "qvel", "act", "ctrl", "time", "qacc_warmstart", "mocap_pos", "mocap_quat")


class Data(NamedTuple):
    state: dict[str, Array]  # the fields of STATE
    reads: Readings
    failed: Array  # [] bool


class MJX:
    """Physics of `model` for what `spec` reads."""

    pooled = True

    def __init__(self, model: mujoco.MjModel, spec: TaskSpec) -> None:
        self.spec, self.model = spec, model
        if missing := unsupported(model, spec):
            raise ValueError(
                f"MJX cannot simulate this task: {'; '.join(missing)}. Use --physics native."
            )
        self._native = Native(model, spec)  # for constants and for the layout of the readings
        self._put, self._blank = mjx.put_model(model), mjx.make_data(model)

    def blank(self) -> Data:
        state = {name: jnp.asarray(getattr(self._blank, name)) for name in STATE}
        return Data(state, self._native.blank().reads, jnp.bool(False))

    def reset(
        self, data: Data, mask: Array, qpos: Array, qvel: Array, params: ParamsByField
    ) -> Data:
        d = mjx.forward(self._model(params), self._blank.replace(qpos=qpos, qvel=qvel))
        fresh = self._data(d, jnp.bool(False), contact_forces=False)
        return jax.tree.map(lambda new, old: jnp.where(mask, new, old), fresh, data)

    def step(self, data: Data, inputs: dict[str, Array], params: ParamsByField) -> Data:
        model = self._model(params)
        d = self._blank.replace(**data.state).replace(**inputs)
        d = jax.lax.fori_loop(0, self.spec.substeps, lambda _, d: mjx.step(model, d), d)
        if self.spec.derived == "current":
            d = mjx.sensor_vel(model, mjx.sensor_pos(model, _position_and_velocity(model, d)))
        failed = ~jnp.stack([jnp.isfinite(d.qpos).all(), jnp.isfinite(d.qvel).all()]).all()
        after = self._data(_contact_forces(model, d, self.spec), failed, contact_forces=True)
        kept = jax.tree.map(lambda new, old: jnp.where(failed, old, new), after, data)
        return kept._replace(failed=failed)

    def read(self, data: Data) -> Readings:
        return data.reads

    def failed(self, data: Data) -> Array:
        return data.failed

    def constants(self, params: ParamsByField) -> ParamsByField:
        return self._native.constants(params)

    def _model(self, params: ParamsByField) -> mjx.Model:
        return self._put.replace(**params) if params else self._put

    def _data(self, d: mjx.Data, failed: Array, contact_forces: bool) -> Data:
        reads = {}
        for name, shape in self._native.layout.items():
            if name in self.spec.sensors:
                sensor = self.model.sensor(name)
                value = d.sensordata[sensor.adr[0] : sensor.adr[0] + sensor.dim[0]]
            elif name.endswith(".rest") or (name == "cfrc_ext" and not contact_forces):
                value = jnp.zeros(shape)
            else:
                value = jnp.asarray(getattr(d, name))
            reads[name] = value.astype(jnp.float32).reshape(shape)
        state = {name: jnp.asarray(getattr(d, name)) for name in STATE}
        return Data(state, reads, failed)


def _position_and_velocity(model: mjx.Model, d: mjx.Data) -> mjx.Data:
    return mjx.fwd_velocity(model, mjx.fwd_position(model, d))


def _contact_forces(model: mjx.Model, d: mjx.Data, spec: TaskSpec) -> mjx.Data:
    return mjx.rne_postconstraint(model, d) if "cfrc_ext" in spec.fields else d


def unsupported(model: mujoco.MjModel, spec: TaskSpec) -> list[str]:
    """What of `model` MJX would refuse, or worse, silently leave out; empty if nothing."""
    said = []
    for what, values in {
        "actuator delay": getattr(model, "actuator_delay", 0),
        "actuator history": getattr(model, "actuator_history", 0),
        "sensor delay": getattr(model, "sensor_delay", 0),
        "polynomial joint damping": getattr(model, "dof_dampingpoly", 0),
        "polynomial joint stiffness": getattr(model, "jnt_stiffnesspoly", 0),
        "polynomial tendon damping": getattr(model, "tendon_dampingpoly", 0),
        "actuator armature": getattr(model, "actuator_armature", 0),
        "actuator damping": getattr(model, "actuator_damping", 0),
        "geom surface velocity": getattr(model, "geom_surfacevel", 0),
        "contact adhesion": getattr(model, "geom_adhesion", 0),
    }.items():
        if np.any(values):
            said.append(f"{what} would be ignored")
    if model.opt.integrator == getattr(mujoco.mjtIntegrator, "mjINT_DISCRETE", -1):
        said.append("the discrete integrator")
    if spec.cameras:
        said.append("cameras need the Warp backend or native physics")
    try:
        mjx.put_model(model)
    except NotImplementedError as error:
        said.append(str(error).rstrip("."))
    return said
