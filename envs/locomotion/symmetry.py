"""A quadruped's mirror image: legs trade sides, abduction and whatever points left change sign."""

from rl.mirror import AXIAL, VECTOR, Flip, flip, joined

SIDES = (1, 0, 3, 2)  # each leg's counterpart, in the order FR FL RR RL
LEGS = flip(1, 1, 1, 1, index=SIDES)
JOINTS = flip(*(-1, 1, 1) * 4, index=[3 * leg + link for leg in SIDES for link in range(3)])
FOOT_VECTORS = flip(*(1, -1, 1) * 4, index=[3 * leg + axis for leg in SIDES for axis in range(3)])
COMMAND = flip(1, -1, -1)  # forward, left, a turn to the left


# Of what Legged.truths tells a critic.
TRUTHS = joined(AXIAL, VECTOR, VECTOR, VECTOR, AXIAL, JOINTS, JOINTS, JOINTS)


def frame(measured: bool) -> Flip:
    """Of what Legged.frame tells a policy."""
    velocity = () if measured else (VECTOR,)
    return joined(*velocity, AXIAL, VECTOR, JOINTS, JOINTS, JOINTS)
