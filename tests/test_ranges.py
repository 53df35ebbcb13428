"""Ranges to draw robots from: what is physical, and what is refused."""

from dataclasses import fields

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import envs
from envs.randomise import Ranges, spread


@given(
    st.lists(st.floats(1e-3, 10), min_size=3, max_size=3),
    st.lists(st.floats(0.01, 100), min_size=3, max_size=3),
)
def test_scaled_inertias_stay_physical(second: list[float], factors: list[float]) -> None:
    moments = sum(second) - np.array(second)
    got = np.sort(np.asarray(spread(jnp.array(moments), jnp.array(factors)), float))
    assert got[0] > 0
    assert got[2] <= (got[0] + got[1]) * (1 + 1e-4)


def test_levels_draw_the_ranges_in() -> None:
    ranges = Ranges(mass=(0.8, 1.4), payload=(-1, 2))
    assert ranges.scaled(0) == Ranges()
    half = ranges.scaled(0.5)
    assert half.mass == pytest.approx((0.9, 1.2))
    assert half.payload == (-0.5, 1)
    for field in fields(Ranges):
        assert getattr(ranges.scaled(1), field.name) == pytest.approx(getattr(ranges, field.name))


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"mass": (0, 1)}, r"mass is \(0, 1\); a factor of 0 or less is no physical robot"),
        ({"inertia": (-1, 1)}, "inertia is .* no physical robot"),
        ({"com": (1, 0)}, r"com is \(1, 0\); it needs finite numbers, least first"),
        ({"encoder": (0, float("nan"))}, "encoder is"),
        ({"friction": (1, float("inf"))}, "friction is"),
    ],
)
def test_what_is_no_robot_is_refused(values: dict, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Ranges(**values)


def test_a_centre_of_mass_that_cannot_move_is_refused() -> None:
    ball = '<body name="ball"><freejoint/><geom size="1"/></body>'
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{ball}</worldbody></mujoco>")
    with pytest.raises(ValueError, match="compiled 'ball' with its centre of mass fixed"):
        Ranges(com=(-1, 1)).check(model, "ball")


def test_a_centre_of_mass_outside_its_body_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'trunk' reaches no farther than 0\.3\d m"):
        envs.make_task("go2-joystick-flat", ranges=Ranges(com=(-5, 5)), randomised=1.0)
    envs.make_task("go2-joystick-flat", ranges=Ranges(com=(-0.3, 0.3)), randomised=1.0)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_of_the_ranges_is_from_none_to_all(share: float) -> None:
    with pytest.raises(ValueError, match="it is a share of the ranges, from 0 to 1"):
        Ranges(mass=(0.5, 2)).scaled(share)


def test_a_payload_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"payload is \(-6.0, 0.0\) kg; it may leave 'trunk' a mass of"
    ):
        envs.make_task("go1-joystick-flat", randomised=1.0, ranges=Ranges(payload=(-6, 0)))
