"""CQL and Cal-QL in float64 numpy with plain loops: slow, and meant to be read.

Sources:
- CQL: Kumar et al. 2020, arXiv:2006.04779, eq. 4 (CQL(H)) and appendix F (importance sampling,
  Lagrange multiplier). Where the scales differ, JaxCQL and the wsrl repository are named.
- Cal-QL: Nakamoto et al. 2023, arXiv:2303.05479, and its repository.

Shapes: B examples, E critics, n sampled actions, T steps of stored trajectories one after another.
`discount` [B] is gamma, and 0 where the step terminated. Every Q is of the current state s, that
of the next state's policy's actions too (JaxCQL, wsrl); all log-probabilities are constants.
"""

import math
from typing import NamedTuple

import numpy as np


def _f64(x):
    return np.asarray(x, dtype=np.float64)


def _logsumexp(values):
    top = max(values)
    return top + math.log(sum(math.exp(x - top) for x in values))


def random_density(dim):
    """log 0.5^d, the log density of a uniform action in [-1, 1]^d."""
    return dim * math.log(0.5)


class Others(NamedTuple):
    """What sampled actions are worth, of chance [E, B, m] and of the policy at s and s' [E, B, n],
    and the policy's log-probabilities of its own [B, n]."""

    q_random: np.ndarray
    q_pi: np.ndarray
    q_next: np.ndarray
    logp_pi: np.ndarray
    logp_next: np.ndarray


def cql_penalty(
    q_data, others, dim, temperature, importance=True, bound=None, *, less_count=False
):  # fmt: skip
    """[E]: per critic the batch mean of T logsumexp(cat / T) - q_data.

    - importance: cat = [q_random - log 0.5^d, q_next - logp_next, q_pi - logp_pi]
    - else: cat = [q_random, q_next, q_pi, q_data], without densities; with less_count minus
      T log(length of cat) (wsrl; JaxCQL and Cal-QL do not)
    - bound [B] (Cal-QL's Monte-Carlo return of the data; None for CQL): q_pi and q_next are first
      replaced by max(., bound), before the densities; q_random and q_data never are.

    q_data [E, B].
    """
    q_data, (q_random, q_pi, q_next, logp_pi, logp_next) = _f64(q_data), map(_f64, others)
    members, batch = q_data.shape
    count = logp_pi.shape[1]
    assert logp_pi.shape == logp_next.shape == (batch, count), (logp_pi.shape, logp_next.shape)
    assert q_pi.shape == q_next.shape == (members, batch, count), (q_pi.shape, q_next.shape)
    assert q_random.shape == (members, batch, q_random.shape[-1]), q_random.shape
    floor = np.full(batch, -math.inf) if bound is None else _f64(bound)
    assert floor.shape == (batch,), floor.shape
    out = np.zeros(members)
    for k in range(members):
        for i in range(batch):
            ours = [max(q, floor[i]) for q in q_pi[k, i]]
            later = [max(q, floor[i]) for q in q_next[k, i]]
            if importance:
                cat = [q - random_density(dim) for q in q_random[k, i]]
                cat += [q - logp for q, logp in zip(later, logp_next[i], strict=True)]
                cat += [q - logp for q, logp in zip(ours, logp_pi[i], strict=True)]
            else:
                cat = [*q_random[k, i], *later, *ours, q_data[k, i]]
            soft = temperature * _logsumexp([q / temperature for q in cat])
            if less_count and not importance:
                soft -= temperature * math.log(len(cat))
            out[k] += (soft - q_data[k, i]) / batch
    return out


def cql_critic_loss(q_data, target, penalty, alpha):
    """mean over E and B of (q - y)^2, plus alpha times the mean over E of the penalty [E].

    JaxCQL's critics each minimise their mean_B (q - y)^2 + alpha penalty, in sum E times this. The
    paper's eq. 4 halves the squared error, so its alpha is half of this one.
    """
    q_data, target, penalty = _f64(q_data), _f64(target), _f64(penalty)
    members, batch = q_data.shape
    assert target.shape == (batch,), target.shape
    assert penalty.shape == (members,), penalty.shape
    total = 0.0
    for k in range(members):
        error = sum((q_data[k, i] - target[i]) ** 2 for i in range(batch)) / batch
        total += error + alpha * penalty[k]
    return total / members


