"""The oracles against scipy, identities and values worked out by hand."""

import math

import numpy as np
import pytest
from scipy import integrate, special, stats

from tests.oracles import heads, networks, offpolicy

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
