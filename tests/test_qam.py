"""QAM: its way, its adjoints, its loss and its targets by an oracle, and what it learns."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.diffusion_bc import DiffusionBC
from agents.flow_bc import FlowBC
from agents.qam import QAM
from rl import chunks
from rl.chunks import Chunks
from rl.critics import Critics
from rl.generative import Flow, Shortcut
from tests import planners
from tests.learners import f64
from tests.oracles import finetune
from tests.oracles import steering as oracle
from tests.planners import ACTION, CRITICS, FLOW, GAMMA, KEY, OBS, PLANS, A, B, told_apart

K, H, SHARP = 4, 3, 2.5  # steps, actions of a plan, and how much its worth counts
AGENT = QAM(base=FLOW, passes=K, sharpness=SHARP, critics=CRITICS, doubt=0.7, gamma=GAMMA, warm=1)
STEPS = planners.windows(1, 4)
BATCH = jax.tree.map(lambda x: x[None], STEPS)


@cache
def known() -> tuple[Any, Any]:
    """A state whose networks and targets are all different, and what it learns from."""
    state = AGENT.init(KEY, OBS, ACTION, planners.learned(FLOW))
    net = state.net._replace(params=planners.stirred(state.net.params, 5, 0.2))
    state = state._replace(critic=planners.apart(state.critic, 11), net=net)
    return state, AGENT.chunks.macro(state.base.scales, STEPS, GAMMA)


def flat(params: Any, seen: Any) -> Any:
    """The velocity of flattened plans [B, D]."""
    field = planners.field64(params, seen)
    return lambda x, t: field(x.reshape(-1, H, A), t).reshape(len(x), -1)


def pulled(params: Any, seen: Any) -> Any:
    """Vector-Jacobian products of that, by differences."""
    field = flat(params, seen)

    def vjp(x: np.ndarray, t: np.ndarray, g: np.ndarray, by: float = 1e-6) -> np.ndarray:
        steps = by * np.eye(x.shape[1])
        each = [((field(x + e, t) - field(x - e, t)) * g).sum(1) / (2 * by) for e in steps]
        return np.stack(each, 1)

    return vjp


@cache
def path() -> tuple[Any, np.ndarray, np.ndarray]:
    """What was seen, the noises of a way, and its states [K + 1, B, D] by the oracle."""
    state, macro = known()
    seen, (noise_key, key) = macro.window.seen, jax.random.split(KEY)
    first = f64(jax.random.normal(noise_key, (B, H, A))).reshape(B, -1)
    draws = [jax.random.normal(k, (B, H, A)) for k in jax.random.split(key, K - 1)]
    noises = np.stack([first, *(f64(x).reshape(B, -1) for x in draws)])
    tuned, slow = flat(state.net.params, seen), flat(state.base.slow, seen)
    return seen, noises, oracle.qam_path(tuned, slow, noises[0], noises[1:], K)


def test_its_way_is_the_oracles() -> None:
    state, _ = known()
    seen, noises, right = path()
    tuned, slow = flat(state.net.params, seen), flat(state.base.slow, seen)
    noise, key = noises[0].reshape(B, H, A), jax.random.split(KEY)[1]
    got = jax.jit(AGENT.wander)(state.net.params, state.base.slow, seen, jnp.asarray(noise), key)
    wrong = {
        "the tuned to the end": oracle.qam_path(tuned, tuned, noises[0], noises[1:], K),
        "the imitator": oracle.qam_path(slow, slow, noises[0], noises[1:], K),
        "no noise": oracle.qam_path(tuned, slow, noises[0], 0 * noises[1:], K),
    }
    told_apart(got.reshape(right.shape), right, wrong)


def ends_of(state: Any) -> tuple[np.ndarray, ...]:
    return tuple(np.tile(f64(x), H) for x in chunks.bounds(state.base.scales.action))


def terminal(state: Any, known_obs: Any, last: np.ndarray, params: Any = None) -> np.ndarray:
    """The oracle's slope at the end of a way, by differences."""
    params = state.critic.slow if params is None else params

    def worth(x: np.ndarray) -> np.ndarray:
        done = x.reshape(B, H, A)[:, : PLANS.execute]
        return planners.q64(params, state.critic.obs, known_obs, done).mean(0)

    def slope(x: np.ndarray, by: float = 1e-6) -> np.ndarray:
        steps = by * np.eye(x.shape[1])
        return np.stack([(worth(x + e) - worth(x - e)) / (2 * by) for e in steps], 1)

    return oracle.qam_terminal(slope, last, SHARP, *ends_of(state))


def test_its_adjoints_are_the_oracles() -> None:
    state, macro = known()
    seen, _, states = path()
    vjp, last = pulled(state.base.slow, seen), terminal(state, macro.obs, states[-1])
    right = oracle.qam_adjoints(vjp, states, last, K)[:-1]
    got = jax.jit(AGENT.adjoints)(
        state.base.slow, seen, jnp.asarray(states).reshape(-1, B, H, A), last.reshape(B, H, A)
    )
    tuned = pulled(state.net.params, seen)
    early = lambda x, t, g: vjp(x, t - 1 / K, g)  # noqa: E731
    wrong = {
        "along the tuned": oracle.qam_adjoints(tuned, states, last, K)[:-1],
        "a step early": oracle.qam_adjoints(early, states, last, K)[:-1],
        "as at the end": np.broadcast_to(last, right.shape),
    }  # fmt: skip
    told_apart(got.reshape(right.shape), right, wrong)


