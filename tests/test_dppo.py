"""DPPO: its way and its losses by an oracle."""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from agents.diffusion_bc import DiffusionBC
from agents.dppo import DPPO, Sample
from rl import chunks, norm
from rl.baseline import Baseline
from rl.diffusion import Diffusion
from rl.types import Transition
from tests import planners
from tests.learners import f64
from tests.oracles import diffusion as denoising
from tests.oracles import finetune as oracle
from tests.planners import ACTION, KEY, NET, PLANS, A, plans, told_apart

K, LEARNED, N, X = 4, 3, 32, 2  # passes, of which learned; plans; actions done of each
BASE = DiffusionBC(chunks=PLANS, net=NET, diffusion=Diffusion(8, "vp", steps=8))
VALUE = Baseline(hidden=(16,))
AGENT = DPPO(
    base=BASE, passes=K, learned=LEARNED, baseline=VALUE, clip=0.05, base_clip=0.01,
    denoising_gamma=0.8, epochs=1, minibatches=1, warm=0,
)  # fmt: skip


def begun(agent: DPPO = AGENT) -> Any:
    """Above a diffusion that has learned."""
    return agent.init(KEY, planners.OBS, ACTION, planners.learned(agent.base))


@cache
def known() -> tuple[Any, Sample, Transition]:
    """A network that has moved since it planned, and what it learns from."""
    state = begun()
    batch = plans(AGENT, state, KEY)
    judged = AGENT.baseline.judge(state.value, batch)
    sample = AGENT.sample(state, batch, judged)
    moved = planners.stirred(state.actor.params, 6, 0.02)
    return state._replace(actor=state.actor._replace(params=moved)), sample, batch


def ends_of(state: Any) -> tuple[np.ndarray, ...]:
    return tuple(map(f64, chunks.bounds(state.scales.action)))


def wander64(nets: tuple[Any, Any], seen: Any, noise: Any, eps: Any, ends: Any,
             least: float = 0.1, most: float = 3.0) -> np.ndarray:  # fmt: skip
    """States [K + 1, B, H, A] of the way from noise, by one network and then another."""
    abar, states = denoising.alpha_bar("vp", 8), [f64(noise)]
    for i, (steps, drawn) in enumerate(
        zip(pairwise(denoising.ladder(8, K)), f64(eps), strict=True)
    ):
        net = planners.field64(nets[i >= K - LEARNED], seen)
        scaled = lambda x, k, net=net: net(x, f64(k) / 8)  # noqa: E731
        mean, std = denoising.denoise_step(scaled, states[-1], steps, abar, "velocity", 1.0, ends)
        states.append(mean + max(std, least) * np.clip(drawn, -most, most))
    return np.stack(states)


def test_a_planner_wanders_as_the_oracle_does() -> None:
    state, count = begun(), 256
    last = planners.stirred(state.actor.params, 6, 0.2)
    state = state._replace(actor=state.actor._replace(params=last))
    batch = plans(AGENT, state, KEY, count)
    seen, shape = norm.normalise(state.scales.obs, batch.obs["policy"][0]), (1, PLANS.horizon, A)
    first = jax.vmap(jax.random.split)(jax.random.split(KEY, count))
    draw = jax.vmap(lambda key: jax.random.normal(key, shape)[0])
    noise, keys = draw(first[:, 0]), jax.vmap(lambda key: jax.random.split(key, K))(first[:, 1])
    eps, nets, ends = jnp.stack([draw(x) for x in keys.T]), (state.first, last), ends_of(state)
    assert np.abs(eps).max() > 3.1
    go = lambda nets=nets, ends=ends, **to: wander64(nets, seen, noise, eps, ends, **to)  # noqa: E731
    wrong = {
        "no least std": go(least=0.0),
        "noise of any size": go(most=np.inf),
        "no bounds": go(ends=(-np.inf, np.inf)),
        "the last steps' network everywhere": go((last, last)),
        "as it was given": go((state.first, state.first)),
    }
    ours = jnp.swapaxes(batch.aux["states"][0], 0, 1)  # of the steps that are learned
    told_apart(ours, go()[-LEARNED - 1 :], {name: x[-LEARNED - 1 :] for name, x in wrong.items()})
    mean, std = map(f64, chunks.unit(state.scales.action))
    units = np.clip(go()[-1], *ends)
    wrong = {"in the diffusion's units": units, "not cut": mean + std * go()[-1]}
    told_apart(batch.action[0], mean + std * units, wrong)


