"""CQL and Cal-QL against an oracle in float64, that with errors planted, and on a bandit."""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from agents.cql import CQL, State
from rl.nets import apply
from rl.train import Trainable
from rl.types import Array, Key, Transition
from tests import learners
from tests.learners import KEY, N_STEP, A, B, f64, given, held, improved, told, told_apart
from tests.oracles import cql, offline, offpolicy

E, N = 3, 4  # critics, actions of a kind
AGENT = CQL(hidden=(8,), critic_hidden=(8,), critics=E, actions=N, gamma=0.9, penalty=0.7, lr=0.01,
            critic_lr=0.02, tau=0.3)  # fmt: skip


def made(agent: CQL) -> tuple[State, Transition]:
    """With what the data came to, a temperature of 0.3 and another multiplier than the first."""
    state, batch = given(agent)
    alpha, weight = state.log_alpha, state.log_weight
    alpha, weight = alpha._replace(params=jnp.log(0.3)), weight._replace(params=jnp.float32(0.3))
    came = jax.random.normal(jax.random.key(3), batch.reward.shape)
    return state._replace(log_alpha=alpha, log_weight=weight), batch._replace(aux={"return": came})


def acted(params: Any, obs: Array, key: Key, count: int) -> tuple[Array, Array, Array]:
    """Actions [B, count, A] of the policy before the tanh, and the mean and log std they are of."""
    mean, log_std = (x[:, None] for x in apply(AGENT.actor(A), params, obs))
    noise = jax.random.normal(key, (B, count, A))
    return mean + jnp.exp(log_std) * noise, mean, log_std


def density(u: Array, mean: Array, log_std: Array) -> np.ndarray:
    return offpolicy.tanh_normal_logp(f64(u), f64(mean), f64(log_std))


@pytest.mark.parametrize("subset", [0, 2])
@pytest.mark.parametrize("best", [False, True])
def test_targets(best: bool, subset: int) -> None:
    agent = replace(AGENT, max_backup=best, subset=subset)
    state, batch = made(agent)
    sample, _ = agent.sample(state, batch)
    (reward, discount), (act_key, draw_key) = told(batch, 0.9), jax.random.split(KEY)
    u, *normal = acted(state.actor.params, sample.next_obs.policy, act_key, N if best else 1)
    q = lambda params, obs: f64(agent.q(params, obs.critic, jnp.tanh(u)))  # noqa: E731
    every, online = (q(x, sample.next_obs) for x in (state.target, state.critic.params))
    here = q(state.target, sample.obs)
    some = jax.random.choice(draw_key, E, (subset or E,), replace=False)
    drawn, logp = np.asarray(some if subset else range(E)), density(u, *normal)

    def wanted(q=every[drawn], discount=discount, **soft: Any) -> np.ndarray:
        return cql.cql_target(reward, discount, q, best, **soft)

    wrong = {
        "mean": wanted(every[drawn].mean(0)[None]), "max": wanted(every[drawn].max(0)[None]),
        "last": wanted(every[drawn[-1:]]), "online": wanted(online[drawn]),
        "this state": wanted(here[drawn]), "no discount": wanted(discount=discount > 0),
        "ends ignored": wanted(discount=np.full(B, 0.9**N_STEP)),
        "entropy": wanted(next_logp=logp, alpha=0.3),
    }  # fmt: skip
    if subset:
        wrong["all critics"] = wanted(every)
    if best:
        wrong["mean of actions"] = reward + discount * every[drawn].min(0).mean(1)
        wrong["each critic's best"] = reward + discount * every[drawn].max(2).min(0)
        wrong["first action"] = reward + discount * every[drawn].min(0)[:, 0]
    told_apart(agent.backup(state, sample, KEY), wanted(), wrong)


