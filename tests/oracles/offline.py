"""In-sample and behaviour-regularised offline losses in float64 numpy: slow, meant to be read.

Sources (CQL and Cal-QL are in cql.py, the weighting of trajectories in offline_weights.py):
- IQL: Kostrikov et al. 2021, arXiv:2110.06169, eqs. 5 (V), 6 (Q), 7 (actor).
- AWAC: Nair et al. 2020, arXiv:2006.09359; the minimum over critics and the clip are CORL's.
- TD3+BC: Fujimoto and Gu 2021, arXiv:2106.06860; the scales are the authors' code's.
- ReBRAC: Tarasov et al. 2023, arXiv:2305.09836; the scales are the authors' code's.
- f-DVL: Sikchi et al. 2023, arXiv:2302.08560, as its repository has it; reverse KL is XQL's Gumbel
  loss: Garg et al. 2023, arXiv:2301.02328.
- fitted-Q evaluation: Le et al. 2019, arXiv:1903.08738.

Shapes: B examples, E critics, A action dimensions, n sampled actions. `discount` [B] is gamma, and
0 where the step terminated. Where a source keeps a number out of the gradient, the function takes
it as an optional argument, so that a finite difference can hold it fixed.
"""

import math

import numpy as np


def _f64(x):
    return np.asarray(x, dtype=np.float64)


def _lowest(q):
    """Per example the minimum over the critics [E, B]."""
    assert q.ndim == 2, q.shape
    return [min(column) for column in q.T]


def _residuals(q_target, v):
    """Per example min_E q_target - v, of [E, B] and [B]."""
    q_target, v = _f64(q_target), _f64(v)
    assert v.shape == q_target.shape[1:], v.shape
    return [best - value for best, value in zip(_lowest(q_target), v, strict=True)]


def _capped_exp(x, cap):
    """min(e^x, cap), without overflow; no cap if it is None."""
    return cap if cap is not None and x >= math.log(cap) else math.exp(x)


def normal_logp(action, mean, log_std):
    """Log density of `action` under N(mean, exp(log_std)^2), summed over the last axis (IQL, AWAC).

    No squashing: IQL bounds the mean by a tanh before this, AWAC does not.
    """
    action, mean, log_std = np.broadcast_arrays(_f64(action), _f64(mean), _f64(log_std))
    out = np.zeros(action.shape[:-1])
    for at in np.ndindex(action.shape):
        z = (action[at] - mean[at]) / math.exp(log_std[at])
        out[at[:-1]] += -0.5 * z * z - log_std[at] - 0.5 * math.log(2.0 * math.pi)
    return out


def tanh_normal_logp_of(action, mean, log_std, limit=1.0 - 1e-5):
    """Log density of a stored action = tanh(u), u ~ N(mean, exp(log_std)^2), over the last axis.

    The action is first clipped to [-limit, limit], as the repositories clip their data (1 - 1e-5;
    JaxCQL .999), then log N(atanh a) - log(1 - a^2).
    """
    action = _f64(action)
    u, jacobian = np.zeros(action.shape), np.zeros(action.shape[:-1])
    for at in np.ndindex(action.shape):
        a = min(max(action[at], -limit), limit)
        u[at] = 0.5 * math.log((1.0 + a) / (1.0 - a))
        jacobian[at[:-1]] += math.log((1.0 - a) * (1.0 + a))
    return normal_logp(u, mean, log_std) - jacobian


def critic_loss_sum(q, target):
    """SUM over the critics [E, B] of the batch mean of (q - y)^2 (IQL, TD3+BC, ReBRAC, AWAC)."""
    q, target = _f64(q), _f64(target)
    members, batch = q.shape
    assert target.shape == (batch,), target.shape
    return sum((q[k, i] - target[i]) ** 2 for k in range(members) for i in range(batch)) / batch


def critic_loss_mean(q, target):
    """MEAN over the critics [E, B] and the batch of (q - y)^2 (CQL and Cal-QL in wsrl)."""
    return critic_loss_sum(q, target) / len(q)


