"""Making a policy deployable: what was traced here runs anywhere (rl/artefact.py)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax import export

from rl.artefact import Artefact, Golden
from rl.program import Program, record
from rl.spec import Actuator, Channel, Sensor, Spec
from rl.types import Array, Params, PyTree, Readings

PLATFORMS = "cpu", "cuda"
# From params, carry, readings and command to targets and the next carry.
Step = Callable[[Params, PyTree, Readings, Array], tuple[Array, PyTree]]
KINDS = mujoco.mjtSensor
UNITS = {  # of a sensor: its unit, and whose frame it is in where it has an object of its own
    KINDS.mjSENS_JOINTPOS: ("rad", ""),
    KINDS.mjSENS_JOINTVEL: ("rad/s", ""),
    KINDS.mjSENS_GYRO: ("rad/s", ""),
    KINDS.mjSENS_ACCELEROMETER: ("m/s^2", ""),
    KINDS.mjSENS_VELOCIMETER: ("m/s", ""),
    KINDS.mjSENS_FRAMEQUAT: ("w x y z", "world"),
    KINDS.mjSENS_FRAMEPOS: ("m", "world"),
    KINDS.mjSENS_FRAMEXAXIS: ("1", "world"),
    KINDS.mjSENS_FRAMEYAXIS: ("1", "world"),
    KINDS.mjSENS_FRAMEZAXIS: ("1", "world"),
    KINDS.mjSENS_FRAMELINVEL: ("m/s", "world"),
    KINDS.mjSENS_FRAMEANGVEL: ("rad/s", "world"),
    KINDS.mjSENS_TOUCH: ("N", ""),
    KINDS.mjSENS_FORCE: ("N", ""),
    KINDS.mjSENS_TORQUE: ("N m", ""),
    KINDS.mjSENS_TENDONPOS: ("m", ""),
    KINDS.mjSENS_ACTUATORFRC: ("N m", ""),
}


class Exporter:
    """Makes artefacts of one policy `step`, whose parameters change."""

    def __init__(
        self, spec: Spec, model: mujoco.MjModel, step: Step, params: Params, carry: PyTree
    ) -> None:
        self.spec, self.model = spec, _saved(model)
        self.carry = jax.tree.leaves(jax.device_get(carry))
        readings = {s.name: np.zeros(s.size, np.float32) for s in spec.sensors}
        trees = params, carry, readings
        structure = jax.tree.structure(trees)

        def flat(
            params: Sequence[Array], carry: Sequence[Array], readings: Sequence[Array], command: Any
        ) -> list[Array]:
            # Lists, not trees: the reader knows none of our types.
            mine, held, told = jax.tree.unflatten(structure, [*params, *carry, *readings])
            targets, held = step(mine, held, told, command)
            return [targets, *jax.tree.leaves(held)]

        example = (*map(jax.tree.leaves, trees), np.zeros(spec.asked, np.float32))
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), x.dtype), example)
        with jax.default_matmul_precision("highest"):
            self.compiled = _compiled(flat, shapes)
            self.program = _recorded(flat, shapes)
            self._run = jax.jit(self._golden(flat))

    def artefact(
        self, params: Params, readings: Mapping[str, np.ndarray], command: np.ndarray
    ) -> Artefact:
        """The artefact of `params`, its golden vectors made of readings [T, ...] and commands."""
        leaves = jax.tree.leaves(jax.device_get(params))
        with jax.default_matmul_precision("highest"):
            targets = np.asarray(self._run(leaves, self.carry, dict(readings), command))
        return Artefact(
            spec=self.spec,
            program=self.program,
            compiled=self.compiled,
            params=leaves,
            carry=self.carry,
            model=self.model,
            golden=Golden(dict(readings), command, targets),
        )

    def _golden(self, flat: Callable[..., list[Array]]) -> Callable[..., Array]:
        def run(
            params: Sequence[Array], carry: Sequence[Array], readings: Mapping[str, Array],
            command: Array,
        ) -> Array:  # fmt: skip
            def tick(carry: list[Array], now: Any) -> tuple[list[Array], Array]:
                targets, *carry = flat(params, carry, *now)
                return carry, targets

            stream = jax.tree.leaves(readings), command
            return jax.lax.scan(tick, list(carry), stream)[1]

        return run


def _compiled(flat: Callable[..., list[Array]], shapes: tuple[Any, ...]) -> bytes:
    """StableHLO that names no folder of this machine."""
    sources = "jax_hlo_source_file_canonicalization_regex"
    before = getattr(jax.config, sources)
    jax.config.update(sources, ".*")
    try:
        return bytes(export.export(jax.jit(flat), platforms=PLATFORMS)(*shapes).serialize())
    finally:
        jax.config.update(sources, before)


def _recorded(flat: Callable[..., list[Array]], shapes: Any) -> Program | str:
    try:
        return record(flat, *shapes)
    except ValueError as error:
        return str(error)


def _saved(model: mujoco.MjModel) -> bytes:
    """`model` as an MJB file has it."""
    buffer = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return buffer.tobytes()


def sensors(model: mujoco.MjModel, names: Sequence[str]) -> tuple[Sensor, ...]:
    """`names` as `model` describes them."""
    return tuple(_sensor(model, name) for name in names)


def readings(model: mujoco.MjModel, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Of these sensors at the model's keyframe, where its episodes start, if it has one."""
    data = mujoco.MjData(model)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_forward(model, data)
    return {name: data.sensor(name).data.astype(np.float32) for name in names}


