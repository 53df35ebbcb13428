"""PPO against an oracle in float64, and on problems whose answer is known on paper."""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from agents.ppo import PPO, Sample, State
from rl import nets, norm, returns
from rl.types import Transition, view
from tests.oracles import ppo as oracle

T, N, SEEN, A = 12, 5, 3, 2
AGENT = PPO(hidden=(8,), critic_hidden=(8,), epochs=2, minibatches=3, entropy_cost=0.01)


def close(ours: jax.Array, theirs: np.ndarray) -> bool:
    return np.allclose(np.asarray(ours, np.float64), theirs, rtol=1e-5, atol=1e-5)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def rollout(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    reward, value, next_value = rng.normal(size=(3, T, N))
    return reward, value, next_value, rng.random((T, N)) < 0.15, rng.random((T, N)) < 0.15


def test_advantages_are_the_oracles(rng: np.random.Generator) -> None:
    data = rollout(rng)
    ours = returns.gae(*map(jnp.asarray, data), gamma=0.9, lam=0.8)
    assert close(ours, oracle.gae(*data, gamma=0.9, lam=0.8))


@pytest.mark.parametrize(
    "plant",
    [
        lambda r, v, n, e, c: (-r, v, n, e, c),
        lambda r, v, n, e, c: (r, v, n, e | c, c),  # a time limit taken for an end
        lambda r, v, n, e, c: (r, v, n, e, c & False),  # a sum that runs on past it
        lambda r, v, n, e, c: (r, v, np.roll(n, 1, 0), e, c),
    ],
    ids=["sign", "mask", "cut", "off by one"],
)
def test_planted_errors_in_advantages_are_caught(plant: Callable, rng: np.random.Generator) -> None:
    data = rollout(rng)
    wrong = returns.gae(*map(jnp.asarray, plant(*data)), gamma=0.9, lam=0.8)
    assert not close(wrong, oracle.gae(*data, gamma=0.9, lam=0.8))


def made(rng: np.random.Generator) -> tuple[State, Sample]:
    """A state with parameters moved off their symmetric start, and a minibatch."""
    state = AGENT.init(jax.random.key(0), jnp.zeros(SEEN), jnp.zeros(A))
    noisy = jax.tree.map(lambda x: x + 0.3 * rng.normal(size=x.shape), state.actor.params)
    state = state._replace(actor=state.actor._replace(params=noisy))
    arrays = {
        "obs": rng.normal(size=(16, SEEN)), "critic_obs": rng.normal(size=(16, SEEN)),
        "action": rng.normal(size=(16, A)), "advantage": rng.normal(size=16),
        "target": rng.normal(size=16),
    }  # fmt: skip
    old = {"logp": rng.normal(size=16) - 3, "mean": rng.normal(size=(16, A)),
           "log_std": rng.normal(size=(16, A))}  # fmt: skip
    return state, jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), Sample(old=old, **arrays))


def layers(params: dict) -> list[tuple[np.ndarray, np.ndarray]]:
    dense = params["params"]
    dense = dense.get("MLP_0", dense)
    return [(dense[n]["kernel"], dense[n]["bias"]) for n in ("Dense_0", "Dense_1")]


def test_losses_are_the_oracles(rng: np.random.Generator) -> None:
    state, batch = made(rng)
    host = jax.tree.map(lambda x: np.asarray(x, np.float64), batch)
    mean = oracle.mlp(host.obs, layers(state.actor.params))
    log_std = np.broadcast_to(np.asarray(state.actor.params["params"]["log_std"]), mean.shape)
    want, clipped = oracle.policy_loss(
        mean, log_std, host.action, host.old["logp"], host.advantage, clip=0.2, entropy_cost=0.01
    )
    loss, metrics = AGENT.policy_loss(state.actor.params, batch)
    assert close(loss, want)
    assert close(metrics["clip_fraction"], clipped)
    kl = oracle.normal_kl(host.old["mean"], host.old["log_std"], mean, log_std).mean()
    assert close(metrics["kl"], kl)
    v = oracle.mlp(host.critic_obs, layers(state.critic.params))[:, 0]
    assert close(AGENT.value_loss(state.critic.params, batch)[0], oracle.value_loss(v, host.target))


