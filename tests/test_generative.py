"""Flows against a float64 oracle, and siblings told apart by it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl.diffusion import Diffusion
from rl.generative import Flow, Shortcut
from tests.oracles import generative as oracle

KEY, B, D = jax.random.key(3), 8, 3
RNG = np.random.default_rng(0)
W, V = RNG.normal(size=(D, D)) / 3, RNG.normal(size=D)
DATA, NOISE = (RNG.normal(size=(B, D)).astype("f4") for _ in range(2))
KEPT = RNG.random((B, D)) < 0.6
CONVENTIONS = "data_at_one", "noise_at_one"
OTHER = dict(zip(CONVENTIONS, CONVENTIONS[::-1], strict=True))
NEAR = {"rtol": 1e-5, "atol": 1e-5}


def net(xp: Any) -> Any:
    """A field of jax.numpy or numpy that no time, level, size or entry leaves alone."""

    def field(x: Any, time: Any, size: Any = None) -> Any:
        told = time[:, None] * V + (0 if size is None else 3 * size[:, None])
        return xp.tanh(x @ W + told / 2) + 0.3 * x

    return field


def drawn(key: jax.Array, shape: tuple[int, ...] = (B, D)) -> np.ndarray:
    return np.asarray(jax.random.normal(key, shape))


@pytest.mark.parametrize("times", ["uniform", "logit_normal", "beta"])
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_flow_s_loss_is_the_oracle_s(convention: Any, times: Any) -> None:
    flow = Flow(convention=convention, times=times)
    time_key, noise_key = jax.random.split(KEY)
    time = np.asarray(flow.drawn(time_key, B))
    given = DATA, drawn(noise_key), time
    for kept in (None, KEPT):
        found = flow.loss(net(jnp), jnp.asarray(DATA), KEY, kept)
        np.testing.assert_allclose(
            found, oracle.flow_loss(net(np), *given, convention, kept), **NEAR
        )
    wrong = oracle.flow_loss(net(np), *given, OTHER[convention], KEPT)
    assert abs(found - wrong) > 1e-3


def test_times_are_drawn_as_they_are_named() -> None:
    at = lambda **said: np.asarray(Flow(**said).drawn(KEY, 20_000))  # noqa: E731
    assert abs(at(times="uniform").mean() - 0.5) < 0.01
    normal = np.random.default_rng(0).normal(size=20_000)
    wanted = np.quantile(oracle.logit_normal(normal, 0.0, 1.0), [0.1, 0.5, 0.9])
    found = np.quantile(at(times="logit_normal"), [0.1, 0.5, 0.9])
    np.testing.assert_allclose(found, wanted, atol=0.015)
    for convention, mean in (("noise_at_one", 0.6), ("data_at_one", 0.4)):  # 1.5 / 2.5 at noise
        times = at(times="beta", convention=convention)
        assert abs(times.mean() - mean) < 0.01
        assert 0 <= times.min() < times.max() <= 1


@pytest.mark.parametrize("solver", ["euler", "heun"])
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_what_a_flow_draws_is_what_the_oracle_draws(convention: Any, solver: Any) -> None:
    flow = Flow(steps=5, solver=solver, convention=convention)
    solve = getattr(oracle, solver)
    found = flow.sample(net(jnp), jnp.asarray(NOISE), KEY)
    np.testing.assert_allclose(found, solve(net(np), NOISE, 5, convention), **NEAR)
    sibling = oracle.heun if solver == "euler" else oracle.euler
    for wrong in (
        sibling(net(np), NOISE, 5, convention),
        solve(net(np), NOISE, 5, OTHER[convention]),
    ):
        assert np.abs(found - wrong).max() > 1e-3
    bounded = flow.sample(net(jnp), jnp.asarray(NOISE), KEY, (-0.1, 0.2))
    np.testing.assert_array_equal(bounded, np.clip(found, -0.1, 0.2))


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_how_likely_a_flow_s_chain_is(convention: Any) -> None:
    flow, std = Flow(steps=4, convention=convention), np.array([0.5, 0.2, 0.1, 0.05])
    at = lambda x, t: jnp.asarray(std)[jnp.round(4 * flow.time(t)).astype(int)][:, None]  # noqa: E731
    states = flow.wander(net(jnp), at, jnp.asarray(NOISE), KEY)
    assert states.shape == (5, B, D)
    np.testing.assert_array_equal(states[0], NOISE)
    logp = flow.densities(net(jnp), at, states).sum((0, 2))
    wanted = oracle.flow_chain_log_likelihood(net(np), np.asarray(states), std, convention)
    np.testing.assert_allclose(logp, wanted, rtol=1e-4, atol=1e-4)
    z = [
        (x - flow.step(net(jnp), before, jnp.int32(i))) / s
        for i, (before, x, s) in enumerate(zip(states[:-1], states[1:], std, strict=True))
    ]
    assert 0.7 < np.std(z) < 1.3
    wrong = oracle.flow_chain_log_likelihood(net(np), np.asarray(states), std[::-1], convention)
    assert np.abs(logp - wrong).min() > 0.1


def test_a_flow_of_gaussians_ends_in_them() -> None:
    mean, std = np.array([1.0, -2, 0.5]), np.array([0.3, 1, 2])
    field = lambda x, t: jnp.asarray(  # noqa: E731
        mean
        + (t[:, None] * std**2 - (1 - t[:, None]))
        / ((1 - t[:, None]) ** 2 + (t[:, None] * std) ** 2)
        * (x - t[:, None] * mean)
    )
    x, t = RNG.normal(size=(5, D)), RNG.random(5)
    np.testing.assert_allclose(field(x, t), oracle.gaussian_velocity(x, t, mean, std), rtol=1e-5)
    noise = drawn(KEY, (4_000, D))
    found = Flow(steps=100, solver="heun").sample(field, jnp.asarray(noise), KEY)
    np.testing.assert_allclose(found, mean + std * noise, atol=5e-3)  # its paths are exact


def shortcut_parts(short: Shortcut) -> tuple[Any, ...]:
    """What its loss draws of KEY: noise, times, half sizes, and who is consistent."""
    size_key, time_key, noise_key = jax.random.split(KEY, 3)
    rest = round(short.consistent * B)
    power = jax.random.randint(size_key, (B,), 0, short.finest.bit_length() - 1)
    consistent = np.arange(B) < rest
    half = np.where(consistent, 2.0 ** np.asarray(power) / short.finest, 0)
    time = np.asarray(jax.random.uniform(time_key, (B,)))
    grid = np.where(consistent, 2 * half, 1)
    time = np.where(consistent, np.floor(time / grid) * grid, time)
    return drawn(noise_key), time, half, consistent


def untold(short: Shortcut) -> Any:
    """The oracle's field, which hears of its finest step that it is none."""
    return lambda x, t, d: net(np)(x, t, np.where(d <= 1 / short.finest, 0, d))


