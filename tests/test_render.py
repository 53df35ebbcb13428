"""Pictures: as readings through a rollout, as video files, and a sentence where there is no GL."""

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import av
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs import render
from envs.gym_mujoco.inverted_pendulum import InvertedPendulum
from envs.task import Camera, Readings, TaskSpec
from rl import rollout
from rl.policy import uniform
from rl.types import Obs, PyTree


@dataclass(frozen=True)
class Seen(InvertedPendulum):
    """The pendulum, with a picture of itself."""

    @property
    def spec(self) -> TaskSpec:
        return replace(super().spec, cameras=(Camera(render.FREE, height=24, width=32),))

    def observe(self, readings: Readings, command: PyTree, memory: PyTree) -> tuple[Obs, PyTree]:
        state, memory = super().observe(readings, command, memory)
        return {"policy": state, "image": readings[render.FREE]}, memory


def test_a_declared_camera_goes_through_collect_as_uint8() -> None:
    env, policy, worlds = envs.simulate(Seen()), uniform(1), 3
    collect = jax.jit(lambda w, k: rollout.collect(env, policy, (), w, k, 6))
    begun = jax.jit(lambda k: rollout.start(env, policy, (), k, worlds))(jax.random.key(0))
    _, seen, _ = collect(begun, jax.random.key(1))
    image = np.asarray(seen.obs["image"])
    assert image.shape == (6, worlds, 24, 32, 3)
    assert image.dtype == np.uint8
    assert image.std() > 5  # something is drawn
    assert (image[0, 0] != image[5, 0]).any()  # and it moves
    went_on = ~np.asarray(seen.terminated | seen.truncated)[:-1]
    assert went_on.any()
    assert (image[1:] == np.asarray(seen.next_obs["image"])[:-1])[went_on].all()
    model, pose = env.task.model(), env.physics.qpos(jax.device_get(begun.state.sim.data))
    direct = render.Painter(model, Camera(render.FREE, 24, 32))
    drawn = direct.paint(pose[0], render.mujoco.mjtState.mjSTATE_QPOS)
    assert np.abs(drawn.astype(int) - np.asarray(begun.state.obs["image"][0])).mean() < 2


@pytest.mark.long
def test_a_video_is_written_in_real_time(tmp_path: Path) -> None:
    model = envs.make_task("HalfCheetah-v5").model()
    poses = np.repeat(model.qpos0[None], 40, 0)
    poses[:, 0] = np.linspace(0, 2, 40)
    for control_dt, rate, shown in ((0.05, 20, 40), (0.005, 25, 5)):
        render.video(tmp_path / "x.mp4", model, poses, control_dt)
        with av.open(tmp_path / "x.mp4") as file:
            stream = file.streams.video[0]
            assert (stream.average_rate, stream.height, stream.width) == (rate, 360, 480)
            assert len(list(file.decode(stream))) == shown


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Hopper-v5"])
def test_a_robot_that_runs_far_still_has_a_floor(name: str) -> None:
    model = envs.make_task(name).model()
    poses = np.stack([model.qpos0] * 3)
    poses[1:, 0] = 300  # m; Gymnasium's floors end at 20 to 40, and one frame late MuJoCo centres
    near, _, far = render.frames(model, poses)[:, -40:].astype(float).std((1, 2))
    assert near.min() > 30  # the squares of the floor
    assert far == pytest.approx(near, rel=0.3)
    assert model.geom_size[0, 0] > 0  # physics' own model is left alone


def test_a_goal_is_shown_and_is_not_there() -> None:
    task = envs.make_task("panda-push-t")
    pose, command = task.model().qpos0[None], np.array([0.5, 0.05, 1.0, 0.0])
    bare, shown = (render.frames(task.model(), pose, [x])[0] for x in ((), task.marks(command)))
    green = (shown.astype(int) - bare)[..., 1] > 20
    assert 50 < green.sum() < 5000
    assert task.marks(command)[0].at == pytest.approx((0.5, 0.05 + 0.18 / 7, 0.02))


def test_a_picture_without_pixels_is_refused() -> None:
    with pytest.raises(ValueError, match="A picture of -3 x -3 pixels: a side has 1 to 4096"):
        envs.make("panda-reach", pixels=-3)


def test_a_process_that_drew_ends_quietly() -> None:
    code = (
        "import envs, jax; env = envs.make('panda-reach', pixels=8);"
        "print(jax.jit(env.reset)(jax.random.key(0)).obs['wrist'].std() > 1)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert (ran.stdout.strip(), ran.stderr) == ("True", "")


def test_without_gl_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setenv("PYOPENGL_PLATFORM", "no such thing")
    render.choose_gl.cache_clear()
    with pytest.raises(render.CannotRender, match="apt-get install"):
        render.choose_gl()
    monkeypatch.undo()
    render.choose_gl.cache_clear()


def test_without_egl_it_is_osmesa_that_draws() -> None:
    code = (
        "import envs; from envs import render; model = envs.make_task('Hopper-v5').model();"
        "print(render.frames(model, model.qpos0[None]).std() > 5, render.choose_gl())"
    )

    def drawn(**env: str) -> subprocess.CompletedProcess:
        # No vendor's EGL to be found: as on a machine that has none.
        away = {"__EGL_VENDOR_LIBRARY_FILENAMES": os.devnull, "PYOPENGL_PLATFORM": ""}
        return subprocess.run(
            [sys.executable, "-c", code], env=os.environ | away | env,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert "Nothing here can draw" in drawn(MUJOCO_GL="egl").stderr  # it is really away
    if "True osmesa" not in drawn(MUJOCO_GL="osmesa").stdout:
        pytest.skip("OSMesa is not installed")
    assert drawn(MUJOCO_GL="").stdout.split() == ["True", "osmesa"]


def test_without_a_display_the_viewer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    model = envs.make_task("HalfCheetah-v5").model()
    with pytest.raises(render.CannotRender, match="no display"):
        render.view(model, model.qpos0[None], 0.05)


def test_images_are_bytes_from_the_start() -> None:
    shape = jax.eval_shape(envs.simulate(Seen()).reset, jax.random.key(0)).obs["image"]
    assert shape.dtype == jnp.uint8
