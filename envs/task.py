"""A task is written once: what it reads, how it observes and acts, what it rewards.

The functions that build the observation and turn an action into actuator targets are the
ones that run on the robot; what is behind the readings is a physics (`envs/physics`) or the
robot itself.  `envs/simulation.py` makes an environment of a task and a physics.  A task is one
file that is read alone: signatures, and what is handed over to a shared part of robots (`legged`,
`table`), stand in each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import jax.numpy as jnp
import mujoco
import numpy as np

from envs.disturb import Disturbance
from rl.mirror import Mirror
from rl.types import Array, Key, Metrics, Obs, PyTree, Readings

MOST_PIXELS = 4096  # of a picture's side
ParamsByField = dict[str, Array]  # randomised MjModel fields, each of the model's own shape


@dataclass(frozen=True)
class Camera:
    """A picture that physics reads; `name` is the model's camera, "free" its default view."""

    name: str
    height: int = 64  # pixels
    width: int = 64  # pixels
    plain: bool = False  # no shadows or reflections: where software draws, fast

    def __post_init__(self) -> None:
        if not (1 <= self.height <= MOST_PIXELS and 1 <= self.width <= MOST_PIXELS):
            raise ValueError(
                f"A picture of {self.width} x {self.height} pixels: a side has 1 to {MOST_PIXELS}."
            )


@dataclass(frozen=True)
class TaskSpec:
    """What a task reads from and writes to the world, and its clock."""

    actuators: tuple[str, ...]
    low: tuple[float, ...]  # smallest target of each actuator, in the actuator's unit
    high: tuple[float, ...]
    substeps: int  # physics steps in a control step
    control_dt: float  # s
    horizon: int  # control steps
    sensors: tuple[str, ...] = ()  # named sensors of the model
    fields: tuple[str, ...] = ()  # raw MjData fields: critics, rewards, tasks without hardware
    privileged: tuple[str, ...] = ()  # those of both that no robot has: hidden from `observe`
    precise: tuple[str, ...] = ()  # those of `fields` read with their rounding remainder as well
    cameras: tuple[Camera, ...] = ()
    command: tuple[tuple[str, str, float, float], ...] = ()  # its numbers: name, unit, least, most
    achieved: tuple[tuple[str, int], ...] = ()  # what the command asks for, in its order: readings,
    # and how many of their numbers; of a task that is the same whatever its command is
    actions: tuple[str, ...] = ()  # an action's numbers, where they are not one for each actuator
    speeds: tuple[float, ...] = ()  # most of each actuator's joint, in its unit a second
    accelerations: tuple[float, ...] = ()  # likewise, a second squared; 0 of one: no limit
    torque_rates: tuple[float, ...] = ()  # most change of each actuator's torque in a second
    max_tilt: float = 180.0  # degrees; a robot that leans more has failed
    omniscient: bool = False  # its policy sees all that the critic does: a teacher, for no robot
    rescale: bool = True  # actions in [-1, 1]; False: in the actuators' own range, not clipped
    derived: Literal["current", "lagged"] = "current"  # lagged: one substep late, as Gymnasium's
    settle: int = 0  # physics steps after a reset, before time 0
    contacts: int = 64  # at once in a world, as many as Warp keeps room for: see docs/backends.md


class Mark(NamedTuple):
    """A block or a ball that pictures show, and that touches nothing."""

    at: tuple[float, float, float]  # m, its middle
    half: tuple[float, float, float]  # m, of its sides
    ball: bool = False
    yaw: float = 0.0  # rad


class Start(NamedTuple):
    """How an episode begins."""

    qpos: Array  # [nq]
    qvel: Array  # [nv]
    params: ParamsByField = {}  # noqa: RUF012 (never written to)
    command: PyTree = ()
    memory: PyTree = ()  # all and only what the robot must carry
    episode: PyTree = ()  # the simulator's bookkeeping
    inputs: dict[str, Array] = {}  # noqa: RUF012 (writable fields besides the targets: pushes)
    ctrl: Array | None = None  # [A] targets while it settles


