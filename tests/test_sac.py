"""SAC against an oracle in float64, and on problems whose answer is known on paper."""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.sac import SAC, State
from rl import nets
from rl.types import Transition, view
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
from tests.oracles import crossq, networks, offpolicy
from tests.oracles import heads as head_oracle

AGENT = SAC(
    hidden=(8,), critic_hidden=(8, 8), critics=4, subset=2, layer_norm=True, actor_q="mean",
    alpha=0.3, gamma=0.9,
)  # fmt: skip


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def outputs(params: dict, x: np.ndarray, member: int | None = None) -> np.ndarray:
    """The oracle's forward pass of an actor, or of one member of an ensemble of critics."""
    dense = params["params"]["MLP_0"]
    pick = lambda x: np.asarray(x if member is None else x[member], np.float64)  # noqa: E731
    layers = [
        (pick(v["kernel"]), pick(v["bias"])) for k, v in sorted(dense.items()) if "Dense" in k
    ]
    norms = [(pick(v["scale"]), pick(v["bias"])) for k, v in sorted(dense.items()) if "Layer" in k]
    return networks.mlp(x, layers, norms or None)


def acted(state: State, obs: np.ndarray, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """The action that the actor samples with `key`, and its log-density."""
    mean, log_std = np.split(outputs(state.actor.params, obs), 2, axis=-1)
    log_std = np.clip(log_std, -20, 2)
    u = mean + np.exp(log_std) * np.asarray(jax.random.normal(key, mean.shape), np.float64)
    return np.tanh(u), offpolicy.tanh_normal_logp(u, mean, log_std)


def wanted_target(state: State, batch: Transition, agent: SAC) -> np.ndarray:
    """The oracle's target [B] of a critic that predicts the value itself."""
    reward, discount, last = offpolicy.n_step(
        batch.reward, batch.terminated, batch.truncated, agent.gamma
    )
    after = np.asarray(batch.next_obs, np.float64)[np.arange(B), last]
    act_key, draw_key, _ = jax.random.split(KEY, 3)
    action, logp = acted(state, after, act_key)
    drawn = np.asarray(jax.random.choice(draw_key, agent.critics, (agent.subset,), replace=False))
    x = np.concatenate([after, action], 1)
    q = np.stack([outputs(state.target, x, i)[:, 0] for i in drawn])
    return offpolicy.sac_target(
        reward, discount, q, next_logp=logp, alpha=agent.alpha, entropy=agent.entropy_backup
    )


@pytest.mark.parametrize("entropy", [True, False])
def test_targets_are_the_oracles(entropy: bool, rng: np.random.Generator) -> None:
    agent = replace(AGENT, entropy_backup=entropy)
    state, batch = made(agent, rng), window(rng)
    target = agent.backup(state, agent.sample(state, batch), KEY)[:, 0]
    assert close(target, wanted_target(state, batch, agent))


@pytest.mark.parametrize(
    "plant",
    [
        lambda b: b._replace(reward=-b.reward),
        lambda b: b._replace(terminated=b.terminated & False),
        lambda b: b._replace(terminated=b.terminated | b.truncated),  # a time limit
        lambda b: b._replace(truncated=b.truncated & False),  # a sum that runs on past it
        lambda b: b._replace(next_obs=b.obs),
        lambda b: jax.tree.map(lambda x: x[:, 1:], b),
    ],
    ids=["sign", "mask", "time limit", "cut", "observation", "off by one"],
)
def test_planted_errors_in_targets_are_caught(plant: Callable, rng: np.random.Generator) -> None:
    state, batch = made(AGENT, rng), window(rng)
    wrong = AGENT.backup(state, AGENT.sample(state, plant(batch)), KEY)[:, 0]
    assert not close(wrong, wanted_target(state, batch, AGENT))


def losses(state: State, batch: Transition, agent: SAC) -> tuple[list, list]:
    """Ours, and the oracle's, of critics, actor and temperature."""
    sample = agent.sample(state, batch)
    target = jnp.linspace(-1, 1, B)
    act_key, _ = jax.random.split(KEY)
    ours = [
        agent.critic_loss(state.critic.params, sample, target[:, None], KEY)[0],
        agent.actor_loss(state.actor.params, state, sample, KEY)[0],
        agent.alpha_loss(state.log_alpha.params, jnp.float32(0.7), A)[0],
    ]
    obs, action = (np.asarray(x[:, 0], np.float64) for x in (batch.obs, batch.action))
    members = range(agent.critics)
    each = lambda a: [outputs(state.critic.params, np.concatenate([obs, a], 1), i) for i in members]  # noqa: E731
    new, logp = acted(state, obs, act_key)
    theirs = [
        offpolicy.sac_critic_loss(np.stack(each(action))[..., 0], np.asarray(target)),
        offpolicy.sac_actor_loss(np.stack(each(new))[..., 0], logp, agent.alpha, agent.actor_q),
        offpolicy.alpha_loss(np.log(agent.alpha), [-0.7], -1.0 * A),
    ]
    return ours, theirs


@pytest.mark.parametrize("actor_q", ["mean", "min"])
def test_losses_are_the_oracles(actor_q: str, rng: np.random.Generator) -> None:
    agent = replace(AGENT, actor_q=actor_q)
    for ours, theirs in zip(*losses(made(agent, rng), window(rng), agent), strict=True):
        assert close(ours, theirs)


@pytest.mark.parametrize(
    "plant",
    [
        lambda a, s: (a, s._replace(log_alpha=s.log_alpha._replace(params=-s.log_alpha.params))),
        lambda a, s: (replace(a, actor_q="min"), s),
        lambda a, s: (a, s._replace(critic=s.critic._replace(params=s.target))),
        lambda a, s: (replace(a, target_entropy=-a.target_entropy), s),
    ],
    ids=["sign", "min for mean", "targets for critics", "target entropy"],
)
def test_planted_errors_in_losses_are_caught(plant: Callable, rng: np.random.Generator) -> None:
    state, batch = made(AGENT, rng), window(rng)
    _, theirs = losses(state, batch, AGENT)
    agent, wrong = plant(AGENT, state)
    ours, _ = losses(wrong, batch, agent)
    assert not all(close(x, y) for x, y in zip(ours, theirs, strict=True))


def test_the_lowest_member_makes_the_target(rng: np.random.Generator) -> None:
    agent = replace(AGENT, head=HEADS["c51"], critics=2, subset=0, entropy_backup=False)
    state, batch = made(agent, rng), window(rng, length=1)
    sample = agent.sample(state, batch)
    after = np.asarray(sample.next_obs.policy)
    action, _ = acted(state, after, jax.random.split(KEY, 3)[0])
    x = np.concatenate([after, action], 1)
    logits = np.stack([outputs(state.target, x, i) for i in range(2)])

    def moved(shares: np.ndarray) -> np.ndarray:
        discount = np.asarray(sample.discount)
        return head_oracle.c51_project(
            shares, -3, 4, sample.reward, discount=discount, bonus=np.zeros(B)
        )

    ours = agent.backup(state, sample, KEY)
    assert close(ours, moved(crossq.c51_target(logits, -3, 4, "min")))
    assert not close(ours, moved(crossq.c51_target(logits, -3, 4, "mean")))


@pytest.mark.long
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(("terminated", "q"), [(True, 1.0), (False, 2.0)])
def test_q_converges_to_the_known_value(head: str, terminated: bool, q: float) -> None:
    """Reward 1 at every step: 1 if that ends it, else 1 / (1 - gamma)."""
    agent = SAC(
        hidden=(16,), critic_hidden=(32,), head=HEADS[head], critic_lr=3e-3, gamma=0.5, tau=0.05,
        alpha=1e-6, lr=0.0, delay=2,
    )  # fmt: skip
    found = values_of_a_fixed_reward(agent, terminated)
    assert np.allclose(found, q, atol=0.06)


def test_an_update_is_pure_and_moves_what_it_should(rng: np.random.Generator) -> None:
    agent = replace(AGENT, delay=2)
    state = made(agent, rng)
    batch = jax.tree.map(lambda *xs: jnp.stack(xs), window(rng), window(rng))
    update = jax.jit(agent.update)
    (first, metrics), (second, _) = update(state, batch, KEY), update(state, batch, KEY)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, first, second))
    assert first.critic.opt[0].count == 2
    assert first.actor.opt[0].count == first.log_alpha.opt[0].count == 1
    moved = jax.tree.map(lambda a, b: bool((a != b).any()), first, state)
    assert all(jax.tree.leaves((moved.actor.params, moved.critic.params, moved.target)))
    assert {"critic_loss", "actor_loss", "alpha_loss", "alpha", "entropy", "q"} <= metrics.keys()


