"""Which stored transitions a batch holds, in float64 numpy with plain loops: meant to be read.

Sources:
- trajectory weighting: Hong et al. 2023, "Harnessing Mixed Offline Reinforcement Learning Datasets
  via Trajectory Weighting", arXiv:2306.13085, and the IQL part of its repository.
- shares of offline and online data: the Cal-QL repository (counts) and the rlpd repository (order).

Shapes: T stored steps of N trajectories one after another, S observation dimensions.
"""

import math

import numpy as np


def _f64(x):
    return np.asarray(x, dtype=np.float64)


def trajectories(ends):
    """[(first, last)] of the trajectories in ends [T], true at the last step of each.

    The last stored step always ends one.
    """
    ends = np.asarray(ends) != 0
    assert ends.shape == (len(ends),), ends.shape
    out, first = [], 0
    for t in range(len(ends)):
        if ends[t] or t == len(ends) - 1:
            out.append((first, t))
            first = t + 1
    return out


def min_max(values):
    """(x - min) / (max - min) of [N]; all zero if they are equal but for rounding.

    That is a range of at most 1e-9, or 1e-9 of the largest if that is above 1.
    """
    values = _f64(values)
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(1.0, max(abs(values))):
        return np.zeros(len(values))
    return (values - low) / (high - low)


def initial_state_residual(initial, returns):
    """G_i - V(s_0^i) [N], V the least-squares line, with an intercept, of G [N] on s_0 [N, S].

    By Gram-Schmidt: what is left of G once the constant and each column of s_0 are taken out, each
    first freed of those before it. A column with nothing of its own left (1e-8 of it) is passed by.
    """
    initial, left = _f64(initial), _f64(returns).copy()
    assert initial.shape == (len(left), initial.shape[-1]), (initial.shape, left.shape)
    directions = []
    for column in [np.ones(len(left)), *initial.T]:
        own = column.copy()
        for _ in range(2):  # the second time for what rounding left
            for unit in directions:
                own = own - sum(own * unit) * unit
        size = math.sqrt(sum(own * own))
        if size > 1e-8 * math.sqrt(sum(column * column)):
            directions.append(own / size)
    for _ in range(2):
        for unit in directions:
            left = left - sum(left * unit) * unit
    return left


def transition_probabilities(
    reward, observation, ends, kind, *, temperature=math.nan, share=math.nan
):
    """p [T] of drawing each transition; reward [T], observation [T, S], ends [T].

    With the undiscounted return G_i of each trajectory:
    - "advantage": p ~ exp(A_i / temperature), A_i = min_max(G_i - V(s_0^i)) over trajectories
    - "return": p ~ exp(G_i / temperature), with G_i = min_max(G_i)
    - "top": uniform over the steps of the floor(share N) trajectories of highest return, at least
      one; of equal returns the earlier first.
    The soft-max is over transitions, so a trajectory is drawn in proportion to its length too.
    """
    reward, observation = _f64(reward), _f64(observation)
    spans = trajectories(ends)
    assert observation.shape == (len(reward), observation.shape[-1]), observation.shape
    assert np.shape(ends) == reward.shape == (len(reward),), (np.shape(ends), reward.shape)
    returns = [sum(reward[first : last + 1]) for first, last in spans]
    if kind == "top":
        count = max(1, int(share * len(spans)))
        order = sorted(range(len(spans)), key=lambda i: (-returns[i], i))
        weight = [1.0 if i in order[:count] else 0.0 for i in range(len(spans))]
    else:
        value = returns
        if kind == "advantage":
            value = initial_state_residual([observation[first] for first, _ in spans], returns)
        else:
            assert kind == "return", kind
        weight = [math.exp((x - 1.0) / temperature) for x in min_max(value)]
    out = np.zeros(len(reward))
    for (first, last), w in zip(spans, weight, strict=True):
        out[first : last + 1] = w
    return out / sum(out)


def offline_count(batch, share, sizes=None):
    """How many of a batch are offline: floor(batch share); the rest is online (Cal-QL).

    With share < 0 it is offline / (offline + online) of the two `sizes` (steps stored).
    """
    if share < 0.0:
        share = sizes[0] / (sizes[0] + sizes[1])
    return int(batch * share)


def interleave(offline, online):
    """[2n, ...]: offline rows at even places, online at odd (rlpd): each slice of a batch is mixed.

    Equal halves only.
    """
    offline, online = np.asarray(offline), np.asarray(online)
    assert offline.shape == online.shape, (offline.shape, online.shape)
    out = np.empty((2 * len(offline), *offline.shape[1:]), np.result_type(offline, online))
    for i in range(len(offline)):
        out[2 * i], out[2 * i + 1] = offline[i], online[i]
    return out
