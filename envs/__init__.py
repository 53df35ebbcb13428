"""Environments by name: `make`, `names`, and the ways to and from Gymnasium."""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Annotated, Any, Literal, get_args, get_origin

import jax
import mujoco
from typeguard import TypeCheckError, check_type

from envs.adapters.from_gymnasium import from_gymnasium as from_gymnasium
from envs.adapters.to_gymnasium import to_gymnasium as to_gymnasium
from envs.adapters.to_gymnasium_vector import to_gymnasium_vector as to_gymnasium_vector
from envs.disturb import Disturbance
from envs.dmc.cartpole_swingup import CartpoleSwingup
from envs.dmc.cheetah_run import CheetahRun
from envs.dmc.finger_spin import FingerSpin
from envs.dmc.reacher_hard import ReacherHard
from envs.dmc.walker_walk import WalkerWalk
from envs.gym_mujoco.ant import Ant
from envs.gym_mujoco.half_cheetah import HalfCheetah
from envs.gym_mujoco.hopper import Hopper
from envs.gym_mujoco.humanoid import Humanoid
from envs.gym_mujoco.humanoid_standup import HumanoidStandup
from envs.gym_mujoco.inverted_double_pendulum import InvertedDoublePendulum
from envs.gym_mujoco.inverted_pendulum import InvertedPendulum
from envs.gym_mujoco.newton import HumanoidNewton, HumanoidStandupNewton
from envs.gym_mujoco.pusher import Pusher
from envs.gym_mujoco.reacher import Reacher
from envs.gym_mujoco.swimmer import Swimmer
from envs.gym_mujoco.walker2d import Walker2d
from envs.locomotion.footstand import Footstand
from envs.locomotion.getup import Getup
from envs.locomotion.joystick import Joystick
from envs.locomotion.sim_to_real import DRAWN, WALKING
from envs.locomotion.walking import ROUGH
from envs.manipulation.peg_insertion import PegInsertion
from envs.manipulation.pick_cube import PickCube
from envs.manipulation.push_t import PushT
from envs.manipulation.reach import Reach
from envs.manipulation.small import NEARBY, SMALL_CUBE
from envs.manipulation.stack import Stack
from envs.physics.native import Native
from envs.simulation import Simulation
from envs.task import Task, TaskSpec

TASKS: dict[str, Callable[..., Task]] = {
    "Ant-v5": Ant,
    "HalfCheetah-v5": HalfCheetah,
    "Hopper-v5": Hopper,
    "Humanoid-v5": Humanoid,
    "Humanoid-newton": HumanoidNewton,
    "HumanoidStandup-v5": HumanoidStandup,
    "HumanoidStandup-newton": HumanoidStandupNewton,
    "InvertedDoublePendulum-v5": InvertedDoublePendulum,
    "InvertedPendulum-v5": InvertedPendulum,
    "Pusher-v5": Pusher,
    "Reacher-v5": Reacher,
    "Swimmer-v5": Swimmer,
    "Walker2d-v5": Walker2d,
    "dmc-cartpole-swingup": CartpoleSwingup,
    "dmc-cheetah-run": CheetahRun,
    "dmc-finger-spin": FingerSpin,
    "dmc-reacher-hard": ReacherHard,
    "dmc-walker-walk": WalkerWalk,
    "go1-footstand": partial(Footstand, "go1"),
    "go1-getup": partial(Getup, "go1", measured=False),
    "go1-joystick-flat": partial(Joystick, "go1", "flat"),
    "go1-joystick-rough": partial(Joystick, "go1", "rough", weights=ROUGH),
    "go2-footstand": partial(Footstand, "go2", **DRAWN),
    "go2-getup": partial(Getup, "go2", **DRAWN),
    "go2-joystick-flat": partial(Joystick, "go2", "flat", **WALKING),
    "go2-joystick-rough": partial(Joystick, "go2", "rough", weights=ROUGH, **WALKING),
    "panda-peg-insertion": partial(PegInsertion, "panda"),
    "panda-pick-cube": partial(PickCube, "panda"),
    "panda-push-t": partial(PushT, "panda"),
    "panda-reach": partial(Reach, "panda"),
    "panda-stack": partial(Stack, "panda"),
    "so101-pick-cube": partial(PickCube, "so101", **SMALL_CUBE),
    "so101-reach": partial(Reach, "so101", **NEARBY),
}
BACKENDS = ("native", "mjx")
KINDS: dict[Any, tuple[type, str]] = {
    bool: (bool, "True or False"), int: (Integral, "a whole number"), float: (Real, "a number"),
}  # fmt: skip


def names() -> list[str]:
    """Every task that `make` knows."""
    return sorted(TASKS)


def make_task(name: str, **overrides: Any) -> Task:
    """The task `name` with fields replaced."""
    if hasattr(name, "observe"):
        kind = type(name).__name__
        raise ValueError(f"A task goes by its name here; envs.simulate takes a {kind} itself.")
    made: Any = TASKS[_known("environment", name, names())]()
    kinds = {field.name: field.type for field in fields(made)}
    for field, value in overrides.items():
        _typed(field, value, kinds[_known(f"field of {name}", field, [*kinds])])
    return replace(made, **overrides)