def test_target_parameters_follow_as_the_oracles(rng: np.random.Generator) -> None:
    state, batch = made(AGENT, rng), jax.tree.map(lambda x: x[None], window(rng))
    after, _ = jax.jit(AGENT.update)(state, batch, KEY)
    online, before, now = (
        np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])
        for tree in (after.critic.params, state.target, after.target)
    )
    assert close(now, offpolicy.polyak(before, online, AGENT.tau))


def test_dropout_needs_a_key_and_changes_with_it() -> None:
    agent = SAC(hidden=(8,), critic_hidden=(64,), dropout=0.5)
    params = agent.init(KEY, jnp.zeros(SEEN), jnp.zeros(A)).critic.params
    x, a = jnp.ones((4, SEEN)), jnp.ones((4, A))
    sure, one, other = (agent.q(params, x, a, k) for k in (None, KEY, jax.random.key(6)))
    assert not jnp.array_equal(one, other)
    assert not jnp.array_equal(sure, one)
    assert jnp.array_equal(one, agent.q(params, x, a, KEY))


def test_densities_far_out_stay_finite_and_exact() -> None:
    mean, log_std = jnp.array([[30.0, -30.0]]), jnp.zeros((1, 2))
    action, logp = nets.tanh_normal(KEY, mean, log_std)
    u = np.asarray(mean + jax.random.normal(KEY, mean.shape), np.float64)
    assert np.isfinite(logp).all()
    assert (jnp.abs(action) <= 1).all()
    assert close(logp, offpolicy.tanh_normal_logp(u, mean, log_std))


def test_the_critic_may_see_more() -> None:
    obs = {"policy": jnp.ones(2), "critic": jnp.ones(5)}
    state = AGENT.init(KEY, obs, jnp.zeros(A))
    assert view(obs, "critic").shape == (5,)
    assert state.critic.params["params"]["MLP_0"]["Dense_0"]["kernel"].shape == (4, 5 + A, 8)
    assert state.actor.params["params"]["MLP_0"]["Dense_0"]["kernel"].shape == (2, 8)
