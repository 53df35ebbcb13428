"""TD3 against an oracle in float64, and on problems whose answer is known on paper."""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.td3 import TD3, State
from rl.types import Transition
from tests.learners import (
    HEADS,
    KEY,
    SEEN,
    A,
    B,
    close,
    made,
    values_of_a_fixed_reward,
    window,
)
from tests.oracles import networks, offpolicy

AGENT = TD3(hidden=(8,), critic_hidden=(8, 8), gamma=0.9, smoothing=0.4, smoothing_clip=0.3)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def outputs(dense: dict, x: np.ndarray, member: int | None = None) -> np.ndarray:
    """The oracle's forward pass of the layers `dense`, of one member where they are of many."""
    pick = lambda x: np.asarray(x if member is None else x[member], np.float64)  # noqa: E731
    return networks.mlp(x, [(pick(v["kernel"]), pick(v["bias"])) for _, v in sorted(dense.items())])


def both(params: dict, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Values [2, B] of the critics."""
    x = np.concatenate([obs, action], 1)
    return np.stack([outputs(params["params"]["MLP_0"], x, i)[:, 0] for i in range(2)])


def wanted_target(state: State, batch: Transition, agent: TD3) -> np.ndarray:
    reward, discount, last = offpolicy.n_step(
        batch.reward, batch.terminated, batch.truncated, agent.gamma
    )
    after = np.asarray(batch.next_obs, np.float64)[np.arange(B), last]
    params = state.target_actor if agent.target_actor else state.actor.params
    noise = agent.smoothing * np.asarray(jax.random.normal(KEY, (B, A)), np.float64)
    mean = np.tanh(outputs(params["params"], after))
    action = offpolicy.td3_next_action(mean, noise, agent.smoothing_clip)
    return offpolicy.td3_target(reward, discount, both(state.target, after, action))


@pytest.mark.parametrize("target_actor", [True, False])
def test_targets_are_the_oracles(target_actor: bool, rng: np.random.Generator) -> None:
    agent = replace(AGENT, target_actor=target_actor)
    state, batch = made(agent, rng), window(rng)
    target = agent.backup(state, agent.sample(state, batch), KEY)[:, 0]
    assert close(target, wanted_target(state, batch, agent))


@pytest.mark.parametrize(
    "plant",
    [
        lambda a, b: (a, b._replace(reward=-b.reward)),
        lambda a, b: (a, b._replace(terminated=b.terminated & False)),
        lambda a, b: (a, b._replace(terminated=b.terminated | b.truncated)),
        lambda a, b: (a, jax.tree.map(lambda x: x[:, 1:], b)),
        lambda a, b: (replace(a, target_actor=False), b),
        lambda a, b: (replace(a, smoothing_clip=9.0), b),
    ],
    ids=["sign", "mask", "time limit", "off by one", "actor for its target", "noise not clipped"],
)
def test_planted_errors_in_targets_are_caught(plant: Callable, rng: np.random.Generator) -> None:
    state, batch = made(AGENT, rng), window(rng)
    agent, wrong = plant(AGENT, batch)
    ours = agent.backup(state, agent.sample(state, wrong), KEY)[:, 0]
    assert not close(ours, wanted_target(state, batch, AGENT))


@pytest.mark.parametrize("actor_q", ["first", "min", "mean"])
def test_losses_are_the_oracles(actor_q: str, rng: np.random.Generator) -> None:
    agent = replace(AGENT, actor_q=actor_q)
    state, batch = made(agent, rng), window(rng)
    sample, target = agent.sample(state, batch), jnp.linspace(-1, 1, B)
    obs, action = (np.asarray(x[:, 0], np.float64) for x in (batch.obs, batch.action))
    loss = agent.critic_loss(state.critic.params, sample, target[:, None])[0]
    q = both(state.critic.params, obs, action)
    assert close(loss, offpolicy.td3_critic_loss(q, np.asarray(target)))
    assert not close(loss, offpolicy.td3_critic_loss(-q, np.asarray(target)))
    new = np.tanh(outputs(state.actor.params["params"], obs))
    q = both(state.critic.params, obs, new)
    chosen = {"first": q[0], "min": q.min(0), "mean": q.mean(0)}[actor_q]
    loss = agent.actor_loss(state.actor.params, state, sample)[0]
    assert close(loss, offpolicy.td3_actor_loss(chosen))
    assert not close(loss, offpolicy.td3_actor_loss(-chosen))


@pytest.mark.long
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(("terminated", "q"), [(True, 1.0), (False, 2.0)])
def test_q_converges_to_the_known_value(head: str, terminated: bool, q: float) -> None:
    """Reward 1 at every step: 1 if that ends it, else 1 / (1 - gamma)."""
    agent = TD3(
        hidden=(16,), critic_hidden=(32,), head=HEADS[head], critic_lr=3e-3, gamma=0.5, tau=0.1,
        lr=0.0,
    )  # fmt: skip
    found = values_of_a_fixed_reward(agent, terminated)
    assert np.allclose(found, q, atol=0.06)


def test_an_update_is_pure_and_moves_what_it_should(rng: np.random.Generator) -> None:
    state = made(AGENT, rng)
    batch = jax.tree.map(lambda *xs: jnp.stack(xs), window(rng), window(rng))
    update = jax.jit(AGENT.update)
    (first, _), (second, _) = update(state, batch, KEY), update(state, batch, KEY)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, first, second))
    assert (first.critic.opt[0].count, first.actor.opt[0].count) == (2, 1)
    for online, before, now in (
        (first.critic.params, state.target, first.target),
        (first.actor.params, state.target_actor, first.target_actor),
    ):
        flat = [np.concatenate([np.ravel(x) for x in jax.tree.leaves(t)]) for t in (before, online)]
        wanted = offpolicy.polyak(*flat, AGENT.tau)
        assert close(np.concatenate([np.ravel(x) for x in jax.tree.leaves(now)]), wanted)


def test_the_noise_of_an_episode_has_one_size() -> None:
    agent = replace(AGENT, exploration=(0.05, 0.4))
    state = agent.init(KEY, jnp.zeros(SEEN), jnp.zeros(A))
    policy, params = agent.policy(explore=True, action_dim=A), agent.deploy(state)
    stds = []
    for episode in range(40):
        carry = policy.init(params)
        for step in range(3):
            key = jax.random.fold_in(jax.random.key(episode), step)
            action, carry, _ = policy.step(params, carry, jnp.zeros(SEEN), key)
            assert (jnp.abs(action) <= 1).all()
            stds.append(float(carry))
    stds = np.reshape(stds, (40, 3))
    assert (stds == stds[:, :1]).all()
    assert 0.05 <= stds.min() < 0.12
    assert 0.33 < stds.max() <= 0.4
    sure = agent.policy(explore=False, action_dim=A)
    first, second = (
        sure.step(params, carry, jnp.zeros(SEEN), k)[0] for k in (KEY, jax.random.key(9))
    )
    assert jnp.array_equal(first, second)