@pytest.mark.parametrize(
    "plant",
    [
        lambda b: b._replace(advantage=-b.advantage),
        lambda b: b._replace(old=b.old | {"logp": -b.old["logp"]}),
        lambda b: b._replace(action=jnp.roll(b.action, 1, 0)),
    ],
    ids=["sign", "density", "off by one"],
)
def test_planted_errors_in_the_policy_loss_are_caught(
    plant: Callable, rng: np.random.Generator
) -> None:
    state, batch = made(rng)
    right, wrong = (AGENT.policy_loss(state.actor.params, b)[0] for b in (batch, plant(batch)))
    assert not close(wrong, np.asarray(right))


def test_statistics_and_optimiser_are_the_oracles(rng: np.random.Generator) -> None:
    batches = [rng.normal(3, 2, size=(n, SEEN)) for n in (4, 1, 9)]
    stats = norm.init(jnp.zeros(SEEN))
    for batch in batches:
        stats = norm.update(stats, jnp.asarray(batch, jnp.float32))
    mean, var = oracle.pooled_moments(batches)
    assert np.allclose(stats.mean, mean, atol=1e-3)  # the prior weighs 1e-4 of one example
    assert np.allclose(stats.var, var, rtol=1e-2)
    params, grads = rng.normal(size=6), list(rng.normal(size=(5, 6)))
    tx, x = AGENT.tx(jnp.float32(0.01)), jnp.asarray(params, jnp.float32)
    opt = tx.init(x)
    for grad in grads:
        updates, opt = tx.update(jnp.asarray(grad, jnp.float32), opt)
        x = optax.apply_updates(x, updates)
    assert close(x, oracle.adam_steps(params, grads, 0.01))


def transitions(rng: np.random.Generator, state: State) -> Transition:
    obs = jnp.asarray(rng.normal(size=(T, N, SEEN)), jnp.float32)
    policy = AGENT.policy(explore=True, action_dim=A)
    keys = jax.random.split(jax.random.key(1), T * N)
    action, _, aux = jax.vmap(lambda o, k: policy.step(AGENT.deploy(state), (), o, k))(
        obs.reshape(-1, SEEN), keys
    )
    shaped = jax.tree.map(lambda x: x.reshape(T, N, *x.shape[1:]), (action, aux))
    reward, _, _, ended, cut = rollout(rng)
    reward, ended, cut = map(jnp.asarray, (reward, ended, cut))
    return Transition(obs, shaped[0], reward, ended, cut, obs + 1, shaped[1])


def test_the_first_ratio_is_one_and_update_is_pure(rng: np.random.Generator) -> None:
    state = AGENT.init(jax.random.key(0), jnp.zeros(SEEN), jnp.zeros(A))
    batch = transitions(rng, state)
    sample, _ = AGENT.samples(state, batch)
    mean, log_std = nets.apply(AGENT.actor(A), state.actor.params, sample.obs)
    ratio = jnp.exp(nets.normal_logp(sample.action, mean, log_std) - sample.old["logp"])
    assert jnp.allclose(ratio, 1, atol=1e-5)
    before, update = jax.tree.map(jnp.copy, state), jax.jit(AGENT.update)
    first, second = (update(state, batch, jax.random.key(2)) for _ in range(2))
    assert jax.tree.all(jax.tree.map(jnp.array_equal, state, before))
    assert jax.tree.all(jax.tree.map(jnp.array_equal, first, second))
    assert not jnp.array_equal(first[0].obs.mean, state.obs.mean)


