"""A joystick's commands, and that no robot is led off the field of its level."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

import envs
from envs.locomotion import commands
from envs.locomotion.joystick import Joystick
from envs.locomotion.terrain import FIELD

HALF = 4.0
homeward = jax.jit(commands.homeward)


@settings(max_examples=60, deadline=None)
@given(
    offset=st.tuples(st.floats(-9, 9), st.floats(-9, 9)),
    yaw=st.floats(-np.pi, np.pi),
    lean=st.tuples(st.floats(-0.4, 0.4), st.floats(-0.4, 0.4)),
    reach=st.floats(0.5, 1.0),
)
def test_beyond_its_field_a_robot_is_sent_straight_home_and_within_goes_where_it_was(
    offset: tuple[float, float], yaw: float, lean: tuple[float, float], reach: float
) -> None:
    turn = Rotation.from_euler("ZYX", [yaw, *lean])
    middle, old = np.array([12.0, -3.0]), np.array([0.3, -0.2, 0.7])
    raw = {
        "position": np.append(middle + offset, 0.3),
        "orientation": np.roll(turn.as_quat(), 1),
    }
    new = np.asarray(homeward(old, raw, middle, HALF, reach))
    if np.abs(offset).max() <= HALF:
        np.testing.assert_allclose(new, old, atol=1e-6)
        return
    share = np.abs(new[:2]) / (commands.BACK * reach * np.array(commands.MOST[:2]))
    assert share.max() == pytest.approx(1, abs=1e-3)
    assert new[2] == 0
    going = turn.apply([*new[:2], 0])[:2]  # of a robot that leans the way is a little bent
    straight = -np.array(offset) @ going / np.linalg.norm(offset) / np.linalg.norm(going)
    assert straight > (1 - 1e-5 if lean == (0, 0) else 0.9)


def test_a_field_of_rough_ground_ends_and_its_robots_are_led_back_a_plane_does_not() -> None:
    for ground, led in (("rough", True), ("flat", False)):
        task = envs.make_task(f"go1-joystick-{ground}", noise=0.0)
        assert isinstance(task, Joystick)
        start = task.reset(jax.random.key(0), task.context())
        level = start.episode.context.level
        beyond = task.legged.terrain.middle(level) + jnp.array([0.0, FIELD / 2 + 0.1])
        raw = {name: jnp.zeros(3) for name in (*task.spec.sensors,)}
        raw |= {"position": jnp.append(beyond, 0.3), "orientation": jnp.array([1.0, 0, 0, 0])}
        episode = start.episode._replace(command_steps=jnp.int32(50))
        old = jnp.array([0.1, 0.4, 0.2])
        command, _, _ = task.advance(jax.random.key(1), raw, jnp.zeros(12), old, episode)
        want = [0, -0.4, 0] if led else old
        np.testing.assert_allclose(command, want, atol=1e-5)
