"""The oracle of fine-tuning: its losses, by hand, in their limits, by finite differences."""

import math

import numpy as np
import pytest
from scipy import stats

from tests.oracles import finetune, generative, residual
from tests.oracles.residual import gradient

Q = np.array([[1.0, 5.0, -2.0], [3.0, 2.0, -6.0]])  # [E, B]: means 2, 3.5, -4, least 1, 2, -6
WIDE = (-np.inf, np.inf)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def field(x, t):
    return -2.0 * x + np.asarray(t)[:, None, None]


def spread(x, t):
    return 0.2 + 0.1 * np.tanh(x) ** 2 + 0.3 * np.asarray(t)[:, None, None]


def test_chunk_return():
    """No end; a time limit at the second step; a termination there; both at the last; at once."""
    reward = np.tile([1.0, 2.0, 4.0], (5, 1))
    terminated = np.array([[0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]])
    truncated = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 0]])
    summed, discount = finetune.chunk_return(reward, terminated, truncated, 0.5)
    np.testing.assert_allclose(summed, [3.0, 2.0, 2.0, 3.0, 1.0])
    np.testing.assert_allclose(discount, [0.125, 0.25, 0.0, 0.0, 0.0])


def test_chunk_target_and_critic_loss():
    for how, wanted in (("mean", [2.0, 2.875, 3.0]), ("min", [1.5, 2.5, 3.0])):
        got = finetune.chunk_target([1.0, 2.0, 3.0], [0.5, 0.25, 0.0], Q, how)
        np.testing.assert_allclose(got, wanted)
    y = np.array([2.0, 2.0, -3.0])  # errors -1, 3, 1 and 1, 0, -3
    assert finetune.critic_loss(Q, y) == pytest.approx(21 / 6)
    got = gradient(lambda q: finetune.critic_loss(q, y), Q)
    np.testing.assert_allclose(got, 2 * (Q - y) / 6, atol=1e-8)


def test_student_loss():
    """Squares 1 and 4 of 12 numbers; q is 0.5 on average, its size (2 + 3.5 + 4) / 3."""
    student, taught = np.zeros((2, 3, 2, 2))
    student[0, 1, 0], taught[2, 0, 1] = 1.0, 2.0
    scales = [finetune.q_scale(q) for q in (Q, [[1.0], [-3.0]])]
    assert scales == pytest.approx([3 / 9.5, 1.0])
    assert finetune.student_loss(student, taught, Q, 6.0, False) == pytest.approx(2.5 - 0.5)
    got = [finetune.student_loss(student, taught, q, 6.0, True) for q in (Q, 7 * Q)]
    assert got == pytest.approx([2.5 - 1.5 / 9.5] * 2)
    student, taught = normal(0, 3, 2, 4), normal(1, 3, 2, 4)
    got = gradient(lambda x: finetune.student_loss(x, taught, Q, 10.0, True), student)
    np.testing.assert_allclose(got, 20 * (student - taught) / 24, atol=1e-8)
    got = gradient(lambda q: finetune.student_loss(student, taught, q, 1, True, scale=scales[0]), Q)
    np.testing.assert_allclose(got, np.full((2, 3), -3 / 9.5 / 6), atol=1e-8)


def test_best_of():
    """Means 2.5, 2, 1 in the first row, 0, 1, 5 in the second; least 0, 2, 1 and 0, 1, -1."""
    q = np.array([[[5, 0], [0, 0]], [[2, 1], [2, 1]], [[1, -1], [1, 11]]], dtype=float)  # [N, E, B]
    candidates = normal(2, 3, 2, 4, 5)
    mean, least = finetune.best_of(candidates, q), finetune.best_of(candidates, q, "min")
    np.testing.assert_array_equal(mean, [candidates[0, 0], candidates[2, 1]])
    np.testing.assert_array_equal(least, [candidates[1, 0], candidates[1, 1]])


