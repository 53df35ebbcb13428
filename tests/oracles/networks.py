"""Network layers in float64 numpy with plain loops: slow, and meant to be read.

Sources:
- layer norm: Ba et al. 2016, arXiv:1607.06450, with flax's eps 1e-6 and population variance.
- Batch Renormalization: Ioffe 2017, arXiv:1702.03275, algorithm 1.
- CrossQ: Bhatt et al., ICLR 2024, arXiv:1902.05605; repository adityab/CrossQ,
  sbx/sac/policies.py (BatchRenorm).
- SimbaV2: Lee et al. 2025, arXiv:2502.15280; repository DAVIAN-Robotics/SimbaV2,
  scale_rl/agents/simbaV2/simbaV2_{layer,update}.py and scale_rl/agents/wrappers/.

Kernels are [in, out]: a unit's weights are a column.
"""

import math

import numpy as np


def _f64(x):
    return np.asarray(x, dtype=np.float64)


def _moments(values):
    """Mean and population variance of a list of numbers."""
    mean = sum(values) / len(values)
    return mean, sum((v - mean) ** 2 for v in values) / len(values)


def layer_normalise(x, scale, bias, eps=1e-6):
    """(x - mean) / sqrt(var + eps) * scale + bias, per row of x [B, F], over its features."""
    x = _f64(x)
    out = np.zeros(x.shape)
    for i in range(x.shape[0]):
        mean, var = _moments(x[i])
        for j in range(x.shape[1]):
            out[i, j] = (x[i, j] - mean) / math.sqrt(var + eps) * scale[j] + bias[j]
    return out


def mlp(x, layers, layer_norm=None):
    """ReLU network of (kernel, bias) layers: Dense -> LayerNorm -> ReLU, the last one linear.

    layer_norm holds (scale, bias) for every layer but the last; None leaves them out.
    """
    h = _f64(x)
    assert layer_norm is None or len(layer_norm) == len(layers) - 1
    for depth, (kernel, bias) in enumerate(layers):
        h = h @ _f64(kernel) + _f64(bias)
        if depth < len(layers) - 1:
            if layer_norm is not None:
                h = layer_normalise(h, *layer_norm[depth])
            h = np.maximum(h, 0.0)
    return h


def renorm_factors(x, running, limits, eps=1e-3):
    """(r [F], d [F]) of a batch x [B, F] (Batch Renormalization, algorithm 1).

    r = clip(sigma_B / sigma, 1/r_max, r_max), d = clip((mu_B - mu) / sigma, -d_max, d_max),
    limits = (r_max, d_max), running = (mu, sigma^2 without eps); both sigmas are
    sqrt(var + eps). A gradient takes r and d as constants. (The paper keeps a moving average of
    sigma itself, CrossQ one of the variance.)
    """
    x, (mean, var), (r_max, d_max) = _f64(x), running, limits
    r, d = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for j in range(x.shape[1]):
        batch_mean, batch_var = _moments(x[:, j])
        sigma = math.sqrt(var[j] + eps)
        r[j] = min(max(math.sqrt(batch_var + eps) / sigma, 1.0 / r_max), r_max)
        d[j] = min(max((batch_mean - mean[j]) / sigma, -d_max), d_max)
    return r, d


def batch_renorm(x, running, affine, *, train, limits=None, eps=1e-3, form="paper", factors=None):
    """Normalise the features of a batch x [B, F]; running = (mean, var), affine = (scale, bias).

    - eval: (x - mu) / sqrt(sigma^2 + eps) * scale + bias.
    - train, "paper": ((x - mu_B) / sqrt(sigma_B^2 + eps) * r + d) * scale + bias.
    - train, "crossq": the repository turns r and d into a mean mu_B - d sigma_B / r (sigma_B
      without eps) and a variance sigma_B^2 / r^2, and adds eps to that variance.

    limits = (r_max, d_max): (3, 5) in CrossQ; (1, 0) is plain batch norm, to which CrossQ keeps
    for a layer's first 100 000 passes in train mode. factors = (r, d) replaces those computed
    from x, so that a finite difference can hold them still.
    """
    x, (mean, var), (scale, bias) = _f64(x), running, affine
    out = np.zeros(x.shape)
    if not train:
        for i, j in np.ndindex(x.shape):
            out[i, j] = (x[i, j] - mean[j]) / math.sqrt(var[j] + eps) * scale[j] + bias[j]
        return out
    assert form in ("paper", "crossq"), form
    r, d = renorm_factors(x, running, limits, eps) if factors is None else factors
    for j in range(x.shape[1]):
        batch_mean, batch_var = _moments(x[:, j])
        shifted = batch_mean - d[j] * math.sqrt(batch_var) / r[j]
        for i in range(x.shape[0]):
            if form == "paper":
                y = (x[i, j] - batch_mean) / math.sqrt(batch_var + eps) * r[j] + d[j]
            else:
                y = (x[i, j] - shifted) / math.sqrt(batch_var / r[j] ** 2 + eps)
            out[i, j] = y * scale[j] + bias[j]
    return out


