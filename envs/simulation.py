"""An environment is a task on a physics: `Simulation(task, physics)` keeps rl/env.py's contract."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer

from envs.disturb import Disturbance, Disturbed
from envs.task import Physics, Readings, Start, Task
from rl.env import Restarts, State
from rl.types import Array, Key, Metrics, Obs, PyTree

MOST_QVEL = 1_000.0  # m/s or rad/s at which an episode may begin


class Sim(NamedTuple):
    """What an episode of a simulated task carries."""

    data: Any  # the physics' own
    params: dict[str, Array]  # randomised model fields and what follows from them
    command: PyTree
    memory: PyTree
    episode: PyTree
    inputs: dict[str, Array]  # of the next step: pushes
    told: Readings  # what the robot was told last
    disturbed: Disturbed | tuple[()]


@dataclass(frozen=True, eq=False)
class Simulation:
    """`task` stepped by `physics`, with what `disturbance` puts between them."""

    task: Task
    physics: Physics
    horizon: int
    disturbance: Disturbance | None = None

    @property
    def action_dim(self) -> int:
        return len(self.task.spec.actions or self.task.spec.actuators)

    @property
    def control_dt(self) -> float:
        return self.task.spec.control_dt

    @property
    def backend(self) -> str:
        """What steps it, to a record."""
        return type(self.physics).__name__.lower()

    @property
    def restarts(self) -> Restarts:
        return "prepared" if self.physics.dear_resets else "few"

    def reset(self, key: Key, context: PyTree = None) -> State:
        context = self.task.context() if context is None else context
        start_key, key = jax.random.split(key)
        start = self._start(start_key, context)
        return self._begin(start, context, key, self.task.spec.settle)

    def reset_to(self, key: Key, qpos: Array, qvel: Array, command: PyTree = None) -> State:
        """A fresh episode that begins at `qpos` [nq] and `qvel` [nv], all else drawn as ever, or
        is asked for `command`.

        Raises ValueError where the task cannot begin so, if numbers are known: under jit and vmap
        they are not, and what is asked for is taken.
        """
        context, (start_key, key) = self.task.context(), jax.random.split(key)
        start = self._start(start_key, context)
        _require_shape("qpos", qpos, start.qpos.shape)
        _require_shape("qvel", qvel, start.qvel.shape)
        start = start._replace(
            qpos=jnp.asarray(qpos, start.qpos.dtype), qvel=jnp.asarray(qvel, start.qvel.dtype)
        )
        if command is not None:
            command = jnp.asarray(command) if isinstance(start.command, jax.Array) else command
            jax.tree.map(lambda x, y: _require_shape("command", x, y.shape), command, start.command)
            start = start._replace(command=jax.tree.map(jnp.float32, command))
        asked = start.qpos, start.command
        if not any(isinstance(x, Tracer) for x in jax.tree.leaves((asked, start.qvel))):
            if not jnp.isfinite(start.qvel).all():
                raise ValueError("The qvel has numbers that are not finite.")
            if (most := float(jnp.abs(start.qvel).max(initial=0))) > MOST_QVEL:
                raise ValueError(f"The qvel has {most:g}: no world lives beyond {MOST_QVEL:g}.")
            self.task.check_start(*jax.device_get(asked))
        return self._begin(start, context, key, settle=0)

    def restart(self, state: State, prepared: State | None = None) -> State:
        context = self._next(state)
        if prepared is not None:
            return self.select(state.done, prepared._replace(context=context), state)
        start_key, key = jax.random.split(state.key)
        start = self._start(start_key, context, state.done)
        data = self.physics.reset(
            state.sim.data, state.done, start.qpos, start.qvel, start.params,
            self.task.spec.settle, start.ctrl,
        )  # fmt: skip
        return self.select(state.done, self._first(data, start, context, key), state)

    def select(self, done: Array, fresh: State, state: State) -> State:
        return jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, state)

    def step(self, state: State, action: Array) -> State:
        task, sim = self.task, state.sim
        _require_shape("action", action, (self.action_dim,))
        key, sense_key, advance_key = jax.random.split(state.key, 3)
        before = self.physics.read(sim.data)
        targets, memory = task.control(action, sim.told, sim.memory)
        disturbed = sim.disturbed
        if self.disturbance:
            targets, disturbed = self.disturbance.actuate(disturbed, targets)
        data = self.physics.step(sim.data, sim.inputs | {"ctrl": targets}, sim.params)
        raw = self.physics.read(data)
        reward, metrics = task.reward(before, raw, action, sim.command, sim.episode)
        # An action that is no number may reach the world a step later.
        failed = self.physics.failed(data) | ~jnp.isfinite(reward)
        terminated = task.terminated(raw, sim.episode) & ~failed
        command, episode, inputs = task.advance(advance_key, raw, action, sim.command, sim.episode)
        told, disturbed = self._sense(disturbed, sense_key, raw)
        obs, memory = self._observe(told, raw, command, memory, episode)
        t = state.t + 1
        return State(
            sim=Sim(data, sim.params, command, memory, episode, inputs, told, disturbed),
            context=state.context,
            # A world that blew up kept its last good state: the episode ends there, unrewarded.
            obs=jax.tree.map(lambda new, old: jnp.where(failed, old, new), obs, state.obs),
            reward=jnp.where(failed, 0.0, reward).astype(jnp.float32),
            terminated=terminated,
            truncated=(t >= self.horizon) | failed,
            metrics=_metrics(metrics, failed) | self.physics.marks(data),
            t=t,
            key=key,
        )

    def _next(self, state: State) -> PyTree:
        key = jax.random.fold_in(state.key, 2)  # 0 and 1 are the halves of a split
        return self.task.curriculum(key, state.context, state.sim.episode, state.terminated)

    def _start(self, key: Key, context: PyTree, needed: Array | bool = True) -> Start:
        start = self.task.reset(key, context)
        return start._replace(params=self.physics.constants(start.params, jnp.asarray(needed)))

    def _begin(self, start: Start, context: PyTree, key: Key, settle: int) -> State:
        data = self.physics.reset(
            self.physics.blank(), jnp.bool(True), start.qpos, start.qvel, start.params, settle,
            start.ctrl,
        )  # fmt: skip
        return self._first(data, start, context, key)

    def _first(self, data: Any, start: Start, context: PyTree, key: Key) -> State:
        """The state of a new episode whose physics stands at its start."""
        key, disturb_key, sense_key = jax.random.split(key, 3)
        raw, disturbed = self.physics.read(data), ()
        if self.disturbance:
            public = self._public(raw)
            self.disturbance.check(public)
            rest, _ = self.task.control(jnp.zeros(self.action_dim), public, start.memory)
            disturbed = self.disturbance.begin(disturb_key, public, rest)
        told, disturbed = self._sense(disturbed, sense_key, raw)
        obs, memory = self._observe(told, raw, start.command, start.memory, start.episode)
        shape = jax.eval_shape(
            self.task.reward, raw, raw, jnp.zeros(self.action_dim), start.command, start.episode
        )
        return State(
            sim=Sim(
                data, start.params, start.command, memory, start.episode, start.inputs, told,
                disturbed,
            ),
            context=context,
            obs=obs,
            reward=jnp.float32(0),
            terminated=jnp.bool(False),
            truncated=jnp.bool(False),
            metrics=_metrics(jax.tree.map(lambda x: jnp.zeros(x.shape), shape[1]), jnp.bool(False))
            | self.physics.marks(data),
            t=jnp.int32(0),
            key=key,
        )  # fmt: skip

    def _sense(
        self, disturbed: Disturbed | tuple[()], key: Key, raw: Readings
    ) -> tuple[Readings, Disturbed | tuple[()]]:
        if self.disturbance and isinstance(disturbed, Disturbed):
            return self.disturbance.sense(disturbed, key, self._public(raw))
        return self._public(raw), disturbed

    def _public(self, raw: Readings) -> Readings:
        """What a robot has of the readings."""
        return {name: x for name, x in raw.items() if name not in self.task.spec.privileged}

    def _observe(
        self, told: Readings, raw: Readings, command: PyTree, memory: PyTree, episode: PyTree
    ) -> tuple[Obs, PyTree]:
        obs, memory = self.task.observe(told, command, memory)
        privileged = self.task.privileged(raw, obs, episode)
        if privileged is not None and self.task.spec.omniscient:
            obs = privileged
        if privileged is not None:
            obs = (obs if isinstance(obs, dict) else {"policy": obs}) | {"critic": privileged}
        return obs, memory


def _require_shape(what: str, x: Array, shape: tuple[int, ...]) -> None:
    if jnp.shape(x) != shape:
        raise ValueError(
            f"The {what} has shape {jnp.shape(x)}; one world takes {shape}, vmap makes it many."
        )


def _metrics(metrics: Metrics, failed: Array) -> Metrics:
    alive = {name: jnp.where(failed, 0.0, x).astype(jnp.float32) for name, x in metrics.items()}
    return alive | {"failed": failed.astype(jnp.float32)}
