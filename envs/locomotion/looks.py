"""How a quadruped looks: colours, a sky, a light; and meshes, where its user has them."""

from pathlib import Path

import mujoco

from envs.locomotion.quadruped import LEGS, LINKS, side

HAZE = (0.36, 0.42, 0.5, 1)  # where the endless ground meets the sky
TRUNK, LEG, FOOT = (0.8, 0.82, 0.85, 1), (0.45, 0.47, 0.5, 1), (0.95, 0.55, 0.15, 1)  # colours
UNSEEN = 3  # the first group of geoms that is not drawn


def add(spec: mujoco.MjSpec) -> None:
    """A sky, a chequered ground, a light and a camera that go with the robot."""
    sideways, upward = (0.8575, -0.5145, 0.0), (0.1669, 0.2782, 0.9459)  # of its picture
    camera = spec.body("trunk").add_camera(name="beside", pos=(-0.72, -1.2, 0.48))
    camera.mode = mujoco.mjtCamLight.mjCAMLIGHT_TRACK
    camera.alt.xyaxes = (*sideways, *upward)
    camera.alt.type = mujoco.mjtOrientation.mjORIENTATION_XYAXES
    spec.visual.rgba.haze = HAZE
    for geom in spec.geoms:
        geom.rgba = LEG if "_" in geom.name else FOOT
        if geom.name.startswith("trunk"):
            geom.rgba = TRUNK
    texture = mujoco.mjtTexture
    spec.add_texture(
        name="sky", type=texture.mjTEXTURE_SKYBOX, builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=HAZE[:3], rgb2=(0.1, 0.15, 0.2), width=256, height=256,
    )  # fmt: skip
    spec.add_texture(
        name="ground", type=texture.mjTEXTURE_2D, builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        rgb1=(0.25, 0.3, 0.35), rgb2=(0.3, 0.36, 0.42), width=256, height=256,
    )  # fmt: skip
    names = [""] * mujoco.mjtTextureRole.mjNTEXROLE
    names[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "ground"
    spec.add_material(name="ground", textures=names, texrepeat=(2, 2), texuniform=True)
    light = spec.body("trunk").add_light(pos=(0, 0, 4), dir=(0, 0, -1))  # a shadow ends near it
    light.type = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
    light.mode = mujoco.mjtCamLight.mjCAMLIGHT_TRACK


def dress(spec: mujoco.MjSpec, folder: Path) -> None:
    """Draw meshes in the place of colliders, which stay what meets the ground.

    `folder` has trunk, hip, thigh and calf, each as .obj or .stl: the front left leg's, in m and in
    the frames of its links.  The other legs' are their mirror images.
    """
    files = {link: _found(folder, link) for link in ("trunk", *LINKS)}
    for geom in spec.geoms:
        geom.group = UNSEEN
    flips = {"trunk": (1.0, 1.0, 1.0)}
    for leg in LEGS:
        corner = side(leg)  # what hangs from the hip points forward on all legs
        flips |= {f"{leg}_{link}": (1.0, corner[1], 1.0) for link in LINKS}
        flips[f"{leg}_hip"] = tuple(corner)
    for name, flip in flips.items():
        link = name.rpartition("_")[2]
        spec.add_mesh(name=name, file=str(files[link]), scale=flip)
        geom = spec.body(name).add_geom(
            name=f"{name}_look", type=mujoco.mjtGeom.mjGEOM_MESH, meshname=name, contype=0,
            conaffinity=0, mass=0, rgba=TRUNK if name == "trunk" else LEG,
        )  # fmt: skip
        geom.group = 1


def _found(folder: Path, link: str) -> Path:
    for end in ("obj", "stl"):
        if (path := folder / f"{link}.{end}").is_file():
            return path.resolve()
    raise ValueError(f"{folder} has no {link}.obj or {link}.stl: a robot's looks need all links.")
