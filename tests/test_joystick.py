"""Walking on command: Playground's task to the last digit, and what the robot sees of it."""

import json
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import envs
from envs.locomotion import commands, walking
from envs.locomotion.joystick import Context, Episode, Joystick
from envs.locomotion.legged import Memory
from envs.locomotion.quadruped import ANGLES, FOOT_AT, FOOT_VELOCITY, LEGS, SPEEDS
from envs.locomotion.walking import Gait

TRACE = np.load(Path(__file__).parent / "oracles" / "playground_go1.npz")
PLAYGROUND = json.loads(TRACE["model_json"].tobytes())
STEPS = [(episode, t) for episode in range(4) for t in range(25)]


@cache
def go1(**fields: Any) -> Joystick:
    return Joystick("go1", "flat", **fields)


def readings(episode: int, t: int) -> dict[str, np.ndarray]:
    """What Playground's task read after step `t`, by our names."""
    at = {name: TRACE[f"sensor_{theirs}"][episode, t] for name, theirs in {
        "gyro": "gyro", "velocity": "local_linvel", "accelerometer": "accelerometer",
        "linvel": "global_linvel", "angvel": "global_angvel", "upright": "upvector",
        "orientation": "orientation", "position": "position",
    }.items()}  # fmt: skip
    w, x, y, z = at["orientation"]
    at["up"] = np.array([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)])
    qpos, qvel = TRACE["qpos"][episode, t + 1], TRACE["qvel"][episode, t + 1]
    at |= {name: qpos[7 + i : 8 + i] for i, name in enumerate(ANGLES)}
    at |= {name: qvel[6 + i : 7 + i] for i, name in enumerate(SPEEDS)}
    for i, leg in enumerate(LEGS):
        at[FOOT_AT[i]] = TRACE["feet_site_xpos"][episode, t, i]
        at[FOOT_VELOCITY[i]] = TRACE[f"sensor_{leg}_global_linvel"][episode, t]
    return at | {"actuator_force": TRACE["actuator_force"][episode, t]}


def known(episode: int, t: int, **before: Any) -> tuple[np.ndarray, Episode]:
    """Command and bookkeeping as they stood before step `t`."""
    gait = Gait(
        TRACE["feet_air_time"][episode, t],
        TRACE["swing_peak"][episode, t],
        TRACE["last_contact"][episode, t].astype(bool),
    )
    last = TRACE["last_act"][episode, t]
    context = Context(jnp.int32(0), jnp.float32(1))
    told = Episode(last, jnp.int32(9), gait, (), context, (), jnp.int32(0), jnp.float32(0))
    return TRACE["command"][episode, t], told


def test_the_model_is_playgrounds() -> None:
    ours, theirs = go1().model(), PLAYGROUND
    for i, name in enumerate(theirs["body_names"][1:], 1):
        for field in ("mass", "ipos", "inertia", "invweight0", *(["pos"] if i > 1 else [])):
            want = theirs[f"body_{field}"][i]
            np.testing.assert_allclose(getattr(ours.body(name), field), want, rtol=1e-6, atol=1e-9)
    for field in ("armature", "damping", "frictionloss", "invweight0", "M0"):
        np.testing.assert_allclose(
            getattr(ours, f"dof_{field}"), theirs[f"dof_{field}"], rtol=1e-6, err_msg=field
        )
    for field in ("ctrlrange", "forcerange"):
        np.testing.assert_allclose(
            getattr(ours, f"actuator_{field}"), theirs[f"actuator_{field}"], err_msg=field
        )
    np.testing.assert_allclose(ours.actuator_gainprm[:, :3], theirs["actuator_gainprm"])
    np.testing.assert_allclose(ours.actuator_biasprm[:, :3], theirs["actuator_biasprm"])
    np.testing.assert_allclose(go1().legged.pose, theirs["default_pose"], rtol=1e-6)
    assert [ours.actuator(i).name for i in range(12)] == theirs["actuator_names"]
    assert ours.opt.timestep == theirs["timestep"]
    assert ours.opt.iterations == theirs["opt_iterations"]
    assert ours.opt.disableflags == theirs["opt_disableflags"]


def test_the_next_state_is_playgrounds() -> None:
    """One control step from 30 states, feet down and up, as their MJX and MuJoCo have it."""
    model, data = go1().model(), mujoco.MjData(go1().model())
    for i in range(len(TRACE["dyn_qpos"])):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = TRACE["dyn_qpos"][i], TRACE["dyn_qvel"][i]
        data.ctrl[:] = TRACE["dyn_ctrl"][i]
        mujoco.mj_step(model, data, 5)
        np.testing.assert_allclose(data.qpos, TRACE["dyn_next_qpos"][i], atol=3e-6)
        np.testing.assert_allclose(data.qvel, TRACE["dyn_next_qvel"][i], atol=3e-4)


@cache
def terms_of(episode: int, t: int) -> dict[str, np.ndarray]:
    """Every term of step `t`, weighted."""
    raw, (command, told) = readings(episode, t), known(episode, t)
    change = TRACE["action"][episode, t] - told.action  # theirs may leave [-1, 1]
    fell = go1().terminated(raw, told)
    parts = terms()(raw, change, command, told.gait, fell)
    return {name: getattr(go1().weights, name) * np.asarray(x) for name, x in parts.items()}


