"""Pictures and videos of episodes, off screen (EGL, else OSMesa), and the interactive viewer."""

import importlib
import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import imageio.v3 as iio
import mujoco
import numpy as np

NO_GL = (
    "Nothing here can draw: neither EGL nor OSMesa gives MuJoCo a context. Install one "
    "(Debian, Ubuntu: apt-get install libosmesa6, or libegl1 with a driver) or set MUJOCO_GL."
)
PROBE = "import mujoco; mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>'), 8, 8).render()"


class CannotRender(RuntimeError):
    """No OpenGL on this machine."""


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
            close_fds=False,
        )  # fmt: skip
        if tried.returncode == 0:
            os.environ["MUJOCO_GL"] = backend
            # MuJoCo chose when it was imported; let it choose again.
            importlib.reload(mujoco.rendering.classic.gl_context)
            return backend
    raise CannotRender(NO_GL)


def renderer(model: mujoco.MjModel, height: int, width: int) -> mujoco.Renderer:
    """A renderer for the calling thread; raises CannotRender with what to install."""
    choose_gl()
    view = model.vis.global_
    view.offheight, view.offwidth = max(view.offheight, height), max(view.offwidth, width)
    return mujoco.Renderer(model, height, width)


def frames(
    model: mujoco.MjModel, qpos: np.ndarray, height: int = 360, width: int = 480
) -> np.ndarray:
    """Pictures [T, height, width, 3] uint8 of poses `qpos` [T, nq], from the model's tracking
    camera if it has one."""
    draw, data = renderer(model, height, width), mujoco.MjData(model)
    camera = "track" if any(model.cam(i).name == "track" for i in range(model.ncam)) else -1
    pictures = []
    for pose in qpos:
        data.qpos[:] = pose
        mujoco.mj_forward(model, data)
        draw.update_scene(data, camera)
        pictures.append(draw.render())
    draw.close()
    return np.stack(pictures)


def video(path: Path, pictures: np.ndarray, control_dt: float) -> None:
    """Write pictures taken every `control_dt` s as mp4 in real time, at most 50 a second."""
    stride = max(1, round(1 / (50 * control_dt)))
    fps = round(1 / (control_dt * stride))
    iio.imwrite(path, pictures[::stride], plugin="pyav", codec="libx264", fps=fps)


def view(model: mujoco.MjModel, qpos: np.ndarray, control_dt: float) -> None:
    """Play poses [T, nq] in MuJoCo's interactive viewer until its window is closed."""
    if sys.platform == "linux" and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        raise CannotRender("There is no display for a window; leave --viewer out to get a video.")
    import mujoco.viewer as viewer  # needs a display already to be imported

    data: Any = mujoco.MjData(model)
    with viewer.launch_passive(model, data) as window:
        while window.is_running():
            for pose in qpos:
                data.qpos[:] = pose
                mujoco.mj_forward(model, data)
                window.sync()
                time.sleep(control_dt)
                if not window.is_running():
                    return
