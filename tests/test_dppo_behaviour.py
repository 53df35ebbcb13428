"""DPPO: which steps of denoising move, how it acts, what it learns."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from agents.bc import BC
from agents.diffusion_bc import DiffusionBC
from agents.dppo import DPPO
from agents.flow_bc import FlowBC
from rl.baseline import Baseline
from rl.chunks import Chunks
from rl.denoisers import Dense
from rl.diffusion import Diffusion
from tests import planners
from tests.planners import KEY, A, plans
from tests.test_dppo import AGENT, BASE, LEARNED, K, N, begun


@pytest.mark.long
def test_the_last_steps_alone_are_learned() -> None:
    """Other parameters there leave the way to them as it was, and that way's network stays."""
    state = begun()
    moved = state._replace(
        actor=state.actor._replace(params=planners.stirred(state.actor.params, 6, 0.2))
    )
    before, after = (plans(AGENT, x, KEY).aux["states"][0] for x in (state, moved))
    np.testing.assert_array_equal(before[:, 0], after[:, 0])
    assert (np.abs(before[:, 1:] - after[:, 1:]).reshape(N, LEARNED, -1).max(-1) > 1e-3).all()
    whole = replace(AGENT, learned=K)
    first, then = (plans(whole, x, KEY).aux["states"][0] for x in (state, moved))
    assert np.abs(first[:, 1] - then[:, 1]).max() > 1e-3
    batch = plans(AGENT, state, KEY)
    new, told = jax.jit(AGENT.update)(state, batch, KEY)
    assert told["off"] <= 1e-6  # of the first batch's first step
    assert told["clip_fraction"] == 0
    assert planners.same((new.first, new.scales), (state.first, state.scales))
    assert not planners.same(new.actor.params, state.actor.params)
    cold, _ = jax.jit(replace(AGENT, warm=1).update)(state, batch, KEY)
    assert planners.same(cold.actor, state.actor)
    assert not planners.same(cold.value.net.params, state.value.net.params)


def test_judged_and_driven_there_is_no_noise_on_the_way() -> None:
    """It begins as its base does by DDIM, in as many passes."""
    state = begun()
    params = AGENT.deploy(state)
    one = jax.jit(lambda params, key: planners.drawn(AGENT.policy(False, A), params, key, N)[1])
    calm = BASE.settled(K).policy(False, A)
    base = jax.jit(lambda params, key: planners.drawn(calm, params, key, N)[1])
    theirs = base({"net": state.first, "scales": state.scales}, KEY).chunk
    np.testing.assert_allclose(one(params, KEY).chunk, theirs, atol=1e-6)
    last = {"net": planners.stirred(state.first, 2, 0.2)}
    assert np.abs(one(params | last, KEY).chunk - theirs).max() > 1e-3


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: DPPO(BC()), "DPPO needs a diffusion, whose steps .* and BC is none"),
        (lambda: DPPO(FlowBC()), "and FlowBC is none"),
        (lambda: DPPO(DiffusionBC(Chunks(decay=0.1))), "was made with --agent.chunks.decay"),
        (lambda: DPPO(learned=9), "DPPO's learned is 9; it takes a count up to passes, 5"),
        (lambda: DPPO(base_clip=0.02), "takes a number up to clip, 0.01"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()


@pytest.mark.long
def test_it_does_better_than_its_diffusion_in_what_is_rewarded() -> None:
    """A bandit, above a diffusion that imitated a clumsy hand."""
    base = DiffusionBC(Chunks(horizon=1, execute=1), Dense((32, 32)), Diffusion(10, steps=10),
                       lr=2e-3, average=0.99)  # fmt: skip
    agent = DPPO(base, passes=4, learned=4, baseline=Baseline(hidden=(16,), lr=3e-3), clip=0.1,
                 base_clip=0.05, lr=2e-3, minibatches=4, warm=2)  # fmt: skip
    theirs, mine = planners.improved(agent)
    assert planners.reward(theirs).mean() < -0.5
    assert planners.reward(mine).mean() > -0.1