def logp64(params: Any, sample: Sample, state: Any, **to: Any) -> np.ndarray:
    """Of each step, one after another."""
    given = {"least": 0.1, "executed": X, "bounded": True} | to
    ends = ends_of(state) if given["bounded"] else (-np.inf, np.inf)
    abar, ladder = denoising.alpha_bar("vp", 8), AGENT.diffusion.ladder[-LEARNED - 1 :]
    found = np.zeros(len(sample.x))
    for i in range(LEARNED):
        at = np.asarray(sample.rung) == i
        net = lambda x, k, at=at: planners.field64(params, f64(sample.seen)[at])(x, f64(k) / 8)  # noqa: E731
        steps = int(ladder[i]), int(ladder[i + 1])
        mean, std = denoising.denoise_step(
            net, f64(sample.x)[at], steps, abar, "velocity", 1.0, ends
        )
        std = max(float(std), given["least"])
        found[at] = oracle.denoise_logp(f64(sample.after)[at], mean, std, given["executed"])
    return found


def test_the_density_of_a_step_is_the_oracles() -> None:
    state, sample, _ = known()
    params, ends = state.actor.params, chunks.bounds(state.scales.action)
    ours = jax.jit(AGENT.logp)(params, ends, sample.seen, sample.x, sample.after, sample.rung)
    one = lambda **to: logp64(params, sample, state, **to)  # noqa: E731
    other = sample._replace(rung=(sample.rung + 1) % LEARNED)
    wrong = {
        "all actions": one(executed=3),
        "no least std": one(least=0.02),
        "no bounds": one(bounded=False),
        "another step's level": logp64(params, other, state),
        "as it was": f64(sample.old),
    }
    told_apart(ours, one(), wrong)
    was = jax.jit(AGENT.logp)(state.first, ends, sample.seen, sample.x, sample.after, sample.rung)
    np.testing.assert_allclose(was, sample.old, atol=1e-6)
    far = sample._replace(after=sample.after + 2.0)
    least = jax.jit(AGENT.logp)(params, ends, far.seen, far.x, far.after, far.rung)
    assert least.min() >= -5


def test_the_loss_is_the_oracles() -> None:
    state, sample, _ = known()
    logp, advantage = logp64(state.actor.params, sample, state), f64(sample.judged.advantage)

    def by_hand(gamma: float = 0.8, low: float = 0.01, high: float = 0.05, turn: int = 0) -> float:
        rung = (np.asarray(sample.rung) + turn) % LEARNED
        clip = oracle.clip_of(rung / (LEARNED - 1), high, low)
        part = oracle.denoise_discount(rung, LEARNED, gamma)
        return oracle.ratio_loss(
            logp, sample.old, oracle.normalise_advantage(advantage) * part, clip
        )

    ratio = np.abs(np.exp(logp - f64(sample.old)) - 1)
    assert (ratio > 0.05).any()
    assert (ratio < 0.01).any()
    wrong = {
        "no discount": by_hand(gamma=1.0),
        "the other way round": by_hand(gamma=1 / 0.8),
        "one clip": by_hand(low=0.05),
        "no clip": by_hand(low=9.0, high=9.0),
        "the next step's": by_hand(turn=1),
    }
    told_apart(jax.jit(AGENT.loss)(state.actor.params, state, sample)[0], by_hand(), wrong)
    once = replace(AGENT, learned=1)  # whose only step has the last one's clip
    last = jax.tree.map(lambda x: x[sample.rung == LEARNED - 1], sample)
    last = last._replace(rung=0 * last.rung)
    mine = oracle.ratio_loss(
        logp[np.asarray(sample.rung) == LEARNED - 1], last.old,
        oracle.normalise_advantage(last.judged.advantage), 0.05,
    )  # fmt: skip
    np.testing.assert_allclose(
        jax.jit(once.loss)(state.actor.params, state, last)[0], mine, atol=1e-5
    )


def test_every_learned_step_of_every_plan_is_a_sample() -> None:
    state, sample, batch = known()
    states = batch.aux["states"][0]  # [N, K' + 1, H, A]
    for i in (0, 7, N - 1):
        for k in range(LEARNED):
            row = i * LEARNED + k
            np.testing.assert_array_equal(sample.x[row], states[i, k])
            np.testing.assert_array_equal(sample.after[row], states[i, k + 1])
            assert (sample.rung[row], sample.old[row]) == (k, batch.aux["logp"][0, i, k])
    judged = AGENT.baseline.judge(state.value, batch)
    np.testing.assert_array_equal(sample.judged.advantage[::LEARNED], judged.advantage[0])
