"""The oracle of diffusion, against what needs no implementation."""

import math
from itertools import pairwise

import numpy as np
import pytest

from tests.oracles import diffusion
from tests.test_oracles_generative import MEAN, STD, joint, normal

SCHEDULES = ["cosine", "linear", "vp"]
FREE = (-math.inf, math.inf)


def epsilon(abar):
    return lambda x, k: diffusion.gaussian_epsilon(x, abar[k - 1], MEAN, STD)


def test_schedules():
    k = np.arange(1, 11)
    square = lambda k: np.cos((k / 10 + 0.008) / 1.008 * np.pi / 2) ** 2  # noqa: E731
    got = diffusion.alpha_bar("cosine", 10)
    np.testing.assert_allclose(got[:-1], square(k[:-1]) / square(0))
    assert got[-1] == pytest.approx(got[-2] * 0.001)
    got = diffusion.alpha_bar("vp", 10)
    np.testing.assert_allclose(got, np.exp(-0.1 * k / 10 - 0.5 * 9.9 * (k / 10) ** 2))
    got = diffusion.alpha_bar("linear", 1000)  # DDPM's own
    assert got[0] == pytest.approx(1 - 1e-4)
    assert got[-1] / got[-2] == pytest.approx(0.98)
    assert got[-1] == pytest.approx(4.0358e-5, rel=1e-4)
    got = diffusion.alpha_bar("linear", 50)
    assert got[0] == pytest.approx(1 - 0.002)
    assert got[-1] / got[-2] == pytest.approx(0.6)
    with pytest.raises(AssertionError, match="reaches 1"):
        diffusion.alpha_bar("linear", 20)


def test_ladder():
    assert diffusion.ladder(10, 4) == [10, 8, 5, 3, 0]
    assert diffusion.ladder(9, 6) == [9, 8, 6, 5, 3, 2, 0]
    assert diffusion.ladder(100, 10) == list(range(100, -1, -10))
    assert diffusion.ladder(7, 7) == list(range(7, -1, -1))
    assert diffusion.ladder(7, 1) == [7, 0]


def test_the_three_predictions_are_one():
    abar, x = diffusion.alpha_bar("cosine", 10), normal(4, 5, 2)
    nets = {"noise": epsilon(abar)}
    kept, lost = np.sqrt(abar), np.sqrt(1 - abar)
    data = lambda x, k: (x - lost[k - 1][:, None] * nets["noise"](x, k)) / kept[k - 1][:, None]  # noqa: E731
    nets["data"] = data
    nets["velocity"] = lambda x, k: (
        kept[k - 1][:, None] * nets["noise"](x, k) - lost[k - 1][:, None] * data(x, k)
    )
    for low, high in (FREE, (-0.4, 0.4), (np.array([-0.1, -2.0]), np.array([0.3, 0.0]))):
        for k, k_prev, eta in ((7, 6, 1.0), (10, 3, 0.5), (1, 0, 1.0)):
            steps = [
                diffusion.denoise_step(net, x, (k, k_prev), abar, name, eta, (low, high))
                for name, net in nets.items()
            ]
            for mean, std in steps[1:]:
                np.testing.assert_allclose(mean, steps[0][0], rtol=1e-9)
                assert std == steps[0][1]
            if k_prev == 0:
                assert std == 0.0
                assert (mean >= low).all()
                assert (mean <= high).all()


