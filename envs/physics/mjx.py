"""MJX: MuJoCo in JAX, for accelerators.  The state is what integration needs and no more."""

import contextlib
import io
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from envs.physics.native import CONSTANTS, Native
from envs.task import ParamsByField, Readings, TaskSpec
from rl.types import Array, Metrics

with contextlib.redirect_stdout(io.StringIO()):  # where it would print that Warp is not installed
    from mujoco import mjx

# mjSTATE_INTEGRATION, but for what `unsupported` refuses: history and plugins.
STATE = (
    "time", "qpos", "qvel", "act", "qacc_warmstart", "ctrl", "qfrc_applied", "xfrc_applied",
    "eq_active", "mocap_pos", "mocap_quat",
)  # fmt: skip
MAX_VALUE = 1e10  # mjMAXVAL: what exceeds it, or is no number, has blown up
# Fields that MJX takes and never reads, by what they do.  MuJoCo 3.17 has no yielding springs yet.
IGNORED = {
    "delay or history of actuators or sensors": ("nhistory", "sensor_interval"),
    "actuator armature": ("actuator_armature",),
    "actuator damping": ("actuator_damping", "actuator_dampingpoly"),
    "early actuator activation": ("actuator_actearly",),
    "polynomial joint damping": ("dof_dampingpoly",),
    "polynomial joint stiffness": ("jnt_stiffnesspoly",),
    "polynomial tendon damping": ("tendon_dampingpoly",),
    "polynomial tendon stiffness": ("tendon_stiffnesspoly",),
    "surface velocity": ("geom_surfacevel",),
    "contact adhesion": ("geom_adhesion", "pair_adhesion"),
    "the ellipsoid model of fluid forces": ("geom_fluid",),
    "plugins": ("nplugin",),
}


class Data(NamedTuple):
    state: dict[str, Array]  # the fields of STATE
    reads: Readings
    failed: Array  # [] bool


class MJX:
    """Physics of `model` for what `spec` reads.

    Raises ValueError naming what of the two MJX lacks, or would leave out without a word.
    """

    dear_resets = True

    def __init__(self, model: mujoco.MjModel, spec: TaskSpec) -> None:
        self.spec, self.model = spec, model
        if missing := unsupported(model, spec):
            raise ValueError(
                f"MJX cannot simulate this task: {'; '.join(missing)}. Use physics native."
            )
        self._native = Native(model, spec)  # for constants and for the layout of the readings
        with jax.ensure_compile_time_eval():  # kept: they must not be some trace's
            self._put, self._blank = mjx.put_model(model), mjx.make_data(model)

    def blank(self) -> Data:
        return Data(
            self._state(self._blank), self._native.read(self._native.blank()), jnp.bool(False)
        )

    def reset(
        self, data: Data, mask: Array, qpos: Array, qvel: Array, params: ParamsByField,
        settle: int = 0, ctrl: Array | None = None,
    ) -> Data:  # fmt: skip
        model, d = self._model(params), self._blank.replace(qpos=qpos, qvel=qvel)
        d = d if ctrl is None else d.replace(ctrl=ctrl)
        with jax.default_matmul_precision("highest"):
            if settle:
                d = self._steps(model, d, settle).replace(time=self._blank.time)
            d = mjx.forward(model, d)
        reads = self._reads(d, contact_forces=False)
        reads = jax.tree.map(lambda x: jnp.nan_to_num(x, posinf=0.0, neginf=0.0), reads)
        fresh = Data(self._state(d), reads, ~_sound(d))
        return jax.tree.map(lambda new, old: jnp.where(mask, new, old), fresh, data)

    def step(self, data: Data, inputs: dict[str, Array], params: ParamsByField) -> Data:
        model, d = self._model(params), self._blank.replace(**(data.state | inputs))
        # TF32, an accelerator's default, is too coarse for dynamics.
        with jax.default_matmul_precision("highest"):
            d = self._steps(model, d, self.spec.substeps)
            sound = _sound(d)
            if "cfrc_ext" in self.spec.fields:
                d = mjx.rne_postconstraint(model, d)
            if self.spec.derived == "current":
                d = mjx.sensor_pos(model, mjx.fwd_position(model, d))
                d = mjx.sensor_vel(model, mjx.fwd_velocity(model, d))
        reads = self._reads(d, contact_forces=True)
        failed = ~(sound & jnp.stack([jnp.isfinite(x).all() for x in reads.values()]).all())
        after = Data(self._state(d), reads, failed)
        kept = jax.tree.map(lambda new, old: jnp.where(failed, old, new), after, data)
        return kept._replace(failed=failed)

    def read(self, data: Data) -> Readings:
        return data.reads

    def failed(self, data: Data) -> Array:
        return data.failed

    def marks(self, data: Data) -> Metrics:
        return {}

    def qpos(self, data: Data) -> np.ndarray:
        """Poses [..., nq] of fetched data; on the host."""
        return np.asarray(data.state["qpos"])

    def constants(self, params: ParamsByField, mask: Array) -> ParamsByField:
        return self._native.constants(params, mask)

    def _steps(self, model: mjx.Model, d: mjx.Data, count: int) -> mjx.Data:
        return jax.lax.fori_loop(0, count, lambda _, d: mjx.step(model, d), d)

    def _model(self, params: ParamsByField) -> mjx.Model:
        fields = {}
        for name, value in params.items():
            held = getattr(self._put, name, None)
            if isinstance(held, jax.Array):
                fields[name] = jnp.reshape(value, held.shape)
            elif name not in CONSTANTS:
                raise ValueError(
                    f"MJX cannot vary {name} between worlds: it is fixed when MJX compiles. "
                    "Leave it out of the task's params, or use --physics native."
                )
        return self._put.replace(**fields)

    def _state(self, d: mjx.Data) -> dict[str, Array]:
        """What a world goes on from, without what this model has none of: checkpoints refuse
        arrays of nothing."""
        state = {name: jnp.asarray(getattr(d, name)) for name in STATE}
        return {name: x for name, x in state.items() if x.size}

    def _reads(self, d: mjx.Data, contact_forces: bool) -> Readings:
        """Everything declared; contact forces are zero until a step has been made."""
        reads = {}
        for name, shape in self._native.layout.items():
            if name in self.spec.sensors:
                start, size = self.model.sensor(name).adr[0], self.model.sensor(name).dim[0]
                value = d.sensordata[start : start + size]
            elif name.endswith(".rest") or (name == "cfrc_ext" and not contact_forces):
                value = jnp.zeros(shape)  # float32 has no remainder
            else:
                value = jnp.asarray(_field(d, name))
            reads[name] = value.astype(jnp.float32).reshape(shape)
        return reads


