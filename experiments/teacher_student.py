"""From a teacher that knows everything to a student that a robot can run.

python -m experiments.walk --env go2-joystick-flat --env.omniscient --out runs/teacher
python -m experiments.teacher_student --env go2-joystick-flat --env.history 10

The teacher saw friction, masses and its own velocity; the student sees a history of what the robot
measures, acts, and learns what the teacher would have done in its place (agents/dagger.py).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import tyro

import envs
from agents.dagger import DAgger
from envs import checks
from envs.simulation import Simulation
from experiments import cli, host, play
from experiments.course import Course, Plan, Run
from rl import parallel, resources, rollout
from rl.policy import Policy
from rl.types import Array, Key, Metrics, Obs, Params

PHASES = 100  # at most this many looks of the host
MOST_PER_PHASE = 16  # iterations


@dataclass(frozen=True)
class Args(host.Args):
    env: Any = field(default_factory=lambda: envs.make_task("go2-joystick-flat", history=10))
    env_name: tyro.conf.Suppress[str] = "go2-joystick-flat"
    teacher: Path = Path("runs/teacher")  # a run of PPO on the same task with --env.omniscient
    steps: int = 3_000_000
    num_envs: int = 256
    unroll: int = 24  # steps of each world per iteration
    guided: float = 0.2  # share of the steps during which teacher and student take turns in acting
    out: Path = Path("runs/student")
    agent: DAgger = DAgger()


Teacher = tuple[Policy, Params]


def taught(args: Args, env: Simulation, teacher: Policy) -> Policy:
    """The student's policy but, in the share of its steps that its parameters have last, the
    teacher's; aux is the teacher's."""
    student = args.agent.policy(explore=True, action_dim=env.action_dim)

    def step(params: Params, carry: Any, obs: Obs, key: Key) -> tuple[Array, Any, Array]:
        mine, theirs, share = params
        wanted, _, _ = teacher.step(theirs, (), {"policy": obs["critic"]}, key)
        action, carry, _ = student.step(mine, carry, obs, key)
        wanted = jnp.clip(wanted, -1, 1)
        return jnp.where(jax.random.uniform(key) < share, wanted, action), carry, wanted

    return Policy(init=lambda params: student.init(params[0]), step=step)


def begin(args: Args, env: Simulation, teacher: Teacher, key: Key) -> Run:
    agent_key, worlds_key, key = jax.random.split(key, 3)
    obs = jax.tree.map(jnp.zeros_like, env.reset(key).obs)
    learner = args.agent.init(agent_key, obs, jnp.zeros(env.action_dim))
    policy = taught(args, env, teacher[0])
    params = args.agent.deploy(learner), teacher[1], jnp.float32(1)
    context = args.env.beginner()
    worlds = parallel.start(args.shards, env, policy, params, worlds_key, args.num_envs, context)
    return Run(learner, worlds, key, jnp.int32(0))


def iterate(
    args: Args, env: Simulation, teacher: Teacher, run: Run
) -> tuple[Run, tuple[Metrics, rollout.Episodes]]:
    """Act for a while, and learn what the teacher would have done."""
    act_key, learn_key = jax.random.split(jax.random.fold_in(run.key, run.iteration))
    share = 1 - run.iteration / max(args.guided * math.prod(plan(args)), 1)
    policy = taught(args, env, teacher[0])
    params = args.agent.deploy(run.learner), teacher[1], share
    worlds, batch, episodes = parallel.collect(
        args.shards, env, policy, params, run.worlds, act_key, args.unroll
    )
    learner, metrics = args.agent.update(run.learner, batch, learn_key, args.shards)
    return Run(learner, worlds, run.key, run.iteration + 1), (metrics, episodes)


def phase(args: Args, env: Simulation, teacher: Teacher, run: Run) -> tuple[Run, Metrics]:
    """As many iterations as the host leaves alone."""
    step = lambda run, _: iterate(args, env, teacher, run)  # noqa: E731
    run, (metrics, episodes) = jax.lax.scan(step, run, length=plan(args).iterations)
    return run, jax.tree.map(jnp.mean, metrics) | episodes.means()


def plan(args: Any) -> Plan:
    total = -(-args.steps // (args.num_envs * args.unroll))
    return host.split(total, PHASES, MOST_PER_PHASE)


def course(args: Args, env: Simulation, teacher: Teacher) -> Course:
    """What the host is to train."""
    return Course(
        agent=args.agent,
        begin=partial(begin, args, env, teacher),
        phase=partial(phase, args, env, teacher),
        plan=plan(args),
        steps=lambda done: done * args.num_envs * args.unroll,
    )


def main(args: Args) -> None:
    env = host.simulated(args)
    teacher = teacher_of(args, env)
    host.train(check(args, env, teacher), env, lambda part: course(part, env, teacher))


def teacher_of(args: Args, env: Simulation) -> Teacher:
    """The teacher's policy and parameters; ValueError if it knows other things than `env` tells."""
    if env.task.spec.omniscient:
        raise ValueError("--env.omniscient is for a teacher: a student that knows all needs none.")
    theirs, policy, params = play.load(args.teacher)
    if not theirs.task.spec.omniscient:
        raise ValueError(f"{args.teacher} is no teacher: train it with --env.omniscient.")
    seen = [jax.eval_shape(x.reset, jax.random.key(0)).obs for x in (theirs, env)]
    if not all(isinstance(obs, dict) and "critic" in obs for obs in seen):
        raise ValueError(
            f"{args.env_name} tells a teacher no more than a student: give a task that does, as "
            "go2-joystick-flat."
        )
    knows, told = (obs["critic"].shape[0] for obs in seen)
    if knows != told:
        raise ValueError(
            f"The teacher {args.teacher} was told {knows} numbers, and this task has {told} to "
            "tell: give both one task with the same --env.randomised, .ranges and .measured."
        )
    checks.same_actions(f"The teacher {args.teacher}", theirs, env)
    return policy, params


def groups(args: Any, once: Callable[[Key], tuple[Any, Any]], robots: int = 1) -> list[Any]:
    """Seeds in groups that fit in memory, of the state before and after an iteration."""
    shapes = jax.eval_shape(once, jax.random.key(0))  # says what its batch is too small for
    obs = resources.size(shapes[0].worlds.state.obs) * args.unroll * robots
    return host.groups(
        args, 3 * resources.size(shapes[0]) + 4 * obs,
        f"{args.num_envs:,} worlds x {args.unroll} steps", "lower --num-envs or --unroll",
    )  # fmt: skip


def check(args: Args, env: Simulation, teacher: Teacher) -> list[Args]:
    """Refuse what makes no sense, before anything is made; seeds in groups that fit in memory."""
    cli.at_least(1, args, "steps", "seeds", "num_envs", "unroll", "eval_episodes")
    parallel.check(args.shards, num_envs=args.num_envs)
    cli.at_least(0, args, "evals", "save_s", "guided")

    def once(key: Key) -> Any:
        run = begin(args, env, teacher, key)
        return run, iterate(args, env, teacher, run)[0]

    return groups(args, once)


if __name__ == "__main__":
    cli.run(main, Args)
