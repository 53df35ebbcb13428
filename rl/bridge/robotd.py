"""The process that tells motors what to do, and the only one: python -m rl.bridge.robotd

It knows of no network but its wires, has no JAX, and never waits for a policy or an operator longer
than a tick has time for.
"""

import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from rl import artefact
from rl.artefact import Artefact
from rl.bridge import robots, states, wire
from rl.bridge.checks import Reason
from rl.bridge.clock import Clock, LockStep, Paced, Real, steady
from rl.bridge.core import Core, Setup
from rl.bridge.desk import Desk
from rl.bridge.drivers.udp import Udp
from rl.bridge.ears import UNKEPT
from rl.bridge.learn.outbox import Outbox
from rl.bridge.learn.steps import Steps
from rl.bridge.limits import Limits
from rl.bridge.lock import lock
from rl.bridge.log.flight import About, Row
from rl.bridge.log.recorder import Feed
from rl.bridge.messages import Loop
from rl.bridge.refusals import NOTHING, RISING, ticks_of
from rl.bridge.robots import Driver
from rl.bridge.tally import Tally, tell, verdict
from rl.guard import guard

GATHER_S = 120.0  # s for a policy and a pilot to come
ROBOT_S = 10.0  # s to wait for a simulated robot in lock step
ABANDONED_S = 10.0  # s of silence of who drives it
LOST_S = 2.0  # s of silence after which a simulated robot is given up
RELAX_S = 0.2  # s that motors are told to be damped at the end
SHARE = 0.4  # of a tick of the wire, for which it waits for the policy
HUMAN = 0.15  # and for a human who may act in its place


class Robotd:
    """A core, its clock and its wires."""

    def __init__(
        self, core: Core, clock: Clock, driver: Driver, desk: Desk, feed: Feed | None = None
    ) -> None:
        self.core, self.clock, self.driver, self.desk = core, clock, driver, desk
        self.feed, self.tally, self.ended, self.leaving = feed, Tally(), False, False
        self.outbox: Outbox | None = None  # where steps go that are learned from
        self.steps: Steps | None = None
        self.alone_s = ABANDONED_S
        self.last: tuple[str, Reason] = self.core.state, self.core.why  # before it was relaxed

    def first_word(self) -> None:
        """Hear the pilot before the robot moves."""
        self.core.begin(0.0, 0.0)
        self.desk.tell(self.core.status(0)._replace(waits=True))
        self._hear_all()

    def live(self) -> str:
        """Tick until the robot or the pilot says goodbye, or `ended` is set; how it ended."""
        end = self._live()
        self.last = self.core.state, self.core.why
        if end == "stopped" and not self.core.waits:
            self._relax()
        return end

    def _live(self) -> str:
        while not (self.ended or self.desk.left or self.abandoned):
            if (tick := self.clock.wait()) is None:
                self.driver.receive()
                return self.driver.gone or "lost"
            self._tick(*tick)
            self.clock.done()
            if self.driver.gone:
                return self.driver.gone
            if self.core.setup.episodes and self._silent > LOST_S:
                return "lost"
        return "stopped"

    @property
    def _silent(self) -> float:
        """s since the robot spoke, or since it should have begun to."""
        return min(self.core.ears.age("robot"), self.core.now)

    @property
    def abandoned(self) -> bool:
        """Nobody has driven it for long, and it needs nobody."""
        alone = self.core.setup.episodes or self.core.state in states.DAMPED
        return alone and self.desk.pilot_silent > self.alone_s

    def _relax(self) -> None:
        """Leave motors damped: a robot goes on with what it heard last."""
        until, self.leaving = self.core.now + RELAX_S, True
        while self.core.now < until and (tick := self.clock.wait()):
            self._tick(*tick)
            self.clock.done()

    def _tick(self, number: int, now: float, late: float) -> None:
        core, desk, took = self.core, self.desk, float("nan")
        core.begin(now, late)
        for datagram in self.driver.receive():
            self._hear("robot", datagram)
        if self.leaving:
            self._hear("bridge", b"")
        if self.outbox and not self.outbox.kept:
            self._hear("bridge", UNKEPT)
        if core.tells(number):
            loop = self.tally.loop._replace(missed=self.clock.missed)
            patience = HUMAN * core.dt if core.setup.spec.action else 0.0
            desk.tell(core.status(number, loop), patience)
            self.tally.loop = Loop(unanswered=loop.unanswered)
        self._hear_all()
        if question := core.sense():
            if self.steps:
                self.steps.ask(core)
            took = desk.ask(question, core.waits, core.wishes.period, SHARE * core.dt)
            self._hear_all(answer=True)
        told = core.act()
        if self.steps:
            self.steps.tick(core, told)
        if told.datagram:
            self.driver.send(told.datagram)
        if self.feed:
            self.feed.tick(Row(
                number, now, late, took, (), told.datagram, told.state, int(told.mask), told.stages
            ))  # fmt: skip
        self.tally.count(told, late, took, bool(question))

    def _hear_all(self, answer: bool = False) -> None:
        for source, datagram in self.desk.collect():
            self._hear(source, datagram, answer)

    def _hear(self, source: str, datagram: bytes, answer: bool = False) -> None:
        self.core.hear(source, datagram)
        if self.feed:
            self.feed.hear(source, answer, datagram)


