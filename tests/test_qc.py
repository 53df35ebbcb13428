"""QC: its targets by an oracle, which plan it does, and what chooses among plans at all."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.bc import BC
from agents.diffusion_bc import DiffusionBC
from agents.flow_bc import FlowBC
from agents.one_step import OneStep
from agents.qc import QC
from rl import chunks, guidance
from rl.chunks import Chunks
from rl.critics import Critics
from tests import planners
from tests.learners import f64
from tests.oracles import finetune as oracle
from tests.planners import ACTION, FLOW, GAMMA, KEY, OBS, PLANS, A, B, told_apart

MANY, X = 5, 2  # plans to choose from, and actions done of each
CRITICS = Critics(hidden=(16, 16), count=3, normalise=False)
AGENT = QC(base=FLOW, passes=3, candidates=MANY, critics=CRITICS, gamma=GAMMA)
STEPS = planners.windows(1, 4)


@cache
def known() -> tuple[Any, Any]:
    """A state whose networks and targets are all different, and what it learns from."""
    state = AGENT.init(KEY, OBS, ACTION, planners.learned(FLOW))
    state = state._replace(critic=planners.apart(state.critic, 11))
    return state, AGENT.chunks.macro(state.base.scales, STEPS, GAMMA)


def q64(params: Any, seen: Any, plan: Any) -> np.ndarray:
    """[E, B] by what the policy sees, of the actions that are done."""
    told = np.concatenate([f64(seen).reshape(B, -1), f64(plan)[:, :X].reshape(B, -1)], 1)
    nets = params["params"]["MLP_0"]
    one = lambda e: planners.mlp64(jax.tree.map(lambda x: x[e], nets), told, planners.relu)  # noqa: E731
    return np.stack([one(e)[:, 0] for e in range(3)])


def drawn(state: Any, seen: Any, key: jax.Array) -> np.ndarray:
    """The plans [MANY, B, H, A] that it chooses from."""
    first, key = jax.random.split(key)
    noise = jax.random.normal(first, (B, PLANS.horizon, A))
    more = jax.random.normal(jax.random.split(key)[0], (MANY - 1, *noise.shape))
    ends = tuple(map(f64, chunks.bounds(state.base.scales.action)))
    every = [f64(noise), *f64(more)]
    return np.stack([np.clip(planners.euler64(state.base.slow, x, seen, 3), *ends) for x in every])


def test_its_target_is_the_oracles() -> None:
    """The best of the next plans by the critics of now, worth what the slow ones make of it."""
    state, macro = known()
    after = planners.later(STEPS, PLANS)
    plans, seen = drawn(state, macro.next_seen, KEY), macro.next_seen
    now, slow = state.critic.net.params, state.critic.slow

    def target(by: Any = now, of: Any = slow, how: str = "mean", **to: Any) -> np.ndarray:
        given = {"reward": after.reward, "discount": after.discount, "plans": plans} | to
        q = np.stack([q64(by, seen, x) for x in given["plans"]])
        best = oracle.best_of(given["plans"], q, how)
        return oracle.chunk_target(given["reward"], given["discount"], q64(of, seen, best), how)

    each = np.mean([q64(slow, seen, x) for x in plans], 0)
    wrong = {
        "chosen by the slow": target(by=slow),
        "worth by the fast": target(of=now),
        "the least critic": target(how="min"),
        "any plan": target(plans=plans[:1]),
        "the mean of plans": oracle.chunk_target(after.reward, after.discount, each, "mean"),
        "the worst": target(by=jax.tree.map(lambda x: -x, now)),
        "gamma of one step": target(discount=np.where(after.discount > 0, GAMMA, 0)),
        "gamma of a horizon": target(discount=np.where(after.discount > 0, GAMMA**3, 0)),
    }
    told_apart(jax.jit(AGENT.backup)(state, macro, KEY), target(), wrong)


def test_its_critics_learn_of_what_is_done_by_what_the_policy_sees() -> None:
    state, macro = known()
    batch = jax.tree.map(lambda x: x[None], STEPS)
    new, told = jax.jit(AGENT.update)(state, batch, KEY)
    y = AGENT.backup(state, macro, jax.random.split(KEY)[1])
    q = q64(state.critic.net.params, macro.window.seen, macro.window.chunk)
    wrong = {
        "a sum": 3 * oracle.critic_loss(q, y),
        "what is seen next": oracle.critic_loss(
            q64(state.critic.net.params, macro.next_seen, macro.window.chunk), y
        ),
    }
    told_apart(told["critic_loss"], oracle.critic_loss(q, y), wrong)
    alone, _ = jax.jit(FLOW.update)(state.base, batch, jax.random.split(KEY)[0])
    planners.alike(new.base, alone)  # the flow only imitates


def test_it_does_the_best_of_its_plans() -> None:
    """The queue that it carries is the plan of the greatest mean; others were there."""
    state, _ = known()
    params, policy = AGENT.deploy(state), AGENT.policy(False, A)
    _, queue, _ = jax.jit(lambda key: planners.drawn(policy, params, key, B))(KEY)
    both = jax.vmap(jax.random.split)(jax.random.split(KEY, B))
    noise = jax.vmap(lambda key: jax.random.normal(key, (1, PLANS.horizon, A)))(both[:, 0])
    more = jax.vmap(lambda key: jax.random.normal(jax.random.split(key)[0], (MANY - 1, 1, 3, A)))
    more = jnp.swapaxes(more(both[:, 1]), 0, 1)[:, :, 0]
    ends = tuple(map(f64, chunks.bounds(state.base.scales.action)))
    each = np.stack([
        np.clip(planners.euler64(state.base.slow, x, queue.seen, 3), *ends)
        for x in (noise[:, 0], *more)
    ])  # fmt: skip
    q = np.stack([q64(params["critic"], queue.seen, x) for x in each])
    mean, std = map(f64, chunks.unit(state.base.scales.action))
    wrong = {"the first": mean + std * each[0], "the worst": mean + std * oracle.best_of(each, -q)}
    told_apart(queue.chunk, mean + std * oracle.best_of(each, q), wrong)


def test_a_row_has_its_own_choice() -> None:
    plans = jnp.arange(24.0).reshape(3, 2, 2, 2)
    worth = jnp.array([[1.0, 5.0], [3.0, 4.0], [2.0, 6.0]])
    got = guidance.chosen(plans, worth)
    np.testing.assert_array_equal(got, jnp.stack([plans[1, 0], plans[2, 1]]))


def test_a_diffusion_is_chosen_among_too() -> None:
    base = DiffusionBC(chunks=PLANS, net=planners.NET)
    agent = QC(base=base, passes=2, candidates=2, critics=CRITICS)
    state = agent.init(KEY, OBS, ACTION, planners.learned(base))
    batch = jax.tree.map(lambda x: x[None], STEPS)
    new, told = jax.jit(agent.update)(state, batch, KEY)
    assert np.isfinite(told["critic_loss"])
    assert not planners.same(new.base.net.params, state.base.net.params)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: QC(OneStep(FLOW)), "OneStep is none: it was learned above"),
        (lambda: QC(critics=Critics()), "what its base has measured already: leave --agent"),
        (lambda: QC(BC()), "QC needs a flow or a diffusion, among .* and BC is none"),
        (lambda: QC(FlowBC(Chunks(late=1))), "was made with --agent.chunks.late"),
        (lambda: QC(candidates=0), "QC's candidates is 0; it takes a count of at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()


def test_it_does_better_than_its_flow_in_what_is_rewarded() -> None:
    """A bandit, above a broad flow."""
    agent = QC(base=planners.Broad(Chunks(horizon=1, execute=1), net=planners.NET), candidates=16,
               critics=Critics(hidden=(32, 32), lr=3e-3, normalise=False))  # fmt: skip

    theirs, mine = planners.bettered(agent)
    assert planners.reward(theirs).mean() < -0.5
    assert planners.reward(mine).mean() > -0.2
