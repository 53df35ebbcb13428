"""A simulated robot in its own process, behind the wire, in real time or in lock step.

When commands stop coming its motors go on holding the last one, and then do what robots of its
kind do: most are damped.
"""

import json
import time
from collections.abc import Sequence
from typing import TextIO

import numpy as np

from rl.bridge import wire
from rl.bridge.desk import unheard
from rl.bridge.greeting import check_hello
from rl.bridge.sim.channel import NETWORKS, Channel, Network
from rl.bridge.sim.faults import Fault, Ills, Spoiler
from rl.bridge.sim.simulator import DAMPING, Log, Robot
from rl.bridge.wire import Command, Link, State

HOLD_S = 0.1  # s without a command that motors go on holding the last one
DAMPED_S = 1.0  # s that a robot is damped before its simulation ends
BEGINS_S = 2.0  # s that a bridge in real time may take to its first command
BEHIND_S = 0.02  # s that it makes up for where this machine held it up
GLANCE_S = 0.05  # s of wall time between two looks at its door, while it is waited for
PATIENCE = 10.0  # s of wall time for a bridge to answer
SILENCE = {"damped": DAMPING, "limp": 0.0, "held": None}  # N m s/rad, of motors that hear nothing
STARVED = 2  # exit status of a robot that was damped at the end, since no answer came
NOTHING = np.zeros(0, "<f4")


