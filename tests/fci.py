"""A Franka's wire over MuJoCo, and a reflex when told: python -m tests.fci ADDRESS [7 ANGLES]

franky-sim, an independent one of another maker, has none itself: SIGUSR1 has its motion aborted, as
an arm does that was pushed, and none begins before the client has it recover.  A tee lies in front
of the arm, and where is said to SIDE, 50 times a second, as a camera's program would.
"""

# pyright: reportMissingImports=false
import json
import signal
import socket
import sys
import xml.etree.ElementTree as ET
from typing import Any

import mujoco
import numpy as np
from franky_sim import SimulationServer, franka_robot_protocol
from franky_sim.constants import DEFAULT_INITIAL_JOINT_POS
from franky_sim.franka_robot_protocol import MoveStatus, RobotCommand, RobotMode
from franky_sim.franka_server import BaseCommand
from franky_sim.mujoco_simulator import MujocoSimulator

ERRORS, JOINT_REFLEX = 41, 6  # of libfranka's, in its order
SIDE, EACH = ("127.0.0.1", 9881), 20  # where, and how many ms apart
AT, TURN = "0.52 0.03 0.02", "0.955 0 0 0.2955"  # m; wxyz, 34 degrees
BARS = ("0.06 0.015 0.02", "0 0.0257143 0"), ("0.015 0.045 0.02", "0 -0.0342857 0")  # of push-t's


class Reflex:
    """Whether there is one, and what it does to a robot's server."""

    def __init__(self, server: Any) -> None:
        self.server, self.asked, self.is_on = server, False, False
        server._get_state_bytes = self.state
        self.move = franka_robot_protocol.MoveCommand.handle
        franka_robot_protocol.MoveCommand.handle = lambda command, server: self.begins(command)
        franka_robot_protocol.AutomaticErrorRecoveryCommand.handle = lambda command, server: (
            self.recovers(command)
        )

    def state(self) -> bytes:
        state = self.server.robot_state
        if self.is_on:
            errors = tuple(i == JOINT_REFLEX for i in range(ERRORS))
            state = state.replace(robot_mode=RobotMode.kReflex, errors=errors)
        return state.pack_state()

    def begins(self, command: Any) -> None:
        if self.is_on:
            command.reply(MoveStatus.kCommandNotPossibleRejected)
        else:
            self.move(command, self.server)

    def recovers(self, command: Any) -> None:
        self.is_on = False
        command.reply(0)

    def tick(self) -> None:
        if not self.asked:
            return
        self.asked, self.is_on = False, True
        number = self.server.current_motion_id
        self.server.stop_motion(send_preemption_signal=False)
        if number:
            BaseCommand.send_response(
                self.server._tcp_socket, RobotCommand.kMove, number, MoveStatus.kReflexAborted
            )
            self.server.reset_current_motion_id()


class Tee:
    """A thing on the ground, and who sees it."""

    def __init__(self, simulator: MujocoSimulator) -> None:
        body = ET.SubElement(simulator.worldbody, "body", name="tee", pos=AT, quat=TURN)
        ET.SubElement(body, "freejoint")
        for size, at in BARS:
            ET.SubElement(body, "geom", type="box", size=size, pos=at, mass="0.1", friction="0.4")
        self.socket, self.ms = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0

    def tick(self, simulator: MujocoSimulator) -> None:
        self.ms += 1
        if self.ms % EACH:
            return
        data, speeds, turns = simulator.data, np.zeros(6), np.zeros(6)
        body, of = data.body("tee"), mujoco.mjtObj.mjOBJ_BODY
        mujoco.mj_objectVelocity(simulator.model, data, of, body.id, speeds, 0)
        mujoco.mj_objectVelocity(simulator.model, data, of, body.id, turns, 1)
        seen = {
            "tee_pos": body.xpos, "tee_quat": body.xquat, "tee_linvel": speeds[3:],
            "tee_gyro": turns[:3], "tee_ahead": body.xmat[::3],
        }  # fmt: skip
        said = json.dumps({name: numbers.tolist() for name, numbers in seen.items()})
        self.socket.sendto(said.encode(), SIDE)


def main(address: str, *angles: str) -> None:
    with MujocoSimulator() as simulator:
        simulator.add_robot([*map(float, angles)] or DEFAULT_INITIAL_JOINT_POS)
        tee = Tee(simulator)
        simulator.register_post_step_callback(tee.tick)
        with SimulationServer(simulator, [address]) as server:
            reflex = Reflex(server.robot_servers[0])
            signal.signal(signal.SIGUSR1, lambda *_: setattr(reflex, "asked", True))
            print("ready", flush=True)
            while True:
                reflex.tick()
                server.run_once()


if __name__ == "__main__":
    main(*sys.argv[1:])
