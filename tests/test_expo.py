"""EXPO: its targets and losses by an oracle, the bound of an edit, and what it learns."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.bc import BC
from agents.diffusion_bc import DiffusionBC
from agents.expo import EXPO
from agents.one_step import OneStep
from rl import chunks, temperature
from rl.chunks import Chunks
from rl.critics import Critics
from tests import planners
from tests.learners import f64
from tests.oracles import finetune as oracle
from tests.planners import ACTION, FLOW, GAMMA, KEY, OBS, PLANS, A, B, told_apart
from tests.test_qc import q64

MANY, X, SCALE = 3, 2, 0.2  # plans to choose from, actions done of each, most of an edit
CRITICS = Critics(hidden=(16, 16), count=3, normalise=False)
AGENT = EXPO(base=FLOW, passes=3, candidates=MANY, scale=SCALE, hidden=(16,), critics=CRITICS,
             subset=3, gamma=GAMMA, delay=2, alpha=0.3)  # fmt: skip
STEPS = planners.windows(1, 4)


@cache
def known() -> tuple[Any, Any]:
    """A state whose networks and targets are all different, and what it learns from."""
    state = AGENT.init(KEY, OBS, ACTION, planners.learned(FLOW))
    edit = state.edit._replace(params=planners.stirred(state.edit.params, 5))
    state = state._replace(critic=planners.apart(state.critic, 11), edit=edit)
    return state, AGENT.chunks.macro(state.base.scales, STEPS, GAMMA)


def ends_of(state: Any) -> tuple[np.ndarray, ...]:
    return tuple(map(f64, chunks.bounds(state.base.scales.action)))


def drawn(state: Any, noise: Any, seen: Any, key: jax.Array) -> np.ndarray:
    """The base's plans [n, B, H, A], the first of this noise."""
    more = jax.random.normal(jax.random.split(key)[0], (MANY - 1, *noise.shape))
    every = [f64(noise), *f64(more)]
    ends = ends_of(state)
    return np.stack([np.clip(planners.euler64(state.base.slow, x, seen, 3), *ends) for x in every])


