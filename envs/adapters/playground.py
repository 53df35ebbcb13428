"""MuJoCo Playground's environments, by their names there: `playground:CheetahRun`."""

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import mujoco
import numpy as np

from envs import render
from envs.adapters.from_playground import FromPlayground
from envs.checks import known
from rl import rollout
from rl.mirror import Mirror
from rl.policy import Policy
from rl.types import Params, PyTree

PREFIX = "playground:"
IMPLS = {"mjx": "jax", "warp": "warp"}  # Playground's word for each physics that it has
DRAWN = mujoco.mjtState.mjSTATE_QPOS | mujoco.mjtState.mjSTATE_MOCAP_POS
DRAWN |= mujoco.mjtState.mjSTATE_MOCAP_QUAT


@dataclass(frozen=True)
class Playground:
    """An environment of MuJoCo Playground's registry; its config says how long episodes are."""

    id: str
    config_overrides: str = "{}"  # JSON, names with dots: {"episode_length": 500}

    @property
    def mirror(self) -> Mirror | None:
        return None

    def context(self) -> PyTree:
        return ()

    def beginner(self) -> PyTree:
        return ()

    def world(self, physics: str = "auto") -> FromPlayground:
        """Its worlds on `physics`, "auto" being mjx; ValueError where there can be none."""
        if physics == "native":
            raise ValueError(
                f"{self.id} is stepped by mjx or warp, as MuJoCo Playground has it, and not by "
                "native: give another physics."
            )
        backend = known("physics", "mjx" if physics == "auto" else physics, [*IMPLS])
        env, length, repeat = _made(self, IMPLS[backend])
        if length < 1 or repeat < 1:
            raise ValueError(
                f"{self.id} has episodes of {length} steps, {repeat} for an action: give 1 or more."
            )
        return FromPlayground(env, self, backend, -(-length // repeat), repeat)

    def film(
        self, path: Path, env: FromPlayground, policy: Policy, params: Params, seconds: float
    ) -> str:
        """Write an episode as mp4, at most so many s of it; what to say."""
        steps = min(env.horizon, math.ceil(seconds / env.control_dt))

        def whole(key: jax.Array) -> Any:
            def tick(worlds: rollout.Worlds, key: jax.Array) -> Any:
                pose = jax.vmap(env.pose)(worlds.state)
                worlds, seen, _ = rollout.collect(env, policy, params, worlds, key, 1)
                return worlds, (pose, seen)

            start = rollout.start(env, policy, params, key, 1)
            return jax.lax.scan(tick, start, jax.random.split(key, steps))[1]

        poses, seen = jax.device_get(jax.jit(whole)(jax.random.key(0)))
        over = (seen.terminated | seen.truncated).ravel()
        length = int(over.argmax()) + 1 if over.any() else steps
        stride, fps = render.pace(env.control_dt)
        try:
            painter = render.spectator(env.theirs.mj_model)
            rows = poses[:length:stride, 0].astype(np.float64)
            render.write(path, np.stack([painter.paint(row, DRAWN) for row in rows]), fps)
        except render.CannotRender as error:
            return f"no video: {error}"
        return f"video    {path} (return {seen.reward.ravel()[:length].sum():.1f})"


def playground(id: str) -> Playground:
    """The environment that `id` names, as a command line or a record has it."""
    if not id.startswith(PREFIX) or not id.removeprefix(PREFIX).isidentifier():
        raise ValueError(f"{id} names no environment: playground:NAME does, as {PREFIX}CheetahRun.")
    return Playground(id)


@cache  # a model is compiled once
def _made(task: Playground, impl: str) -> tuple[Any, int, int]:
    """MuJoCo Playground's environment, how many of its steps an episode has, and how many an
    action is held for."""
    name, asked = task.id.removeprefix(PREFIX), _overrides(task)
    package = _module(task, "mujoco_playground", "playground")
    known("environment of MuJoCo Playground", name, package.registry.ALL_ENVS)
    if name not in package.dm_control_suite.ALL_ENVS:
        _require_menagerie(task)
    config = package.registry.get_default_config(name)
    for key in asked:
        _require_key(task, config, key)
    if "impl" in config:
        asked["impl"] = impl
    elif impl != "jax":
        raise ValueError(f"{task.id} has no choice of physics: give --physics mjx.")
    if impl == "warp":
        _module(task, "warp", "warp")
    try:
        env = package.registry.load(name, config, asked)
    except Exception as error:  # whatever it makes of a config
        text = " ".join(str(error).split())
        raise ValueError(f"{task.id} cannot be made: {type(error).__name__}: {text}.") from error
    return env, int(config.episode_length), int(config.get("action_repeat", 1))


def _module(task: Playground, name: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{task.id} needs the package {error.name}, which is not installed: "
            f"pip install 'robotrl[{extra}]'."
        ) from error


def _overrides(task: Playground) -> dict[str, Any]:
    """What is to be otherwise in its config, by names with dots."""
    try:
        asked = json.loads(task.config_overrides)
    except json.JSONDecodeError:
        asked = None
    if not isinstance(asked, dict):
        raise ValueError(
            f"config_overrides is {task.config_overrides!r}; it takes JSON as "
            f"{json.dumps({'episode_length': 500})}."
        )
    if "impl" in asked:
        raise ValueError("config_overrides has impl, which is --physics here: leave it out.")
    return asked


def _require_key(task: Playground, config: Any, key: str) -> None:
    """Raise ValueError unless `config` has the `key` [a.b.c]: it would take any."""
    for part in key.split("."):
        names = [*config.keys()] if hasattr(config, "keys") else []
        config = config[known(f"part of {key} in the config of {task.id}", part, names)]


def _require_menagerie(task: Playground) -> None:
    """Raise ValueError where its robot's model is not there: loading it would clone 2 GB."""
    theirs = import_module("mujoco_playground._src.mjx_env")
    if not theirs.MENAGERIE_PATH.exists():
        raise ValueError(
            f"{task.id} has its robot of MuJoCo Menagerie (2 GB), which is not there. With a "
            "network: git clone https://github.com/google-deepmind/mujoco_menagerie "
            f"{theirs.MENAGERIE_PATH} && git -C {theirs.MENAGERIE_PATH} checkout "
            f"{theirs.MENAGERIE_COMMIT_SHA}. Without: copy such a folder to that place, or link it."
        )
