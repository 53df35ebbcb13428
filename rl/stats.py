"""Statistics of scores [runs, tasks], seeded (Agarwal et al. 2021, arXiv:2108.13264)."""

from collections.abc import Callable

import numpy as np

Statistic = Callable[[np.ndarray], np.ndarray]


def iqm(scores: np.ndarray) -> np.ndarray:
    """Mean of the middle half of all entries of the last two axes, [...]."""
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = flat.shape[-1] // 4
    return flat[..., cut : flat.shape[-1] - cut].mean(-1)


def resample(scores: np.ndarray, rng: np.random.Generator, times: int) -> np.ndarray:
    """Bootstrap samples [times, runs, tasks]: runs drawn with replacement, each task apart."""
    runs, tasks = scores.shape
    drawn = rng.integers(runs, size=(times, runs, tasks))
    return np.take_along_axis(scores[None], drawn, axis=1)


def interval_of_mean(scores: np.ndarray, *, times: int = 20_000) -> np.ndarray:
    """95% bootstrap interval [2, tasks] of the mean of `scores` [runs, tasks] on each task."""
    means = resample(scores, np.random.default_rng(0), times).mean(1)
    return np.quantile(means, [0.025, 0.975], axis=0)


def relative_difference(
    ours: np.ndarray, theirs: np.ndarray, *, seed: int = 0, times: int = 20_000
) -> tuple[float, float, float]:
    """IQM of `ours` over that of `theirs`, less one, and its 95% bootstrap interval."""
    rng = np.random.default_rng(seed)
    drawn = iqm(resample(ours, rng, times)) / iqm(resample(theirs, rng, times)) - 1
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(iqm(ours) / iqm(theirs) - 1), float(low), float(high)
