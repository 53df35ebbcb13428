"""Diffusion against a float64 oracle, and siblings told apart by it."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl import generative
from rl.diffusion import SCHEDULES, Diffusion
from tests.oracles import diffusion as oracle
from tests.test_generative import DATA, KEPT, KEY, NEAR, NOISE, RNG, B, D, drawn, net


@pytest.mark.parametrize("levels", [1, 5, 20, 100])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_signals_and_ladders(schedule: Any, levels: int) -> None:
    signal = Diffusion(levels, schedule, steps=1).signal
    assert signal[0] == 1
    assert (np.diff(signal) < 0).all()
    if schedule != "linear" or levels > 20:  # of few levels its last is cut short
        np.testing.assert_allclose(
            signal[1:], oracle.alpha_bar(schedule, levels), rtol=2e-5, atol=1e-7
        )
    for steps in {1, levels // 2, levels // 3, levels} - {0}:
        assert Diffusion(levels, steps=steps).ladder.tolist() == oracle.ladder(levels, steps)


PREDICTS = "noise", "data", "velocity"


@pytest.mark.parametrize("predicts", PREDICTS)
def test_a_diffusion_s_loss_is_the_oracle_s(predicts: Any) -> None:
    diffusion = Diffusion(levels=6, predicts=predicts, steps=3)
    level_key, noise_key = jax.random.split(KEY)
    level = np.asarray(jax.random.randint(level_key, (B,), 1, 7))
    given, abar = (DATA, drawn(noise_key), level), oracle.alpha_bar("cosine", 6)
    found = diffusion.loss(net(jnp), jnp.asarray(DATA), KEY, KEPT)
    wanted = oracle.diffusion_loss(net(np), *given, abar, predicts, KEPT)
    np.testing.assert_allclose(found, wanted, **NEAR)
    for other in {*PREDICTS} - {predicts}:
        wrong = oracle.diffusion_loss(net(np), *given, abar, other, KEPT)
        assert abs(found - wrong) > 1e-3


def test_every_level_is_learned_as_often() -> None:
    seen = []
    field = lambda x, k: (seen.append(np.asarray(k)), x)[1]  # noqa: E731
    Diffusion(levels=4, steps=4).loss(field, jnp.zeros((4_000, 1)), KEY)
    count = np.bincount(seen[0].astype(int), minlength=6)
    assert count[[0, 5]].tolist() == [0, 0]
    assert (abs(count[1:5] / 4_000 - 0.25) < 0.03).all()


@pytest.mark.parametrize("bounds", [(-np.inf, np.inf), (np.full(D, -0.3), np.full(D, 0.4))])
@pytest.mark.parametrize("eta", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("predicts", PREDICTS)
def test_a_step_and_a_chain_are_the_oracle_s(predicts: Any, eta: float, bounds: Any) -> None:
    diffusion = Diffusion(8, "vp", predicts, steps=4, eta=eta)
    abar, ladder = oracle.alpha_bar("vp", 8), diffusion.ladder
    for k, to in pairwise(ladder):
        given = abar, predicts, eta, bounds
        wanted = oracle.denoise_step(net(np), NOISE, (int(k), int(to)), *given)
        found = diffusion.step(net(jnp), jnp.asarray(NOISE), jnp.int32(k), jnp.int32(to), bounds)
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    states = diffusion.wander(net(jnp), jnp.asarray(NOISE), KEY, 0.1, bounds)
    logp = jnp.zeros(len(NOISE))
    for (k, to), (x, after) in zip(pairwise(ladder), pairwise(states), strict=True):
        mean, std = diffusion.step(net(jnp), x, jnp.int32(k), jnp.int32(to), bounds)
        logp += generative.logp(after, mean, jnp.maximum(std, 0.1)).sum(1)
    told = [int(k) for k in ladder], abar, predicts
    wanted = oracle.chain_log_likelihood(net(np), np.asarray(states), *told, (eta, 0.1), bounds)
    np.testing.assert_allclose(logp, wanted, rtol=1e-4, atol=2e-3)
    wrong = oracle.chain_log_likelihood(net(np), np.asarray(states), *told, (eta, 0.2), bounds)
    assert np.abs(logp - wrong).max() > 0.1
    plain = diffusion.sample(net(jnp), jnp.asarray(NOISE), KEY, bounds)
    again = diffusion.sample(net(jnp), jnp.asarray(NOISE), jax.random.key(9), bounds)
    assert np.allclose(plain, again) == (eta == 0)
    assert (np.asarray(plain) >= bounds[0] - 1e-5).all()
    assert (np.asarray(plain) <= bounds[1] + 1e-5).all()


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_a_diffusion_of_gaussians_ends_in_them(eta: float) -> None:
    mean, std = np.array([1.0, -2, 0.5]), np.array([0.3, 1, 2])
    diffusion = Diffusion(100, predicts="noise", steps=100, eta=eta)
    share = lambda k: diffusion.signal[k.astype(int)][:, None]  # noqa: E731

    def field(x: jax.Array, k: jax.Array) -> jax.Array:
        clear = jnp.sqrt(share(k))
        return jnp.sqrt(1 - share(k)) / (share(k) * std**2 + 1 - share(k)) * (x - clear * mean)

    x = RNG.normal(size=(5, D))
    wanted = oracle.gaussian_epsilon(x, float(diffusion.signal[40]), mean, std)
    np.testing.assert_allclose(field(x, jnp.full(5, 40.0)), wanted, rtol=1e-4)
    found = diffusion.sample(field, jax.random.normal(KEY, (8_000, D)), jax.random.key(1))
    np.testing.assert_allclose(found.mean(0), mean, atol=0.1)
    np.testing.assert_allclose(found.std(0), std, rtol=0.08)