def iql_value_loss(q_target, v, expectile):
    """Batch mean of |tau - 1(u < 0)| u^2, u = min_E q_target - v; [E, B] and [B] (eq. 5)."""
    total = 0.0
    residuals = _residuals(q_target, v)
    for u in residuals:
        total += abs(expectile - (1.0 if u < 0.0 else 0.0)) * u * u
    return total / len(residuals)


def iql_q_target(reward, discount, next_v):
    """y [B] = r + discount V(s') (IQL eq. 6; f-DVL alike): no target network for V."""
    reward, discount, next_v = _f64(reward), _f64(discount), _f64(next_v)
    assert reward.shape == discount.shape == next_v.shape == (len(reward),), reward.shape
    return np.array([r + d * v for r, d, v in zip(reward, discount, next_v, strict=True)])


def iql_actor_loss(q_target, v, logp, beta, clip=100.0):
    """-mean[min(exp(beta (min_E q_target - v)), clip) log pi(a|s)] (IQL eq. 7; f-DVL alike).

    The weight is a constant. q_target [E, B] are the target critics, v [B], logp [B].
    """
    logp = _f64(logp)
    assert logp.shape == np.shape(v), logp.shape
    rows = zip(_residuals(q_target, v), logp, strict=True)
    return -sum(_capped_exp(beta * u, clip) * lp for u, lp in rows) / len(logp)


def awac_actor_loss(q_data, q_pi, logp, lam, clip=100.0):
    """-mean[min(exp((min_E Q(s, a) - min_E Q(s, a_pi)) / lam), clip) log pi(a|s)].

    The weight is a constant, from the online critics [E, B] at the data's action and at one sample
    of the policy.
    """
    q_data, q_pi, logp = _f64(q_data), _f64(q_pi), _f64(logp)
    assert q_data.shape == q_pi.shape == (len(q_data), *logp.shape), (q_data.shape, q_pi.shape)
    rows = zip(_lowest(q_data), _lowest(q_pi), logp, strict=True)
    return -sum(_capped_exp((q - v) / lam, clip) * lp for q, v, lp in rows) / len(logp)


def q_scale(q):
    """1 / mean |q| over a batch [B]: a constant to the gradient (TD3+BC, ReBRAC)."""
    q = _f64(q)
    assert q.ndim == 1
    return len(q) / sum(abs(x) for x in q)


def _squared_distances(first, second):
    """Per example the SUM over action dimensions of the squared difference of two [B, A]."""
    first, second = _f64(first), _f64(second)
    batch, dim = first.shape
    assert second.shape == (batch, dim), second.shape
    return [sum((x - y) ** 2) for x, y in zip(first, second, strict=True)]


def td3_bc_actor_loss(q, action_pi, action_data, alpha, *, scale=None):
    """-lambda mean Q_1(s, pi(s)) + MSE(pi(s), a), lambda = alpha / mean |Q|.

    The squared error is the MEAN over the batch and the action dimensions [B, A], as in the
    authors' code (F.mse_loss); the paper's is a squared norm. lambda is a constant to the gradient:
    `scale`, if given, replaces 1 / mean |Q|. q [B] is the first critic at the policy's actions.
    """
    q = _f64(q)
    batch, dim = np.shape(action_pi)
    assert q.shape == (batch,), q.shape
    scale = q_scale(q) if scale is None else scale
    mse = sum(_squared_distances(action_pi, action_data)) / (batch * dim)
    return -alpha * scale * sum(q) / batch + mse


