"""What the tests of agents that learn from replay have in common."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from agents.cql import CQL
from rl import heads
from rl.samples import Sample
from rl.types import Transition
from tests.oracles import offpolicy

B, N_STEP, SEEN, A = 16, 3, 3, 2
HEADS = {"mse": heads.MSE(), "hl-gauss": heads.HLGauss(-3, 4, 21), "c51": heads.C51(-3, 4, 21)}
KEY = jax.random.key(5)


def close(ours: jax.Array, theirs: np.ndarray) -> bool:
    return np.allclose(np.asarray(ours, np.float64), theirs, rtol=1e-5, atol=1e-5)


def f64(x: Any) -> np.ndarray:
    return np.asarray(x, np.float64)


def window(rng: np.random.Generator, count: int = B, length: int = N_STEP) -> Transition:
    ends = rng.random((2, count, length)) < 0.2
    arrays = Transition(
        obs=rng.normal(size=(count, length, SEEN)), action=rng.uniform(-1, 1, (count, length, A)),
        reward=rng.normal(size=(count, length)), terminated=ends[0], truncated=ends[1],
        next_obs=rng.normal(size=(count, length, SEEN)),
    )  # fmt: skip
    return jax.tree.map(lambda x: jnp.asarray(x, bool if x.dtype == bool else "f4"), arrays)


def made(agent: Any, rng: np.random.Generator) -> Any:
    """A state whose parameters, targets among them, are all different."""
    state = agent.init(jax.random.key(0), jnp.zeros(SEEN), jnp.zeros(A))
    noisy = lambda tree: jax.tree.map(lambda x: x + 0.3 * rng.normal(size=x.shape), tree)  # noqa: E731
    nets = [name for name in ("actor", "critic", "value") if hasattr(state, name)]
    online = {name: getattr(state, name) for name in nets}
    targets = {name: noisy(x) for name, x in state._asdict().items() if name.startswith("target")}
    return state._replace(
        **{name: x._replace(params=noisy(x.params)) for name, x in online.items()}, **targets
    )


def level(params: Any, values: jax.Array) -> Any:
    """Parameters less the mean of each network's values [E, ...], so that none is always lowest."""
    mean = values.reshape(len(values), -1).mean(1)
    fits = lambda x: x.size == len(mean) and x.shape[-1] == 1  # noqa: E731
    return jax.tree.map(lambda x: x - mean.reshape(x.shape) if fits(x) else x, params)


def given(agent: Any) -> tuple[Any, Transition]:
    """Such a state, its values level, and windows as long as the agent's are."""
    rng = np.random.default_rng(0)
    state, batch = made(agent, rng), window(rng, length=N_STEP + getattr(agent, "ahead", 0))
    obs, action = batch.obs[:, 0], batch.action[:, 0]
    action = action[:, None] if isinstance(agent, CQL) else action
    if hasattr(state, "critic"):
        critic, target = (
            level(p, agent.q(p, obs, action)) for p in (state.critic.params, state.target)
        )
        state = state._replace(critic=state.critic._replace(params=critic), target=target)
    if hasattr(state, "value"):
        value = level(state.value.params, agent.v(state.value.params, obs)[None])
        state = state._replace(value=state.value._replace(params=value))
    return state, batch


def sampled(agent: Any, state: Any, batch: Transition) -> tuple:
    """What the agent learns from: a Sample and what else it is given."""
    found = agent.sample(state, batch)
    return (found,) if isinstance(found, Sample) else found


def told(batch: Transition, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """The oracle's reward and discount [B] of windows' first N_STEP steps."""
    parts = (batch.reward, batch.terminated, batch.truncated)
    return offpolicy.n_step(*(x[:, :N_STEP] for x in parts), gamma)[:2]


def told_apart(ours: Any, right: Any, wrong: dict[str, Any]) -> None:
    """Ours is what the oracle makes it, and none of what it is with an error planted."""
    assert close(ours, right), (ours, right)
    missed = [name for name, x in wrong.items() if close(ours, x)]
    assert not missed, missed


def held(loss: Callable, params: Any, rest: tuple, outputs: Callable, oracle: Callable,
         wrong: dict[str, Callable]) -> None:  # fmt: skip
    """Our loss(params, *rest) is the oracle's of the networks' outputs(params), and so is its slope
    along a random direction; of those that are `wrong`, none has both."""
    rng = np.random.default_rng(1)
    way = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), "f4"), params)
    along = lambda f: jax.jvp(f, (params,), (way,))  # noqa: E731
    mine = along(lambda params: loss(params, *rest)[0])
    seen, moves = (jax.tree.map(f64, tree) for tree in along(outputs))

    def agrees(theirs: Callable) -> bool:
        low, here, high = (
            theirs(*jax.tree.map(lambda x, move: x + step * move, seen, moves))  # noqa: B023
            for step in (-1e-6, 0.0, 1e-6)
        )
        slope = (high - low) / 2e-6
        return close(mine[0], here) and np.allclose(mine[1], slope, rtol=1e-4, atol=1e-4)

    assert agrees(oracle)
    missed = [name for name, theirs in wrong.items() if agrees(theirs)]
    assert not missed, missed


def improved(rate: float, loss: Callable, x: Any, *args: Any) -> Any:
    """Trainable parameters after a step of Adam on `loss(params, *args)`."""
    slope = jax.grad(lambda params: loss(params, *args)[0])(x.params)
    moves, opt = optax.adam(rate).update(slope, x.opt, x.params)
    return x._replace(params=optax.apply_updates(x.params, moves), opt=opt)


def stacked(batch: Transition, count: int) -> Transition:
    """`count` batches [count, B, ...], none alike, of one."""
    return jax.tree.map(lambda x: jnp.stack([jnp.roll(x, i, 0) for i in range(count)]), batch)


def alike(ours: Any, theirs: Any) -> bool:
    return jax.tree.all(
        jax.tree.map(lambda x, y: bool(jnp.allclose(x, y, atol=1e-5)), ours, theirs)
    )


def values_of_a_fixed_reward(agent: Any, terminated: bool | jax.Array) -> jax.Array:
    """What the critics [E] make of a reward of 1 at every step, which ends the episode or not."""
    shape = agent.delay, 32, 1 + getattr(agent, "ahead", 0)
    flags = jnp.full(shape, terminated)

    def learn(state: Any, key: jax.Array) -> tuple[Any, None]:
        action = jax.random.uniform(key, (*shape, 1), minval=-1, maxval=1)
        obs = jnp.zeros((*shape, 1))
        batch = Transition(obs, action, jnp.ones(shape), flags, flags & False, obs)
        return agent.update(state, batch, key)[0], None

    state = agent.init(jax.random.key(0), jnp.zeros(1), jnp.zeros(1))
    state, _ = jax.jit(lambda s: jax.lax.scan(learn, s, jax.random.split(KEY, 600)))(state)
    if not hasattr(agent, "head"):
        return agent.believed(state, jnp.zeros((1, 1)), jnp.zeros((1, 1)))
    return agent.head.value(agent.q(state.critic.params, jnp.zeros(1), jnp.zeros(1)))
