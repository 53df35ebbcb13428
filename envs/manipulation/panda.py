"""Franka Emika Panda (FER) with its hand.

Frames, ranges, torques and limits of motion are Franka's own; its limits of jerk are kept by who
keeps accelerations in ticks of 4 ms or longer.  Inertias are those of its identified dynamics (Gaz
et al. 2019, 10.1109/LRA.2019.2931248) as MuJoCo's models have them; gains, damping and how
fingertips touch are those of MuJoCo's model of it for MJX (Apache-2.0).  The shapes of links but
the fingers are ours and coarse.
"""

from envs.manipulation.arm import Arm, Eye, Joint, Link, Surface, quat_of
from envs.shapes import Box, Rod

TURNED_BACK, TURNED = quat_of(1, -1, 0, 0), quat_of(1, 1, 0, 0)  # a quarter about x
GRIP = Surface((1.0, 0.005, 0.0001), 3, (0.01, 1.0), (0.99, 0.995, 0.01))
FINGER = (
    Box((0.011, 0.0075, 0.01), (0.0, 0.0105, 0.0095)),  # its foot
    Box((0.011, 0.0044, 0.0019), (0.0, 0.0105, 0.021)),
    Box((0.00875, 0.0035, 0.01175), (0.0, 0.0105, 0.0335)),
    Box((0.00875, 0.0076, 0.00825), (0.0, 0.00758, 0.04525)),  # its pad
)


def joint(number: int, low: float, high: float, home: float) -> Joint:
    """One of the seven."""
    big = number <= 4
    gains = {1: (1000, 20), 2: (1000, 20), 3: (750, 4), 4: (750, 4)}
    acceleration = (15.0, 7.5, 10.0, 12.5, 15.0, 20.0, 20.0)[number - 1]
    kp, kd = gains.get(number, (300, 2))
    return Joint(
        f"joint{number}", low, high, force=87.0 if big else 12.0, speed=2.175 if big else 2.61,
        kp=kp, kd=kd, damping=40.0 if big else 2.0, armature=0.1, home=home,
        acceleration=acceleration, torque_rate=1000.0,
    )  # fmt: skip


def finger(name: str, turn: tuple[float, float, float, float]) -> Link:
    slide = Joint(
        name, 0.0, 0.04, force=70.0, speed=0.05, kp=350, kd=10, damping=10, armature=0.1,
        home=0.04, axis=(0.0, 1.0, 0.0), kind="slide",
    )  # fmt: skip
    return Link(
        name, (0.0, 0.0, 0.0584), turn, 0.015, (0.0, 0.0, 0.0),
        (2.375e-6, 2.375e-6, 7.5e-7, 0.0, 0.0, 0.0), slide, FINGER, GRIP,
    )  # fmt: skip


PANDA = Arm(
    name="panda",
    base=Link(
        "link0", (0.0, 0.0, 0.0), mass=0.629769, com=(-0.041018, -0.00014, 0.049974),
        inertia=(0.00315, 0.00388, 0.004285, 8.2904e-7, 0.00015, 8.2299e-6),
        shape=(Box((0.1, 0.09, 0.03), (-0.04, 0.0, 0.03)), Rod(0.06, (0, 0, 0.06), (0, 0, 0.1))),
    ),
    links=(
        Link(
            "link1", (0.0, 0.0, 0.333), mass=4.970684, com=(0.003875, 0.002081, -0.04762),
            inertia=(0.70337, 0.70661, 0.0091170, -0.00013900, 0.0067720, 0.019169),
            joint=joint(1, -2.8973, 2.8973, 0.0),
            shape=(Rod(0.06, (0.0, 0.0, -0.19), (0.0, 0.0, -0.05)),),
        ),
        Link(
            "link2", (0.0, 0.0, 0.0), TURNED_BACK, 0.646926, (-0.003141, -0.02872, 0.003495),
            (0.0079620, 2.8110e-2, 2.5995e-2, -3.925e-3, 1.0254e-2, 7.04e-4),
            joint(2, -1.7628, 1.7628, 0.3),
            (Rod(0.06, (0.0, 0.0, -0.06), (0.0, 0.0, 0.06)),),
        ),
        Link(
            "link3", (0.0, -0.316, 0.0), TURNED, 3.228604, (2.7518e-2, 3.9252e-2, -6.6502e-2),
            (3.7242e-2, 3.6155e-2, 1.083e-2, -4.761e-3, -1.1396e-2, -1.2805e-2),
            joint(3, -2.8973, 2.8973, 0.0),
            (Rod(0.06, (0.0, 0.0, -0.22), (0.0, 0.0, -0.07)),),
        ),
        Link(
            "link4", (0.0825, 0.0, 0.0), TURNED, 3.587895, (-5.317e-2, 1.04419e-1, 2.7454e-2),
            (2.5853e-2, 1.9552e-2, 2.8323e-2, 7.796e-3, -1.332e-3, 8.641e-3),
            joint(4, -3.0718, -0.0698, -1.57079),
            (Rod(0.06, (0.0, 0.0, -0.06), (0.0, 0.0, 0.06)),),
        ),
        Link(
            "link5", (-0.0825, 0.384, 0.0), TURNED_BACK, 1.225946,
            (-1.1953e-2, 4.1065e-2, -3.8437e-2),
            (3.5549e-2, 2.9474e-2, 8.627e-3, -2.117e-3, -4.037e-3, 2.29e-4),
            joint(5, -2.8973, 2.8973, 0.0),
            (
                Rod(0.06, (0.0, 0.0, -0.31), (0.0, 0.0, -0.21)),
                Rod(0.025, (0.0, 0.08, -0.2), (0.0, 0.08, -0.06)),
            ),
        ),
        Link(
            "link6", (0.0, 0.0, 0.0), TURNED, 1.666555, (6.0149e-2, -1.4117e-2, -1.0517e-2),
            (1.964e-3, 4.354e-3, 5.433e-3, 1.09e-4, -1.158e-3, 3.41e-4),
            joint(6, -0.0175, 3.7525, 2.0),
            (Rod(0.05, (0.0, 0.0, -0.07), (0.0, 0.0, 0.01)),),
        ),
        Link(
            "link7", (0.088, 0.0, 0.0), TURNED, 7.35522e-1, (1.0517e-2, -4.252e-3, 6.1597e-2),
            (1.2516e-2, 1.0027e-2, 4.815e-3, -4.28e-4, -1.196e-3, -7.41e-4),
            joint(7, -2.8973, 2.8973, -0.7853),
            (Rod(0.04, (0.0, 0.0, -0.05), (0.0, 0.0, 0.08)),),
        ),
    ),
    hand=Link(
        "hand", (0.0, 0.0, 0.107), quat_of(0.9238795, 0.0, 0.0, -0.3826834), 0.73,
        (-0.01, 0.0, 0.03), (0.001, 0.0025, 0.0017, 0.0, 0.0, 0.0),
        shape=(Rod(0.04, (0.0, -0.06, 0.03), (0.0, 0.06, 0.03)),), surface=GRIP,
    ),
    fingers=(
        finger("finger1", (1.0, 0.0, 0.0, 0.0)), finger("finger2", (0.0, 0.0, 0.0, 1.0)),
    ),
    tool_at=(0.0, 0.0, 0.1),
    tool_turn=(1.0, 0.0, 0.0, 0.0),
    opened=0.04,
    shut=0.0,
    eye=Eye((0.075, 0.0, 0.045), right=(0.0, 1.0, 0.0), up=(0.82, 0.0, 0.57), fovy=70.0),
    reach=0.855,
)  # fmt: skip
