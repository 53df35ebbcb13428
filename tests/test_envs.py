"""`envs.make` and the contract's edges: what a slip of the hand is told."""

from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.locomotion.joystick import Joystick
from envs.locomotion.quadruped import LEGS
from envs.locomotion.walking import Weights
from envs.task import Camera, TaskSpec


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("HalfCheeta-v5", {}, r"Did you mean HalfCheetah-v5"),
        ("Hopper-v5", {"physics": "bullet"}, r"There are auto, native, mjx"),
        ("Hopper-v5", {"forward_weight": 1.0}, r"Unknown field of Hopper-v5 'forward_weight'"),
        ("Hopper-v5", {"forward_reward_weight": "2"}, r"'2'; it takes a number"),
        ("Hopper-v5", {"reset_noise_scale": float("nan")}, r"reset_noise_scale is nan"),
        ("Hopper-v5", {"healthy_z_range": (float("nan"), 1.0)}, r"healthy_z_range is \(nan"),
        ("Hopper-v5", {"frame_skip": 2.5}, r"2.5; it takes a whole number"),
        ("Hopper-v5", {"frame_skip": 0}, r"0 physics steps moves nothing"),
        ("Hopper-v5", {"max_episode_steps": 0}, r"max_episode_steps is 0"),
        ("Hopper-v5", {"max_episode_steps": 2.5}, r"max_episode_steps is 2.5"),
        ("Hopper-v5", {"max_episode_steps": "9"}, r"max_episode_steps is '9'"),
        (5, {}, r"Unknown environment 5"),
        ("go2-joystick-flat", {"omniscient": "no"}, r"omniscient is 'no'; it takes True or False"),
        ("go2-joystick-flat", {"history": True}, r"history is True; it takes a whole number"),
        ("go2-joystick-flat", {"timestep": None}, r"timestep is None; it takes a number"),
        ("go2-joystick-flat", {"ground": "ice"}, r"ground is 'ice'; it takes one of flat, rough"),
        ("go2-joystick-flat", {"robot": "spot"}, r"robot is 'spot'; it takes one of go1, go2"),
        (
            "go2-joystick-flat",
            {"reading_delay": 2},
            r"reading_delay is 2; it takes tuple\[int, int",
        ),
        ("go2-joystick-flat", {"reading_delay": (0, 1.5)}, r"it takes tuple\[int, int"),
        ("go2-joystick-flat", {"ranges": None}, r"ranges is None; it takes Ranges"),
        ("go2-joystick-flat", {"weights": {"pose": 1}}, r"it takes Weights"),
        ("go2-joystick-flat", {"weights": Weights(pose=float("nan"))}, r"weights.pose is nan"),
    ],
)
def test_bad_requests_are_one_sentence(name: Any, options: dict, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        envs.make(name, **options)


MOTORS = tuple(f"{leg}_{joint}" for leg in LEGS for joint in ("hip", "thigh", "calf"))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"sensors": ("laser",)}, r"Unknown sensor 'laser'. There are FR_hip_pos, FR_hip_vel"),
        ({"actuators": ("FR_hop", *MOTORS[1:])}, r"Unknown actuator 'FR_hop'. Did you mean FR_hip"),
        ({"actuators": MOTORS[::-1]}, r"actuators need the model's order: FR_hip, FR_thigh, FR_"),
        ({"actuators": MOTORS[:-1]}, r"actuators need the model's order"),
        ({"low": (0.0,) * 11}, r"low has 11 numbers for 12 actuators"),
        ({"fields": ("qfoo",)}, r"Unknown field of MjData 'qfoo'"),
        ({"privileged": ("laser",)}, r"Unknown privileged reading 'laser'"),
        ({"precise": ("qpos",)}, r"Unknown precise field 'qpos'. There are actuator_force"),
        ({"cameras": (Camera("top"),)}, r"Unknown camera 'top'"),
    ],
)
@pytest.mark.parametrize("physics", ["native", "mjx"])
def test_what_a_model_lacks_is_named_with_what_there_is(
    asked: dict[str, Any], told: str, physics: str
) -> None:
    class Asking(Joystick):
        @cached_property
        def spec(self) -> TaskSpec:
            return replace(super().spec, **asked)

    with pytest.raises(ValueError, match=told):
        envs.simulate(Asking("go2"), physics)


def test_an_action_that_is_no_number_ends_an_episode_unrewarded() -> None:
    env = envs.make("go2-joystick-flat")
    state, step = jax.jit(env.reset)(jax.random.key(0)), jax.jit(env.step)
    assert not step(state, jnp.zeros(12)).done
    after = step(state, jnp.full(12, jnp.nan))
    assert (after.truncated, after.terminated, after.reward) == (True, False, 0)
    assert after.metrics["failed"] == 1
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(after.obs))


def test_a_task_in_the_place_of_a_name_is_told_where_it_goes() -> None:
    with pytest.raises(ValueError, match=r"by its name here; envs\.simulate takes a Joy"):
        envs.make(Joystick("go2"))


@pytest.mark.parametrize("name", ["Hopper-v5", "Reacher-v5"])
def test_numbers_of_every_kind_are_taken(name: str) -> None:
    env = envs.make(name, frame_skip=np.int64(2), max_episode_steps=3)
    assert env.horizon == 3
    assert envs.make("Hopper-v5", forward_reward_weight=np.float32(2)).task.spec.substeps == 4
    assert envs.make_task("go2-joystick-flat", target_delay=(np.int64(0), 1)).disturbance


@pytest.mark.parametrize("shape", [(), (2,), (1, 3), (4, 3)])
def test_an_action_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    env = envs.make("Hopper-v5")
    state = jax.eval_shape(env.reset, jax.random.key(0))
    with pytest.raises(ValueError, match=r"takes \(3,\), vmap makes it many"):
        jax.eval_shape(env.step, state, jnp.zeros(shape))


def test_a_pose_of_another_shape_is_refused() -> None:
    env = envs.make("Hopper-v5")
    with pytest.raises(ValueError, match=r"qpos has shape \(3,\)"):
        env.reset_to(jax.random.key(0), jnp.zeros(3), jnp.zeros(6))
    with pytest.raises(ValueError, match=r"qvel has shape \(7,\)"):
        env.reset_to(jax.random.key(0), jnp.zeros(6), jnp.zeros(7))


def test_models_of_installed_packages_are_loaded_in_silence(
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in envs.names():
        envs.make_task(name).model()
    said = capfd.readouterr()
    assert said.out + said.err == ""
