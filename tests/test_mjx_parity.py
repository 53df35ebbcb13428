"""MJX, and MJX-Warp, against native MuJoCo: a physics step from recorded states of each task.

Both compile slowly on CPU: two tasks here, the others marked slow.
"""

import re
from copy import copy
from dataclasses import replace

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import envs
from envs.physics.mjx import MJX, unsupported
from envs.physics.native import Native
from envs.physics.warp import Warp

QUICK = ("HalfCheetah-v5", "dmc-reacher-hard")
TOUCHING = tuple(name for name in envs.names() if re.search("Ant|Cheet|cheet|Hop|Walk|walk", name))
SPATIAL = ("Ant-v5", "Humanoid-newton", "HumanoidStandup-newton")
UNTUNED = {"xla_backend_optimization_level": 0}  # compiles in half the time, runs long enough
STATES, WORLDS, SPACING = 100, 10, 20
# Absolute and relative error, the latter of the largest entry of a state's vector, for float32
# couples them all; the vendor's own tolerances between MJX and C.
TOLERANCES = {
    "xpos": (1e-5, 1e-4),  # kinematics
    "qfrc_bias": (1e-3, 1e-3),  # forces
    "qfrc_passive": (1e-3, 1e-3),
    "qfrc_actuator": (1e-3, 1e-3),
    "qacc_smooth": (1e-2, 1e-3),  # forces through the inverse of the inertia
    "qacc": (1e-1, 1e-2),  # constraints: two solvers, each stopped at its own tolerance
}


def recorded(task):
    """States of random episodes: qpos, qvel, and a control for each, [STATES, ...] float32."""
    model, rng = task.model(), np.random.default_rng(0)
    native = Native(model, replace(task.spec, fields=("qpos", "qvel"), precise=(), sensors=()))
    start = jax.jit(jax.vmap(lambda k: task.reset(k, task.context())))(
        jax.random.split(jax.random.key(0), WORLDS)
    )
    settled = lambda q, v: native.reset(native.blank(), jnp.bool(True), q, v, {}, task.spec.settle)  # noqa: E731
    data = jax.vmap(settled)(start.qpos, start.qvel)
    step = jax.jit(jax.vmap(lambda data, ctrl: native.step(data, {"ctrl": ctrl}, {})))
    low, high = model.actuator_ctrlrange.T
    seen = []
    for t in range(STATES // WORLDS * SPACING):
        if t % SPACING == 0:
            reads = native.read(data)
            seen.append((reads["qpos"], reads["qvel"]))
        data = step(data, rng.uniform(low, high, (WORLDS, model.nu)).astype(np.float32))
    qpos, qvel = map(np.concatenate, zip(*seen, strict=True))
    return qpos, qvel, rng.uniform(low, high, (STATES, model.nu)).astype(np.float32)


def step_from(physics, options=None):
    """Readings after a physics step from a state at rest in every other respect."""

    def run(qpos, qvel, ctrl):
        data = physics.blank()
        if type(physics) is MJX:  # its state is all there is: no need to compile a reset
            data = data._replace(state=data.state | {"qpos": qpos, "qvel": qvel})
        else:
            data = physics.reset(data, jnp.bool(True), qpos, qvel, {})
        return physics.read(physics.step(data, {"ctrl": ctrl}, {}))

    return jax.jit(jax.vmap(run), compiler_options=options)


def turned(model, qpos):
    """[STATES] bool: a capsule stands steeper than 60 degrees on a plane, or nearly so."""
    model = copy(model)
    model.geom_margin += 0.005  # of both: what is a centimetre off may touch within the step
    data, found = mujoco.MjData(model), np.zeros(len(qpos), bool)
    for i, data.qpos[:] in enumerate(qpos):
        mujoco.mj_forward(model, data)
        geoms = {g for contact in data.contact for g in contact.geom}
        for g in geoms:
            across = np.linalg.norm(data.geom_xmat[g].reshape(3, 3)[:2, 2])
            found[i] |= model.geom_type[g] == mujoco.mjtGeom.mjGEOM_CAPSULE and across < 0.55
    return found


def grazing(model, qpos):
    """[STATES] bool: two geoms just touch, so that rounding to float32 says whether they do."""
    model = copy(model)
    model.geom_margin += 1e-6
    data, found = mujoco.MjData(model), np.zeros(len(qpos), bool)
    for i, data.qpos[:] in enumerate(qpos):
        mujoco.mj_forward(model, data)
        found[i] = (np.abs(data.contact.dist) < 1e-6).any()
    return found


def assert_close(got, want, dt, where):
    qacc = TOLERANCES["qacc"]
    # What a step moves by the acceleration may err by the acceleration's error.
    slack = dt * (qacc[0] + qacc[1] * np.abs(want["qacc"]).max(1))
    for name, value in want.items():
        value = np.asarray(value).reshape(STATES, -1)
        error = np.abs(np.asarray(got[name]).reshape(STATES, -1) - value).max(1)
        absolute, relative = TOLERANCES.get(name, TOLERANCES["xpos"])
        allowed = absolute + relative * np.abs(value).max(1)
        allowed = allowed + {"qvel": slack, "qpos": slack * dt}.get(name, 0)
        assert (error <= allowed)[where].all(), (name, (error / allowed)[where].max())


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            pytest.param(name, MJX, marks=[] if name in QUICK else pytest.mark.slow)
            for name in envs.names()
            if not unsupported(envs.make_task(name).model(), envs.make_task(name).spec)
        ),
        *(
            pytest.param(name, Warp, marks=pytest.mark.slow)
            for name in (*QUICK, "go1-joystick-flat")
        ),
    ],
)
def test_a_step_is_natives(name, kind):
    task = envs.make_task(name)
    spec = replace(
        task.spec, substeps=1, derived="lagged", precise=(), sensors=(),
        fields=("qpos", "qvel", *TOLERANCES),
    )  # fmt: skip
    model = copy(task.model())
    if kind is Warp:  # whose solver begins elsewhere: equal once it has converged
        model.opt.iterations = max(model.opt.iterations, 30)
    if kind is MJX and model.opt.integrator == mujoco.mjtIntegrator.mjINT_IMPLICITFAST:
        # At its limit an actuator damps nothing; MJX integrates as if it did, and all are here.
        model.actuator_forcelimited[:] = False
    native, ours = Native(model, spec), kind(model, spec)
    states = recorded(task)
    # Untuned, the pusher's cylinders take longer to run than they save in compiling.
    step = step_from(ours, None if name == "Pusher-v5" else UNTUNED)
    want, got = jax.tree.map(np.asarray, (step_from(native)(*states), step(*states)))
    assert np.abs(want["qvel"] - states[1]).max() > 1e-2, "nothing moved"
    pushed = np.abs(want["qacc"] - want["qacc_smooth"]).max(1) > 1
    # There MJX turns the pyramid of friction to the world's axes and MuJoCo to the capsule's: a
    # pyramid is no cone, so in three dimensions forces differ.
    steep = turned(task.model(), states[0]) | turned(task.model(), want["qpos"])
    where = ~grazing(task.model(), states[0])
    where &= ~steep if name in SPATIAL else True
    assert where.sum() >= STATES // 2
    assert (pushed & where).sum() >= (10 if name in TOUCHING else 0)
    assert_close(got, want, task.model().opt.timestep, where)
