"""What is done with policies that plan without teaching them: by an oracle, and where densities are
known."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.bc import BC
from agents.diffusion_bc import DiffusionBC
from agents.flow_bc import FlowBC
from agents.idql import IDQL
from rl import guidance
from rl.chunks import Chunks
from rl.diffusion import Diffusion
from rl.generative import Flow, Shortcut
from rl.guidance import Best, Cdsa, Doit
from tests import planners
from tests.learners import f64
from tests.oracles import steering as oracle
from tests.planners import KEY, A, told_apart

B, MANY = 16, 4
MEAN, STD = 0.3, 0.6  # of the data whose densities are known


def some(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


def test_the_best_of_each_row_are_kept_in_order() -> None:
    plans, worth = some(MANY, B, 3, A), some(MANY, B, seed=1)
    at = oracle.top(worth, 2)
    want = np.stack([plans[at[i], np.arange(B)] for i in range(2)])
    got = guidance.top(jnp.asarray(plans), jnp.asarray(worth), 2)
    told_apart(got, want, {"in another order": want[::-1], "the worst": plans[:2]})


HEIGHTS = np.linspace(0.7, 1.3, 3 * A).reshape(3, A)


def hills(plan: Any) -> Any:
    """Worth [...] of plans [..., H, A]: several hills."""
    lib = jnp if isinstance(plan, jax.Array) else np
    return (HEIGHTS * lib.sin(3 * plan) - 0.2 * plan**2).sum((-2, -1))


def slope(plan: np.ndarray) -> np.ndarray:
    return 3 * HEIGHTS * np.cos(3 * plan) - 0.4 * plan


def test_a_plan_moved_uphill_is_the_best_it_came_by() -> None:
    plans, (low, high) = some(MANY, B, 3, A), (-1.2, 1.1)
    plans = np.clip(plans, low, high)
    size = 0.4  # so large that some leap over the top
    want, most = oracle.ascended(hills, slope, plans, low, high, size, 5)
    got, worth = jax.jit(lambda x: guidance.uphill(hills, x, size, 5, (low, high)))(plans)
    last = plans
    for _ in range(5):
        last = np.clip(last + size * slope(last), low, high)
    short, _ = oracle.ascended(hills, slope, plans, low, high, size, 4)
    free, _ = oracle.ascended(hills, slope, plans, -9, 9, size, 5)
    down, _ = oracle.ascended(hills, lambda x: -slope(x), plans, low, high, size, 5)
    wrong = {"the last": last, "a step less": short, "no bounds": free, "downhill": down,
             "where it began": plans}  # fmt: skip
    told_apart(got, want, wrong)
    told_apart(worth, most, {"of the last": hills(last)})


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 50), st.integers(0, 6), st.integers(0, 99))
def test_moving_uphill_never_makes_worse(size: float, steps: int, seed: int) -> None:
    plans = jnp.asarray(np.clip(some(2, 5, 3, A, seed=seed), -1, 1), jnp.float32)
    got, worth = guidance.uphill(hills, plans, size, steps, (-1.0, 1.0))
    assert (worth >= hills(plans) - 1e-5).all()
    np.testing.assert_allclose(worth, hills(got), atol=1e-5)
    assert jnp.abs(got).max() <= 1


def velocity(x: Any, time: Any, *_: Any) -> Any:
    return planners.Broad(mean=MEAN, std=STD).field({}, x, None, time)


@pytest.mark.parametrize(
    ("flow", "field"),
    [
        (Flow(), velocity),
        (Flow(convention="noise_at_one"), lambda x, time: -velocity(x, 1 - time)),
        (Shortcut(), velocity),
    ],
)
def test_a_flow_tells_how_dense_its_data_are(flow: Any, field: Any) -> None:
    plans, blur = some(B, 3, A), 0.5
    exact = -(plans - MEAN) / (STD**2 + blur**2)
    flat = oracle.flow_score(velocity, plans.reshape(-1, 1, 1), 1 / (1 + blur))
    np.testing.assert_allclose(flat.reshape(plans.shape), exact, rtol=1e-4, atol=1e-5)
    wrong = {"unblurred": -(plans - MEAN) / STD**2, "away": -exact}
    told_apart(flow.score(field, jnp.asarray(plans), blur), exact, wrong)


@pytest.mark.parametrize("predicts", ["noise", "data", "velocity"])
def test_a_diffusion_tells_how_dense_its_data_are(predicts: Any) -> None:
    """Of the level whose noise is nearest to that asked for."""
    diffusion, plans = Diffusion(12, predicts=predicts, steps=12), some(B, 3, A)
    blurs = np.sqrt(1 / f64(diffusion.signal)[1:] - 1)
    exact = -(plans - MEAN) / (STD**2 + blurs[3] ** 2)
    wrong = {"the next": -(plans - MEAN) / (STD**2 + blurs[4] ** 2), "away": -exact}
    asked = float(0.6 * blurs[3] + 0.4 * blurs[4])
    got = diffusion.score(gaussian(diffusion), jnp.asarray(plans), asked)
    told_apart(got, exact, wrong)


def gaussian(diffusion: Diffusion) -> Any:
    """The best prediction where data are Gaussian."""

    def field(x: Any, level: Any) -> Any:
        share = diffusion.signal[level.astype(int)].reshape(-1, *[1] * (x.ndim - 1))
        clear, rest = jnp.sqrt(share), jnp.sqrt(1 - share)
        data = MEAN + STD**2 * clear / (share * STD**2 + 1 - share) * (x - clear * MEAN)
        noise = (x - clear * data) / rest
        kinds = {"noise": noise, "data": data, "velocity": clear * noise - rest * data}
        return kinds[diffusion.predicts]

    return field


def test_a_careful_plan_goes_where_data_are_denser() -> None:
    """As the oracle moves it: nearer to the data's mean, within bounds, and not of another's."""
    draw = lambda params, noise, seen, key, bounds: noise  # noqa: E731
    score = lambda params, seen, plan: -(plan - seen) / STD**2  # noqa: E731
    plans, (low, high) = 2 * some(B, 3, A), (-1.0, 1.2)
    seen = some(B, 3, A, seed=1)
    ours = guidance.careful(draw, score, 0.1, 3)({}, plans, seen, KEY, (low, high))
    exact = lambda size, count, *ends: oracle.cdsa(  # noqa: E731
        lambda x: -(x - seen) / STD**2, plans, size, count, *ends
    )
    wrong = {"a step less": exact(0.1, 2, low, high), "away": exact(-0.1, 3, low, high),
             "no bounds": exact(0.1, 3, -99, 99), "none": plans}  # fmt: skip
    told_apart(ours, exact(0.1, 3, low, high), wrong)


class Known(DiffusionBC):
    """The diffusion of Gaussian data, which nothing need learn."""

    def field(self, params: Any, x: jax.Array, seen: Any, level: jax.Array) -> jax.Array:
        return gaussian(self.diffusion)(x, level)


@pytest.mark.parametrize(("strength", "least", "most"), [(0.0, -0.05, 0.05), (0.3, 0.3, 1.5)])
def test_what_is_steered_is_worth_more(strength: float, least: float, most: float) -> None:
    """Where worth is the mean of a plan's numbers, it is by so many stds that theirs is above."""
    base = Known(Chunks(horizon=3, execute=3), diffusion=Diffusion(levels=20, steps=10))
    guide = Doit(count=1, proposals=16, strength=strength, eta=1.0)
    draw = guide.guided(base, 0, lambda params, seen, plan: plan.mean((1, 2)))
    noise = jax.random.normal(KEY, (2000, 3, A))
    plans = jax.jit(lambda: draw({"net": {}}, noise, jnp.zeros((2000, 1, 1)), KEY, (-9.0, 9.0)))()
    assert least < (plans.mean() - MEAN) / STD < most
    assert 0.6 < plans.std() / STD < 1.4


