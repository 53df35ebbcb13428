"""Warp's pictures beside MuJoCo's own renderer's, of the same worlds."""

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import envs
from envs import render
from envs.task import Camera

pytest.importorskip("warp")

from mujoco import mjx

from envs.physics.warp_render import Pictures, unpacked

SIDES = {"fixed": (32, 40), "lookatcart": (24, 24)}
CAMERAS = tuple(Camera(name, *sides, plain=True) for name, sides in SIDES.items())


@pytest.mark.slow  # Warp compiles its kernels for a CPU in minutes
def test_pictures_are_of_each_world_as_mujoco_draws_it() -> None:
    model = envs.make_task("dmc-cartpole-swingup").model()
    poses = np.array([[0, 0], [0.5, 1.5], [-1, 3.1]], np.float32)
    pictures, put = Pictures(model, CAMERAS[::-1]), mjx.put_model(model, impl="warp")

    def drawn(qpos: Any) -> Any:
        blank = mjx.make_data(model, impl="warp")
        data = jax.vmap(lambda x: mjx.forward(put, blank.replace(qpos=x)))(qpos)
        return jax.vmap(pictures.of(len(qpos)), (None, 0))(put, data)

    got = jax.device_get(jax.jit(drawn)(jnp.asarray(poses)))
    for camera in CAMERAS:
        painter = render.Painter(model, camera)
        for world, pose in enumerate(poses):
            want = painter.paint(pose.astype(float), mujoco.mjtState.mjSTATE_QPOS)
            ours = got[camera.name][world]
            assert (ours.shape, ours.dtype) == (want.shape, np.uint8)
            shapes = [body(x) for x in (ours, want)]
            assert (shapes[1] > 40).sum() > 5
            assert np.minimum(*shapes).sum() > 0.7 * np.maximum(*shapes).sum()
            near = np.abs(ours.astype(int) - want).mean((0, 1))
            assert (near < 25).all(), near


def body(picture: np.ndarray) -> np.ndarray:
    """How much of cart and pole a pixel shows, which are yellow on blue."""
    return np.maximum(picture[..., 0].astype(int) - picture[..., 2], 0)


def test_pixels_are_unpacked_row_by_row() -> None:
    camera = Camera("x", height=1, width=2)
    packed = jnp.array([0xFF010203, 0xFFFFFE00], jnp.uint32)
    assert unpacked(packed, camera).tolist() == [[[1, 2, 3], [255, 254, 0]]]


def test_what_it_cannot_draw_is_refused() -> None:
    model = envs.make_task("dmc-cartpole-swingup").model()
    with pytest.raises(ValueError, match="not its default view"):
        Pictures(model, (Camera(render.FREE),))
    with pytest.raises(ValueError, match="plain, or none"):
        Pictures(model, (CAMERAS[0], Camera("lookatcart")))


@pytest.mark.slow
def test_a_policy_sees_on_warp_what_it_sees_on_native_physics() -> None:
    seen = {}
    for physics in ("native", "warp"):
        env = envs.make("dmc-cartpole-swingup", physics, pixels=32)
        state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 3))
        first = np.asarray(state.obs["image"])
        step = jax.jit(jax.vmap(env.step))
        for _ in range(6):
            state = step(state, jnp.full((3, 1), 0.5))
        seen[physics] = np.stack([first, np.asarray(state.obs["image"])]).astype(int)
    native, warp = seen["native"], seen["warp"]
    assert native.shape == warp.shape
    between = np.abs(native[0] - native[1]).mean()  # what six steps change
    assert np.abs(native - warp).mean() < 25
    assert np.abs((native[1] - native[0]) - (warp[1] - warp[0])).mean() < between
