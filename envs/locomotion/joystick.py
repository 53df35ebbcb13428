"""A quadruped that walks as a joystick says: so fast forward, so fast sideways, turning so fast.

Observation, reward, randomisation and timing are those of MuJoCo Playground's Go1 joystick task
(Zakka et al. 2025, arXiv:2502.08844), but that the robot is told the action it gave last, not the
one before.  With `measured` the policy sees only what the robot measures.
"""

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
from tyro.conf import Suppress

from envs.disturb import Disturbance
from envs.disturb import Steps as Delay
from envs.locomotion import commands, curriculum, symmetry
from envs.locomotion.commands import COMMAND
from envs.locomotion.curriculum import Context
from envs.locomotion.factors import factors, mirror
from envs.locomotion.legged import (
    CONTROL_DT,
    ROBOTS,
    Legged,
    Memory,
    Robot,
    blank_memory,
    turned,
    within,
)  # fmt: skip
from envs.locomotion.push import Push, Pushes
from envs.locomotion.sim_to_real import PLAYGROUND
from envs.locomotion.terrain import FIELD, Plane, Steps
from envs.locomotion.walking import Gait, Weights, standing, terms, tracking
from envs.randomise import Ranges
from envs.task import ParamsByField, Readings, Start, Task, TaskSpec
from rl.mirror import SAME, VECTOR, Mirror, joined
from rl.types import Array, Key, Metrics, Obs


class Episode(NamedTuple):
    action: Array  # [12] the last
    command_steps: Array  # [] int32 until a new command
    gait: Gait
    push: Push | tuple[()]
    context: Context  # with the level that was drawn
    factors: Array | tuple[()]  # [n] how this robot differs
    steps: Array  # [] int32
    tracked: Array  # [] sum over them of how well commands were followed, each in [0, 1]
    before: Array | tuple[()] = ()  # [12] the action before the last, where targets come late


