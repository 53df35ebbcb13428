"""A Go2 that is simulated, and speaks as one: LowState out, LowCmd in, in real time.

python -m rl.bridge.drivers.go2_sim ARTEFACT --wire go2:lo/1
"""

import contextlib
import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from rl import artefact
from rl.bridge import robots, wire
from rl.bridge.drivers import go2
from rl.bridge.drivers import go2_wire as layout
from rl.bridge.drivers.go2 import Transport
from rl.bridge.drivers.go2_wire import LEGS, LOW_CMD, LOW_STATE, MOTORS
from rl.bridge.sim.simulator import Log, Robot
from rl.bridge.wire import Command, Link
from rl.guard import guard

HOLD_S = 0.1  # s without a command that motors go on holding the last one; a dog's are unknown
BEHIND_S = 0.02  # s that it makes up for where this machine held it up
WARM, FULL = 35, 95  # degrees C of motors; % of the battery


class Dog:
    """A simulated robot in the makers' words."""

    def __init__(self, robot: Robot) -> None:
        go2.require(robot.spec)
        self.robot, self.model, self.data = robot, robot.model, robot.data
        names = [motor.name for motor in robot.spec.actuators]
        self.order = [MOTORS.index(name) for name in names]  # of each of the spec's, its motor
        joints = [self.model.joint(self.model.actuator_trnid[i, 0]) for i in robot.servos]
        self.dofs = [joint.dofadr[0] for joint in joints]
        self.feet = [self.model.geom_bodyid == self.model.body(f"{x}_calf").id for x in LEGS]
        self.ticks = 0
        robot.reset(*robot.home())
        robot.damp()

    def obey(self, datagram: bytes) -> bool:
        """Do as a LowCmd says, if it is one: each motor its kp, kd, q, dq and tau."""
        if len(datagram) != layout.COMMAND_SIZE or not layout.is_whole(datagram):
            return False
        low = np.frombuffer(datagram, LOW_CMD)[0]
        motors = low["motor_cmd"][self.order]
        on = (motors["mode"] == layout.SERVO) & (low["level_flag"] == layout.LOW_LEVEL)
        q = np.where(motors["q"] == layout.POS_STOP, 0, motors["q"]).astype(float)
        dq = np.where(motors["dq"] == layout.VEL_STOP, 0, motors["dq"]).astype(float)
        kp, kd, tau = (np.where(on, motors[x], 0).astype(float) for x in ("kp", "kd", "tau"))
        asked = np.zeros(len(self.robot.spec.command))
        self.robot.command(Command(0, q, kp, kd, damp=not kp.any(), asked=asked))
        self.model.actuator_biasprm[self.robot.servos, 0] = tau + kd * dq
        return True

    def damp(self) -> None:
        self.robot.damp()
        self.model.actuator_biasprm[self.robot.servos, 0] = 0.0

    def step(self) -> None:
        self.robot.step(1)
        self.ticks += 1

    def state(self) -> bytes:
        """The LowState of now."""
        state, data = np.zeros(1, LOW_STATE), self.data
        state["head"], state["level_flag"] = layout.HEAD, layout.LOW_LEVEL
        state["tick"] = self.ticks * layout.TICK_MS % go2.WRAP
        imu, motors, battery = (state[x][0] for x in ("imu_state", "motor_state", "bms_state"))
        imu["accelerometer"] = data.sensor("accelerometer").data
        numbers = state.view("<f4")
        for name, reading in self.robot.readings().items():
            numbers[go2.SENSORS[name][1]] = reading
        w, x, y, z = imu["quaternion"]
        imu["rpy"] = (np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y)),
                      np.arcsin(np.clip(2 * (w * y - z * x), -1, 1)),
                      np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))  # fmt: skip
        imu["temperature"] = motors["temperature"][self.order] = WARM
        motors["mode"][self.order] = layout.SERVO
        motors["ddq"][self.order] = data.qacc[self.dofs]
        motors["tau_est"][self.order] = data.actuator_force[self.robot.servos]
        motors["q_raw"], motors["dq_raw"] = motors["q"], motors["dq"]
        battery["status"], battery["soc"], battery["current"] = 8, FULL, -1500
        battery["cell_vol"][:8] = 4100
        state["foot_force"] = state["foot_force_est"] = self._forces()
        state["power_v"], state["power_a"] = 8 * 4.1, 1.5
        return layout.signed(state.tobytes()[:-4])

    def _forces(self) -> list[float]:
        """Of the feet, N."""
        touch = getattr(self.robot, "touch", np.zeros(self.model.ngeom))
        return [float(np.clip(touch[foot].sum(), 0, 32767)) for foot in self.feet]


class UdpEnd:
    """The robot's end of go2+udp: it speaks to who spoke last."""

    def __init__(self, bind: tuple[str, int]) -> None:
        self.link, self.name = Link(bind), "{}:{}".format(*bind)
        self.peer: Any = None
        self.close = self.link.close

    def call(self) -> None: ...

    def receive(self) -> list[bytes]:
        found = []
        for _ in range(wire.DRAINED):
            if (got := self.link.receive_raw(0.0)) is None:
                break
            self.peer = got[1]
            found.append(got[0])
        return found

    def send(self, datagram: bytes) -> None:
        if self.peer:
            with contextlib.suppress(OSError):  # it is lost, as datagrams are
                self.link.socket.sendto(datagram, self.peer)


@dataclass(frozen=True)
class Args:
    """Be a Go2: the artefact's model on MuJoCo, in real time, on the wire of a real one."""

    artefact: tyro.conf.Positional[Path]
    wire: str = "go2:lo/1"  # go2:INTERFACE/DOMAIN, or go2+udp:HOST:PORT to listen on
    seconds: float = 1e6  # until it ends
    log: Path | None = None  # an .npz of what happened, a row per state


def live(dog: Dog, end: Transport, seconds: float, log: Log | None = None) -> None:
    """Speak and listen at each of its ticks."""
    dt, began, silent = 1 / layout.HZ, time.monotonic(), 0.0
    for tick in itertools.takewhile(lambda tick: tick * dt < seconds, itertools.count()):
        behind = time.monotonic() - began - tick * dt
        began += behind if behind > BEHIND_S else 0.0  # this machine stood still, and not the dog
        end.send(dog.state())
        time.sleep(max(began + (tick + 1) * dt - time.monotonic(), 0.0))
        heard = [dog.obey(datagram) for datagram in end.receive()]
        silent = 0.0 if any(heard) else silent + dt
        if silent > HOLD_S:
            dog.damp()
        dog.step()
        if log:
            log.add(**dog.robot.facts())


def main(args: Args) -> None:
    kind, _, where = args.wire.partition(":")
    if kind not in ("go2", "go2+udp"):
        raise ValueError(f"--wire is {args.wire}; it takes go2:lo/1 or go2+udp:127.0.0.1:9880.")
    dog = Dog(Robot(artefact.read(args.artefact), layout.HZ))
    end = robots.dds(where, serves=True) if kind == "go2" else UdpEnd(wire.address(where))
    log = Log() if args.log else None
    print(f"speaking {dog.robot.spec.name} at {end.name}", flush=True)
    try:
        live(dog, end, args.seconds, log)
    finally:
        end.close()
        if log and args.log:
            log.write(args.log)


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m rl.bridge.drivers.go2_sim")))
