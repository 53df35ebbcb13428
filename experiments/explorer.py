"""The artefact of a policy that learns on a robot: it explores, a human may act in its place, and
its weights change (rl/guided.py).
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from envs.simulation import Simulation
from experiments import deploy
from rl import export, norm, rollout
from rl.artefact import Artefact
from rl.bridge.learn import newer, weights
from rl.policy import Policy
from rl.residual import BASE
from rl.spec import Channel
from rl.types import Array, Key, Obs, Params, PyTree, Readings

STARTS = 4_000  # of episodes: hours of them


class Judge(Protocol):
    """Says of each step whether what is to be done is done, as it begins."""

    def init(self) -> PyTree: ...  # what it carries through an episode

    def step(self, carry: PyTree, readings: Readings, command: Array, obs: Obs) -> Any:
        """How sure it is [], 0 to 1, and the next carry."""
        ...


class Nobody:
    """No program says so."""

    def init(self) -> PyTree:
        return ()

    def step(self, carry: PyTree, readings: Readings, command: Array, obs: Obs) -> Any:
        return jnp.float32(0), carry


class Scripted:
    """The task's own success, where it is told by what a robot measures alone."""

    def __init__(self, env: Simulation) -> None:
        self.env = env

    def init(self) -> PyTree:
        return self.env.task.reset(jax.random.key(0), self.env.task.context()).episode

    def step(self, carry: PyTree, readings: Readings, command: Array, obs: Obs) -> Any:
        task, action = self.env.task, jnp.zeros(self.env.action_dim)
        asked = command if task.spec.command else ()
        _, metrics = task.reward(readings, readings, action, asked, carry)
        _, carry, _ = task.advance(jax.random.key(0), readings, action, asked, carry)
        return metrics["success"].astype(jnp.float32), carry


def scripted(env: Simulation) -> Judge:
    """The task's own success; ValueError where a robot does not measure it."""
    judge, task = Scripted(env), env.task
    told = export.readings(task.model(), list(task.spec.sensors))
    try:
        jax.eval_shape(judge.step, judge.init(), told, jnp.zeros(len(task.spec.command)), ())
    except KeyError as error:
        raise ValueError(
            f"Whether {type(task).__name__} is done nobody can tell on a robot, which does not "
            f"measure it ({error}): --success none, or a classifier."
        ) from error
    return judge


def step(env: Simulation, policy: Policy, judge: Judge) -> export.Step:
    """From readings and what rl/guided.py asks to what it tells."""
    count = len(env.task.spec.command)

    def run(params: Params, carry: PyTree, readings: Readings, asked: Array) -> Any:
        memory, inner, judged = carry
        remembered = flat(memory)
        command, human, (acts, *numbers) = jnp.split(asked, [count, count + env.action_dim])
        obs, memory = env.task.observe(readings, command, memory)
        key = drawn(*numbers)
        own, inner, more = policy.step(params, inner, obs, key)
        if isinstance(more, dict) and BASE in more:  # what is learned is learned above it
            remembered = jnp.concatenate([remembered, more[BASE]])
        action = jnp.where(acts > 0.5, human, own)
        targets, memory = env.task.control(action, readings, memory)
        done, judged = judge.step(judged, readings, command, obs)
        return jnp.concatenate([targets, own, done[None], remembered]), (memory, inner, judged)

    return run


def flat(memory: PyTree) -> Array:
    """What a task remembers, as numbers [M]."""
    leaves = [jnp.ravel(x).astype(jnp.float32) for x in jax.tree.leaves(memory)]
    return jnp.concatenate([jnp.zeros(0), *leaves])


def drawn(seed: Array, number: Array) -> Key:
    """By which a policy draws in a step."""
    key = jax.random.fold_in(jax.random.key(0), seed.astype(jnp.int32))
    return jax.random.fold_in(key, number.astype(jnp.int32))


