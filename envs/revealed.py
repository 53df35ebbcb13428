"""An environment that also shows what its observations are made of.

For who needs more than a policy sees: experts that are programs, hindsight that asks what would
have been seen and earned under another command, and writers of data.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from envs.simulation import Simulation
from envs.task import Readings, Task
from rl import buffer
from rl.buffer import Buffer
from rl.env import Sized, State
from rl.types import Array, Key, Obs, PyTree, Transition, view

WORLD = "world"  # the entry of an observation: no view of policy or critic has it


class World(NamedTuple):
    """What the last control step left behind."""

    told: Readings  # what the robot was told
    raw: Readings  # what is
    command: PyTree
    memory: PyTree
    episode: PyTree


@dataclass(frozen=True, eq=False)
class Revealed(Sized):
    """`env` with a `World` in its observations."""

    env: Simulation

    @property
    def task(self) -> Task:
        return self.env.task

    def reset(self, key: Key, context: PyTree = None) -> State:
        return self._with(self.env.reset(key, context))

    def step(self, state: State, action: Array) -> State:
        return self._with(self.env.step(self._without(state), action))

    def restart(self, state: State, prepared: State | None = None) -> State:
        prepared = None if prepared is None else self._without(prepared)
        return self._with(self.env.restart(self._without(state), prepared))

    def select(self, done: Array, fresh: State, state: State) -> State:
        return self._with(self.env.select(done, self._without(fresh), self._without(state)))

    def _with(self, state: State) -> State:
        sim = state.sim
        raw = self.env.physics.read(sim.data)
        world = World(sim.told, raw, sim.command, sim.memory, sim.episode)
        obs = state.obs if isinstance(state.obs, dict) else {"policy": state.obs}
        return state._replace(obs=obs | {WORLD: world})

    def _without(self, state: State) -> State:
        return state._replace(obs=hidden(state.obs))


def hidden(obs: Obs) -> Obs:
    """The observation as it is without a `World`."""
    left = {name: x for name, x in obs.items() if name != WORLD}
    return left["policy"] if [*left] == ["policy"] else left


def relabelled(task: Task, seen: Transition, command: PyTree) -> Transition:
    """A transition [], as it would have been had `command` been asked.

    The rest of its episode is thought to have gone as it did: true of goals, by which nothing moves
    but who is told of them.
    """
    before, after = seen.obs[WORLD], seen.next_obs[WORLD]
    reward, _ = task.reward(before.raw, after.raw, seen.action, command, before.episode)

    def shown(obs: Obs) -> Obs:
        world = obs[WORLD]._replace(command=command)
        policy = view(task.observe(world.told, command, world.memory)[0], "policy")
        return obs | {"policy": policy, WORLD: world}

    return seen._replace(obs=shown(seen.obs), reward=reward, next_obs=shown(seen.next_obs))


def in_hindsight(
    task: Task, replay: Buffer, key: Key, count: int, length: int, share: float, most: int
) -> Transition:
    """Windows [count, length, ...] of a replay of what was `Revealed`, without it.

    In a `share` of them the command is what was achieved at a later step of the same episode, of at
    most so many (Andrychowicz et al. 2017, arXiv:1707.01495: "future", share k / (k + 1)).
    """
    at_key, later_key, share_key = jax.random.split(key, 3)
    at = buffer.places(replay, at_key, count, length)
    seen = buffer.windows(replay, at, length)
    then = buffer.windows(replay, buffer.later(replay, later_key, at, most))
    raw = then.next_obs[WORLD].raw
    goal = jnp.concatenate([raw[name][:, 0, :size] for name, size in task.spec.achieved], 1)
    change = jax.random.uniform(share_key, (count,)) < share
    window = jax.vmap(lambda step, goal: relabelled(task, step, goal), (0, None))
    other = jax.vmap(window)(seen, goal)

    def pick(new: Array, old: Array) -> Array:
        return jnp.where(change.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return without_world(jax.tree.map(pick, other, seen))


def without_world(seen: Transition) -> Transition:
    return seen._replace(obs=hidden(seen.obs), next_obs=hidden(seen.next_obs))
