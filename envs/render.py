"""All that draws: cameras as readings, videos off screen (EGL, else OSMesa), and the viewer."""

import atexit
import copy
import importlib
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from PIL import Image, ImageDraw

from envs.task import Camera, Mark, ParamsByField, Readings
from rl.types import Array

NO_GL = (
    "Nothing here can draw: neither EGL nor OSMesa gives MuJoCo a context. Install one "
    "(Debian, Ubuntu: apt-get install libegl1 libgl1, or libosmesa6) or set MUJOCO_GL."
)
PROBE = "import mujoco; mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>'), 8, 8).render()"
FLOOR = 10.0  # m, half a side: a plane at least as large is a floor, not a table
FOLLOWS = {  # modes of a camera that goes with a robot
    int(mujoco.mjtCamLight.mjCAMLIGHT_TRACK),
    int(mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM),
}
CLOSE = 4.0  # m, from such a camera to its robot in the viewer
DEAR = mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION
FREE = "free"  # a Camera of this name is the model's default view
GREEN = np.array([0.3, 0.8, 0.4, 0.45], np.float32)  # colour of what is shown and is not there
Marks = Sequence[Sequence[Mark]]  # of each picture


class CannotRender(RuntimeError):
    """No OpenGL, or no display, on this machine."""


@cache
def choose_gl() -> str:
    """Settle on a GL backend and load it; MUJOCO_GL, where set, is the user's choice.

    PyOpenGL can load one backend a process, so each is tried in a process of its own.
    """
    wanted = os.environ.get("MUJOCO_GL")
    for backend in [wanted] if wanted else ["egl", "osmesa"]:
        # Spawned, not forked: a fork of a process in which JAX runs may hang.
        tried = subprocess.run(
            [sys.executable, "-c", PROBE],
            env=os.environ | {"MUJOCO_GL": backend}, capture_output=True, check=False,
            close_fds=False, start_new_session=True,  # a Ctrl-C would say that it cannot draw
        )  # fmt: skip
        if tried.returncode == 0:
            os.environ["MUJOCO_GL"] = backend
            # MuJoCo chose when it was imported; let it choose again.
            importlib.reload(importlib.import_module("mujoco.rendering.classic.gl_context"))
            return backend
    raise CannotRender(NO_GL)


class Painter:
    """Draws states of `model` as `camera` sees them; for one thread, as a GL context is."""

    def __init__(self, model: mujoco.MjModel, camera: Camera) -> None:
        self.model, self.camera, self.data = copy.copy(model), camera, mujoco.MjData(model)
        self._nominal: dict[str, Any] = {}  # of the fields that were changed

    @cached_property
    def renderer(self) -> mujoco.Renderer:
        choose_gl()
        view, camera = self.model.vis.global_, self.camera
        view.offheight = max(view.offheight, camera.height)
        view.offwidth = max(view.offwidth, camera.width)
        if camera.plain:
            self.model.vis.quality.shadowsize = 0
        renderer = mujoco.Renderer(self.model, camera.height, camera.width)
        for flag in DEAR if camera.plain else ():
            renderer.scene.flags[flag] = False
        left = weakref.ref(renderer)  # to be closed, at the latest, while there still is OpenGL
        atexit.register(lambda: (last := left()) and last.close())
        return renderer

    def paint(
        self,
        state: np.ndarray,
        part: int,
        marks: Sequence[Mark] = (),
        params: Mapping[str, Any] = {},
    ) -> np.ndarray:
        """Picture [height, width, 3] uint8 of one state vector, of which `part` says what it is, of
        the model with the fields `params`, and its own others."""
        for name, value in {**self._nominal, **params}.items():
            field = getattr(self.model, name)
            self._nominal.setdefault(name, field.copy())
            field[...] = value.reshape(field.shape)
        mujoco.mj_setState(self.model, self.data, state, part)
        mujoco.mj_forward(self.model, self.data)
        self.renderer.update_scene(self.data, -1 if self.camera.name == FREE else self.camera.name)
        mark(self.renderer.scene, marks)
        return self.renderer.render().copy()


class Cameras:
    """The declared cameras of a task, as readings rendered on the host by one thread.

    `part` is which of mjtState a row is made of.
    """

    def __init__(self, model: mujoco.MjModel, cameras: tuple[Camera, ...], part: int) -> None:
        self.cameras, self.part = cameras, part
        self._painters = [Painter(model, camera) for camera in cameras]
        self._thread = ThreadPoolExecutor(1)

    def blank(self) -> Readings:
        return {c.name: jnp.zeros((c.height, c.width, 3), jnp.uint8) for c in self.cameras}

    def render(self, row: Array, params: ParamsByField) -> Readings:
        """uint8 images [height, width, 3] of a state `row` [S, 2] uint32, as `params` have it."""
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), self.blank())
        return jax.pure_callback(self._render, shapes, row, params, vmap_method="broadcast_all")

    def _render(self, row: Any, params: dict[str, Any]) -> dict[str, np.ndarray]:
        lead, row = row.shape[:-2], np.ascontiguousarray(row)
        rows = row.reshape(-1, row.shape[-2] * 2).view(np.float64)
        flat = {name: np.asarray(x).reshape(len(rows), -1) for name, x in params.items()}
        images = self._thread.submit(self._draw, rows, flat).result()
        return {name: x.reshape(*lead, *x.shape[1:]) for name, x in images.items()}

    def _draw(self, rows: np.ndarray, params: dict[str, Any]) -> dict[str, np.ndarray]:
        each = [(row, {name: x[i] for name, x in params.items()}) for i, row in enumerate(rows)]
        return {
            painter.camera.name: np.stack([painter.paint(row, self.part, (), x) for row, x in each])
            for painter in self._painters
        }