def running_update(x, running, momentum=0.99):
    """New (mean, var): momentum * old + (1 - momentum) * the batch's mean, population variance."""
    x, (mean, var) = _f64(x), running
    new_mean, new_var = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for j in range(x.shape[1]):
        batch_mean, batch_var = _moments(x[:, j])
        new_mean[j] = momentum * mean[j] + (1.0 - momentum) * batch_mean
        new_var[j] = momentum * var[j] + (1.0 - momentum) * batch_var
    return new_mean, new_var


def l2_normalise(x, eps=1e-8):
    """Each row (last axis) over the larger of its length and eps."""
    x = _f64(x)
    rows = x.reshape(-1, x.shape[-1])
    out = np.zeros(rows.shape)
    for i, row in enumerate(rows):
        out[i] = row / max(math.sqrt(sum(v * v for v in row)), eps)
    return out.reshape(x.shape)


def unit_columns(kernel):
    """A kernel [in, out] with each unit's weights scaled to length 1.

    Done after initialisation and after each optimiser step to every kernel of a SimbaV2 network,
    those of its heads included; never to scalers, alphas and biases, and not to the target
    network after its Polyak step.
    """
    return l2_normalise(_f64(kernel).T).T


def scaler(x, param, init, scale):
    """x * param * (init / scale), elementwise; param starts at `scale`, its value thus at `init`.

    Adam's step on param being independent of its size, `scale` sets the value's relative speed.
    """
    return _f64(x) * _f64(param) * (init / scale)


def simba_embed(x, kernel, scale, shift=3.0):
    """Append the constant `shift`, normalise, linear, scaler, normalise.

    `scale` is (param, init, scale) of `scaler`, here init = scale = sqrt(2 / width).
    """
    x = _f64(x)
    h = np.concatenate([x, np.full((len(x), 1), shift)], axis=1)
    h = l2_normalise(h) @ _f64(kernel)
    return l2_normalise(scaler(h, *scale))


def simba_block(h, kernels, scale, alpha, *, eps=1e-8):
    """h <- norm(h + alpha (m - h)), m = norm((relu(scaler(h w1)) + eps) w2).

    kernels = (w1 [D, 4D], w2 [4D, D]). scale and alpha are (param, init, scale) of `scaler`:
    init = scale = sqrt(2 / D) / 2 for the hidden units [4D], init = 1 / (blocks + 1) and scale =
    1 / sqrt(D) for alpha [D]. eps keeps the hidden vector from being zero.
    """
    h, (w1, w2) = _f64(h), kernels
    hidden = scaler(h @ _f64(w1), *scale)
    out = l2_normalise((np.maximum(hidden, 0.0) + eps) @ _f64(w2))
    return l2_normalise(h + scaler(out - h, *alpha))


def simba_head(h, kernels, scale, bias):
    """scaler(h w1) w2 + bias: two linear maps with no activation between them; init = scale = 1.

    The critic's output are the atoms' logits. The actor has one such head for the mean and one
    for the raw log std (see simba_log_std), each with its own w1.
    """
    w1, w2 = kernels
    return scaler(_f64(h) @ _f64(w1), *scale) @ _f64(w2) + _f64(bias)


def simba_log_std(raw, low=-10.0, high=2.0):
    """low + (high - low) (1 + tanh(raw)) / 2."""
    return low + (high - low) * 0.5 * (1.0 + np.tanh(_f64(raw)))


def reward_scale(reward, done, *, gamma, g_max=5.0, eps=1e-8, form="repository"):
    """(G [T], denominator [T]) of the rewards [T] of one world; a reward is divided by the latter.

    denominator_t = max(sqrt(var_t + eps), max_{s <= t} |G_s| / g_max). G is a discounted sum of
    the past rewards; var_t the population variance of G_0..G_t, together with a prior of weight
    1e-4, mean 0 and variance 1. done = terminated or truncated.

    form "repository": G_t = gamma (1 - done_t) G_{t-1} + r_t, so the step that ends an episode
    forgets the past, and its own reward carries over into the next episode. form "episode":
    done_{t-1} in place of done_t, as a return within an episode would have it.

    In the repository replay keeps raw rewards, and a batch is scaled, not centred, with the
    denominator at the time of the update.
    """
    reward, done = _f64(reward), np.asarray(done) != 0
    assert reward.shape == done.shape
    assert form in ("repository", "episode")
    returns, denominator, prior = [], [], 1e-4
    for t in range(len(reward)):
        forget = done[t] if form == "repository" else (t > 0 and done[t - 1])
        past = 0.0 if t == 0 or forget else returns[-1]
        returns.append(gamma * past + reward[t])
        weight = prior + len(returns)
        mean = sum(returns) / weight
        var = (prior * (1.0 + mean**2) + sum((g - mean) ** 2 for g in returns)) / weight
        largest = max(abs(g) for g in returns)
        denominator.append(max(math.sqrt(var + eps), largest / g_max))
    return np.array(returns), np.array(denominator)
