"""A Franka's wire over MuJoCo, and a reflex when told: python -m tests.fci ADDRESS [7 ANGLES]

franky-sim, an independent one of another maker, has none itself: SIGUSR1 has its motion aborted, as
an arm does that was pushed, and none begins before the client has it recover.
"""

# pyright: reportMissingImports=false
import signal
import sys
from typing import Any

from franky_sim import SimulationServer, franka_robot_protocol
from franky_sim.constants import DEFAULT_INITIAL_JOINT_POS
from franky_sim.franka_robot_protocol import MoveStatus, RobotCommand, RobotMode
from franky_sim.franka_server import BaseCommand
from franky_sim.mujoco_simulator import MujocoSimulator

ERRORS, JOINT_REFLEX = 41, 6  # of libfranka's, in its order


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


def main(address: str, *angles: str) -> None:
    with MujocoSimulator() as simulator:
        simulator.add_robot([*map(float, angles)] or DEFAULT_INITIAL_JOINT_POS)
        with SimulationServer(simulator, [address]) as server:
            reflex = Reflex(server.robot_servers[0])
            signal.signal(signal.SIGUSR1, lambda *_: setattr(reflex, "asked", True))
            print("ready", flush=True)
            while True:
                reflex.tick()
                server.run_once()


if __name__ == "__main__":
    main(*sys.argv[1:])
