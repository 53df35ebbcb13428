"""What a robot is made of, and how sure that is: least squares over shots, by mujoco.sysid.

Unknowns are counted in spreads of what was thought of them before, which counts as one measurement
of each.  Intervals are the wider of two: of noise that is the same everywhere, and of what each
shot by itself would have said, since a model that is not the robot errs alike for a while.
"""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student

from rl.bridge.identify.bench import Bench, differing
from rl.bridge.identify.shoot import MOST_DELAY_S, Shots

STEP_S = 0.002  # s of physics at most, as a simulated robot's
EPS = 1e-3  # spreads, of a derivative's difference
GRID_S = 0.0035  # s between two delays that are tried; no part of a tick
OFF = 0.03  # spreads off its bounds, at which a search begins, lest it stay there
ROUNDS = 2  # of weights by what was left
FIRST = 1e-3, 2e-2  # rad (m) and its speed, what is left at first
FLOOR = 1e-5, 1e-4  # and at least
LEVEL = 0.95
SHARE = 0.02  # of a motor's torque, that its friction is thought to be off by
TOLD = 0.5  # of the spread before, to which a log must narrow it


@dataclass(frozen=True)
class Unknown:
    """A number, and what is thought of it: `nominal` give or take `spread`."""

    name: str
    unit: str
    nominal: float  # the model's
    spread: float  # standard deviation; of a factor, of its logarithm
    low: float
    high: float

    @property
    def factor(self) -> bool:
        return self.unit == "x"

    def value(self, z: Any) -> Any:
        """Of spreads from the nominal."""
        if self.factor:
            return self.nominal * np.exp(self.spread * z)
        return self.nominal + self.spread * z

    def spreads(self, value: float) -> float:
        if self.factor:
            return float(np.log(value / self.nominal) / self.spread)
        return (value - self.nominal) / self.spread


@dataclass(frozen=True)
class Fitted:
    unknown: Unknown
    value: float
    low: float  # of the interval
    high: float
    told: bool  # the log tells it: the interval is narrower than what was thought before


@dataclass(frozen=True)
class Fit:
    found: list[Fitted]
    left: float  # share of the joints' motion that the model does not explain
    before: float  # the same of the artefact's own model
    rms: float  # rad or m of positions that are left


def unknowns(bench: Bench) -> list[Unknown]:
    """Delay, friction, damping and stiffness of each motor; and what an arm carries."""
    model, motors = bench.model, bench.spec.actuators
    friction = model.dof_frictionloss[bench.dofs[bench.motors]]
    found = [Unknown("delay", "s", 0.0, 0.02, 0.0, MOST_DELAY_S)]
    for motor, loss in zip(motors, friction, strict=True):
        spread = max(float(loss), SHARE * motor.torque)
        force = "N m" if motor.unit == "rad" else "N"
        found.append(Unknown(f"{motor.name} frictionloss", force, loss, spread, 0, 10 * spread))
    for name, spread in (("damping", 0.5), ("stiffness", 0.3)):
        found += [Unknown(f"{motor.name} {name}", "x", 1.0, spread, 0.05, 20) for motor in motors]
    if bench.base < 0:  # on a stand nothing feels it
        mass = float(model.body_mass[bench.payload])
        found.append(Unknown("payload", "kg", 0.0, 1.0, -0.9 * mass, 10))
    return found


def fit(shots: Shots) -> Fit:
    """The unknowns of `shots`, with intervals of 95%."""
    from mujoco import sysid

    problem = Problem(shots, unknowns(shots.bench))
    low, high = (np.array([u.spreads(getattr(u, k)) for u in problem.unknowns])
                 for k in ("low", "high"))  # fmt: skip
    z = np.full(len(low), 0.1)
    before, result = problem.left(np.zeros_like(z)), None
    for _ in range(ROUNDS):
        z = np.clip(problem.delayed(z), low + OFF, high - OFF)
        asked = sysid.ParameterDict({"z": sysid.Parameter("z", z, low, high)})
        _, result = sysid.optimize(
            asked, problem.residual, verbose=False, max_iters=6, eps=EPS, xtol=1e-3,
            output=io.StringIO(),
        )  # fmt: skip
        z = result.x.ravel()
        problem.reweigh(z)
    assert result is not None
    half = problem.half_widths(z)
    found = list(map(_fitted, problem.unknowns, z, half))
    return Fit(found, problem.left(z), before, problem.rms(z))


def _fitted(unknown: Unknown, z: float, half: float) -> Fitted:
    prior = float(student.ppf((1 + LEVEL) / 2, np.inf))
    least, most = unknown.spreads(unknown.low), unknown.spreads(unknown.high)
    low, high = (unknown.value(np.clip(z + x * min(half, prior), least, most)) for x in (-1, 1))
    return Fitted(
        unknown, float(unknown.value(z)), float(low), float(high), bool(half < TOLD * prior)
    )


