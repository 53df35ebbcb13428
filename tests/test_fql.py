"""FQL: its losses by an oracle, what its student begins as, what its parts learn of."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.diffusion_bc import DiffusionBC
from agents.flow_bc import FlowBC
from agents.fql import FQL
from rl import chunks
from rl.chunks import Chunks
from rl.critics import Critics
from rl.generative import Flow, Shortcut
from tests import planners
from tests.learners import f64, held, level
from tests.oracles import finetune as oracle
from tests.planners import ACTION, CRITICS, FLOW, GAMMA, KEY, OBS, PLANS, A, B, told_apart

AGENT = FQL(base=FLOW, critics=CRITICS, gamma=GAMMA, alpha=2.0, passes=4)
STEPS = planners.windows(1, PLANS.ahead + 1)


@cache
def known() -> tuple[Any, Any, Any]:
    """A student and critics that are not what they began as, their values around 0; what is learned
    of, and the ends of actions in the flow's units."""
    state = AGENT.init(KEY, OBS, ACTION, planners.learned(FLOW))
    macro = AGENT.chunks.macro(state.base.scales, STEPS, GAMMA)
    fast = state.base.net._replace(params=planners.stirred(state.base.slow, 6))
    critic, given = planners.apart(state.critic, 11), macro.window.chunk[:, :2]
    nets = critic.net.params, critic.slow
    net, slow = (level(x, CRITICS.q(x, critic.obs, macro.obs, given)) for x in nets)
    student = state.student._replace(params=planners.stirred(state.student.params, 5))
    critic = critic._replace(net=critic.net._replace(params=net), slow=slow)
    state = state._replace(base=state.base._replace(net=fast), student=student, critic=critic)
    return state, macro, tuple(map(f64, chunks.bounds(state.base.scales.action)))


@pytest.mark.parametrize("least", ["mean", "min"])
def test_targets_are_the_oracles(least: Any) -> None:
    (state, macro, ends), after = known(), planners.later(STEPS, PLANS)
    ours = jax.jit(replace(AGENT, least=least).backup)(state, macro, KEY)
    noise = jax.random.normal(KEY, (B, 3, A))
    seen = planners.scaled64(state.base.scales.obs, after.seen)
    plan = planners.leap64(state.student.params, noise, seen)
    cut = np.clip(plan, *ends)
    assert np.abs(cut - plan)[:, :2].max() > 0.1
    assert {*after.discount.round(6)} == {0, 0.9, 0.81}  # some plans were cut short

    def target(plan: Any = cut, part: Any = slice(2), **other: Any) -> np.ndarray:
        params = other.get("params", state.critic.slow)
        q = planners.q64(params, state.critic.obs, other.get("obs", after.known), plan[:, part])
        told = other.get("reward", after.reward), other.get("discount", after.discount)
        return oracle.chunk_target(*told, q, other.get("least", least))

    endless = oracle.chunk_return(STEPS.reward[:, 1:3], *np.zeros((2, B, 2)), GAMMA)
    early = planners.leap64(state.student.params, noise, macro.window.seen)
    flow = planners.euler64(state.base.slow, noise, seen, 10)
    wrong = {
        "the other of least": target(least="min" if least == "mean" else "mean"),
        "gamma of one step": target(discount=np.where(after.discount > 0, GAMMA, 0)),
        "gamma of a horizon": target(discount=np.where(after.discount > 0, GAMMA**3, 0)),
        "no ends": target(reward=endless[0], discount=endless[1]),
        "rewards as they are": target(reward=planners.later(STEPS, PLANS, 1.0).reward),
        "fast critics": target(params=state.critic.net.params),
        "not cut": target(plan),
        "the last actions": target(part=slice(1, None)),
        "by what was seen before": target(np.clip(early, *ends)),
        "the flow's plan": target(np.clip(flow, *ends)),
    }
    told_apart(ours, target(), wrong)


def test_the_critics_loss_is_the_oracles() -> None:
    (state, macro, _), by_hand, stats = known(), oracle.critic_loss, known()[0].critic.obs
    y = jnp.asarray(np.random.default_rng(2).normal(size=B), "f4")
    rest = stats, macro.obs, macro.window.chunk[:, :2]
    params, loss = state.critic.net.params, jax.jit(CRITICS.loss)
    q = planners.q64(params, stats, *rest[1:])
    raw = replace(CRITICS, normalise=False).q(params, *rest)
    wrong = {
        "a half": by_hand(q, y) / 2,
        "a sum over critics": 3 * by_hand(q, y),
        "the mean critic": by_hand(q.mean(0)[None], y),
        "the slow critics": by_hand(planners.q64(state.critic.slow, stats, *rest[1:]), y),
        "not scaled": by_hand(raw, y),
    }
    told_apart(loss(params, *rest, y)[0], by_hand(q, y), wrong)
    held(
        loss, params, (*rest, y), lambda params: (CRITICS.q(params, *rest),),
        lambda q: by_hand(q, y), {"a half": lambda q: by_hand(q, y) / 2},
    )  # fmt: skip
    each = jnp.stack([y, 2 * y, y - 1])  # a target for each of them
    right, wrong = ((q - f64(each)) ** 2).mean(), {"the first's": by_hand(q, each[0])}
    told_apart(loss(params, *rest, each)[0], right, wrong)