@pytest.mark.parametrize("logp", [finetune.bounded_logp, finetune.edit_logp])
def test_the_density_of_what_is_bounded(logp):
    """Over the box its integral is 1, and its parts are those of what is sampled."""
    bound, mean, log_std = np.array([2.5, 0.3]), np.array([0.3, -0.2]), np.array([-0.4, -0.8])
    side = (np.arange(400) + 0.5) / 200 - 1
    w = np.stack(np.meshgrid(side * bound[0], side * bound[1], indexing="ij"), -1)
    density = np.exp(logp(np.arctanh(w / bound), mean, log_std, bound))
    cell = math.prod(bound) / 200**2
    assert density.sum() * cell == pytest.approx(1.0, abs=1e-4)
    sampled = finetune.bounded(mean + np.exp(log_std) * normal(3, 100_000, 2), bound)
    assert (np.abs(sampled) < bound).all()
    below = density[(w[..., 0] < 1.0) & (w[..., 1] < -0.1)].sum() * cell
    share = np.mean((sampled[:, 0] < 1.0) & (sampled[:, 1] < -0.1))
    assert below == pytest.approx(share, abs=0.01)


def test_bounded_logp_by_hand():
    """At zero, where tanh has slope 1, and far out, where it has 4 exp(-2 u)."""
    u, peak = np.zeros((2, 3)), -0.5 * math.log(2 * math.pi)
    for bound in (1.0, 2.0):
        each = peak + 0.7 - math.log(bound)
        assert finetune.bounded_logp(u, u, u - 0.7, bound) == pytest.approx([3 * each] * 2)
    far = finetune.bounded_logp([30.0], [30.0], [0.0], 1.0)
    assert far == pytest.approx(peak + 60 - math.log(4))
    np.testing.assert_allclose(finetune.bounded([[0.0, 1e3, -1e3]], 1.5), [[0.0, 1.5, -1.5]])


def test_steer_target():
    for entropy, wanted in ((True, [1.4, 2.6, 3.0]), (False, [1.5, 2.5, 3.0])):
        got = finetune.steer_target([1, 2, 3], [0.5, 0.25, 0], Q, [2, -4, 9], 0.1, entropy)
        np.testing.assert_allclose(got, wanted)


def test_noise_critic_loss():
    """Each by its own: swapped with their teachers it is the same, without them not."""
    qw = Q + np.array([[1.0, 0.0, 2.0], [-1.0, 3.0, 0.0]])
    assert finetune.noise_critic_loss(qw, Q) == pytest.approx(15 / 6)
    assert finetune.noise_critic_loss(qw[::-1], Q[::-1]) == pytest.approx(15 / 6)
    assert finetune.noise_critic_loss(Q[::-1], Q) == pytest.approx(2 * (4 + 9 + 16) / 6)
    got = gradient(lambda q: finetune.noise_critic_loss(q, Q), qw)
    np.testing.assert_allclose(got, 2 * (qw - Q) / 6, atol=1e-8)


def test_actor_losses():
    """DSRL's follows the least critic of each row, EXPO's all of them alike."""
    logp = np.array([2.0, -4.0, 5.0])
    steer = lambda logp, q: finetune.steer_actor_loss(logp, q, 0.2)  # noqa: E731
    edit = lambda logp, q: finetune.edit_actor_loss(logp, q, 0.2)  # noqa: E731
    assert steer(logp, Q) == pytest.approx((0.6 - (1 + 2 - 6)) / 3)
    assert edit(logp, Q) == pytest.approx((0.6 - (2 + 3.5 - 4)) / 3)
    least = np.array([[1, 0, 0], [0, 1, 1]])
    np.testing.assert_allclose(gradient(lambda q: steer(logp, q), Q), -least / 3, atol=1e-8)
    np.testing.assert_allclose(gradient(lambda q: edit(logp, q), Q), np.full((2, 3), -1 / 6))
    for loss in (steer, edit):
        np.testing.assert_allclose(gradient(lambda x, f=loss: f(x, Q), logp), np.full(3, 0.2 / 3))


def test_temperature_loss():
    """The entropy is 1: above a target of -2 alpha falls, below one of 4 it grows."""
    loss = lambda x, target: finetune.temperature_loss(x, [-3.0, 1.0], target)  # noqa: E731
    assert loss(math.log(0.5), -2.0) == pytest.approx(1.5)
    assert gradient(lambda x: loss(x, -2.0), math.log(0.5)) == pytest.approx(1.5)
    assert gradient(lambda x: loss(x, 4.0), math.log(0.5)) == pytest.approx(-1.5)


