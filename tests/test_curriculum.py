"""What is asked of a walker grows as it is mastered, and judging asks for all of it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.locomotion import curriculum
from envs.locomotion.commands import MOST
from envs.locomotion.curriculum import LEAST, Context
from envs.locomotion.joystick import Joystick


def after(
    level: int, reach: float, tracked: float, fell: bool, seed: int = 0, levels: int = 5
) -> tuple[int, float]:
    lived = Context(jnp.int32(level), jnp.float32(reach))
    key = jax.random.key(seed)
    got = curriculum.following(key, lived, jnp.float32(tracked), jnp.bool(fell), levels)
    return int(got.level), round(float(got.reach), 3)


@pytest.mark.parametrize(
    ("lived", "episode", "want"),
    [
        ((1, 0.7), (0.9, False), (1, 0.8)),
        ((1, 0.9), (0.75, False), (1, 1.0)),
        ((1, 0.7), (0.65, False), (1, 0.7)),
        ((1, 0.7), (0.9, True), (0, 0.7)),
        ((1, 0.7), (0.4, False), (1, 0.6)),
        ((0, LEAST), (0.1, True), (0, LEAST)),
        ((1, 1.0), (0.9, False), (2, 1.0)),
    ],
)
def test_harder_when_mastered_easier_when_lost(lived: Any, episode: Any, want: Any) -> None:
    assert after(*lived, *episode) == want


def test_a_plane_asks_for_more_than_steps_do() -> None:
    for levels in (1, 5):
        for tracked, reach in ((0.75, 0.7), (0.85, 0.8)):
            assert after(0, 0.7, tracked, False, levels=levels) == (0, reach)


def test_who_masters_the_last_level_is_sent_to_any() -> None:
    assert {after(4, 1.0, 0.9, False, seed)[0] for seed in range(40)} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("name", ["go1-joystick-rough", "go2-joystick-flat"])
def test_learning_begins_with_little_and_judging_asks_for_all(name: str) -> None:
    task = envs.make_task(name, curriculum_on=True)
    assert isinstance(task, Joystick)
    first, judged = task.beginner(), task.context()
    assert (int(first.level), float(first.reach)) == (0, pytest.approx(LEAST))
    assert float(judged.reach) == 1
    draw = jax.jit(jax.vmap(task.reset, (0, None)))
    keys = jax.random.split(jax.random.key(0), 200)
    for context, share in ((first, LEAST), (judged, 1.0)):
        start = draw(keys, context)
        most = np.abs(np.asarray(start.command)).max(0) / MOST
        assert (most <= share * 1.001).all()
        assert (most > 0.9 * share).all()
    levels = np.unique(np.asarray(draw(keys, judged).episode.context.level))
    assert levels.tolist() == list(range(task.legged.terrain.levels))
    assert not np.asarray(draw(keys, first).episode.context.level).any()


def test_kicks_grow_from_none_with_the_reach() -> None:
    task = envs.make_task("go2-joystick-flat")
    assert isinstance(task, Joystick)

    def kick(reach: float) -> np.ndarray:
        start = task.reset(jax.random.key(0), Context(jnp.int32(0), jnp.float32(reach)))
        push = start.episode.push._replace(wait=-start.episode.push.duration / 2)
        inputs = task._inputs(start.episode._replace(push=push))
        return np.asarray(inputs["xfrc_applied"][task.model().body("trunk").id])

    assert np.linalg.norm(kick(1.0)) > 1
    np.testing.assert_allclose(kick((1 + LEAST) / 2), kick(1.0) / 2, rtol=1e-6)
    assert not kick(LEAST).any()


def test_without_a_curriculum_a_context_stays() -> None:
    task = envs.make_task("go1-joystick-flat")
    assert isinstance(task, Joystick)
    assert task.beginner() == task.context()
    episode = task.reset(jax.random.key(0), task.context()).episode._replace(
        steps=jnp.int32(10), tracked=jnp.float32(10)
    )
    assert task.curriculum(jax.random.key(0), task.context(), episode, jnp.bool(False)) == (
        task.context()
    )


def test_a_level_that_was_asked_for_is_kept() -> None:
    task = envs.make_task("go1-joystick-rough", curriculum_on=True, level=3)
    assert isinstance(task, Joystick)
    episode = task.reset(jax.random.key(0), task.beginner()).episode._replace(
        steps=jnp.int32(10), tracked=jnp.float32(10)
    )
    next_ = task.curriculum(jax.random.key(0), task.beginner(), episode, jnp.bool(False))
    assert int(next_.level) == 3
    assert float(next_.reach) == pytest.approx(LEAST + 0.1)
