"""The oracle of residual learning: its losses, by hand, in their limits, by finite differences."""

import math

import numpy as np
import pytest

from tests.oracles import ppo, residual


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def linear(weight, bias=0.0):
    """Critics [E, B] of actions [B, A]: weight [E, A]; the bias [B] stands for the observation."""
    return lambda action: weight @ action.T + bias


def test_gradient():
    at = normal(0, 2, 3)
    got = residual.gradient(lambda x: np.sum(x**3) + x[0, 1] * x[1, 2], at)
    want = 3 * at**2
    want[0, 1] += at[1, 2]
    want[1, 2] += at[0, 1]
    np.testing.assert_allclose(got, want, atol=1e-8)


# ResFiT


def test_critic_losses():
    """Errors (2, 0) and (1, -1): the paper's (4 + 0 + 1 + 1) / 4, the released (1 + 1) / 2."""
    q, y = np.array([[5.0, 2.0], [3.0, 0.0]]), np.array([3.0, 1.0])
    assert residual.critic_loss(q, y) == pytest.approx(1.5)
    assert residual.critic_loss_released(q, y) == pytest.approx(1.0)
    q, y = normal(6, 10, 7), normal(7, 7)
    spread = np.var(np.abs(q - y), axis=0).mean()  # of a mean of squares, the part that it leaves
    assert spread > 0.1
    released = residual.critic_loss_released(q, y)
    assert residual.critic_loss(q, y) == pytest.approx(released + spread)
    assert residual.critic_loss(q[:1], y) == pytest.approx(residual.critic_loss_released(q[:1], y))


def test_gradients_of_the_critic_losses():
    """The paper's pulls each critic by its own error, the released all equally hard."""
    q, y = normal(8, 4, 3), normal(9, 3)
    got = residual.gradient(lambda x: residual.critic_loss(x, y), q)
    np.testing.assert_allclose(got, 2 * (q - y) / 12, atol=1e-8)
    got = residual.gradient(lambda x: residual.critic_loss_released(x, y), q)
    hard = 2 * np.abs(q - y).mean(0) / 12
    np.testing.assert_allclose(got, hard * np.sign(q - y), atol=1e-8)


def test_actor_loss():
    """Two rows by hand: 0.6 and 1.1, cut to 1; critics x and 3 x, so -2 (0.6 + 1) / 2."""
    base, mu = [[0.5], [0.8]], np.arctanh([[0.25], [0.75]])
    critics = linear(np.array([[1.0], [3.0]]))
    assert residual.actor_loss(base, mu, 0.4, critics, 0.0) == pytest.approx(-1.6)
    penalty = residual.actor_loss(base, mu, 0.4, critics, 7.0) + 1.6
    assert penalty == pytest.approx(7 * (0.1**2 + 0.3**2) / 2)
    wide = residual.actor_loss(np.zeros((1, 3)), np.ones((1, 3)), 1.0, lambda _: [[0.0]], 1.0)
    assert wide == pytest.approx(3 * math.tanh(1) ** 2)  # a sum over the actions


def test_gradient_of_the_actor_loss():
    """Against the chain rule; where the clip acts only the penalty pulls, back to the base."""
    base, mu, weight, scale, l2 = (
        normal(10, 6, 2) * 0.3,
        normal(11, 6, 2),
        normal(12, 3, 2),
        0.5,
        2.0,
    )
    base[0] = 0.99, -0.99
    mu[0] = 1.0, -1.0
    critics = lambda action: np.sin(action @ weight.T).T  # noqa: E731
    loss = lambda x, l2: residual.actor_loss(base, x, scale, critics, l2)  # noqa: E731
    action = base + scale * np.tanh(mu)
    inside, slope = np.abs(action) < 1, scale / np.cosh(mu) ** 2
    assert not inside[0].any()
    assert inside[1:].all()
    of_q = -np.cos(action @ weight.T) @ weight / 3 * slope * inside / 6
    of_penalty = 2 * scale * np.tanh(mu) * slope / 6
    np.testing.assert_allclose(residual.gradient(lambda x: loss(x, 0.0), mu), of_q, atol=1e-8)
    got = residual.gradient(lambda x: loss(x, l2), mu)
    np.testing.assert_allclose(got, of_q + l2 * of_penalty, atol=1e-8)
    assert (got[0] * mu[0] > 0).all()


def test_polyak():
    slow, new = normal(13, 2, 3), normal(14, 2, 3)
    np.testing.assert_array_equal(residual.polyak(slow, new, 0.0), slow)
    np.testing.assert_array_equal(residual.polyak(slow, new, 1.0), new)
    np.testing.assert_allclose(residual.polyak([8.0], [0.0], 0.25), [6.0])
    for _ in range(10):
        slow = residual.polyak(slow, new * 0, 0.1)
    np.testing.assert_allclose(slow, normal(13, 2, 3) * 0.9**10)


# ResiP


def test_seen():
    got = residual.seen([[1.0, 2.0], [3.0, 4.0]], [[9.0], [8.0]])
    np.testing.assert_array_equal(got, [[1, 2, 9], [3, 4, 8]])


