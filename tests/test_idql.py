"""IDQL: its losses by an oracle, which plan it does, and what it learns of what was done alone."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.bc import BC
from agents.flow_bc import FlowBC
from agents.idql import IDQL
from agents.one_step import OneStep
from rl import chunks
from rl.chunks import Chunks
from rl.critics import Critics
from rl.guidance import Best
from tests import planners
from tests.learners import f64
from tests.oracles import finetune
from tests.oracles import steering as oracle
from tests.planners import ACTION, FLOW, GAMMA, KEY, OBS, PLANS, A, B, told_apart
from tests.test_qc import CRITICS, drawn, q64

TAU = 0.8
AGENT = IDQL(base=FLOW, passes=3, guide=Best(5), critics=CRITICS, expectile=TAU, gamma=GAMMA)
STEPS = planners.windows(1, 4)
BATCH = jax.tree.map(lambda x: x[None], STEPS)


@cache
def known() -> tuple[Any, Any]:
    """A state whose networks and targets are all different, and what it learns from."""
    state = AGENT.init(KEY, OBS, ACTION, planners.learned(FLOW))
    value = state.value._replace(params=planners.stirred(state.value.params, 5))
    state = state._replace(critic=planners.apart(state.critic, 11), value=value)
    return state, AGENT.chunks.macro(state.base.scales, STEPS, GAMMA)


def v64(params: Any, seen: Any) -> np.ndarray:
    return planners.mlp64(params["params"], f64(seen).reshape(B, -1), planners.relu)[:, 0]


def test_a_value_is_an_expectile_of_the_least_slow_critics() -> None:
    state, macro = known()
    seen, done = macro.window.seen, macro.window.chunk
    slow, fast = (q64(x, seen, done) for x in (state.critic.slow, state.critic.net.params))
    v, later = (v64(state.value.params, x) for x in (seen, macro.next_seen))
    _, told = jax.jit(AGENT.update)(state, BATCH, KEY)
    wrong = {
        "the other expectile": oracle.expectile_loss(slow.min(0), v, 1 - TAU),
        "the mean critic": oracle.expectile_loss(slow.mean(0), v, TAU),
        "fast critics": oracle.expectile_loss(fast.min(0), v, TAU),
        "what is seen next": oracle.expectile_loss(slow.min(0), later, TAU),
    }  # fmt: skip
    told_apart(told["value_loss"], oracle.expectile_loss(slow.min(0), v, TAU), wrong)


def test_its_critics_learn_of_the_new_value_and_its_flow_imitates() -> None:
    state, macro = known()
    after = planners.later(STEPS, PLANS)
    new, told = jax.jit(AGENT.update)(state, BATCH, KEY)
    q = q64(state.critic.net.params, macro.window.seen, macro.window.chunk)

    def loss(of: Any = new.value.params, discount: Any = after.discount) -> float:
        target = oracle.value_target(after.reward, discount, v64(of, macro.next_seen))
        return finetune.critic_loss(q, target)

    wrong = {
        "no value": loss(discount=0 * after.discount),
        "gamma of one step": loss(discount=np.where(after.discount > 0, GAMMA, 0)),
        "past an end": loss(discount=np.full(B, GAMMA**2)),
    }
    told_apart(told["critic_loss"], loss(), wrong)
    assert abs(float(told["critic_loss"]) - loss(state.value.params)) > 1e-4  # the value as it was
    alone, _ = jax.jit(FLOW.update)(state.base, BATCH, KEY)
    planners.alike(new.base, alone)


def test_it_does_the_best_of_its_plans_by_the_least_slow_critic() -> None:
    state, _ = known()
    draw = AGENT.guide.guided(FLOW, 3, AGENT.worth)
    noise_key, key = jax.random.split(KEY)
    noise, ends = jax.random.normal(noise_key, (B, 3, A)), chunks.bounds(state.base.scales.action)
    seen = AGENT.chunks.macro(state.base.scales, STEPS, GAMMA).window.seen
    plans = drawn(state, seen, KEY)
    slow, fast = (
        [q64(x, seen, y) for y in plans] for x in (state.critic.slow, state.critic.net.params)
    )
    best = lambda q, how="min": finetune.best_of(plans, np.stack(q), how)  # noqa: E731
    wrong = {"the first": plans[0], "by the mean": best(slow, "mean"), "by the fast": best(fast)}
    got = jax.jit(draw)(AGENT.deploy(state), noise, seen, key, ends)
    told_apart(got, best(slow), wrong)
    again = AGENT.policy(False, A)
    assert planners.same(*(
        planners.drawn(x, AGENT.deploy(state), KEY, 4)[0] for x in (AGENT.policy(True, A), again)
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: IDQL(OneStep(FLOW)), "OneStep is none: it was learned above"),
        (lambda: IDQL(critics=Critics()), "what its base has measured already: leave --agent"),
        (lambda: IDQL(BC()), "IDQL needs a flow or a diffusion, among .* and BC is none"),
        (lambda: IDQL(FlowBC(Chunks(late=1))), "was made with --agent.chunks.late"),
        (lambda: IDQL(expectile=1.0), r"IDQL's expectile is 1.0; it takes a share in \(0, 1\)"),
        (lambda: IDQL(passes=1001), "IDQL's passes is 1001; it takes a count up to 1,000"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()


def test_it_does_better_than_its_flow_in_what_is_rewarded() -> None:
    """A bandit, above a broad flow."""
    critics = Critics(hidden=(32, 32), lr=3e-3, tau=0.05, normalise=False)
    agent = IDQL(base=planners.Broad(Chunks(horizon=1, execute=1), net=planners.NET),
                 guide=Best(16), critics=critics, lr=3e-3)  # fmt: skip
    theirs, mine = planners.bettered(agent)
    assert planners.reward(theirs).mean() < -0.5
    assert planners.reward(mine).mean() > -0.2


@pytest.mark.parametrize(("expectile", "least", "most"), [(0.5, -1.0, -0.5), (0.95, -0.35, 0.0)])
def test_a_higher_expectile_believes_in_better(expectile: float, least: float, most: float) -> None:
    """Of a bandit whose actions, all that there are, come to -0.69 on average."""
    critics = Critics(hidden=(32, 32), lr=3e-3, tau=0.05, normalise=False)
    agent = replace(AGENT, base=planners.ONCE, critics=critics, expectile=expectile, lr=3e-3)

    def learn(key: jax.Array) -> jax.Array:
        def step(state: Any, key: jax.Array) -> tuple[Any, Any]:
            wide = jax.random.uniform(key, (64, A), minval=-1, maxval=1)
            return agent.update(state, planners.paid(wide), key)

        first = agent.init(key, OBS, ACTION)
        state, _ = jax.lax.scan(step, first, jax.random.split(key, 400))
        return agent.v(state.value.params, jnp.zeros((1, 1, len(OBS["policy"]))))[0]

    assert least < jax.jit(learn)(KEY) < most
