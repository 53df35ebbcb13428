"""SAC, REDQ and TD3 losses in float64 numpy with plain loops: slow, and meant to be read.

Sources:
- SAC: Haarnoja et al. 2018, arXiv:1812.05905, eqs. 5 (critic), 7 and 9 (actor), 18 (temperature),
  appendix C (tanh). The scales of the losses follow the rlpd repository.
- REDQ (a target from the minimum over a subset of the critics): arXiv:2101.05982, algorithm 1.
- TD3: Fujimoto et al. 2018, arXiv:1802.09477, algorithm 1.
- time limits: Pardo et al. 2018, arXiv:1712.00378, section 3 (partial-episode bootstrapping).

Shapes: B examples, E critics, M critics chosen for a target, K steps in a window.
"""

import math

import numpy as np


def _f64(x):
    return np.asarray(x, dtype=np.float64)


def log_one_minus_tanh2(u):
    """log(1 - tanh(u)^2) of one number, exact for any |u|.

    1 - tanh^2 = 4 / (e^u + e^-u)^2, so its log is 2 (log 2 - |u| - log(1 + e^(-2|u|))).
    """
    return 2.0 * (math.log(2.0) - abs(u) - math.log1p(math.exp(-2.0 * abs(u))))


def tanh_normal_logp(u, mean, log_std):
    """Log density of a = tanh(u), u ~ N(mean, exp(log_std)^2), summed over the last axis.

    Change of variables (SAC, appendix C): log N(u) - log |da/du|, da/du = 1 - tanh(u)^2. The
    argument is the sample before the tanh.
    """
    u, mean, log_std = np.broadcast_arrays(_f64(u), _f64(mean), _f64(log_std))
    lead, dim = u.shape[:-1], u.shape[-1]
    u, mean, log_std = (a.reshape(math.prod(lead), dim) for a in (u, mean, log_std))
    out = np.zeros(len(u))
    for i in range(len(u)):
        for j in range(dim):
            z = (u[i, j] - mean[i, j]) / math.exp(log_std[i, j])
            normal = -0.5 * z * z - log_std[i, j] - 0.5 * math.log(2.0 * math.pi)
            out[i] += normal - log_one_minus_tanh2(u[i, j])
    return out.reshape(lead)


def n_step(reward, terminated, truncated, gamma):
    """(return [B], discount [B], index [B]) of windows [B, K] of consecutive steps.

    The return is sum_k gamma^k r_k, up to and including the first step that ends the episode, or
    the window's last. The bootstrap value belongs to the next observation of step `index`; its
    discount is gamma^(steps used), and 0 if that step terminated. A time limit bootstraps; a step
    both terminated and truncated counts as terminated.
    """
    reward = _f64(reward)
    terminated, truncated = np.asarray(terminated) != 0, np.asarray(truncated) != 0
    assert reward.shape == terminated.shape == truncated.shape, reward.shape
    batch, window = reward.shape
    total, discount = np.zeros(batch), np.zeros(batch)
    index = np.zeros(batch, dtype=np.int64)
    for i in range(batch):
        for k in range(window):
            total[i] += gamma**k * reward[i, k]
            index[i] = k
            if terminated[i, k] or truncated[i, k]:
                break
        last = index[i]
        discount[i] = 0.0 if terminated[i, last] else gamma ** (int(last) + 1)
    return total, discount, index


def sac_target(reward, discount, next_q, *, next_logp, alpha, entropy):
    """y [B] = r + discount (min over the given members of q' - alpha log pi(a'|s')).

    next_q [M, B] holds the target critics already chosen (all of them, or REDQ's random subset),
    next_logp [B] is that of the action that next_q was evaluated at. Without `entropy` the
    log-probability term is left out.
    """
    reward, discount, next_q = _f64(reward), _f64(discount), _f64(next_q)
    next_logp = _f64(next_logp)
    members, batch = next_q.shape
    assert reward.shape == discount.shape == next_logp.shape == (batch,)
    out = np.zeros(batch)
    for i in range(batch):
        value = min(next_q[k, i] for k in range(members))
        if entropy:
            value -= alpha * next_logp[i]
        out[i] = reward[i] + discount[i] * value
    return out


def _squared_error_sum(q, target):
    """Sum over critics and batch of (q - y)^2, and the two sizes."""
    q, target = _f64(q), _f64(target)
    members, batch = q.shape
    assert target.shape == (batch,), target.shape
    total = 0.0
    for k in range(members):
        for i in range(batch):
            total += (q[k, i] - target[i]) ** 2
    return total, members, batch


def sac_critic_loss(q, target):
    """Mean over the critics [E, B] and the batch of (q - y)^2 (rlpd's scale: no half)."""
    total, members, batch = _squared_error_sum(q, target)
    return total / (members * batch)


def sac_actor_loss(q, logp, alpha, how):
    """mean[alpha log pi(a|s) - Q(s, a)]; Q is the "min" or the "mean" of the critics q [E, B]."""
    q, logp = _f64(q), _f64(logp)
    members, batch = q.shape
    assert logp.shape == (batch,), logp.shape
    total = 0.0
    for i in range(batch):
        column = [q[k, i] for k in range(members)]
        value = {"min": min(column), "mean": sum(column) / members}[how]
        total += alpha * logp[i] - value
    return total / batch


def alpha_loss(log_alpha, logp, target_entropy):
    """alpha (H - H_target), alpha = exp(log_alpha), H = -mean log pi taken as a constant.

    Its derivative in log_alpha is the loss itself.
    """
    logp = _f64(logp).ravel()
    entropy = -sum(logp) / len(logp)
    return math.exp(log_alpha) * (entropy - target_entropy)


def td3_next_action(mean_action, noise, clip):
    """clip(mu'(s') + clip(noise, -c, c), -1, 1), elementwise (target policy smoothing)."""
    mean_action, noise = _f64(mean_action), _f64(noise)
    assert mean_action.shape == noise.shape
    out = np.zeros(mean_action.shape)
    for at in np.ndindex(out.shape):
        bounded = min(max(noise[at], -clip), clip)
        out[at] = min(max(mean_action[at] + bounded, -1.0), 1.0)
    return out


def td3_target(reward, discount, next_q):
    """y [B] = r + discount min(q'_1, q'_2), with next_q [2, B]."""
    reward, discount, next_q = _f64(reward), _f64(discount), _f64(next_q)
    assert reward.shape == discount.shape == next_q.shape[1:]
    out = np.zeros(len(reward))
    for i in range(len(reward)):
        out[i] = reward[i] + discount[i] * min(next_q[:, i])
    return out


def td3_critic_loss(q, target):
    """SUM over the critics [2, B] of the batch mean of (q - y)^2."""
    total, _, batch = _squared_error_sum(q, target)
    return total / batch


def td3_actor_loss(q):
    """-mean Q_1(s, mu(s)), with q [B]."""
    q = _f64(q).ravel()
    return -sum(q) / len(q)


def polyak(target, online, tau):
    """theta' <- tau theta + (1 - tau) theta', elementwise."""
    target, online = _f64(target), _f64(online)
    assert target.shape == online.shape
    out = np.zeros(target.shape)
    for at in np.ndindex(out.shape):
        out[at] = tau * online[at] + (1.0 - tau) * target[at]
    return out
