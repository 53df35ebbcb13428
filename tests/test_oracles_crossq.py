"""CrossQ's oracle by hand, by a second way, and with errors planted."""

import math
from itertools import pairwise

import numpy as np
import pytest

from tests.oracles import crossq


def crossq_net(rng, sizes, passes):
    """A network of crossq.py; its running statistics lie off the batch's, some beyond the clips."""
    layers = [(rng.normal(size=pair), rng.normal(size=pair[1])) for pair in pairwise(sizes)]
    affine = [(rng.uniform(0.5, 1.5, n), rng.normal(size=n)) for n in sizes[:-1]]
    spread = [rng.choice([0.02, 0.5, 2.0, 60.0], size=n) for n in sizes[:-1]]
    return layers, affine, [(rng.normal(size=len(v)), v, passes) for v in spread]


def plain_forward(x, net, wrong="", *, factors=None, rest=None):
    """crossq.forward in train mode once more, with one error.

    factors are as there; `rest`, {} at first, keeps the second half's features for later calls.
    """
    h, new, warm, (layers, affine, stats) = x, [], 100_000, net
    for depth, (kernel, bias) in enumerate(layers):
        mean, var, passes = stats[depth]
        if rest is not None:
            h = np.concatenate([h[: len(h) // 2], rest.setdefault(depth, h[len(h) // 2 :])])
        m, v, b = h.mean(0), h.var(0, ddof=int(wrong == "sample variance")), h.var(0)
        updated = 0.99 * mean + 0.01 * m, 0.99 * var + 0.01 * v, passes + 1
        if wrong == "sigma averaged":
            updated = updated[0], (0.99 * np.sqrt(var) + 0.01 * np.sqrt(v)) ** 2, passes + 1
        if wrong == "momentum swapped":
            updated = 0.01 * mean + 0.99 * m, 0.01 * var + 0.99 * v, passes + 1
        if wrong == "updated first":
            mean, var, _ = updated
        sigma, root = np.sqrt(var + 1e-3), np.sqrt(b + 1e-3)
        r, d = np.clip(root / sigma, 1 / 3, 3), np.clip((m - mean) / sigma, -5, 5)
        r, d = (1 / r, d) if wrong == "r inverted" else (r, d)
        r, d = (r, -d) if wrong == "d negated" else (r, d)
        r, d = (root / sigma, d) if wrong == "r not clipped" else (r, d)
        r, d = (r, (m - mean) / sigma) if wrong == "d not clipped" else (r, d)
        r, d = (r, d) if factors is None else factors[depth]
        on = passes > warm if wrong == "warm-up one longer" else passes >= warm
        on = passes + 1 >= warm if wrong == "warm-up one shorter" else on
        m, b = (m - d * np.sqrt(b) / r, b / r**2) if on else (m, b)
        m, b = (mean, var) if wrong == "eval" else (m, b)
        m, b = (m * 0, b * 0 + 1) if wrong == "raw input" and depth == 0 else (m, b)
        if wrong == "corrected batch averaged":
            updated = 0.99 * mean + 0.01 * m, 0.99 * var + 0.01 * b, passes + 1
        if wrong == "next half left out":
            half = h[: len(h) // 2]
            updated = 0.99 * mean + 0.01 * half.mean(0), 0.99 * var + 0.01 * half.var(0), passes + 1
        new.append(updated)
        h = ((h - m) / np.sqrt(b + 1e-3) * affine[depth][0] + affine[depth][1]) @ kernel + bias
        last = depth == len(layers) - 1
        h = h if last or wrong == "no relu" else np.maximum(h, 0.0)
    return h, new


def crossq_gap(got, wrong):
    """The largest difference between the outputs or statistics of two passes."""
    gaps = [np.abs(got[0] - wrong[0]).max()]
    for a, b in zip(got[1], wrong[1], strict=True):
        gaps += [np.abs(a[k] - b[k]).max() for k in (0, 1)]
    return max(gaps)


@pytest.fixture
def crossq_setup():
    rng = np.random.default_rng(3)
    nets = [crossq_net(rng, (5, 6, 6, 1), 100_000) for _ in range(2)]
    batch = {"observation": rng.normal(size=(8, 3)), "action": rng.uniform(-1, 1, (8, 2))}
    batch |= {"next_observation": rng.normal(size=(8, 3)) + 0.5, "reward": rng.normal(size=8)}
    batch |= {"next_action": rng.uniform(-1, 1, (8, 2)), "next_logp": rng.normal(size=8) - 1.0}
    batch["discount"] = np.array([0.99, 0.0, 0.99, 0.99, 0.0, 0.99, 0.99, 0.99])
    return nets, batch, np.concatenate([rng.normal(size=(8, 5)), rng.normal(size=(8, 5)) + 0.7])


def test_crossq_forward_by_hand():
    x = np.array([[9.0], [11.0]])  # mean 10, variance 1
    layers = [([[2.0]], [1.0]), ([[3.0]], [-1.0])]
    affine = [([1.0], [0.0]), ([1.0], [0.0])]
    stats = [([8.0], [1.0 - 1e-3], 100_000), ([0.0], [4.0], 7)]
    y, new, factors = crossq.forward(x, (layers, affine, stats), train=True)
    r = math.sqrt(1.001)  # d = 2, so the first layer's map is to about +-1 + 2 and not to +-1
    low, high = (
        s / math.sqrt(1 / r**2 + 1e-3) + 2 / r / math.sqrt(1 / r**2 + 1e-3) for s in (-1, 1)
    )
    hidden = np.maximum([2 * low + 1, 2 * high + 1], 0.0)
    normed = (hidden - hidden.mean()) / math.sqrt(hidden.var() + 1e-3)  # pass 7: no correction
    np.testing.assert_allclose(y[:, 0], 3 * normed - 1)
    np.testing.assert_allclose(np.ravel(factors), [r, 2.0, 1.0, 0.0])
    np.testing.assert_allclose([new[0][0][0], new[0][1][0]], [8.02, 0.99 * 0.999 + 0.01])
    np.testing.assert_allclose(new[1][0][0], 0.01 * hidden.mean())
    assert (new[0][2], new[1][2]) == (100_001, 8)
    y, same, _ = crossq.forward(x, (layers, affine, stats), train=False)
    np.testing.assert_allclose(y[:, 0], 3 * np.array([3.0, 7.0]) / math.sqrt(4.001) - 1)
    assert same == stats


def test_crossq_forms_on_a_silent_unit():
    net = [([[1.0]], [0.0])], [([1.0], [0.0])], [([2.0], [1.0 - 1e-3], 100_000)]
    kw = {"train": True, "form": "paper"}
    np.testing.assert_allclose(crossq.forward(np.zeros((4, 1)), net, train=True)[0], 0.0)
    np.testing.assert_allclose(crossq.forward(np.zeros((4, 1)), net, **kw)[0], -2.0)
    np.testing.assert_allclose(crossq.forward(np.zeros((4, 1)), net, train=False)[0], -2.0)


@pytest.mark.parametrize("passes", [0, 99_999, 100_000])
def test_crossq_forward_again(crossq_setup, passes):
    (net, _), _, x = crossq_setup
    net = (*net[:2], [(*s[:2], passes) for s in net[2]])
    y, stats, _ = crossq.forward(x, net, train=True)
    assert crossq_gap((y, stats), plain_forward(x, net)) < 1e-9
    assert [s[2] for s in stats] == [passes + 1] * 3
    kw = {"factors": crossq.forward(x, net, train=True)[2]}
    np.testing.assert_allclose(crossq.forward(x, net, train=True, **kw)[0], y)


FORWARD_ERRORS = ["updated first", "sigma averaged", "sample variance", "momentum swapped"]
FORWARD_ERRORS += ["r inverted", "d negated", "r not clipped", "d not clipped", "eval", "raw input"]
FORWARD_ERRORS += ["no relu", "corrected batch averaged", "next half left out"]


@pytest.mark.parametrize("wrong", [*FORWARD_ERRORS, "warm-up one longer", "warm-up one shorter"])
def test_crossq_forward_shows_errors(crossq_setup, wrong):
    (net, _), _, x = crossq_setup
    if wrong == "warm-up one shorter":
        net = (*net[:2], [(*s[:2], 99_999) for s in net[2]])
    got = crossq.forward(x, net, train=True)
    assert crossq_gap(got, plain_forward(x, net, wrong)) > 1e-3


def test_crossq_actor_forward(crossq_setup):
    layers, affine, stats = crossq_net(np.random.default_rng(4), (5, 6, 4), 0)
    layers[-1] = (layers[-1][0] * [1, 1, 1, 40], layers[-1][1])
    net, x = (layers, affine, stats), crossq_setup[2]
    mean, log_std, new = crossq.actor_forward(x, net, train=True)
    y, again = plain_forward(x, net)
    np.testing.assert_allclose(mean, y[:, :2])
    np.testing.assert_allclose(log_std, np.clip(y[:, 2:], -20, 2))
    assert (log_std.min(), log_std.max()) == (-20.0, 2.0)
    assert crossq_gap((y, new), (y, again)) < 1e-9
    assert np.abs(mean - crossq.actor_forward(x, net, train=False)[0]).max() > 1e-3


def test_crossq_critic_loss(crossq_setup):
    nets, batch, _ = crossq_setup
    loss, q, target, stats = crossq.critic_loss(nets, batch, alpha=0.3)
    here = np.concatenate([batch["observation"], batch["action"]], 1)
    there = np.concatenate([batch["next_observation"], batch["next_action"]], 1)
    joint = np.concatenate([here, there])
    both, one, two = ([plain_forward(x, net) for net in nets] for x in (joint, here, there))
    still = [crossq.forward(there, net, train=False)[0][:, 0] for net in nets]

    def plain(q, q2, *, sign=-1.0, reduce=np.min, half=0.5, discount=batch["discount"]):
        q, bonus = np.stack(q), sign * 0.3 * batch["next_logp"]
        y = batch["reward"] + discount * (reduce(np.stack(q2), axis=0) + bonus)
        return half * ((q - y) ** 2).mean(1).sum()

    a, b = [y[:8, 0] for y, _ in both], [y[8:, 0] for y, _ in both]
    assert loss == pytest.approx(plain(a, b))
    np.testing.assert_allclose(q, a)
    np.testing.assert_allclose(target[[1, 4]], batch["reward"][[1, 4]])
    assert all(crossq_gap((q, s), (q, p[1])) < 1e-9 for s, p in zip(stats, both, strict=True))
    apart = [y[:, 0] for y, _ in one], [y[:, 0] for y, _ in two]
    errors = {
        "halves swapped": plain(b, a),
        "max": plain(a, b, reduce=np.max),
        "mean": plain(a, b, reduce=np.mean),
        "each its own": plain(a[:1], b[:1]) + plain(a[1:], b[1:]),
        "log pi added": plain(a, b, sign=1.0),
        "no entropy": plain(a, b, sign=0.0),
        "no half": plain(a, b, half=1.0),
        "mean over critics": plain(a, b, half=0.25),
        "termination ignored": plain(a, b, discount=0.99),
        "a pass for each half": plain(*apart),
        "next half in eval": plain(apart[0], still),
    }
    close = [name for name, value in errors.items() if abs(value - loss) < 1e-3]
    assert not close, close


def test_crossq_critic_gradient(crossq_setup):
    """Only y, r and d are constants; dropping one, or holding the next half, changes the slope."""
    nets, batch, _ = crossq_setup
    rng = np.random.default_rng(5)
    ways = [[rng.normal(size=np.shape(k)) for k, _ in net[0]] for net in nets]

    def moved(step):
        pairs = [zip(net[0], way, strict=True) for net, way in zip(nets, ways, strict=True)]
        layers = [[(k + step * w, b) for (k, b), w in pair] for pair in pairs]
        return [(new, *net[1:]) for new, net in zip(layers, nets, strict=True)]

    def slope(loss, step=1e-6):
        return (loss(moved(step)) - loss(moved(-step))) / (2.0 * step)

    def against(q, y):
        return 0.5 * ((np.stack(q) - y) ** 2).mean(1).sum()

    keys = [("observation", "next_observation"), ("action", "next_action")]
    joint = np.concatenate([np.concatenate([batch[k] for k in pair]) for pair in keys], axis=1)
    _, q, y, _ = crossq.critic_loss(nets, batch, alpha=0.3)
    right = slope(lambda new: crossq.critic_loss(new, batch, alpha=0.3, still=nets)[0])
    kept = [crossq.forward(joint, net, train=True)[2] for net in nets]

    def first(new, rest=(None, None)):
        parts = zip(new, kept, rest, strict=True)
        return [plain_forward(joint, n, factors=f, rest=r)[0][:8, 0] for n, f, r in parts]

    by_chain = slope(lambda new: float(((q - y) * first(new)).mean(1).sum()))
    assert right == pytest.approx(by_chain, rel=1e-5)
    rest = ({}, {})
    first(nets, rest)
    errors = {
        "all moves": slope(lambda new: crossq.critic_loss(new, batch, alpha=0.3)[0]),
        "y moves": slope(
            lambda new: against(first(new), crossq.critic_loss(new, batch, alpha=0.3)[2])
        ),
        "r, d move": slope(
            lambda new: against([plain_forward(joint, n)[0][:8, 0] for n in new], y)
        ),
        "next half held": slope(lambda new: against(first(new, rest), y)),
    }
    assert all(abs(value - right) > 1e-3 for value in errors.values()), (right, errors)


def test_crossq_actor_loss(crossq_setup):
    nets, batch, _ = crossq_setup
    logp, x = batch["next_logp"], np.concatenate([batch["observation"], batch["action"]], axis=1)
    loss = crossq.actor_loss(nets, batch["observation"], batch["action"], logp, 0.3)
    q = np.stack([plain_forward(x, net, "eval")[0][:, 0] for net in nets])
    train = np.stack([plain_forward(x, net)[0][:, 0] for net in nets])
    assert loss == pytest.approx((0.3 * logp - q.min(0)).mean())
    updated = [(*n[:2], crossq.forward(x, n, train=True)[1]) for n in nets]
    errors = {
        "train mode": (0.3 * logp - train.min(0)).mean(),
        "statistics of the pass before": crossq.actor_loss(
            updated, batch["observation"], batch["action"], logp, 0.3
        ),
        "max": (0.3 * logp - q.max(0)).mean(),
        "mean": (0.3 * logp - q.mean(0)).mean(),
        "log pi subtracted": (-0.3 * logp - q.min(0)).mean(),
        "q added": (0.3 * logp + q.min(0)).mean(),
    }
    assert all(abs(value - loss) > 1e-3 for value in errors.values()), (loss, errors)