class Problem:
    """Residuals of the shots and of what was thought before, in units of what is left."""

    def __init__(self, shots: Shots, asked: list[Unknown]) -> None:
        self.shots, self.unknowns = shots, asked
        self.substeps = max(int(np.ceil(shots.dt / STEP_S - 1e-9)), 1)
        self.weigh(np.repeat(FIRST, len(shots.bench.motors)))

    def weigh(self, left: np.ndarray) -> None:
        """By what is left [2 A] of each position and speed."""
        self.sizes = np.maximum(left, np.repeat(FLOOR, len(left) // 2))

    def reweigh(self, z: np.ndarray) -> None:
        self.weigh(np.sqrt(np.nanmean(self.errors(z) ** 2, (0, 1))))

    def errors(self, z: np.ndarray, substeps: int = 0, own: bool = False) -> np.ndarray:
        """[S, L, 2 A] predicted less measured, NaN where that is not scored.

        With more `substeps` in a tick, or the model's `own` solver.
        """
        values = np.array([u.value(x) for u, x in zip(self.unknowns, z, strict=True)])
        count = len(self.shots.bench.motors)
        delay, (friction, damping, stiffness) = values[0], values[1 : 1 + 3 * count].reshape(3, -1)
        payload = float(values[-1]) if len(values) > 1 + 3 * count else 0.0
        model = differing(self.shots.bench, friction, damping, stiffness, payload)
        if own:
            model.opt.iterations = self.shots.bench.iterations
        flown = self.shots.flown(model, float(delay), substeps or self.substeps)
        return flown - self.shots.scored

    def scaled(self, z: np.ndarray, substeps: int = 0, own: bool = False) -> np.ndarray:
        """[S, m] errors of each shot."""
        errors = np.nan_to_num(self.errors(z, substeps, own) / self.sizes)
        return errors.reshape(len(errors), -1)

    def residual(self, x: np.ndarray, _: Any) -> tuple[list[np.ndarray], None, None]:
        """As mujoco.sysid asks for it: of one x [n], or of the columns of many [n, k]."""
        columns = np.atleast_2d(x.T)
        errors = np.stack([self.scaled(z).ravel() for z in columns], 1)
        both = np.concatenate([errors, columns.T])
        return [both if x.ndim == 2 else both[:, 0]], None, None

    def jacobian(self, z: np.ndarray, base: np.ndarray) -> np.ndarray:
        """[S, m, n] of the shots' errors, which are `base` here."""
        return np.stack([(self.scaled(z + EPS * e) - base) / EPS for e in np.eye(len(z))], -1)

    def delayed(self, z: np.ndarray) -> np.ndarray:
        """The best start near `z` of all delays, each with the others moved to go with it.

        A wire of few ticks has a valley for each of them, and a search stays in its own.
        """
        base = self.scaled(z)
        jac = np.concatenate([self.jacobian(z, base).reshape(-1, len(z)), np.eye(len(z))])[:, 1:]
        inverse, best, least = np.linalg.pinv(jac), z, np.inf
        for delay in np.arange(0, MOST_DELAY_S, GRID_S):
            tried = np.concatenate([[self.unknowns[0].spreads(delay)], z[1:]])
            errors = np.concatenate([self.scaled(tried).ravel(), tried])
            move = -inverse @ errors
            if (cost := float(np.sum((errors + jac @ move) ** 2))) < least:
                best, least = tried + np.concatenate([[0.0], move]), cost
        return best

    def half_widths(self, z: np.ndarray) -> np.ndarray:
        """Of the intervals, in spreads."""
        from mujoco import sysid

        shots, n = len(self.shots.starts), len(z)
        base = self.scaled(z)
        jac = self.jacobian(z, base)
        whole = np.concatenate([jac.reshape(-1, n), np.eye(n)])
        ones = np.ones(np.isfinite(self.shots.scored).sum())  # so large were they weighed to be
        _, even = sysid.calculate_intervals([ones, z], whole, 1 - LEVEL)
        inverse = np.linalg.inv(whole.T @ whole)
        scores = np.einsum("smn,sm->sn", jac, base)
        spread = inverse @ (scores.T @ scores) @ inverse * shots / max(shots - 1, 1)
        alike = np.sqrt(np.diag(spread)) * student.ppf((1 + LEVEL) / 2, max(shots - 1, 1))
        # Of steps of physics without end, and of a solver that is content sooner, as in training.
        others = 2 * (self.scaled(z, 2 * self.substeps) - base), self.scaled(z, own=True) - base
        shifts = [inverse @ np.einsum("smn,sm->n", jac, other) for other in others]
        return np.sqrt(np.maximum(even, alike) ** 2 + np.square(shifts).sum(0))

    def left(self, z: np.ndarray) -> float:
        positions = len(self.sizes) // 2
        moved = self.shots.scored[..., :positions]
        still = moved - np.nanmean(moved, (0, 1))
        errors = self.errors(z)[..., :positions]
        return float(np.sqrt(np.nanmean(errors**2) / np.nanmean(still**2)))

    def rms(self, z: np.ndarray) -> float:
        return float(np.sqrt(np.nanmean(self.errors(z)[..., : len(self.sizes) // 2] ** 2)))
