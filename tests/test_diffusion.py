"""Diffusion, plain and steered, against a float64 oracle, and siblings told apart by it."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.diffusion_bc import DiffusionBC
from rl import generative
from rl.chunks import Chunks
from rl.diffusion import SCHEDULES, Diffusion
from rl.guidance import Doit
from tests.learners import f64
from tests.oracles import diffusion as oracle
from tests.oracles import steering
from tests.planners import A, told_apart
from tests.test_generative import DATA, KEPT, KEY, NEAR, NOISE, RNG, B, D, drawn, net
from tests.test_guidance import hills, some


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


WIDE = Diffusion(10, "vp", "noise", steps=5, eta=0.7)
WEIGHTS = some(3 * A, 3 * A, seed=5) / 4


def curved(x: Any) -> Any:
    """A prediction of noise [B, H, A] whose slope is another everywhere."""
    lib = jnp if isinstance(x, jax.Array) else np
    return lib.tanh(x.reshape(len(x), -1) @ WEIGHTS).reshape(x.shape)


def curved_back(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    out = np.tanh(x.reshape(len(x), -1) @ WEIGHTS)
    return ((g.reshape(len(x), -1) * (1 - out**2)) @ WEIGHTS.T).reshape(x.shape)


def steered64(x: np.ndarray, noises: np.ndarray, levels: Any, ends: Any, **to: Any) -> np.ndarray:
    """Mean of a step: the oracle's, its noise that of data within bounds, whose slope is theirs."""
    how = {"cut": "plans, data", "temperature": 0.5, "gain": 0.5, "standardise": True,
           "worth": hills, "back": curved_back} | to  # fmt: skip
    shape, flat = x.shape, x.reshape(len(x), -1)
    (clear, rest), (later, less) = times = [
        (np.sqrt(s), np.sqrt(1 - s)) for s in f64(WIDE.signal)[list(levels)]
    ]
    data = lambda x: (x - rest * curved(x.reshape(shape)).reshape(x.shape)) / clear  # noqa: E731
    noise = lambda x: (x - clear * np.clip(data(x), *ends)) / rest  # noqa: E731

    def slope(x: np.ndarray, g: np.ndarray) -> np.ndarray:
        within = data(x) == np.clip(data(x), *ends)
        free = how["back"](x.reshape(shape), (g * within).reshape(shape)).reshape(x.shape)
        return free + g * ~within / rest

    bounds = ends if "plans" in how["cut"] else (-np.inf, np.inf)
    nets = (
        noise, slope, lambda x: how["worth"](np.clip(x, *bounds).reshape(shape)),
        lambda r: steering.doit_weights(r, how["temperature"], how["standardise"]),
    )  # fmt: skip
    noises = noises.reshape(len(noises), *flat.shape)
    mean = steering.doit_step(nets, flat, noises, 0 * flat, times, (WIDE.eta, how["gain"]))
    spread = np.sqrt(less**2 - steering.doit_std(*times, WIDE.eta) ** 2)
    turned = (mean - later / clear * flat) / (spread - later / clear * rest)  # the steered noise
    if "data" in how["cut"]:
        mean = later * np.clip((flat - rest * turned) / clear, *ends) + spread * turned
    return mean.reshape(shape)


@pytest.mark.parametrize("ends", [(-99.0, 99.0), (-0.4, 0.5)])
def test_a_steered_step_is_the_oracles(ends: tuple[float, float]) -> None:
    (level, to), x = (8, 6), some(B, 3, A) / 2
    half = f64(jax.random.normal(KEY, (3, B, 3, A)))
    noises = np.concatenate([half, -half])
    right = lambda noises=noises, ends=ends, **to: steered64(x, noises, (8, 6), ends, **to)  # noqa: E731
    step = Doit(proposals=6).steered(WIDE, lambda x, _: curved(x), hills, ends)
    given = jnp.asarray(x, jnp.float32), jnp.int32(level), jnp.int32(to), KEY
    mean, std = jax.jit(step)(*given, jnp.bool(True))
    wrong = {
        "unsteered": right(gain=0), "twice": right(gain=1.0), "hotter": right(temperature=1.0),
        "worth as it is": right(standardise=False),
        "the worst": right(worth=lambda x: -hills(x)),
        "no slope of the net": right(back=lambda x, g: 0 * x),
        "not opposite": right(noises=half),
    }  # fmt: skip
    if ends[1] < 9:
        wrong |= {
            "no bounds": right(ends=(-99.0, 99.0)), "plans not cut": right(cut="data"),
            "steered data not cut": right(cut="plans"),
        }  # fmt: skip
    told_apart(mean, right(), wrong)
    share = f64(WIDE.signal)
    now, after = ((np.sqrt(s), np.sqrt(1 - s)) for s in (share[level], share[to]))
    np.testing.assert_allclose(std, steering.doit_std(now, after, WIDE.eta), rtol=1e-5)
    plain, _ = WIDE.step(lambda x, _: curved(x), jnp.asarray(x), level, to, ends)
    off, _ = step(*given, jnp.bool(False))
    np.testing.assert_allclose(off, plain, rtol=1e-6)


class Curved(DiffusionBC):
    """A diffusion that is told nothing of its levels."""

    def field(self, params: Any, x: jax.Array, seen: Any, level: jax.Array) -> jax.Array:
        return curved(x)


@pytest.mark.parametrize(("last", "steps"), [(0.01, 1), (0.4, 2), (0.6, 3), (1.0, 4)])
def test_the_last_steps_but_one_are_steered(last: float, steps: int) -> None:
    """Those before them are a plain walk's, as is the very last."""
    base = Curved(Chunks(horizon=3, execute=3), diffusion=replace(WIDE, steps=10, eta=1.0))
    guide, ends = Doit(count=1, proposals=6, eta=WIDE.eta, last=last), (-0.7, 0.8)
    draw = guide.guided(base, WIDE.steps, lambda params, seen, plan: hills(plan))
    noise = jax.random.normal(jax.random.key(1), (B, 3, A))
    ours = jax.jit(draw)({"net": {}}, noise, jnp.zeros((B, 1, 1)), KEY, ends)
    keys = jax.vmap(jax.random.split)(jax.random.split(jax.random.split(KEY)[1], WIDE.steps))
    ladder, abar = oracle.ladder(10, 5), oracle.alpha_bar("vp", 10)

    def go(*steered: int) -> np.ndarray:
        x = f64(noise)
        for i, levels in enumerate(pairwise(ladder)):
            half, fresh = (f64(jax.random.normal(keys[i, j], (n, *x.shape)))
                           for j, n in ((0, 3), (1, 1)))  # fmt: skip
            mean, std = oracle.denoise_step(
                lambda x, _: curved(x), x, levels, abar, "noise", WIDE.eta, ends
            )
            if i in steered:
                mean = steered64(x, np.concatenate([half, -half]), levels, ends)
            x = mean + std * fresh[0]
        return x

    every = {1: go(3), 2: go(2, 3), 3: go(1, 2, 3), 4: go(0, 1, 2, 3)}
    wrong = {f"the last {n}": x for n, x in every.items() if n != steps}
    told_apart(ours, every[steps], wrong | {"none": go(), "the step before": go(2)})
