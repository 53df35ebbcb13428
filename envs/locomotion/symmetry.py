"""A quadruped's mirror image: legs trade sides, abduction and whatever points left change sign."""

import numpy as np

from envs.locomotion import terrain
from rl.mirror import AXIAL, VECTOR, Flip, flip, joined

SIDES = (1, 0, 3, 2)  # each leg's counterpart, in the order FR FL RR RL
LEGS = flip(1, 1, 1, 1, index=SIDES)
JOINTS = flip(*(-1, 1, 1) * 4, index=[3 * leg + link for leg in SIDES for link in range(3)])
FOOT_VECTORS = flip(*(1, -1, 1) * 4, index=[3 * leg + axis for leg in SIDES for axis in range(3)])
COMMAND = flip(1, -1, -1)  # forward, left, a turn to the left


# Of what Legged.truths and Legged.around tell a critic.
TRUTHS = joined(AXIAL, VECTOR, VECTOR, VECTOR, AXIAL, JOINTS, JOINTS, JOINTS)
_SWAPPED = np.lexsort((-terrain.AROUND[:, 1], terrain.AROUND[:, 0]))  # left and right
AROUND = flip(*[1.0] * len(_SWAPPED), index=_SWAPPED)


def truths(ground: str) -> Flip:
    """Of both, on this ground."""
    return TRUTHS if ground == "flat" else joined(TRUTHS, AROUND)


def frame(measured: bool) -> Flip:
    """Of what Legged.frame tells a policy."""
    velocity = () if measured else (VECTOR,)
    return joined(*velocity, AXIAL, VECTOR, JOINTS, JOINTS, JOINTS)
