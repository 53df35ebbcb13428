"""The pictures a task reads: its cameras, drawn on the host for all worlds of all nested vmaps."""

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from envs.render import Painter
from envs.task import Camera, ParamsByField, Readings
from rl.types import Array


class Cameras:
    """The declared cameras of a task, as readings rendered on the host by one thread.

    `part` is which of mjtState a row is made of.
    """

    def __init__(self, model: mujoco.MjModel, cameras: tuple[Camera, ...], part: int) -> None:
        self.model, self.cameras, self.part = model, cameras, part

    def blank(self) -> Readings:
        return {c.name: jnp.zeros((c.height, c.width, 3), jnp.uint8) for c in self.cameras}

    def render(self, row: Array, params: ParamsByField) -> Readings:
        """uint8 images [height, width, 3] of a state `row` [S, 2] uint32 of a model with `params`,
        of which those count that can be seen: a colour, a size, a place."""
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), self.blank())
        return jax.pure_callback(self._render, shapes, row, params, vmap_method="broadcast_all")

    def _render(self, row: Any, params: dict[str, Any]) -> dict[str, np.ndarray]:
        lead, row = row.shape[:-2], np.ascontiguousarray(row)
        rows = row.reshape(-1, row.shape[-2] * 2).view(np.float64)
        flat = {name: np.asarray(x).reshape(len(rows), -1) for name, x in params.items()}
        images = self._thread.submit(self._draw, rows, flat).result()
        return {name: x.reshape(*lead, *x.shape[1:]) for name, x in images.items()}

    def _draw(self, rows: np.ndarray, params: dict[str, Any]) -> dict[str, np.ndarray]:
        def one(painter: Painter, world: int) -> np.ndarray:
            painter.change({name: x[world] for name, x in params.items()})
            return painter.paint(rows[world], self.part)

        worlds = range(len(rows))
        return {x.camera.name: np.stack([one(x, i) for i in worlds]) for x in self._painters}

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1)

    @cached_property
    def _painters(self) -> list[Painter]:
        return [Painter(self.model, camera) for camera in self.cameras]
