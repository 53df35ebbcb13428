"""The tasks of arms are what they say: experts do them, tricks do not, and goals can be moved."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import envs
from envs.manipulation.expert import Expert
from envs.manipulation.peg_insertion import PegInsertion
from envs.manipulation.reach import Reach
from envs.revealed import WORLD, Revealed, hidden, relabelled
from envs.task import Task
from rl import rollout
from rl.policy import uniform

ARMS = [name for name in envs.names() if name.startswith(("panda-", "so101-"))]
SEED = jax.random.key(3)


def done_by(expert: Expert, task: Any, episodes: int) -> rollout.Episodes:
    env = Revealed(envs.simulate(task, "native"))
    run = jax.jit(lambda key: rollout.evaluate(env, expert.policy(task), (), key, episodes))
    return jax.device_get(run(SEED))


@cache
def lived(name: str) -> tuple[Any, rollout.Episodes]:
    """An episode of random actions in each of 32 worlds of a task, revealed: leaves [T, N, ...]."""
    env = Revealed(envs.make(name))

    @jax.jit
    def run(key: Any) -> Any:
        policy = uniform(env.action_dim)
        worlds = rollout.start(env, policy, (), key, 32)
        return rollout.collect(env, policy, (), worlds, key, env.horizon)[1:]

    return jax.device_get(run(SEED))


IDLE = "panda-pick-cube", "panda-push-t", "so101-reach"  # of whom chance is tried by default
BY_JOINTS = "panda-peg-insertion"  # the hardest, by default; the others are slow


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "actions"),
    [(name, "ee") for name in ARMS]
    + [
        pytest.param(name, "joints", marks=[] if name == BY_JOINTS else [pytest.mark.slow])
        for name in ARMS
    ],
)
def test_an_expert_does_it(name: str, actions: str) -> None:
    found = done_by(Expert(), envs.make_task(name, actions=actions), 64)
    assert found.final["success"].mean() >= 0.9  # 95% of 200: benchmarks/results/experts.jsonl
    assert found.failed == 0


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [name if name in IDLE else pytest.param(name, marks=pytest.mark.slow) for name in ARMS],
)
def test_random_actions_do_nothing_that_counts(name: str) -> None:
    (seen, episodes), task = lived(name), envs.make_task(name)
    assert episodes.failed == 0
    assert episodes.ended[-1].all()
    assert np.isfinite(episodes.returns).all()
    world = jax.tree.map(lambda x: x[-1], seen.next_obs[WORLD])
    asked = [world.command] if task.spec.command else []
    assert jax.vmap(task.there)(world.told, *asked).mean() <= 0.05  # type: ignore[attr-defined]


@pytest.mark.long
@pytest.mark.parametrize("name", ARMS)
def test_targets_stay_within_limits_and_speeds(name: str) -> None:
    (seen, _), spec = lived(name), envs.make_task(name).spec
    targets = seen.next_obs[WORLD].memory.targets
    low, high = np.array(spec.low), np.array(spec.high)
    assert (targets >= low - 1e-6).all()
    assert (targets <= high + 1e-6).all()
    moved = np.abs(targets - seen.obs[WORLD].memory.targets)[:, :, :-1]
    most = np.array(spec.speeds)[:-1] * spec.control_dt
    assert (moved <= most + 1e-5).all()


@pytest.mark.long
@pytest.mark.parametrize("name", ARMS)
def test_what_is_revealed_is_what_is_seen(name: str) -> None:
    (seen, _), task = lived(name), envs.make_task(name)
    world = seen.obs[WORLD]
    again, _ = jax.jit(jax.vmap(jax.vmap(task.observe)))(world.told, world.command, world.memory)
    np.testing.assert_allclose(again, hidden(seen.obs), atol=1e-6)
    rewards, _ = jax.jit(jax.vmap(jax.vmap(task.reward)))(
        world.raw, seen.next_obs[WORLD].raw, seen.action, world.command, world.episode
    )
    np.testing.assert_allclose(rewards, seen.reward, atol=1e-5)


GOALS = [name for name in ARMS if envs.make_task(name).spec.achieved]


def test_goals_can_be_moved_where_nothing_else_moves_with_them() -> None:
    assert {*ARMS} - {*GOALS} == {"panda-peg-insertion", "panda-stack"}


@pytest.mark.long
@pytest.mark.parametrize("name", GOALS)
def test_in_hindsight_what_was_achieved_was_the_goal(name: str) -> None:
    task: Task = envs.make_task(name, rewards="sparse")
    (seen, _), count = lived(name), len(task.spec.command)
    raw = seen.next_obs[WORLD].raw
    goal = jnp.concatenate([raw[sensor][..., :n] for sensor, n in task.spec.achieved], -1)
    assert goal.shape[-1] == count
    told = jax.jit(jax.vmap(jax.vmap(lambda seen, goal: relabelled(task, seen, goal))))(seen, goal)
    np.testing.assert_array_equal(told.reward, 1)
    np.testing.assert_allclose(told.obs[WORLD].command, goal)
    same = jax.vmap(jax.vmap(lambda seen: relabelled(task, seen, seen.obs[WORLD].command)))(seen)
    np.testing.assert_allclose(hidden(same.obs), hidden(seen.obs), atol=1e-6)
    assert not np.allclose(hidden(told.obs), hidden(seen.obs))


@pytest.mark.parametrize("name", sorted({*ARMS} - {"panda-reach", "so101-reach"}))
def test_nothing_is_done_before_its_thing_has_moved(name: str) -> None:
    env = envs.make(name, rewards="sparse")
    state = jax.jit(jax.vmap(env.reset))(jax.random.split(SEED, 500))
    asked = [state.sim.command] if env.task.spec.command else []
    assert not jax.vmap(env.task.there)(state.sim.told, *asked).any()  # type: ignore[attr-defined]


def test_a_peg_that_is_too_wide_does_not_go_in() -> None:
    wide = done_by(Expert(), PegInsertion(clearance=-0.001), 32)  # 2 mm wider than one that does
    assert wide.final["success"].sum() == 0
    assert wide.final["deep"].max() < 0.1


def test_an_inserted_peg_is_nowhere_inside_the_block() -> None:
    task = PegInsertion()
    env, policy = Revealed(envs.simulate(task, "native")), Expert().policy(task)

    def tick(loop: Any, key: Any) -> Any:
        state, carry = loop
        action, carry, _ = policy.step((), carry, state.obs, key)
        return (env.step(state, action), carry), None

    @jax.jit
    @jax.vmap
    def ended(key: Any) -> Any:
        loop = env.reset(key), policy.init(())
        return jax.lax.scan(tick, loop, jax.random.split(key, env.horizon))[0][0]

    state = jax.device_get(ended(jax.random.split(SEED, 16)))
    assert state.metrics["success"].mean() > 0.9
    model, data = task.model(), mujoco.MjData(task.model())
    for qpos in env.env.physics.qpos(state.sim.data)[state.metrics["success"] == 1]:
        data.qpos[:] = qpos
        mujoco.mj_forward(model, data)
        assert data.contact.dist.min(initial=0) > -2e-4


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"way": 3}, r"way is 3; it takes 0 \(over\), 1 \(left\), 2 \(right\), or -1"),
        ({"speed": 0.0}, "speed is 0"),
        ({"noise": -1.0}, "noise is -1"),
        ({"mistake": float("nan")}, "mistake is nan"),
    ],
)
def test_an_expert_that_cannot_be_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Expert(**fields).policy(Reach())


@pytest.mark.parametrize("name", ARMS)
def test_cameras_look_at_the_tool_and_at_what_is_on_the_table(name: str) -> None:
    task: Any = envs.make_task(name)
    model = task.model()
    data, loose = mujoco.MjData(model), np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE)
    for key in jax.random.split(SEED, 10):
        data.qpos[:] = task.reset(key, ()).qpos
        mujoco.mj_forward(model, data)
        tool, things = data.site("tool").xpos, data.xpos[model.jnt_bodyid[loose]]
        for camera, places in (("wrist", [tool]), ("front", [tool, *things])):
            eye = data.camera(camera)
            for place in places:
                x, y, z = eye.xmat.reshape(3, 3).T @ (place - eye.xpos)  # it looks along -z
                assert z < 0
                assert max(abs(x), abs(y)) < -z * np.tan(np.radians(model.camera(camera).fovy / 2))