@pytest.mark.parametrize("temperature", [1.0, 0.4])
@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("importance", [True, False])
def test_penalty(importance: bool, calibrated: bool, temperature: float) -> None:
    rng = np.random.default_rng(0)
    given: dict[str, Any] = {"importance": importance, "temperature": temperature}
    agent = replace(AGENT, calibrated=calibrated, **given)
    data, floor = rng.normal(size=(E, B)), rng.normal(size=B)
    others, logp = rng.normal(size=(E, B, 3 * N)), rng.normal(size=(B, 3 * N))
    logp[:, :N] = cql.random_density(A)
    ours = agent.conservative(*(jnp.asarray(x, "f4") for x in (data, others, logp, floor)))

    def wanted(others=others, data=data, logp=logp, bound=calibrated, **change) -> np.ndarray:
        q, (_, here, later) = np.split(others, 3, axis=2), np.split(logp, 3, axis=1)
        bounds = {"bound": floor if bound else None}
        return cql.cql_penalty(data, cql.Others(*q, here, later), A, **(given | bounds | change))

    wrong = {
        "bound": wanted(bound=not calibrated), "importance": wanted(importance=not importance),
        "of data too": wanted(data=np.maximum(data, floor), bound=True), "sign": -wanted(),
        "temperature": wanted(temperature=0.5), "no others": wanted(others - 1e3),
    }  # fmt: skip
    if temperature != 1:
        most = wanted() + data.mean(1)
        wrong["not times the temperature"] = most / temperature - data.mean(1)
    if calibrated:
        wrong["of chance too"] = wanted(np.maximum(others, floor[:, None]))
    if importance:
        wrong |= {"each other's": wanted(logp=np.roll(logp, N, 1)), "added": wanted(logp=-logp)}
        wrong["bound after densities"] = wanted(np.maximum(others - logp, floor[:, None]) + logp)
    else:
        wrong["less their count"] = wanted(less_count=True)
    told_apart(ours, wanted(), wrong)


@pytest.mark.parametrize("change", [{}, {"calibrated": True}, {"importance": False}, {"gap": 0.8}],
                         ids=str)  # fmt: skip
def test_critic_loss(change: dict[str, Any]) -> None:
    agent = replace(AGENT, **change)
    state, batch = made(agent)
    sample, floor = agent.sample(state, batch)
    obs, target, keys = sample.obs, jnp.linspace(-1, 1, B), jax.random.split(KEY, 3)
    chance = jax.random.uniform(keys[0], (B, N, A), minval=-1, maxval=1)
    here = acted(state.actor.params, obs.policy, keys[1], N)
    later = acted(state.actor.params, sample.next_obs.policy, keys[2], N)
    actions = [sample.action[:, None], chance, jnp.tanh(here[0]), jnp.tanh(later[0])]
    bound = f64(batch.aux["return"])[:, 0]

    def outputs(params: Any) -> tuple:
        there = agent.q(params, sample.next_obs.critic, actions[3])
        return (*(agent.q(params, obs.critic, x) for x in actions), there)

    still = [f64(x) for x in outputs(state.critic.params)]

    def wanted(weight=0.7, count=E, raw=0.3, gap=agent.gap, bound=bound, hold=(), swap=False):
        def loss(*q: np.ndarray) -> float:
            q = tuple(still[i] if i in hold else x for i, x in enumerate(q))
            data, others = q[0][..., 0], (q[1], q[2], q[4] if swap else q[3])
            penalty = cql.cql_penalty(
                still[0][..., 0] if "data" in hold else data,
                cql.Others(*others, density(*here), density(*later)),
                A, 1.0, agent.importance, bound if agent.calibrated else None,
            )  # fmt: skip
            if gap is None:
                return count * cql.cql_critic_loss(data, f64(target), penalty, weight)
            term, _ = cql.cql_lagrange(penalty, gap, cql.cql_multiplier(raw, "exp"), weight)
            return count * (cql.cql_critic_loss(data, f64(target), penalty, 0.0) + term)

        return loss

    wrong = {
        "mean over critics": wanted(count=1), "no penalty": wanted(0.0), "doubled": wanted(1.4),
        "others held": wanted(hold=(1, 2, 3)), "policy's held": wanted(hold=(2, 3)),
        "the data's held": wanted(hold=("data",)), "Q of the state after": wanted(swap=True),
        "another gap": wanted(gap=0.1) if agent.gap else wanted(gap=0.8),
        "multiplier": wanted(raw=1.0) if agent.gap else wanted(2.0),
    }  # fmt: skip
    rest = state, sample, target, floor, KEY
    held(agent.critic_loss, state.critic.params, rest, outputs, wanted(), wrong)


def test_the_penalty_moves_no_actor() -> None:
    state, batch = made(AGENT)
    given = *AGENT.sample(state, batch), KEY

    def loss(params: Any) -> Array:
        now, (sample, floor, key) = state._replace(actor=Trainable(params, ())), given
        return AGENT.critic_loss(state.critic.params, now, sample, jnp.zeros(B), floor, key)[0]

    slope = jax.jit(jax.grad(loss))(state.actor.params)
    assert not any(x.any() for x in jax.tree.leaves(slope))


