"""The oracles against scipy, identities and values worked out by hand."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, special, stats

from tests.oracles import crossq, heads, networks, offpolicy

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-1.2, 0.3)])
def test_tanh_normal_is_a_density(mean, log_std):
    def density(a):
        return math.exp(offpolicy.tanh_normal_logp([math.atanh(a)], [mean], [log_std]))

    total, _ = integrate.quad(density, -1.0, 1.0, limit=200)
    assert total == pytest.approx(1.0, abs=1e-6)


def test_tanh_normal_logp():
    u, mean, log_std = (RNG.normal(size=(3, 4)) for _ in range(3))
    naive = stats.norm.logpdf(u, mean, np.exp(log_std)) - np.log(1.0 - np.tanh(u) ** 2)
    got = offpolicy.tanh_normal_logp(u, mean, log_std)
    np.testing.assert_allclose(got, naive.sum(-1), rtol=1e-12)
    assert offpolicy.log_one_minus_tanh2(50.0) == pytest.approx(2.0 * math.log(2.0) - 100.0)
    assert offpolicy.log_one_minus_tanh2(-800.0) == pytest.approx(2.0 * math.log(2.0) - 1600.0)


def test_n_step():
    reward = [[1.0, 2.0, 4.0]] * 5
    terminated = [[0, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0]]
    truncated = [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1], [0, 1, 0]]
    total, discount, index = offpolicy.n_step(reward, terminated, truncated, 0.5)
    np.testing.assert_allclose(total, [3.0, 2.0, 2.0, 3.0, 1.0])
    np.testing.assert_allclose(discount, [0.125, 0.0, 0.25, 0.0, 0.0])
    assert index.tolist() == [2, 1, 1, 2, 0]


def test_sac_losses_by_hand():
    kw = {"next_logp": [2.0, -1.0], "alpha": 0.5}
    args = ([1.0, 0.0], [0.9, 0.0], [[3.0, 5.0], [4.0, 2.0]])
    np.testing.assert_allclose(offpolicy.sac_target(*args, entropy=True, **kw), [2.8, 0.0])
    np.testing.assert_allclose(offpolicy.sac_target(*args, entropy=False, **kw), [3.7, 0.0])
    q = [[1.0, 2.0], [3.0, 0.0]]
    assert offpolicy.sac_critic_loss(q, [1.0, 1.0]) == pytest.approx(6.0 / 4.0)
    assert offpolicy.sac_actor_loss(q, [1.0, 3.0], 0.5, "min") == pytest.approx(0.5)
    assert offpolicy.sac_actor_loss(q, [1.0, 3.0], 0.5, "mean") == pytest.approx(-0.5)
    assert offpolicy.alpha_loss(math.log(0.1), [1.0, 2.0], -3.0) == pytest.approx(0.15)


def test_td3_by_hand():
    action = offpolicy.td3_next_action([0.0, 0.8, -0.9], [0.7, 0.4, -0.1], 0.5)
    np.testing.assert_allclose(action, [0.5, 1.0, -1.0])
    target = offpolicy.td3_target([1.0, 2.0], [0.5, 0.0], [[4.0, 1.0], [2.0, 3.0]])
    np.testing.assert_allclose(target, [2.0, 2.0])
    assert offpolicy.td3_critic_loss([[1.0, 2.0], [3.0, 0.0]], [1.0, 1.0]) == pytest.approx(3.0)
    assert offpolicy.td3_actor_loss([1.0, 2.0]) == -1.5
    np.testing.assert_allclose(offpolicy.polyak([[1.0]], [[3.0]], 0.25), [[1.5]])


def test_hl_gauss_is_a_truncated_normal():
    low, high, bins, sigma = -2.0, 3.0, 20, 0.75 * 0.25
    y = np.array([-9.0, -2.0, -1.93, 0.0, 0.4, 2.99, 7.0])
    got = heads.hl_gauss(y, low, high, bins)
    edges = np.linspace(low, high, bins + 1)
    for i, centre in enumerate(np.clip(y, low, high)):
        a, b = (low - centre) / sigma, (high - centre) / sigma
        cdf = stats.truncnorm.cdf(edges, a, b, loc=centre, scale=sigma)
        np.testing.assert_allclose(got[i], np.diff(cdf), atol=1e-12)
    np.testing.assert_allclose(got.sum(1), 1.0)
    value = heads.hl_gauss_value(np.log(np.maximum(got, 1e-300)), low, high)
    np.testing.assert_allclose(value[3:5], y[3:5], atol=1e-3)


def test_cross_entropy_and_values():
    logits, probs = RNG.normal(size=(4, 5)) * 3.0, RNG.dirichlet(np.ones(5), size=4)
    expected = -(probs * special.log_softmax(logits, axis=-1)).sum(-1)
    np.testing.assert_allclose(heads.cross_entropy(logits, probs), expected)
    soft = special.softmax(logits, axis=-1)
    np.testing.assert_allclose(heads.c51_value(logits, -1.0, 1.0), soft @ np.linspace(-1, 1, 5))
    centres = [-0.8, -0.4, 0.0, 0.4, 0.8]
    np.testing.assert_allclose(heads.hl_gauss_value(logits, -1.0, 1.0), soft @ centres)


def test_c51_projection_is_the_paper_s():
    """Eq. 7: sum_j [1 - |clip(Tz_j) - z_i| / gap] p_j, each bracket bounded to [0, 1]."""
    low, high, count, batch = -5.0, 5.0, 11, 6
    atoms, probs = np.linspace(low, high, count), RNG.dirichlet(np.ones(count), size=batch)
    reward, bonus = RNG.normal(size=batch) * 3.0, RNG.normal(size=batch)
    discount = np.array([0.99, 0.0, 1.0, 0.5, 0.97, 0.0])
    reward[1], reward[2], bonus[2], reward[5] = 2.0, 1.0, 0.0, 40.0
    got = heads.c51_project(probs, low, high, reward, discount=discount, bonus=bonus)
    image = np.clip(reward[:, None] + discount[:, None] * (atoms + bonus[:, None]), low, high)
    share = np.clip(1.0 - np.abs(image[:, :, None] - atoms), 0.0, 1.0)
    np.testing.assert_allclose(got, (share * probs[:, :, None]).sum(1), atol=1e-12)
    np.testing.assert_allclose(got.sum(1), 1.0)
    np.testing.assert_allclose(got[1], np.eye(count)[7], atol=1e-12)
    np.testing.assert_allclose(got[5], np.eye(count)[-1], atol=1e-12)


def test_c51_projection_keeps_the_mean_where_nothing_clips():
    probs = RNG.dirichlet(np.ones(21), size=5)
    reward, bonus = RNG.uniform(-1, 1, 5), RNG.uniform(-1, 1, 5)
    kw = {"discount": np.full(5, 0.6), "bonus": bonus}
    got = heads.c51_project(probs, -4.0, 4.0, reward, **kw)
    atoms = np.linspace(-4.0, 4.0, 21)
    np.testing.assert_allclose(got @ atoms, reward + 0.6 * (probs @ atoms + bonus))


def test_c51_pick():
    members = np.array([[[0, 0, 1], [1, 0, 0]], [[0, 1, 0], [0, 1, 0]]], dtype=float)
    np.testing.assert_array_equal(heads.c51_pick(members, -1.0, 1.0), [[0, 1, 0], [1, 0, 0]])


def test_mlp_and_layer_norm():
    x, scale, bias = RNG.normal(size=(3, 4)), RNG.normal(size=6), RNG.normal(size=6)
    layers = [(RNG.normal(size=(4, 6)), RNG.normal(size=6)), (RNG.normal(size=(6, 2)), [1.0, 2.0])]
    h = x @ layers[0][0] + layers[0][1]
    plain = np.maximum(h, 0.0) @ layers[1][0] + layers[1][1]
    np.testing.assert_allclose(networks.mlp(x, layers), plain)
    h = (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + 1e-6) * scale + bias
    normed = np.maximum(h, 0.0) @ layers[1][0] + layers[1][1]
    np.testing.assert_allclose(networks.mlp(x, layers, [(scale, bias)]), normed)


def test_batch_renorm_unclipped_is_the_running_normalisation():
    x, affine = RNG.normal(size=(8, 3)) * 2.0 + 1.0, (RNG.normal(size=3), RNG.normal(size=3))
    running = (np.array([0.5, 1.0, 2.0]), np.array([3.0, 5.0, 6.0]))
    train = networks.batch_renorm(x, running, affine, train=True, limits=(1e9, 1e9))
    np.testing.assert_allclose(train, networks.batch_renorm(x, running, affine, train=False))


@pytest.mark.parametrize("form", ["paper", "crossq"])
def test_batch_renorm_with_tight_limits_is_batch_norm(form):
    x, affine = RNG.normal(size=(8, 3)), (RNG.normal(size=3), RNG.normal(size=3))
    running = (np.ones(3), np.full(3, 9.0))
    kw = {"train": True, "limits": (1.0, 0.0), "form": form}
    got = networks.batch_renorm(x, running, affine, **kw)
    plain = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3) * affine[0] + affine[1]
    np.testing.assert_allclose(got, plain)


def test_batch_renorm_clips():
    x = np.array([[9.0], [11.0]])  # mean 10, variance 1
    r, d = networks.renorm_factors(x, ([0.0], [0.01]), (3.0, 5.0), eps=0.0)
    assert (r[0], d[0]) == (3.0, 5.0)
    r, d = networks.renorm_factors(x, ([20.0], [100.0]), (3.0, 5.0), eps=0.0)
    assert (r[0], d[0]) == pytest.approx((1.0 / 3.0, -1.0))
    for form in ("paper", "crossq"):
        kw = {"train": True, "limits": (3.0, 5.0), "eps": 0.0, "form": form}
        y = networks.batch_renorm(x, ([0.0], [0.01]), ([2.0], [1.0]), **kw)
        np.testing.assert_allclose(y, [[2.0 * 2.0 + 1.0], [2.0 * 8.0 + 1.0]])
    mean, var = networks.running_update(x, ([0.0], [2.0]))
    np.testing.assert_allclose([mean[0], var[0]], [0.1, 1.99])


def test_simba_pieces():
    np.testing.assert_allclose(
        networks.l2_normalise([[3.0, 4.0], [0.0, 0.0]]), [[0.6, 0.8], [0, 0]]
    )
    kernel = networks.unit_columns(RNG.normal(size=(3, 8)))
    np.testing.assert_allclose((kernel**2).sum(0), 1.0)
    np.testing.assert_allclose(networks.scaler([2.0], [0.5], 1.0, 0.25), [4.0])
    scale = (RNG.uniform(0.5, 1.0, 8), 0.5, 0.5)
    h = networks.simba_embed([[0.0, 4.0]], kernel, scale)
    raw = (np.array([0.0, 0.8, 0.6]) @ kernel) * scale[0]
    np.testing.assert_allclose(h[0], raw / np.linalg.norm(raw))
    np.testing.assert_allclose(networks.simba_log_std([-99.0, 0.0, 99.0]), [-10.0, -4.0, 2.0])


def test_simba_block_by_hand():
    h = np.array([[1.0, 0.0]])
    w1, w2 = np.array([[1.0, -1.0], [0.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    args = (h, (w1, w2), (np.ones(2), 2.0, 1.0))
    whole = networks.simba_block(*args, ([1.0, 1.0], 1.0, 1.0), eps=0.0)
    np.testing.assert_allclose(whole, [[0.0, 1.0]])  # the MLP's output alone
    none = networks.simba_block(*args, ([0.0, 0.0], 1.0, 1.0))
    np.testing.assert_allclose(none, h)
    half = networks.simba_block(*args, ([0.2, 0.2], 0.5, 0.2), eps=0.0)
    np.testing.assert_allclose(half, [[math.sqrt(0.5), math.sqrt(0.5)]])
    head = networks.simba_head(h, (w1, w2), (np.ones(2), 3.0, 1.0), [0.0, 1.0])
    np.testing.assert_allclose(head, [[-3.0, 4.0]])  # no activation in between


def test_reward_scale():
    reward, done = RNG.normal(size=30) * 4.0, RNG.uniform(size=30) < 0.2
    done[7] = True
    got, denominator = networks.reward_scale(reward, done, gamma=0.9)
    g, mean, var, count, largest = 0.0, 0.0, 1.0, 1e-4, 0.0
    for t in range(30):
        g = 0.9 * (1 - done[t]) * g + reward[t]
        delta, total = g - mean, count + 1.0
        var = (var * count + delta**2 * count / total) / total
        mean, count, largest = mean + delta / total, total, max(largest, abs(g))
        assert got[t] == pytest.approx(g)
        assert denominator[t] == pytest.approx(max(math.sqrt(var + 1e-8), largest / 5.0))
    episode, _ = networks.reward_scale(reward, done, gamma=0.9, form="episode")
    assert episode[7] == pytest.approx(0.9 * episode[6] + reward[7])
    assert episode[8] == reward[8]
    assert got[7] == reward[7]


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


def test_simba_networks():
    rng = np.random.default_rng(6)

    def unit(*shape):
        return networks.unit_columns(rng.normal(size=shape))

    def norm(h):
        return h / np.linalg.norm(h, axis=1, keepdims=True)

    def head(width, out):
        return (
            (unit(width, width), unit(width, out)),
            (np.ones(width) * 1.2, 1.0, 1.0),
            np.ones(out),
        )

    embed = unit(6, 4), (rng.uniform(0.5, 1.0, 4), 0.7, 0.7)
    hidden, alpha = (rng.uniform(0.2, 0.5, 16), 0.35, 0.35), (rng.uniform(0.3, 0.7, 4), 0.3, 0.5)
    blocks = [((unit(4, 16), unit(16, 4)), hidden, alpha) for _ in range(2)]
    value, mean, std = head(4, 7), head(4, 2), head(4, 2)
    obs, action = rng.normal(size=(5, 3)), rng.uniform(-1, 1, (5, 2))

    def trunk(x, blocks, shift=3.0, relu=True, ratio=0.6):
        h = norm(np.hstack([x, np.full((5, 1), shift)])) @ embed[0] * embed[1][0]
        h = norm(h)
        for (w1, w2), s, a in blocks:
            m = h @ w1 * s[0]
            m = norm((np.maximum(m, 0.0) + 1e-8 if relu else m) @ w2)
            h = norm(h + a[0] * ratio * (m - h))
        return h

    def top(h, part):
        return h @ part[0][0] * part[1][0] @ part[0][1] + part[2]

    x = np.hstack([obs, action])
    got = crossq.simba_critic(obs, action, embed, blocks, value)
    np.testing.assert_allclose(got, top(trunk(x, blocks), value))
    errors = [
        top(trunk(np.hstack([action, obs]), blocks), value),
        top(trunk(x, blocks[::-1]), value),
        top(trunk(x, blocks[:1]), value),
        top(trunk(x, blocks, shift=0.0), value),
        top(trunk(x, blocks, relu=False), value),
        top(np.maximum(trunk(x, blocks), 0.0), value),
        top(trunk(x, blocks, ratio=1.0), value),
        top(trunk(x, blocks), (*value[:2], 0.0)),
    ]
    assert all(np.abs(got - wrong).max() > 1e-3 for wrong in errors)
    embed = unit(4, 4), embed[1]
    got = crossq.simba_actor(obs, embed, blocks, mean, std)
    h = trunk(obs, blocks)
    np.testing.assert_allclose(got[0], top(h, mean))
    np.testing.assert_allclose(got[1], -4.0 + 6.0 * np.tanh(top(h, std)))
    assert np.abs(got[0] - top(h, std)).max() > 1e-3  # heads swapped
    assert np.abs(got[1] - np.clip(top(h, std), -10.0, 2.0)).max() > 1e-3


def test_c51_target():
    a, b = [0.5, 1e-12, 0.5], [1e-12, 0.9, 0.1]  # means 0 and 0.1
    logits = np.log([[a, b], [b, a]]) + 3.0
    lowest = crossq.c51_target(logits, -1.0, 1.0, "min")
    np.testing.assert_allclose(lowest, [a, a], atol=1e-9)
    average = crossq.c51_target(logits, -1.0, 1.0, "mean")
    np.testing.assert_allclose(average, [[0.25, 0.45, 0.3]] * 2, atol=1e-9)
    assert np.abs(average - special.softmax(logits.mean(0), axis=-1)).max() > 1e-3
    for how in ("min", "mean"):  # the repository's case of one critic
        one = crossq.c51_target(logits[:1], -1.0, 1.0, how)
        np.testing.assert_allclose(one, [a, b], atol=1e-9)
    # Reward -1 clips most of `a` but not of `b`: chosen after the projection it would be `b`.
    kw = {"discount": np.ones(1), "bonus": np.zeros(1)}
    projected = [heads.c51_project([p], -1.0, 1.0, [-1.0], **kw) for p in (a, b)]
    np.testing.assert_allclose(heads.c51_pick(projected, -1.0, 1.0), projected[1])
    assert np.abs(projected[0] - projected[1]).max() > 1e-3


def test_simba_losses():
    rng = np.random.default_rng(7)
    logits, nxt = rng.normal(size=(2, 6, 5)), rng.normal(size=(2, 6, 5)) * 2.0
    batch = {"reward": rng.normal(size=6) * 0.2, "next_logp": rng.normal(size=6) + 1.0}
    batch["discount"] = np.array([0.9, 0.0, 0.9, 0.9, 0.9, 0.0])
    atoms = np.linspace(-1.0, 1.0, 5)
    means = special.softmax(nxt, axis=-1) @ atoms
    probs, log_q = special.softmax(nxt, axis=-1), special.log_softmax(logits, axis=-1)

    def plain(index, *, sign=-1.0, discount=batch["discount"], over=np.sum):
        z = atoms + sign * 0.3 * batch["next_logp"][:, None]
        image = np.clip(batch["reward"][:, None] + discount[:, None] * z, -1.0, 1.0)
        share = np.clip(1.0 - np.abs(image[:, :, None] - atoms) / 0.5, 0.0, 1.0)
        p = probs.mean(0) if index is None else probs[index, np.arange(6)]
        target = (share * p[:, :, None]).sum(1)
        return over(-(target * log_q).sum(-1).mean(1))

    least = means.argmin(0)
    kw = {"alpha": 0.3, "how": "min"}
    loss = crossq.simba_critic_loss(logits, nxt, batch, -1.0, 1.0, **kw)
    assert loss == pytest.approx(plain(least))
    average = crossq.simba_critic_loss(logits, nxt, batch, -1.0, 1.0, alpha=0.3, how="mean")
    assert average == pytest.approx(plain(None))
    errors = {
        "max": plain(1 - least),
        "average": plain(None),
        "log pi added": plain(least, sign=1.0),
        "no entropy": plain(least, sign=0.0),
        "termination ignored": plain(least, discount=np.full(6, 0.9)),
        "mean over critics": plain(least, over=np.mean),
    }
    assert all(abs(value - loss) > 1e-3 for value in errors.values()), (loss, errors)
    logp, value = batch["next_logp"], special.softmax(logits, axis=-1) @ atoms
    for how, q in (("min", value.min(0)), ("mean", value.mean(0))):
        got = crossq.simba_actor_loss(logits, -1.0, 1.0, logp, 0.3, how)
        assert got == pytest.approx((0.3 * logp - q).mean())
        wrongs = [-0.3 * logp - q, 0.3 * logp + q, 0.3 * logp - value.max(0)]
        assert all(abs(wrong.mean() - got) > 1e-3 for wrong in wrongs)


def test_normalise_observation():
    got = crossq.normalise_observation([[3.0, 1e-4, 100.0]], [1.0, 0.0, 0.0], [4.0, 0.0, 1e-4])
    np.testing.assert_allclose(got, [[1.0, 1.0, 1e4]], rtol=1e-4)  # eps inside the root, no clip