def make(
    name: str,
    physics: str = "auto",
    *,
    max_episode_steps: int | None = None,
    disturbance: Disturbance | None = None,
    threads: int = 0,
    **overrides: Any,
) -> Simulation:
    """The environment of task `name`; `overrides` are the task's fields.

    `physics` "auto" is native MuJoCo where JAX runs on CPU and MJX on an accelerator.
    """
    return simulate(
        make_task(name, **overrides), physics, max_episode_steps=max_episode_steps,
        disturbance=disturbance, threads=threads,
    )  # fmt: skip


def simulate(
    task: Task,
    physics: str = "auto",
    *,
    max_episode_steps: int | None = None,
    disturbance: Disturbance | None = None,
    threads: int = 0,
) -> Simulation:
    """The environment of `task` on `physics`; `disturbance` in the place of the task's own."""
    _known("physics", physics, ["auto", *BACKENDS])
    _check_task(task)
    if physics == "auto":
        physics = "native" if jax.default_backend() == "cpu" else "mjx"
    if threads < 0:
        raise ValueError(f"threads is {threads}; it takes a count, or 0 for all.")
    spec, model = task.spec, task.model()
    _check_spec(spec, model)
    if physics == "native":
        stepper = Native(model, spec, threads)
    else:
        from envs.physics.mjx import MJX  # slow to import, and few need it

        stepper = MJX(model, spec)
    horizon = spec.horizon if max_episode_steps is None else max_episode_steps
    if not isinstance(horizon, int) or horizon < 1:
        raise ValueError(f"max_episode_steps is {horizon!r}; it takes a count of at least 1.")
    disturbance = task.disturbance if disturbance is None else disturbance
    for what, (_, most) in disturbance.delays().items():
        if most >= horizon:
            raise ValueError(
                f"{what} is up to {most} control steps of an episode of {horizon}: with what is "
                "older than the episode nothing can be learned. Give a shorter delay."
            )
    nothing = disturbance == Disturbance()  # costs nothing
    return Simulation(task, stepper, horizon, None if nothing else disturbance)


def _known(what: str, name: Any, among: Sequence[str]) -> str:
    """`name`; ValueError with what is near unless it is one of `among`."""
    if name in among:
        return name
    near = difflib.get_close_matches(str(name), among, n=3, cutoff=0.6)
    hint = f"Did you mean {', '.join(near)}?" if near else f"There are {', '.join(among)}."
    raise ValueError(f"Unknown {what} {name!r}. {hint}")


def _typed(name: str, value: Any, hint: Any) -> None:
    """Raise ValueError unless `value` is of the kind that the field `name` has."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if _is(value, hint):
        return
    what = KINDS[hint][1] if hint in KINDS else getattr(hint, "__name__", str(hint))
    if get_origin(hint) is Literal:
        what = f"one of {', '.join(map(str, get_args(hint)))}"
    elif get_origin(hint):
        what = str(hint)
    raise ValueError(f"{name} is {value!r}; it takes {what}.")


def _check_task(given: Task) -> None:
    """Raise unless `given`'s numbers are numbers: every world would fail, or none be stepped."""
    _fields("", given)
    if given.spec.substeps < 1:
        raise ValueError(
            f"A control step of {given.spec.substeps} physics steps moves nothing: frame_skip, or "
            "what else sets it, needs at least 1."
        )


def _check_spec(asked: TaskSpec, model: mujoco.MjModel) -> None:
    """Raise ValueError unless `model` has all that a task asks of it."""
    named = lambda get, count: [get(i).name or str(i) for i in range(count)]  # noqa: E731
    sensors = named(model.sensor, model.nsensor)
    motors, cameras = named(model.actuator, model.nu), named(model.camera, model.ncam)
    for name in asked.sensors:
        _known("sensor", name, sensors)
    for name in asked.actuators:
        _known("actuator", name, motors)
    if [*asked.actuators] != motors:
        raise ValueError(f"The task's actuators need the model's order: {', '.join(motors)}.")
    for name in ("low", "high"):
        if len(getattr(asked, name)) != len(motors):
            raise ValueError(
                f"The task's {name} has {len(getattr(asked, name))} numbers for {len(motors)} "
                "actuators."
            )
    for name in asked.fields:
        _known("field of MjData", name, [x for x in dir(mujoco.MjData) if not x.startswith("_")])
    for name in asked.privileged:
        _known("privileged reading", name, [*asked.sensors, *asked.fields])
    for name in asked.precise:
        _known("precise field", name, asked.fields)
    for camera in asked.cameras:
        _known("camera", camera.name, ["free", *cameras])


def _fields(prefix: str, given: Any) -> None:
    """Check each field of a dataclass, and theirs."""
    for field in fields(given) if is_dataclass(given) else ():
        name, value = prefix + field.name, getattr(given, field.name)
        _typed(name, value, field.type)
        every = value if isinstance(value, tuple) else (value,)
        if any(isinstance(x, Real) and x != x for x in every):
            raise ValueError(f"{name} is {value!r}, which is not a number.")
        _fields(f"{name}.", value)


def _is(value: Any, hint: Any) -> bool:
    """Whether `value` is of the kind `hint`; NumPy's numbers are numbers."""
    if hint in KINDS:
        return isinstance(value, KINDS[hint][0]) and (hint is bool or not isinstance(value, bool))
    if get_origin(hint) is tuple and ... not in (parts := get_args(hint)):
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(_is, value, parts))
    if isinstance(hint, str):  # of a module whose annotations are not evaluated
        return True
    try:
        check_type(value, hint)
    except TypeCheckError:
        return False
    return True
