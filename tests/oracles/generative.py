"""Flow matching in float64 numpy: slow, and meant to be read.

Sources, the papers:
- Flow matching: Lipman et al. 2023, arXiv:2210.02747 (the optimal-transport path with sigma_min 0);
  rectified flow: Liu et al. 2022, arXiv:2209.03003. Noise is at t = 0 in both, at 1 in pi0.
- Shortcut models: Frans et al. 2024, arXiv:2410.12557 (algorithms 1 and 2).
- A chain's likelihood: ReinFlow (arXiv:2505.22094).

Shapes: B examples, D numbers each (a flattened chunk), S steps of a sampler. `x`, `data`,
`noise` [B, D]; times and step sizes [B]. A net is a callable of x and of them.
"""

import math
from itertools import pairwise

import numpy as np


def _f64(x):
    return np.asarray(x, dtype=np.float64)


def _mean_square(got, wanted, mask=None):
    """Over the entries whose mask [B, D] is not 0; all without one."""
    got, wanted = _f64(got), _f64(wanted)
    keep = np.ones(wanted.shape) if mask is None else _f64(mask)
    assert got.shape == wanted.shape == keep.shape, (got.shape, wanted.shape, keep.shape)
    total, count = 0.0, 0
    for i in range(got.shape[0]):
        for j in range(got.shape[1]):
            if keep[i, j] != 0:
                total += (got[i, j] - wanted[i, j]) ** 2
                count += 1
    return total / count


def _normal_logp(x, mean, std):
    """[B]: log density of x [B, D] under N(mean [B, D], std^2 I), std a number."""
    assert std > 0, std
    out = np.zeros(len(x))
    for i in range(len(x)):
        for z in (x[i] - mean[i]) / std:
            out[i] += -0.5 * z * z - math.log(std) - 0.5 * math.log(2.0 * math.pi)
    return out


def energy_distance(x, y):
    """2 E|X - Y| - E|X - X'| - E|Y - Y'| of [N, D] and [M, D], each paired with itself too."""

    def apart(a, b):
        return np.mean([np.mean(np.sqrt(np.sum((b - row) ** 2, axis=1))) for row in a])

    x, y = _f64(x), _f64(y)
    return 2.0 * apart(x, y) - apart(x, x) - apart(y, y)


# Flow matching


def logit_normal(z, mean, std):
    """Times in (0, 1) of standard normal z: sigmoid(mean + std z)."""
    return 1.0 / (1.0 + np.exp(-(mean + std * _f64(z))))


def _between(data, noise, time, convention):
    """(x_t, velocity), both [B, D]: the straight line, and its derivative by t."""
    data, noise, time = _f64(data), _f64(noise), _f64(time)
    assert data.shape == noise.shape == (len(time), data.shape[1])
    start, end = {"data_at_one": (noise, data), "noise_at_one": (data, noise)}[convention]
    x = np.zeros(data.shape)
    for i, t in enumerate(time):
        x[i] = (1.0 - t) * start[i] + t * end[i]
    return x, end - start


def flow_loss(net, data, noise, time, convention, mask=None):
    """Mean squared error of net(x_t, t) [B, D] over all entries, or those of mask [B, D]."""
    x, velocity = _between(data, noise, time, convention)
    return _mean_square(net(x, _f64(time)), velocity, mask)


def _grid(steps, convention):
    """Times [steps + 1] from noise to data, and the signed step."""
    up = [i / steps for i in range(steps + 1)]
    return {"data_at_one": (up, 1 / steps), "noise_at_one": (up[::-1], -1 / steps)}[convention]


def euler(net, noise, steps, convention):
    """[B, D]: the data that noise becomes, no clip."""
    x, (times, dt) = _f64(noise), _grid(steps, convention)
    for t in times[:-1]:
        x = x + dt * _f64(net(x, np.full(len(x), t)))
    return x


def heun(net, noise, steps, convention):
    """As euler by the explicit trapezoid, two calls of the net in every step, the last one too."""
    x, (times, dt) = _f64(noise), _grid(steps, convention)
    for t, after in pairwise(times):
        first = _f64(net(x, np.full(len(x), t)))
        second = _f64(net(x + dt * first, np.full(len(x), after)))
        x = x + 0.5 * dt * (first + second)
    return x


def gaussian_velocity(x, t, mean, std):
    """E[data - noise | x_t = x], data_at_one, of data ~ N(mean, diag std^2), noise ~ N(0, I)."""
    x, t, mean, std = _f64(x), _f64(t), _f64(mean), _f64(std)
    t = np.broadcast_to(t, x.shape[:1])[:, None]
    off = (x - t * mean) / ((1.0 - t) ** 2 + (t * std) ** 2)  # over the variance of x_t
    return (mean + t * std**2 * off) - (1.0 - t) * off


def flow_chain_log_likelihood(net, chain, std, convention):
    """[B]: log density of chain[1:] given chain[0], chain [S + 1, B, D] from noise to data.

    Step i is x + dt net(x, t_i) + std[i] z (ReinFlow): std [S] is the step's, without sqrt(dt).
    """
    chain, (times, dt) = _f64(chain), _grid(len(chain) - 1, convention)
    out = np.zeros(chain.shape[1])
    for (x, after), t, s in zip(pairwise(chain), times[:-1], std, strict=True):
        out += _normal_logp(after, x + dt * _f64(net(x, np.full(len(x), t))), float(s))
    return out


# Shortcut models: data_at_one, and a net of (x, t, d) that is to jump from t to t + d


def shortcut_targets(net, data, noise, time, d):
    """[B, D]: what net(x_t, t, 2 d) is to be where d > 0, and net(x_t, t, 0) where d = 0.

    d > 0: two steps of d averaged (self-consistency), which end at t + 2 d; d = 0: data - noise.
    """
    x, out = _between(data, noise, time, "data_at_one")
    time, d = _f64(time), _f64(d)
    first = _f64(net(x, time, d))
    second = _f64(net(x + d[:, None] * first, time + d, d))
    for i in range(len(x)):
        if d[i] > 0:
            out[i] = 0.5 * (first[i] + second[i])
    return out


def shortcut_loss(net, target_net, data, noise, time, d, consistent):
    """Rows of `consistent` [B] fit target_net's self-consistency at 2 d, others the flow at 0."""
    d = np.where(np.asarray(consistent, dtype=bool), _f64(d), 0.0)
    target = shortcut_targets(target_net, data, noise, time, d)
    x, _ = _between(data, noise, time, "data_at_one")
    return _mean_square(net(x, _f64(time), 2.0 * d), target)


def shortcut_sample(net, noise, steps):
    """[B, D] after `steps` jumps of 1 / steps."""
    x = _f64(noise)
    for i in range(steps):
        x = x + _f64(net(x, np.full(len(x), i / steps), np.full(len(x), 1.0 / steps))) / steps
    return x
