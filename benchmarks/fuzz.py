"""Frames of strangers, and old ones of friends, at every socket: python -m benchmarks.fuzz

The same flight in lock step, alone and in the middle of it all: what goes over the robot's wire
must be the same to the last bit, and nothing that came in vain uncounted.  Who can forge the
addresses of others on this machine is no stranger here: nothing is signed.
"""

import re
import socket
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tyro

from benchmarks import flights, rows
from benchmarks.forgeries import DAMAGED, forged
from benchmarks.process import ROOT, guard
from experiments import cli
from rl import artefact
from rl.bridge import wire
from rl.bridge.core import Core
from rl.bridge.drivers.udp import Codec
from rl.bridge.log import flight as log
from rl.bridge.messages import Status
from rl.bridge.pilot import Word

RATE, EPISODE_S = 500.0, 5.0  # ticks of the wire a second, of the robot
BURST, EVERY = 1000, 100  # frames at once, more than a buffer holds, and after how many statuses
HOSTS = [f"127.0.{i}.1" for i in range(1, 60)]  # of strangers


@dataclass(frozen=True)
class Args:
    """Fly twice, once among frames of all kinds."""

    frames: int = 100_000
    seconds: float = 20.0  # of the robot
    seed: int = 0
    path: Path = ROOT / "benchmarks" / "policies" / "go2-joystick-flat" / "artefact-0.zip"
    name: str = "bridge/fuzz"
    results: Path = ROOT / "benchmarks" / "results" / "bridge.jsonl"


