"""Environments by name: `make`, `names`, and the ways to and from Gymnasium."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import jax

from envs.adapters.foreign import COLON, Foreign, foreign
from envs.adapters.from_gymnasium import FromGymnasium
from envs.adapters.from_gymnasium import from_gymnasium as from_gymnasium
from envs.adapters.from_playground import FromPlayground
from envs.adapters.playground import PREFIX, Playground, playground
from envs.adapters.to_gymnasium import to_gymnasium as to_gymnasium
from envs.adapters.to_gymnasium_vector import to_gymnasium_vector as to_gymnasium_vector
from envs.checks import check_host, check_spec, check_task, known, typed
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
from envs.manipulation.so101_tasks import NEARBY, SMALL_CUBE
from envs.manipulation.stack import Stack
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
    "panda-peg-insertion": partial(PegInsertion, "panda"),
    "panda-pick-cube": partial(PickCube, "panda"),
    "panda-push-t": partial(PushT, "panda"),
    "panda-reach": partial(Reach, "panda"),
    "panda-stack": partial(Stack, "panda"),
    "so101-pick-cube": partial(PickCube, "so101", **SMALL_CUBE),
    "so101-reach": partial(Reach, "so101", **NEARBY),
}
BACKENDS = ("native", "mjx", "warp")
Learnable = Simulation | FromPlayground
World = Learnable | FromGymnasium  # in which a policy can be judged


def names() -> list[str]:
    """Every task that `make` knows."""
    return sorted(TASKS)


def make_task(name: str, **overrides: Any) -> Task:
    """The task `name` with fields replaced."""
    if hasattr(name, "observe"):
        kind = type(name).__name__
        raise ValueError(f"A task goes by its name here; envs.simulate takes a {kind} itself.")
    made: Any = TASKS[known("environment", name, names())]()
    kinds = {field.name: field.type for field in fields(made)}
    for field, value in overrides.items():
        typed(field, value, kinds[known(f"field of {name}", field, [*kinds])])
    return replace(made, **overrides)


def named(name: str) -> Any:
    """The task that a command line or a record calls so: `module:Name-v0` is Gymnasium's,
    `playground:Name` MuJoCo Playground's."""
    if name.startswith(PREFIX):
        return playground(name)
    return foreign(name) if COLON in name else make_task(name)


def world(task: Any, physics: str = "auto", *, threads: int = 0) -> World:
    """Where a policy is judged in a task that is `named`."""
    return task.world() if isinstance(task, Foreign) else learnable(task, physics, threads=threads)


def learnable(task: Any, physics: str = "auto", *, threads: int = 0) -> Learnable:
    """Where a policy may learn as well: worlds whose states are arrays."""
    if isinstance(task, Playground):
        return task.world(physics)
    return simulate(task, physics, threads=threads)


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
    known("physics", physics, ["auto", *BACKENDS])
    if isinstance(task, Foreign):
        raise ValueError(
            f"{task.id} is an environment of Gymnasium's: experiments.offline learns of its data "
            "and judges in it, and nothing else works there."
        )
    if isinstance(task, Playground):
        raise ValueError(
            f"{task.id} is MuJoCo Playground's: experiments.ppo and off_policy (sac, td3, crossq, "
            "simbav2) learn there, experiments.offline judges there, and nothing else works there."
        )
    check_task(task)
    if physics == "auto":
        physics = "native" if jax.default_backend() == "cpu" else "mjx"
    if threads < 0:
        raise ValueError(f"threads is {threads}; it takes a count, or 0 for all.")
    spec, model = task.spec, task.model()
    check_spec(spec, model)
    if physics == "native":
        check_host()
        stepper = Native(model, spec, threads)
    elif physics == "mjx":
        from envs.physics.mjx import MJX  # slow to import, and few need it

        stepper = MJX(model, spec)
    else:
        from envs.physics.warp import Warp

        stepper = Warp(model, spec)
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
