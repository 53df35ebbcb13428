"""PA-RL: its targets and lessons by an oracle, and what it learns and teaches."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.bc import BC
from agents.diffusion_bc import DiffusionBC
from agents.one_step import OneStep
from agents.pa_rl import PARL
from rl import chunks
from rl.chunks import Chunks
from rl.critics import Critics
from tests import planners
from tests.learners import f64
from tests.oracles import finetune
from tests.oracles import steering as oracle
from tests.planners import ACTION, FLOW, GAMMA, KEY, OBS, PLANS, A, B, told_apart
from tests.test_qc import CRITICS, MANY, X, drawn, q64

KEPT, CLIMBS, CLIMB = 3, 3, 0.05
AGENT = PARL(base=FLOW, passes=3, candidates=MANY, kept=KEPT, climbs=CLIMBS, climb=CLIMB,
             critics=CRITICS, gamma=GAMMA, delay=2, warm=2)  # fmt: skip
STEPS = planners.windows(1, 4)


@cache
def known() -> tuple[Any, Any]:
    """A state whose networks and targets are all different, and what it learns from."""
    state = AGENT.init(KEY, OBS, ACTION, planners.learned(FLOW))
    state = state._replace(critic=planners.apart(state.critic, 11))
    return state, AGENT.chunks.macro(state.base.scales, STEPS, GAMMA)


def worth(params: Any, seen: Any, plans: Any) -> np.ndarray:
    """The mean of critics [n, B] of plans [n, B, H, A]."""
    return np.stack([q64(params, seen, x).mean(0) for x in plans])


def slope(params: Any, seen: Any, plans: np.ndarray, by: float = 1e-6) -> np.ndarray:
    """Of that, by differences."""
    out = np.zeros_like(plans)
    for at in np.ndindex(X, A):
        move = np.zeros(plans.shape[2:])
        move[at] = by
        up, down = (worth(params, seen, plans + s * move) for s in (1, -1))
        out[(..., *at)] = (up - down) / (2 * by)
    return out


def moved(
    state: Any, seen: Any, plans: np.ndarray, size: Any = CLIMB, count: int = CLIMBS
) -> tuple[np.ndarray, np.ndarray]:
    """Plans [n, B, H, A] as the oracle moves them, and what they are worth: steps of actions."""
    std = f64(chunks.unit(state.base.scales.action)[1])
    ends, params = map(f64, chunks.bounds(state.base.scales.action)), state.critic.net.params
    by = lambda x: size / std**2 * slope(params, seen, x)  # noqa: E731
    return oracle.ascended(lambda x: worth(params, seen, x), by, plans, *ends, 1.0, count)


def several(state: Any, seen: Any, key: jax.Array) -> np.ndarray:
    plans = drawn(state, seen, key)
    at = oracle.top(worth(state.critic.net.params, seen, plans), KEPT)
    return np.stack([plans[i, np.arange(B)] for i in at])


def best(plans: np.ndarray, value: np.ndarray) -> np.ndarray:
    return finetune.best_of(plans, value[:, None])


def test_its_target_is_the_oracles() -> None:
    """The best plan of those moved, by the critics of now, worth what the slow ones make of it."""
    state, macro = known()
    after, seen = planners.later(STEPS, PLANS), macro.next_seen
    kept, slow = several(state, seen, KEY), state.critic.slow
    std = f64(chunks.unit(state.base.scales.action)[1])

    def target(plan: Any = None, of: Any = slow, discount: Any = after.discount) -> np.ndarray:
        plan = best(*moved(state, seen, kept)) if plan is None else plan
        return after.reward + discount * worth(of, seen, plan[None])[0]

    first = drawn(state, seen, KEY)[:1]
    wrong = {
        "not moved": target(kept[0]),
        "a step less": target(best(*moved(state, seen, kept, count=CLIMBS - 1))),
        "steps of the base's units": target(best(*moved(state, seen, kept, CLIMB * std**2))),
        "any plan moved": target(moved(state, seen, first)[0][0]),
        "worth by the fast": target(of=state.critic.net.params),
        "gamma of one step": target(discount=np.where(after.discount > 0, GAMMA, 0)),
    }
    told_apart(jax.jit(AGENT.backup)(state, macro, KEY), target(), wrong)


def test_a_lesson_is_one_of_its_best_or_what_was_done_moved() -> None:
    """Drawn by the softmax of what they are worth, what was done being in place of the worst."""
    state, macro = known()
    window, seen = macro.window, macro.window.seen
    window = window._replace(kept=jnp.arange(3) < jnp.full((B, 1), 2))  # an end is seen
    picks, done = [], 0
    for key in jax.random.split(KEY, 4):
        lesson = jax.jit(AGENT.lesson)(state, window, key)
        noise_key, draw_key, pick_key = jax.random.split(key, 3)
        first = f64(jax.random.normal(noise_key, (B, 3, A)))
        more = f64(jax.random.normal(jax.random.split(draw_key)[0], (MANY - 1, B, 3, A)))
        ends = tuple(map(f64, chunks.bounds(state.base.scales.action)))
        every = np.stack([np.clip(planners.euler64(state.base.slow, x, seen, 3), *ends)
                          for x in (first, *more)])  # fmt: skip
        at = oracle.top(worth(state.critic.net.params, seen, every), KEPT)
        kept = oracle.with_data([every[i, np.arange(B)] for i in at], window.chunk)
        plans, value = moved(state, seen, kept)
        pick = np.asarray(jax.random.categorical(pick_key, jnp.asarray(value), axis=0))
        want = plans[pick, np.arange(B)]
        wrong = {"the best": best(plans, value), "not moved": kept[pick, np.arange(B)]}
        told_apart(lesson.chunk, want, wrong)
        np.testing.assert_array_equal(lesson.kept[:, -1], pick < KEPT - 1)
        np.testing.assert_array_equal(lesson.kept[:, :-1], True)
        picks.append(oracle.softmax_weights(value)[pick, np.arange(B)])
        done += (pick == KEPT - 1).sum()
    assert 0 < done < 4 * B
    assert np.mean(picks) > 1 / KEPT


@pytest.mark.long
def test_an_update_teaches_the_base_its_lesson_once_critics_are_warm() -> None:
    state, macro = known()
    assert AGENT.warm == AGENT.delay
    state = state._replace(updates=jnp.int32(1))
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), STEPS)
    new, told = jax.jit(AGENT.update)(state, batch, KEY)
    critic_key, lesson_key, key = jax.random.split(KEY, 3)
    after = state
    for k in jax.random.split(critic_key, 2):
        after, _ = jax.jit(AGENT.learn)(after, (STEPS, k))
    lesson = jax.jit(AGENT.lesson)(after, macro.window, lesson_key)
    base, _ = jax.jit(FLOW.learn)(state.base, lesson, key)
    planners.alike(new.base, base)
    imitating, _ = jax.jit(FLOW.learn)(state.base, macro.window, key)
    before, _ = jax.jit(AGENT.update)(state._replace(updates=jnp.int32(0)), batch, KEY)
    planners.alike(before.base, imitating)
    assert (before.updates, new.updates) == (2, 3)
    assert not planners.same(imitating.net.params, base.net.params)
    planners.alike(new.critic, after.critic)
    assert np.isfinite(told["critic_loss"])


def test_any_imitator_can_be_taught() -> None:
    base = DiffusionBC(chunks=PLANS, net=planners.NET)
    agent = PARL(base=base, passes=2, candidates=2, kept=2, climbs=1, critics=CRITICS, delay=1)
    state = agent.init(KEY, OBS, ACTION, planners.learned(base))
    new, _ = jax.jit(agent.update)(state, jax.tree.map(lambda x: x[None], STEPS), KEY)
    assert not planners.same(new.base.net.params, state.base.net.params)
    acted = planners.drawn(agent.policy(False, A), agent.deploy(new), KEY, 3)[0]
    assert np.isfinite(acted).all()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: PARL(OneStep(FLOW)), "OneStep is none: it was learned above"),
        (lambda: PARL(critics=Critics()), "what its base has measured already: leave --agent"),
        (lambda: PARL(BC()), "PARL needs a flow or a diffusion, which .* and BC is none"),
        (lambda: PARL(DiffusionBC(Chunks(decay=0.1))), "was made with --agent.chunks.decay"),
        (lambda: PARL(kept=9), "PARL's kept is 9; it takes a count from 2 to 8"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()


@pytest.mark.long
def test_the_base_itself_becomes_better() -> None:
    """A bandit: what it is taught is better than what was done, and it goes beyond that."""
    agent = PARL(base=planners.ONCE, candidates=8, kept=4, climbs=5, climb=0.05, delay=1, warm=100,
                 critics=Critics((32, 32), lr=3e-3, tau=0.05, normalise=False))  # fmt: skip
    theirs, mine = planners.bettered(agent)
    done = jax.random.uniform(KEY, (256, A), minval=-1, maxval=1)
    assert planners.reward(done).mean() < -0.55
    assert planners.reward(theirs).mean() > -0.3
    assert planners.reward(mine).mean() > -0.08
