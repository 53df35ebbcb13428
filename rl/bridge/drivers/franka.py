"""The wire to a Franka arm with its hand: the library franky, whose own thread keeps its 1 kHz.

Of the bridge's thread nothing waits but for the next state of an arm that nobody controls, 1 ms;
for one that is gone 1 s, once.  It is damped by franky's stop: torques go over into damping alone,
and once it stands its own controller holds it.  It recovers from errors when an operator says so.
"""

import contextlib
import ipaddress
import time
from typing import Any

import numpy as np

from rl.bridge import wire
from rl.bridge.drivers.franka_codec import Codec, Read, Set, check, foreign, pack_read, unpack_set
from rl.bridge.drivers.franka_worker import Worker
from rl.bridge.drivers.side import Side
from rl.spec import Spec

RATE = 100.0  # ticks a second: joints' targets are steps, since franky puts none between them
STOPS = 15.0  # N m s/rad at least, of a joint that is damped
NONE = np.zeros(0, "<f4")
STOPS_S = 3.0  # s that a stop may take at the end


class Franka:
    """One at a host."""

    def __init__(self, spec: Spec, host: str, sensors: str) -> None:
        """`sensors`: host:port to listen on for what it does not measure, if there is any;
        ValueError of a spec that a Franka cannot be."""
        check(spec, bool(sensors))
        self.side = Side(foreign(spec), wire.address(sensors)) if sensors else None
        self.codec, self.host = Codec(spec), host
        self.rate = RATE
        self.waits = self.episodes = False
        self.gone: str = ""  # how it said goodbye
        self.seq, self.time = 0, -1.0  # s, the robot's
        self.tracker: Any = None  # of joints' targets, while there are any
        self.broke = ""  # why its motion ended by itself, until that is cleared

    def meet(self) -> None:
        """Connect to it; ValueError where no arm with a hand answers."""
        try:
            import franky  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ValueError(
                "A Franka needs the library franky: pip install 'robotrl[franka]'."
            ) from None
        self.franky = franky
        # One on this machine is simulated, and needs no kernel that is punctual.
        config = franky.RealtimeConfig.Ignore if _here(self.host) else franky.RealtimeConfig.Enforce
        try:
            self.robot = franky.Robot(self.host, realtime_config=config)
            self.worker = Worker(self.robot, franky.Gripper(self.host))
        except Exception as error:  # whatever the library makes of it
            raise ValueError(
                f"No Franka arm with a hand answers at {self.host}, its joints unlocked and FCI "
                f"active: {error}"
            ) from error
        self.names = sorted(x for x in dir(franky.Errors) if not x.startswith("_"))

    def receive(self) -> list[bytes]:
        """Its state, if there is a newer one than that of the last call, and all of it is known."""
        try:
            self._poll()
            state = self.robot.state
        except Exception:  # a network that is gone has several names
            self.gone = "lost"
            return []
        others = self.side.numbers(time.monotonic()) if self.side else NONE
        if (now := state.time.to_sec()) == self.time or others is None:
            return []
        self.seq, self.time = self.seq + 1, now
        return [pack_read(self._read(state)) + others.tobytes()]

    def send(self, datagram: bytes) -> None:
        told = unpack_set(datagram)
        if told.clear:
            self.broke, self.worker.recovers = "", True
        if told.damp:
            self._stop(told.damping)
        elif not self.broke:
            self.worker.wanted, self.worker.force = told.width, told.force
            self._follow(told)

    def close(self) -> None:
        """Leave it standing, and to its own controller."""
        with contextlib.suppress(Exception):
            self._stop(np.zeros(7))
            self.robot.join_motion(STOPS_S)
        self.worker.close()
        if self.side:
            self.side.close()
        if self.broke:
            print(f"franka   {self.broke}", flush=True)

    def _poll(self) -> None:
        """Hear why a motion ended, if one did by itself; raises what a lost network does."""
        try:
            self.robot.poll_motion()
        except self.franky.NetworkException:
            raise
        except Exception as error:  # of a reflex, a stop by hand, or a command that was refused
            self.broke, self.tracker = str(error), None
        if self.tracker and not self.robot.is_in_control:
            self.broke, self.tracker = "Its motion ended, and nobody had asked for that.", None

    def _read(self, state: Any) -> Read:
        flange, worker = state.O_T_EE * state.F_T_EE.inverse, self.worker
        errors = [getattr(state.current_errors, name) for name in self.names]
        x, y, z, w = flange.quaternion
        return Read(
            self.seq, self.time, state.q, state.dq, state.tau_J, (*flange.translation, w, x, y, z),
            worker.width, worker.speed, worker.wanted, state.control_command_success_rate,
            sum(bit << i for i, bit in enumerate(errors)), int(state.robot_mode), bool(self.broke),
            worker.well,
        )  # fmt: skip

    def _follow(self, told: Set) -> None:
        try:
            if self.tracker is None:
                self.tracker = self.franky.JointImpedanceTracker(
                    self.robot, stiffness=told.stiffness, damping=told.damping
                )
            self.tracker.set_gains(stiffness=told.stiffness, damping=told.damping)
            self.tracker.set_target(told.targets)
        except Exception as error:  # of an arm that may not move now
            self.broke, self.tracker = str(error), None

    def _stop(self, damping: np.ndarray) -> None:
        if self.tracker is None:
            return
        self.tracker = None
        if self.robot.is_in_control:
            stop = self.franky.TorqueStopMotion(damping=np.maximum(damping, STOPS))
            self.robot.move(stop, asynchronous=True)


def _here(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
