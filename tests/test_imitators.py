"""Imitation by flows and diffusions: several ways stay several, where a Gaussian's are averaged."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from agents.bc import BC
from agents.diffusion_bc import DiffusionBC
from agents.flow_bc import FlowBC
from rl.chunks import Chunks
from rl.denoisers import Dense, Residual, Transformer
from rl.diffusion import Diffusion
from rl.generative import Flow, Shortcut
from rl.types import Transition
from tests.oracles.generative import energy_distance

KEY, B, A, WAYS = jax.random.key(0), 64, 2, 3
PLANS, NET = Chunks(history=2, horizon=3, execute=2), Dense((64, 64))
QUICK: dict[str, Any] = {"chunks": PLANS, "net": NET, "lr": 2e-3, "average": 0.99}
EACH = pytest.mark.parametrize(
    "agent", [FlowBC(**QUICK), DiffusionBC(**QUICK)], ids=["flow", "diffusion"]
)


def demonstrations(key: jax.Array, length: int, spread: float = 0.02) -> Transition:
    """Windows [B, length, ...] of standing in one of three corners of a triangle."""
    way_key, noise_key = jax.random.split(key)
    turn = jax.random.randint(way_key, (B, 1), 0, WAYS) * 2 * jnp.pi / WAYS
    corner = 0.7 * jnp.stack([jnp.cos(turn), jnp.sin(turn)], -1)
    action = corner + spread * jax.random.normal(noise_key, (B, length, A))
    none, obs = jnp.zeros((B, length)), jnp.ones((B, length, 3))
    return Transition(obs, action, none, none > 0, none > 0, obs)


def one(seen: Transition) -> Transition:
    return jax.tree.map(lambda x: x[None], seen)


def learned(agent: Any, updates: int = 1_500) -> Any:
    length = getattr(agent, "ahead", 0) + 1
    state = agent.init(KEY, jnp.ones(3), jnp.zeros(A))
    state = agent.observe(state, demonstrations(jax.random.key(1), length))

    def step(state: Any, key: jax.Array) -> tuple[Any, None]:
        data_key, key = jax.random.split(key)  # noise is not to be what the data are
        return agent.update(state, one(demonstrations(data_key, length)), key)[0], None

    return jax.jit(lambda state, keys: jax.lax.scan(step, state, keys)[0])(
        state, jax.random.split(jax.random.key(2), updates)
    )


def first_actions(agent: Any, state: Any, count: int = 300) -> np.ndarray:
    policy, params = agent.policy(True, A), agent.deploy(state)
    act = lambda key: policy.step(params, policy.init(params), jnp.ones(3), key)[0]  # noqa: E731
    return np.asarray(jax.jit(jax.vmap(act))(jax.random.split(jax.random.key(3), count)))


def from_corners(action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far each is from the nearest corner, and which that is."""
    turn = np.arange(WAYS) * 2 * np.pi / WAYS
    corners = 0.7 * np.stack([np.cos(turn), np.sin(turn)], -1)
    far = np.linalg.norm(action[:, None] - corners, axis=-1)
    return far.min(1), far.argmin(1)


@cache
def taught(agent: Any) -> np.ndarray:
    return first_actions(agent, learned(agent))


@EACH
def test_each_way_is_kept_and_none_is_between(agent: Any) -> None:
    far, way = from_corners(taught(agent))
    assert np.mean(far < 0.2) > 0.85  # of a small network after little learning
    assert (np.bincount(way, minlength=WAYS) / len(way) > 0.2).all()


def test_a_gaussian_is_between() -> None:
    far, _ = from_corners(taught(BC(hidden=(64, 64), lr=2e-3)))
    assert np.mean(far < 0.2) < 0.3


def test_a_shortcut_takes_one_step_where_a_flow_cannot() -> None:
    wanted = np.asarray(demonstrations(jax.random.key(5), 1).action[:, 0])
    short, state = FlowBC(**QUICK, flow=Shortcut(steps=1)), None
    state = learned(FlowBC(**QUICK))
    hasty = first_actions(FlowBC(**QUICK, flow=Flow(steps=1)), state)
    assert energy_distance(taught(short), wanted) < 0.3 * energy_distance(hasty, wanted)


