"""DSRL: its base stays as it was; which noise it chooses and tells, and what it learns."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.bc import BC
from agents.diffusion_bc import DiffusionBC
from agents.dsrl import DSRL
from agents.flow_bc import FlowBC
from agents.one_step import OneStep
from rl import chunks, rollout
from rl.chunks import Chunks
from rl.critics import Critics
from rl.diffusion import Diffusion
from rl.env import Restarts, State
from rl.generative import Flow
from tests import planners
from tests.oracles import finetune as oracle
from tests.planners import ACTION, GAMMA, KEY, NET, OBS, PLANS, SEEN, A, B, reward
from tests.test_dsrl import AGENT, FLOW, both

SHAKY = DiffusionBC(PLANS, NET, Diffusion(levels=4, steps=4, eta=1.0))
BASES = {"flow": FLOW, "diffusion": SHAKY, "student": OneStep(FLOW, NET)}


@dataclass(frozen=True)
class Drift:
    """What is seen drifts by what is done; some episodes end, others are cut, after a few steps."""

    horizon: int = 7
    action_dim: int = A
    control_dt: float = 1.0
    restarts: Restarts = "all"

    def reset(self, key: jax.Array, context: Any = None) -> State:
        x, no = jax.random.normal(key, (SEEN,)), jnp.bool(False)
        return State(x, context, self.seen(x), jnp.float32(0), no, no, {}, jnp.int32(0), key)

    def seen(self, x: jax.Array) -> Any:
        return {"policy": x, "critic": jnp.append(x, 1.0)}

    def step(self, state: State, action: jax.Array) -> State:
        x, t = 0.9 * state.sim + 0.3 * action.sum() + jnp.array([0.1, -0.2, 0.3]), state.t + 1
        over = (t > 3) & (x[0] > 0.5), t >= self.horizon
        own = state._replace(sim=x, obs=self.seen(x), reward=reward(action), t=t)
        return own._replace(terminated=over[0], truncated=over[1])

    def restart(self, state: State, prepared: State | None = None) -> State:
        key = jax.random.fold_in(state.key, 1)
        fresh = self.reset(key, state.context) if prepared is None else prepared
        return self.select(state.done, fresh, state)

    def select(self, done: jax.Array, fresh: State, state: State) -> State:
        return jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, state)


@pytest.mark.long
@pytest.mark.parametrize("name", BASES)
@both
def test_the_base_stays_as_it_was_and_the_rest_moves(critics_of: Any, name: str) -> None:
    agent = replace(AGENT, base=BASES[name], critics_of=critics_of, target_entropy=-3.0)
    steps = planners.windows(2, 1 + agent.ahead)
    if critics_of == "noise":
        noise = jax.random.normal(KEY, (B, 1 + agent.ahead, 3, A))
        told = {"noise": noise, "begins": jnp.ones(noise.shape[:2], bool)}
        steps = steps._replace(aux=told)

    given = planners.learned(agent.base)
    state = agent.init(KEY, OBS, ACTION, given)
    batch = jax.tree.map(lambda x: jnp.stack([x, x[::-1]]), steps)
    new, metrics = jax.jit(agent.update)(agent.observe(state, steps), batch, KEY)
    assert planners.same(new.base, given)
    assert not planners.same(new.actor.params, state.actor.params)
    assert not planners.same(new.critic.net.params, state.critic.net.params)
    learns = not planners.same(new.alias.net.params, state.alias.net.params)
    assert learns == (critics_of == "aliased")
    wanted = oracle.temperature_loss(state.log_alpha.params, [-metrics["entropy"]], -3.0 * 3 * A)
    np.testing.assert_allclose(metrics["alpha_loss"], wanted, rtol=1e-5)
    assert (new.log_alpha.params < state.log_alpha.params) == (wanted > 0)
    assert bool(new.steered) > bool(state.steered)


@pytest.mark.parametrize("name", BASES)
def test_it_begins_as_its_base_and_then_chooses_its_noise(name: str) -> None:
    """Of standard normal noise to begin with, sampled and judged; then within the bound."""
    agent = replace(AGENT, base=BASES[name])
    base, settled = agent.base, agent.base.settled()

    state = agent.init(KEY, OBS, ACTION, planners.learned(base))
    ends = chunks.bounds(state.base["scales"].action)
    mean, std = chunks.unit(state.base["scales"].action)

    def told(params: Any, explore: bool) -> Any:
        action, queue, _ = planners.drawn(agent.policy(explore, A), params, KEY, 400)
        noise = queue.chunk[..., A:]
        plan = settled.draw(state.base, noise, queue.seen, KEY, ends)
        return action, queue.chunk[..., :A], noise, mean + std * plan

    tell, params = jax.jit(told, static_argnums=1), agent.deploy(state)
    cases = [(explore, steered) for explore in (True, False) for steered in (False, True)]
    for explore, steered in cases:
        now = params | {"steered": jnp.bool(steered)}
        action, chunk, noise, plan = tell(now, explore)
        np.testing.assert_allclose(chunk, plan, atol=1e-5)
        np.testing.assert_allclose(action, chunk[:, 0], atol=1e-6)
        if not steered:
            assert np.abs(noise.mean((0, 1))).max() < 0.1
            assert np.abs(noise.std((0, 1)) - 1).max() < 0.1
            assert np.abs(noise).max() > 3
        else:
            assert np.abs(noise).max() <= 1.5
            assert (np.ptp(noise, 0).max() > 1) == explore
            assert (np.ptp(noise, 0).max() == 0) != explore  # judged it is sure


def test_one_actions_noise_is_that_of_all_if_it_is_alike() -> None:
    agent = replace(AGENT, alike=True, critics_of="noise")
    state = agent.init(KEY, OBS, ACTION, planners.learned(agent.base))
    params = agent.deploy(state) | {"steered": jnp.bool(True)}
    step = jax.jit(lambda params: planners.drawn(agent.policy(True, A), params, KEY, 20))
    noise = step(params)[2]["noise"]
    np.testing.assert_array_equal(noise, np.broadcast_to(noise[:, :1], noise.shape))
    assert np.ptp(noise[:, 0], axis=0).min() > 0.5
    assert agent.told(noise).shape == (20, 1, A)


@pytest.mark.parametrize("name", ["flow", "diffusion"])
def test_windows_of_noise_begin_where_plans_do(name: str) -> None:
    """And what the base makes of the noise that was told is what was done."""
    agent = replace(AGENT, base=BASES[name], critics_of="noise")

    state = agent.init(KEY, OBS, ACTION, planners.learned(agent.base))

    @jax.jit
    def walk() -> tuple[Any, ...]:
        params, policy = agent.deploy(state) | {"steered": jnp.bool(True)}, agent.policy(True, A)
        worlds = rollout.start(Drift(), policy, params, KEY, 3)
        seen = rollout.collect(Drift(), policy, params, worlds, KEY, 40)[1]
        size = 1 + agent.ahead
        rows = jnp.arange(40 - size + 1)[:, None] + jnp.arange(size)
        windows = jax.tree.map(lambda x: jnp.moveaxis(x[rows], 2, 0), seen)
        windows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), windows)
        found = agent.begun(windows)
        macro = agent.chunks.macro(state.base["scales"], found, GAMMA)
        made = agent.made(state.base, found.aux["noise"][:, 1], macro.window.seen, KEY)
        return windows, found, macro.window, made

    windows, found, window, made = walk()
    now = PLANS.history - 1
    assert found.reward.shape[1] == PLANS.ahead + 1
    assert found.aux["begins"][:, now].all()
    assert not windows.aux["begins"][:, now].all()
    done = window.kept[:, :2, None]
    assert not done.all()
    off = np.where(done, made[:, :2] - window.chunk[:, :2], 0)
    assert np.abs(off).max() < 1e-4
    early = windows.obs["policy"][:, now] != found.obs["policy"][:, now]
    assert early.any()
    aliased = replace(agent, critics_of="aliased")
    assert aliased.begun(windows) is windows


@pytest.mark.long
@both
def test_steering_does_better_than_its_base_in_what_is_rewarded(critics_of: Any) -> None:
    base = planners.Broad(chunks=planners.ONCE.chunks, net=NET, flow=Flow(steps=20))
    quick = Critics(hidden=(32, 32), lr=3e-3)
    agent = DSRL(base=base, critics_of=critics_of, bound=2.0, hidden=(32,), critics=quick,
                 lr=3e-3, delay=2)  # fmt: skip

    def step(state: Any, key: jax.Array) -> tuple[Any, Any]:
        policy, params = agent.policy(True, A), agent.deploy(state)
        action, _, told = planners.drawn(policy, params, key, 64)
        batch = planners.paid(action, told)
        batch = jax.tree.map(lambda x: x.reshape(2, 32, *x.shape[2:]), batch)
        return agent.update(state, batch, key)

    def learn(key: jax.Array) -> tuple[jax.Array, ...]:
        state = agent.init(key, OBS, ACTION)
        first = agent.beginner(state, A)
        state, _ = jax.lax.scan(step, state, jax.random.split(key, 300))
        both = first, (agent.policy(False, A), agent.deploy(state))
        return tuple(planners.drawn(*x, key, 256)[0] for x in both)

    theirs, mine = jax.jit(learn)(KEY)
    assert planners.reward(theirs).mean() < -0.6  # about 0.8 squared and 0.5 squared
    assert planners.reward(mine).mean() > -0.05


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: DSRL(BC()), "DSRL needs a flow or a diffusion, .* and BC is none"),
        (lambda: DSRL(FlowBC(Chunks(decay=0.1))), "made with --agent.chunks.decay, so that plans"),
        (lambda: DSRL(DiffusionBC(Chunks(late=2))), "made with --agent.chunks.late"),
        (lambda: DSRL(bound=0.0), "DSRL's bound is 0.0; it takes a number above 0"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()