class Strangers:
    """Send so many frames to sockets while a flight's pilot speaks, and read no answer: a pilot
    that goes on asking for a walk."""

    def __init__(self, flight: flights.Flight, recorded: list[bytes], rng: np.random.Generator,
                 frames: int, words: int) -> None:  # fmt: skip
        self.flight, self.recorded, self.rng = flight, recorded, rng
        self.left, self.words = frames, words
        self.at: dict[str, list[tuple[str, int]]] = {}  # sockets, by whose
        self.sent: Counter[str] = Counter()  # by whose
        self.sockets = []
        for host in HOSTS if frames else ():
            self.sockets.append(one := socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            one.bind((host, 0))

    def word(self, status: Status) -> Word:
        self.at = self.at or sockets(self.flight)
        if self.left and self.words > 0:
            burst = BURST if self.words % EVERY == 0 else 0
            for _ in range(min(self.left, max(self.left // max(self.words, 1), burst, 1))):
                self._send()
        self.words -= 1
        return Word(command=np.array([0.5, 0.0, 0.3]))

    def _send(self) -> None:
        whose = list(self.at)[int(self.rng.integers(len(self.at)))]
        at = self.at[whose][int(self.rng.integers(len(self.at[whose])))]
        frame = forged(self.flight.found.spec, self.rng, self.recorded)
        self.sockets[int(self.rng.integers(len(self.sockets)))].sendto(frame, at)
        self.sent[whose] += 1
        self.left -= 1

    def close(self) -> None:
        for one in self.sockets:
            one.close()


@dataclass(frozen=True)
class Flown:
    """A flight: its wire's ticks, its log, and what was sent to it and counted by it."""

    ticks: list[str]
    log: log.Flight
    sent: Counter[str]
    counted: dict[str, int]


def main(args: Args) -> None:
    cli.at_least(1, args, "frames")
    about = rows.about()
    rng = np.random.default_rng(args.seed)
    alone = flown(args, [], rng, 0)
    recorded = [x.datagram for row in alone.log.rows for x in row.heard]
    recorded += [row.told for row in alone.log.rows if row.told]
    among = flown(args, recorded, rng, args.frames)
    different = sum(a != b for a, b in zip(alone.ticks, among.ticks, strict=True))
    (_, before, _), after = (heard_again(alone.log, rng, x) for x in (0, args.frames))
    damaged, counted, other = after[0], after[1] - before, after[2]
    facts: dict[str, Any] = {"frames": args.frames, "ticks": len(alone.ticks)}
    facts |= {"different": different, "sent": among.sent, "counted": among.counted}
    facts |= {"damaged": {"frames": damaged, "counted": counted, "different": other}}
    rows.write(args.results, {"what": args.name, **facts, **about})
    lost = among.sent["desk"] - among.counted["robotd"] + among.sent["sim"] - among.counted["sim"]
    print(f"{among.sent.total()} frames of strangers, {different} of {len(alone.ticks)} ticks "
          f"different; {damaged} of friends, {other} different, {damaged - counted} not counted; "
          f"{lost} taken for greetings")  # fmt: skip
    taken = among.sent["desk"] / 10  # goodbyes and greetings of watchers, at most
    if different or other or damaged != counted or not 0 <= lost <= taken:
        sys.exit("error: What strangers said, or a network damaged, was not without effect.")


def flown(args: Args, recorded: list[bytes], rng: np.random.Generator, frames: int) -> Flown:
    """Fly among so many frames; ValueError if it did not go to its end."""
    count = max(round(args.seconds / EPISODE_S), 1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        found = artefact.read(args.path)
        begin = flights.starts(found, RATE, count, folder / "starts.npz")
        sim = "--rate", RATE, "--seconds", args.seconds / count, "--starts", begin
        with flights.flight(args.path, folder, sim, (), ("--runtime", "numpy")) as flight:
            words = round(args.seconds / found.spec.control_dt)
            strangers = Strangers(flight, recorded, rng, frames, words)
            pilot = flight.pilot()
            try:
                pilot.meet(flights.ENDS_S)
                ended, codes = pilot.live(strangers), flight.ends("sim", "robotd")
            finally:
                strangers.close()
                pilot.link.close()
            if ended != "gone" or any(codes):
                raise ValueError(f"A flight ended as {ended}, {codes}: {flight.said('robotd')}")
            counted = {name: ignored(flight.said(name)) for name in ("robotd", "sim")}
            ticks = (folder / "truth.jsonl").read_text().splitlines()[1:]
            return Flown(ticks, log.read(folder / "flight.mcap"), strangers.sent, counted)


def sockets(flight: flights.Flight) -> dict[str, list[tuple[str, int]]]:
    """Where strangers may send to: of each process, in the order of its life."""
    at = {"desk": [wire.address(flight.desk)], "sim": [wire.address(flight.robot)]}
    for name in ("robotd", "policyd"):
        found = psutil.Process(flight.processes[name].pid).net_connections("udp")
        ports = {one.laddr.port for one in found} - {port for _, port in (*at["desk"], *at["sim"])}
        at[name] = [("127.0.0.1", port) for port in sorted(ports)]
    return at


def ignored(said: str) -> int:
    found = re.search(r"^ignored +(\d+) frames", said, re.M)
    return int(found[1]) if found else 0


def heard_again(flight: log.Flight, rng: np.random.Generator, frames: int) -> tuple[int, int, int]:
    """Live through a log again, among so many old and damaged frames of friends: how many they
    were, how many frames were counted as none, and in how many ticks the command was another."""
    setup = flight.about.setup
    core, sent, different, old = Core(setup, Codec(setup.spec)), 0, 0, dict[str, list[bytes]]()
    to_come = sum(len(row.heard) for row in flight.rows)
    for row in flight.rows:
        core.begin(row.now, row.late)
        for answer in (False, True):
            for heard in (x for x in row.heard if x.answer == answer):
                core.hear(heard.source, heard.datagram)
                message, kept = wire.decode(heard.datagram), old.setdefault(heard.source, [])
                kept += [heard.datagram] if message and message.kind != wire.HELLO else []
                # A share of what is left, so that they come from the first tick to the last.
                for _ in range((frames - sent) // to_come if kept else 0):
                    core.hear(heard.source, forged(setup.spec, rng, kept[-99:], DAMAGED))
                    sent += 1
                to_come -= 1
            if not answer:
                core.sense()
        different += core.act().datagram != row.told
    return sent, core.ears.counts.total(), different


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.fuzz")))
