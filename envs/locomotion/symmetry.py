"""A quadruped's mirror image: legs trade sides, abduction and whatever points left change sign."""

from rl.mirror import AXIAL, VECTOR, Flip, flip, joined

SIDES = (1, 0, 3, 2)  # each leg's counterpart, in the order FR FL RR RL
LEGS = flip(1, 1, 1, 1, index=SIDES)
JOINTS = flip(*(-1, 1, 1) * 4, index=[3 * leg + link for leg in SIDES for link in range(3)])
FOOT_VECTORS = flip(*(1, -1, 1) * 4, index=[3 * leg + axis for leg in SIDES for axis in range(3)])
COMMAND = flip(1, -1, -1)  # forward, left, a turn to the left


def frame(with_velocity: bool) -> Flip:
    """Of what a policy sees at a time: velocity if it does, gyro, gravity, joints, last action."""
    velocity = (VECTOR,) if with_velocity else ()
    return joined(*velocity, AXIAL, VECTOR, JOINTS, JOINTS, JOINTS)
