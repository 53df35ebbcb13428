"""Meshes that a user has are for the eye alone."""

from pathlib import Path

import mujoco
import numpy as np
import pytest

import envs
from envs.locomotion.joystick import Joystick
from envs.locomotion.quadruped import LINKS
from experiments import play

TETRAHEDRON = "v 0 0 0\nv .1 0 0\nv 0 .2 0\nv 0 0 -.3\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 3 1 4\n"


@pytest.fixture
def meshes(tmp_path: Path) -> Path:
    for link in ("trunk", *LINKS):
        (tmp_path / f"{link}.obj").write_text(TETRAHEDRON)
    return tmp_path


def go2() -> Joystick:
    task = envs.make_task("go2-joystick-flat")
    assert isinstance(task, Joystick)
    return task


def fallen(model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """Half a second on from a tilt in the air."""
    data = mujoco.MjData(model)
    data.qpos[:] = [0, 0, 0.4, 0.9, 0.3, 0.3, 0, *go2().legged.pose]
    mujoco.mj_step(model, data, 125)
    return data.qpos, data.qvel


def test_a_dressed_robot_moves_as_it_did(meshes: Path) -> None:
    plain, dressed = go2().model(), go2().legged.dressed(meshes)
    for one, other in zip(fallen(plain), fallen(dressed), strict=True):
        np.testing.assert_array_equal(one, other)
    looks = [i for i in range(dressed.ngeom) if dressed.geom(i).name.endswith("_look")]
    assert len(looks) == dressed.ngeom - plain.ngeom == 13
    assert not dressed.geom_contype[looks].any()
    assert not dressed.geom_conaffinity[looks].any()


def test_right_legs_wear_the_mirror_image(meshes: Path) -> None:
    model = go2().legged.dressed(meshes)

    def corners(name: str) -> np.ndarray:
        """Of a mesh [4, 3] in its link's frame, in some order."""
        geom = model.geom(f"{name}_look")
        mesh = model.mesh(int(geom.dataid[0]))
        at = model.mesh_vert[mesh.vertadr[0] : mesh.vertadr[0] + mesh.vertnum[0]]
        turn = np.zeros(9)
        mujoco.mju_quat2Mat(turn, geom.quat)
        return np.array(sorted((at @ turn.reshape(3, 3).T + geom.pos).round(5).tolist()))

    left = corners("FL_thigh")
    assert np.ptp(left, 0) == pytest.approx([0.1, 0.2, 0.3], abs=1e-4)
    for name, flip in {"FR_thigh": (1, -1, 1), "RL_hip": (-1, 1, 1), "RR_hip": (-1, -1, 1)}.items():
        want = np.array(sorted((left * flip).round(5).tolist()))
        np.testing.assert_allclose(corners(name), want, atol=1e-4)


def test_what_is_missing_is_told(meshes: Path) -> None:
    (meshes / "hip.obj").unlink()
    with pytest.raises(ValueError, match=r"has no hip.obj or hip.stl"):
        play.looks(go2(), meshes)
    with pytest.raises(ValueError, match="--meshes dresses a quadruped"):
        play.looks(envs.make_task("Hopper-v5"), meshes)
