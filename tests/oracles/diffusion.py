"""Diffusion in float64 numpy: slow, and meant to be read.

Sources, the papers:
- DDPM: Ho et al. 2020, arXiv:2006.11239. DDIM: Song et al. 2020, arXiv:2010.02502 (eq. 12, 16).
- Cosine schedule: Nichol & Dhariwal 2021, arXiv:2102.09672 (eq. 17). v-prediction: Salimans & Ho
  2022, arXiv:2202.00512 (appendix D). "vp": the schedule jaxrl's diffusion policies (EXPO) use.
- A chain's likelihood: DPPO (arXiv:2409.00588).

Shapes: B examples, D numbers each (a flattened chunk), K noise levels, S steps of a sampler. `x`,
`data`, `noise` [B, D]; levels [B]. A net is a callable of x and of them. Data are level 0 and have
no noise; `abar` [K] is alpha-bar of levels 1..K.
"""

import math
from itertools import pairwise

import numpy as np

from tests.oracles.generative import _f64, _mean_square, _normal_logp


def _abar(abar, k):
    return 1.0 if k == 0 else float(abar[k - 1])


def alpha_bar(schedule, levels):
    """[K] for K = levels, of levels 1..K: the product of 1 - beta up to each."""
    assert schedule != "linear" or levels > 20, "beta reaches 1"
    product, out = 1.0, []
    for k in range(1, levels + 1):
        if schedule == "cosine":
            way = [(j / levels + 0.008) / 1.008 for j in (k - 1, k)]
            before, here = (math.cos(x * math.pi / 2) ** 2 for x in way)
            beta = min(1.0 - here / before, 0.999)
        elif schedule == "linear":  # from 1e-4 to 0.02 where there are 1000 levels
            beta = (1e-4 + (k - 1) / (levels - 1) * (0.02 - 1e-4)) * 1000.0 / levels
        else:
            assert schedule == "vp", schedule
            low, high = 0.1, 10.0
            beta = 1.0 - math.exp(-low / levels - 0.5 * (high - low) * (2 * k - 1) / levels**2)
        product *= 1.0 - beta
        out.append(product)
    return np.array(out)


def ladder(levels, steps):
    """The steps + 1 levels a sampler visits, from K = levels down to 0, evenly spaced.

    floor(K (1 - i / steps) + 1/2) in whole numbers: half goes up whatever floats make of i / steps.
    """
    assert 1 <= steps <= levels, (steps, levels)
    return [(2 * levels * (steps - i) + steps) // (2 * steps) for i in range(steps + 1)]


def diffusion_loss(net, data, noise, k, abar, predicts, mask=None):
    """Mean squared error of net(x_k, k) [B, D], over all entries or those of mask [B, D].

    `predicts` names its target: "noise", "data" or "velocity" (v). k [B] in 1..K.
    """
    data, noise, k = _f64(data), _f64(noise), np.asarray(k)
    x, target = np.zeros(data.shape), np.zeros(data.shape)
    for i in range(len(data)):
        kept, lost = math.sqrt(_abar(abar, k[i])), math.sqrt(1.0 - _abar(abar, k[i]))
        x[i] = kept * data[i] + lost * noise[i]
        velocity = kept * noise[i] - lost * data[i]
        target[i] = {"noise": noise[i], "data": data[i], "velocity": velocity}[predicts]
    return _mean_square(net(x, k), target, mask)


def denoise_step(net, x, levels, abar, predicts, eta, bounds):
    """(mean [B, D], std): level k_prev given x [B, D] at level k, levels = (k, k_prev), k > k_prev.

    DDIM's eq. 12 and 16: eta = 0 draws nothing, eta = 1 with k_prev = k - 1 is DDPM's posterior of
    variance beta-tilde; the step to level 0 never has noise. The estimate of the data is clipped to
    bounds (low, high), numbers or [D], and the noise is then what x has beside what is clipped.
    """
    (k, k_prev), (low, high) = levels, bounds
    assert 0 <= k_prev < k <= len(abar), (k, k_prev)
    x = _f64(x)
    here, after = _abar(abar, k), _abar(abar, k_prev)
    kept, lost = math.sqrt(here), math.sqrt(1.0 - here)
    out = _f64(net(x, np.full(len(x), k)))
    estimates = {"noise": (x - lost * out) / kept, "data": out, "velocity": kept * x - lost * out}
    data = np.minimum(np.maximum(estimates[predicts], _f64(low)), _f64(high))
    noise = (x - kept * data) / lost
    std = eta * math.sqrt((1.0 - after) / (1.0 - here)) * math.sqrt(1.0 - here / after)
    rest = math.sqrt(max(1.0 - after - std**2, 0.0))
    return math.sqrt(after) * data + rest * noise, std


def gaussian_epsilon(x, abar, mean, std):
    """E[noise | x] for data ~ N(mean, diag std^2) [D]; abar the level's, a number or [B]."""
    x, mean, std = _f64(x), _f64(mean), _f64(std)
    abar = np.broadcast_to(_f64(abar), x.shape[:1])[:, None]
    return np.sqrt(1.0 - abar) * (x - np.sqrt(abar) * mean) / (abar * std**2 + 1.0 - abar)


def chain_log_likelihood(net, chain, ks, abar, predicts, noise, bounds):
    """[B]: log density of chain[1:] given chain[0], chain [S + 1, B, D] at the levels ks [S + 1];
    noise = (eta, min_std), which a step's std is no less than."""
    eta, min_std = noise
    assert ks[-1] == 0, ks
    chain, out = _f64(chain), np.zeros(chain.shape[1])
    for (x, after), (k, k_prev) in zip(pairwise(chain), pairwise(ks), strict=True):
        mean, std = denoise_step(net, x, (k, k_prev), abar, predicts, eta, bounds)
        out += _normal_logp(after, mean, max(std, min_std))
    return out