def test_its_loss_is_the_oracles() -> None:
    state, macro = known()
    seen, _, states = path()
    times = [np.full(B, i / K) for i in range(K)]
    both = [np.stack([flat(p, seen)(x, t) for x, t in zip(states[:-1], times, strict=True)])
            for p in (state.net.params, state.base.slow)]  # fmt: skip

    def loss(of: Any = None, sign: float = 1.0, values: Any = both) -> float:
        last = sign * terminal(state, macro.obs, states[-1], of)
        adjoints = oracle.qam_adjoints(pulled(state.base.slow, seen), states, last, K)
        return oracle.qam_loss(*values, states, adjoints, K)

    got, told = jax.jit(AGENT.loss)(state.net.params, state, macro, KEY)
    wrong = {
        "fast critics": loss(state.critic.net.params),
        "downhill": loss(sign=-1.0),
        "no worth": loss(sign=0.0),
        "as it was": loss(values=[both[1], both[1]]),
        "a mean": loss() / (H * A),
    }
    told_apart(got, loss(), wrong)
    slope = np.abs(terminal(state, macro.obs, states[-1])).mean()
    np.testing.assert_allclose(told["slope"], slope, rtol=1e-4)
    assert (np.abs(states[-1]) > ends_of(state)[1]).any()  # some end beyond their bounds


def test_its_target_doubts_what_critics_disagree_on() -> None:
    state, macro = known()
    after = planners.later(STEPS, PLANS)
    noise = jax.random.normal(jax.random.split(KEY)[0], (B, H, A))
    ends = tuple(map(f64, chunks.bounds(state.base.scales.action)))

    def target(net: Any = state.net.params, of: Any = state.critic.slow, doubt: float = 0.7) -> Any:
        plan = np.clip(planners.euler64(net, noise, macro.next_seen, K), *ends)
        q = planners.q64(of, state.critic.obs, after.known, plan[:, : PLANS.execute])
        return after.reward + after.discount * (q.mean(0) - doubt * q.std(0))

    wrong = {
        "no doubt": target(doubt=0), "the imitator": target(state.base.slow),
        "fast critics": target(of=state.critic.net.params),
    }  # fmt: skip
    told_apart(jax.jit(AGENT.backup)(state, macro, KEY), target(), wrong)


@pytest.mark.long
def test_an_update_tunes_one_flow_and_the_other_imitates() -> None:
    state, macro = known()
    cold, _ = jax.jit(AGENT.update)(state, BATCH, KEY)
    assert planners.same(cold.net, state.net)  # critics know nothing yet
    state = state._replace(updates=cold.updates)
    new, told = jax.jit(AGENT.update)(state, BATCH, KEY)
    assert planners.same(cold.critic, new.critic)
    alone, _ = jax.jit(FLOW.learn)(state.base, macro.window, jax.random.split(KEY, 3)[0])
    planners.alike(new.base, alone)
    assert not planners.same(new.net.params, state.net.params)
    done = macro.window.chunk[:, : PLANS.execute]
    q = planners.q64(state.critic.net.params, state.critic.obs, macro.obs, done)
    y = AGENT.backup(state, macro, jax.random.split(KEY, 3)[1])
    loss = finetune.critic_loss(q, y)
    told_apart(
        told["critic_loss"],
        loss,
        {"a sum": 3 * loss, "of values": finetune.critic_loss(q, 0 * q[0])},
    )
    first = AGENT.init(KEY, OBS, ACTION, planners.learned(FLOW))
    still = replace(AGENT, sharpness=0.0)
    loss, _ = jax.jit(still.loss)(first.net.params, first, macro, KEY)
    assert loss == 0  # what is tuned begins as the flow, and nothing pulls


def test_time_may_run_the_other_way() -> None:
    """A flow told of times from the data on learns and draws as one told of them to the data."""

    class Turned(FlowBC):
        def field(self, params: Any, x: Any, seen: Any, time: Any, size: Any = None) -> Any:
            return -FLOW.field(params, x, seen, 1 - time)

    turned = Turned(PLANS, planners.NET, Flow(convention="noise_at_one"))
    state, macro = known()
    ours, theirs = (
        jax.jit(replace(AGENT, base=base).loss)(state.net.params, state, macro, KEY)[0]
        for base in (FLOW, turned)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: QAM(DiffusionBC()), "QAM needs a flow, whose .* and DiffusionBC is none"),
        (lambda: QAM(FlowBC(flow=Shortcut())), "tunes a flow's velocity at every time"),
        (lambda: QAM(FlowBC(Chunks(late=1))), "was made with --agent.chunks.late"),
        (lambda: QAM(doubt=-1.0), "QAM's doubt is -1.0; it takes a number of at least 0"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()


@pytest.mark.long
def test_its_flow_goes_where_more_is_rewarded() -> None:
    """A bandit, above a flow of any action: what is tuned draws those that come to more."""
    agent = QAM(base=planners.ONCE, passes=5, sharpness=10.0, doubt=0.0, lr=2e-3, warm=100,
                critics=Critics((32, 32), lr=3e-3, tau=0.05))  # fmt: skip
    theirs, mine = planners.bettered(agent)
    assert planners.reward(theirs).mean() < -0.45
    assert planners.reward(mine).mean() > -0.2