def test_a_shortcut_s_loss_and_what_it_draws_are_the_oracle_s() -> None:
    short = Shortcut(finest=4, consistent=0.75)
    noise, time, half, consistent = shortcut_parts(short)
    assert {*half[consistent]} == {0.25, 0.5}
    assert (time + 2 * half <= 1).all()
    field, slow = net(jnp), lambda x, t, d: 2 * net(jnp)(x, t, d)
    found = short.loss(field, slow, jnp.asarray(DATA), KEY)
    teacher = lambda x, t, d: 2 * untold(short)(x, t, d)  # noqa: E731
    given = DATA, noise, time, half, consistent
    np.testing.assert_allclose(found, oracle.shortcut_loss(net(np), teacher, *given), **NEAR)
    assert abs(found - oracle.shortcut_loss(net(np), untold(short), *given)) > 1e-3
    grads = jax.grad(lambda a: short.loss(field, lambda *x: a * slow(*x), jnp.asarray(DATA), KEY))
    assert grads(1.0) == 0  # nobody teaches the teacher
    for steps in (1, 2, 4):
        drawn = Shortcut(steps, 4).sample(field, jnp.asarray(NOISE), KEY)
        np.testing.assert_allclose(
            drawn, oracle.shortcut_sample(untold(short), NOISE, steps), **NEAR
        )


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Flow(steps=0), "steps is 0"),
        (
            lambda: Diffusion(levels=5, steps=6),
            "steps is 6; it takes a count of at most its levels, 5",
        ),
        (lambda: Diffusion(eta=1.5), "eta is 1.5"),
        (lambda: Shortcut(finest=12), "finest is 12; it takes a power of two"),
        (lambda: Shortcut(steps=3), "steps is 3; it takes a power of two up to finest, 16"),
        (lambda: Shortcut(consistent=1.0), "consistent is 1.0"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()
