"""Pictures as tasks read them: those of MuJoCo's own renderer, of each world as it is."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import envs
from envs import render
from envs.repeat import Repeat
from envs.task import Camera
from rl import policy, rollout

SIDE = 48


def drawn(env: Any, data: Any, params: dict[str, Any]) -> np.ndarray:
    """Each world's picture by a renderer of MuJoCo's of its own, from its whole state."""
    model, pictures = copy.copy(env.task.model()), []
    render.choose_gl()
    model.vis.quality.shadowsize = 0
    world, name = mujoco.MjData(model), env.task.spec.cameras[0].name
    for i, qpos in enumerate(env.physics.qpos(jax.device_get(data))):
        for field, value in params.items():
            getattr(model, field)[:] = np.asarray(value[i])
        world.qpos[:] = qpos
        mujoco.mj_forward(model, world)
        with mujoco.Renderer(model, SIDE, SIDE) as renderer:
            renderer.update_scene(world, name)
            for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
                renderer.scene.flags[flag] = False
            pictures.append(renderer.render().copy())
    return np.stack(pictures)


@pytest.fixture(scope="module")
def lived() -> tuple[Any, Any, Any, Any]:
    """An environment with a target in each world's own place, its first and its last worlds and
    what was seen between: two episodes of three steps."""
    env = envs.make("dmc-reacher-hard", max_episode_steps=3, pixels=SIDE, repeat=4)
    uniform = policy.uniform(2)
    begun = jax.jit(lambda k: rollout.start(env, uniform, (), k, 3))(jax.random.key(0))
    collect = jax.jit(lambda w, k: rollout.collect(env, uniform, (), w, k, 7))
    after, seen, _ = collect(begun, jax.random.key(1))
    return env, begun, after, seen


def test_a_picture_is_that_of_mujocos_renderer_bit_for_bit(lived: tuple[Any, ...]) -> None:
    env, begun, after, _ = lived
    for worlds in (begun, after):
        want = drawn(env, worlds.state.sim.data, worlds.state.sim.params)
        got = np.asarray(worlds.state.obs["image"])
        assert got.std() > 5
        assert (got == want).all()
        assert (got[0] != got[1]).any()


def test_what_is_randomised_is_seen_and_is_not_left_over(lived: tuple[Any, ...]) -> None:
    env, begun, _, _ = lived
    data, params = begun.state.sim.data, begun.state.sim.params
    nominal = env.physics.cameras.render(data.row[0], {})["fixed"]
    moved = env.physics.cameras.render(data.row[0], jax.tree.map(lambda x: x[0], params))["fixed"]
    again = env.physics.cameras.render(data.row[0], {})["fixed"]
    assert (nominal != moved).any()
    assert (nominal == again).all()


def test_a_first_picture_is_fresh_and_a_last_one_true(lived: tuple[Any, ...]) -> None:
    seen = lived[-1]
    done = np.asarray(seen.truncated)
    assert done.sum(0).tolist() == [2, 2, 2]
    now, after = (np.asarray(x["image"]) for x in (seen.obs, seen.next_obs))
    goes_on = ~done[:-1]
    assert (now[1:] == after[:-1])[goes_on].all()
    # Targets are drawn anew: a red ball is elsewhere, and that is seen at once, but not before.
    red = lambda x: x[..., 0].astype(int) - x[..., 2] > 60  # noqa: E731
    place = lambda x: np.argwhere(red(x)).mean(0)  # noqa: E731
    for step, world in zip(*np.nonzero(done[:-1]), strict=True):
        held = place(now[step, world]) - place(after[step, world])
        drawn_anew = place(now[step + 1, world]) - place(after[step, world])
        assert np.abs(held).max() < 1.5
        assert np.abs(drawn_anew).max() > 1.5


def test_plain_pictures_are_like_others() -> None:
    model = envs.make_task("dmc-cartpole-swingup").model()
    pose, part = model.qpos0, mujoco.mjtState.mjSTATE_QPOS
    plain, full = (
        render.Painter(model, Camera("fixed", 48, 48, plain=x)).paint(pose, part).astype(int)
        for x in (True, False)
    )
    assert (plain != full).any()
    assert np.abs(plain - full).mean() < 12
    assert model.vis.quality.shadowsize > 0  # physics' own model is left alone


@pytest.mark.parametrize("name", [x for x in envs.names() if x.startswith("dmc-")])
def test_every_task_of_the_suite_shows_itself_and_no_number(name: str) -> None:
    env = envs.make(name, pixels=84, repeat=2)
    obs = jax.eval_shape(env.reset, jax.random.key(0)).obs
    assert {k: (x.shape, x.dtype) for k, x in obs.items()} == {"image": ((84, 84, 3), jnp.uint8)}
    assert (env.horizon, env.control_dt) == (500, 2 * envs.make(name).control_dt)


def test_an_action_is_held_and_pays_about_what_the_steps_do() -> None:
    held, whole = envs.make("dmc-cartpole-swingup", repeat=8), envs.make("dmc-cartpole-swingup")
    summed = Repeat(whole, 8)
    wave = lambda t: jnp.sin(t / 4.0)[None]  # noqa: E731

    def run(env: Any) -> tuple[Any, Any]:
        def step(state: Any, t: Any) -> tuple[Any, Any]:
            state = env.step(state, wave(t))
            return state, (state.reward, state.obs)

        return jax.lax.scan(step, env.reset(jax.random.key(0)), jnp.arange(125))[1]

    stepped = jax.jit(run, static_argnums=0)
    (ours, seen), (theirs, also) = stepped(held), stepped(summed)
    assert np.allclose(seen, also, atol=1e-3)  # the same world
    assert ours.sum() > 20
    assert float(ours.sum()) == pytest.approx(float(theirs.sum()), rel=0.05)


def test_what_holds_no_whole_number_of_times_is_refused() -> None:
    for times in (0, 3, -1):
        with pytest.raises(ValueError, match=f"repeat is {times}; it takes a count that divides"):
            envs.make("dmc-walker-walk", repeat=times)