def cql_multiplier(raw, how):
    """alpha' of its parameter: "exp" min(e^raw, 1e6) (JaxCQL), "softplus" log(1 + e^raw) (wsrl)."""
    if how == "exp":
        return math.exp(min(raw, math.log(1e6)))
    assert how == "softplus", how
    return max(raw, 0.0) + math.log1p(math.exp(-abs(raw)))


def cql_lagrange(penalty, gap, multiplier, weight=1.0):
    """(term of the critic's loss, loss of the dual) = (+, -) alpha' weight (mean_E penalty - gap).

    The term takes the place of alpha times the penalty: alpha' is a constant in it, and the
    penalty is in the dual's loss. `weight` is 1 (wsrl), or JaxCQL's cql_min_q_weight.
    """
    penalty = _f64(penalty)
    assert penalty.ndim == 1
    term = multiplier * weight * (sum(penalty) / len(penalty) - gap)
    return term, -term


def cql_target(reward, discount, next_q, max_backup, *, next_logp=None, alpha=0.0):
    """y [B] = r + discount (min_E q'(s', a') - alpha log pi(a'|s')), next_q [E, B, n].

    a' is one sample (n = 1), or with max_backup the one of n whose min_E q' is highest: the minimum
    first, then the maximum. Without next_logp [B, n] there is no entropy (the default of both).
    """
    reward, discount, next_q = _f64(reward), _f64(discount), _f64(next_q)
    _, batch, count = next_q.shape
    assert reward.shape == discount.shape == (batch,), (reward.shape, discount.shape)
    assert max_backup or count == 1, count
    next_logp = np.zeros((batch, count)) if next_logp is None else _f64(next_logp)
    assert next_logp.shape == (batch, count), next_logp.shape
    out = np.zeros(batch)
    for i in range(batch):
        lowest = [min(next_q[:, i, j]) for j in range(count)]
        best = lowest.index(max(lowest))
        out[i] = reward[i] + discount[i] * (lowest[best] - alpha * next_logp[i, best])
    return out


def return_to_go(reward, terminated, ends, gamma, last_value=0.0):
    """G [T], G_t = sum_k gamma^k r_(t+k) along the stored trajectory: Cal-QL's V_MC(s_t).

    The sum stops after a terminated step, and after a step that `ends` its trajectory, as the last
    stored step does; then, if that step did not terminate, gamma^(steps) last_value is added: a
    number, or [T] values of the steps' next states. Cal-QL adds none. A step may terminate without
    ending the trajectory (its Adroit data are `done` at every success): the sum stops there too.
    """
    reward = _f64(reward)
    terminated, ends = np.asarray(terminated) != 0, np.asarray(ends) != 0
    steps = len(reward)
    assert reward.shape == terminated.shape == ends.shape == (steps,), reward.shape
    last_value = np.broadcast_to(_f64(last_value), (steps,))
    out = np.zeros(steps)
    for t in range(steps):
        for at in range(t, steps):
            out[t] += gamma ** (at - t) * reward[at]
            if terminated[at]:
                break
            if ends[at] or at == steps - 1:
                out[t] += gamma ** (at - t + 1) * last_value[at]
                break
    return out


def sparse_return_to_go(reward, terminated, ends, gamma, failure, last_value=0.0):
    """return_to_go, but failure / (1 - gamma) all along a trajectory that has only that reward.

    Cal-QL's rule for sparse rewards: `failure` is the reward of a step without success, after its
    scale and shift; the values are compared exactly. The trajectories are those that `ends` cuts.
    """
    out = return_to_go(reward, terminated, ends, gamma, last_value)
    start = 0
    for t in range(len(out)):
        if np.asarray(ends)[t] or t == len(out) - 1:
            if all(r == failure for r in _f64(reward)[start : t + 1]):
                out[start : t + 1] = failure / (1.0 - gamma)
            start = t + 1
    return out
