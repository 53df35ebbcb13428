"""Pictures of all worlds at once by MuJoCo Warp's ray caster, where physics is Warp's own.

For NVIDIA; on a CPU it can be tried, slowly.  Light and edges are not quite OpenGL's.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
from mujoco import mjx

from envs.render import FREE
from envs.task import Camera, Readings
from rl.types import Array


class Pictures:
    """The cameras of a task, for batches of Warp's data, of which each size has its own context.

    Raises ValueError for what Warp cannot draw as asked.
    """

    def __init__(self, model: mujoco.MjModel, cameras: tuple[Camera, ...]) -> None:
        if any(camera.name == FREE for camera in cameras):
            raise ValueError(
                "Warp draws what a model's own cameras see, and not its default view: give the "
                "model a camera, or use physics native."
            )
        if len({camera.plain for camera in cameras}) > 1:
            raise ValueError("Warp draws all of a task's cameras plain, or none of them.")
        self.model = model
        self.cameras = sorted(cameras, key=lambda camera: model.camera(camera.name).id)
        self._contexts: dict[int, Any] = {}

    def of(self, worlds: int) -> Callable[[Any, Any], Readings]:
        """What draws one of so many worlds, mapped over all of them: pictures [height, width, 3]
        uint8 of a model put on Warp, and of its data as mjx.forward left it."""
        context = self._context(worlds).pytree()

        def draw(put: Any, data: Any) -> Readings:
            packed = mjx.render(put, mjx.refit_bvh(put, data, context), context)[0]
            pictures, begin = {}, 0
            for camera in self.cameras:
                end = begin + camera.height * camera.width
                pictures[camera.name] = unpacked(packed[begin:end], camera)
                begin = end
            return pictures

        return draw

    def _context(self, worlds: int) -> Any:
        if worlds not in self._contexts:
            plain = self.cameras[0].plain
            sky = bool((self.model.tex_type == mujoco.mjtTexture.mjTEXTURE_SKYBOX).any())
            make = partial(mjx.create_render_context, self.model, worlds, render_depth=False)
            with jax.ensure_compile_time_eval():
                self._contexts[worlds] = make(
                    cam_res=[(camera.width, camera.height) for camera in self.cameras],
                    cam_active=[camera.name for camera in self.cameras],
                    render_rgb=True,
                    render_skybox=sky,
                    use_shadows=not plain,
                    samples_per_pixel=2,
                )
        return self._contexts[worlds]


def unpacked(packed: Array, camera: Camera) -> Array:
    """A picture [height, width, 3] uint8 of pixels [height * width] uint32, blue lowest."""
    channels = jnp.stack([packed >> shift for shift in (16, 8, 0)], -1) & 0xFF
    return channels.astype(jnp.uint8).reshape(camera.height, camera.width, 3)
