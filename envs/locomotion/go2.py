"""Unitree Go2.

All facts are those of Unitree's own description and MuJoCo model (BSD-3-Clause), but for the gains,
which are ours; the motors' speed limits are its URDF's.
"""

from envs.locomotion.quadruped import Inertial, Motor, Quadruped
from envs.shapes import Ball, Box, Rod

GO2 = Quadruped(
    name="go2",
    trunk=Inertial(
        mass=6.921,
        com=(0.021112, 0.0, -0.005366),
        principal=(0.107027, 0.0980771, 0.0244531),
        axes=(-0.000543471, 0.713435, -0.00173769, 0.700719),
    ),
    hip=Inertial(
        mass=0.678,
        com=(-0.0054, 0.00194, -0.000105),
        principal=(0.00088403, 0.000596003, 0.000479967),
        axes=(0.497014, 0.499245, 0.505462, 0.498237),
    ),
    thigh=Inertial(
        mass=1.152,
        com=(-0.00374, -0.0223, -0.0327),
        principal=(0.00594973, 0.00584149, 0.000878787),
        axes=(0.829533, 0.0847635, -0.0200632, 0.551623),
    ),
    calf=Inertial(
        mass=0.241352,
        com=(0.00629595, -0.000622121, -0.141417),
        principal=(0.0014901, 0.00146356, 5.31397e-05),
        axes=(0.710672, 0.00154099, -0.00450087, 0.703508),
    ),
    hip_at=(0.1934, 0.0465, 0.0),
    thigh_at=(0.0, 0.0955, 0.0),
    calf_at=(0.0, 0.0, -0.213),
    foot=Ball(radius=0.022, at=(-0.002, 0.0, -0.213)),
    imu_at=(-0.02557, 0.0, 0.04232),
    motors=(
        Motor((-1.0472, 1.0472), (-1.0472, 1.0472), 23.7, 30.1, 0.01, 0.2, home=0.0),
        Motor((-1.5708, 3.4907), (-0.5236, 4.5379), 23.7, 30.1, 0.01, 0.2, home=0.9),
        Motor((-2.7227, -0.83776), (-2.7227, -0.83776), 45.43, 15.7, 0.01, 0.2, home=-1.8),
    ),
    kp=35.0,
    kd=0.5,
    damping=0.1,
    height=0.27,
    trunk_shape=(
        Box(half=(0.1881, 0.04675, 0.057)),
        Rod(0.05, (0.285, 0.0, -0.035), (0.285, 0.0, 0.055), flat=True),
        Ball(radius=0.047, at=(0.293, 0.0, -0.06)),
    ),
    hip_shape=(Rod(0.046, (0.0, 0.06, 0.0), (0.0, 0.1, 0.0), flat=True),),
    thigh_shape=(Box(half=(0.017, 0.01225, 0.1065), at=(0.0, 0.0, -0.1065)),),
    calf_shape=(
        Rod(0.012, (-0.0045, 0.0, -0.0013), (0.0205, 0.0, -0.1187), flat=True),
        Rod(0.011, (0.0232, 0.0, -0.1157), (0.0168, 0.0, -0.1803), flat=True),
    ),
)