def _field(d: Any, name: str) -> Any:
    """A field of data or of a model, if MJX has it: some are among those of its implementation."""
    return getattr(d._impl if hasattr(d._impl, name) else d, name, None)


def _sound(d: mjx.Data) -> Array:
    """[] bool, nothing blew up."""
    fine = [(jnp.abs(x) < MAX_VALUE).all() for x in (d.qpos, d.qvel, d.qacc)]
    return jnp.stack(fine).all()


def unsupported(model: mujoco.MjModel, spec: TaskSpec) -> list[str]:
    """What of `model` MJX refuses or, worse, would leave out without a word; empty if nothing."""
    said = ignored(model, IGNORED, _options(model))
    if spec.cameras:
        said.append("pictures need physics native or warp")
    try:
        with jax.ensure_compile_time_eval():
            mjx.put_model(model)
            data = mjx.make_data(model)
    except NotImplementedError as error:
        what = f"{str(error).rstrip('.')} is not implemented"
        hint = " (a task named ...-newton has a solver that is)" if "Solver" in what else ""
        return [*said, what + hint]
    said += [f"there is no field {f}" for f in spec.fields if _field(data, f) is None]
    late = _late(model, spec)
    if late and _field(data, "efc_J").size == 0:
        said.append(f"without constraints it leaves {', '.join(late)} at zero")
    return said + misread(model, spec)


def ignored(
    model: mujoco.MjModel, fields: dict[str, tuple[str, ...]], options: dict[str, bool]
) -> list[str]:
    """What of `fields` the model has, and of `options` it sets, which physics would not heed."""
    had = [k for k, names in fields.items() if any(np.any(getattr(model, x)) for x in names)]
    return [f"{what} would be ignored" for what in had + [k for k, on in options.items() if on]]


def misread(model: mujoco.MjModel, spec: TaskSpec) -> list[str]:
    """Sensors that physics on a device reads at another stage of a step than MuJoCo does."""
    staged = _late(model, spec) if spec.derived == "current" else list(spec.sensors)
    if staged and model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
        return [f"under RK4 it reads {', '.join(staged)} at the last stage, not the first"]
    return []


def _late(model: mujoco.MjModel, spec: TaskSpec) -> list[str]:
    """Sensors that need accelerations."""
    stage = mujoco.mjtStage.mjSTAGE_ACC
    return [s for s in spec.sensors if model.sensor_needstage[model.sensor(s).id] == stage]


def _options(model: mujoco.MjModel) -> dict[str, bool]:
    """Options that MJX takes and does not heed, and whether `model` sets them."""
    opt, disabled = model.opt, mujoco.mjtDisableBit
    spring, damper = int(disabled.mjDSBL_SPRING), int(disabled.mjDSBL_DAMPER)
    return {
        "noslip iterations": opt.noslip_iterations > 0,
        "disabled actuator groups": opt.disableactuator != 0,
        "sleeping": bool(opt.enableflags & int(mujoco.mjtEnableBit.mjENBL_SLEEP)),
        # It drops both, and gravity compensation and fluid forces, if either is off.
        "springs without dampers, or dampers without springs,": (
            bool(opt.disableflags & spring) != bool(opt.disableflags & damper)
        ),
        "the discrete integrator": (
            opt.integrator == getattr(mujoco.mjtIntegrator, "mjINT_DISCRETE", -1)
        ),
    }
