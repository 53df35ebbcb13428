"""Worlds whose actions are plans, against the same worlds stepped by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from rl import executors, rollout
from rl.env import State
from rl.planned import Planned
from rl.policy import memoryless
from rl.samples import views
from tests.walk import A, Walk, seen_of

H, WORLDS = 5, 3
KEY = jax.random.key(0)


def by_hand(env: Walk, world: Planned, state: State, plans: np.ndarray, pools: list[Any]) -> Any:
    """Of one world and each plan: the reward, the steps, the state and what was seen lately; and
    both once it has begun again if it ended."""
    step, restart = jax.jit(env.step), jax.jit(env.restart)
    seen = [seen_of(env, state)[0]] * world.history
    for plan, pool in zip(plans, pools, strict=True):
        total, made = 0.0, 0
        for action in plan[: world.execute]:
            state = step(state, np.clip(action, -1, 1))
            seen, total, made = [*seen[1:], seen_of(env, state)[0]], total + state.reward, made + 1
            if state.done:
                break
        ended, lately = state, np.stack(seen)
        if state.done:
            state = restart(state, None if pool is None else env.reset(pool))
            seen = [seen_of(env, state)[0]] * world.history
        yield float(total), made, ended, lately, state, np.stack(seen)


def same(x: Any, y: Any) -> None:
    assert all((a == b).all() for a, b in zip(*map(jax.tree.leaves, (x, y)), strict=True))


def check(here: State, own: State, seen: np.ndarray, env: Walk, execute: int) -> None:
    close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)  # noqa: E731
    close(here.obs["policy"], seen)
    close(here.obs["critic"], seen_of(env, own)[1])
    jax.tree.map(close, here.sim.own, own.sim)
    jax.tree.map(close, here.metrics, own.metrics)
    close(here.sim.told, own.sim.told)
    close(here.sim.command, own.sim.command)
    for name in ("terminated", "truncated", "context"):
        assert int(getattr(here, name)) == int(getattr(own, name)), name
    assert int(here.t) == -(-int(own.t) // execute)
    same(here.key, own.key)


@pytest.mark.parametrize(
    ("restarts", "shown", "history", "execute"),
    [
        ("few", "plain", 1, 4),
        ("few", "both", 3, 3),
        ("few", "parts", 2, 5),
        ("prepared", "both", 2, 4),
        ("prepared", "plain", 4, 3),
        ("few", "both", 2, 1),
    ],
)
def test_a_plan_is_stepped_as_by_hand(
    restarts: str, shown: str, history: int, execute: int
) -> None:
    """And nothing of an episode is seen in the next; plans reach beyond the bounds."""
    env = Walk(restarts=restarts, shown=shown)
    world = Planned(env, execute, history)
    plans = np.random.default_rng(1).normal(size=(60, H, A)).astype("f4")
    step, restart = jax.jit(world.step), jax.jit(world.restart)
    pools: list[Any] = [None] * len(plans)  # keys of what is prepared
    if restarts == "prepared":
        pools = list(jax.random.split(jax.random.key(7), len(plans)))
    here, kinds = world.reset(KEY), set()
    check(here, env.reset(KEY), np.stack([seen_of(env, env.reset(KEY))[0]] * history), env, execute)
    by = by_hand(env, world, env.reset(KEY), plans, pools)
    for plan, pool, (total, made, own, seen, then, lately) in zip(plans, pools, by, strict=True):
        here = step(here, plan)
        check(here, own, seen, env, execute)
        np.testing.assert_allclose(here.reward, total, rtol=1e-4, atol=1e-4)
        how = "terminated" if own.terminated else "truncated" if own.truncated else "on"
        kinds.add((how, made < execute))
        here = restart(here, None if pool is None else world.reset(pool))
        check(here, then, lately, env, execute)
    assert ("on", False) in kinds
    inside = {("terminated", True), ("truncated", True)}
    assert execute == 1 or (inside < kinds if execute != 5 else inside <= kinds), kinds


def test_no_step_follows_an_end() -> None:
    """A plan that is begun after one changes nothing, and pays nothing."""
    world = Planned(Walk(horizon=3, ends=0), 4, 2)
    ended = world.step(world.reset(KEY), jnp.full((H, A), 0.5))
    assert bool(ended.truncated)
    assert int(ended.sim.own.made) == 3
    assert int(ended.t) == 1
    again = world.step(ended, jnp.full((H, A), -0.5))
    assert float(again.reward) == 0
    same(again, ended._replace(reward=again.reward))


@pytest.mark.parametrize(("horizon", "plans"), [(11, 3), (12, 3), (13, 4), (3, 1)])
def test_time_is_counted_in_plans(horizon: int, plans: int) -> None:
    """An episode is cut where the steps are over, in the middle of a plan if need be."""
    world = Planned(Walk(horizon=horizon, ends=0), 4)
    assert world.horizon == plans
    assert world.control_dt == pytest.approx(0.4)
    assert world.action_dim == A
    state, step = world.reset(KEY), jax.jit(world.step)
    for t in range(plans):
        assert int(state.t) == t
        assert not bool(state.truncated)
        state = step(state, jnp.zeros((H, A)))
    assert bool(state.truncated)
    assert int(state.t) == plans
    assert int(state.sim.own.made) == horizon


def test_actions_are_clipped() -> None:
    world = Planned(Walk(ends=0), 4, 2)
    plan, begun = 3 * jax.random.normal(KEY, (H, A)), world.reset(KEY)
    after, clipped = (world.step(begun, x) for x in (plan, jnp.clip(plan, -1, 1)))
    same(after, clipped)
    own = world.env.reset(KEY)
    for action in plan[:4]:
        own = world.env.step(own, action)
    assert np.abs(own.sim.at - after.sim.own.at).max() > 0.1


def test_one_of_two_is_selected_whole() -> None:
    world = Planned(Walk(shown="both", ends=0), 4, 3)
    fresh, state = world.reset(jax.random.key(5)), world.reset(KEY)
    for _ in range(2):
        state = world.step(state, jnp.ones((H, A)))
    both = jax.tree.map(lambda x, y: jnp.stack([x, y]), fresh, state)
    for done in (jnp.array([True, False]), jnp.array([False, True])):
        swapped = jax.tree.map(lambda x: x[::-1], both)
        got = jax.vmap(world.select)(done, both, swapped)
        want = fresh if done[0] else state  # in both places
        same(got, jax.tree.map(lambda x: jnp.stack([x, x]), want))


def ended(env: Any, policy: Any, ticks: int) -> list[list[tuple[float, int]]]:
    """Return and length of the episodes of each world, one after another."""

    def run(key: jax.Array) -> Any:
        worlds = rollout.start(env, policy, (), key, WORLDS)
        return rollout.collect(env, policy, (), worlds, jax.random.key(1), ticks)[1:]

    seen, ends = jax.device_get(jax.jit(run)(KEY))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(seen))
    where = [np.flatnonzero(ends.ended[:, n]) for n in range(WORLDS)]
    return [[(ends.returns[t, n], ends.lengths[t, n]) for t in w] for n, w in enumerate(where)]


@pytest.mark.parametrize("name", ["prepared", "so101-reach"])
def test_collected_it_comes_to_what_its_plans_do_a_step_at_a_time(name: str) -> None:
    """Worlds and starts alike, plans by what was seen lately, open loop while they are done."""
    env: Any = Walk(restarts=name, shown="both", ends=0.05)
    if name != "prepared":
        env = envs.simulate(envs.make_task(name), "native", max_episode_steps=10, threads=1)
    execute, history, size = 4, 2, len(views(jax.jit(env.reset)(KEY).obs).policy)
    into = np.random.default_rng(3).normal(size=(size, H * env.action_dim)).astype("f4")

    def plan(params: Any, seen: jax.Array, key: Any) -> jax.Array:
        return jnp.sin(0.3 * (seen[-1] + 0.5 * seen[0]) @ into).reshape(H, env.action_dim)

    planner = memoryless(lambda params, obs, key: (plan(params, obs["policy"], key), ()))
    begin = lambda params: (jnp.zeros((history, size)), jnp.zeros((H, env.action_dim)))  # noqa: E731
    ticked = executors.receding(plan, lambda params, obs: views(obs).policy, begin, execute)
    plans, steps = (
        ended(Planned(env, execute, history), planner, 9), ended(env, ticked, 9 * execute)
    )  # fmt: skip
    for mine, theirs in zip(plans, steps, strict=True):
        assert len(mine) >= 2
        for (got, few), (want, ticks) in zip(mine, theirs, strict=False):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
            assert few == -(-ticks // execute)
    assert len({round(float(x), 3) for world in plans for x, _ in world}) > 1


def test_worlds_that_are_staggered_end_when_their_time_is_over() -> None:
    world, count = Planned(Walk(ends=0), 4, 2), 16
    still = memoryless(lambda params, obs, key: (jnp.zeros((H, A)), ()))
    worlds = rollout.staggered(world, rollout.start(world, still, (), KEY, count), KEY)
    begun = np.asarray(worlds.state.t)
    assert set(begun) == {0, 1, 2}
    _, seen, ends = jax.jit(lambda w: rollout.collect(world, still, (), w, KEY, 3))(worlds)
    first = np.asarray(ends.ended).argmax(0)
    np.testing.assert_array_equal(first, 2 - begun)
    made = np.asarray(seen.reward != 0)  # a point at rest is somewhere
    assert made.all()