@pytest.mark.parametrize("normalise", [True, False])
def test_the_students_loss_is_the_oracles_and_so_is_its_slope(normalise: bool) -> None:
    """Its slope tells that the unit and what the flow teaches are held still."""
    (state, macro, ends), agent = known(), replace(AGENT, normalise_q=normalise)
    params, seen = state.student.params, macro.window.seen
    noise = jax.random.normal(jax.random.split(KEY)[0], (B, 3, A))
    whole, own = (planners.euler64(state.base.slow, noise, seen, n) for n in (4, 10))
    one, plan = (planners.leap64(x, noise, seen) for x in (state.base.slow, params))
    taught = np.clip(whole, *ends)
    judged = state.critic.obs, macro.obs, np.clip(plan, *ends)[:, :2]
    q, slow = (planners.q64(x, *judged) for x in (state.critic.net.params, state.critic.slow))
    unit = oracle.q_scale(q) if normalise else 1.0

    def by_hand(plan: Any, q: Any, **other: Any) -> float:
        given = {"alpha": 2.0, "normalise": normalise, "scale": unit, "taught": taught} | other
        return oracle.student_loss(plan, q=q, **given)

    fast = np.clip(planners.euler64(state.base.net.params, noise, seen, 4), *ends)
    loss = jax.jit(agent.student_loss)
    wrong = {
        "the other unit": by_hand(plan, q, scale=None, normalise=not normalise),
        "the fast flow": by_hand(plan, q, taught=fast),
        "the flow of one step": by_hand(plan, q, taught=one),
        "a flow that is not cut": by_hand(plan, q, taught=whole),
        "a plan that is cut": by_hand(np.clip(plan, *ends), q),
        "slow critics": by_hand(plan, slow, scale=None),
        "the least critic": by_hand(plan, q.min(0)[None], scale=None),
        "the flow's own passes": by_hand(plan, q, taught=np.clip(own, *ends)),
        "only what is done": by_hand(plan[:, :2], q, taught=taught[:, :2]),
    }
    told_apart(loss(params, state, macro, KEY)[0], by_hand(plan, q), wrong)

    def outputs(params: Any) -> tuple[jax.Array, jax.Array]:
        plan = agent.plan(params, noise, seen)
        given = jnp.clip(plan, *chunks.bounds(state.base.scales.action))
        return plan, agent.q(state.critic.net.params, state, macro.obs, given)

    siblings = {"q drives away": lambda plan, q: by_hand(plan, -q)}
    if normalise:
        siblings["a unit that moves"] = lambda plan, q: by_hand(plan, q, scale=None)
    held(loss, params, (state, macro, KEY), outputs, by_hand, siblings)

    def by_flow(flow: Any) -> jax.Array:
        told = state._replace(base=state.base._replace(slow=flow))
        return loss(params, told, macro, KEY)[0]

    slope = jax.jit(jax.grad(by_flow))(state.base.slow)
    assert not any(x.any() for x in jax.tree.leaves(slope))


def test_all_step_as_they_were_and_the_flow_knows_nothing_of_values() -> None:
    """No step sees what another has just made; targets take their share of the critics."""
    agent = replace(AGENT, critics=replace(CRITICS, lr=0.1, tau=0.3))
    (state, macro, _), batch = known(), jax.tree.map(lambda x: x[None], STEPS)
    update = jax.jit(agent.update)

    def apiece(state: Any, macro: Any) -> Any:
        base_key, next_key, key = jax.random.split(KEY, 3)
        rest = macro.obs, macro.window.chunk[:, :2], agent.backup(state, macro, next_key)
        _, told = agent.critics.loss(state.critic.net.params, state.critic.obs, *rest)
        loss = agent.student_loss(state.student.params, state, macro, key)[0]
        return agent.base.update(state.base, batch, base_key)[0], told | {"student_loss": loss}

    new, metrics = update(state, batch, KEY)
    base, told = jax.jit(apiece)(state, macro)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), new.base, base)
    late = jax.jit(apiece)(state._replace(critic=new.critic), macro)[1]
    for name, value in told.items():
        told_apart(metrics[name], value, {"after the critics": late[name]})
    assert not planners.same(new.student.params, state.student.params)
    slow = jax.tree.map(lambda x, y: 0.7 * x + 0.3 * y, state.critic.slow, new.critic.net.params)
    jax.tree.map(lambda *x: np.testing.assert_allclose(*x, atol=1e-5), new.critic.slow, slow)
    rich, _ = update(state, batch._replace(reward=9 - batch.reward), KEY)
    assert planners.same(rich.base, new.base)
    assert not planners.same(rich.critic, new.critic)