class Simulator:
    """A robot behind a socket: waits for a bridge, then lives through its episodes."""

    def __init__(
        self, robot: Robot, link: Link, realtime: bool, ticks: int, episodes: bool = True
    ) -> None:
        """Bridges come to `link`, and the one that was met is spoken with beside it.

        `ticks` of the wire are a step of the policy: in each it says how it is, and listens.

        Episodes begin armed; without them it is as a robot that was switched on.
        """
        self.robot, self.realtime, self.ticks = robot, realtime, ticks
        self.door = self.link = link
        self.episodes = episodes
        self.truth: TextIO | None = None  # where a referee reads what went over the wire
        self.sent: list[bytes] = []  # in this tick, to the bridge
        self.got: list[bytes] = []  # and from it
        self.rate = ticks / robot.spec.control_dt
        self.ignored = 0  # datagrams of strangers
        self.left = False  # its bridge said goodbye
        self.clock: Link | None = None  # of a bridge that is told when time passes: in lock step
        self.silence: float | None = DAMPING  # of SILENCE
        self.through(NETWORKS["none"], NETWORKS["none"], 0)
        self.befall([], 0)
        self.seq, self.answered, self.log = 0, 0, Log()
        self.before = 0  # ticks before this episode
        self.starved, self.behind = 0, 0.0  # steps damped for want of an answer; s behind the clock

    def through(self, there: Network, back: Network, seed: int) -> None:
        """Speak through a network: states go `there`, and commands come `back`."""
        rngs = np.random.default_rng(seed).spawn(2)
        self.there, self.back = (Channel(*x) for x in zip((there, back), rngs, strict=True))

    def befall(self, faults: Sequence[Fault], seed: int) -> None:
        """Have these happen to it and to what it says, at their times."""
        self.ills = Ills(faults, self.robot.body)
        self.spoiler = Spoiler(faults, np.random.default_rng((seed, 0xFA17)))
        self.robot.plain &= not faults

    def meet(self, wait: float) -> None:
        """Wait so many s for a bridge and greet it; ValueError if it is another robot's."""
        until = time.monotonic() + wait
        spec = self.robot.spec
        known = wire.WAITS * (not self.realtime) | wire.EPISODES * self.episodes
        hello = wire.hello(spec)._replace(flags=known, time=self.rate)
        met: dict[bool, Link] = {}  # a bridge's wire, and its clock
        while time.monotonic() < until:
            if (got := self.door.receive(0.1)) is None or got[0].kind != wire.HELLO:
                continue
            message, sender = got
            which = bool(message.flags & wire.WAITS)
            if not which and False in met and met[False].peer != sender:
                self.door.answer(self._refusal, sender)
                continue
            if which not in met or met[which].peer != sender:
                met[which] = self.door.beside(sender)
            self.door.answer(hello, sender)
            check_hello(spec, message, "The bridge")
            if False in met and (self.realtime or True in met):
                self.link, self.clock = met[False], met.get(True)
                return
        raise ValueError(
            f"No bridge came within {wait:g} s: start one with python -m rl.bridge run, or learn, "
            "and --robot if this is not where it looks."
        )

    def episode(self, number: int, qpos: np.ndarray, qvel: np.ndarray, seconds: float) -> str:
        """Live from a pose for so long; how it ended.

        Time goes on as if the episode before had taken so long, unless its bridge said that it was
        over.
        """
        robot, dt = self.robot, self.robot.spec.control_dt
        robot.reset(qpos, qvel)
        for way in (self.spoiler, self.there, self.back):
            way.under_way.clear()  # it is of the episode before
        if not self.episodes:
            robot.damp()
        end, self.silent, self.began = round(seconds / dt), 0.0, time.monotonic()
        before, first = self.before, self.seq + 1
        self.before += end * self.ticks
        heard = self.starved  # when it last heard anything
        self.absent = False  # in lock step, who did not answer in time: nobody waits for it again
        for t in range(end):
            for tick in range(self.ticks):
                self._tick(before, t * self.ticks + tick)
            self.starved += self.silent > HOLD_S
            heard = heard if self.silent else self.starved
            self.log.add(**robot.facts(), episode=number, silent=self.silent)
            if self.left:
                return "left"
            gone = self.realtime and self.silent > HOLD_S + DAMPED_S
            if gone or (self.absent and self.silent > HOLD_S):
                self.starved = self.starved if self.episodes else heard  # it was left on purpose
                return "lost" if self.episodes else "left"
            if robot.fallen and self.episodes:
                return "fell"
            if robot.told.again and robot.told.seq >= first and self.episodes:
                self.before = before + (t + 1) * self.ticks
                return "over"
        return ("starved" if self.silent else "damped") if robot.damped else "done"

    def _tick(self, before: int, t: int) -> None:
        """Tick t of an episode, before which there were so many."""
        robot, dt = self.robot, 1 / self.rate
        self.seq += 1
        self._turn_away()
        wall = dt * (1 + robot.body.drift)
        behind = time.monotonic() - self.began - t * wall
        if self.realtime and behind > BEHIND_S:
            self.began += behind  # it was paused itself: the bridge is not to blame
            self.behind += behind
        now, due = (before + t) * dt, self.began + (t + 1) * wall
        begins = self.episodes and t == 0
        self.ills.befall(now)
        stamp = now * (1 + robot.body.drift)
        state = State(self.seq, stamp, robot.readings(), begins, not self.realtime, robot.body.heat)
        state = self.ills.said(now, state)
        spoken = wire.encode(wire.state_message(robot.spec, state))
        for datagram in self.spoiler.through(now, spoken):
            self.there.send(now, datagram)
        self.sent, self.got = [], []
        self._deliver(self.there.arrived(now))
        patient = time.monotonic() + (0.0 if self.absent else PATIENCE)
        command = self._answer(now, due if self.realtime else patient)
        if self.truth:
            sent, got = ([x.hex() for x in them] for them in (self.sent, self.got))
            row = {"t": self.seq - 1, "time": now, "sent": sent, "got": got, "reset": begins}
            row |= robot.truth()
            self.truth.write(json.dumps(row) + "\n")
        early = self.realtime and not self.answered and now < BEGINS_S
        self.silent = 0.0 if command or early else self.silent + dt
        if command:
            robot.command(command)
        elif self.silent > HOLD_S and self.silence is not None:
            robot.damp(self.silence)
        self._live(now)
        if self.realtime:
            time.sleep(max(0.0, due - time.monotonic()))

    def _live(self, now: float) -> None:
        """Physics until the next tick; a command that is under way is heeded when it comes."""
        steps = self.robot.substeps // self.ticks
        each = 1 if self.back.under_way else steps
        for done in range(each, steps + 1, each):
            self.robot.step(each)
            late = self.back.arrived(now + done / (steps * self.rate)) if done < steps else []
            if command := self._newest(late):
                self.silent = 0.0
                self.robot.command(command)

    def _answer(self, now: float, until: float) -> Command | None:
        """The newest command that comes in time."""
        if self.clock:
            token = wire.Message(wire.TOKEN, 0, self.robot.spec.hash, self.seq, now, NOTHING)
            self.clock.send(token)
        heard, began = list[tuple[float, bytes]](), time.monotonic()
        while (left := until - time.monotonic()) > 0:
            if self.clock is None:
                at = now + time.monotonic() - began
                self._deliver(self.there.arrived(at))
                got = self.link.receive_raw(min(left, max(self.there.due - at, 0.0)))
                # Where no network is between them, what comes in time is heeded at once.
                at = now + time.monotonic() - began if self.there.network.delay else now
                heard += [(at, got[0])] if got else []
            elif (said := self.clock.receive(min(left, GLANCE_S))) is None:
                self._turn_away()
            elif said[0].kind == wire.BYE:
                return None
            elif (said[0].kind, said[0].seq) == (wire.TOKEN, self.seq):
                break
        else:
            self.absent = not self.realtime
        heard += [(now, datagram) for datagram in self.link.drain()]
        came = [x for x in heard if not wire.leaves(x[1])]
        self.left |= len(came) < len(heard)
        self.got += [datagram for _, datagram in came]
        for at, datagram in came:
            self.back.send(at, datagram)
        return self._newest(self.back.arrived(now))

    def _deliver(self, states: list[bytes]) -> None:
        """To the bridge."""
        self.sent += states
        for datagram in states:
            self.link.send_raw(datagram)

    def _newest(self, datagrams: list[bytes]) -> Command | None:
        newest = None
        for message in map(wire.decode, datagrams):
            command = message and wire.command_of(self.robot.spec, message)
            if command and command.seq >= self.answered:
                self.answered, newest = command.seq, command
        return newest

    def _turn_away(self) -> None:
        """Who stands at the door: another bridge is told why, strangers are not heard."""
        if (got := self.door.receive_raw(0.0)) is None:
            return
        message, self.ignored = wire.decode(got[0]), self.ignored + 1
        if message and message.kind == wire.HELLO:
            self.door.answer(self._refusal, got[1])

    @property
    def _refusal(self) -> wire.Message:
        """What a second bridge is answered."""
        why = "Another bridge drives this robot: one at a time."
        return wire.hello(self.robot.spec)._replace(flags=wire.REFUSED, text=why)

    def bye(self, lost: bool) -> None:
        for link in filter(None, (self.link, self.clock)):
            link.send(wire.goodbye(self.robot.spec, wire.LOST * lost))

    def strangers(self) -> int:
        """Datagrams that others sent to it since it met its bridge; nobody heard them."""
        return self.ignored + unheard(self.door)