def test_diffusion_loss():
    abar = np.array([0.64, 0.36])
    data, noise, k = np.array([[1.0, -1.0], [0.5, 2.0]]), np.array([[0.5, 0.0], [1, -1]]), [1, 2]
    x = np.array([[0.8 + 0.3, -0.8], [0.3 + 0.8, 1.2 - 0.8]])
    targets = {
        "noise": noise,
        "data": data,
        "velocity": np.array([[0.4 - 0.6, 0.6], [0.6 - 0.4, -0.6 - 1.6]]),
    }
    mask = np.array([[1, 0], [1, 1]])
    for name, target in targets.items():

        def net(got, k, target=target):
            np.testing.assert_allclose(got, x)
            np.testing.assert_array_equal(k, [1, 2])
            return target + np.array([[1.0, 2.0], [3.0, 4.0]])

        loss = diffusion.diffusion_loss(net, data, noise, k, abar, name)
        assert loss == pytest.approx(30 / 4)
        loss = diffusion.diffusion_loss(net, data, noise, k, abar, name, mask)
        assert loss == pytest.approx(26 / 3)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_ddpm_posterior(schedule):
    """Ho et al. 2020, eq. 7, by Bayes: q(x_{k-1} | x_k, x_0) of two Gaussians multiplied."""
    abar, x, data = diffusion.alpha_bar(schedule, 30), normal(5, 6, 2), normal(6, 6, 2)
    for k in range(2, 31):
        alpha = abar[k - 1] / abar[k - 2]
        precision = alpha / (1 - alpha) + 1 / (1 - abar[k - 2])
        pull = np.sqrt(alpha) * x / (1 - alpha) + np.sqrt(abar[k - 2]) * data / (1 - abar[k - 2])
        mean, std = diffusion.denoise_step(
            lambda x, k: data, x, (k, k - 1), abar, "data", 1.0, FREE
        )
        np.testing.assert_allclose(mean, pull / precision, rtol=1e-9)
        assert std**2 == pytest.approx(1 / precision)
        tilde = (1 - abar[k - 2]) / (1 - abar[k - 1]) * (1 - alpha)
        assert std**2 == pytest.approx(tilde)


@pytest.mark.parametrize("eta", [0.0, 1.0])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_sampling_a_gaussian(schedule, eta):
    abar = diffusion.alpha_bar(schedule, 200)
    # "vp" leaves exp(-5.05) of the data in its last level: begin with what that level is.
    x = math.sqrt(abar[-1]) * MEAN + np.sqrt(abar[-1] * STD**2 + 1 - abar[-1]) * normal(7, 20000, 2)
    drawn, ks = np.random.default_rng(8), diffusion.ladder(200, 200)
    for k, k_prev in pairwise(ks):
        mean, std = diffusion.denoise_step(
            epsilon(abar), x, (k, k_prev), abar, "noise", eta, FREE
        )  # fmt: skip
        x = mean + std * drawn.standard_normal(x.shape) if std > 0 else mean
    np.testing.assert_allclose(x.mean(axis=0), MEAN, atol=0.04)
    # beta-tilde leaves out how unsure the data are: with eta = 1 the spread is low, by O(1 / K).
    np.testing.assert_allclose(x.std(axis=0), STD, rtol=0.06 if eta else 0.03)


def test_chain_likelihood_is_the_joint_density():
    abar, ks, eta, least = diffusion.alpha_bar("cosine", 12), [12, 8, 4, 1, 0], 0.7, 0.2
    chain = normal(9, 5, 3, 2)
    got = diffusion.chain_log_likelihood(
        epsilon(abar), chain, ks, abar, "noise", (eta, least), FREE
    )  # fmt: skip
    wanted = np.zeros(3)
    for j in range(2):
        slopes, shifts, stds = [], [], []
        for k, k_prev in pairwise(ks):
            a, b = abar[k - 1], abar[k_prev - 1] if k_prev else 1.0
            # E[data | x] = m + gain (x - sqrt(a) m), then DDIM's eq. 12, both linear in x.
            gain = math.sqrt(a) * STD[j] ** 2 / (a * STD[j] ** 2 + 1 - a)
            rest = MEAN[j] * (1 - gain * math.sqrt(a))
            std = eta * math.sqrt((1 - b) / (1 - a) * (1 - a / b))
            turn = math.sqrt(1 - b - std**2) / math.sqrt(1 - a)
            slopes.append(math.sqrt(b) * gain + turn * (1 - math.sqrt(a) * gain))
            shifts.append((math.sqrt(b) - turn * math.sqrt(a)) * rest)
            stds.append(max(std, least))
        assert stds[-1] == least
        assert stds[0] > least
        wanted += joint(slopes, shifts, stds, chain[:, :, j])
    np.testing.assert_allclose(got, wanted)
