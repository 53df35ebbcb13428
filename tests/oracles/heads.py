"""Categorical value heads in float64 numpy with plain loops: slow, and meant to be read.

Sources:
- HL-Gauss: Imani and White 2018, arXiv:1806.04613, section 3; Farebrother et al. 2024,
  arXiv:2403.03950, section 3.1 (sigma = 0.75 bin widths in its experiments).
- C51: Bellemare et al. 2017, arXiv:1707.06887, eq. 7 and algorithm 1.
- the entropy bonus inside the projected atoms: SimbaV2, arXiv:2502.15280, and its repository.
- the choice between projected distributions by their means: the FastTD3 repository.

HL-Gauss has `bins` intervals between `low` and `high` and reads its value at their centres; C51
has K atoms, the first at `low` and the last at `high`.
"""

import math

import numpy as np


def _f64(x):
    return np.asarray(x, dtype=np.float64)


def _log_softmax(row):
    """Log of the softmax of one row."""
    top = max(row)
    norm = top + math.log(sum(math.exp(v - top) for v in row))
    return [v - norm for v in row]


def _expectation(logits, points):
    """Mean of `points` [K] under the softmax of logits [..., K]."""
    logits = _f64(logits)
    rows = logits.reshape(-1, logits.shape[-1])
    assert rows.shape[1] == len(points)
    out = np.zeros(len(rows))
    for i, row in enumerate(rows):
        for p, point in zip(_log_softmax(row), points, strict=True):
            out[i] += math.exp(p) * point
    return out.reshape(logits.shape[:-1])


def _normal_mass(a, b):
    """Phi(b) - Phi(a) for a <= b, Phi the standard normal distribution function.

    Two large positive arguments are first mirrored, so that a small tail keeps its digits.
    """
    if a > 0.0:
        a, b = -b, -a
    return 0.5 * math.erfc(-b / math.sqrt(2.0)) - 0.5 * math.erfc(-a / math.sqrt(2.0))


def hl_gauss(y, low, high, bins, *, ratio=0.75):
    """Target probabilities [B, bins]: the mass of N(y, sigma^2) in each bin, over that in all.

    sigma = ratio * bin width; y is first clipped to [low, high].
    """
    y = _f64(y)
    assert y.ndim == 1
    width = (high - low) / bins
    sigma = ratio * width
    edges = [low + k * width for k in range(bins + 1)]
    out = np.zeros((len(y), bins))
    for i in range(len(y)):
        centre = min(max(y[i], low), high)
        total = _normal_mass((edges[0] - centre) / sigma, (edges[-1] - centre) / sigma)
        for k in range(bins):
            left, right = (edges[k] - centre) / sigma, (edges[k + 1] - centre) / sigma
            out[i, k] = _normal_mass(left, right) / total
    return out


def hl_gauss_value(logits, low, high):
    """Sum over bins of softmax(logits) times the bin's centre."""
    bins = np.shape(logits)[-1]
    width = (high - low) / bins
    return _expectation(logits, [low + (k + 0.5) * width for k in range(bins)])


def cross_entropy(logits, probs):
    """-sum_k p_k log softmax(logits)_k, per example [B]."""
    logits, probs = _f64(logits), _f64(probs)
    assert logits.shape == probs.shape
    out = np.zeros(len(logits))
    for i in range(len(logits)):
        for p, logq in zip(probs[i], _log_softmax(logits[i]), strict=True):
            out[i] -= p * logq
    return out


def _atoms(low, high, count):
    return [low + k * (high - low) / (count - 1) for k in range(count)]


def c51_project(probs, low, high, reward, *, discount, bonus):
    """The distribution of r + discount (z + bonus), put back onto the atoms z: [B, K].

    Each atom's image is clipped to [low, high], and its mass shared between the two neighbouring
    atoms in proportion to nearness; an image right on an atom gives it all. bonus [B] is
    -alpha log pi(a'|s') for SAC, and 0 for plain C51.
    """
    probs, reward, discount, bonus = _f64(probs), _f64(reward), _f64(discount), _f64(bonus)
    batch, count = probs.shape
    assert reward.shape == discount.shape == bonus.shape == (batch,)
    gap = (high - low) / (count - 1)
    out = np.zeros((batch, count))
    for i in range(batch):
        for k, z in enumerate(_atoms(low, high, count)):
            image = reward[i] + discount[i] * (z + bonus[i])
            place = (min(max(image, low), high) - low) / gap
            place = min(max(place, 0.0), count - 1.0)
            left = math.floor(place)
            out[i, left] += probs[i, k] * (left + 1 - place)
            if place > left:
                out[i, left + 1] += probs[i, k] * (place - left)
    return out


def c51_value(logits, low, high):
    """Sum over atoms of softmax(logits) times the atom."""
    return _expectation(logits, _atoms(low, high, np.shape(logits)[-1]))


def c51_pick(projected, low, high):
    """[B, K]: per example, that of the projected distributions [E, B, K] with the lowest mean.

    The first of equals.
    """
    projected = _f64(projected)
    members, batch, count = projected.shape
    out = np.zeros((batch, count))
    for i in range(batch):
        means = []
        for e in range(members):
            pairs = zip(projected[e, i], _atoms(low, high, count), strict=True)
            means.append(sum(p * z for p, z in pairs))
        out[i] = projected[means.index(min(means)), i]
    return out
