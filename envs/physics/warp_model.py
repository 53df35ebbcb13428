"""What MJX-Warp takes of a model: what it lacks, and how much room it needs for contacts."""

from typing import Any, NamedTuple

import jax
import mujoco
import numpy as np

from envs.physics.mjx import _field, ignored, misread, mjx
from envs.task import TaskSpec

try:
    import warp
    from mujoco.mjx.third_party.mujoco_warp._src.types import OverflowType as OverflowType
    from mujoco.mjx.warp import types as layout
except ImportError:
    raise ValueError("Physics warp needs warp-lang: pip install 'robotrl[warp]'.") from None

warp.config.log_level = warp.LOG_ERROR  # or it tells of each kernel that it compiles
if jax.default_backend() == "cpu":  # where a minute of optimising makes nothing faster
    warp.config.optimization_level = 0
BATCHED: dict[str, dict[str, bool]] = layout._BATCH_DIM  # fields that each world has of its own
# Most contacts of a pair of geoms, by their types; EACH of all others, which take a search.
MOST = {
    frozenset(kinds.split()): count
    for kinds, count in {
        "PLANE SPHERE": 1, "PLANE CAPSULE": 2, "PLANE ELLIPSOID": 1, "PLANE CYLINDER": 4,
        "PLANE BOX": 4, "SPHERE": 1, "SPHERE CAPSULE": 1, "SPHERE CYLINDER": 1, "SPHERE BOX": 1,
        "CAPSULE": 2, "CAPSULE BOX": 2,
    }.items()
}  # fmt: skip
EACH = 8
ROWS = {"CONNECT": 3, "WELD": 6, "JOINT": 1, "TENDON": 1}  # of an equality
# Fields that are not read, or belong to a state that no world of ours carries.
IGNORED = {
    "delay or history of actuators or sensors": ("nhistory", "sensor_interval"),
    "actuator armature": ("actuator_armature",),
}
LIMITS = ("JOINTLIMITPOS", "JOINTLIMITVEL", "TENDONLIMITPOS", "TENDONLIMITVEL")


class Room(NamedTuple):
    """What Warp's buffers hold for each world; all worlds share those of contacts."""

    contacts: int
    convex: int  # contacts whose geoms take a search
    rows: int  # of constraints


def put(model: mujoco.MjModel, forces: bool, most: int) -> mjx.Model:
    """The model on the device; `forces`: with those that contacts put on bodies."""
    found = mjx.put_model(model, impl="warp")
    impl: Any = found.opt._impl
    impl = impl.replace(
        warn_overflow=0,  # else each world prints it, at each step
        run_rne_postconstraint=forces,
        contact_sensor_maxmatch=max(most, impl.contact_sensor_maxmatch),
    )
    return found.replace(opt=found.opt.replace(_impl=impl))


def room(found: Any, model: mujoco.MjModel, most: int) -> Room:
    """For as many contacts as the model's geoms can have, or for `most` if that is less."""
    kinds = [
        frozenset(mujoco.mjtGeom(model.geom_type[geom]).name[7:] for geom in pair)
        for pair in found._impl.nxn_geom_pair_filtered
    ]
    contacts = max(1, min(most, sum(MOST.get(kind, EACH) for kind in kinds)))
    convex = max(1, min(contacts, sum(EACH for kind in kinds if kind not in MOST)))
    dim = max(1, *model.geom_condim, *model.pair_dim)
    pyramid = model.opt.cone == mujoco.mjtCone.mjCONE_PYRAMIDAL and dim > 1
    rows = contacts * (2 * (dim - 1) if pyramid else dim)
    rows += sum(ROWS[mujoco.mjtEq(kind).name[5:]] for kind in model.eq_type)
    rows += sum(np.count_nonzero(x) for x in (model.dof_frictionloss, model.tendon_frictionloss))
    rows += 2 * sum(np.count_nonzero(x) for x in (model.jnt_limited, model.tendon_limited))
    return Room(contacts, convex, int(rows))


def unsupported(model: mujoco.MjModel, spec: TaskSpec) -> list[str]:
    """What of `model` Warp refuses or, worse, would leave out without a word; empty if nothing."""
    said = ignored(model, IGNORED, _options(model))
    said += [f"{what} need native physics" for what, found in _asked(model, spec).items() if found]
    try:
        with jax.ensure_compile_time_eval():
            mjx.put_model(model, impl="warp")
            data = mjx.make_data(model, impl="warp", naconmax=1, njmax=1)
    except NotImplementedError as error:
        hint = " (a task named ...-newton has a solver that is)" if "SOL" in str(error) else ""
        return [*said, str(error).rstrip(".") + hint]
    sizes = {name: np.size(getattr(mujoco.MjData(model), name)) for name in spec.fields}
    said += [
        f"there is no field {name}"
        for name, size in sizes.items()
        if not BATCHED["Data"].get(name) or np.size(_field(data, name)) != size
    ]
    return said + misread(model, spec)


def _options(model: mujoco.MjModel) -> dict[str, bool]:
    """Options that it takes and does not heed, and whether `model` sets them."""
    sleep = int(mujoco.mjtEnableBit.mjENBL_SLEEP)
    return {
        "disabled actuator groups": model.opt.disableactuator != 0,
        "sleeping": bool(model.opt.enableflags & sleep),
    }


def _asked(model: mujoco.MjModel, spec: TaskSpec) -> dict[str, bool]:
    """What is asked for that it has not, or not as it is asked for."""
    kinds = {mujoco.mjtSensor(model.sensor(s).type[0]).name[7:] for s in spec.sensors}
    return {
        "flexible bodies": model.nflex > 0,
        "sensors of limits": spec.derived == "current" and not kinds.isdisjoint(LIMITS),
    }
