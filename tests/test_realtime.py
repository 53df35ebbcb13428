"""Plans that take time, in simulation and on a robot: by the oracle, and as they behave."""

import threading
from concurrent.futures import wait
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.diffusion_bc import DiffusionBC
from agents.flow_bc import FlowBC
from rl import chunks, norm, realtime
from rl.bridge.executor import Executor, Request, threaded
from rl.chunks import Chunks
from rl.generative import Flow, Shortcut
from rl.realtime import Late, Lead
from tests.oracles import chunks as oracle

A, EACH, KEY = 2, 67, jax.random.key(0)


def planned(params: Any, seen: Any, key: Any, lead: Lead) -> Any:
    """What is seen at each tick is a plan; with half of that before, and of what leads."""
    fresh = (seen[-1] + 0.5 * seen[-2]).reshape(lead.chunk.shape)
    return fresh + 0.5 * lead.weight[:, None] * (1 + lead.chunk)


class Trace(NamedTuple):
    """Of one robot."""

    obs: np.ndarray  # [T, H A]
    delays: np.ndarray  # [T + 1]
    execute: int
    expected: int

    def planned(self, seen: Any, chunk: np.ndarray, gone: int) -> np.ndarray:
        horizon, known = len(chunk), max(len(chunk) - gone, 0)
        rest = chunk[np.minimum(gone + np.arange(horizon), horizon - 1)]
        weight = oracle.rtc_weights(horizon, min(self.expected, known), horizon - known)
        return planned((), seen, (), Lead(rest, weight))

    def by_oracle(self) -> Any:
        """Actions [T, A], and when each plan was asked for and came."""
        chunk, asked = np.zeros((self.obs.shape[1] // A, A)), -99

        def plan(tick: int, obs: np.ndarray) -> np.ndarray:
            nonlocal chunk, asked
            seen = self.obs[[max(tick - 1, 0), tick]]
            chunk, asked = self.planned(seen, chunk, tick - asked), tick
            return chunk

        return oracle.delayed(plan, self.obs, self.execute, self.delays)

    def by_robot(self) -> Any:
        now, requests = 0, []

        def planner(request: Request) -> Any:
            assert request.delay == max([3, *(due - at for at, due in requests[1:])][-10:])
            due = now + int(self.delays[len(requests)] if requests else 0)
            requests.append((now, due))
            plan = self.planned(*request[:3])
            return SimpleNamespace(done=lambda: now >= due, result=lambda: plan)

        shape, actions = (self.obs.shape[1] // A, A), []
        executor = Executor(planner, shape, self.execute, 2, delay=3)
        for now in range(len(self.obs)):
            actions.append(executor.tick(self.obs[now]))
        return np.stack(actions), requests


def traces(horizon: int) -> list[Trace]:
    rng, length = np.random.default_rng(horizon), 20 + 4 * horizon

    def drawn() -> Trace:
        obs = rng.uniform(-1, 1, (length, horizon * A)).astype("f4")
        delays = rng.integers(0, rng.integers(1, horizon + 5), length + 1)
        return Trace(obs, delays, rng.integers(1, horizon + 1), rng.integers(0, horizon + 1))

    return [drawn() for _ in range(EACH)]


def late(horizon: int, execute: Any, most: Any) -> Any:
    """What draws its delays, and what is told them."""
    begin = lambda params: (jnp.zeros((2, horizon * A)), jnp.zeros((horizon, A)))  # noqa: E731
    given = planned, lambda params, obs: obs
    return realtime.late(*given, begin, execute, most), realtime.delayed(*given, execute, most)


def by_jax(traces: list[Trace]) -> tuple[np.ndarray, ...]:
    """Actions [N, T, A], and at each tick [N, T]: a plan was asked for, and how late it is."""

    def run(trace: Trace) -> Any:
        policy, tick = late(trace.obs.shape[1] // A, trace.execute, trace.expected)

        def one(carry: Any, obs: jax.Array) -> Any:
            state, count = carry
            action, state = tick((), state, obs, KEY, trace.delays[count])
            anew = state.asked == 0
            return (state, count + anew), (action, anew, state.delay)

        return jax.lax.scan(one, (policy.init(()), 0), trace.obs)[1]

    given = Trace(*map(np.array, zip(*traces, strict=True)))
    return tuple(np.asarray(x) for x in jax.jit(jax.vmap(run))(given))


@pytest.mark.parametrize("horizon", range(2, 17))
def test_simulation_robot_and_oracle_do_the_same_however_late_plans_are(horizon: int) -> None:
    """1,005 traces, whose plans are led by those before."""
    drawn = traces(horizon)
    for trace, actions, anew, delay in zip(drawn, *by_jax(drawn), strict=True):
        wanted, requests = trace.by_oracle()
        asked = [(t, t + delay[t]) for t in np.flatnonzero(anew)]
        for found in ((actions, asked), trace.by_robot()):
            np.testing.assert_allclose(found[0], wanted, atol=1e-6)
            assert found[1] == requests


@pytest.mark.parametrize("name", ["delays", "execute", "expected"])
def test_other_plans_are_told_apart(name: str) -> None:
    drawn = [x for x in traces(8) if x.expected < 8 - x.execute]
    others = [x._replace(**{name: getattr(x, name) + 1}).by_oracle()[0] for x in drawn]
    apart = np.abs(by_jax(drawn)[0] - others).max((1, 2)) > 0.01
    assert apart.mean() > 0.9


def rolled(policy: Any, params: Any, obs: jax.Array) -> tuple[Any, Late]:
    """What 200 worlds do in 40 ticks that always see the same, and carry: [N, T, ...]."""

    def one(carry: Late, key: jax.Array) -> Any:
        action, carry, _ = policy.step(params, carry, obs, key)
        return carry, (action, carry)

    run = lambda keys: jax.lax.scan(one, policy.init(params), keys)[1]  # noqa: E731
    return jax.jit(jax.vmap(run))(jax.random.split(KEY, (200, 40)))


def test_any_delay_is_as_likely_as_another() -> None:
    carry = rolled(late(4, 2, 2)[0], (), jnp.zeros(4 * A))[1]
    assert (carry.delay[:, 0] == 0).all()
    drawn = carry.delay[:, 1:][carry.asked[:, 1:] == 0]
    np.testing.assert_allclose(np.bincount(drawn) / len(drawn), [1 / 3] * 3, atol=0.03)


H, RNG = 6, np.random.default_rng(0)
M, V = RNG.normal(size=(H * A, H * A)) / 6, RNG.normal(size=H * A)
NOISE, BEFORE = RNG.normal(size=(3, H, A)), RNG.normal(size=(H, A))
FLOWS = [Flow(n, convention=x) for n in (5, 10) for x in ("data_at_one", "noise_at_one")]


def linear(x: Any, time: Any) -> Any:
    return (x.reshape(len(x), -1) @ M + time[:, None] * V).reshape(x.shape)


def by_hand(flow: Flow, weight: np.ndarray) -> np.ndarray:
    """Euler's steps in float64; the field is linear in x, and so is the estimate of the data."""
    x, turn = NOISE, 1 if flow.convention == "data_at_one" else -1
    for done in np.arange(flow.steps) / flow.steps:
        velocity = turn * linear(x, np.full(3, done if turn > 0 else 1 - done))
        error = weight[:, None] * (BEFORE - (x + (1 - done) * velocity))
        pulled = error + (1 - done) * turn * (error.reshape(3, -1) @ M.T).reshape(x.shape)
        x = x + (velocity + oracle.rtc_guidance(done) * pulled) / flow.steps
    return x


@pytest.mark.parametrize("flow", FLOWS)
def test_guided_plans_are_those_by_hand(flow: Flow) -> None:
    noise = jnp.asarray(NOISE, "f4")

    def found(delay: int, gone: int) -> np.ndarray:
        lead = realtime.lead(jnp.asarray(np.roll(BEFORE, gone, 0)), delay, gone)
        return np.asarray(flow.sample(realtime.guided(flow, linear, lead), noise, KEY))

    wanted = by_hand(flow, oracle.rtc_weights(H, 1, 2))
    np.testing.assert_allclose(found(1, 2), wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found(1, H), flow.sample(linear, noise, KEY), atol=1e-6)
    assert all(np.abs(found(*wrong) - wanted).max() > 0.05 for wrong in ((2, 2), (1, 3)))
    done = np.linspace(0, 1, 101)
    strong = realtime.guidance(jnp.asarray(done))
    np.testing.assert_allclose(strong, [oracle.rtc_guidance(t) for t in done], rtol=1e-4)


class Two(FlowBC):
    """Plans are all 1 or all -1, in units of their own, as chance has it."""

    def field(self, params: Any, x: Any, seen: Any, time: Any, size: Any = None) -> jax.Array:
        sign = getattr(self.flow, "sign", 1)
        done = (time if sign > 0 else 1 - time)[:, None, None]
        data = jnp.tanh(done / (1 - done) ** 2 * x.sum((1, 2), keepdims=True))
        return sign * (data - x) / (1 - done)


@pytest.mark.parametrize("flow", [*FLOWS, Shortcut(8)])
def test_a_plan_that_is_led_stays_with_the_way_that_was_begun(flow: Any) -> None:
    """One in two jumps to the other where none is."""
    action = norm.Stats(jnp.ones(()), jnp.full(1, 0.6), jnp.full(1, 0.04))
    params = {"net": (), "scales": chunks.Scales(norm.init(jnp.zeros(3)), action)}
    agent = Two(Chunks(horizon=8, execute=4, late=3), flow=flow)
    action, carry = rolled(agent.policy(True, 1), params, jnp.zeros(3))
    np.testing.assert_allclose(np.abs(action - 0.6), 0.2, atol=0.02)
    jumps = np.sum(np.diff(action[..., 0]) ** 2 > 0.01) / (carry.asked[:, 1:] == 0).sum()
    assert jumps < 0.05 if isinstance(flow, Flow) else 0.4 < jumps < 0.6
    assert isinstance(DiffusionBC(agent.chunks).policy(True, 1).init(params), Late)


@pytest.mark.parametrize("said", [{"late": 5}, {"late": -1}, {"late": 1, "decay": 0.1}])
def test_what_cannot_be_late_is_refused(said: Any) -> None:
    with pytest.raises(ValueError, match=r"to \d, horizon - execute, or 0 where decay is set"):
        Chunks(**said)


def test_a_robot_moves_while_a_thread_plans() -> None:
    may = threading.Event()

    def plan(request: Request) -> np.ndarray:
        assert request.gone == 4 or may.wait(30)
        return np.arange(4)[:, None] / 8 + request.seen[-1]

    executor = Executor(threaded(plan), (4, 1), 2)
    assert [executor.tick(obs)[0] for obs in range(6)] == [0, 1 / 8, 2 / 8, 3 / 8, 3 / 8, 3 / 8]
    assert executor.held == 2
    may.set()
    wait([executor.coming])
    assert executor.tick(6) == 2 + 3 / 8  # four ticks late, it is used up


@pytest.mark.parametrize(
    ("make", "error", "why"),
    [
        (lambda: 1 / 0, RuntimeError, r"The planner failed: ZeroDivisionError\("),
        (lambda: np.zeros((3, 2)), ValueError, r"has shape \(3, 2\); it needs \(4, 2\)"),
        (lambda: np.full((4, 2), np.nan), ValueError, "has nan as number 0 of action 0"),
        (lambda: "left", ValueError, "The plan is no array of numbers"),
    ],
)
def test_what_is_no_plan_is_heard_of(make: Any, error: Any, why: str) -> None:
    plan = lambda request: np.zeros((4, 2)) if request.gone == 4 else make()  # noqa: E731
    executor = Executor(threaded(plan), (4, 2), 1)
    executor.tick(0)
    executor.tick(1)
    wait([executor.coming])
    for _ in range(2):
        with pytest.raises(error, match=why):
            executor.tick(2)
    executor.reset()
    assert (executor.tick(3) == 0).all()
