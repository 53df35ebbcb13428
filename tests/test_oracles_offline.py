"""Losses and targets of offline agents against oracles in float64, and these with errors planted.

The oracle is given what the agent's own networks say; a loss agrees in its value and in its slope,
which is how a number that is to have no gradient shows that it has none.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.awac import AWAC
from agents.bc import BC
from agents.dvl import DVL
from agents.iql import IQL
from agents.rebrac import ReBRAC
from agents.td3_bc import TD3BC
from rl.nets import apply
from tests.learners import KEY, N_STEP, A, B, f64, given, held, sampled, told, told_apart
from tests.oracles import offline, offpolicy
from tests.oracles.offline import tanh_normal_logp_of as squashed

NETS: dict[str, Any] = {"hidden": (8,), "gamma": 0.9}
NOISE: dict[str, Any] = {"smoothing": 0.4, "smoothing_clip": 0.3, "normalise": False}
TD3_BC = TD3BC(**NETS, **NOISE)
AWAC_ = AWAC(**NETS, beta=1.5, most=2.0)
REBRAC = ReBRAC(**NETS, **NOISE, actor_bc=0.4, critic_bc=0.3)
KL: dict[str, Any] = {"divergence": "reverse_kl", "scale": 0.7}
NAME = lambda agent: type(agent).__name__  # noqa: E731
VALUED = {  # agents with a value, and changes to them that must show in its loss
    "iql 0.7": (IQL(**NETS), [{"expectile": 0.3}, {"expectile": 0.5}]),
    "iql 0.9": (IQL(**NETS, expectile=0.9), [{"expectile": 0.1}, {"expectile": 0.7}]),
    "chi_square": (DVL(**NETS, weight=0.8), [{"weight": 0.2}, {"divergence": "total_variation"}]),
    "total_variation": (DVL(**NETS, divergence="total_variation", weight=0.7), [{"weight": 0.3}]),
    "KL": (DVL(**NETS, **KL), [{"scale": 1 / 0.7}, {"divergence": "chi_square"}]),
    "KL, clipped": (DVL(**NETS, **KL, clip=0.3), [{"clip": 9.0}]),
}


@pytest.mark.parametrize("std", ["learned", "one"])
def test_bc(std: Any) -> None:
    agent = BC(hidden=(8,), std=std)
    state, batch = given(agent)
    obs, taken, action = batch.obs[:, 0], batch.action[:, 0], f64(batch.action[:, 0])
    square = lambda mean: offline.td3_bc_actor_loss(np.ones(B), mean, action, 0.0)  # noqa: E731
    losses = {
        "learned": lambda mean, std: -offline.normal_logp(action, mean, std).mean(),
        "one": lambda mean, std: square(mean),
        "density of one std": lambda mean, std: -offline.normal_logp(action, mean, 0 * std).mean(),
        "sum over dimensions": lambda mean, std: A * square(mean),
        "squashed": lambda mean, std: -squashed(action, mean, std).mean(),
    }
    rest, outputs = (obs, taken, KEY), lambda params: apply(agent.actor(A), params, obs)
    held(agent.loss, state.actor.params, rest, outputs, losses.pop(std), losses)


@pytest.mark.parametrize("name", VALUED)
def test_value_losses(name: str) -> None:
    agent, changes = VALUED[name]
    state, batch = given(agent)
    sample = agent.sample(state, batch)
    obs, both = sample.obs.critic, [state.target, state.critic.params]
    q, online = (1 + f64(agent.q(params, obs, sample.action)) for params in both)
    v, top = f64(agent.v(state.value.params, obs)), None
    if "KL" in name:
        top = offline.dvl_top(q, v, agent.scale, agent.clip)

    def wanted(q: np.ndarray, top=top, **change: Any) -> Callable[[np.ndarray], float]:
        now = replace(agent, **change)
        if isinstance(now, IQL):
            return lambda v: offline.iql_value_loss(q, v, now.expectile)
        given = now.divergence, now.weight, now.scale, now.clip
        return lambda v: offline.dvl_value_loss(q, v, *given, top=top)

    wrong = {str(change): wanted(q, **change) for change in changes}
    wrong |= {"mean": wanted(q.mean(0)[None]), "max": wanted(q.max(0)[None])}
    wrong |= {"first": wanted(q[:1]), "online": wanted(online)}
    if name == "KL":
        wrong["size moves"] = wanted(q, top=None)
    rest, outputs = (sample, jnp.asarray(q.min(0), "f4")), lambda params: (agent.v(params, obs),)
    held(agent.value_loss, state.value.params, rest, outputs, wanted(q), wrong)


@pytest.mark.parametrize("name", VALUED)
def test_actor_and_critics_go_by_the_new_value(name: str) -> None:
    agent = replace(VALUED[name][0], lr=0.05, beta=3.0, most=0.9)
    state, batch = given(agent)
    sample = agent.sample(state, batch)
    new, metrics = agent.update(state, jax.tree.map(lambda x: x[None], batch), KEY)
    obs, after, action = sample.obs.critic, sample.next_obs.critic, f64(sample.action)
    q, online = (f64(agent.q(p, obs, sample.action)) for p in (state.target, state.critic.params))
    (v, later), (old, old_later) = (
        [f64(agent.v(params, x)) for x in (obs, after)]
        for params in (new.value.params, state.value.params)
    )
    normal = [f64(x) for x in apply(agent.actor(A), state.actor.params, obs)]
    density = offline.normal_logp(action, *normal)

    def actor(q=q, v=v, logp=density, beta=3.0, most: float | None = 0.9) -> float:
        return offline.iql_actor_loss(q, v, logp, beta, most)

    told_apart(metrics["actor_loss"], actor(), {
        "old value": actor(v=old), "online critics": actor(online), "mean": actor(q.mean(0)[None]),
        "no baseline": actor(v=0 * v), "1 / beta": actor(beta=1 / 3), "no clip": actor(most=None),
        "sign": actor(beta=-3), "squashed": actor(logp=squashed(action, *normal)),
    })  # fmt: skip
    reward, discount = told(batch, 0.9)
    one_step, on = f64(batch.reward[:, 0]), discount > 0
    loss = offline.critic_loss_sum if isinstance(agent, IQL) else offline.dvl_critic_loss

    def critic(reward=reward, discount=discount, later=later, q=online) -> float:
        return loss(q, offline.iql_q_target(reward, discount, later))

    told_apart(metrics["critic_loss"], critic(), {
        "old value": critic(later=old_later), "value here": critic(later=v),
        "no discount": critic(discount=on), "one step's": critic(discount=0.9 * on),
        "ends ignored": critic(discount=np.full(B, 0.9**N_STEP)),
        "one reward": critic(one_step), "targets' values": critic(q=q),
    })  # fmt: skip


@pytest.mark.parametrize("agent", [IQL(**NETS), DVL(**NETS), TD3_BC, REBRAC, AWAC_], ids=NAME)
def test_critic_losses(agent: Any) -> None:
    state, batch = given(agent)
    sample, *_ = sampled(agent, state, batch)
    target = jnp.linspace(-60, 60, B)
    losses = {"sum": offline.critic_loss_sum, "mean": offline.critic_loss_mean,
              "half": lambda q, y: offline.critic_loss_sum(q, y) / 2,
              "huber": offline.dvl_critic_loss,
              "huber of 1": lambda q, y: offline.dvl_critic_loss(q, y, 1.0),
              "no cut": lambda q, y: offline.dvl_critic_loss(q, y, 99.0)}  # fmt: skip
    losses = {name: lambda q, x=x: x(q, f64(target)) for name, x in losses.items()}
    right = losses.pop("huber" if isinstance(agent, DVL) else "sum")
    outputs = lambda params: (agent.q(params, sample.obs.critic, sample.action),)  # noqa: E731
    held(agent.critic_loss, state.critic.params, (sample, target), outputs, right, losses)


@pytest.mark.parametrize("agent", [TD3_BC, REBRAC, AWAC_], ids=NAME)
def test_targets_of_the_policy_s_next_action(agent: Any) -> None:
    state, batch = given(agent)
    sample, *then = sampled(agent, state, batch)
    (reward, discount), after = told(batch, 0.9), sample.next_obs.critic
    noise, bc = f64(jax.random.normal(KEY, (B, A))), getattr(agent, "critic_bc", 0.0)
    known = ~np.asarray(batch.terminated | batch.truncated)[:, :N_STEP].any(1)
    usual = {"discount": discount, "did": f64(batch.action[:, -1]), "known": known, "bc": bc}
    if isinstance(agent, AWAC):
        mean, log_std = map(f64, apply(agent.actor(A), state.actor.params, after))
        raw = mean + np.exp(log_std) * noise
        action = np.clip(raw, -1, 1)
        actions = {"mean": mean, "not clipped": raw, "squashed": np.tanh(raw)}
    else:
        mean, online = (f64(agent.act(p, after, A)) for p in (state.target_actor, state.actor[0]))
        action = offpolicy.td3_next_action(mean, 0.4 * noise, 0.3)
        actions = {"online actor": offpolicy.td3_next_action(online, 0.4 * noise, 0.3)}
        actions |= {"noise not clipped": np.clip(mean + 0.4 * noise, -1, 1), "no noise": mean}

    def wanted(action=action, params=state.target, how=lambda q: q, **change: Any) -> np.ndarray:
        q = how(f64(agent.q(params, after, jnp.asarray(action, "f4"))))
        discount, did, known, bc = (usual | change).values()
        return offline.rebrac_target(reward, discount, q, action, did, known, bc)

    wrong = {name: wanted(x) for name, x in actions.items()} | {
        "online critics": wanted(params=state.critic.params), "first": wanted(how=lambda q: q[:1]),
        "mean of critics": wanted(how=lambda q: q.mean(0)[None]),
        "max": wanted(how=lambda q: q.max(0)[None]), "no discount": wanted(discount=discount > 0),
        "ends ignored": wanted(discount=np.full(B, 0.9**N_STEP)),
    }  # fmt: skip
    if isinstance(agent, ReBRAC):
        off = bc * ((action - usual["did"]) ** 2).sum(1)
        wrong |= {
            "another episode's": wanted(known=known | True), "mean for sum": wanted(bc=bc / A),
            "this step's": wanted(did=f64(sample.action)), "added": wanted(bc=-bc),
            "at ends too": wanted(bc=0.0) - 0.9**N_STEP * off, "TD3+BC's": wanted(bc=0.0),
            "not discounted": wanted(bc=0.0) - off * known,
        }  # fmt: skip
    told_apart(agent.backup(state, sample, *then, KEY), wanted(), wrong)


@pytest.mark.parametrize(
    "agent", [TD3_BC, REBRAC, replace(REBRAC, normalise_q=False)], ids=["td3_bc", "rebrac", "raw q"]
)
def test_actor_losses_of_the_policy_s_own_action(agent: TD3BC | ReBRAC) -> None:
    state, batch = given(agent)
    sample, *_ = sampled(agent, state, batch)
    obs, taken = sample.obs.critic, f64(sample.action)
    bc, normalised = getattr(agent, "actor_bc", 1.0), getattr(agent, "normalise_q", True)

    def outputs(params: Any) -> tuple:
        action = agent.act(params, obs, A)
        return agent.q(state.critic.params, obs, action), action

    q = f64(outputs(state.actor.params)[0])
    usual = (lambda q: q[:1]) if isinstance(agent, TD3BC) else (lambda q: q)
    size = offline.q_scale(usual(q).min(0))

    def wanted(bc=bc, by: bool = normalised, scale: float | None = size, how=usual) -> Callable:
        if isinstance(agent, ReBRAC):
            return lambda q, a: offline.rebrac_actor_loss(how(q), a, taken, bc, by, scale=scale)
        loss = partial(offline.td3_bc_actor_loss, scale=scale if by else 1.0)
        return lambda q, action: bc * loss(how(q).min(0), action, taken, 2.5 / bc)

    wrong = {
        "other normalisation": wanted(by=not normalised), "mean for sum": wanted(bc=bc / A),
        "sum for mean": wanted(bc=bc * A), "imitation's sign": wanted(bc=-bc),
        "Q's sign": wanted(how=lambda q: -usual(q)), "second": wanted(how=lambda q: q[1:]),
        "mean": wanted(how=lambda q: q.mean(0)[None]), "max": wanted(how=lambda q: q.max(0)[None]),
        "lower or first": wanted(how=lambda q: q if isinstance(agent, TD3BC) else q[:1]),
    }  # fmt: skip
    if normalised:
        wrong["size moves"] = wanted(scale=None)
    held(agent.actor_loss, state.actor.params, (state, sample), outputs, wanted(), wrong)


def test_actor_loss_of_awac() -> None:
    agent = AWAC_
    state, batch = given(agent)
    sample = agent.sample(state, batch)
    obs, taken, critics = sample.obs.critic, f64(sample.action), state.critic.params
    noise = jax.random.normal(KEY, (B, A))

    def outputs(params: Any) -> tuple:
        """Mean and log std, and what the critics make of an action of these."""
        mean, log_std = apply(agent.actor(A), params, obs)
        own = jnp.clip(mean + jnp.exp(log_std) * noise, -1, 1)
        return mean, log_std, agent.q(critics, obs, own)

    mean, log_std, own_q = outputs(state.actor.params)
    q, old = (f64(agent.q(p, obs, sample.action)) for p in (critics, state.target))
    at_mean, over = (f64(agent.q(critics, obs, mean + x)) for x in (0, jnp.exp(log_std) * noise))

    def wanted(
        q=q, own=own_q, lam=1 / 1.5, clip: Any = 2.0, density=offline.normal_logp
    ) -> Callable:
        loss = lambda logp: offline.awac_actor_loss(q, own, logp, lam, clip)  # noqa: E731
        return lambda mean, log_std, _: loss(density(taken, mean, log_std))

    wrong = {
        "own action moves": lambda mean, log_std, own_q: wanted(own=own_q)(mean, log_std, None),
        "target critics": wanted(old), "own action is the mean": wanted(own=at_mean),
        "own action not clipped": wanted(own=over), "no baseline": wanted(own=0 * q),
        "means": wanted(q.mean(0)[None], f64(own_q).mean(0)[None]), "BC": wanted(own=q),
        "lambda turned": wanted(lam=1.5), "sign": wanted(lam=-1 / 1.5),
        "no clip": wanted(clip=None), "squashed": wanted(density=squashed),
    }  # fmt: skip
    held(agent.actor_loss, state.actor.params, (state, sample, KEY), outputs, wanted(), wrong)
