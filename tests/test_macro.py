"""What is learned of the values of plans, by plain loops; and which bases are refused."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.bc import BC
from agents.diffusion_bc import DiffusionBC
from agents.dsrl import DSRL
from agents.flow_bc import FlowBC
from agents.fql import FQL
from agents.reinflow import ReinFlow
from rl import chunks, norm
from rl.chunks import Chunks, Macro
from rl.types import Transition

SIZE, A, B, GAMMA = 2, 2, 96, 0.8
ALL = [(h, n, x) for h in (1, 2, 3) for n in (2, 3, 4, 5) for x in range(1, n + 1)]


class Want(NamedTuple):
    reward: float
    discount: float
    next_seen: np.ndarray  # [h, O] not scaled
    obs: np.ndarray
    next_obs: np.ndarray


def lived(length: int, ends: float, dicts: bool, seed: int) -> Transition:
    """Windows [B, length, ...] of episodes that end by chance, and begin elsewhere."""
    rng = np.random.default_rng(seed)

    def number() -> Any:
        return rng.normal(1, 2, (B, length, SIZE)).astype("f4")

    over = rng.random((B, length)) < ends
    terminated, truncated = over & (rng.random(over.shape) < 0.6), over.copy()
    truncated &= ~terminated | (rng.random(over.shape) < 0.3)  # some are both
    obs, after = number(), number()
    obs[:, 1:] = np.where(over[:, :-1, None], obs[:, 1:], after[:, :-1])
    seen, then = obs, after
    if dicts:
        seen, then = ({"policy": x, "critic": np.concatenate([x, 3 * x], 2)} for x in (obs, after))
    action, reward = number(), rng.normal(size=over.shape).astype("f4")
    return jax.tree.map(jnp.asarray, Transition(seen, action, reward, terminated, truncated, then))


def looped(steps: Transition, b: int, history: int, execute: int, wrong: str = "") -> Want:
    """One window, step by step; or what is `wrong`."""
    row = jax.tree.map(lambda x: x[b], steps)
    one, other = (x if isinstance(x, dict) else {"policy": x, "critic": x} for x in row[::5])
    now, reward, scale, first = history - 1, 0.0, 1.0, 0
    over = row.terminated | row.truncated
    for i in range(now):
        if over[i] and wrong != "no start":
            first = i + 1
    path, t = [one["policy"][i] for i in range(first, now + 1)], now
    last = len(over) - 1 if wrong == "window's end" else now + execute - 1
    while True:
        if t < now + execute:
            reward += scale * row.reward[t]
        scale *= GAMMA
        path.append(other["policy"][t])
        if t == last or (over[t] and wrong != "no end"):
            break
        t += 1
    discount = 0.0 if row.terminated[t] and wrong != "goes on" else scale
    if wrong == "gamma" and discount:
        discount = GAMMA
    lately = ([path[0]] * history + path)[-history:]
    return Want(reward, discount, np.stack(lately), one["critic"][now], other["critic"][t])


def numpy_of(steps: Transition) -> Transition:
    return jax.tree.map(np.asarray, steps)


def measured() -> chunks.Scales:
    """Units that are not one."""
    stats = chunks.scales(jnp.zeros(SIZE), jnp.zeros(A))
    moved = lambda x: x._replace(mean=jnp.array([0.5, -1.0]), var=jnp.array([4.0, 0.3]))  # noqa: E731
    return chunks.Scales(*map(moved, stats))


def told(history: int, horizon: int, execute: int, steps: Transition) -> Macro:
    return Chunks(history, horizon, execute).macro(measured(), steps, GAMMA)


def furthest(got: Macro, steps: Transition, history: int, execute: int, wrong: str = "") -> Any:
    """How far the fields of `Want` are from it, at most."""
    steps, stats = numpy_of(steps), measured().obs
    every = [looped(steps, b, history, execute, wrong) for b in range(B)]
    want = Want(*(np.stack(x).astype("f4") for x in zip(*every, strict=True)))
    scaled = np.clip((want.next_seen - stats.mean) / np.sqrt(stats.var + 1e-8), -10, 10)
    want = want._replace(next_seen=scaled)
    assert got.reward.shape == got.discount.shape == (B,)
    for name in Want._fields:
        assert getattr(got, name).shape == getattr(want, name).shape, name
    return Want(*(float(np.abs(getattr(got, n) - getattr(want, n)).max()) for n in Want._fields))


@pytest.mark.long
@pytest.mark.parametrize("dicts", [False, True])
@pytest.mark.parametrize("history", [1, 2, 3])
def test_a_part_of_a_plan_is_a_step(history: int, dicts: bool) -> None:
    for i, (h, horizon, execute) in enumerate(ALL):
        if h != history:
            continue
        for ends in (0.0, 0.2, 0.6):
            steps = lived(h - 1 + horizon, ends, dicts, seed=i)
            got = told(h, horizon, execute, steps)
            assert max(furthest(got, steps, h, execute)) < 2e-5, (horizon, execute, ends)
            window = Chunks(h, horizon, execute).window(measured(), steps)
            for x, y in zip(got.window, window, strict=True):
                np.testing.assert_array_equal(x, y)


def test_more_than_its_window_says_nothing() -> None:
    """Steps beyond it, as an agent may ask for."""
    steps = lived(2 + 4 + 3, 0.15, True, seed=3)
    fewer = jax.tree.map(lambda x: x[:, :6], steps)
    for x, y in zip(*(jax.tree.leaves(told(3, 4, 2, s)) for s in (steps, fewer)), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    ("wrong", "differ"),
    [
        ("gamma", {"discount"}),
        ("window's end", {"discount", "next_seen", "next_obs"}),
        ("no end", {"reward", "discount", "next_seen", "next_obs"}),
        ("no start", {"next_seen"}),
        ("goes on", {"discount"}),
    ],
)
def test_a_wrong_one_is_told(wrong: str, differ: set[str]) -> None:
    """The loop, planted with one fault, differs in what the fault is of, and in nothing else."""
    steps = lived(2 + 5, 0.25, True, seed=1)
    off = furthest(told(3, 5, 3, steps), steps, 3, 3, wrong)
    assert {name for name in Want._fields if getattr(off, name) > 0.05} == differ


def test_it_is_compiled_and_vmapped_alike() -> None:
    both = [lived(2 + 4, 0.3, False, seed) for seed in (5, 6)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *both)
    got = jax.jit(jax.vmap(lambda steps: told(3, 4, 2, steps)))(stacked)
    for i, steps in enumerate(both):
        assert max(furthest(jax.tree.map(lambda x, i=i: x[i], got), steps, 3, 2)) < 2e-5


def test_its_units_are_those_of_the_policy() -> None:
    """What the critic sees is not scaled, what the policy does is."""
    steps = lived(2, 0.0, True, seed=2)
    got = told(1, 2, 1, steps)
    after = numpy_of(steps).next_obs["policy"][:, 0]
    np.testing.assert_allclose(
        got.next_seen[:, 0], norm.normalise(measured().obs, after), atol=1e-5
    )
    np.testing.assert_array_equal(got.next_obs, numpy_of(steps).next_obs["critic"][:, 0])


FLOW, NOISE = "FQL needs a flow, .*, and BC is none", "DSRL needs a flow or a diffusion, .* and BC"


@pytest.mark.parametrize(
    ("agent", "base", "why"),
    [
        (FQL, BC(), FLOW),
        (DSRL, BC(), NOISE),
        (ReinFlow, BC(), "ReinFlow needs a flow, .*, and BC is none"),
        (FQL, DiffusionBC(), "FQL needs a flow, .*, and DiffusionBC is none"),
        (ReinFlow, DiffusionBC(), "and DiffusionBC is none"),
    ],
)
def test_a_base_that_is_not_able_is_refused(agent: Any, base: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        agent(base=base)


@pytest.mark.parametrize("agent", [FQL, DSRL, ReinFlow])
@pytest.mark.parametrize(("which", "value"), [("decay", 0.0), ("decay", 0.1), ("late", 2)])
def test_a_base_whose_plans_overlap_is_refused(agent: Any, which: str, value: float) -> None:
    """And it is said by which of the two they do."""
    said = rf"{agent.__name__} learns .* --agent\.chunks\.{which}, "
    with pytest.raises(ValueError, match=said):
        agent(base=FlowBC(chunks=Chunks(**{which: value})))


@pytest.mark.parametrize("base", [None, FlowBC(), FlowBC(chunks=Chunks(3, 5, 5))])
def test_what_is_able_or_not_known_yet_is_not(base: Any) -> None:
    for agent in (FQL, DSRL, ReinFlow):
        assert agent(base=base).base is base
    DSRL(base=DiffusionBC())
