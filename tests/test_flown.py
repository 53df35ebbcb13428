"""A flight as a task's learners take it: what its policy saw, and the actions that it took."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from experiments import flown, offline
from experiments.flown import Args
from rl.bridge import states
from rl.bridge.log import convert
from rl.bridge.log.convert import Convert
from rl.data import npz
from rl.data.dataset import Dataset
from tests import flights
from tests.flights import Flown, eventful
from tests.rig import go2, of

TASK: Any = envs.make_task("go2-joystick-flat")
FLOWN = Args(TASK, "go2-joystick-flat")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flight")
    log = flights.write(folder / "a.mcap", eventful())
    convert.convert(Convert((log,), folder / "a.npz"))
    return folder / "a.npz"


@pytest.fixture(scope="module")
def made(path: Path) -> Dataset:
    flown.main(replace(FLOWN, data=path, out=path.with_name("made.npz")))
    return npz.read(path.with_name("made.npz"))


def test_actions_lead_to_what_was_told(made: Dataset, path: Path) -> None:
    """Those of the task, whose targets are its pose and half a radian of each."""
    told = npz.read(path).steps["targets"]
    reached = np.asarray(TASK.legged.pose) + TASK.action_scale * made.steps["action"]
    np.testing.assert_allclose(np.abs(reached - told).max(1), made.steps["off"], atol=1e-6)
    inside = np.abs(told - np.asarray(TASK.legged.pose)).max(1) < TASK.action_scale
    assert inside.sum() > 20
    assert made.steps["off"][inside].max() < 1e-6
    assert (made.steps["off"][~inside] > 0).all()


def test_what_is_seen_is_of_this_and_the_frames_before(made: Dataset, path: Path) -> None:
    """The task's `observe`, one call after another from its first memory."""
    theirs, first = npz.read(path), 0
    for number, length in enumerate(made.episodes["length"].tolist()):
        memory = TASK.memory()
        rows = np.concatenate([theirs.steps["obs"][first : first + length],
                               theirs.episodes["last_obs"][number][None]])  # fmt: skip
        for t, row in enumerate(rows):
            cuts = np.cumsum([s.size for s in go2().sensors])
            parts = np.split(row, cuts)
            names = [s.name for s in go2().sensors]
            readings = {n: jnp.asarray(x) for n, x in zip(names, parts, strict=False)}
            obs, memory = TASK.observe(readings, jnp.asarray(parts[-1]), memory)
            last = t == length
            mine = made.episodes["last_obs/policy"][number] if last else (
                made.steps["obs/policy"][first + t])  # fmt: skip
            np.testing.assert_allclose(mine, obs, atol=1e-5)
            if not last:
                _, memory = TASK.control(made.steps["action"][first + t], readings, memory)
        first += length


def test_ends_and_hands_are_kept(made: Dataset, path: Path) -> None:
    theirs = npz.read(path)
    for name in ("human", "terminated", "truncated", "mask", "time", "limited"):
        np.testing.assert_array_equal(made.steps[name], theirs.steps[name])
    np.testing.assert_array_equal(made.episodes["length"], theirs.episodes["length"])
    assert made.facts["task"] == "go2-joystick-flat"
    assert made.facts["flight_sha256"] == theirs.facts[npz.HASH]


@cache
def world() -> Any:
    return envs.world(TASK, "native", threads=1)


def test_who_needs_no_critic_learns_of_it(made: Dataset, path: Path) -> None:
    where = path.with_name("made.npz")
    found = offline.of_task(where, made, "go2-joystick-flat", world(), judges=False)
    assert {n for n in found.steps if n.startswith("obs")} == {"obs/policy"}
    with pytest.raises(ValueError, match="has no obs/critic"):
        offline.of_task(where, made, "go2-joystick-flat", world())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["panda-reach", "panda-pick-cube"])
def test_an_arm_s_actions_are_found_again(name: str) -> None:
    """Of a simulation whose arm did what came to mind, its sensors' noise and all."""
    task: Any = envs.make_task(name)
    env = envs.simulate(task, "native", threads=1)

    def lived(key: Any) -> Any:
        def tick(state: Any, key: Any) -> Any:
            action = 0.4 * jax.random.uniform(key, (env.action_dim,), minval=-1, maxval=1)
            sim = state.sim
            targets, _ = task.control(action, sim.told, sim.memory)
            command = sim.command if task.spec.command else jnp.zeros(0)
            return env.step(state, action), (sim.told, command, targets, action, state.obs)

        return jax.lax.scan(tick, env.reset(key), jax.random.split(key, 40))[1]

    told, command, targets, action, obs = jax.tree.map(
        lambda x: x[0], jax.jit(jax.vmap(lived))(jax.random.split(jax.random.key(0), 1))
    )
    first = jnp.arange(40) == 0
    seen, found, off = jax.jit(lambda *x: flown.live(task, *x))(told, command, targets, first)
    assert off.max() < 1e-4
    np.testing.assert_allclose(seen, obs, atol=1e-3)
    assert np.median(np.abs(found - action)) < 1e-3


def test_what_is_of_another_task_is_refused(path: Path, tmp_path: Path) -> None:
    arm: Any = envs.make_task("panda-reach")
    rig = Flown().armed().live(30, states.ARM, of("rest") + 0.9)
    convert.convert(Convert((flights.write(tmp_path / "b.mcap", rig),), tmp_path / "b.npz"))
    plain = npz.read(path)
    other = Dataset(plain.steps, plain.episodes, {"format": "replay"})
    npz.write(tmp_path / "other.npz", other)
    out = tmp_path / "out.npz"
    for args, why in (
        (Args(arm, "panda-reach", path, out), "is of go2, whose sensors are not those of panda"),
        (replace(FLOWN, data=tmp_path / "other.npz", out=out), "is no flight's"),
        (replace(FLOWN, data=path, out=path), "is there already"),
        (replace(FLOWN, data=tmp_path / "b.npz", out=out, most=0.1), "leaves nothing"),
        (replace(FLOWN, data=path, out=out, most=0.0), "a number above 0"),
        (replace(FLOWN, data=tmp_path / "none.npz", out=out), "there is no such file"),
    ):
        with pytest.raises(ValueError, match=why):
            flown.main(args)
    assert not out.exists()