def rebrac_target(reward, discount, next_q, next_action_pi, next_action_data, has_next, beta):
    """y [B] = r + discount (min_E q' - beta sum_A (pi'(s') - a')^2) (ReBRAC).

    next_q [E, B] at next_action_pi [B, A] (the target actor's, with noise); next_action_data is
    what the data did next. Where has_next [B] is false it is unknown, and has no penalty.
    """
    reward, discount, next_q = _f64(reward), _f64(discount), _f64(next_q)
    has_next = np.asarray(has_next) != 0
    assert reward.shape == discount.shape == has_next.shape == next_q.shape[1:], reward.shape
    distances, values = _squared_distances(next_action_pi, next_action_data), _lowest(next_q)
    assert len(distances) == len(reward)
    out = np.zeros(len(reward))
    for i in range(len(reward)):
        penalty = beta * distances[i] if has_next[i] else 0.0
        out[i] = reward[i] + discount[i] * (values[i] - penalty)
    return out


def rebrac_actor_loss(q, action_pi, action_data, beta, normalise_q, *, scale=None):
    """mean[beta sum_A (pi(s) - a)^2 - lambda min_E q].

    The SUM over action dimensions [B, A]. q [E, B] at the policy's actions; lambda is 1 if not
    normalise_q, else 1 / mean |min_E q|, a constant to the gradient (or `scale`, if given).
    """
    values = _lowest(_f64(q))
    distances = _squared_distances(action_pi, action_data)
    assert len(distances) == len(values), (len(distances), len(values))
    lam = 1.0
    if normalise_q:
        lam = q_scale(values) if scale is None else scale
    rows = zip(distances, values, strict=True)
    return sum(beta * distance - lam * value for distance, value in rows) / len(values)


def dvl_top(q_target, v, beta, clip):
    """The reverse KL's rescaling: max(max_batch z, -1), z = min(x / beta, clip), a constant."""
    return max(max(min(u / beta, clip) for u in _residuals(q_target, v)), -1.0)


def dvl_value_loss(q_target, v, kind, lam=math.nan, beta=math.nan, clip=math.nan, *, top=None):
    """Batch mean of f-DVL's loss of x = min_E q_target - v, of [E, B] and [B].

    - "total_variation": lam max(x, 0) - (1 - lam) x
    - "chi_square": lam max(x + x^2 / 4, 0) - (1 - lam) x (positive again for x < -4)
    - "reverse_kl": (exp(z) - z - 1) exp(-top), z = min(x / beta, clip), top = dvl_top(...), which
      is a constant to the gradient and may be given. No gradient where z is clipped.
    """
    residuals = _residuals(q_target, v)
    if top is None:
        top = dvl_top(q_target, v, beta, clip) if kind == "reverse_kl" else 0.0
    total = 0.0
    for x in residuals:
        if kind == "reverse_kl":
            z = min(x / beta, clip)
            total += (math.exp(z) - z - 1.0) * math.exp(-top)
        else:
            push = {"total_variation": x, "chi_square": x + x * x / 4.0}[kind]
            total += lam * max(push, 0.0) - (1.0 - lam) * x
    return total / len(residuals)


def dvl_critic_loss(q, target, delta=20.0):
    """SUM over the critics [E, B] of the batch mean of Huber(q - y), as in XQL's code too.

    Huber(x) = x^2 / 2 for |x| <= delta, else delta (|x| - delta / 2).
    """
    q, target = _f64(q), _f64(target)
    members, batch = q.shape
    assert target.shape == (batch,), target.shape
    total = 0.0
    for k in range(members):
        for i in range(batch):
            size = abs(q[k, i] - target[i])
            total += 0.5 * size * size if size <= delta else delta * (size - 0.5 * delta)
    return total / batch


def fqe_target(reward, discount, next_q):
    """y [B] = r + discount mean_n q'(s', a'), a' ~ the policy evaluated (fitted-Q evaluation).

    next_q [B, n] of one (or an aggregate) target critic: no maximum, and no minimum, over actions.
    """
    reward, discount, next_q = _f64(reward), _f64(discount), _f64(next_q)
    batch, count = next_q.shape
    assert reward.shape == discount.shape == (batch,), (reward.shape, discount.shape)
    out = np.zeros(batch)
    for i in range(batch):
        out[i] = reward[i] + discount[i] * sum(next_q[i]) / count
    return out