def test_noise_std():
    raw = np.array([-50.0, 0.0, 50.0, math.atanh(0.5), -math.atanh(0.5)])
    wanted = [0.02, 0.08, 0.32, 0.16, 0.04]  # two doublings either way of 0.08
    np.testing.assert_allclose(finetune.noise_std(raw, 0.02, 0.32), wanted)


def test_wander_by_hand():
    """From 0.6, K = 2: a mean of 1.6 / 2 + 0.6 cut to 1, eps 9 to 3; then 1.6 + 3.1 / 2 to 1."""
    slope = lambda x, t: x + 1 + t[:, None, None]  # noqa: E731
    std = lambda x, t: 0.1 * x + t[:, None, None]  # noqa: E731
    noise, eps = np.full((1, 1, 1), 0.6), np.array([9.0, -0.5]).reshape(2, 1, 1, 1)
    got = finetune.wander(slope, noise, eps, std, (-1.0, 1.0)).ravel()
    np.testing.assert_allclose(got, [0.6, 1.18, 1 - 0.5 * (0.118 + 0.5)])
    got = finetune.wander(slope, noise, eps, std, WIDE).ravel()
    first = 1.4 + 3 * 0.06
    np.testing.assert_allclose(got, [0.6, first, 1.5 * first + 0.75 - 0.05 * first - 0.25])
    out = finetune.wander(slope, noise, -eps, std, (-1.0, 1.0)).ravel()
    assert out[2] == pytest.approx(1 + 0.5 * (0.1 * 0.82 + 0.5))  # not clipped after the last


def test_wander_without_noise_is_euler():
    noise, eps = normal(4, 5, 2, 3), normal(5, 4, 5, 2, 3)
    got = finetune.wander(field, noise, eps, lambda x, t: 0 * x, WIDE)
    np.testing.assert_allclose(got[-1], generative.euler(field, noise, 4, "data_at_one"))


def test_chain_logp_of_what_wandered():
    """It is of the eps that were drawn, clipped, for bounds that cut some of the means."""
    noise, eps, bounds = normal(6, 5, 3, 2), 2 * normal(7, 4, 5, 3, 2), (-0.4, 0.5)
    states = finetune.wander(field, noise, eps, spread, bounds)
    stds = np.stack([spread(states[i], np.full(5, i / 4)) for i in range(4)])
    each = stats.norm.logpdf(np.clip(eps, -3, 3)) - np.log(stds)
    for executed in (1, 2, 3):
        got = finetune.chain_logp(field, spread, states, bounds, executed)
        np.testing.assert_allclose(got, each[:, :, :executed].mean((0, 2, 3)))
    assert (np.abs(eps) > 3).any()
    assert (np.abs(got - finetune.chain_logp(field, spread, states, WIDE, 3)) > 1e-3).any()


def test_chain_logp_is_the_joint_density():
    """K = 3 with one std a step, x' = x / 3 + t / 3 + std z: a Gaussian of three numbers, twice."""
    stds, states = [0.5, 0.3, 0.7], normal(8, 4, 6, 1, 2)
    std = lambda x, t: np.full(x.shape, stds[round(3 * t[0])])  # noqa: E731
    back = np.eye(3) - np.diag([1 / 3, 1 / 3], -1)
    root = np.linalg.inv(back) * stds
    wanted = np.zeros(6)
    for row in range(6):
        for x in states[:, row, 0].T:
            mean = np.linalg.solve(back, [x[0] / 3, 1 / 9, 2 / 9])
            wanted[row] += stats.multivariate_normal(mean, root @ root.T).logpdf(x[1:])
    np.testing.assert_allclose(finetune.chain_logp(field, std, states, WIDE, 1), wanted / 6)


def test_denoise_logp():
    """By hand: a peak cut to 2, a tail to -5, and 1 std off; the second action where executed."""
    x, std = np.array([[[0.0, 9.0], [0.1, 0.2]]]), np.array([[[1e-3, 1.0], [0.1, 0.2]]])
    off = -0.5 - 0.5 * math.log(2 * math.pi) - np.log([0.1, 0.2])
    got = [finetune.denoise_logp(x, np.zeros((1, 2, 2)), std, n)[0] for n in (1, 2)]
    assert got == pytest.approx([(2 - 5) / 2, (2 - 5 + off.sum()) / 4])
    x, mean = normal(9, 4, 3, 2), normal(10, 4, 3, 2)
    wanted = stats.norm(mean, 2.0).logpdf(x)[:, :2].mean((1, 2))
    np.testing.assert_allclose(finetune.denoise_logp(x, mean, 2.0, 2), wanted)


