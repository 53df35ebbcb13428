"""What a task is made with, checked before anything is made of it: names, kinds, numbers."""

import difflib
import os
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from typing import Annotated, Any, Literal, get_args, get_origin

import jax
import mujoco
from typeguard import TypeCheckError, check_type

from envs.task import Task, TaskSpec

KINDS: dict[Any, tuple[type, str]] = {
    bool: (bool, "True or False"), int: (Integral, "a whole number"), float: (Real, "a number"),
}  # fmt: skip


def check_host() -> None:
    """Raise ValueError unless JAX has the CPU that programs call the host by."""
    try:
        jax.devices("cpu")
    except RuntimeError:
        given = os.environ.get("JAX_PLATFORMS", jax.default_backend())
        raise ValueError(
            f"JAX_PLATFORMS is {given}, and native physics and Gymnasium's environments are called "
            f"by way of the CPU: JAX_PLATFORMS={given},cpu."
        ) from None


def known(what: str, name: Any, among: Sequence[str]) -> str:
    """`name`; ValueError with what is near unless it is one of `among`."""
    if name in among:
        return name
    near = difflib.get_close_matches(str(name), among, n=3, cutoff=0.6)
    hint = f"Did you mean {', '.join(near)}?" if near else f"There are {', '.join(among)}."
    raise ValueError(f"Unknown {what} {name!r}. {hint}")


def typed(name: str, value: Any, hint: Any) -> None:
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


def check_task(given: Task) -> None:
    """Raise unless `given`'s numbers are numbers: every world would fail, or none be stepped."""
    _fields("", given)
    if given.spec.substeps < 1:
        raise ValueError(
            f"A control step of {given.spec.substeps} physics steps moves nothing: frame_skip, or "
            "what else sets it, needs at least 1."
        )


def check_spec(asked: TaskSpec, model: mujoco.MjModel) -> None:
    """Raise ValueError unless `model` has all that a task asks of it."""
    named = lambda get, count: [get(i).name or str(i) for i in range(count)]  # noqa: E731
    sensors = named(model.sensor, model.nsensor)
    motors, cameras = named(model.actuator, model.nu), named(model.camera, model.ncam)
    for name in asked.sensors:
        known("sensor", name, sensors)
    for name in asked.actuators:
        known("actuator", name, motors)
    if [*asked.actuators] != motors:
        raise ValueError(f"The task's actuators need the model's order: {', '.join(motors)}.")
    for name in ("low", "high"):
        if len(getattr(asked, name)) != len(motors):
            raise ValueError(
                f"The task's {name} has {len(getattr(asked, name))} numbers for {len(motors)} "
                "actuators."
            )
    for name in asked.fields:
        known("field of MjData", name, [x for x in dir(mujoco.MjData) if not x.startswith("_")])
    for name in asked.privileged:
        known("privileged reading", name, [*asked.sensors, *asked.fields])
    for name in asked.precise:
        known("precise field", name, asked.fields)
    for camera in asked.cameras:
        known("camera", camera.name, ["free", *cameras])


def _fields(prefix: str, given: Any) -> None:
    """Check each field of a dataclass, and theirs."""
    for field in fields(given) if is_dataclass(given) else ():
        name, value = prefix + field.name, getattr(given, field.name)
        typed(name, value, field.type)
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


def same_actions(whose: str, theirs: Any, env: Any) -> None:
    """Raise ValueError where the same action would move this robot otherwise than theirs."""
    then, now = (getattr(x.task, "action_scale", None) for x in (theirs, env))
    if then != now:
        raise ValueError(
            f"{whose} acts with --env.action-scale {then}, and this task has {now}: its actions "
            "would move other ways. Give both the same."
        )
