"""What arms cannot do anything about is refused with the reason: goals, places and poses."""

from typing import Any

import jax
import numpy as np
import pytest

import envs

ARMS = [name for name in envs.names() if name.startswith(("panda-", "so101-"))]
SEED = jax.random.key(3)


@pytest.mark.parametrize(
    ("name", "fields", "why"),
    [
        (
            "panda-reach",
            {"goal_high": (0.65, 0.3, 1.4), "actions": "joints"},
            "cannot bring its tool to a goal",
        ),
        ("panda-reach", {"goal_low": (0.35, -0.3, -0.1)}, "below the table's top"),
        (
            "so101-reach",
            {"goal_high": (0.25, 0.1, 0.3), "actions": "joints"},
            "cannot bring its tool to a goal",
        ),
        ("panda-push-t", {"high": (0.8, 0.1)}, "place beside a T at .* lies outside of where"),
        ("panda-peg-insertion", {"high": (0.9, 0.1)}, "hole at .* lies outside of where"),
        ("panda-stack", {"high": (0.62, -0.1)}, "Blocks need"),
        ("panda-pick-cube", {"mass": -1.0}, "mass is -1.0; it takes numbers above 0"),
        ("panda-pick-cube", {"actions": "hands"}, "actions is 'hands'; it takes one of joints"),
    ],
)
def test_goals_out_of_reach_are_refused(name: str, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        envs.make_task(name, **fields)


def begun(name: str, **fields: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    env = envs.make(name, **fields)
    start = env.task.reset(SEED, ())
    return env, np.array(start.qpos), np.array(start.qvel)


@pytest.mark.long
@pytest.mark.parametrize("actions", ["ee", "joints"])
@pytest.mark.parametrize("name", ARMS)
def test_every_start_of_a_task_is_one_it_may_begin_at(name: str, actions: str) -> None:
    task: Any = envs.make_task(name, actions=actions)
    starts = jax.device_get(jax.vmap(lambda key: task.reset(key, ()))(jax.random.split(SEED, 20)))
    for i in range(20):
        qpos, command = jax.tree.map(lambda x, i=i: x[i], (starts.qpos, starts.command))
        task.check_start(qpos, command)


@pytest.mark.parametrize(
    ("name", "change", "command", "why"),
    [
        ("panda-reach", {}, (0.5, 0.0, 0.9), "A goal at .0.5, 0.0, 0.9. m lies outside of where"),
        ("panda-reach", {}, (0.5, 0.0, -0.1), "below the table's top"),
        ("panda-reach", {}, (0.5, np.nan, 0.2), "nowhere"),
        ("panda-pick-cube", {}, (0.7, 0.35, 0.5), "cannot bring its tool to a goal"),
        ("panda-push-t", {}, (0.5, 0.0, 0.3, 0.3), "no unit vector"),
        ("panda-reach", {3: 0.0}, None, "has joint4 at 0.000; it goes from -3.0718 to -0.0698"),
        ("panda-reach", {0: np.inf}, None, "not finite"),
        ("panda-reach", {1: 1.5}, None, "inside one another"),
        ("panda-pick-cube", {9: 1.4}, None, "A cube at .* lies outside"),
        ("panda-pick-cube", {11: 0.01}, None, "table and cube 20 mm inside one another"),
        ("panda-stack", {10: 0.9}, None, "A upper at"),
        ("panda-pick-cube", {12: 0.0}, None, "cube turned by a quaternion of length 0"),
    ],
)
def test_a_start_that_cannot_be_is_refused(
    name: str, change: dict[int, float], command: Any, why: str
) -> None:
    env, qpos, qvel = begun(name)
    for at, value in change.items():
        qpos[at] = value
    with pytest.raises(ValueError, match=why):
        env.reset_to(SEED, qpos, qvel, command and np.array(command, np.float32))


def test_a_start_may_be_asked_for_what_one_likes() -> None:
    env, qpos, qvel = begun("panda-pick-cube")
    goal = np.array([0.55, 0.1, 0.3], np.float32)
    state = env.reset_to(SEED, qpos, qvel, goal)
    np.testing.assert_array_equal(state.sim.command, goal)
    cube = state.obs[env.task.table.count + 2 :][:3]
    np.testing.assert_allclose(cube, qpos[9:12], atol=1e-6)
    same = env.reset_to(SEED, qpos, qvel, [0.55, 0.1, 0.3])
    np.testing.assert_array_equal(same.obs, state.obs)
    with pytest.raises(ValueError, match="command has shape"):
        env.reset_to(SEED, qpos, qvel, goal[:2])
    with pytest.raises(ValueError, match=r"qvel has 1e\+06: no world lives beyond 1000"):
        env.reset_to(SEED, qpos, np.full_like(qvel, 1e6))
    with pytest.raises(ValueError, match="qvel has numbers that are not finite"):
        env.reset_to(SEED, qpos, qvel * np.nan)