def test_the_critic_alone_sees_what_is_privileged(rng: np.random.Generator) -> None:
    obs = {"policy": jnp.zeros(SEEN), "critic": jnp.zeros(SEEN + 4)}
    state = AGENT.init(jax.random.key(0), obs, jnp.zeros(A))
    assert state.critic_obs.mean.shape == (SEEN + 4,)
    act = AGENT.policy(explore=False, action_dim=A).step
    seen = act(AGENT.deploy(state), (), obs, jax.random.key(0))[0]
    other = act(AGENT.deploy(state), (), obs | {"critic": jnp.ones(SEEN + 4)}, jax.random.key(0))[0]
    assert jnp.array_equal(seen, other)


@pytest.mark.parametrize(
    ("terminated", "value"), [(True, 1.0), (False, 10.0)], ids=["one step", "for ever"]
)
def test_value_converges_to_what_is_known(terminated: bool, value: float) -> None:
    """One state, reward 1: V is 1 where it ends there, 1 / (1 - gamma) where only time cuts."""
    agent = replace(AGENT, gamma=0.9, epochs=4, lr=3e-3, minibatches=4)
    state = agent.init(jax.random.key(0), jnp.zeros(SEEN), jnp.zeros(A))
    zeros, ones = jnp.zeros((8, 8, SEEN)), jnp.ones((8, 8))
    aux = {"logp": -ones, "mean": jnp.zeros((8, 8, A)), "log_std": jnp.zeros((8, 8, A))}
    batch = Transition(
        zeros, jnp.zeros((8, 8, A)), ones, ones * terminated > 0, ones > 0, zeros, aux
    )
    keys = jax.random.split(jax.random.key(1), 150)
    step = jax.jit(lambda s: jax.lax.scan(lambda s, k: agent.update(s, batch, k), s, keys)[0])
    state = step(state)
    assert agent.value(state, jnp.zeros(SEEN)) == pytest.approx(value, rel=0.05)


def test_learning_rate_follows_the_measured_kl() -> None:
    agent, lr = replace(AGENT, target_kl=0.01), jnp.float32(1e-3)
    assert agent.adapt(lr, jnp.float32(0.03)) < lr < agent.adapt(lr, jnp.float32(0.001))
    assert agent.adapt(lr, jnp.float32(0.01)) == lr
    assert AGENT.adapt(lr, jnp.float32(1.0)) == lr


@pytest.mark.parametrize(("target_kl", "factor"), [(1e-9, 1 / 1.5), (1e9, 1.5)])
def test_learning_rate_is_adapted_once_an_epoch(
    target_kl: float, factor: float, rng: np.random.Generator
) -> None:
    agent = replace(AGENT, target_kl=target_kl, lr=1e-4, epochs=3)
    state = agent.init(jax.random.key(0), jnp.zeros(SEEN), jnp.zeros(A))
    after, _ = agent.update(state, transitions(rng, state), jax.random.key(1))
    assert after.lr == pytest.approx(1e-4 * factor**3)


def test_the_policy_never_sees_what_is_the_critics() -> None:
    obs = {"critic": 1, "joints": 2, "image": 3}
    assert view(obs, "policy") == {"joints": 2, "image": 3}
    assert view(obs, "critic") == 1
    assert view({"critic": 1, "policy": 2}, "policy") == 2
    assert view({"policy": 2}, "critic") == 2


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_update_lowers_for(platform: str, rng: np.random.Generator) -> None:
    state = AGENT.init(jax.random.key(0), jnp.zeros(SEEN), jnp.zeros(A))
    batch = transitions(rng, state)
    words = jax.random.key_data(jax.random.key(0))

    def update(state: State, batch: Transition, words: jax.Array) -> State:
        return AGENT.update(state, batch, jax.random.wrap_key_data(words))[0]

    text = jax.export.export(jax.jit(update), platforms=[platform])(state, batch, words)
    assert text.platforms == (platform,)
