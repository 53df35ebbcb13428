"""What poses an arm has, by MuJoCo: on the host, to refuse what it cannot reach before it tries."""

from collections.abc import Sequence
from functools import cache, lru_cache

import mujoco
import numpy as np

from envs.manipulation.arm import Arm
from envs.manipulation.kinematics import downward_quat

FAR = 0.01  # m off, and rad: out of reach
STEPS, DAMPING, GAIN = 200, 1e-4, 0.5  # of damped least squares


def inverse(arm: Arm, at: Sequence[float] | np.ndarray, yaw: float) -> tuple[np.ndarray, float]:
    """Joint angles for a tool that points down `at` a place [3], and how far off that is, m and rad
    together."""
    q, error = _inverse(arm, tuple(float(x) for x in at), yaw)
    return q.copy(), error


@lru_cache(1_000)  # a command line makes its task four times, and each looks at many corners
def _inverse(arm: Arm, at: tuple[float, ...], yaw: float) -> tuple[np.ndarray, float]:
    model, count = _alone(arm), len(arm.joints)
    data, q, (low, high) = mujoco.MjData(model), arm.home.copy(), arm.limits.T
    jacobian, now, off = np.zeros((6, model.nv)), np.zeros(4), np.zeros(3)
    error = np.zeros(6)
    for _ in range(STEPS):
        data.qpos[:] = arm.everything(q)
        mujoco.mj_forward(model, data)
        tool = data.site("tool")
        mujoco.mju_mat2Quat(now, tool.xmat)
        mujoco.mju_subQuat(off, np.array(downward_quat(yaw)), now)
        error = np.concatenate([at - tool.xpos, tool.xmat.reshape(3, 3) @ off])
        mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], tool.id)
        j = jacobian[:, :count]
        q[:count] += GAIN * j.T @ np.linalg.solve(j @ j.T + DAMPING * np.eye(6), error)
        q = np.clip(q, low, high)
    return q[:count], float(np.linalg.norm(error))


def pose(arm: Arm, motors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the tool is [3], m, and its axes [3, 3], with the motors' joints there."""
    model = _alone(arm)
    data = mujoco.MjData(model)
    data.qpos[:] = arm.everything(motors)
    mujoco.mj_forward(model, data)
    return data.site("tool").xpos.copy(), data.site("tool").xmat.reshape(3, 3).copy()


@cache
def _alone(arm: Arm) -> mujoco.MjModel:
    """The arm in an empty world."""
    return arm.spec().compile()
