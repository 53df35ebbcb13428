"""Jogs every joint of a robot that touches nothing, for `identify` to tell what it is made of.

python -m rl.bridge excite runs/ppo/artefact-0.zip --robot sim-go2 --log excite.mcap
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from rl import artefact
from rl.bridge import launch, states
from rl.bridge.checks import said
from rl.bridge.limits import Limits
from rl.bridge.messages import Status
from rl.bridge.pilot import Word
from rl.bridge.source import By
from rl.spec import Spec

AGAIN_S = 0.2  # s between two tries to be armed
RISES_S = 1.0  # s in which jogs grow and fade
BANDS = (0.1, 0.3, 0.6), (0.6, 1.2, 0.25), (1.8, 3.0, 0.15)  # Hz from and to, share of the size
FAST = 0.5  # share of a joint's speed, and of its acceleration, that is asked for at most
ROOM = 0.1  # share of a joint's range that is left free at its ends
PULL = 0.3  # of a period's way back to where the joint should be


@dataclass(frozen=True)
class Excite:
    """Jog all joints of a robot that hangs, or an arm with room around it."""

    artefact: tyro.conf.Positional[Path]  # a file, or the directory of a run that has one
    log: Path  # an .mcap file, for identify
    robot: str = "127.0.0.1:9870"  # host:port; or sim-go2, sim: one that is simulated, held up
    seconds: float = 20.0  # of jogs
    size: float = 0.3  # rad about its rest, of each joint; of one that slides, share of its range
    seed: int = 0
    limits: Limits = Limits()


class Jogs:
    """Has a robot stand, takes it from its policy at once, and jogs it along sums of sines."""

    def __init__(self, spec: Spec, seconds: float, size: float, seed: int = 0) -> None:
        self.seconds, self.since, self.tried = seconds, np.inf, ("", -np.inf)
        self.dt = spec.control_dt
        rng, motors = np.random.default_rng(seed), spec.actuators
        low, high, self.rest, speed, sharp = (
            np.array([getattr(a, k) for a in motors])
            for k in ("low", "high", "rest", "speed", "acceleration")
        )
        slides = np.array([a.unit == "m" for a in motors])
        reach = np.where(slides, size * (high - low), size)
        # About rest, or as near to it as leaves room to the ends of its range.
        room = np.minimum(reach + ROOM * (high - low), (high - low) / 2)
        self.middle = np.clip(self.rest, low + room, high - room)
        draw = rng.uniform(size=(2, len(BANDS), len(motors)))
        least, most, share = np.array(BANDS).T[..., None]
        self.turns = 2 * np.pi * (least + (most - least) * draw[0])  # rad/s [bands, A]
        self.phases = 2 * np.pi * draw[1]
        pace = FAST * speed / (share * self.turns).sum(0)
        sharp = np.where(sharp > 0, FAST * sharp, np.inf) / (share * self.turns**2).sum(0)
        self.sizes = share * np.minimum(reach, np.minimum(pace, sharp))

    def silent(self, seconds: float) -> bool:
        return False

    def word(self, status: Status) -> Word:
        t = status.time
        if status.state == states.INTERVENE:
            self.since = min(self.since, t)
            ran = t - self.since
            over = ran >= self.seconds
            return Word(states.WAIT if over else "", jog=self.jog(ran, status.targets),
                        deadman=True, leaves=over)  # fmt: skip
        if self.since < np.inf or status.state == states.FAULT:
            return Word(leaves=True, why=f"It was stopped before its end: {said(status.why)}.")
        event = {
            states.PASSIVE: states.STAND, states.HOLD: states.STAND, states.READY: states.ARM,
            states.ARMED: states.TAKE,
        }.get(status.state, "")  # fmt: skip
        if event == self.tried[0] and t - self.tried[1] < AGAIN_S:
            return Word()
        self.tried = event, t
        return Word(event)

    def jog(self, t: float, targets: np.ndarray) -> np.ndarray:
        """Speeds [A] at which targets come to where they should be, t s after the first."""
        ahead, now = self.wished(t + self.dt), self.wished(t)
        return (ahead - now + PULL * (now - targets)) / self.dt

    def wished(self, t: float) -> np.ndarray:
        grown = np.clip(min(t, self.seconds - t) / RISES_S, 0, 1)
        sines = self.sizes * np.sin(self.turns * t + self.phases)
        settled = self.rest + np.clip(t / RISES_S, 0, 1) * (self.middle - self.rest)
        return settled + grown * sines.sum(0)


def excite(args: Excite) -> int:
    """Jog it until its time is over: the status to exit with."""
    found = artefact.read(path := launch.found(args.artefact))
    spec = found.spec
    if not 0 < args.size <= 1:
        raise ValueError(f"--size is {args.size:g}; it takes rad, or a share, above 0 up to 1.")
    if not 0 < args.seconds < np.inf:
        raise ValueError(f"--seconds is {args.seconds:g}; it takes a time above 0 s.")
    asked = tuple((channel.low + channel.high) / 2 for channel in spec.command)
    run = launch.Run(  # its policy must come, and is not asked
        path, args.robot, by=By(asked), limits=args.limits, log=args.log,
        runtime="jax" if isinstance(found.program, str) else "numpy",
    )  # fmt: skip
    return launch.run(run, Jogs(spec, args.seconds, args.size, args.seed), hung=True)
