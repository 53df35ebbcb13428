"""Short flights of a model along a log's targets, and how far each ends up from what was measured.

The loop of a joint's own motor makes each forget where it began, so that neither a noisy start nor
a long log leads the prediction astray: the first moments of a shot are not scored.
"""

from dataclasses import dataclass
from functools import cached_property

import mujoco
import numpy as np
from mujoco.rollout import Rollout

from rl.bridge.identify.bench import Bench, column
from rl.bridge.identify.tracks import Track

SHOT_S, FORGETS_S = 1.0, 0.25  # s of a shot, and of that until its start is forgotten
MOST_DELAY_S = 0.1  # s
MOST_SHOTS = 40  # that are looked at, of those of a long log
STILL = 0.02  # rad or m
THREADS = 2
STEPS = mujoco.mjtState.mjSTATE_FULLPHYSICS


@dataclass(frozen=True)
class Shots:
    """S of them, each of L ticks; H ticks are known before it."""

    bench: Bench
    dt: float  # s, of a tick
    starts: np.ndarray  # [S, states]
    targets: np.ndarray  # [S, H + L, A]
    measured: np.ndarray  # [S, L, 2 J] positions and speeds after each tick, NaN where lost
    unsteady: float  # s left out, since the base moved

    @cached_property
    def scored(self) -> np.ndarray:
        """[S, L, 2 A] what counts: of the motors' joints, from when the start is forgotten."""
        kept = self.measured[..., self._moved].copy()
        kept[:, : round(FORGETS_S / self.dt)] = np.nan
        return kept

    @cached_property
    def _moved(self) -> np.ndarray:
        motors = self.bench.motors
        return np.concatenate([motors, motors + len(self.bench.dofs)])

    def flown(self, model: mujoco.MjModel, delay: float, substeps: int) -> np.ndarray:
        """[S, L, 2 A] as `model` does, told `delay` s late, with so many steps in a tick."""
        bench, (shots, length) = self.bench, self.measured.shape[:2]
        model.opt.timestep = self.dt / substeps
        ctrl = np.zeros((shots, length * substeps, model.nu))
        ctrl[..., bench.servos] = self._late(delay, substeps)
        datas = [mujoco.MjData(model) for _ in range(THREADS)]
        with Rollout(nthread=THREADS) as rollout:
            states, _ = rollout.rollout(model, datas, self.starts, ctrl)
        after = np.asarray(states)[:, substeps - 1 :: substeps]
        qpos, qvel = after[..., 1 + bench.qpos], after[..., 1 + model.nq + bench.dofs]
        return np.concatenate([qpos, qvel], -1)[..., self._moved]

    def _late(self, delay: float, substeps: int) -> np.ndarray:
        """Targets [S, L * substeps, A]; between two steps a delay blends what both would have."""
        before = self.targets.shape[1] - self.measured.shape[1]
        steps = delay / self.dt * substeps
        whole = int(steps)
        at = np.arange(self.measured.shape[1] * substeps) - whole + before * substeps
        newer, older = (self.targets[:, np.maximum(i, 0) // substeps] for i in (at, at - 1))
        return newer + (steps - whole) * (older - newer)


def shots(bench: Bench, found: list[Track], dt: float) -> Shots:
    """Of all tracks; ValueError if there is none, or if nothing moves."""
    before, length = round(MOST_DELAY_S / dt) + 1, max(round(SHOT_S / dt), 2)
    stride = length - round(FORGETS_S / dt)
    starts, targets, measured, unsteady = [], [], [], 0.0
    for track in found:
        steady, at = bench.steady(track), before
        known = np.all(np.isfinite(column(track, bench.positions + bench.speeds)), axis=1)
        while at + length < len(track.targets):
            if not known[at]:
                at += 1
            elif not steady[at - before : at + length + 1].all():
                at += stride
                unsteady += stride * dt
            else:
                starts.append(bench.starts(track, np.array([at]), bench.model.qpos0)[0])
                targets.append(track.targets[at - before : at + length])
                both = column(track, bench.positions), column(track, bench.speeds)
                measured.append(np.concatenate(both, 1)[at + 1 : at + length + 1])
                at += stride
    if not starts:
        raise ValueError(_empty(unsteady))
    where = np.array(measured)[..., bench.motors]
    moved = (np.nanmax(where, 1) - np.nanmin(where, 1)).max(1)  # [S] of whichever moves most
    if not (stirs := np.flatnonzero(moved > STILL)).size:
        raise ValueError(
            f"No joint moves by more than {moved.max():.2g} rad or m in a second of this log: jog "
            "the robot with python -m rl.bridge excite."
        )
    chosen = stirs[np.unique(np.linspace(0, len(stirs) - 1, MOST_SHOTS).astype(int))]
    starts, targets, measured = (np.array(x)[chosen] for x in (starts, targets, measured))
    return Shots(bench, dt, starts, targets, measured, unsteady)


def _empty(unsteady: float) -> str:
    if unsteady:
        return (
            f"In all of the log's {unsteady:.0f} s the base moves: put the robot on a stand, its "
            "feet in the air, and jog it with python -m rl.bridge excite."
        )
    return (
        f"The log has no {SHOT_S + MOST_DELAY_S:g} s in one piece in which motors had their full "
        "gains: jog the robot with python -m rl.bridge excite."
    )
