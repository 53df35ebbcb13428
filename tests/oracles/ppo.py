"""PPO written out from the papers in float64 numpy with plain loops: slow, and meant to be read.

Sources:
- GAE: Schulman et al. 2016, arXiv:1506.02438, eqs. 10 and 16.
- PPO: Schulman et al. 2017, arXiv:1707.06347, eqs. 7 and 9.
- time limits: Pardo et al. 2018, arXiv:1712.00378, section 3 (partial-episode bootstrapping).
- Adam: Kingma and Ba 2015, arXiv:1412.6980, algorithm 1.
- clipping by the global norm: Pascanu et al. 2013, arXiv:1211.5063, algorithm 1.
"""

import math

import numpy as np


def _f64(x):
    return np.asarray(x, dtype=np.float64)


def _rows(*arrays):
    """Broadcast arrays together; return each as [rows, last axis], and the leading shape."""
    arrays = np.broadcast_arrays(*[_f64(a) for a in arrays])
    lead, dim = arrays[0].shape[:-1], arrays[0].shape[-1]
    return [a.reshape(math.prod(lead), dim) for a in arrays], lead


def gae(reward, value, next_value, terminated, truncated, *, gamma, lam):
    """Advantages [T, N]: A_t = sum_k (gamma lam)^k delta_{t+k}, up to the episode's end.

    delta = r + gamma V(s') - V(s) (GAE eqs. 10 and 16), where V(s') is dropped at a termination
    only (Pardo et al., section 3): a time limit still bootstraps, from the value of the
    observation before any reset. A step both terminated and truncated counts as terminated.
    The sum includes the step that ends the episode and stops there, or at the last row.
    """
    reward, value, next_value = _f64(reward), _f64(value), _f64(next_value)
    terminated, truncated = np.asarray(terminated) != 0, np.asarray(truncated) != 0
    steps, envs = reward.shape
    for a in (value, next_value, terminated, truncated):
        assert a.shape == (steps, envs), a.shape
    advantage = np.zeros((steps, envs))
    for n in range(envs):
        for t in range(steps):
            total = 0.0
            for k in range(steps - t):
                s = t + k
                bootstrap = 0.0 if terminated[s, n] else gamma * next_value[s, n]
                delta = reward[s, n] + bootstrap - value[s, n]
                total += (gamma * lam) ** k * delta
                if terminated[s, n] or truncated[s, n]:
                    break
            advantage[t, n] = total
    return advantage


def normal_logp(x, mean, log_std):
    """Log density of a diagonal Gaussian, summed over the last axis."""
    (x, mean, log_std), lead = _rows(x, mean, log_std)
    out = np.zeros(len(x))
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            z = (x[i, j] - mean[i, j]) / math.exp(log_std[i, j])
            out[i] += -0.5 * z * z - log_std[i, j] - 0.5 * math.log(2.0 * math.pi)
    return out.reshape(lead)


def normal_entropy(log_std):
    """Differential entropy of a diagonal Gaussian, in nats, summed over the last axis."""
    (log_std,), lead = _rows(log_std)
    out = np.zeros(len(log_std))
    for i in range(log_std.shape[0]):
        for j in range(log_std.shape[1]):
            out[i] += log_std[i, j] + 0.5 * math.log(2.0 * math.pi * math.e)
    return out.reshape(lead)


def normal_kl(mean0, log_std0, mean1, log_std1):
    """KL(N0 || N1) of two diagonal Gaussians, summed over the last axis."""
    (m0, s0, m1, s1), lead = _rows(mean0, log_std0, mean1, log_std1)
    out = np.zeros(len(m0))
    for i in range(m0.shape[0]):
        for j in range(m0.shape[1]):
            var0, var1 = math.exp(2.0 * s0[i, j]), math.exp(2.0 * s1[i, j])
            square = (m0[i, j] - m1[i, j]) ** 2
            out[i] += s1[i, j] - s0[i, j] + (var0 + square) / (2.0 * var1) - 0.5
    return out.reshape(lead)


def policy_loss(mean, log_std, action, old_logp, advantage, *, clip, entropy_cost):
    """Return (loss, clip fraction) over a batch.

    The loss is minus the clipped surrogate (PPO eq. 7), minus entropy_cost times the mean
    entropy (eq. 9). Advantages are normalised over the batch: (A - mean) / (population std +
    1e-8). The clip fraction counts |ratio - 1| > clip, whether or not the minimum is the
    clipped term.
    """
    logp = normal_logp(action, mean, log_std)
    assert np.shape(old_logp) == logp.shape == np.shape(advantage)
    logp, old_logp, advantage = logp.ravel(), _f64(old_logp).ravel(), _f64(advantage).ravel()
    size = len(advantage)
    average = sum(advantage) / size
    std = math.sqrt(sum((a - average) ** 2 for a in advantage) / size)
    surrogate, clipped = 0.0, 0
    for i in range(size):
        a = (advantage[i] - average) / (std + 1e-8)
        ratio = math.exp(logp[i] - old_logp[i])
        bounded = min(max(ratio, 1.0 - clip), 1.0 + clip)
        surrogate += min(ratio * a, bounded * a) / size
        clipped += abs(ratio - 1.0) > clip
    entropy = float(np.mean(normal_entropy(log_std)))
    return -surrogate - entropy_cost * entropy, clipped / size


def value_loss(v, target):
    """0.5 * mean((v - target)^2)."""
    assert np.shape(v) == np.shape(target)
    v, target = _f64(v).ravel(), _f64(target).ravel()
    total = 0.0
    for i in range(len(v)):
        total += (v[i] - target[i]) ** 2
    return 0.5 * total / len(v)


def mlp(x, layers, activation=np.tanh):
    """Forward pass of (kernel [in, out], bias) layers: activation between, last one linear."""
    h = _f64(x)
    for depth, (kernel, bias) in enumerate(layers):
        h = h @ _f64(kernel) + _f64(bias)
        if depth < len(layers) - 1:
            h = activation(h)
    return h


def pooled_moments(batches):
    """Mean and population variance over the rows of all batches put together."""
    rows = [_f64(row) for batch in batches for row in batch]
    mean = sum(rows) / len(rows)
    var = sum((row - mean) ** 2 for row in rows) / len(rows)
    return mean, var


def adam_steps(params, grads, lr, *, b1=0.9, b2=0.999, eps=1e-5, max_norm=0.5):
    """Final flat params after one clipped Adam update for each gradient of the list.

    A gradient whose norm exceeds max_norm is first scaled to that norm (Pascanu et al.). eps is
    added to the square root of the bias-corrected second moment (Kingma and Ba).
    """
    params = [float(p) for p in params]
    m, v = [0.0] * len(params), [0.0] * len(params)
    for step, grad in enumerate(grads, start=1):
        assert len(grad) == len(params)
        grad = [float(g) for g in grad]
        norm = math.sqrt(sum(g * g for g in grad))
        if norm > max_norm:
            grad = [g * max_norm / norm for g in grad]
        for i, g in enumerate(grad):
            m[i] = b1 * m[i] + (1.0 - b1) * g
            v[i] = b2 * v[i] + (1.0 - b2) * g * g
            m_hat = m[i] / (1.0 - b1**step)
            v_hat = v[i] / (1.0 - b2**step)
            params[i] -= lr * m_hat / (math.sqrt(v_hat) + eps)
    return np.array(params)