@cache
def terms() -> Any:
    return jax.jit(partial(walking.terms, go1().legged))


@pytest.mark.parametrize("name", PLAYGROUND["reward_terms"])
def test_each_term_of_the_reward_is_playgrounds(name: str) -> None:
    at = PLAYGROUND["reward_terms"].index(name)
    want = np.array([TRACE["reward_terms"][step][at] for step in STEPS])
    got = np.array([terms_of(*step)[name] for step in STEPS])
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)
    assert np.ptp(want) > 1e-3  # it says something


def test_the_reward_is_playgrounds() -> None:
    task, reward = go1(), jax.jit(go1().reward)
    inside = [step for step in STEPS if np.abs(TRACE["action"][step]).max() <= 1]
    for episode, t in inside:
        raw, (command, told) = readings(episode, t), known(episode, t)
        got, _ = reward(raw, raw, TRACE["action"][episode, t], command, told)
        np.testing.assert_allclose(got, TRACE["reward"][episode, t], atol=1e-6)
        assert bool(task.terminated(raw, told)) == bool(TRACE["done"][episode, t])
    assert len(inside) > 50


def test_the_observation_is_playgrounds() -> None:
    """Told the same action: theirs tells the one before the last."""
    task = go1(playground_timing=True)
    observe, privileged = jax.jit(task.observe), jax.jit(task.privileged)
    for episode, t in STEPS:
        raw, (command, told) = readings(episode, t), known(episode, t)
        # They observe in the midst of their bookkeeping: the air counted, the contact not yet.
        told = told._replace(gait=told.gait._replace(air_time=told.gait.air_time + 0.02))
        now = TRACE["action"][episode, t]
        obs, memory = observe(raw, command, Memory(now, told.action, ()))
        want = TRACE["obs"][episode, t]
        np.testing.assert_allclose(obs, want[:48], atol=2e-6)
        np.testing.assert_allclose(privileged(raw, obs, told), want[48:], rtol=1e-5, atol=2e-6)
        mended, _ = jax.jit(go1().observe)(raw, command, memory)
        np.testing.assert_allclose(mended[33:45], now)


def test_bookkeeping_is_playgrounds() -> None:
    advance = jax.jit(go1().advance)
    for episode, t in STEPS:
        raw, (command, told) = readings(episode, t), known(episode, t)
        after = advance(jax.random.key(0), raw, TRACE["action"][episode, t], command, told)[1]
        np.testing.assert_allclose(after.gait.air_time, TRACE["feet_air_time"][episode, t + 1])
        np.testing.assert_allclose(after.gait.peak, TRACE["swing_peak"][episode, t + 1], atol=1e-6)
        np.testing.assert_array_equal(after.gait.contact, TRACE["last_contact"][episode, t + 1])


def test_commands_are_drawn_as_playground_draws_them() -> None:
    """Means over many: each part kept half the time, else 0 or new within its range."""
    command = jnp.array([0.5, 0.5, 0.5])
    draw = jax.jit(jax.vmap(lambda key: commands.following(key, command, jnp.float32(1))))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(0), 20_000)))
    assert (drawn == 0.5).mean(0) == pytest.approx([0.5] * 3, abs=0.015)
    assert (drawn == 0).mean(0) == pytest.approx([0.05, 0.375, 0.25], abs=0.015)
    for i, most in enumerate((1.5, 0.8, 1.2)):
        new = drawn[(drawn[:, i] != 0) & (drawn[:, i] != 0.5), i]
        assert np.abs(new).max() <= most
        assert new.std() == pytest.approx(most / np.sqrt(3), rel=0.03)
    held = jax.jit(jax.vmap(commands.hold))(jax.random.split(jax.random.key(1), 20_000))
    assert 0.02 * np.mean(held) == pytest.approx(5, rel=0.03)
    assert 0.02 * np.std(held) == pytest.approx(5, rel=0.05)


@pytest.mark.parametrize(
    ("name", "field", "value", "told"),
    [
        ("go1-joystick-flat", "history", 0, "history is 0; a policy sees at least 1 frame"),
        ("go1-joystick-flat", "level", 1, "level is 1; flat ground has 0 to 0, or -1"),
        ("go2-joystick-rough", "level", 6, "level is 6; rough ground has 0 to 5"),
        ("go1-joystick-flat", "timestep", 0.003, "0.02 s of control takes whole steps"),
        ("go1-joystick-flat", "noise", -1.0, "noise is -1; it is a factor"),
        *(
            (f"go2-{name}", "action_scale", x, f"action_scale is {x}; it takes a number above 0")
            for name in ("joystick-rough", "getup", "footstand")
            for x in (-1.0, 0.0, np.nan)
        ),
        ("go2-getup", "noise", np.inf, "noise is inf; it is a factor"),
        ("go2-getup", "dropped", 2.0, "dropped is 2.0; it is a chance"),
    ],
)
def test_settings_that_make_no_task_are_refused(
    name: str, field: str, value: Any, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        envs.make(name, **{field: value})