class Task(Protocol):
    """One robot doing one thing: pure, a single instance.  Subclasses override what they have."""

    @property
    def spec(self) -> TaskSpec: ...

    @property
    def disturbance(self) -> Disturbance:
        """What stands between the task and its world, unless its user says otherwise."""
        return Disturbance()

    @property
    def mirror(self) -> Mirror | None:
        """How its left and right trade places, if the task is the same then."""
        return None

    def model(self) -> mujoco.MjModel: ...

    def whole(self) -> mujoco.MjModel:
        """The model with all that may touch: what training can leave out, a robot has."""
        return self.model()

    def dressed(self, meshes: Path) -> mujoco.MjModel:
        """The model with the meshes of a folder in the place of what it looks like."""
        raise ValueError("--meshes dresses a quadruped; this task has another robot.")

    def marks(self, command: np.ndarray) -> Sequence[Mark]:
        """What pictures show of a command: where a goal is."""
        return ()

    def memory(self) -> PyTree:
        """What a robot carries that has not acted yet, in its resting stance."""
        return ()

    def context(self) -> PyTree:
        """The context in which a policy is judged."""
        return ()

    def beginner(self) -> PyTree:
        """The context in which it begins to learn."""
        return self.context()

    def reset(self, key: Key, context: PyTree) -> Start: ...

    def check_start(self, qpos: np.ndarray, command: PyTree) -> None:
        """Raise ValueError, with the reason, where no episode can begin so."""

    def observe(self, readings: Readings, command: PyTree, memory: PyTree) -> tuple[Obs, PyTree]:
        """What the policy sees, and the new memory.  Runs on the robot."""
        ...

    def control(self, action: Array, readings: Readings, memory: PyTree) -> tuple[Array, PyTree]:
        """Actuator targets [A] of an action in [-1, 1], and the new memory.  Runs on the robot."""
        if not self.spec.rescale:
            return action, memory
        low, high = jnp.array(self.spec.low), jnp.array(self.spec.high)
        return rescale(action, low, high), memory

    def privileged(self, raw: Readings, obs: Obs, episode: PyTree) -> Obs | None:
        """What the critic sees, where that is more than the policy's `obs`."""
        return None

    def advance(
        self, key: Key, raw: Readings, action: Array, command: PyTree, episode: PyTree
    ) -> tuple[PyTree, PyTree, dict[str, Array]]:
        """Next command, bookkeeping and inputs: resampling, pushes, air time."""
        return command, episode, {}

    def curriculum(self, key: Key, context: PyTree, episode: PyTree, terminated: Array) -> PyTree:
        """The context of the next episode, after one that ended so."""
        return context

    def reward(
        self, before: Readings, after: Readings, action: Array, command: PyTree, episode: PyTree
    ) -> tuple[Array, Metrics]:
        """The reward [] of a step, and its metrics, each []: evaluations tell their means."""
        ...

    def terminated(self, raw: Readings, episode: PyTree) -> Array:
        """[] bool, the task is over, for good or ill."""
        return jnp.bool(False)


class Physics(Protocol):
    """What steps a model.  Pure to its callers, written for one world, which they vmap."""

    dear_resets: bool  # worlds begin from prepared states: see rl/env.py

    def blank(self) -> Any:
        """Data of the right shapes, to be reset."""
        ...

    def reset(
        self,
        data: Any,
        mask: Array,
        qpos: Array,
        qvel: Array,
        params: ParamsByField,
        settle: int = 0,
        ctrl: Array | None = None,
    ) -> Any:
        """`data` at rest time 0 with `qpos`, `qvel` where `mask` []; derived quantities current.

        Time 0 is after `settle` physics steps from there, under targets `ctrl` (None: zeros).
        """
        ...

    def step(self, data: Any, inputs: dict[str, Array], params: ParamsByField) -> Any:
        """One control step under `inputs` ("ctrl" and other writable fields)."""
        ...

    def read(self, data: Any) -> Readings: ...

    def failed(self, data: Any) -> Array:
        """[] bool, the last step blew up; `data` is what it was before."""
        ...

    def marks(self, data: Any) -> Metrics:
        """What else went wrong, each [] and 0 if it did not: `overflow` ends a training."""
        ...

    def qpos(self, data: Any) -> np.ndarray:
        """Poses [..., nq] of data fetched from the device; on the host, to draw."""
        ...

    def constants(self, params: ParamsByField, mask: Array) -> ParamsByField:
        """`params` with all that follows from them (`mj_setConst`), where `mask` [] is True."""
        ...


def packaged(path: Path) -> mujoco.MjModel:
    """The model of an installed package's file, without warnings that its user cannot mend."""
    warn = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        return mujoco.MjModel.from_xml_path(str(path))
    finally:
        mujoco.set_mju_user_warning(warn)


def rescale(action: Array, low: Array, high: Array) -> Array:
    """Map [-1, 1] onto [low, high], clipping what lies outside."""
    centre, half = (high + low) / 2, (high - low) / 2
    return centre + half * jnp.clip(action, -1, 1)


def displacement(before: Readings, after: Readings, field: str) -> Array:
    """after - before of a `precise` field, as exact far from the origin as near it.

    The leading parts differ by little and so exactly (Sterbenz); the remainders add the rest.
    """
    rest = after[f"{field}.rest"] - before[f"{field}.rest"]
    return (after[field] - before[field]) + rest
