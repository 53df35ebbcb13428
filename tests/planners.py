"""What the tests of agents above a policy that plans have in common: windows, parameters that are
not what they began as, and networks in float64."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit

from agents.flow_bc import FlowBC
from agents.one_step import OneStep
from rl.chunks import Chunks
from rl.critics import Critics
from rl.denoisers import Dense, waves
from rl.types import Transition
from tests.learners import f64
from tests.oracles import finetune, generative, ppo

A, SEEN, KNOWN, B = 2, 3, 4, 24  # numbers of an action, and of what policy and critics see
GAMMA, BEST = 0.9, 0.6  # an action that a bandit rewards most
KEY = jax.random.key(0)
OBS, ACTION = {"policy": jnp.zeros(SEEN), "critic": jnp.zeros(KNOWN)}, jnp.zeros(A)
PLANS, NET = Chunks(history=2, horizon=3, execute=2), Dense((16, 16))
FLOW, CRITICS = FlowBC(chunks=PLANS, net=NET), Critics(hidden=(16, 16), count=3)
ONCE = FlowBC(chunks=Chunks(horizon=1, execute=1), net=Dense((32, 32)), lr=2e-3, average=0.99)

normal_logp = ppo.normal_logp
gelu = lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))  # noqa: E731
relu = lambda x: np.maximum(x, 0)  # noqa: E731
swish = lambda x: x * expit(x)  # noqa: E731


def windows(seed: int, length: int, ends: float = 0.4) -> Transition:
    """[B, length, ...] of anything; what is seen after a step is seen before the next."""
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.normal(size=(B, *shape)).astype("f4")  # noqa: E731
    over = rng.random((2, B, length)) < ends / 2
    obs, after = ({"policy": draw(length, SEEN), "critic": draw(length, KNOWN)} for _ in range(2))
    on = ~(over[0] | over[1])[:, :-1, None]
    for name, x in obs.items():
        x[:, 1:] = np.where(on, after[name][:, :-1], x[:, 1:])
    action = 0.1 + 0.4 * draw(length, A)
    return jax.tree.map(jnp.asarray, Transition(obs, action, draw(length), *over, after))


def stirred(tree: Any, seed: int = 0, by: float = 0.3) -> Any:
    """Parameters that are others, all by as much."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: x + by * rng.normal(size=x.shape).astype("f4"), tree)


def learned(base: Any) -> Any:
    """Parameters of a base that has learned something, and measures by what it saw."""
    given = (learned(base.base),) if isinstance(base, OneStep) else ()
    state = base.observe(base.init(KEY, OBS, ACTION, *given), windows(7, 6))
    params = base.deploy(state)
    return params | {"net": stirred(params["net"], 3, 0.2)}


def apart(critic: Any, seed: int) -> Any:
    """Critics whose targets and statistics are their own."""
    net = critic.net._replace(params=stirred(critic.net.params, seed))
    stats = critic.obs._replace(mean=critic.obs.mean + 0.2, var=critic.obs.var * 1.7)
    return critic._replace(net=net, slow=stirred(net.params, seed + 1), obs=stats)


def mlp64(params: Any, x: np.ndarray, activation: Callable) -> np.ndarray:
    """Dense layers, each but the last normalised if the network has it so."""
    last = sum(name.startswith("Dense") for name in params) - 1
    for i in range(last + 1):
        layer = jax.tree.map(f64, params[f"Dense_{i}"])
        x = x @ layer["kernel"] + layer["bias"]
        norm = jax.tree.map(f64, params.get(f"LayerNorm_{i}", {}))
        if norm:
            x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
            x = x * norm["scale"] + norm["bias"]
        x = activation(x) if i < last else x
    return x


def scaled64(stats: Any, x: Any) -> np.ndarray:
    return np.clip((f64(x) - f64(stats.mean)) / np.sqrt(f64(stats.var) + 1e-8), -10, 10)


