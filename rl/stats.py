"""Statistics of scores [runs, tasks], seeded (Agarwal et al. 2021, arXiv:2108.13264).

Each takes leading axes as they come, so that all samples of a bootstrap are one call.
"""

from collections.abc import Callable

import numpy as np

Statistic = Callable[..., np.ndarray]  # of one or more arrays of scores
MOST = 4_000_000  # scores drawn at a time: 32 MB


def mean(scores: np.ndarray) -> np.ndarray:
    """Of all runs and tasks, [...]."""
    return scores.mean((-2, -1))


def median(scores: np.ndarray) -> np.ndarray:
    """Over the tasks, of the runs' mean on each, [...]."""
    return np.median(scores.mean(-2), axis=-1)


def iqm(scores: np.ndarray) -> np.ndarray:
    """Mean of the middle half of all entries of the last two axes, [...]."""
    flat = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    cut = flat.shape[-1] // 4
    return flat[..., cut : flat.shape[-1] - cut].mean(-1)


def optimality_gap(scores: np.ndarray, enough: float = 1.0) -> np.ndarray:
    """What is missing to `enough` on average, where more counts as no more, [...]."""
    return enough - np.minimum(scores, enough).mean((-2, -1))


def performance_profile(scores: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Share of all runs and tasks that score above each of `levels` [K], [..., K]."""
    flat = scores.reshape(*scores.shape[:-2], -1, 1)
    return (flat > levels).mean(-2)


def probability_of_improvement(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Chance that a run of ours scores above one of theirs, ties being half, as a mean over the
    tasks, [...].  They may differ in their number of runs."""
    one, other = ours[..., :, None, :], theirs[..., None, :, :]
    return ((one > other) + 0.5 * (one == other)).mean((-3, -2, -1))


def sample_efficiency(scores: np.ndarray) -> np.ndarray:
    """IQM at each of K moments of learning, [..., K], of scores [..., runs, tasks, K]."""
    return np.moveaxis(iqm(np.moveaxis(scores, -1, 0)), 0, -1)


def bootstrap(
    statistic: Statistic,
    *scores: np.ndarray,
    seed: int = 0,
    times: int = 20_000,
    level: float = 0.95,
) -> np.ndarray:
    """Percentile interval [2, ...] of a statistic of `scores`, each [runs, tasks, ...].

    Runs are drawn with replacement, for each task and each of the scores apart.
    """
    if min(x.size for x in scores) == 0:
        raise ValueError("There are no scores to draw from: an interval needs a run and a task.")
    rng = np.random.default_rng(seed)
    each = max(1, MOST // max(x.size for x in scores))
    counts = [min(each, times - done) for done in range(0, times, each)]
    found = [statistic(*(resample(x, rng, count) for x in scores)) for count in counts]
    return np.quantile(np.concatenate(found), [(1 - level) / 2, (1 + level) / 2], axis=0)


def resample(scores: np.ndarray, rng: np.random.Generator, times: int) -> np.ndarray:
    """Bootstrap samples [times, runs, tasks, ...]: runs drawn with replacement, each task apart."""
    runs, tasks = scores.shape[:2]
    return scores[rng.integers(runs, size=(times, runs, tasks)), np.arange(tasks)]


def interval_of_mean(scores: np.ndarray) -> np.ndarray:
    """95% bootstrap interval [2, tasks] of the mean of `scores` [runs, tasks] on each task."""
    return bootstrap(lambda x: x.mean(1), scores)


def chance_of_difference(
    ours: np.ndarray, theirs: np.ndarray, seed: int = 0, times: int = 10_000
) -> float:
    """Chance that means of equal agents differ as much as those of `ours` and `theirs`.

    A two-sided permutation test of scores [runs, tasks] and [their runs, tasks]: who made a run
    is drawn anew, each task apart.
    """
    both, count, rng = np.concatenate([ours, theirs]), len(ours), np.random.default_rng(seed)
    both = both - both.mean(0)  # whose rounding is of the scores' spread and not of their size
    each, found = max(1, MOST // both.size), [abs(both[:count].mean() - both[count:].mean())]
    for done in range(0, times, each):
        drawn = np.broadcast_to(both, (min(each, times - done), *both.shape))
        drawn = rng.permuted(drawn, axis=1)
        found += list(np.abs(drawn[:, :count].mean((1, 2)) - drawn[:, count:].mean((1, 2))))
    return float(np.mean(np.array(found) >= found[0] * (1 - 1e-9)))  # rounding aside
