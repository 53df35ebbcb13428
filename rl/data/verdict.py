"""What a run on data alone says of itself, without a rollout: whether it is well, or what mends it.

Looks at what rl/data/held_out.py measured over training, of episodes learned from and held out
(the workflow of Kumar et al. 2021, arXiv:2109.10813: values that rise and fall are overfitting,
errors that stay are underfitting).
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from rl.data.dataset import Dataset

Series = Mapping[str, np.ndarray]  # of each metric, over training [T]
LAST = 3  # looks, of whose median the end is
BEYOND = 0.1  # of the range of returns, that beliefs may leave it by
FARTHER = 2.0  # times the error of what is learned from: what is held out is no longer alike
WORSE = 0.05  # share by which what is held out has come to be worse than it was
BELOW = 0.5  # standard deviations of returns that beliefs may lie below them
MET = 0.8  # share of the targets' variance that critics should meet
IMITATED = 0.2  # share of the actions' variance that a policy that only imitates should have

Word = Literal["healthy", "diverging", "overfitting", "underfitting", "unknown"]
MENDS: dict[Word, str] = {
    "healthy": "",
    "diverging": "hold it closer to the data (more --agent.penalty, .actor-bc or .critic-bc, less "
    ".alpha or .beta), slow its targets (less --agent.tau or .lr), or lower --agent.gamma.",
    "overfitting": "end earlier, when what is held out was at its best; or use a smaller "
    "--agent.hidden, more data, or --agent.dropout where it has one.",
    "underfitting": "train longer (--steps), faster (more --agent.lr, or .critic-lr where it has "
    "one) or with larger networks (.hidden, .critic-hidden); where it is held to the data, hold it "
    "less (less .penalty, .actor-bc or .critic-bc, more .alpha or .beta).",
    "unknown": "look again after more updates, with --held-out above 0.",
}
IMITATORS: dict[Word, str] = {  # have no critics, and nothing that holds them
    "overfitting": "end earlier, when what is held out was at its best; or use more data, or a "
    "smaller network.",
    "underfitting": "train longer (--steps), faster (more --agent.lr) or a larger network.",
}


class Verdict(NamedTuple):
    word: Word
    why: str  # what was seen
    mend: str  # what to try


def bounds(data: Dataset, gamma: float) -> tuple[float, float]:
    """Between which any policy's return lies that earns what the data's rewards are."""
    reward = data.steps["reward"]
    steps = 1 / (1 - gamma) if gamma < 1 else float(data.episodes["length"].max())
    return float(min(reward.min(), 0)) * steps, float(max(reward.max(), 0)) * steps


def judge(seen: Series, within: tuple[float, float], alike: bool = True) -> Verdict:
    """The verdict on one seed; `within` are the `bounds` of its data, and what is held out is
    `alike` unless a sampler draws some of what is learned from more often."""
    if not {"train_distance", "held_distance"} <= seen.keys() or len(seen["train_distance"]) < LAST:
        return _of("unknown", "there is too little to look at")
    for word, looks in (
        ("diverging", _diverging),
        ("overfitting", _overfitting),
        ("underfitting", _underfitting),
    ):
        if (alike or word != "overfitting") and (why := looks(seen, within)):
            return _of(word, why, {} if "train_bellman" in seen else IMITATORS)
    if not alike:
        return _of(
            "healthy", "of what it draws it has learned; what is held out is drawn otherwise"
        )
    return _of("healthy", "beliefs, errors and actions are alike on what is held out")


def of_rows(rows: list[dict[str, Any]], seed: int) -> Series:
    """Of a run's metrics, those of its seed number `seed`."""
    names = [name for name in rows[0] if name.startswith(("train_", "held_"))] if rows else []
    return {name: np.array([np.ravel(row[name])[seed] for row in rows]) for name in names}


def _of(word: Any, why: str, instead: Mapping[Word, str] | None = None) -> Verdict:
    return Verdict(word, why, (MENDS | dict(instead or {}))[word])


def _end(x: np.ndarray) -> float:
    return float(np.median(x[-LAST:]))


def _diverging(seen: Series, within: tuple[float, float]) -> str:
    if "train_q_policy" not in seen:
        return ""
    (low, high), slack = within, BEYOND * (within[1] - within[0])
    for name in ("train_q_policy", "held_q_policy", "train_q_data"):
        if not low - slack <= (q := _end(seen[name])) <= high + slack:
            return (
                f"it believes in returns of {q:,.4g}, and all are within {low:,.4g} and {high:,.4g}"
            )
    return ""


def _overfitting(seen: Series, within: tuple[float, float]) -> str:
    held, train = _smooth(seen["held_distance"]), _smooth(seen["train_distance"])
    if held[-1] > (1 + WORSE) * held.min() and train[-1] < 1.01 * train.min():
        return (
            f"it misses held-out actions by {held[-1]:.3g}, and missed them by {held.min():.3g}; "
            f"those it learns from by {train[-1]:.3g}"
        )
    if "held_td" not in seen:
        return ""
    errors = _end(seen["held_td"]), _end(seen["train_td"])
    if errors[0] > FARTHER * errors[1]:
        return f"its error on held-out targets is {errors[0]:.3g}, and {errors[1]:.3g} on others"
    return ""


def _smooth(x: np.ndarray) -> np.ndarray:
    """Medians of a few looks at a time."""
    return np.array([np.median(x[i : i + LAST]) for i in range(len(x) - LAST + 1)])


def _underfitting(seen: Series, within: tuple[float, float]) -> str:
    if "train_bellman" not in seen:
        share = _end(seen["train_imitated"])
        if share >= IMITATED:
            return ""
        what = f"it has {share:.1%}" if share > 0 else "it has nothing"
        return f"{what} of the variance of the data's actions, and {IMITATED:.0%} is the least"
    below = -_end(seen["train_above_return"]) / max(_end(seen["train_return_std"]), 1e-8)
    if below > BELOW:
        return f"it believes in returns {below:.2g} standard deviations below those that were had"
    met = _end(seen["train_bellman"])
    return f"critics meet {met:.0%} of the variance of their targets" if met < MET else ""
