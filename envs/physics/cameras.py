"""Cameras as readings: pictures rendered on the host from the state of each world."""

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from envs.render import renderer
from envs.task import Camera, Readings
from rl.types import Array


class Cameras:
    """Renders each of `cameras` of `model`; a GL context belongs to a thread, so one thread does."""

    def __init__(self, model: mujoco.MjModel, cameras: tuple[Camera, ...]) -> None:
        self.model, self.cameras = model, cameras

    def blank(self) -> Readings:
        return {c.name: jnp.zeros((c.height, c.width, 3), jnp.uint8) for c in self.cameras}

    def render(self, row: Array) -> Readings:
        """uint8 images [height, width, 3] of a state `row` [S, 2] uint32."""
        if not self.cameras:
            return {}
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), self.blank())
        return jax.pure_callback(self._render, shapes, row, vmap_method="broadcast_all")

    def _render(self, row):
        rows = np.ascontiguousarray(row).reshape(-1, row.shape[-2] * 2).view(np.float64)
        images = self._thread.submit(self._draw, rows).result()
        lead = row.shape[:-2]
        return {name: x.reshape(*lead, *x.shape[1:]) for name, x in images.items()}

    def _draw(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        images = {
            c.name: np.zeros((len(rows), c.height, c.width, 3), np.uint8) for c in self.cameras
        }
        data = mujoco.MjData(self.model)
        for i, row in enumerate(rows):
            mujoco.mj_setState(self.model, data, row, mujoco.mjtState.mjSTATE_INTEGRATION)
            mujoco.mj_forward(self.model, data)
            for camera, renderer in zip(self.cameras, self._renderers, strict=True):
                renderer.update_scene(data, -1 if camera.name == "free" else camera.name)
                images[camera.name][i] = renderer.render()
        return images

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1)

    @cached_property
    def _renderers(self) -> list[mujoco.Renderer]:
        return [renderer(self.model, c.height, c.width) for c in self.cameras]