def test_losses_of_actor_temperature_and_multiplier() -> None:
    agent = replace(AGENT, gap=0.8)
    state, batch = made(agent)
    sample, _ = agent.sample(state, batch)

    def outputs(params: Any) -> tuple:
        u, mean, log_std = acted(params, sample.obs.policy, KEY, 1)
        q = agent.q(state.critic.params, sample.obs.critic, jnp.tanh(u))[..., 0]
        return q, u, mean, log_std

    def wanted(how=np.min, alpha=0.3, density=offpolicy.tanh_normal_logp) -> Any:
        return lambda q, u, *normal: offpolicy.sac_actor_loss(
            how(q, axis=0)[None], density(u, *normal)[:, 0], alpha, "min"
        )

    plain = lambda u, *normal: offline.normal_logp(u, *normal)  # noqa: E731
    wrong = {"mean": wanted(np.mean), "max": wanted(np.max), "sign": wanted(alpha=-0.3),
             "log": wanted(alpha=math.log(0.3)), "unsquashed": wanted(density=plain)}  # fmt: skip
    held(agent.actor_loss, state.actor.params, (state, sample, KEY), outputs, wanted(), wrong)
    entropy = lambda aim: lambda raw: offpolicy.alpha_loss(raw, [-0.7], aim)  # noqa: E731
    wrong, itself = {"sign": entropy(A), "not by dimension": entropy(-1)}, lambda raw: (raw,)
    rest = jnp.float32(0.7), A
    held(agent.alpha_loss, state.log_alpha.params, rest, itself, entropy(-A), wrong)

    def dual(count=E, weight=0.7, sign=1, how="exp") -> Any:
        return lambda raw: sign * count * cql.cql_lagrange(
            [0.2, 0.4, 1.2], -0.5, cql.cql_multiplier(float(raw), how), weight
        )[1]  # fmt: skip

    wrong = {"sign": dual(sign=-1), "softplus": dual(how="softplus"), "unweighted": dual(weight=1)}
    wrong["mean over critics"], rest = dual(1), (jnp.float32(3 * (0.6 + 0.5)),)
    held(agent.weight_loss, state.log_weight.params, rest, itself, dual(), wrong)


def test_an_update_is_these_steps() -> None:
    agent = replace(AGENT, delay=2, subset=2, gap=0.8, calibrated=True)
    state, batch = made(agent)
    batches = learners.stacked(batch, 2)
    mix = lambda critic, target: optax.incremental_update(critic.params, target, 0.3)  # noqa: E731

    def by_hand(state: State) -> tuple[State, list[State]]:
        """The state after, and those by other orders."""
        (critic_key, actor_key), now, after = jax.random.split(KEY), state, []
        for i, both in enumerate(jax.random.split(critic_key, 2)):
            sample, floor = agent.sample(now, jax.tree.map(lambda x, i=i: x[i], batches))
            target_key, key = jax.random.split(both)
            given, before = (now, sample, agent.backup(now, sample, target_key), floor, key), now
            above = 3 * agent.critic_loss(now.critic.params, *given)[1]["conservative"]
            critic = improved(0.02, agent.critic_loss, now.critic, *given)
            weight = improved(0.02, agent.weight_loss, now.log_weight, above)
            now = State(now.actor, critic, mix(critic, now.target), now.log_alpha, weight, now.obs)
        for seen in (now, before, state):
            entropy = agent.actor_loss(now.actor.params, seen, sample, actor_key)[1]["entropy"]
            actor = improved(0.01, agent.actor_loss, now.actor, seen, sample, actor_key)
            alpha = improved(0.01, agent.alpha_loss, now.log_alpha, entropy, A)
            after.append(now._replace(actor=actor, log_alpha=alpha))
        targets = mix(now.critic, state.target), mix(before.critic, before.target)
        return after[0], after[1:] + [after[0]._replace(target=x) for x in targets]

    new, _ = jax.jit(agent.update)(state, batches, KEY)
    right, wrong = by_hand(state)
    assert learners.alike(new, right)
    assert not any(learners.alike(new, x) for x in wrong)


@pytest.mark.parametrize("calibrated", [False, True])
def test_calibrated_pushes_no_action_of_the_policy_below_the_return(calibrated: bool) -> None:
    """A bandit whose one known action comes to 1, and Q as a table that begins at 3."""
    agent = CQL(actions=N, calibrated=calibrated)
    logp = jnp.full((1, 3 * N), cql.random_density(1))

    def loss(q: Array) -> Array:
        penalty = agent.conservative(q[..., 0], q[..., 1:], logp, jnp.ones(1))
        return ((q[..., 0] - 1) ** 2 + agent.penalty * penalty).sum()

    step = lambda q, _: (q - 0.02 * jax.grad(loss)(q), None)  # noqa: E731
    q = jax.lax.scan(step, jnp.full((1, 1, 1 + 3 * N), 3.0), length=1000)[0][0, 0]
    assert q[1 : 1 + N].max() < -1
    assert q[1 + N :].min() > 0.95 if calibrated else q[1 + N :].max() < -1