def field64(params: Any, seen: Any) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The velocity that `Plain` makes of x [B, H, A] at times [B], by what was seen."""

    def field(x: np.ndarray, time: np.ndarray) -> np.ndarray:
        flat = [f64(y).reshape(len(x), -1) for y in (x, seen)]
        told = np.concatenate([*flat, f64(waves(jnp.asarray(time, jnp.float32)))], 1)
        return mlp64(params["params"], told, gelu).reshape(x.shape)

    return field


def euler64(params: Any, noise: Any, seen: Any, steps: int) -> np.ndarray:
    return generative.euler(field64(params, seen), f64(noise), steps, "data_at_one")


def leap64(params: Any, noise: Any, seen: Any) -> np.ndarray:
    """One step, from where there is noise alone."""
    return f64(noise) + field64(params, seen)(f64(noise), np.zeros(len(noise)))


def q64(params: Any, stats: Any, obs: Any, given: Any) -> np.ndarray:
    """Every critic's value [E, B]."""
    told = np.concatenate([scaled64(stats, obs), f64(given).reshape(len(given), -1)], 1)
    nets = params["params"]["MLP_0"]
    count = len(nets["Dense_0"]["bias"])
    one = lambda e: mlp64(jax.tree.map(lambda x: x[e], nets), told, relu)[:, 0]  # noqa: E731
    return np.stack([one(e) for e in range(count)])


class Later(NamedTuple):
    """What comes of that part of a plan that is done."""

    reward: np.ndarray  # [B]
    discount: np.ndarray  # [B]
    seen: np.ndarray  # [B, h, O] not scaled
    known: np.ndarray  # [B, O']


def later(steps: Transition, plans: Chunks, gamma: float = GAMMA) -> Later:
    """Of windows, one after another and step by step."""
    now, end = plans.history - 1, plans.history - 1 + plans.execute
    told = [np.asarray(x)[:, now:end] for x in (steps.reward, steps.terminated, steps.truncated)]
    over, rows = np.asarray(steps.terminated | steps.truncated), []
    obs, after = jax.tree.map(np.asarray, (steps.obs, steps.next_obs))
    for b in range(len(over)):
        began = max([t + 1 for t in range(now) if over[b, t]], default=0)
        last = next((t for t in range(now, end) if over[b, t]), end - 1)
        track = [obs["policy"][b, t] for t in range(began, last + 1)] + [after["policy"][b, last]]
        track = [track[0]] * plans.history + track
        rows.append((np.stack(track[-plans.history :]), after["critic"][b, last]))
    return Later(*finetune.chunk_return(*told, gamma), *map(np.stack, zip(*rows, strict=True)))


def told_apart(ours: Any, right: Any, wrong: dict[str, Any]) -> None:
    """Ours is what the oracle makes it, and far from each of what it is with an error planted."""
    np.testing.assert_allclose(f64(ours), right, rtol=1e-5, atol=1e-5)
    for name, x in wrong.items():
        assert np.abs(f64(ours) - x).max() > 1e-3, name


def same(x: Any, y: Any) -> bool:
    """Bit by bit."""
    return jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.array_equal(a, b)), x, y))


def alike(x: Any, y: Any) -> None:
    """The same but for how sums are rounded."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), x, y)


def reward(action: jax.Array) -> jax.Array:
    """A bandit's, of actions [..., A]."""
    return -((jnp.clip(action, -1, 1) - BEST) ** 2).mean(-1)


def paid(action: jax.Array, aux: Any = ()) -> Transition:
    """Windows [1, B, 1, ...] of a bandit whose actions [B, A] were these; it shows nothing."""
    one = action[None, :, None]
    nothing = {name: jnp.zeros((*one.shape[:-1], len(x))) for name, x in OBS.items()}
    ends = jnp.ones(one.shape[:-1], bool)
    aux = jax.tree.map(lambda x: x[None, :, None], aux)
    return Transition(nothing, one, reward(one), ends, ~ends, nothing, aux)