@dataclass(frozen=True)
class Args:
    """Stand between a robot and whoever wants to move it."""

    artefact: tyro.conf.Positional[Path]
    robot: str = "127.0.0.1:9870"  # of rl/bridge/robots.py
    sensors: str = ""  # where a program says what the robot does not measure
    desk: str = "127.0.0.1:9871"  # where a policy and operators come to
    policy_patience: float = 8.0  # s to wait for it in lock step, less than its robot does
    pilot_patience: float = 8.0  # and for who drives it
    stays: bool = False  # until it is ended: who drives it may come at any time, and go
    log: Path | None = None  # an .mcap file of all that is heard and told
    steps: str = ""  # host:port of who keeps the steps of a policy that learns
    limits: Limits = Limits()


def main(args: Args) -> None:
    found, patience = artefact.read(args.artefact), (args.policy_patience, args.pilot_patience)
    own = robots.check(found.spec, args.robot, args.sensors)  # a wire of its makers
    held = lock(args.robot if own else "{}:{}".format(*wire.address(args.robot)))
    desk = Desk(found.spec, wire.address(args.desk), patience, wire.tag(found.digest))
    desk.gather(GATHER_S, np.inf if args.stays else GATHER_S)
    end = ""
    try:
        robotd = begun(args, found, desk)
        for sent in (signal.SIGTERM, signal.SIGINT):
            signal.signal(sent, lambda *_: setattr(robotd, "ended", True))
        granted = steady()  # after what it starts, which would be as urgent as itself
        try:
            robotd.first_word()
            end = robotd.live()
        finally:
            robotd.driver.close()
    finally:
        desk.bye(end == "lost")
        held.close()
    whole = not robotd.feed or robotd.feed.close()
    kept = not robotd.outbox or robotd.outbox.close()
    robotd.tally.missed = robotd.clock.missed
    robotd.tally.ignored = robotd.core.ears.counts + desk.turned_away()
    tell(robotd.tally, end, granted)
    if robotd.core.refusal.why not in (NOTHING, RISING) and not robotd.tally.asked:
        print(f"unarmed  {robotd.core.refused}", flush=True)
    if args.log and whole:
        print(f"log      {args.log}", flush=True)
    wrong = list(verdict(*robotd.last, end))
    if not whole:
        wrong.append(f"{args.log} is not whole: what could be written of it is kept.")
    if not kept:
        wrong.append("the last steps are not kept: who keeps them has ended, or has no room.")
    if wrong:
        sys.exit("\n".join(f"error: {x}" for x in wrong))


def begun(args: Args, found: Artefact, desk: Desk) -> Robotd:
    """A bridge to the robot, which has been met."""
    spec = found.spec
    driver = robots.driver(spec, args.robot, args.sensors)
    driver.meet()
    try:
        ticks = ticks_of(spec, driver.rate)
    except ValueError:
        driver.close()
        raise
    setup = Setup(spec, args.limits, ticks, driver.episodes, found.digest)
    feed = Feed(args.log, About(setup, driver.codec.name, time.time())) if args.log else None
    dt = spec.control_dt / ticks
    real = Paced(dt, driver.link) if ticks == 1 and isinstance(driver, Udp) else Real(dt)
    clock = LockStep(spec, wire.address(args.robot), ROBOT_S) if driver.waits else real
    made = Robotd(Core(setup, driver.codec), clock, driver, desk, feed)
    made.alone_s = np.inf if args.stays else ABANDONED_S
    if args.steps:
        made.outbox = Outbox(wire.address(args.steps))
        made.steps = Steps(spec, made.outbox.put)
    return made


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m rl.bridge.robotd")))
