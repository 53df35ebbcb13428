"""ReinFlow: its chains and losses by an oracle, and those of its critic."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.reinflow import ReinFlow, Sample
from rl import chunks
from rl.baseline import Baseline, Judged
from rl.types import Transition
from tests import planners
from tests.learners import f64, held
from tests.oracles import finetune as oracle
from tests.oracles import ppo
from tests.planners import ACTION, FLOW, KEY, PLANS, SEEN, A, plans, told_apart

K, N, OBS = 4, 32, {"policy": jnp.zeros((2, SEEN)), "critic": jnp.zeros(planners.KNOWN)}
VALUE = Baseline(hidden=(16,), gamma=0.8, lam=0.7)
AGENT = ReinFlow(
    base=FLOW, hidden=(16,), baseline=VALUE, clip=0.05, epochs=1, minibatches=1, warm=0
)


def begun(agent: ReinFlow = AGENT) -> Any:
    """Above a flow that has learned, with noise that is not what it began as."""
    state = agent.init(KEY, planners.OBS, ACTION, planners.learned(agent.base))
    noise = planners.stirred(state.actor.params["noise"], 4, 0.5)
    return state._replace(actor=state.actor._replace(params=state.actor.params | {"noise": noise}))


def sampled(state: Any, batch: Transition, advantage: Any = None) -> Sample:
    seen = jnp.asarray(planners.scaled64(state.scales.obs, batch.obs["policy"][0]), jnp.float32)
    known, zero = batch.obs["critic"][0], jnp.zeros(len(seen))
    judged = Judged(known, zero if advantage is None else advantage, zero, zero)
    return Sample(seen, batch.aux["states"][0], batch.aux["logp"][0], judged)


@cache
def known() -> tuple[Any, Sample, Transition]:
    """An actor that has moved since it planned."""
    state = begun()
    batch = plans(AGENT, state, KEY)
    sample = sampled(state, batch, jnp.asarray(np.random.default_rng(5).normal(size=N), "f4"))
    moved = planners.stirred(state.actor.params, 6, 0.02)
    return state._replace(actor=state.actor._replace(params=moved)), sample, batch


def nets64(params: Any, seen: Any, low: float = 0.05, high: float = 0.15) -> tuple[Any, Any]:
    """The velocity, and the std of the noise."""

    def raw(x: np.ndarray, time: np.ndarray) -> np.ndarray:
        told = np.concatenate([time[:, None], f64(seen).reshape(len(x), -1)], 1)
        return planners.mlp64(params["noise"]["params"], told, planners.swish).reshape(x.shape)

    return planners.field64(params["flow"], seen), lambda *at: oracle.noise_std(raw(*at), low, high)


def ends_of(state: Any) -> tuple[np.ndarray, ...]:
    return tuple(map(f64, chunks.bounds(state.scales.action)))


def test_the_noises_std_is_the_oracles_and_within_its_range() -> None:
    state, sample, _ = known()
    x, time = sample.states[:, 1], jnp.linspace(0, 1, N)
    spread = lambda params: AGENT.fields(params, sample.seen)[1](x, time)  # noqa: E731
    params = state.actor.params
    right = nets64(params, sample.seen)[1](f64(x), f64(time))
    share = np.log(right / 0.05) / np.log(3)
    wrong = {
        "evenly": 0.05 + 0.1 * share,
        "squares evenly": np.sqrt(0.05**2 + (0.15**2 - 0.05**2) * share),
        "another time": nets64(params, sample.seen)[1](f64(x), 1 - f64(time)),
        "the other way": 0.05 * 0.15 / right,
    }
    told_apart(spread(params), right, wrong)
    wild = spread(params | {"noise": jax.tree.map(lambda x: 99 * x, params["noise"])})
    np.testing.assert_allclose([wild.min(), wild.max()], [0.05, 0.15], rtol=1e-5)


def test_a_planner_wanders_as_the_oracle_does() -> None:
    state, count = begun(), 256
    batch = plans(AGENT, state, KEY, count)
    seen, keys = sampled(state, batch).seen, jax.random.split(KEY, count)
    first = jax.vmap(jax.random.split)(keys)
    shape = 1, PLANS.horizon, A
    noise = jax.vmap(lambda key: jax.random.normal(key, shape)[0])(first[:, 0])
    steps = jax.vmap(lambda key: jax.random.split(key, K))(first[:, 1])
    eps = jax.vmap(jax.vmap(lambda key: jax.random.normal(key, shape)[0]))(steps)
    eps, ends = jnp.swapaxes(eps, 0, 1), ends_of(state)
    assert np.abs(eps).max() > 3.1
    nets = nets64(state.actor.params, seen)
    go = lambda eps=eps, ends=ends, nets=nets: oracle.wander(nets[0], noise, eps, nets[1], ends)  # noqa: E731
    late = tuple(lambda x, t, net=net: net(x, t + 1 / K) for net in nets)
    ours = jnp.swapaxes(batch.aux["states"][0], 0, 1)
    wrong = {
        "times that come": go(nets=late),
        "no bounds": go(ends=(-np.inf, np.inf)),
        "no noise": go(0 * eps),
        "noise of any size": go(eps / 2, nets=(nets[0], lambda *at: 2 * nets[1](*at))),
        "as much noise everywhere": go(nets=(nets[0], lambda x, t: np.full(x.shape, 0.1))),
    }
    told_apart(ours, go(), wrong)
    mean, std = map(f64, chunks.unit(state.scales.action))
    plan = mean + std * np.clip(go()[-1], *ends)
    told_apart(batch.action[0], plan, {"not cut": mean + std * go()[-1]})


@pytest.mark.parametrize("convention", ["data_at_one", "noise_at_one"])
def test_a_chains_density_and_stds_are_those_it_was_drawn_with(convention: Any) -> None:
    state, sample, _ = known()
    agent = replace(AGENT, base=replace(FLOW, flow=replace(FLOW.flow, convention=convention)))
    params, ends, states = state.actor.params, ends_of(state), f64(sample.states).swapaxes(0, 1)
    logp, stds = jax.jit(agent.likelihood)(params, state.scales, sample)
    field, spread = nets64(params, sample.seen)
    if convention == "noise_at_one":
        field, spread = (
            lambda x, t, f=field: -f(x, 1 - t), lambda x, t, f=spread: f(x, 1 - t)
        )  # fmt: skip
    at = lambda *given: oracle.chain_logp(field, spread, states, *given)  # noqa: E731
    right = at(ends, 2)
    start = (-0.5 * states[0, :, :2] ** 2 - 0.5 * np.log(2 * np.pi)).sum((1, 2))
    wrong = {
        "all actions": at(ends, 3),
        "a sum": right * K * 2 * A,
        "no bounds": at((-np.inf, np.inf), 2),
        "the start's too": (right * K * 2 * A + start) / ((K + 1) * 2 * A),
        "as it was": f64(sample.old),
    }
    told_apart(logp, right, wrong)
    times = [np.full(N, i / K) for i in range(K)]
    want = np.stack([spread(x, t) for x, t in zip(states, times, strict=False)])
    np.testing.assert_allclose(stds, want, atol=1e-5)


def test_the_loss_is_the_oracles_with_entropy_and_the_way_it_came() -> None:
    state, sample, _ = known()
    agent = replace(AGENT, entropy_cost=0.3, stay=0.7)
    advantage = oracle.normalise_advantage(sample.judged.advantage)
    params, ends = state.actor.params, ends_of(state)
    go = lambda net: np.clip(  # noqa: E731
        planners.euler64(net, sample.states[:, 0], sample.seen, K), *ends
    )
    here, there = go(params["flow"]), go(state.first)
    states = f64(sample.states).swapaxes(0, 1)
    nets = nets64(params, sample.seen)
    logp = oracle.chain_logp(*nets, states, ends, 2)
    std = np.stack([nets[1](states[i], np.full(N, i / K)) for i in range(K)])

    def by_hand(logp: Any, std: Any, here: Any, **to: Any) -> float:
        given = {"advantage": advantage, "entropy": 0.3, "stay": 0.7, "clip": 0.05} | to
        loss = oracle.ratio_loss(logp, sample.old, given["advantage"], given["clip"])
        entropy = ppo.normal_entropy(np.log(std)).mean() / A
        return loss - given["entropy"] * entropy + given["stay"] * np.mean((here - there) ** 2)

    ratio = np.exp(logp - f64(sample.old))
    assert (np.abs(ratio - 1) > 0.05).any()
    assert (np.abs(ratio - 1) < 0.05).any()
    loss = jax.jit(agent.loss)
    ours = loss(params, state, sample)[0]
    wrong = {
        "advantages as they are": by_hand(logp, std, here, advantage=sample.judged.advantage),
        "no entropy": by_hand(logp, std, here, entropy=0),
        "less entropy": by_hand(logp, std, here, entropy=-0.3),
        "a sum of entropies": by_hand(logp, std, here, entropy=0.3 * A),
        "no way": by_hand(logp, std, here, stay=0),
        "another way": by_hand(logp, std, go(planners.stirred(state.first, 1, 0.1))),
        "no clip": by_hand(logp, std, here, clip=np.inf),
        "the other way": by_hand(logp, std, here, advantage=-advantage),
    }
    told_apart(ours, by_hand(logp, std, here), wrong)

    def outputs(params: Any) -> tuple[jax.Array, ...]:
        way = agent.arrived(params["flow"], state, sample)
        return *agent.likelihood(params, state.scales, sample), way

    held(loss, params, (state, sample), outputs, by_hand,
         {"pushed away": lambda *x: by_hand(*x, stay=-0.7)})  # fmt: skip


def test_plans_are_judged_as_the_oracle_judges_them() -> None:
    rng, (state, _, batch) = np.random.default_rng(8), known()
    ends = rng.random((2, 5, 8)) < 0.3
    batch = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=(5, 8, *x.shape[2:])), "f4"), batch)
    batch = batch._replace(terminated=jnp.asarray(ends[0]), truncated=jnp.asarray(ends[1]))
    value = state.value._replace(
        obs=state.value.obs._replace(mean=state.value.obs.mean + 0.3),
        returns=state.value.returns._replace(mean=jnp.float32(1.5), var=jnp.float32(4.0)),
    )
    params = value.net.params["params"]

    def worth(obs: Any) -> np.ndarray:
        known = planners.scaled64(value.obs, obs["critic"])
        return 1.5 + 2 * planners.mlp64(params, known, np.tanh)[..., 0]

    flags, given = (batch.terminated, batch.truncated), (worth(batch.obs), worth(batch.next_obs))
    gae = lambda gamma=0.8, lam=0.7, given=given, flags=flags: oracle.plan_gae(  # noqa: E731
        batch.reward, *given, *flags, gamma=gamma, lam=lam
    )
    judged = jax.jit(VALUE.judge)(value, batch)
    unscaled = tuple((x - 1.5) / 2 for x in given)
    wrong = {
        "gamma of a step": gae(gamma=0.8**0.5),
        "lambda 1": gae(lam=1.0),
        "ends for limits": gae(flags=flags[::-1]),
        "values in their units": gae(given=unscaled),
        "no values after": gae(given=(given[0], np.zeros((5, 8)))),
    }
    told_apart(judged.advantage, gae(), wrong)
    target = (gae() + given[0] - 1.5) / 2
    told_apart(judged.target, target, {"returns": gae() + given[0], "advantages": gae() / 2})
    loss, _ = VALUE.loss(value.net.params, judged.known, judged.target)
    right = ppo.value_loss(unscaled[0], target)
    told_apart(loss, right, {"no half": 2 * right, "in returns": 4 * right})