@EACH
def test_an_update_is_a_step_of_its_loss_and_of_the_average_that_acts(agent: Any) -> None:
    agent = replace(agent, average=0.75)
    seen = demonstrations(KEY, agent.ahead + 1)
    state = agent.observe(agent.init(KEY, jnp.ones(3), jnp.zeros(A)), seen)
    new, metrics = agent.update(state, one(seen), KEY)
    window = agent.chunks.window(state.scales, seen)
    given = (state.slow, window, KEY) if isinstance(agent, FlowBC) else (window, KEY)
    (loss, _), grads = jax.value_and_grad(agent.loss, has_aux=True)(state.net.params, *given)
    np.testing.assert_allclose(next(iter(metrics.values())), loss, rtol=1e-5)
    step, _ = agent.tx.update(grads, state.net.opt)
    params = optax.apply_updates(state.net.params, step)
    slow = jax.tree.map(lambda x, y: 0.75 * x + 0.25 * y, state.slow, params)
    close = lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6)  # noqa: E731
    jax.tree.map(close, new.net.params, params)
    jax.tree.map(close, new.slow, slow)
    jax.tree.map(close, agent.deploy(new)["net"], slow)


@EACH
def test_nothing_is_learned_of_what_comes_after_an_episode(agent: Any) -> None:
    seen = demonstrations(KEY, agent.ahead + 1)
    over = seen.truncated.at[:, 2].set(True)  # the present is step 1, and 3 is of another
    state = agent.observe(agent.init(KEY, jnp.ones(3), jnp.zeros(A)), seen)

    def loss(after: float, ends: jax.Array) -> jax.Array:
        changed = seen._replace(action=seen.action.at[:, 3].set(after), truncated=ends)
        return next(iter(agent.update(state, one(changed), KEY)[1].values()))

    assert loss(0.1, over) == loss(-0.9, over)
    assert loss(0.1, seen.truncated) != loss(-0.9, seen.truncated)


@pytest.mark.parametrize("net", [Dense((16,)), Residual(16, 2), Transformer(16, 2, 2)])
@pytest.mark.parametrize("sized", [False, True])
def test_a_network_looks_at_all_it_is_given(net: Any, sized: bool) -> None:
    keys = jax.random.split(KEY, 6)
    x, seen = jax.random.normal(keys[0], (4, 3, A)), jax.random.normal(keys[1], (4, 2, 5))
    time = jax.random.uniform(keys[2], (4,))
    size = jax.random.uniform(keys[3], (4,)) if sized else None
    params = net.module.init(keys[4], x, time, seen, size)
    call: Callable[..., jax.Array] = lambda *given: net.module.apply(params, *given)  # noqa: E731
    out = call(x, time, seen, size)
    assert out.shape == x.shape
    others = [(x.at[:, 2].add(1), time, seen, size), (x, time + 0.01, seen, size),
              (x, time, seen.at[:, 0].add(1), size)]  # fmt: skip
    others += [(x, time, seen, size + 0.01)] if size is not None else []
    for other in others:
        assert np.abs(call(*other) - out).min(axis=(1, 2)).max() > 1e-6
    alone = call(*(y if y is None else y[:1] for y in (x, time, seen, size)))
    np.testing.assert_allclose(out[:1], alone, atol=1e-5)  # nothing of another's


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: FlowBC(average=1.0), "FlowBC's average is 1.0; it takes a share"),
        (lambda: DiffusionBC(lr=-1.0), "DiffusionBC's lr is -1.0"),
        (lambda: Dense(()), "Dense's hidden is"),
        (lambda: Transformer(width=10, heads=4), "heads is 4; it takes a count that divides width"),
        (lambda: Residual(depth=0), "Residual's depth is 0"),
        (lambda: Diffusion(levels=0, steps=0), "levels is 0"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()
