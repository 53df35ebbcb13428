"""A stand-in of the few calls of franky that a Franka's driver makes, which are kept."""

import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

HOME = np.array([0.0, 0.0, 0.0, -1.57, 0.0, 1.57, 0.785])


class Pose:
    """At the flange, where the end effector is too."""

    translation, quaternion = np.array([0.5, 0.0, 0.35]), np.array([1.0, 0, 0, 0])
    inverse = property(lambda self: self)
    __mul__ = __rmul__ = lambda self, other: self


class Errors:
    joint_reflex = cartesian_reflex = False


class NetworkException(Exception):
    pass


class Arm:
    """franky's Robot, of which its calls are kept."""

    def __init__(self, host: str, realtime_config: str) -> None:
        self.host, self.config = host, realtime_config
        self.calls: list[str] = []
        self.ms, self.is_in_control, self.errors, self.ends = 0, False, Errors(), [None]
        self.lost = False

    def poll_motion(self) -> None:
        if ended := self.ends.pop() if self.ends else None:
            raise ended

    @property
    def state(self) -> Any:
        if self.lost:
            raise RuntimeError("Net Exception")
        q = HOME + 0.01
        return SimpleNamespace(
            time=SimpleNamespace(to_sec=lambda: self.ms / 1e3), q=q, dq=np.zeros(7),
            tau_J=np.zeros(7), O_T_EE=Pose(), F_T_EE=Pose(), current_errors=self.errors,
            control_command_success_rate=1.0, robot_mode=1 + self.is_in_control,
        )  # fmt: skip

    def move(self, motion: Any, asynchronous: bool) -> None:
        assert asynchronous
        self.calls.append("stop")

    def join_motion(self, timeout: float) -> None:
        self.calls.append("join")

    def recover_from_errors(self) -> None:
        self.calls.append("recover")


class Tracker:
    def __init__(self, robot: Arm, stiffness: np.ndarray, damping: np.ndarray) -> None:
        robot.calls.append("track")
        robot.is_in_control, self.robot = True, robot
        self.gains: list[Any] = []

    def set_gains(self, stiffness: np.ndarray, damping: np.ndarray) -> None:
        self.gains = [stiffness, damping]

    def set_target(self, q: np.ndarray) -> None:
        self.target = q


class Hand:
    """franky's Gripper, whose words come when they are waited for."""

    def __init__(self, host: str = "") -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.width, self.looks, self.word = 0.04, 0, threading.Semaphore(1)

    @property
    def state(self) -> Any:
        self.word.acquire()
        self.looks += 1
        return SimpleNamespace(width=self.width)

    def grasp_async(self, *told: float) -> Any:
        return self._goes("grasp", *told)

    def move_async(self, *told: float) -> Any:
        return self._goes("move", *told)

    def _goes(self, *call: Any) -> Any:
        self.calls.append(call)
        return SimpleNamespace(wait=lambda seconds: True)

    def speak(self, times: int = 1) -> None:
        """Let its next words come, and be heard."""
        for _ in range(times):
            before = self.looks
            self.word.release()
            while self.looks == before:
                pass


def library() -> ModuleType:
    """What `import franky` is to be."""
    made = ModuleType("franky")
    config = SimpleNamespace(Ignore="ignore", Enforce="enforce")
    stop = lambda damping: damping  # noqa: E731
    vars(made).update(
        Robot=Arm, Gripper=Hand, Errors=Errors, RealtimeConfig=config, TorqueStopMotion=stop,
        JointImpedanceTracker=Tracker, NetworkException=NetworkException,
    )  # fmt: skip
    return made
