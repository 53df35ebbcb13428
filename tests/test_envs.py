"""`envs.make` and the contract's edges: what a slip of the hand is told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs


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
    ],
)
def test_bad_requests_are_one_sentence(name: str, options: dict, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        envs.make(name, **options)


@pytest.mark.parametrize("name", ["Hopper-v5", "Reacher-v5"])
def test_numbers_of_every_kind_are_taken(name: str) -> None:
    env = envs.make(name, frame_skip=np.int64(2), max_episode_steps=3)
    assert env.horizon == 3
    assert envs.make("Hopper-v5", forward_reward_weight=np.float32(2)).task.spec.substeps == 4


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