@dataclass(frozen=True)
class Joystick(Task):
    """Fields are flags: `--env.noise 0`."""

    robot: Suppress[Robot] = "go1"  # which, the name of a task says
    ground: Suppress[Literal["flat", "rough"]] = "flat"
    measured: bool = False  # the policy sees what the robot measures: not its own velocity
    omniscient: bool = False  # the policy sees all that the critic does: a teacher, for no robot
    history: int = 1  # frames of it that the policy sees
    embodied: bool = False  # it is told which robot it has, for a policy of several
    playground_timing: bool = False  # told the action before the last, and of a substep before
    action_scale: float = 0.5  # rad
    timestep: float = 0.004  # s, of physics
    noise: float = 1.0  # of the readings, x Playground's
    randomised: float = 0.0  # share of `ranges` to draw from
    ranges: Ranges = PLAYGROUND
    pushes: Pushes = Pushes()
    reading_delay: Delay = (0, 0)  # control steps, drawn per episode
    target_delay: Delay = (0, 0)
    curriculum_on: bool = False  # learn from little to all that may be asked, as it is mastered
    level: int = -1  # of rough ground; -1: any
    weights: Weights = Weights()

    def __post_init__(self) -> None:
        if self.history < 1:
            raise ValueError(f"history is {self.history}; a policy sees at least 1 frame.")
        if not -1 <= self.level <= (most := self.legged.terrain.levels - 1):
            raise ValueError(f"level is {self.level}; {self.ground} ground has 0 to {most}, or -1.")
        self.legged.check(self.action_scale, self.ranges.scaled(self.randomised))
        Disturbance(reading_delay=self.reading_delay, target_delay=self.target_delay)

    @cached_property
    def legged(self) -> Legged:
        terrain = Plane() if self.ground == "flat" else Steps()
        return Legged(ROBOTS[self.robot], terrain, timestep=self.timestep)

    @cached_property
    def spec(self) -> TaskSpec:
        command = tuple((name, unit, -most, most) for name, unit, most in COMMAND)
        when = "lagged" if self.playground_timing else "current"
        return self.legged.spec(self.measured, command, derived=when, omniscient=self.omniscient)

    @property
    def disturbance(self) -> Disturbance:
        return Disturbance(
            jitter=self.legged.noise(self.noise, self.measured),
            reading_delay=self.reading_delay, target_delay=self.target_delay,
        )  # fmt: skip

    @property
    def mirror(self) -> Mirror:
        frame = symmetry.frame(self.measured)
        told = symmetry.truths(self.ground), symmetry.LEGS, symmetry.FOOT_VECTORS, symmetry.LEGS
        drawn = mirror(jax.eval_shape(self._drawn, jax.random.key(0)))
        late = (symmetry.JOINTS,) * bool(self.target_delay[1])
        which = (SAME,) * (len(ROBOTS) * self.embodied)
        critic = joined(frame, symmetry.COMMAND, *which, *told, VECTOR, SAME, *drawn, *late)
        seen = *[frame] * self.history, symmetry.COMMAND, *which
        policy = critic if self.omniscient else joined(*seen)
        return Mirror({"policy": policy, "critic": critic}, symmetry.JOINTS)

    def model(self) -> mujoco.MjModel:
        return self.legged.model

    def whole(self) -> mujoco.MjModel:
        return replace(self.legged, touching="all").model

    def dressed(self, meshes: Path) -> mujoco.MjModel:
        return self.legged.dressed(meshes)

    def context(self) -> Context:
        return Context(jnp.int32(self.level), jnp.float32(1))

    def beginner(self) -> Context:
        if not self.curriculum_on:
            return self.context()
        return Context(jnp.int32(max(self.level, 0)), jnp.float32(curriculum.LEAST))

    def memory(self) -> Memory:
        return blank_memory(self.history, 42 if self.measured else 45)

    def reset(self, key: Key, context: Context) -> Start:
        keys = jax.random.split(key, 8)
        anywhere = jax.random.randint(keys[0], (), 0, self.legged.terrain.levels)
        level = jnp.where(context.level < 0, anywhere, context.level)
        pose, push = jnp.array(self.legged.pose), self.pushes.draw(keys[5])
        spread = 0.5 if self.ground == "flat" else FIELD / 2
        middle = self.legged.terrain.middle(level)
        at = middle + jax.random.uniform(keys[1], (2,), minval=-spread, maxval=spread)
        quat = turned(jax.random.uniform(keys[2], minval=-3.14, maxval=3.14))
        height = self.legged.robot.height + self.legged.ground_below(at)
        jolt = jax.random.uniform(keys[3], (6,), minval=-0.5, maxval=0.5)
        params = self._drawn(keys[7])
        episode = Episode(
            jnp.zeros(12), commands.hold(keys[6]), standing(), push if self.pushes else (),
            Context(level, context.reach), factors(self.model(), params), jnp.int32(0),
            jnp.float32(0), jnp.zeros(12) if self.target_delay[1] else (),
        )  # fmt: skip
        return Start(
            qpos=jnp.concatenate([at, height[None], quat, pose]),
            qvel=jnp.concatenate([jolt, jnp.zeros(12)]),
            params=params,
            command=commands.draw(keys[4], context.reach),
            memory=self.memory(),
            episode=episode,
            inputs=self._inputs(episode),
        )

    def observe(self, readings: Readings, command: Array, memory: Memory) -> tuple[Obs, Memory]:
        told = memory.before if self.playground_timing else memory.action
        frame = self.legged.frame(readings, told, self.measured)
        which = [jnp.float32([self.robot == name for name in ROBOTS])] * self.embodied
        if self.history == 1:
            return jnp.concatenate([frame, command, *which]), memory
        frames = jnp.concatenate([frame[None], memory.history])
        obs = jnp.concatenate([frames.ravel(), command, *which])
        return obs, memory._replace(history=frames[:-1])

    def control(self, action: Array, readings: Readings, memory: Memory) -> tuple[Array, Memory]:
        action = within(action)
        targets = jnp.asarray(self.legged.pose) + self.action_scale * action
        return targets, memory._replace(action=action, before=memory.action)

    def privileged(self, raw: Readings, obs: Obs, episode: Episode) -> Obs:
        push = self._kick(episode) if episode.push else jnp.zeros(3)
        kicked = episode.push.on if episode.push else False
        size = len(COMMAND) + len(ROBOTS) * self.embodied
        frame, rest = obs[: (len(obs) - size) // self.history], obs[-size:]
        return jnp.concatenate([  # which needs no history: it knows
            frame, rest, self.legged.truths(raw), self.legged.around(raw), episode.gait.contact,
            self.legged.feet(raw).velocity.ravel(), episode.gait.air_time, push,
            jnp.float32(kicked)[None], *jax.tree.leaves((episode.factors, episode.before)),
        ])  # fmt: skip

    def advance(
        self, key: Key, raw: Readings, action: Array, command: Array, episode: Episode
    ) -> tuple[Array, Episode, dict[str, Array]]:
        command_key, hold_key, push_key = jax.random.split(key, 3)
        left = episode.command_steps - 1
        new = commands.following(command_key, command, episode.context.reach)
        command = jnp.where(left <= 0, new, command)
        if self.ground == "rough":  # whose field ends
            at = self.legged.terrain.middle(episode.context.level)
            command = commands.homeward(command, raw, at, FIELD / 2, episode.context.reach)
        episode = episode._replace(
            action=within(action),
            before=episode.action if self.target_delay[1] else (),
            command_steps=jnp.where(left <= 0, commands.hold(hold_key), left),
            gait=episode.gait.advance(self.legged.feet(raw)),
            push=self.pushes.advance(push_key, episode.push, CONTROL_DT) if episode.push else (),
            steps=episode.steps + 1,
            tracked=episode.tracked + tracking(raw, command)[0],
        )
        return command, episode, self._inputs(episode)

    def reward(
        self, before: Readings, after: Readings, action: Array, command: Array, episode: Episode
    ) -> tuple[Array, Metrics]:
        parts, weights = self.terms(after, action, command, episode), asdict(self.weights)
        total = sum(weights[name] * x for name, x in parts.items())
        off = (command - jnp.append(after["velocity"][:2], after["gyro"][2])) ** 2
        # Squares, (m/s)^2 and (rad/s)^2: their means have roots to report.
        metrics = parts | {"velocity_error2": off[:2].sum(), "turn_error2": off[2]}
        return jnp.clip(total * CONTROL_DT, 0, 1e4), metrics

    def terms(self, raw: Readings, action: Array, command: Array, episode: Episode) -> Metrics:
        """Each term of the reward [], before the weight of its name; other tasks may have more."""
        change, fell = within(action) - episode.action, self.terminated(raw, episode)
        return terms(self.legged, raw, change, command, episode.gait, fell)

    def terminated(self, raw: Readings, episode: Episode) -> Array:
        return raw["upright"][2] < 0

    def curriculum(
        self, key: Key, context: Context, episode: Episode, terminated: Array
    ) -> Context:
        if not self.curriculum_on:
            return context
        tracked, levels = episode.tracked / episode.steps, self.legged.terrain.levels
        after = curriculum.following(key, episode.context, tracked, terminated, levels)
        return after if self.level < 0 else after._replace(level=context.level)

    def _drawn(self, key: Key) -> ParamsByField:
        return self.ranges.scaled(self.randomised).draw(key, self.model(), "trunk", "ground")

    def _inputs(self, episode: Episode) -> dict[str, Array]:
        if not episode.push:
            return {}
        force = jnp.zeros((self.model().nbody, 6)).at[self.model().body("trunk").id, :3]
        return {"xfrc_applied": force.set(self._kick(episode))}

    def _kick(self, episode: Episode) -> Array:
        """Force [3], N."""
        assert isinstance(episode.push, Push)
        return episode.context.kicks * self.pushes.force(episode.push, self.legged.mass)