def spectator(model: mujoco.MjModel, height: int = 360, width: int = 480) -> Painter:
    """A painter at the model's first camera, or where there is none at its default view."""
    name = model.camera(0).name if model.ncam else ""
    return Painter(endless(model), Camera(name or FREE, height, width))


def endless(model: mujoco.MjModel) -> mujoco.MjModel:
    """`model` with its large floors drawn without an edge: a robot that runs soon leaves them."""
    model = copy.copy(model)
    for geom in np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE):
        half, material = model.geom_size[geom, :2].copy(), model.geom_matid[geom]
        if half.min() < FLOOR:
            continue
        model.geom_size[geom, :2] = 0
        model.vis.map.haze = 0  # a bright line where an endless floor meets the sky
        if material >= 0 and not model.mat_texuniform[material]:
            model.mat_texrepeat[material] /= half  # it repeats by the metre now
            model.mat_texuniform[material] = True
    return model


def mark(scene: mujoco.MjvScene, marks: Sequence[Mark]) -> None:
    """Add to a scene what is no part of its world."""
    for at, half, ball, yaw in marks:
        c, s = np.cos(yaw), np.sin(yaw)
        kind = mujoco.mjtGeom.mjGEOM_SPHERE if ball else mujoco.mjtGeom.mjGEOM_BOX
        where = np.array(half), np.array(at), np.array([c, -s, 0, s, c, 0, 0, 0, 1])
        mujoco.mjv_initGeom(scene.geoms[scene.ngeom], kind, *where, GREEN)
        scene.ngeom += 1


def frames(model: mujoco.MjModel, qpos: np.ndarray, marks: Marks = ()) -> np.ndarray:
    """Pictures [T, height, width, 3] uint8 of poses `qpos` [T, nq]; raises CannotRender."""
    painter, part = spectator(model), mujoco.mjtState.mjSTATE_QPOS
    shown = zip(qpos, marks or [()] * len(qpos), strict=True)
    return np.stack([painter.paint(pose, part, mine) for pose, mine in shown])


def video(
    path: Path,
    model: mujoco.MjModel,
    qpos: np.ndarray,
    control_dt: float,
    captions: Sequence[str] = (),
    marks: Marks = (),
) -> None:
    """Write poses [T, nq], `control_dt` s apart, as mp4 in real time, at most 25 pictures a second.

    `captions` are written below each, and `marks` shown, if there are any.  Raises CannotRender.
    """
    stride, fps = pace(control_dt)
    pictures = frames(model, qpos[::stride], marks[::stride])
    if captions:
        shown = zip(pictures, captions[::stride], strict=True)
        pictures = np.stack([_captioned(picture, text) for picture, text in shown])
    write(path, pictures, fps)


def pace(control_dt: float) -> tuple[int, int]:
    """How many steps lie between two pictures, and how many of these a second has: at most 25."""
    stride = max(1, round(1 / (25 * control_dt)))
    return stride, round(1 / (control_dt * stride))


def write(path: Path, pictures: np.ndarray, fps: int) -> None:
    """Write pictures [T, height, width, 3] uint8 as mp4."""
    iio.imwrite(path, pictures, plugin="pyav", codec="libx264", fps=fps)


def _captioned(picture: np.ndarray, text: str) -> np.ndarray:
    """`picture` [height, width, 3] with a line of text at its foot."""
    image = Image.fromarray(picture)
    pen, width = ImageDraw.Draw(image), image.width
    size = next(size for size in (14, 12, 10, 8) if pen.textlength(text, font_size=size) < width)
    pen.rectangle((0, image.height - 24, width, image.height), fill=(0, 0, 0))
    pen.text((8, image.height - 20), text, fill=(255, 255, 255), font_size=size)
    return np.asarray(image)


def view(model: mujoco.MjModel, qpos: np.ndarray, control_dt: float, marks: Marks = ()) -> None:
    """Play poses [T, nq] in MuJoCo's interactive viewer until its window is closed."""
    if sys.platform == "linux" and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        raise CannotRender("There is no display for a window; leave --viewer out to get a video.")
    import mujoco.viewer as viewer  # needs a display already to be imported

    model = endless(model)
    data = mujoco.MjData(model)
    with viewer.launch_passive(model, data, show_left_ui=False, show_right_ui=False) as window:
        if model.ncam and int(model.cam_mode[0]) in FOLLOWS:
            window.cam.type = mujoco.mjtCamera.mjCAMERA_TRACKING
            window.cam.trackbodyid = model.cam_bodyid[0]
            window.cam.distance = CLOSE
        while window.is_running():
            for pose, mine in zip(qpos, marks or [()] * len(qpos), strict=True):
                data.qpos[:] = pose
                mujoco.mj_forward(model, data)
                if window.user_scn is not None:
                    window.user_scn.ngeom = 0
                    mark(window.user_scn, mine)
                window.sync()
                time.sleep(control_dt)
                if not window.is_running():
                    return