def test_clip_of_and_denoise_discount():
    assert finetune.clip_of(np.array([0.0, 1.0]), 0.2, 0.01) == pytest.approx([0.01, 0.2])
    half = 1 / (math.exp(1.5) + 1)  # (e^1.5 - 1) / (e^3 - 1)
    assert finetune.clip_of(0.5, 0.2, 0.01) == pytest.approx(0.01 + 0.19 * half)
    assert finetune.clip_of(0.3, 0.01, 0.01) == pytest.approx(0.01)
    np.testing.assert_allclose(finetune.denoise_discount(np.arange(3), 3, 0.5), [0.25, 0.5, 1.0])


def test_ratio_loss_and_normalised_advantages():
    """Ratios 1.5, 0.5, 1.5, 0.5 of advantages 2, -2, -1, 1: the first two are clipped."""
    logp, advantage = np.log([1.5, 0.5, 1.5, 0.5]) - 3.0, np.array([2.0, -2.0, -1.0, 1.0])
    loss = lambda clip: finetune.ratio_loss(logp, np.full(4, -3.0), advantage, clip)  # noqa: E731
    assert loss(0.2) == pytest.approx(-(2.4 - 1.6 - 1.5 + 0.5) / 4)
    assert loss([0.1, 0.2, 0.1, 0.1]) == pytest.approx(-(2.2 - 1.6 - 1.5 + 0.5) / 4)
    assert loss(0.6) == pytest.approx(-(3 - 1 - 1.5 + 0.5) / 4)
    old = normal(11, 4)
    got = gradient(lambda x: finetune.ratio_loss(x, old, advantage, 0.2), old)
    np.testing.assert_allclose(got, -advantage / 4, atol=1e-8)
    got = finetune.normalise_advantage([1.0, 3.0, 5.0])
    np.testing.assert_allclose(got, np.array([-2, 0, 2]) / math.sqrt(8 / 3))
    logp, old, advantage = normal(12, 9) * 0.3, np.zeros(9), normal(13, 9) + 2
    whole = residual.policy_loss(logp, old, advantage, 0.2)[0]
    split = finetune.ratio_loss(logp, old, finetune.normalise_advantage(advantage), 0.2)
    assert whole == pytest.approx(split)


def test_plan_gae():
    """Deltas 1 + 0.5 * 4 - 2 = 1, 2 - 2 = 0 or 2, then 3: an end stops the sum, one bootstraps."""
    terminated, truncated = np.zeros((3, 3)), np.zeros((3, 3))
    terminated[1, 1] = truncated[1, 2] = 1
    columns = [np.repeat(np.array(c)[:, None], 3, 1) for c in ([1, 2, 3], [2, 2, 2], [4, 4, 4.0])]
    got = finetune.plan_gae(*columns, terminated, truncated, gamma=0.5, lam=0.5)
    np.testing.assert_allclose(got[:, 0], [1 + 0.5 + 3 / 16, 2 + 0.75, 3])
    np.testing.assert_allclose(got[:, 1:].T, [[1, 0, 3], [1.5, 2, 3]])


def test_edited():
    base, u = np.array([[0.9, 0.0, -0.9]]), np.array([[50.0, math.atanh(0.5), -50.0]])
    np.testing.assert_allclose(finetune.edited(base, u, 0.2), [[1.1, 0.1, -1.1]])
    np.testing.assert_allclose(finetune.edited(base, u, 0.2, clip=True), [[1.0, 0.1, -1.0]])


def test_expo_target():
    """Least 1, 2 and 0, 3 of two candidates: 2 and 3, where the least of the most is 4 and 3."""
    q = np.array([[[1, 0], [9, 5]], [[4, 3], [2, 8]]], dtype=float)  # [N, E, B]
    target = lambda q: finetune.expo_target([1.0, 1.0], [0.5, 0.25], q)  # noqa: E731
    np.testing.assert_allclose(target(q), [2.0, 1.75])
    np.testing.assert_allclose(target(q[::-1, ::-1]), [2.0, 1.75])
    np.testing.assert_allclose(target(q[:1]), [1.5, 1.0])  # one candidate: plain min