class Explorer:
    """Makes artefacts of one policy, whose parameters change."""

    def __init__(
        self, env: Simulation, policy: Policy, judge: Judge, name: str, params: Params
    ) -> None:
        """ValueError where the task is none of a robot's."""
        if not deploy.possible(env):
            raise ValueError(
                f"{name} reads what no robot measures, so no robot can learn it: train it in "
                "simulation, or take a task of an arm or a Go2."
            )
        self.env, self.policy = env, policy
        names = env.task.spec.actions or env.task.spec.actuators
        channels = tuple(Channel(name, "1", -1.0, 1.0) for name in names)
        carry = env.task.memory(), policy.init(params), judge.init()
        run = step(env, policy, judge)
        spec = replace(deploy.spec_of(env, name), action=channels)
        told = export.readings(env.task.model(), [sensor.name for sensor in spec.sensors])
        answer, _ = jax.eval_shape(run, params, carry, told, jnp.zeros(spec.asked))
        spec = replace(spec, memory=answer.size - len(spec.actuators) - len(channels) - 1)
        self.exporter = export.Exporter(spec, env.task.whole(), run, params, carry)

    def artefact(self, params: Params) -> Artefact:
        """That of `params`, its golden vectors made of what they see and do in simulation."""
        readings, asked = jax.jit(self._seen)(params)
        return self.exporter.artefact(params, *jax.device_get((readings, asked)))

    def _seen(self, params: Params) -> tuple[Readings, Array]:
        """Readings and what is asked, of an episode's first ticks: a human acts in every other."""
        env, count = self.env, min(deploy.GOLDEN, self.env.horizon)
        begin, key = jax.random.split(jax.random.key(0))

        def tick(worlds: Any, key: Key) -> Any:
            sim = worlds.state.sim
            asked = sim.command[0] if env.task.spec.command else jnp.zeros(0)
            told = {n: sim.told[n][0] for n in env.task.spec.sensors if n in sim.told}
            worlds, *_ = rollout.collect(env, self.policy, params, worlds, key, 1)
            return worlds, (told, asked)

        worlds = rollout.start(env, self.policy, params, begin, 1)
        _, (told, asked) = jax.lax.scan(tick, worlds, jax.random.split(key, count))
        human = jax.random.uniform(key, (count, env.action_dim), minval=-1, maxval=1)
        rest = jnp.stack([jnp.arange(count) % 2, jnp.full(count, 7), jnp.arange(count)], 1)
        public = {n: x for n, x in told.items() if n not in env.task.spec.privileged}
        return public, jnp.concatenate([asked, human, rest], 1).astype(jnp.float32)


def written(
    path: Path, agent: Any, env: Simulation, judge: Judge, name: str, params: Params, run: str
) -> None:
    """Write what robots practise with for a run: an agent's policy, as it begins."""
    policy = agent.policy(explore=True, action_dim=env.action_dim)
    made = Explorer(env, policy, judge, name, params).artefact(params)
    replace(made, run=run).write(path)


def starts(env: Simulation, path: Path, seed: int) -> None:
    """Write where a simulated robot's episodes begin, as the task draws them, for `rl.bridge sim`:
    qpos [STARTS, nq] and qvel [STARTS, nv]."""
    keys, context = jax.random.split(jax.random.key(seed), STARTS), env.task.context()
    found = jax.jit(jax.vmap(lambda key: env.task.reset(key, context)))(keys)
    part = path.with_suffix(".partial.npz")
    np.savez(part, qpos=np.asarray(found.qpos), qvel=np.asarray(found.qvel))
    part.replace(path)


def leaves(params: Params) -> list[np.ndarray]:
    """Parameters as an artefact has them, and weights that come after it."""
    return jax.tree.leaves(jax.device_get(params))


def publish(params: Params, folder: Path) -> None:
    """Have robots act by these parameters, whose folder of weights is there."""
    before = weights.newest(folder, 0)
    found = jax.tree.leaves(params, is_leaf=lambda x: isinstance(x, norm.Stats))
    moments = [isinstance(x, norm.Stats) for x in found for _ in jax.tree.leaves(x)]
    told = newer.Leaves(leaves(params), np.flatnonzero(moments).tolist())
    weights.publish(folder, 1 + (before.version if before else 0), newer.pack(told))
