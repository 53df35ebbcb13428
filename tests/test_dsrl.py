"""DSRL: its noise, its targets and its losses by an oracle."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.dsrl import DSRL
from agents.flow_bc import FlowBC
from rl import chunks, temperature
from rl.generative import Flow
from tests import planners
from tests.learners import f64, held, level
from tests.oracles import finetune as oracle
from tests.planners import ACTION, CRITICS, GAMMA, KEY, NET, OBS, PLANS, A, B, told_apart

FLOW = FlowBC(chunks=PLANS, net=NET, flow=Flow(steps=4))
AGENT = DSRL(base=FLOW, hidden=(16,), critics=CRITICS, gamma=GAMMA, alpha=0.4, delay=2)
STEPS = planners.windows(1, PLANS.ahead + 1)
both = pytest.mark.parametrize("critics_of", ["aliased", "noise"])


@cache
def known(agent: DSRL = AGENT) -> tuple[Any, Any]:
    """Networks that are not what they began as, their values around 0; and what is learned of."""

    def centred(critic: Any, macro: Any, given: jax.Array) -> Any:
        nets = critic.net.params, critic.slow
        net, slow = (level(x, CRITICS.q(x, critic.obs, macro.obs, given)) for x in nets)
        return critic._replace(net=critic.net._replace(params=net), slow=slow)

    state = agent.init(KEY, OBS, ACTION, planners.learned(agent.base))
    macro = agent.chunks.macro(state.base["scales"], STEPS, GAMMA)
    plan, noisy = macro.window.chunk, agent.critics_of == "noise"
    actor = state.actor._replace(params=planners.stirred(state.actor.params, 5, 0.1))
    critic, alias = planners.apart(state.critic, 11), planners.apart(state.alias, 21)
    critic = centred(critic, macro, agent.told(plan) if noisy else agent.done(plan))
    alias = centred(alias, macro, agent.told(plan))
    return state._replace(actor=actor, critic=critic, alias=alias, steered=jnp.bool(True)), macro


def chosen64(params: Any, seen: Any, key: Any) -> tuple[np.ndarray, ...]:
    """What the actor samples before it is bounded, its mean and its log-std, all [B, D]."""
    told = planners.mlp64(params["params"]["MLP_0"], f64(seen).reshape(B, -1), planners.relu)
    mean, log_std = np.split(told, 2, -1)
    log_std = np.clip(log_std, -20, 2)
    return mean + np.exp(log_std) * f64(jax.random.normal(key, mean.shape)), mean, log_std


def plan64(state: Any, noise: Any, seen: Any) -> np.ndarray:
    ends = map(f64, chunks.bounds(state.base["scales"].action))
    return np.clip(planners.euler64(state.base["net"], noise, seen, 4), *ends)


@pytest.mark.parametrize("alike", [False, True])
def test_noise_and_its_density_are_the_oracles(alike: bool) -> None:
    agent = replace(AGENT, alike=alike, bound=1.7)
    state, macro = known(replace(AGENT, alike=alike))
    ours = jax.jit(agent.act, static_argnums=2)(state.actor.params, macro.window.seen, A, KEY)
    u, *given = chosen64(state.actor.params, macro.window.seen, KEY)
    noise = oracle.bounded(u, 1.7).reshape(B, -1, A)
    assert noise.shape[1] == (1 if alike else 3)
    np.testing.assert_allclose(ours[0], np.broadcast_to(noise, (B, 3, A)), atol=1e-5)
    logp = oracle.bounded_logp(u, *given, 1.7)
    wrong = {
        "a bound of 1": oracle.bounded_logp(u, *given, 1.0),
        "a bound of one number": oracle.bounded_logp(u, *given, 1.0) - np.log(1.7),
        "a bound that widens": oracle.bounded_logp(u, *given, 1 / 1.7),
        "no tanh": planners.normal_logp(u, *given),
        "another count": logp * (3 if alike else 1 / 3),
    }
    told_apart(ours[1], logp, wrong)


@pytest.mark.parametrize("entropy", [True, False])
@both
def test_targets_are_the_oracles(critics_of: Any, entropy: bool) -> None:
    agent = replace(AGENT, critics_of=critics_of)
    (state, macro), after = known(agent), planners.later(STEPS, PLANS)
    ours = jax.jit(replace(agent, entropy_backup=entropy).backup)(state, macro, KEY)
    key, seen = jax.random.split(KEY)[0], planners.scaled64(state.base["scales"].obs, after.seen)
    u, *given = chosen64(state.actor.params, seen, key)
    noise = oracle.bounded(u, 1.5).reshape(B, 3, A)
    plan = plan64(state, noise, seen)
    deed, other = (noise, plan) if critics_of == "noise" else (plan[:, :2], noise[:, :2])

    def target(deed: Any = deed, **to: Any) -> np.ndarray:
        given64 = {"params": state.critic.slow, "obs": after.known, "entropy": entropy} | to
        q = planners.q64(given64["params"], state.critic.obs, given64["obs"], deed)
        logp = to.get("logp", oracle.bounded_logp(u, *given, 1.5))
        rest = to.get("reward", after.reward), to.get("discount", after.discount)
        q = q.mean(0)[None] if "mean" in to else q
        return oracle.steer_target(*rest, q, logp, to.get("alpha", 0.4), given64["entropy"])

    endless = oracle.chunk_return(STEPS.reward[:, 1:3], *np.zeros((2, B, 2)), GAMMA)
    going = lambda gamma: np.where(after.discount > 0, gamma, 0)  # noqa: E731
    wrong = {
        "the other of entropy": target(entropy=not entropy),
        "the mean critic": target(mean=True),
        "fast critics": target(params=state.critic.net.params),
        "gamma of one step": target(discount=going(GAMMA)),
        "gamma of a horizon": target(discount=going(GAMMA**3)),
        "no ends": target(reward=endless[0], discount=endless[1]),
        "worth of what was seen before": target(obs=macro.obs),
        "noise for actions": target(other),
        "noise that is not stretched": target(deed / 1.5 if critics_of == "noise" else
                                              plan64(state, noise / 1.5, seen)[:, :2]),
    }  # fmt: skip
    if entropy:
        wrong["no bound"] = target(logp=oracle.bounded_logp(u, *given, 1.0))
        wrong["alpha's logarithm"] = target(alpha=np.log(0.4))
    if critics_of == "aliased":
        wrong["the last actions"] = target(plan[:, 1:])
    told_apart(ours, target(), wrong)


def test_each_critic_of_noise_is_taught_by_its_own_of_actions() -> None:
    state, macro = known()
    alias, metrics = jax.jit(AGENT.taught)(state, macro, KEY)
    noise, seen = jax.random.normal(jax.random.split(KEY)[0], (B, 3, A)), macro.window.seen
    deed = plan64(state, noise, seen)
    judge = lambda params, deed: planners.q64(params, state.critic.obs, macro.obs, deed)  # noqa: E731
    qa = judge(state.critic.net.params, deed[:, :2])
    qw = planners.q64(state.alias.net.params, state.alias.obs, macro.obs, noise)
    least = np.broadcast_to(qa.min(0), qa.shape)
    by_hand = oracle.noise_critic_loss
    wrong = {
        "another's": by_hand(qw, np.roll(qa, 1, 0)),
        "the least": by_hand(qw, least),
        "the mean": by_hand(qw, np.broadcast_to(qa.mean(0), qa.shape)),
        "slow critics": by_hand(qw, judge(state.critic.slow, deed[:, :2])),
        "the last actions": by_hand(qw, judge(state.critic.net.params, deed[:, 1:])),
        "noise of the bound": by_hand(
            planners.q64(state.alias.net.params, state.alias.obs, macro.obs, 1.5 * noise), qa
        ),
        "a half": by_hand(qw, qa) / 2,
    }
    told_apart(metrics["alias_loss"], by_hand(qw, qa), wrong)
    assert not planners.same(alias.net.params, state.alias.net.params)
    assert not planners.same(alias.slow, state.alias.slow)


@both
def test_an_update_learns_of_each_batch_in_turn(critics_of: Any) -> None:
    """Critics first, those of noise by the new ones; the actor by all of these, of the last."""
    agent = replace(AGENT, critics_of=critics_of)
    state, aliased = known(agent)[0], critics_of == "aliased"
    steps = planners.windows(2, 1 + agent.ahead)
    if not aliased:
        noise = jax.random.normal(KEY, (B, 1 + agent.ahead, 3, A))
        steps = steps._replace(aux={"noise": noise, "begins": jnp.ones(noise.shape[:2], bool)})
    batch = jax.tree.map(lambda x: jnp.stack([x, x[::-1]]), steps)
    _, told = jax.jit(agent.update)(state, batch, KEY)
    *keys, key = jax.random.split(KEY, 3)
    losses, early, alias_losses, macros = [], [], [], []
    for i, (next_key, taught_key) in enumerate(map(jax.random.split, keys)):
        begun = agent.begun(jax.tree.map(lambda x, i=i: x[i], batch))
        macros.append(macro := agent.chunks.macro(state.base["scales"], begun, GAMMA))
        noise = macro.window.chunk if aliased else begun.aux["noise"]
        given = agent.done(noise) if aliased else noise[:, PLANS.history - 1]
        q = planners.q64(state.critic.net.params, state.critic.obs, macro.obs, given)
        y = agent.backup(state, macro, next_key)
        losses.append(oracle.critic_loss(q, y))
        critic, _ = CRITICS.step(state.critic, macro.obs, given, y)
        early.append(agent.taught(state, macro, taught_key)[1]["alias_loss"])
        state = state._replace(critic=critic)
        alias, taught = agent.taught(state, macro, taught_key)
        alias_losses.append(taught["alias_loss"])
        state = state._replace(alias=alias)
    told_apart(told["critic_loss"], np.mean(losses), {"the first alone": losses[0]})
    if aliased:
        told_apart(told["alias_loss"], np.mean(alias_losses), {"by old critics": np.mean(early)})
    loss = lambda macro: agent.actor_loss(state.actor.params, state, macro, key)[0]  # noqa: E731
    told_apart(told["actor_loss"], loss(macros[1]), {"of the first": loss(macros[0])})


@both
def test_the_actors_and_the_temperatures_losses_are_the_oracles(critics_of: Any) -> None:
    agent = replace(AGENT, critics_of=critics_of)
    (state, macro), params = known(agent), known(agent)[0].actor.params
    critic, other = state.alias, state.critic
    critic, other = (other, critic) if critics_of == "noise" else (critic, other)
    u, *given = chosen64(params, macro.window.seen, KEY)
    logp, noise = oracle.bounded_logp(u, *given, 1.5), oracle.bounded(u, 1.5).reshape(B, 3, A)
    q, slow = (
        planners.q64(x, critic.obs, macro.obs, noise) for x in (critic.net.params, critic.slow)
    )
    cut = noise if critics_of == "noise" else noise[:, :2]
    alien = planners.q64(other.net.params, other.obs, macro.obs, cut)
    by_hand = lambda logp, q: oracle.steer_actor_loss(logp, q, 0.4)  # noqa: E731
    wrong = {
        "slow critics": by_hand(logp, slow),
        "the mean critic": by_hand(logp, q.mean(0)[None]),
        "the other critics": by_hand(logp, alien),
        "no bound": by_hand(oracle.bounded_logp(u, *given, 1.0), q),
        "no entropy": by_hand(0 * logp, q),
        "a lower alpha": oracle.steer_actor_loss(logp, q, 0.01),
    }
    loss = jax.jit(agent.actor_loss)
    ours, metrics = loss(params, state, macro, KEY)
    told_apart(ours, by_hand(logp, q), wrong)

    def outputs(params: Any) -> tuple[jax.Array, jax.Array]:
        noise, logp = agent.act(params, macro.window.seen, A, KEY)
        return logp, CRITICS.q(critic.net.params, critic.obs, macro.obs, noise)

    held(loss, params, (state, macro, KEY), outputs, by_hand,
         {"the worst noise": lambda logp, q: by_hand(logp, -q)})  # fmt: skip
    now = jnp.log(0.4)
    cooler, _ = temperature.loss(now, metrics["entropy"], -2.0)
    right = oracle.temperature_loss(now, logp, -2.0)
    told_apart(cooler, right, {"upwards": -right, "no alpha": right / 0.4})
    slope = jax.grad(lambda x: temperature.loss(x, metrics["entropy"], -2.0)[0])(now)
    told_apart(slope, right, {"of alpha": right / 0.4})