def _sensor(model: mujoco.MjModel, name: str) -> Sensor:
    found = [model.sensor(i).name for i in range(model.nsensor)]
    if name not in found:
        raise ValueError(f"The model has no sensor {name!r}; it has {', '.join(found)}.")
    sensor = model.sensor(name)
    kind = KINDS(int(sensor.type[0]))
    unit, frame = UNITS.get(kind, ("", ""))
    of = mujoco.mj_id2name(model, sensor.objtype[0], sensor.objid[0])
    if sensor.refid[0] >= 0:
        frame = mujoco.mj_id2name(model, sensor.reftype[0], sensor.refid[0])
    if kind == KINDS.mjSENS_JOINTPOS and model.joint(of).type[0] == mujoco.mjtJoint.mjJNT_SLIDE:
        unit = "m"
    if kind == KINDS.mjSENS_JOINTVEL and model.joint(of).type[0] == mujoco.mjtJoint.mjJNT_SLIDE:
        unit = "m/s"
    return Sensor(name, int(sensor.dim[0]), unit, frame or of)


def actuators(
    model: mujoco.MjModel,
    names: Sequence[str],
    measured: Sequence[str],
    rest: Sequence[float],
    speeds: Sequence[float],
    accelerations: Sequence[float] = (),
    torque_rates: Sequence[float] = (),
) -> tuple[Actuator, ...]:
    """The position servos `names` of `model`, whose joints some of the sensors `measured` read."""
    found = [model.actuator(i).name for i in range(model.nu)]
    none = (0.0,) * len(names)  # which limits nothing
    made, limits = [], zip(speeds, accelerations or none, torque_rates or none, strict=True)
    for name, home, (speed, *sharp) in zip(names, rest, limits, strict=True):
        if name not in found:
            raise ValueError(f"The model has no actuator {name!r}; it has {', '.join(found)}.")
        motor = model.actuator(name)
        joint = model.joint(motor.trnid[0])
        low, high = motor.ctrlrange.tolist()
        unit = "m" if joint.type[0] == mujoco.mjtJoint.mjJNT_SLIDE else "rad"
        made.append(Actuator(
            name, unit, low, high, float(home), kp=float(motor.gainprm[0]),
            kd=float(-motor.biasprm[2]), torque=float(motor.forcerange[1]), speed=float(speed),
            position=_reading(model, measured, KINDS.mjSENS_JOINTPOS, joint.id),
            velocity=_reading(model, measured, KINDS.mjSENS_JOINTVEL, joint.id),
            acceleration=float(sharp[0]), torque_rate=float(sharp[1]),
        ))  # fmt: skip
    return tuple(made)


def _reading(model: mujoco.MjModel, measured: Sequence[str], kind: int, joint: int) -> str:
    """Which of the sensors `measured` is of this kind and of this joint; "" if none."""
    of = [name for name in measured if model.sensor(name).type[0] == kind]
    return next((name for name in of if model.sensor(name).objid[0] == joint), "")


def channels(command: Sequence[tuple[str, str, float, float]]) -> tuple[Channel, ...]:
    return tuple(Channel(*x) for x in command)
