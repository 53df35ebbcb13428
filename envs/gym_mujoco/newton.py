"""Gymnasium's humanoids on MuJoCo's Newton solver: MJX has it and lacks their own, PGS.

Same tasks, slightly different contacts: returns compare, transitions do not.
"""

from copy import copy
from dataclasses import dataclass
from functools import cache

import mujoco

from envs.gym_mujoco import models
from envs.gym_mujoco.humanoid import Humanoid
from envs.gym_mujoco.humanoid_standup import HumanoidStandup


@dataclass(frozen=True)
class HumanoidNewton(Humanoid):
    def model(self) -> mujoco.MjModel:
        return _newton(self.xml_file)


@dataclass(frozen=True)
class HumanoidStandupNewton(HumanoidStandup):
    def model(self) -> mujoco.MjModel:
        return _newton(self.xml_file)


@cache
def _newton(xml_file: str) -> mujoco.MjModel:
    model = copy(models.load(xml_file))
    model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    return model
