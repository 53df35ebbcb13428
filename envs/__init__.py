"""Environments by name: `make`, `names`, and the ways to and from Gymnasium."""

import difflib
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any

import jax

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
from envs.physics.native import Native
from envs.simulation import Simulation
from envs.task import Task

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
}
BACKENDS = ("native", "mjx")


def names() -> list[str]:
    """Every task that `make` knows."""
    return sorted(TASKS)


def make_task(name: str, **overrides: Any) -> Task:
    """The task `name` with fields replaced."""
    made: Any = TASKS[_known("environment", name, names())]()
    for field in overrides:
        _known(f"field of {name}", field, [f.name for f in fields(made)])
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
    _check(task)
    if physics == "auto":
        physics = "native" if jax.default_backend() == "cpu" else "mjx"
    spec, model = task.spec, task.model()
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


def _check(task: Task) -> None:
    """Raise unless `task`'s numbers are numbers: every world would fail, or none be stepped."""
    given: Any = task
    for field in fields(given) if is_dataclass(given) else ():
        value = getattr(task, field.name)
        kind = {int: Integral, float: Real}.get(field.type)
        if kind and not isinstance(value, kind):
            what = "whole number" if kind is Integral else "number"
            raise ValueError(f"{field.name} is {value!r}; it takes a {what}.")
        every = value if isinstance(value, tuple) else (value,)
        if any(isinstance(x, Real) and x != x for x in every):
            raise ValueError(f"{field.name} is {value!r}, which is not a number.")
    if task.spec.substeps < 1:
        raise ValueError(
            f"A control step of {task.spec.substeps} physics steps moves nothing: frame_skip, or "
            "what else sets it, needs at least 1."
        )


def _known(what: str, name: str, among: list[str]) -> str:
    if name in among:
        return name
    near = difflib.get_close_matches(name, among, n=3, cutoff=0.6)
    hint = f"Did you mean {', '.join(near)}?" if near else f"There are {', '.join(among)}."
    raise ValueError(f"Unknown {what} {name!r}. {hint}")
