"""Panda's pick-cube is MuJoCo Playground's in what is seen and earned, and cannot be tricked."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import envs
from envs.manipulation.expert import Expert
from envs.manipulation.pick_cube import Episode, PickCube
from envs.manipulation.tabletop import Memory
from envs.revealed import Revealed
from rl import rollout

# Playground's own functions on states set by hand: benchmarks/peers/README.md tells how.
TRACE = np.load(Path(__file__).parent / "oracles" / "playground_panda.npz")
STRAIGHT = np.abs(TRACE["target_quat"] - [1, 0, 0, 0]).max(1) < 1e-9  # its target, as all of ours
ROWS = range(len(TRACE["reward"]))


@pytest.fixture(scope="module")
def task() -> PickCube:
    return PickCube("panda", actions="joints")


@pytest.fixture(scope="module")
def readings(task: PickCube) -> list[dict[str, Any]]:
    """Of our model in each of the states."""
    model = task.model()
    data, found = mujoco.MjData(model), []
    for row in ROWS:
        data.qpos[:], data.qvel[:] = TRACE["qpos"][row], TRACE["qvel"][row]
        mujoco.mj_forward(model, data)
        found.append({
            name: jnp.asarray(data.sensor(name).data, jnp.float32) for name in task.spec.sensors
        })  # fmt: skip
    return found


def test_the_states_are_telling() -> None:
    switched = TRACE["reached_before"] != TRACE["reached_after"]
    for what in (switched, TRACE["floor_found"].any(1), TRACE["done"], STRAIGHT):
        assert 0 < what.sum() < len(what)


def test_the_observation_is_playgrounds(task: PickCube, readings: list[dict[str, Any]]) -> None:
    ours = np.r_[0:52, 58:66]  # the rest is of how the target is turned
    for row in ROWS:
        memory = Memory(jnp.asarray(TRACE["ctrl"][row], jnp.float32), jnp.zeros(8))
        command = jnp.asarray(TRACE["target_pos"][row], jnp.float32)
        found, _ = task.observe(readings[row], command, memory)
        found, theirs = np.asarray(found), TRACE["obs"][row]
        np.testing.assert_allclose(found[ours], theirs[ours], atol=1e-5)
        if STRAIGHT[row]:
            np.testing.assert_allclose(found, theirs, atol=1e-5)


def test_the_reward_is_playgrounds(task: PickCube, readings: list[dict[str, Any]]) -> None:
    for row in ROWS:
        episode = Episode(jnp.bool(TRACE["reached_before"][row]), jnp.int32(0))
        command = jnp.asarray(TRACE["target_pos"][row], jnp.float32)
        terms = task.terms(readings[row], command, episode)
        for name, found in terms.items():
            if STRAIGHT[row] or name != "box_target":
                np.testing.assert_allclose(found, TRACE[name][row], atol=1e-5)
        if STRAIGHT[row]:
            args = readings[row], readings[row], jnp.zeros(8), command, episode
            np.testing.assert_allclose(task.reward(*args)[0], TRACE["reward"][row], atol=1e-5)
        assert bool(task.reached(readings[row], episode)) == bool(TRACE["reached_after"][row])
        assert bool(task.terminated(readings[row], episode)) == bool(TRACE["done"][row])


def judged(task: PickCube, episodes: int, expert: Expert) -> rollout.Episodes:
    env = Revealed(envs.simulate(task, "native"))
    run = jax.jit(lambda key: rollout.evaluate(env, expert.policy(task), (), key, episodes))
    return jax.device_get(run(jax.random.key(1)))


@pytest.mark.long
def test_a_block_that_is_as_slippery_as_ice_is_not_lifted() -> None:
    assert judged(PickCube(), 20, Expert()).final["success"].mean() > 0.95
    assert judged(PickCube(friction=0.05), 20, Expert()).final["success"].mean() == 0


def test_a_block_falls_when_the_hand_opens() -> None:
    task = PickCube()
    env, policy = Revealed(envs.simulate(task, "native")), Expert(way=0).policy(task)

    def tick(loop: Any, key: Any) -> Any:
        state, carry = loop
        action, carry, _ = policy.step((), carry, state.obs, key)
        return (env.step(state, action), carry), None

    @jax.jit
    def held(key: Any) -> Any:
        loop = env.reset(key), policy.init(())
        return jax.lax.scan(tick, loop, jax.random.split(key, 80))[0][0]

    state = held(jax.random.key(0))
    assert state.metrics["success"]
    assert state.sim.told["cube_pos"][2] > 0.15
    step, still = jax.jit(env.step), jnp.zeros(5).at[4].set(-1.0)
    for _ in range(10):
        state = step(state, still)
    assert state.sim.told["cube_pos"][2] > 0.15  # held by a hand that is shut
    for _ in range(20):
        state = step(state, still.at[4].set(1.0))
    assert state.sim.told["cube_pos"][2] < 0.04


@pytest.mark.parametrize("actions", ["ee", "joints"])
def test_no_block_begins_near_its_goal(actions: str) -> None:
    task = PickCube(actions=actions)  # pyright: ignore[reportArgumentType]
    starts = jax.vmap(lambda key: task.reset(key, ()))(jax.random.split(jax.random.key(0), 1000))
    away = np.linalg.norm(starts.qpos[:, 9:12] - starts.command, axis=1)
    assert away.min() > 4 * task.near


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            {"goal_high": (1.2, 0.2, 0.4)},
            r"goal at \(1\.2, .* lies outside of where the hand can be",
        ),
        (
            {"goal_high": (1.2, 0.2, 0.4), "actions": "joints"},
            r"cannot bring its tool to a goal at \(1\.2, ",
        ),
        ({"goal_low": (0.7, -0.2, 0.2)}, "low above its high"),
        ({"goal_low": (0.4, -0.2, 0.03)}, "would be near a goal"),
        ({"cube_high": (0.9, 0.2)}, r"block at \(0\.9, .* lies outside of where the hand can be"),
        ({"cube_high": (0.9, 0.2), "actions": "joints"}, "cannot bring its tool to a block"),
    ],
)
def test_goals_and_blocks_out_of_reach_are_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        replace(PickCube(), **fields)
