"""Policies that plan several actions at a time: what they learn of, and what they execute."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.diffusion_bc import DiffusionBC
from agents.dppo import DPPO
from agents.dsrl import DSRL
from agents.flow_bc import FlowBC
from agents.fql import FQL
from agents.reinflow import ReinFlow
from rl import chunks, executors
from rl.chunks import Chunks
from rl.policy import Policy
from rl.types import Transition
from tests.oracles import chunks as oracle

H, A, T = 4, 2, 23
RNG = np.random.default_rng(0)
OBS = RNG.normal(size=(T, 3)).astype("f4")
W = RNG.normal(size=(3, H * A)).astype("f4")


def planned(params: Any, seen: jax.Array, key: Any) -> jax.Array:
    """A plan by what is seen last and how it came to that."""
    return jnp.tanh(seen[-1] @ W + 0.5 * seen.sum() + params).reshape(H, A)


def by_hand(tick: int, obs: np.ndarray, history: int = 1) -> np.ndarray:
    seen = OBS[np.maximum(np.arange(tick - history + 1, tick + 1), 0)]
    return np.tanh(obs @ W + 0.5 * seen.sum()).reshape(H, A)


def begin(history: int) -> Any:
    return lambda params: (jnp.zeros((history, 3)), jnp.zeros((H, A)))


def played(policy: Policy) -> np.ndarray:
    """What it does when it sees OBS, one after another."""

    def tick(carry: Any, obs: jax.Array) -> tuple[Any, jax.Array]:
        action, carry, _ = policy.step(0.0, carry, obs, jax.random.key(0))
        return carry, action

    return np.asarray(jax.lax.scan(tick, policy.init(0.0), jnp.asarray(OBS))[1])


LOOK = lambda params, obs: obs  # noqa: E731


@pytest.mark.parametrize("history", [1, 3])
@pytest.mark.parametrize("execute", [1, 3, 4])
def test_so_many_actions_of_each_plan_are_executed(execute: int, history: int) -> None:
    policy = executors.receding(planned, LOOK, begin(history), execute)
    wanted = oracle.receding(partial(by_hand, history=history), OBS, execute)
    np.testing.assert_allclose(played(policy), wanted, atol=1e-5)
    other = oracle.receding(partial(by_hand, history=history), OBS, execute % H + 1)
    assert np.abs(played(policy) - other).max() > 0.1


@pytest.mark.parametrize("decay", [0.0, 0.7])
def test_plans_that_overlap_are_averaged(decay: float) -> None:
    policy = executors.ensembled(planned, LOOK, begin(2), decay)
    plan = partial(by_hand, history=2)
    np.testing.assert_allclose(played(policy), oracle.ensembled(plan, OBS, decay), atol=1e-5)
    wrong = oracle.ensembled(plan, OBS, decay + 0.3)
    assert np.abs(played(policy) - wrong).max() > 0.01


def test_worlds_plan_together_and_only_when_one_needs_to() -> None:
    """Two seeds of three worlds, of which one begins anew in the middle of a plan."""
    made = []

    def counted(params: Any, seen: jax.Array, key: Any) -> jax.Array:
        jax.debug.callback(lambda: made.append(1))
        return planned(params, seen, key)

    def run(plan: Any, params: jax.Array) -> jax.Array:
        policy = executors.receding(plan, LOOK, begin(2), 4)
        worlds, first = jnp.arange(3), policy.init(params)

        def tick(carry: Any, now: tuple[Any, ...]) -> tuple[Any, jax.Array]:
            t, obs = now
            new = jax.tree.map(lambda x: jnp.broadcast_to(x, (3, *x.shape)), first)
            anew = (worlds == 1) & (t == 6)
            carry = jax.tree.map(
                lambda x, y: jnp.where(anew.reshape(3, *[1] * (x.ndim - 1)), y, x), carry, new
            )
            seen = obs + worlds[:, None]
            keys = jax.random.split(jax.random.key(0), 3)
            step = jax.vmap(policy.step, (None, 0, 0, 0))
            action, carry, _ = step(params, carry, seen, keys)
            return carry, action

        begun = jax.tree.map(lambda x: jnp.broadcast_to(x, (3, *x.shape)), first)
        return jax.lax.scan(tick, begun, (jnp.arange(12), jnp.asarray(OBS[:12])))[1]

    both = jax.jit(jax.vmap(partial(run, counted)))(jnp.array([0.0, 1.0]))
    jax.effects_barrier()
    assert len(made) == 5  # all at 0, 4 and 8, the one that begins anew at 6 and 10; not at 12
    for seed, params in enumerate((0.0, 1.0)):
        np.testing.assert_allclose(both[seed], run(planned, jnp.float32(params)), atol=1e-5)
    for world in (0, 2):
        policy = executors.receding(planned, lambda p, o, w=world: o + w, begin(2), 4)
        np.testing.assert_allclose(both[0][:, world], played(policy)[:12], atol=1e-5)


def steps(over: np.ndarray, rng: np.random.Generator) -> Transition:
    count = over.shape
    ended = rng.random(count) < 0.5
    obs, action = rng.normal(size=(*count, 2)), rng.normal(size=(*count, A))
    return Transition(
        *(jnp.asarray(x) for x in (obs, action, over * 1.0, over & ended, over & ~ended, obs))
    )


def looped(seen: Transition, history: int, b: int) -> tuple[np.ndarray, ...]:
    """What to learn of one window, step by step."""
    over = np.asarray(seen.terminated | seen.truncated)[b]
    now, obs, action = history - 1, np.asarray(seen.obs)[b], np.asarray(seen.action)[b]
    first = now
    while first > 0 and not over[first - 1]:
        first -= 1
    last = now
    while last < len(over) - 1 and not over[last]:
        last += 1
    rows = [max(j, first) for j in range(history)]
    ahead = range(now, len(over))
    return obs[rows], action[[min(j, last) for j in ahead]], np.array([j <= last for j in ahead])


@pytest.mark.long
@given(
    st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**32 - 1), st.sampled_from([0, 0.2, 0.6])
)
def test_a_window_has_nothing_of_another_episode(
    history: int, horizon: int, seed: int, ends: float
) -> None:
    rng = np.random.default_rng(seed)
    seen = steps(rng.random((3, history - 1 + horizon)) < ends, rng)
    found = chunks.window(seen, history)
    for b in range(3):
        for x, y in zip(found, looped(seen, history, b), strict=True):
            np.testing.assert_array_equal(x[b], y.astype(x.dtype))


def test_actions_are_planned_in_units_of_their_own_and_stay_within_bounds() -> None:
    plans = Chunks(history=2, horizon=H, execute=2)
    rng = np.random.default_rng(0)
    over = np.zeros((50, plans.ahead + 1), bool)
    seen = steps(over, rng)
    seen = seen._replace(action=0.3 + 0.02 * seen.action.at[..., 0].mul(10))
    measures = chunks.counted(chunks.scales(jnp.zeros(2), jnp.zeros(A)), seen)
    window = plans.window(measures, seen)
    # The first varies by 0.2; the second by 0.02, less than the least that counts, 0.05.
    np.testing.assert_allclose(window.chunk.std((0, 1)), [1, 0.4], rtol=0.15)
    np.testing.assert_allclose(window.seen.mean((0, 1)), 0, atol=0.2)

    def draw(params: Any, noise: Any, seen: Any, key: Any, bounds: Any) -> jax.Array:
        assert noise.shape == (1, H, A)
        assert seen.shape == (1, 2, 2)
        return jnp.clip(1e6 * noise, *bounds)

    policy = plans.policy(draw)
    params = {"scales": measures}
    step = jax.vmap(lambda key: policy.step(params, policy.init(params), jnp.zeros(2), key)[0])
    actions = np.asarray(step(jax.random.split(jax.random.key(0), 64)))
    np.testing.assert_allclose(np.unique(np.abs(actions.round(4))), [1])


def test_what_has_a_base_itself_is_told_of_as_one() -> None:
    for above in (lambda base: DSRL(FQL(base)), lambda base: ReinFlow(ReinFlow(base))):
        with pytest.raises(
            ValueError, match="is none: it was learned above a base itself, which may"
        ):
            above(FlowBC())
    with pytest.raises(ValueError, match="DPPO is none: it was learned above"):
        DPPO(DPPO(DiffusionBC()))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"history": 0}, "history is 0"),
        ({"execute": 9}, "execute is 9; it takes a count of at most the horizon"),
        ({"horizon": 0, "execute": 0}, "horizon is 0"),
        ({"decay": -1.0}, "decay is -1.0"),
    ],
)
def test_what_makes_no_sense_is_refused(said: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Chunks(**said)
