"""SO-101, the arm of LeRobot: five joints and a jaw, of hobby servos (TheRobotStudio, Apache-2.0).

Frames, ranges, masses and inertias are its makers' own.  Shapes are boxes that stand for its
meshes; fingertips are measured on them.  Gains are those of a servo whose P is what LeRobot sets,
identified on the bench (Rhoban's BAM): the published model's are fifty times stiffer.
"""

import numpy as np

from envs.manipulation.arm import Arm, Eye, Joint, Link, Surface, quat_of
from envs.shapes import Box

HALF = float(np.sqrt(0.5))
GRIP = Surface((1.0, 0.005, 0.0005), 4, (0.01, 1.0), priority=1)
STRAIGHT = 0.0486795  # rad of the wrist's roll at which the jaw opens in the arm's plane


def joint(name: str, low: float, high: float, home: float) -> Joint:
    """A servo: an STS3215 at 12 V."""
    return Joint(
        name, low, high, force=2.94, speed=4.71, kp=17.8, kd=0.0, damping=0.6, armature=0.028,
        home=home, frictionloss=0.052,
    )  # fmt: skip


SO101 = Arm(
    name="so101",
    base=Link(
        "base", (0.0, 0.0, 0.0024), mass=0.147, com=(0.0137179, -5.19711e-5, 0.0334843),
        inertia=(1.14686e-4, 1.36117e-4, 1.30364e-4, -4.59787e-7, 4.97151e-6, 9.75275e-8),
        shape=(
            Box((0.0435, 0.0555, 0.009), (0.0211, 0.0, 0.0066)),
            Box((0.042, 0.0255, 0.027), (0.011, 0.0, 0.0426)),
        ),
    ),
    links=(
        Link(
            "shoulder", (0.0388353, 0.0, 0.0624), (0.0, 0.0, 1.0, 0.0), 0.100006,
            (-0.0307604, -1.66727e-5, -0.0252713),
            (8.3759e-5, 8.10403e-5, 2.39783e-5, 7.55525e-8, -1.16342e-6, 1.54663e-7),
            joint("shoulder_pan", -1.91986, 1.91986, 0.0),
            (
                Box((0.01905, 0.0272, 0.0272), (-0.03155, 0.0008, -0.0372)),
                Box((0.0299, 0.0197, 0.0281), (-0.0177, 0.0, 0.0181)),
            ),
        ),
        Link(
            "upper_arm", (-0.0303992, -0.0182778, -0.0542), (0.5, -0.5, -0.5, -0.5), 0.103,
            (-0.0898471, -0.00838224, 0.0184089),
            (4.08002e-5, 1.47318e-4, 1.42487e-4, -1.97819e-5, -4.03016e-8, 8.97326e-9),
            joint("shoulder_lift", -1.74533, 1.74533, -0.17),
            (
                Box((0.0711, 0.012, 0.0317), (-0.0591, 0.0, 0.0182)),
                Box((0.0125, 0.0131, 0.025), (-0.1125, -0.0251, 0.0182)),
            ),
        ),
        Link(
            "lower_arm", (-0.11257, -0.028, 0.0), (HALF, 0.0, 0.0, HALF), 0.104,
            (-0.0980701, 0.00324376, 0.0182831),
            (2.87438e-5, 1.59844e-4, 1.4529e-4, 7.41152e-6, 1.26409e-6, -4.90188e-8),
            joint("elbow_flex", -1.69, 1.69, 0.34),
            (
                Box((0.05135, 0.012, 0.0302), (-0.03935, 0.0, 0.0182)),
                Box((0.03255, 0.016, 0.027), (-0.11255, 0.004, 0.019)),
            ),
        ),
        Link(
            "wrist", (-0.1349, 0.0052, 0.0), (HALF, 0.0, 0.0, -HALF), 0.079,
            (-1.03312e-4, -0.0386143, 0.0281156),
            (3.68263e-5, 2.5391e-5, 2.1e-5, 1.7893e-8, -5.28128e-8, 3.6412e-6),
            joint("wrist_flex", -1.65806, 1.65806, 1.4),
            (
                Box((0.0157, 0.0227, 0.02865), (0.0, -0.0431, 0.02465)),
                Box((0.012, 0.0162, 0.028), (0.0, -0.0042, 0.019)),
            ),
        ),
        Link(
            "gripper", (0.0, -0.0611, 0.0181),
            quat_of(0.0172091, -0.0172091, 0.706897, 0.706897), 0.087,
            (2.13627e-4, 2.45138e-4, -0.025187),
            (2.75087e-5, 4.33657e-5, 3.45059e-5, -3.35241e-7, -5.7352e-6, -5.17847e-8),
            joint("wrist_roll", -2.74385, 2.84121, STRAIGHT),
        ),
    ),
    hand=Link(  # the jaw that stands still is part of the last link
        "hand", (0.0, 0.0, 0.0), surface=GRIP,
        shape=(
            Box((0.0328, 0.024, 0.02015), (-0.0024, 0.0, -0.01915)),
            Box((0.00885, 0.0098, 0.0123), (-0.02215, -0.0002, -0.0516)),
            Box((0.00645, 0.0082, 0.0101), (-0.01805, -0.0002, -0.074)),
            Box((0.00455, 0.0068, 0.0041), (-0.01445, -0.0002, -0.0882)),
            Box((0.0038, 0.0053, 0.00605), (-0.0117, -0.0002, -0.09835)),
        ),
    ),
    fingers=(
        Link(
            "jaw", (0.0202, 0.0188, -0.0234), (HALF, HALF, 0.0, 0.0), 0.012,
            (-0.00157495, -0.0300244, 0.0192755),
            (6.61427e-6, 1.89032e-6, 5.28738e-6, -3.19807e-7, -5.90717e-9, -1.09945e-7),
            joint("jaw", -0.174533, 1.74533, 0.5),
            (
                Box((0.01, 0.0172, 0.024), (0.0, -0.0072, 0.0189)),
                Box((0.00715, 0.01745, 0.0097), (-0.00115, -0.04185, 0.0189)),
                Box((0.00565, 0.0058, 0.0069), (-0.00465, -0.0651, 0.0189)),
                Box((0.0044, 0.00555, 0.0052), (-0.0079, -0.07645, 0.0189)),
            ),
            GRIP,
        ),
    ),
    tool_at=(0.0085, -0.000218, -0.0981274),  # in the middle of a block as wide as 25 mm
    tool_turn=(0.0, 1.0, 0.0, 0.0),  # whose z points out of the jaws
    opened=0.5,
    shut=-0.17,
    eye=Eye((0.0, 0.055, -0.02), right=(1.0, 0.0, 0.0), up=(0.0, 0.94, -0.34), fovy=70.0),
    reach=0.41,
    holds_itself=False,
)  # fmt: skip