def drawn(policy: Any, params: Any, key: jax.Array, count: int) -> tuple[jax.Array, Any, Any]:
    """The first actions of so many episodes, what they carry on, and what they tell."""
    step = lambda key: policy.step(params, policy.init(params), OBS, key)  # noqa: E731
    return jax.vmap(step)(jax.random.split(key, count))


def bettered(agent: Any) -> tuple[jax.Array, jax.Array]:
    """What the base of an agent does in a bandit, and the agent after 300 updates of any action."""

    def learn(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        wide = lambda key: jax.random.uniform(key, (64, A), minval=-1, maxval=1)  # noqa: E731

        def step(state: Any, key: jax.Array) -> tuple[Any, Any]:
            return agent.update(state, paid(wide(key)), key)

        first = agent.init(key, OBS, ACTION)
        state, _ = jax.lax.scan(step, first, jax.random.split(key, 300))
        mine = drawn(agent.policy(False, A), agent.deploy(state), key, 256)[0]
        return drawn(*agent.beginner(state, A), key, 256)[0], mine

    return jax.jit(learn)(KEY)


def improved(agent: Any) -> tuple[jax.Array, jax.Array]:
    """What is done in a bandit by an agent of PPO's kind above a base that imitated a clumsy hand:
    at first, and after 40 updates."""
    base = agent.base
    clumsy = lambda key: -0.2 + 0.4 * jax.random.normal(key, (64, A))  # noqa: E731

    def imitate(state: Any, key: jax.Array) -> tuple[Any, Any]:
        return base.update(state, paid(clumsy(key)), key)

    def improve(state: Any, key: jax.Array) -> tuple[Any, Any]:
        plan, _, aux = drawn(agent.planner(), agent.planning(state), key, 128)
        batch = jax.tree.map(lambda x: x[:, :, 0], paid(plan[:, 0], aux))
        obs = {"policy": batch.obs["policy"][:, :, None], "critic": batch.obs["critic"]}
        return agent.update(state, batch._replace(obs=obs, next_obs=obs), key)

    def learn(key: jax.Array) -> tuple[jax.Array, ...]:
        clone = base.observe(base.init(key, OBS, ACTION), paid(clumsy(key)))
        clone, _ = jax.lax.scan(imitate, clone, jax.random.split(key, 300))
        first = agent.init(key, OBS, ACTION, base.deploy(clone))
        state, _ = jax.lax.scan(improve, first, jax.random.split(key, 40))
        policy = agent.policy(False, A)
        return tuple(drawn(policy, agent.deploy(x), key, 256)[0] for x in (first, state))

    first, last = jax.jit(learn)(KEY)
    return first, last


def plans(agent: Any, state: Any, key: jax.Array, count: int = 32) -> Transition:
    """A batch [1, count, ...] of what its planner does, rewarded anyhow."""
    rng = np.random.default_rng(3)
    draw = lambda *shape: jnp.asarray(rng.normal(size=(count, *shape)), jnp.float32)  # noqa: E731
    obs, after = ({"policy": draw(2, SEEN), "critic": draw(KNOWN)} for _ in range(2))
    act = jax.jit(jax.vmap(agent.planner().step, (None, None, 0, 0)))
    plan, _, aux = act(agent.planning(state), (), obs, jax.random.split(key, count))
    ends = jnp.asarray(rng.random((2, count)) < 0.2)
    seen = Transition(obs, plan, draw(), ends[0], ends[1], after, aux)
    return jax.tree.map(lambda x: x[None], seen)


@dataclass(frozen=True)
class Broad(FlowBC):
    """The flow of one Gaussian, which nothing need learn."""

    mean: float = -0.2
    std: float = 0.5

    def field(
        self, params: Any, x: jax.Array, seen: Any, time: jax.Array, size: Any = None
    ) -> jax.Array:
        t = time[:, None, None]
        spread = (1 - t) ** 2 + (t * self.std) ** 2
        return self.mean + (t * self.std**2 - (1 - t)) / spread * (x - t * self.mean)
