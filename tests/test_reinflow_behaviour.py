"""ReinFlow: its first step, what moves while it is warm and after, how it acts, what it learns."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.bc import BC
from agents.diffusion_bc import DiffusionBC
from agents.flow_bc import FlowBC
from agents.reinflow import ReinFlow
from rl import chunks
from rl.baseline import Baseline
from rl.chunks import Chunks
from rl.generative import Shortcut
from rl.train import descend
from tests import planners
from tests.learners import f64
from tests.planners import KEY, A, plans
from tests.test_reinflow import AGENT, K, N, begun, ends_of, sampled

ONES = jnp.array([1.0, -1.0])


@pytest.mark.long
def test_on_a_fresh_batch_nothing_is_off_before_the_first_step() -> None:
    """And after it something is."""
    state = begun(AGENT)
    batch = plans(AGENT, state, KEY, 256)
    new, first = jax.jit(AGENT.update)(state, batch, KEY)
    _, then = jax.jit(AGENT.update)(new, batch, KEY)
    assert first["off"] <= 1e-6
    assert first["clip_fraction"] == 0
    assert then["off"] > 1e-4


def test_while_it_is_warm_the_critic_alone_learns() -> None:
    agent = replace(AGENT, warm=2)
    state = begun(agent)
    batch, update, moved = plans(agent, state, KEY), jax.jit(agent.update), []
    for _ in range(3):
        new, _ = update(state, batch, KEY)
        assert not planners.same(new.value.net.params, state.value.net.params)
        assert planners.same((new.first, new.scales), (state.first, state.scales))
        parts = [new.actor.params[name] for name in ("flow", "noise")]
        old = [state.actor.params[name] for name in ("flow", "noise")]
        still = planners.same(new.actor, state.actor)  # its optimiser, too
        moved.append([not still, *(not planners.same(*x) for x in zip(parts, old, strict=True))])
        state = new
    assert moved == [[False] * 3, [False] * 3, [True] * 3]
    assert state.updates == 3


def test_a_step_makes_what_was_better_likelier() -> None:
    state = begun()
    sample = sampled(state, plans(AGENT, state, KEY, 2), ONES)
    step = jax.jit(lambda actor, sample: descend(AGENT.tx, AGENT.loss, actor, state, sample)[0])
    likely = jax.jit(lambda actor: AGENT.likelihood(actor.params, state.scales, sample)[0])
    for sign in (1, -1):
        judged = sample.judged._replace(advantage=sign * ONES)
        actor = step(state.actor, sample._replace(judged=judged))
        rises = sign * (likely(actor) - likely(state.actor))
        assert rises[0] > 1e-3
        assert rises[1] < -1e-3


def test_what_it_strays_pulls_it_back_and_nothing_else_does() -> None:
    """Of plans that are all as good as each other."""
    state = begun()
    sample = sampled(state, plans(AGENT, state, KEY))
    params = state.actor.params | {"flow": planners.stirred(state.first, 2, 0.1)}
    far = lambda agent, net: jnp.abs(  # noqa: E731
        agent.arrived(net, state, sample) - agent.arrived(state.first, state, sample)
    ).mean()

    def gone(stay: float) -> tuple[Any, Any, Any]:
        agent = replace(AGENT, stay=stay, lr=1e-2)
        actor = state.actor._replace(params=params)

        def step(actor: Any, _: None) -> tuple[Any, None]:
            return descend(agent.tx, agent.loss, actor, state, sample)[0], None

        last = jax.lax.scan(step, actor, length=40)[0].params
        return far(agent, params["flow"]), far(agent, last["flow"]), last

    before, after, last = jax.jit(gone, static_argnums=0)(1.0)
    assert before > 0.1
    assert after < 0.4 * before
    assert planners.same(last["noise"], params["noise"])
    assert planners.same(jax.jit(gone, static_argnums=0)(0.0)[2], params)


def test_judged_and_driven_it_does_not_wander() -> None:
    """Its plans are the flow's, in as many passes as it learned of; the same of the same noise."""
    state = begun()
    params, policy = AGENT.deploy(state), AGENT.policy(False, A)
    step = jax.jit(lambda params, key: planners.drawn(policy, params, key, N)[1])
    queue = step(params, KEY)
    np.testing.assert_array_equal(queue.chunk, step(params, KEY).chunk)
    keys = jax.vmap(lambda key: jax.random.split(key)[0])(jax.random.split(KEY, N))
    noise = jax.vmap(lambda key: jax.random.normal(key, (3, A)))(keys)
    mean, std = map(f64, chunks.unit(state.scales.action))
    many, few = (
        mean + std * np.clip(planners.euler64(params["net"], noise, queue.seen, k), *ends_of(state))
        for k in (10, K)
    )
    planners.told_apart(queue.chunk, few, {"the passes that it was made with": many})
    other = state.actor.params | {"noise": planners.stirred(state.actor.params["noise"])}
    noisier = state._replace(actor=state.actor._replace(params=other))
    assert planners.same(AGENT.deploy(noisier), params)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: ReinFlow(BC()), "ReinFlow needs a flow, whose steps .* and BC is none"),
        (lambda: ReinFlow(DiffusionBC()), "and DiffusionBC is none"),
        (lambda: ReinFlow(FlowBC(flow=Shortcut())), "and a shortcut is told theirs"),
        (lambda: ReinFlow(FlowBC(Chunks(decay=0.1))), "was made with --agent.chunks.decay"),
        (lambda: ReinFlow(FlowBC(Chunks(late=2))), "was made with --agent.chunks.late"),
        (lambda: ReinFlow(least=0.2), "ReinFlow's most is 0.15; it takes a number of at least 0.2"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()


def test_it_does_better_than_its_flow_in_what_is_rewarded() -> None:
    """A bandit, above a flow that imitated a clumsy hand."""
    base, quick = planners.ONCE, Baseline(hidden=(16,), lr=3e-3)
    agent = ReinFlow(base=base, hidden=(16,), baseline=quick, least=0.1, most=0.3, clip=0.1,
                     lr=2e-3, minibatches=4, warm=2)  # fmt: skip
    theirs, mine = planners.improved(agent)
    assert planners.reward(theirs).mean() < -0.5
    assert planners.reward(mine).mean() > -0.1