@pytest.mark.parametrize("guide", [Best(3), Cdsa(count=3, steps=1, size=0.0), Doit(count=3)])
def test_of_several_plans_the_best_is_done(guide: Any) -> None:
    base = Known(Chunks(horizon=3, execute=3), diffusion=Diffusion(levels=10, steps=5))
    worth = lambda params, seen, plan: -((plan - 1) ** 2).mean((1, 2))  # noqa: E731
    noise, seen = jax.random.normal(KEY, (500, 3, A)), jnp.zeros((500, 1, 1))
    value = {}
    for count in (1, 3):
        draw = type(guide)(**vars(guide) | {"count": count}).guided(base, 0, worth)
        plans = draw({"net": {}}, noise, seen, KEY, (-9.0, 9.0))
        value[count] = float(worth({}, seen, plans).mean())
    assert value[3] > value[1] + 0.05


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Best(0), "Best's count is 0; it takes a count of at least 1"),
        (lambda: Doit(proposals=5), "Doit's proposals is 5; it takes an even count above 0"),
        (lambda: Doit(eta=0.0), r"Doit's eta is 0.0; it takes a share in \(0, 1\]"),
        (lambda: Doit(last=10), r"Doit's last is 10; it takes a share in \(0, 1\]"),
        (lambda: Cdsa(blur=0.0), "Cdsa's blur is 0.0; it takes a number above 0"),
        (lambda: IDQL(FlowBC(), guide=Doit()), "steers a diffusion's steps; FlowBC has none"),
        (
            lambda: IDQL(DiffusionBC(), passes=1, guide=Doit()),
            "never steers a diffusion's last step, and there is no other",
        ),
        (lambda: Cdsa().require(BC(), 0), "how dense data are, which BC can't say"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()
