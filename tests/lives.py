"""Episodes in simulation, and what a bridge would have kept of them."""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import envs
from agents.sac import SAC
from experiments import explorer
from experiments.explorer import Explorer, flat
from rl import artefact, export, guided
from rl.bridge.checks import Reason
from rl.bridge.learn.outbox import LABEL
from rl.bridge.learn.steps import End, Step, pack
from rl.guided import Asked

UP = 4  # steps of 0.0125 m, to a goal
BRIDGE = bytes(16)
GOAL = np.array([0.5, 0.0, 0.3], np.float32)  # m
AGENT = SAC(hidden=(16,), critic_hidden=(16,))


@cache
def reach() -> Any:
    return envs.make("panda-reach", rewards="sparse")


def fresh(agent: Any) -> Any:
    """A state of who learns to reach."""
    return agent.init(jax.random.key(0), reach().reset(jax.random.key(0)).obs, jnp.zeros(3))


def explorer_at(path: Path, agent: Any = AGENT) -> artefact.Deployed:
    """A policy that learns to reach, whose artefact is written there."""
    env, params = reach(), agent.deploy(fresh(agent))
    act = agent.policy(explore=True, action_dim=env.action_dim)
    made = Explorer(env, act, explorer.scripted(env), "panda-reach", params)
    made.artefact(params).write(path)
    return artefact.deploy(artefact.read(path))


class Flight(NamedTuple):
    """An episode in simulation, and what a bridge would have kept of it."""

    steps: list[Step]
    seen: list[Any]  # observations, that after the last as well
    did: list[np.ndarray]
    targets: list[np.ndarray]  # that the robot was told
    wished: list[np.ndarray]  # that the simulation made of the same action
    success: list[bool]


def flown(policy: artefact.Deployed, count: int, acts: Any, goal: Any = None) -> Flight:
    """`acts` says of each step whether a human does, who goes up to a `goal`, m from where it is,
    if there is one."""
    env, spec = reach(), policy.spec
    step, rng = jax.jit(env.step), np.random.default_rng(0)
    control = jax.jit(env.task.control)
    policy.reset()
    state = jax.jit(env.reset)(jax.random.key(3))
    if goal is not None:
        tool = np.asarray(state.sim.told["tool_pos"])
        state = env.reset_to(jax.random.key(3), env.task.table.start(), np.zeros(9), tool + goal)
    flight = Flight([], [state.obs], [], [], [], [])
    for i in range(count):
        sim = state.sim
        human = rng.uniform(-1, 1, 3).astype(np.float32)
        human = np.array([0, 0, i < UP], np.float32) if goal else human
        readings = {s.name: np.asarray(sim.told[s.name]) for s in spec.sensors}
        asked = Asked(np.asarray(sim.command), human, bool(acts(i)), 5, i)
        told = guided.told(spec, policy.step(readings, guided.asked(asked)))
        action = human if acts(i) else told.action
        flight.targets.append(told.targets)
        flight.wished.append(np.asarray(control(jnp.asarray(action), sim.told, sim.memory)[0]))
        numbers = np.concatenate([readings[s.name] for s in spec.sensors])
        flight.steps.append(Step(
            1, i, 0.05 * i, numbers, asked.command, told.action, human, asked.human, True, False,
            told.done, 0, Reason(0), told.memory,
        ))  # fmt: skip
        state = step(state, jnp.asarray(action))
        flight.did.append(action)
        flight.seen.append(state.obs)
        flight.success.append(bool(state.metrics["success"] > 0))
    return flight


def records(steps: list[Step | End], first: int = 0) -> list[bytes]:
    return [LABEL.pack(BRIDGE, first + i) + pack(x) for i, x in enumerate(steps)]


def end(steps: list[Step], **more: Any) -> End:
    return End(1, steps[-1].period + 1, 9.0, Reason.ASKED, False)._replace(**more)


def readings(off: np.ndarray) -> dict[str, np.ndarray]:
    task = reach().task
    public = [name for name in task.spec.sensors if name not in task.spec.privileged]
    told = export.readings(task.model(), public)
    return told | {"tool_pos": (GOAL + off).astype(np.float32)}


@jax.jit
def remembered(offs: jax.Array) -> jax.Array:
    """What a robot remembers in each of such steps [T, M], told to stay."""
    task, still = reach().task, readings(np.zeros(3))

    def tick(memory: Any, off: jax.Array) -> Any:
        told = still | {"tool_pos": GOAL + off}
        _, after = task.observe(told, GOAL, memory)
        return task.control(jnp.zeros(3), told, after)[1], flat(memory)

    return jax.lax.scan(tick, task.memory(), offs)[1]
