"""FastTD3 and FastSAC: settings as published, and what they add to TD3 and SAC against oracles."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.sac import SAC
from agents.td3 import TD3
from experiments import fast_sac, fast_td3, off_policy
from experiments.fast_sac import FAST_SAC
from experiments.fast_td3 import FAST_TD3
from rl import heads
from rl.heads import C51
from rl.nets import SquashedGaussian
from tests.learners import HEADS, KEY, SEEN, A, B, close, f64, made, told_apart, window
from tests.oracles import heads as head_oracle
from tests.oracles import networks, offpolicy


def test_settings_are_those_published() -> None:
    """FastTD3: Seo et al. 2025, table of hyperparameters for MuJoCo Playground; FastSAC: the
    settings for walking in the repository of arXiv:2512.01996."""
    args, agent = fast_td3.Args(), fast_td3.Args().agent
    assert (args.num_envs, args.batch_size, args.n_step) == (1024, 32768, 1)
    assert (args.updates_per_step, agent.delay) == (2, 2)
    assert (args.learning_starts // args.num_envs, args.buffer_size // args.num_envs) == (10, 10240)
    assert agent == TD3(
        hidden=(512, 256, 128), critic_hidden=(1024, 512, 256), head=C51(-10, 10, 101),
        actor_q="min", lr=3e-4, critic_lr=3e-4, weight_decay=0.1, gamma=0.97, tau=0.1, eager=True,
        delay=2, exploration=(0.001, 0.4), smoothing=0.001, smoothing_clip=0.5, target_actor=False,
        out_std=0.01, normalise=True,
    )  # fmt: skip
    assert off_policy.pace(args) == (1, 1)  # a step of all worlds, two of critics, one of the actor
    args, agent = fast_sac.Args(), fast_sac.Args().agent
    assert (args.num_envs, args.batch_size, args.n_step) == (4096, 8192, 1)
    assert (args.updates_per_step, agent.delay) == (8, 4)
    assert (args.learning_starts // args.num_envs, args.buffer_size // args.num_envs) == (10, 1024)
    assert agent == SAC(
        nets="fastsac", hidden=(512, 256, 128), critic_hidden=(768, 384, 192), critics=2,
        head=C51(-20, 20, 101), target_q="own", actor_q="mean", lr=3e-4, critic_lr=3e-4,
        beta2=0.95, decay=0.001, gamma=0.97, tau=0.125, delay=4, alpha=0.001, target_entropy=0.0,
        entropy_backup=True, normalise=True,
    )  # fmt: skip
    assert off_policy.pace(args) == (1, 2)  # eight of critics, two of the actor


def dense(layer: Any) -> tuple[np.ndarray, np.ndarray]:
    return f64(layer["kernel"]), f64(layer["bias"])


def silu_net(params: Any, x: np.ndarray) -> np.ndarray:
    """Dense layers, each but the last followed by layer normalisation and x sigmoid(x)."""
    count = sum(name.startswith("Dense") for name in params)
    for i in range(count):
        kernel, bias = dense(params[f"Dense_{i}"])
        x = x @ kernel + bias
        if i < count - 1:
            norm = params[f"LayerNorm_{i}"]
            x = networks.layer_normalise(x, f64(norm["scale"]), f64(norm["bias"]))
            x = x / (1 + np.exp(-x))
    return x


def member(params: Any, i: int) -> Any:
    return jax.tree.map(lambda x: x[i], params["params"]["MLP_0"])


def test_fast_sac_s_networks_are_the_oracles() -> None:
    rng = np.random.default_rng(0)
    agent = replace(FAST_SAC, hidden=(8, 6), critic_hidden=(8, 6), head=HEADS["c51"])
    fresh = agent.init(KEY, jnp.zeros(SEEN), jnp.zeros(A))
    x, action = rng.normal(size=(B, SEEN)), rng.uniform(-1, 1, (B, A))
    at_first = SquashedGaussian(A, (8, 6)).apply(fresh.actor.params, jnp.asarray(x, "f4"))
    assert (at_first[0] == 0).all()
    assert (at_first[1] == -2.5).all()  # the middle of -5 and 0
    state = made(agent, rng)
    mean, log_std = agent.actor(A).apply(state.actor.params, jnp.asarray(x, "f4"))
    raw = silu_net(state.actor.params["params"]["MLP_0"], x)
    assert close(mean, raw[:, :A])
    assert close(log_std, -5 + 2.5 * (1 + np.tanh(raw[:, A:])))
    ours = agent.q(state.critic.params, jnp.asarray(x, "f4"), jnp.asarray(action, "f4"))
    both = np.concatenate([x, action], 1)
    wanted = [silu_net(member(state.critic.params, i), both) for i in range(2)]
    assert close(ours, np.stack(wanted))


def test_each_critic_learns_from_its_own_target() -> None:
    rng = np.random.default_rng(1)
    agent = replace(FAST_SAC, hidden=(8,), critic_hidden=(8,), head=HEADS["c51"], normalise=False)
    state, batch = made(agent, rng), window(rng)
    part = agent.sample(state, batch)
    ours = agent.backup(state, part, KEY)
    act_key = jax.random.split(KEY, 3)[0]
    action, logp = agent.act(state.actor.params, part.next_obs.policy, A, act_key)
    both = np.concatenate([part.next_obs.critic, action], 1)
    logits = np.stack([silu_net(member(state.target, i), f64(both)) for i in range(2)])
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    alpha = np.exp(float(state.log_alpha.params))

    def moved(bonus: np.ndarray, which: tuple[int, int] = (0, 1)) -> np.ndarray:
        given = {"discount": f64(part.discount), "bonus": bonus}
        made = [head_oracle.c51_project(shares[i], -3, 4, part.reward, **given) for i in which]
        return np.stack(made)

    right, bonus = moved(-alpha * f64(logp)), -alpha * f64(logp)
    told_apart(ours, right, {"swapped": moved(bonus, (1, 0)), "entropy's sign": moved(1 - bonus)})
    loss = agent.critic_loss(state.critic.params, part, ours, KEY)[0]
    both = np.concatenate([part.obs.critic, part.action], 1)
    each = [
        head_oracle.cross_entropy(silu_net(member(state.critic.params, i), f64(both)), right[i])
        for i in range(2)
    ]
    assert close(loss, np.mean(each))


def test_the_lower_of_projected_targets_teaches_both_of_td3_s_critics() -> None:
    rng = np.random.default_rng(2)
    agent = replace(FAST_TD3, hidden=(8,), critic_hidden=(8,), head=HEADS["c51"], normalise=False,
                    smoothing=0.0)  # fmt: skip
    state, batch = made(agent, rng), window(rng)
    part = agent.sample(state, batch)
    action = agent.act(state.actor.params, part.next_obs.policy, A)  # of no slow copy
    outputs = f64(agent.q(state.target, part.next_obs.critic, action))
    shares = np.exp(outputs) / np.exp(outputs).sum(-1, keepdims=True)
    given = {"discount": f64(part.discount), "bonus": np.zeros(B)}
    moved = [head_oracle.c51_project(x, -3, 4, part.reward, **given) for x in shares]
    higher = np.where(
        (head_oracle.c51_pick(moved, -3, 4) == moved[0]).all(1)[:, None], *moved[::-1]
    )
    told_apart(
        agent.backup(state, part, KEY), head_oracle.c51_pick(moved, -3, 4),
        {"higher": higher, "first": moved[0], "second": moved[1]},
    )  # fmt: skip


@pytest.mark.parametrize("eager", [True, False])
def test_targets_of_an_eager_one_move_with_every_step_of_the_critics(eager: bool) -> None:
    rng = np.random.default_rng(3)
    agent = TD3(hidden=(8,), critic_hidden=(8,), tau=0.3, smoothing=0.0, eager=eager)
    state = made(agent, rng)
    batch = jax.tree.map(lambda *xs: jnp.stack(xs), window(rng), window(rng))
    after = agent.update(state, batch, KEY)[0]
    first = jax.tree.map(lambda x: x[:1], batch)
    between = replace(agent, delay=1).update(state, first, KEY)[0].critic.params
    flat = lambda tree: np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])  # noqa: E731
    slow, one, two = (flat(x) for x in (state.target, between, after.critic.params))
    if eager:
        slow = offpolicy.polyak(slow, one, 0.3)
    assert close(flat(after.target), offpolicy.polyak(slow, two, 0.3))


def test_weights_decay_and_squares_are_forgotten_as_adamw_has_it() -> None:
    agent, grads, x = SAC(beta2=0.95, decay=0.5), [0.3, -2.0, 0.1], 1.5
    tx, ours = agent.tx(0.1), jnp.float32(x)
    opt, m, v = tx.init(ours), 0.0, 0.0
    for t, grad in enumerate(grads, 1):
        step, opt = tx.update(jnp.float32(grad), opt, ours)
        ours = ours + step
        m, v = 0.9 * m + 0.1 * grad, 0.95 * v + 0.05 * grad**2
        x -= 0.1 * (m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.95**t)) + 1e-8) + 0.5 * x)
        assert np.isclose(ours, x, rtol=1e-5)


def test_actions_begin_small() -> None:
    last = FAST_TD3.init(KEY, jnp.zeros(48), jnp.zeros(12)).actor.params["params"]["Dense_3"]
    assert last["kernel"].shape == (128, 12)
    assert 0.009 < float(last["kernel"].std()) < 0.011
    assert (last["bias"] == 0).all()


@pytest.mark.parametrize("head", [HEADS["c51"], C51(-20, 20, 101)])
def test_projection_keeps_mass_and_what_is_no_number(head: heads.C51) -> None:
    rng = np.random.default_rng(4)
    count = head.bins
    logits, ends = rng.normal(size=(6, count)), np.array([0, 1, 0, 1, 1, 0.97])
    reward = np.array([100.0, 100, -100, 0, head.high, np.nan])
    ours = head.backup(*(jnp.asarray(x, "f4") for x in (logits, reward, ends, np.zeros(6))))
    assert np.allclose(ours[:5].sum(-1), 1, atol=1e-5)
    assert np.isnan(ours[5]).any()
    assert close(ours[:2, -1], np.ones(2))
    assert close(ours[2, 0], np.array(1.0))
    assert close(ours[3], np.exp(logits[3]) / np.exp(logits[3]).sum())  # nothing has moved