@pytest.mark.parametrize("flow", [Flow(), Flow(convention="noise_at_one"), Shortcut()])
def test_a_student_of_a_learned_flow_begins_as_one_step_of_it(flow: Any) -> None:
    base = replace(FLOW, flow=flow)
    agent, ends = FQL(base=base), (-jnp.ones(A), jnp.ones(A))

    given = planners.learned(base)
    state, other = (agent.init(KEY, OBS, ACTION, x) for x in (given, None))
    noise, seen = (jax.random.normal(KEY, (B, n, d)) for n, d in ((3, A), (2, 3)))
    leaps = (agent.plan(x.student.params, noise, seen) for x in (state, other))
    mine, blank = (jnp.clip(x, *ends) for x in leaps)
    one, many = (base.settled(n).draw(given, noise, seen, KEY, ends) for n in (1, 8))
    assert planners.same(state.base.scales, given["scales"])
    assert planners.same(state.base.net.params, given["net"])
    np.testing.assert_allclose(mine, one, atol=1e-6)
    assert all(np.abs(mine - x).max() > 1e-2 for x in (many, blank))


def test_the_flow_measures_by_what_it_saw_first() -> None:

    blank, old = (AGENT.init(KEY, OBS, ACTION, x) for x in (None, planners.learned(FLOW)))
    first = AGENT.observe(blank, planners.windows(3, 5))
    more = jax.tree.map(lambda x: 3 * x, planners.windows(4, 5))
    then, later = AGENT.observe(first, more), AGENT.observe(old, more)
    assert not planners.same(first.base.scales, blank.base.scales)
    assert planners.same(then.base, first.base)
    assert then.critic.obs.count == first.critic.obs.count + 5 * B
    assert planners.same(later.base, old.base)
    assert not planners.same(later.critic.obs, old.critic.obs)


def test_it_acts_as_its_student_plans() -> None:
    (state, _, ends), policy = known(), AGENT.policy(False, A)
    params = AGENT.deploy(state)
    action, queue, _ = jax.jit(policy.step)(params, policy.init(params), OBS, KEY)
    noise = jax.random.normal(jax.random.split(KEY)[0], (1, 3, A))
    plan = np.clip(planners.leap64(state.student.params, noise, queue.seen[None]), *ends)
    mean, std = map(f64, chunks.unit(state.base.scales.action))
    np.testing.assert_allclose(queue.chunk, (mean + std * plan)[0], atol=1e-5)
    np.testing.assert_array_equal(action, queue.chunk[0])


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: DiffusionBC(), "FQL needs a flow, whose plans .* DiffusionBC is none"),
        (lambda: FlowBC(Chunks(decay=0.1)), "made with --agent.chunks.decay, so that plans overl"),
        (lambda: FlowBC(Chunks(late=2)), "made with --agent.chunks.late, so that plans overlap"),
    ],
)
def test_bases_that_do_not_do_are_refused(make: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        FQL(base=make())


def test_a_student_does_better_than_the_flow_in_what_is_rewarded() -> None:
    agent = FQL(base=planners.ONCE, alpha=0.1, lr=2e-3, critics=Critics(hidden=(32, 32), lr=2e-3))
    clumsy = lambda key: -0.2 + 0.4 * jax.random.normal(key, (64, A))  # noqa: E731

    def step(state: Any, key: jax.Array) -> tuple[Any, Any]:
        act_key, key = jax.random.split(key)
        return agent.update(state, planners.paid(clumsy(act_key)), key)

    def learn(key: jax.Array) -> tuple[jax.Array, ...]:
        state = agent.observe(agent.init(key, OBS, ACTION), planners.paid(clumsy(key)))
        state, _ = jax.lax.scan(step, state, jax.random.split(key, 400))
        both = (agent.policy(False, A), agent.deploy(state)), agent.beginner(state, A)
        return tuple(planners.drawn(*one, key, 256)[0] for one in both)

    mine, flows = jax.jit(learn)(KEY)
    assert planners.reward(flows).mean() < -0.5  # as the data
    assert planners.reward(mine).mean() > -0.1