def test_residual_logp():
    """Its integral is 1, in the raw residual's own unit, whatever the scale it is played with."""
    log_std = np.array([-0.5, 0.3])
    grid = np.stack(np.meshgrid(*[np.linspace(-9, 9, 301)] * 2), -1)
    logp = residual.residual_logp(grid, [0.4, -1.0], log_std)
    assert logp.shape == (301, 301)
    cell = (18 / 300) ** 2
    assert np.exp(logp).sum() * cell == pytest.approx(1.0)
    want = [0.4, -1.0]
    np.testing.assert_allclose((np.exp(logp)[..., None] * grid).sum((0, 1)) * cell, want)
    peak = residual.residual_logp([0.4, -1.0], [0.4, -1.0], log_std)
    assert peak == pytest.approx(-math.log(2 * math.pi) + 0.2)


def test_policy_loss():
    """Ratios 1.5, 0.5, 1.5, 0.5 of advantages +, -, -, +: the first two are clipped."""
    logp = np.log([1.5, 0.5, 1.5, 0.5])
    loss, ratio = residual.policy_loss(logp, np.zeros(4), [3.0, 1.0, 1.0, 3.0], 0.2)
    np.testing.assert_allclose(ratio, [1.5, 0.5, 1.5, 0.5])
    assert loss == pytest.approx(-(1.2 - 0.8 - 1.5 + 0.5) / 4)
    small = residual.policy_loss(logp, np.zeros(4), [3e-9, 1e-9, 1e-9, 3e-9], 0.2)[0]
    assert small == pytest.approx(loss / 11)  # the 1e-8: std 1e-9
    advantage = normal(15, 50) * 4 + 7
    got = residual.normalised(advantage)
    assert (np.mean(got), np.mean(got**2)) == pytest.approx((0.0, 1.0))
    np.testing.assert_allclose(got, residual.normalised(advantage * 3 - 5))


def test_policy_loss_is_that_of_ppo():
    mean, old, log_std, raw = *(normal(16, 3, 40, 2)), np.array([-0.2, 0.1])
    old_logp = residual.residual_logp(raw, mean + 0.2 * old, log_std)
    advantage, cost = normal(17, 40), {"clip": 0.2, "entropy_cost": 0.0}
    want, clipped = ppo.policy_loss(mean, log_std, raw, old_logp, advantage, **cost)
    logp = residual.residual_logp(raw, mean, log_std)
    got, ratio = residual.policy_loss(logp, old_logp, advantage, 0.2)
    assert got == pytest.approx(want)
    assert np.mean(np.abs(ratio - 1) > 0.2) == clipped
    assert 0.1 < clipped < 0.9


def test_gradient_of_the_policy_loss():
    """At the old policy it is the policy gradient: -mean of A grad log pi, nothing clipped."""
    mean, raw, advantage, log_std = normal(18, 9, 2), normal(19, 9, 2), normal(20, 9), [-0.3, 0.2]
    old_logp = residual.residual_logp(raw, mean, log_std)

    def loss(x):
        return residual.policy_loss(
            residual.residual_logp(raw, x, log_std), old_logp, advantage, 0.2
        )[0]

    score = (raw - mean) / np.exp(log_std) ** 2
    want = -residual.normalised(advantage)[:, None] * score / 9
    np.testing.assert_allclose(residual.gradient(loss, mean), want, atol=1e-8)


def test_value_loss():
    assert residual.value_loss([1.0, 2.0], [1.0, 5.0]) == pytest.approx(2.25)
    with pytest.raises(AssertionError):
        residual.value_loss(np.zeros((2, 1)), np.zeros(2))


# Distillation


def test_gaussian_kl():
    """Against the integral over a grid of each number; it is not that of student || teacher."""
    x = np.linspace(-15, 15, 6001)
    means, log_stds = normal(21, 2, 3, 2), normal(22, 2, 3, 2) * 0.4
    want = 0.0
    for row in range(3):
        for j in range(2):
            p, q = (
                residual.residual_logp(x[:, None], [means[k, row, j]], [log_stds[k, row, j]])
                for k in (0, 1)
            )
            want += np.sum(np.exp(p) * (p - q)) * (x[1] - x[0]) / 3
    got = residual.gaussian_kl(means[0], log_stds[0], means[1], log_stds[1])
    assert got == pytest.approx(want)
    other_way = residual.gaussian_kl(means[1], log_stds[1], means[0], log_stds[0])
    assert abs(got - other_way) > 0.1
    assert residual.gaussian_kl(means[0], log_stds[0], means[0], log_stds[0]) == pytest.approx(0.0)


def test_gradient_of_the_kl():
    """Stds kept equal: (student - teacher) / var / B; the student's std grows to the teacher's."""
    teacher, student, log_std = normal(23, 4, 2), normal(24, 4, 2), np.array([-0.5, 0.4])
    kl = residual.gaussian_kl
    got = residual.gradient(lambda x: kl(teacher, log_std, x, log_std), student)
    np.testing.assert_allclose(got, (student - teacher) / np.exp(2 * log_std) / 4, atol=1e-8)
    got = residual.gradient(lambda x: kl(teacher, log_std, teacher, x), log_std - 0.5)
    np.testing.assert_allclose(got, 1 - math.e, atol=1e-7)  # 1 - var / student's var, each
