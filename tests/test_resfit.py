"""ResFiT: its losses by an oracle, what it begins as, how it explores, and when it is trusted."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.bc import BC
from agents.resfit import ResFiT
from rl import residual
from rl.residual import BASE
from rl.types import Transition
from tests.oracles import residual as oracle

SIZE, A, B, N, GAMMA, SCALE = 3, 2, 32, 3, 0.9, 0.3
KEY = jax.random.key(0)
START = np.array([0.5, -0.3, 0.2], "f4")


def windows(terminated: float = 0.2) -> Transition:
    """Of an assisted world, [B, N, ...]; some sums are beyond what a world takes."""
    rng = np.random.default_rng(1)
    draw = lambda *shape: rng.normal(size=(B, N, *shape)).astype("f4")  # noqa: E731
    obs, after = ({"policy": draw(SIZE), BASE: np.tanh(draw(A))} for _ in range(2))
    ends = rng.uniform(size=(2, B, N)) < terminated
    seen = Transition(obs, draw(A), draw(), ends[0], ends[1], after)
    return jax.tree.map(jnp.asarray, seen)


class Known(NamedTuple):
    agent: ResFiT
    state: Any


def known(**settings: Any) -> Known:
    """An agent whose networks are not what they began as."""
    agent = ResFiT(
        base=BC(hidden=(8,)), scale=SCALE, hidden=(16,), critic_hidden=(16,), critics=3,
        gamma=GAMMA, delay=2, **settings,
    )  # fmt: skip
    state = agent.init(KEY, jnp.zeros(SIZE), jnp.zeros(A))
    stirred = lambda x: x + 0.3 * jax.random.normal(jax.random.fold_in(KEY, x.size), x.shape)  # noqa: E731
    actor = state.actor._replace(params=jax.tree.map(stirred, state.actor.params))
    slow = jax.tree.map(lambda x: 0.9 * x, actor.params)
    state = state._replace(actor=actor, target_actor=slow)
    return Known(agent, agent.observe(state, windows()))


def mu(it: Known, params: Any, obs: Any, base: Any) -> np.ndarray:
    more = it.agent.more(params, it.agent.scaled(it.state.obs, (obs, obs))[0], base)
    return np.arctanh(np.clip(np.asarray(more, np.float64), -1 + 1e-7, 1 - 1e-7))


@pytest.mark.parametrize("smoothing", [0.0, 3.0])
def test_targets_are_the_oracles(smoothing: float) -> None:
    """With noise so large that all of it is cut off at the same size."""
    it = known(subset=0, smoothing=smoothing, smoothing_clip=0.1, normalise=False)
    batch = windows()
    sample = it.agent.sample(it.state, batch)
    got = it.agent.backup(it.state, sample, KEY)[..., 0]
    reward, discount, steps = oracle.window_return(
        batch.reward, batch.terminated, batch.truncated, GAMMA
    )
    last = jax.tree.map(lambda x: np.asarray(x)[np.arange(B), steps - 1], batch.next_obs)
    next_mu = mu(it, it.state.target_actor, last["policy"], last[BASE])
    noise = np.zeros((B, A))
    if smoothing:
        drawn = smoothing * jax.random.normal(jax.random.split(KEY)[1], (B, A))
        noise = np.clip(np.asarray(drawn), -0.1, 0.1)
    q = lambda action: it.agent.q(it.state.target, last["policy"], action)[..., 0]  # noqa: E731
    want = oracle.target(reward, discount, last[BASE], next_mu, noise, SCALE, q)
    np.testing.assert_allclose(got, want, atol=2e-5)
    live = mu(it, it.state.actor.params, last["policy"], last[BASE])
    other = oracle.target(reward, discount, last[BASE], live, noise, SCALE, q)
    assert np.abs(got - other).max() > 1e-3  # the slow actor's, not the fast one's


def test_losses_are_the_oracles() -> None:
    it = known(normalise=False, l2=0.5)
    sample = it.agent.sample(it.state, windows())
    y = it.agent.backup(it.state, sample, KEY)
    critic = it.state.critic.params
    loss, metrics = it.agent.critic_loss(critic, sample, y)
    q = it.agent.q(critic, sample.obs.critic, sample.action)[..., 0]
    np.testing.assert_allclose(loss, oracle.critic_loss(q, y[..., 0]), rtol=1e-5)
    assert abs(loss - oracle.critic_loss_released(q, y[..., 0])) > 1e-3
    assert metrics["q"] == q.mean()
    loss, _ = it.agent.actor_loss(it.state.actor.params, it.state, sample)
    means = mu(it, it.state.actor.params, sample.obs.policy, sample.base)
    values = lambda action: it.agent.q(critic, sample.obs.critic, action)[..., 0]  # noqa: E731
    want = oracle.actor_loss(np.asarray(sample.base), means, SCALE, values, 0.5)
    np.testing.assert_allclose(loss, want, atol=1e-5)


def test_it_begins_as_its_base_and_learns_nothing_of_it() -> None:
    """Critics learn first; the actor when they are warm; the base never."""
    agent = ResFiT(
        base=BC(hidden=(8,)), hidden=(8,), critic_hidden=(8,), critics=2, delay=2, warm=4
    )
    state = first = agent.init(KEY, jnp.zeros(SIZE), jnp.zeros(A))
    obs, params = jnp.asarray(START), agent.deploy(state)
    policy = agent.policy(False, A)
    action, _, _ = policy.step(params, policy.init(params), obs, KEY)
    alone = agent.base.policy(False, A)
    np.testing.assert_array_equal(action, alone.step(params["base"], (), obs, KEY)[0])
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), windows())
    moved, update = [], jax.jit(agent.update)
    for _ in range(3):
        state, _ = update(state, batch, KEY)
        same = jax.tree.map(jnp.array_equal, state.actor.params, first.actor.params)
        moved.append(not all(jax.tree.leaves(same)))
    assert moved == [False, False, True]
    assert all(jax.tree.leaves(jax.tree.map(jnp.array_equal, state.base, first.base)))


def test_what_has_not_passed_is_left_out_but_where_it_explores() -> None:
    it = known(alone=0.5, exploration=0.0)
    obs, base = jnp.asarray(START), jnp.full(A, 0.1)
    params = it.agent.deploy(it.state)["learned"]
    judged, seen = it.agent.learned(False, A), residual.shown(obs, base)

    def added(params: Any) -> Any:
        return judged.step(params, judged.init(params), seen, KEY)[0]

    assert not added(params).any()
    more = added(params | {"passed": jnp.bool(True)})
    assert np.abs(more).min() > 0.01
    explorer = it.agent.learned(True, A)

    def explored(key: jax.Array) -> tuple[jax.Array, Any, Any]:
        first = explorer.step(params, explorer.init(params), seen, key)
        then = explorer.step(params, first[1], seen, jax.random.fold_in(key, 1))
        return jnp.stack([first[0], then[0]]), then[1], then[2]["alone"]

    actions, part, alone = jax.vmap(explored)(jax.random.split(KEY, 400))
    want = jnp.where(alone[:, None, None], 0, jnp.broadcast_to(more, actions.shape))
    np.testing.assert_allclose(actions, want, atol=1e-6)
    assert 0.4 < alone.mean() < 0.6
    assert 0.45 < part.level.mean() < 0.55
    assert part.level.std() > 0.25


def test_noise_is_of_an_episodes_own_size() -> None:
    it = known(alone=0.0, exploration=0.1)
    explorer, params = it.agent.learned(True, A), it.agent.deploy(it.state)["learned"]
    seen = residual.shown(jnp.asarray(START), jnp.full(A, 0.1))
    mean = it.agent.more(params["actor"], it.agent.seen(params, seen), seen[BASE])

    def walk(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        def tick(part: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            more, part, _ = explorer.step(params, part, seen, key)
            return part, SCALE * (more - mean)

        part, noise = jax.lax.scan(tick, explorer.init(params), jax.random.split(key, 300))
        return part.level, noise.std()

    levels, stds = jax.vmap(walk)(jax.random.split(KEY, 20))
    np.testing.assert_allclose(stds, 0.1 * levels, rtol=0.15)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"scale": 0.0}, "scale is 0.0; it takes a share above 0"),
        ({"subset": 9}, "subset is 9; it takes a count of some critics"),
        ({"alone": 1.0}, "alone is 1.0; it takes a share"),
        ({"lr": float("nan")}, "lr is nan"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=f"ResFiT's {why}"):
        ResFiT(**settings)
