"""A run's policy as an artefact that a robot runs: written with every checkpoint."""

from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from envs import World
from envs.simulation import Simulation
from rl import export, processes, record, rollout
from rl.policy import Policy
from rl.rollout import Worlds
from rl.spec import Spec
from rl.types import Array, Key, Params, PyTree, Readings

GOLDEN = 16  # ticks that every runtime must reproduce


WORLDS = 16  # of which the golden vectors of an artefact are, where nobody learns


def acted(env: Simulation, policy: Policy, params: Params) -> Worlds:
    """Worlds in which a policy has acted for a while."""

    def some(params: Params, key: Key) -> Worlds:
        worlds = rollout.start(env, policy, params, key, WORLDS)
        return rollout.collect(env, policy, params, worlds, key, min(WORLDS, env.horizon))[0]

    return jax.jit(some)(params, jax.random.key(0))


def prompt(agent: Any) -> Any:
    """`agent`, and what it is above, as a robot runs it: plans are late there by themselves, and
    not by what a simulation draws (Chunks.late)."""
    if not is_dataclass(agent):
        return agent
    own: Any = agent  # a student's chunks are its base's
    if hasattr(chunks := vars(own).get("chunks"), "late"):
        own = replace(own, chunks=replace(chunks, late=0))
    return replace(own, base=prompt(own.base)) if "base" in vars(own) else own


class Deployer:
    """Writes the artefacts of the policies that train in `env`, if a robot could run them."""

    def __init__(self, env: World, policy: Policy, name: str) -> None:
        self.env: Any = env
        self.policy, self.name = policy, name
        self.exporter: export.Exporter | None = None

    def write(self, log: record.Record, params: Params, worlds: Worlds) -> None:
        """An artefact of each seed: leaves [seeds, ...], and [seeds, N, ...] of the worlds."""
        if not possible(self.env):
            return
        sims = processes.gathered(worlds.state.sim)
        if not processes.first():
            return
        for i, seed in enumerate(log.manifest["seeds"]):
            mine, sim = jax.device_get(jax.tree.map(lambda x, i=i: x[i], (params, sims)))
            # Of worlds in mid-episode, as if they were ticks: golden vectors of all that happens.
            asked = sim.command if self.env.task.spec.command else np.zeros((1, 0))
            seen = {n: _ticks(x) for n, x in sim.told.items()}, _ticks(asked)
            self.exporter = self.exporter or self._exporter(mine)
            made = self.exporter.artefact(mine, *seen)
            path = artefact_of(log.out, seed)
            log.attempt(path.name, lambda path=path, made=made: made.write(path))

    def _exporter(self, params: Params) -> export.Exporter:
        task, spec = self.env.task, spec_of(self.env, self.name)
        carry = task.memory(), self.policy.init(params), jnp.int32(0)
        return export.Exporter(spec, task.whole(), self._step, params, carry)

    def _step(
        self, params: Params, carry: PyTree, readings: Readings, command: Array
    ) -> tuple[Array, PyTree]:
        """What the simulation does between its readings and its targets."""
        memory, inner, tick = carry
        obs, memory = self.env.task.observe(readings, command, memory)
        # What a policy draws is another thing at each tick, and the same in each episode.
        key = jax.random.fold_in(jax.random.key(0), tick)
        action, inner, _ = self.policy.step(params, inner, obs, key)
        targets, memory = self.env.task.control(action, readings, memory)
        return targets, (memory, inner, tick + 1)


def possible(env: World) -> bool:
    """A policy of it reads named sensors alone, and its motors' speeds are known."""
    if not isinstance(env, Simulation):
        return False
    spec = env.task.spec
    unknown = {*spec.fields} - {*spec.privileged}
    return bool(spec.sensors and spec.speeds) and not (unknown or spec.cameras or spec.omniscient)


def spec_of(env: Simulation, name: str) -> Spec:
    """What a policy of it reads and writes on a robot."""
    task: Any = env.task
    public = [name for name in task.spec.sensors if name not in task.spec.privileged]
    # What an arm's motors are told depends on where its joints are.
    start = export.readings(task.model(), public)
    rest, _ = task.control(jnp.zeros(env.action_dim), start, task.memory())
    return Spec(
        name=name,
        sensors=export.sensors(task.model(), public),
        actuators=export.actuators(
            task.model(),
            task.spec.actuators,
            public,
            rest.tolist(),
            task.spec.speeds,
            task.spec.accelerations,
            task.spec.torque_rates,
        ),
        command=export.channels(task.spec.command),
        control_dt=task.spec.control_dt,
        physics_dt=float(task.model().opt.timestep),
        max_tilt=task.spec.max_tilt,
    )


def artefact_of(run: Path, seed: int) -> Path:
    return run / f"artefact-{seed}.zip"


def _ticks(x: Any) -> np.ndarray:
    return np.resize(np.asarray(x, np.float32), (GOLDEN, *np.shape(x)[1:]))