def editor(state: Any, seen: Any, plan: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and log_std of an edit before the tanh."""
    told = np.concatenate([f64(seen).reshape(B, -1), f64(plan)[:, :X].reshape(B, -1)], 1)
    out = planners.mlp64(state.edit.params["params"]["MLP_0"], told, planners.relu)
    return out[:, : X * A], np.clip(out[:, X * A :], -20, 2)


def edited(state: Any, seen: Any, plan: Any, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """The plan with its edit, not within bounds, and what the tanh is of."""
    mean, log_std = editor(state, seen, plan)
    u = mean + np.exp(log_std) * f64(jax.random.normal(key, mean.shape))
    unit = f64(chunks.unit(state.base.scales.action)[1])
    move = oracle.edited(np.zeros(u.shape), u, SCALE).reshape(B, X, A) / unit
    return np.concatenate([f64(plan)[:, :X] + move, f64(plan)[:, X:]], 1), u


def test_an_edit_is_within_its_bound_and_as_likely_as_the_oracle_says() -> None:
    state, macro = known()
    plan, seen = macro.window.chunk, macro.window.seen
    got, logp = jax.jit(AGENT.edited)(state.edit.params, state.base.scales, seen, plan, KEY)
    want, u = edited(state, seen, plan, KEY)
    cut = np.concatenate([np.clip(want[:, :X], *ends_of(state)), want[:, X:]], 1)
    told_apart(got, cut, {"none": f64(plan), "all of it": 2 * cut - f64(plan)})
    likely = oracle.edit_logp(u, *editor(state, seen, plan), SCALE)
    d = X * A
    wrong = {
        "no scale": likely + d * np.log(SCALE),
        "once": likely + (d - 1) * np.log(SCALE),
        "no tanh": oracle.edit_logp(np.zeros(u.shape), *editor(state, seen, plan), SCALE),
    }
    told_apart(logp, likely, wrong)
    wild = jax.tree.map(lambda x: 99 * x, state.edit.params)
    inside = jnp.clip(plan, *chunks.bounds(state.base.scales.action))
    far, _ = AGENT.edited(wild, state.base.scales, seen, inside, KEY)
    off = np.abs(f64(far) - f64(inside)) * f64(chunks.unit(state.base.scales.action)[1])
    assert off.max() <= SCALE + 1e-6
    assert off.max() > 0.9 * SCALE
    np.testing.assert_array_equal(far[:, X:], inside[:, X:])


def test_its_target_is_the_oracles() -> None:
    """The best of plans and edited plans, by the slow critics' least, and worth that."""
    state, macro = known()
    after, seen = planners.later(STEPS, PLANS), macro.next_seen
    noise_key, key = jax.random.split(KEY)
    draw_key, edit_key, _ = jax.random.split(key, 3)
    noise = jax.random.normal(noise_key, (B, PLANS.horizon, A))
    plans = drawn(state, noise, seen, draw_key)
    keys = jax.random.split(edit_key, MANY)
    others = [edited(state, seen, x, k)[0] for x, k in zip(plans, keys, strict=True)]
    others = np.stack([
        np.concatenate([np.clip(x[:, :X], *ends_of(state)), x[:, X:]], 1) for x in others
    ])  # fmt: skip
    every, slow = np.concatenate([plans, others]), state.critic.slow

    def target(plans: Any = every, of: Any = slow, discount: Any = after.discount) -> np.ndarray:
        q = np.stack([q64(of, seen, x) for x in plans])
        return oracle.expo_target(after.reward, discount, q)

    q = np.stack([q64(slow, seen, x) for x in every])
    wrong = {
        "no edits": target(plans),
        "edits alone": target(others),
        "fast critics": target(of=state.critic.net.params),
        "the mean of plans": after.reward + after.discount * q.min(1).mean(0),
        "the mean critic": after.reward + after.discount * q.mean(1).max(0),
        "the least of the best": after.reward + after.discount * q.max(0).min(0),
        "gamma of one step": target(discount=np.where(after.discount > 0, GAMMA, 0)),
    }
    told_apart(jax.jit(AGENT.backup)(state, macro, KEY), target(), wrong)
    some = jax.jit(replace(AGENT, subset=1).backup)(state, macro, KEY)
    assert np.abs(f64(some) - target()).max() > 1e-3  # of others than all


def test_the_editors_loss_is_the_oracles() -> None:
    state, macro = known()
    noise_key, _, key = jax.random.split(KEY, 3)
    noise = jax.random.normal(noise_key, (B, PLANS.horizon, A))
    seen, fast = macro.window.seen, state.critic.net.params
    plan = np.clip(planners.euler64(state.base.slow, noise, seen, 3), *ends_of(state))
    moved, u = edited(state, seen, plan, key)
    moved[:, :X] = np.clip(moved[:, :X], *ends_of(state))
    logp = oracle.edit_logp(u, *editor(state, seen, plan), SCALE)
    q = q64(fast, seen, moved)
    wrong = {
        "the least critic": oracle.edit_actor_loss(logp, q.min(0)[None], 0.3),
        "slow critics": oracle.edit_actor_loss(logp, q64(state.critic.slow, seen, moved), 0.3),
        "no temperature": oracle.edit_actor_loss(logp, q, 0.0),
        "what was not edited": oracle.edit_actor_loss(logp, q64(fast, seen, plan), 0.3),
        "of what was done": oracle.edit_actor_loss(logp, q64(fast, seen, macro.window.chunk), 0.3),
    }
    loss, told = jax.jit(AGENT.edit_loss)(state.edit.params, state, macro, KEY)
    told_apart(loss, oracle.edit_actor_loss(logp, q, 0.3), wrong)
    alpha, _ = temperature.loss(state.log_alpha.params, told["entropy"], -2.0)
    right = oracle.temperature_loss(np.log(0.3), logp, -2.0)
    told_apart(alpha, right, {"the other way": -right})


def test_critics_learn_of_what_the_policy_saw_when_it_planned() -> None:
    state, macro = known()
    _, (_, told) = jax.jit(AGENT.learn)(state, (STEPS, KEY))
    y, plan = AGENT.backup(state, macro, KEY), macro.window.chunk
    loss = lambda seen, plan: oracle.critic_loss(q64(state.critic.net.params, seen, plan), y)  # noqa: E731
    wrong = {
        "seen later": loss(macro.next_seen, plan),
        "the last actions": loss(macro.window.seen, plan[:, ::-1]),
    }
    told_apart(told["critic_loss"], loss(macro.window.seen, plan), wrong)


@pytest.mark.long
def test_an_update_learns_by_new_critics_and_leaves_the_base_to_imitate() -> None:
    """Base, editor and temperature of the last batch alone."""
    state, macro = known()
    batch = jax.tree.map(lambda x: jnp.stack([x[::-1], x]), STEPS)
    new, told = jax.jit(AGENT.update)(state, batch, KEY)
    critic_key, base_key, key = jax.random.split(KEY, 3)
    alone, _ = jax.jit(FLOW.update)(state.base, jax.tree.map(lambda x: x[1:], batch), base_key)
    planners.alike(new.base, alone)
    after, first = state, jax.tree.map(lambda x: x[0], batch)
    for steps, k in zip((first, STEPS), jax.random.split(critic_key, 2), strict=True):
        after, _ = jax.jit(AGENT.learn)(after, (steps, k))
    planners.alike(new.critic, after.critic)
    loss = lambda state, macro: AGENT.edit_loss(state.edit.params, state, macro, key)[0]  # noqa: E731
    other = AGENT.chunks.macro(state.base.scales, first, GAMMA)
    wrong = {"old critics": loss(state, macro), "the first batch": loss(after, other)}
    told_apart(told["edit_loss"], loss(after, macro), wrong)
    assert not planners.same(new.edit.params, state.edit.params)
    heat = lambda d: oracle.temperature_loss(np.log(0.3), [-told["entropy"]], -0.5 * d)  # noqa: E731
    told_apart(told["alpha_loss"], heat(X * A), {"of a horizon": heat(3 * A)})


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: EXPO(OneStep(FLOW)), "OneStep is none: it was learned above"),
        (lambda: EXPO(critics=Critics()), "what its base has measured already: leave --agent"),
        (lambda: EXPO(BC()), "EXPO needs a flow or a diffusion, whose .* and BC is none"),
        (lambda: EXPO(DiffusionBC(Chunks(decay=0.1))), "was made with --agent.chunks.decay"),
        (lambda: EXPO(subset=9), "EXPO's subset is 9; it takes a count of some critics"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()


def test_it_goes_beyond_what_its_base_does() -> None:
    """A bandit, above a narrow flow: no plan of it is as good as an edited one."""
    narrow = planners.Broad(Chunks(horizon=1, execute=1), net=planners.NET, mean=0.2, std=0.05)
    agent = EXPO(base=narrow, candidates=2, scale=0.5, hidden=(32,), lr=3e-3, delay=1, subset=1,
                 critics=Critics((32, 32), lr=3e-3, tau=0.05, normalise=False))  # fmt: skip

    theirs, mine = planners.bettered(agent)
    assert planners.reward(theirs).mean() < -0.12
    assert planners.reward(mine).mean() > -0.05
