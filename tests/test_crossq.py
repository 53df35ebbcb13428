"""CrossQ against an oracle in float64, and on problems whose answer is known on paper."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.crossq import CrossQ, State
from rl.nets import renorm
from rl.types import Transition
from tests.learners import SEEN, A, B, close, window
from tests.oracles import crossq, offpolicy

AGENT = CrossQ(hidden=(8,), critic_hidden=(16, 8), alpha=0.3, gamma=0.9)
KEY = jax.random.key(5)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def made(agent: CrossQ, rng: np.random.Generator, passes: int = 0) -> State:
    """A state in which nothing is as it was begun, after so many passes."""
    state = agent.init(jax.random.key(0), jnp.zeros(SEEN), jnp.zeros(A))

    def noisy(x: jax.Array) -> jax.Array:
        if x.dtype == jnp.int32:
            return jnp.full_like(x, passes)
        return jnp.asarray(x + 0.3 * rng.random(size=x.shape), jnp.float32)

    return state._replace(
        actor=state.actor._replace(params=jax.tree.map(noisy, state.actor.params)),
        critic=state.critic._replace(params=jax.tree.map(noisy, state.critic.params)),
        actor_stats=jax.tree.map(noisy, state.actor_stats),
        critic_stats=jax.tree.map(noisy, state.critic_stats),
    )


def oracle_net(params: Any, stats: Any, member: int | None = None) -> tuple[list, list, list]:
    """A network as the oracle has it: layers, affine maps and statistics."""
    pick = lambda x: np.asarray(x if member is None else x[member], np.float64)  # noqa: E731
    depth = range(sum("Dense" in name for name in params))
    dense = [params[f"Dense_{i}"] for i in depth]
    norms = [params[f"BatchRenorm_{i}"] for i in depth]
    ran = [stats[f"BatchRenorm_{i}"] for i in depth]
    return (
        [(pick(x["kernel"]), pick(x["bias"])) for x in dense],
        [(pick(x["scale"]), pick(x["bias"])) for x in norms],
        [(pick(x["mean"]), pick(x["var"]), int(pick(x["passes"]))) for x in ran],
    )


def critics(state: State) -> list:
    return [oracle_net(state.critic.params, state.critic_stats, i) for i in range(2)]


def oracle_batch(state: State, windows: Transition, agent: CrossQ) -> dict[str, Any]:
    reward, discount, last = offpolicy.n_step(
        windows.reward, windows.terminated, windows.truncated, agent.gamma
    )
    after = np.asarray(windows.next_obs, np.float64)[np.arange(B), last]
    net = oracle_net(state.actor.params, state.actor_stats)
    action, logp = acted(*crossq.actor_forward(after, net, train=False)[:2])
    return {
        "observation": np.asarray(windows.obs[:, 0], np.float64), "action": windows.action[:, 0],
        "next_observation": after, "next_action": action, "next_logp": logp,
        "reward": reward, "discount": discount,
    }  # fmt: skip


def acted(mean: np.ndarray, log_std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    u = mean + np.exp(log_std) * np.asarray(jax.random.normal(KEY, mean.shape), np.float64)
    return np.tanh(u), offpolicy.tanh_normal_logp(u, mean, log_std)


@pytest.mark.parametrize("passes", [0, 99_999, 100_000])
@pytest.mark.parametrize("train", [True, False])
def test_the_network_is_the_oracles(passes: int, train: bool, rng: np.random.Generator) -> None:
    state, x = made(AGENT, rng, passes), rng.normal(0.5, 2.0, size=(B, SEEN))
    ours, stats = renorm(
        AGENT.actor(A), state.actor.params, state.actor_stats, jnp.asarray(x, jnp.float32), train
    )
    net = oracle_net(state.actor.params, state.actor_stats)
    theirs, wanted, _ = crossq.forward(x, net, train=train)
    assert close(ours, theirs)
    for now, then in zip(oracle_net(state.actor.params, stats)[2], wanted, strict=True):
        assert all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(now, then, strict=True))


@pytest.mark.parametrize("passes", [0, 100_000])
def test_critics_learn_as_the_oracles(passes: int, rng: np.random.Generator) -> None:
    state, windows = made(AGENT, rng, passes), window(rng)
    loss, (_, stats) = AGENT.critic_loss(state.critic.params, state, AGENT.sample(windows), KEY)
    wanted, _, _, after = crossq.critic_loss(
        critics(state), oracle_batch(state, windows, AGENT), alpha=AGENT.alpha
    )
    assert close(loss, wanted)
    for i, theirs in enumerate(after):
        ours = oracle_net(state.critic.params, stats, i)[2]
        for a, b in zip(ours, theirs, strict=True):
            assert all(np.allclose(x, y, rtol=1e-5, atol=1e-6) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("passes", [0, 100_000])
def test_gradients_are_the_oracles(passes: int, rng: np.random.Generator) -> None:
    """Only the target and the correction are held still: the next half moves the batch's mean."""
    state, windows = made(AGENT, rng, passes), window(rng)
    batch, still = oracle_batch(state, windows, AGENT), critics(state)
    grads = jax.grad(AGENT.critic_loss, has_aux=True)(
        state.critic.params, state, AGENT.sample(windows), KEY
    )[0]
    for name, unit in [("Dense_0", (0, 0)), ("Dense_1", (3, 2)), ("Dense_2", (5, 0))]:
        slopes = []
        for step in (1e-5, -1e-5):
            kernel = np.array(state.critic.params[name]["kernel"], np.float64)
            kernel[(0, *unit)] += step
            params = state.critic.params | {name: state.critic.params[name] | {"kernel": kernel}}
            nets = [oracle_net(params, state.critic_stats, i) for i in range(2)]
            slopes.append(crossq.critic_loss(nets, batch, alpha=AGENT.alpha, still=still)[0])
        wanted = (slopes[0] - slopes[1]) / 2e-5
        assert np.isclose(grads[name]["kernel"][(0, *unit)], wanted, rtol=1e-3, atol=1e-4)


