"""Unitree Go1.

Masses, inertias, ranges and torques are those of Unitree's description as MuJoCo Menagerie has it
(both BSD-3-Clause); gains, armature and friction those that MuJoCo Playground trains with
(Apache-2.0); motor speeds those of mjlab (Apache-2.0).
"""

from envs.locomotion.quadruped import Inertial, Motor, Quadruped
from envs.shapes import Ball, Box, Rod

GO1 = Quadruped(
    name="go1",
    trunk=Inertial(
        mass=5.204,
        com=(0.0223, 0.002, -0.0005),
        principal=(0.0716565, 0.0630105, 0.0168101),
        axes=(-0.00342088, 0.705204, 0.000106698, 0.708996),
    ),
    hip=Inertial(
        mass=0.68,
        com=(-0.0049166, -0.00762615, -8.865e-05),
        principal=(0.000734064, 0.000468438, 0.000398719),
        axes=(0.482891, 0.495027, 0.514169, 0.507341),
    ),
    thigh=Inertial(
        mass=1.009,
        com=(-0.00304722, -0.019315, -0.0305004),
        principal=(0.00478717, 0.00460903, 0.000709268),
        axes=(0.753383, 0.0775126, -0.0272313, 0.65243),
    ),
    calf=Inertial(
        mass=0.195862,
        com=(0.00429862, 0.000976676, -0.146197),
        principal=(0.00149767, 0.00148468, 3.58427e-05),
        axes=(0.691246, 0.00357467, 0.00511118, 0.722592),
        handed=False,
    ),
    hip_at=(0.1881, 0.04675, 0.0),
    thigh_at=(0.0, 0.08, 0.0),
    calf_at=(0.0, 0.0, -0.213),
    foot=Ball(radius=0.023, at=(0.0, 0.0, -0.213)),
    imu_at=(-0.01592, -0.06659, -0.00617),
    motors=(
        Motor((-0.863, 0.863), (-0.863, 0.863), 23.7, 30.1, 0.005, 0.3, home=-0.1),
        Motor((-0.686, 4.501), (-0.686, 4.501), 23.7, 30.1, 0.005, 0.3, home=0.9),
        Motor((-2.818, -0.888), (-2.818, -0.888), 35.55, 20.06, 0.005, 1.0, home=-1.8),
    ),
    kp=35.0,
    kd=0.0,
    damping=0.5,  # in the joint, where its torque has no limit: so it is in Playground
    height=0.278,
    trunk_shape=(
        Box(half=(0.125, 0.04, 0.057)),
        Rod(0.058, (-0.125, -0.04, 0.0), (0.125, -0.04, 0.0), flat=True),
        Rod(0.058, (-0.125, 0.04, 0.0), (0.125, 0.04, 0.0), flat=True),
    ),
    hip_shape=(
        Rod(0.046, (0.0, 0.025, 0.0), (0.0, 0.065, 0.0), flat=True),
        Rod(0.031, (0.0, 0.045, 0.0), (0.0, 0.085, 0.0), flat=True),
    ),
    thigh_shape=(
        Rod(0.015, (-0.02, 0.0, 0.0), (-0.02, 0.0, -0.16)),
        Rod(0.015, (0.0, 0.0, 0.0), (-0.02, 0.0, -0.1)),
        Rod(0.015, (-0.02, 0.0, -0.16), (0.0, 0.0, -0.2)),
    ),
    calf_shape=(
        Rod(0.01, (0.0, 0.0, 0.0), (0.02, 0.0, -0.13)),
        Rod(0.01, (0.02, 0.0, -0.13), (0.0, 0.0, -0.2)),
    ),
)