def test_the_actor_learns_as_the_oracles(rng: np.random.Generator) -> None:
    state, windows = made(AGENT, rng), window(rng)
    loss, _ = AGENT.actor_loss(state.actor.params, state, AGENT.sample(windows), KEY)
    obs = np.asarray(windows.obs[:, 0], np.float64)
    net = oracle_net(state.actor.params, state.actor_stats)
    action, logp = acted(*crossq.actor_forward(obs, net, train=True)[:2])
    assert close(loss, crossq.actor_loss(critics(state), obs, action, logp, AGENT.alpha))
    loss = AGENT.alpha_loss(state.log_alpha.params, jnp.float32(0.7), A)[0]
    assert close(loss, offpolicy.alpha_loss(np.log(AGENT.alpha), [-0.7], -1.0 * A))


@pytest.mark.parametrize(
    "plant",
    [
        lambda a, s, w: (a, s, w._replace(reward=-w.reward)),
        lambda a, s, w: (a, s, w._replace(terminated=w.terminated & False)),
        lambda a, s, w: (a, s, w._replace(terminated=w.terminated | w.truncated)),
        lambda a, s, w: (a, s, jax.tree.map(lambda x: x[:, 1:], w)),
        lambda a, s, w: (a, s, w._replace(next_obs=w.obs)),
        lambda a, s, w: (replace(a, warm=0), s, w),
        lambda a, s, w: (a, s._replace(actor_stats=jax.tree.map(jnp.ones_like, s.actor_stats)), w),
        lambda a, s, w: (a, s._replace(log_alpha=s.log_alpha._replace(params=-1.0)), w),
    ],
    ids=["sign", "mask", "time limit", "off by one", "now for next", "warm", "stats", "alpha"],
)  # fmt: skip
def test_planted_errors_are_caught(plant: Callable, rng: np.random.Generator) -> None:
    state, windows = made(AGENT, rng), window(rng)
    agent, wrong, seen = plant(AGENT, state, windows)
    loss, _ = agent.critic_loss(wrong.critic.params, wrong, agent.sample(seen), KEY)
    batch = oracle_batch(state, windows, AGENT)
    assert not close(loss, crossq.critic_loss(critics(state), batch, alpha=AGENT.alpha)[0])


@pytest.mark.parametrize(("terminated", "q"), [(True, 1.0), (False, 2.0)])
@pytest.mark.long
def test_q_converges_to_the_known_value(terminated: bool, q: float) -> None:
    """Reward 1 at every step: 1 if that ends it, else 1 / (1 - gamma)."""
    agent = CrossQ(
        hidden=(16,), critic_hidden=(32,), critics=1, gamma=0.5, alpha=1e-6, lr=0.0
    )  # the lower of two would lie below
    flags = jnp.full((3, 64, 1), terminated)

    def learn(state: State, key: jax.Array) -> tuple[State, None]:
        action = jax.random.uniform(key, (3, 64, 1, 1), minval=-1, maxval=1)
        obs = jax.random.normal(key, (3, 64, 1, 1))
        batch = Transition(obs, action, jnp.ones((3, 64, 1)), flags, flags & False, obs)
        return agent.update(state, batch, key)[0], None

    state = agent.init(jax.random.key(0), jnp.zeros(1), jnp.zeros(1))
    state, _ = jax.jit(lambda s: jax.lax.scan(learn, s, jax.random.split(KEY, 2000)))(state)
    x, action = jnp.linspace(-1, 1, 9)[:, None], jnp.zeros((9, 1))
    found = agent.q(state.critic.params, state.critic_stats, x, action)[0]
    assert abs(found.mean() - q) < 0.12


def test_an_update_is_pure_and_counts_its_passes(rng: np.random.Generator) -> None:
    state = made(AGENT, rng)
    batch = jax.tree.map(lambda *xs: jnp.stack(xs), *[window(rng) for _ in range(3)])
    update = jax.jit(AGENT.update)
    (first, metrics), (second, _) = update(state, batch, KEY), update(state, batch, KEY)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, first, second))
    assert (first.critic_stats["BatchRenorm_1"]["passes"] == 3).all()
    assert first.actor_stats["BatchRenorm_1"]["passes"] == 1  # not in what the critics ask of it
    assert first.critic.opt[0].count == 3
    assert first.actor.opt[0].count == first.log_alpha.opt[0].count == 1
    assert {"critic_loss", "actor_loss", "alpha_loss", "alpha", "entropy", "q"} <= metrics.keys()


def test_the_critic_may_see_more() -> None:
    obs = {"policy": jnp.ones(2), "critic": jnp.ones(5)}
    state = AGENT.init(KEY, obs, jnp.zeros(A))
    assert state.critic.params["Dense_0"]["kernel"].shape == (2, 5 + A, 16)
    policy, params = AGENT.policy(explore=True, action_dim=A), AGENT.deploy(state)
    assert policy.step(params, (), obs, KEY)[0].shape == (A,)
