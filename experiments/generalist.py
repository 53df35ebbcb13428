"""From specialists, one for each robot, to one policy of all that is told which robot it has.

python -m experiments.residual_walk --base runs/walk --env go2-joystick-flat --out runs/go2
python -m experiments.generalist --teachers runs/walk runs/go2

Specialists are what residuals have made of one base on each robot, or itself on its own, and are
distilled into one network (COMPASS: Liu et al. 2025, arXiv:2502.16372), which acts meanwhile
(agents/dagger.py).
"""

import math
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import tyro

import envs
from agents.dagger import DAgger
from envs import checks
from envs.locomotion.joystick import Joystick
from envs.locomotion.legged import ROBOTS
from envs.simulation import Simulation
from experiments import cli, host, play
from experiments.course import Course
from experiments.deploy import Deployer, acted
from experiments.teacher_student import groups, plan
from rl import manifest, parallel, rollout, runs
from rl.policy import Policy
from rl.record import Record
from rl.types import Array, Key, Metrics, Obs, Params, PyTree


@dataclass(frozen=True)
class Args(host.Args):
    env: Any = field(default_factory=lambda: envs.make_task("go1-joystick-flat", embodied=True))
    env_name: tyro.conf.Suppress[str] = "go1-joystick-flat"
    teachers: tuple[Path, ...] = ()  # runs, one for each robot, the first of that of --env
    steps: int = 3_000_000  # of all robots together
    num_envs: int = 256  # worlds, as many of each robot
    unroll: int = 24  # steps of each world per iteration
    guided: float = 0.2  # share of the steps during which teachers and student take turns
    out: Path = Path("runs/generalist")
    agent: DAgger = DAgger()


class Lesson(NamedTuple):
    """A robot, and who knows how it moves."""

    name: str  # of its task
    env: Simulation
    teacher: Policy  # that is not shown which robot it has
    params: Params


class Run(NamedTuple):
    """All that training carries."""

    learner: PyTree
    worlds: rollout.Worlds  # of the first robot
    others: tuple[rollout.Worlds, ...]
    key: Key
    iteration: Array  # [] int32


def taught(args: Args, lesson: Lesson) -> Policy:
    """The student's policy but, in the share of its steps that its parameters have last, the
    teacher's; aux is the teacher's."""
    student = args.agent.policy(explore=True, action_dim=lesson.env.action_dim)

    def init(params: Params) -> Any:
        return student.init(params[0]), lesson.teacher.init(params[1])

    def step(params: Params, carry: Any, obs: Obs, key: Key) -> tuple[Array, Any, Array]:
        turn_key, theirs_key, key = jax.random.split(key, 3)
        wanted, then, _ = lesson.teacher.step(params[1], carry[1], obs, theirs_key)
        action, after, _ = student.step(params[0], carry[0], obs, key)
        wanted = jnp.clip(wanted, -1, 1)
        action = jnp.where(jax.random.uniform(turn_key) < params[2], wanted, action)
        return action, (after, then), wanted

    return Policy(init, step)


def begin(args: Args, lessons: list[Lesson], key: Key) -> Run:
    agent_key, worlds_key, key = jax.random.split(key, 3)
    env = lessons[0].env
    obs = jax.tree.map(jnp.zeros_like, env.reset(key).obs)
    learner = args.agent.init(agent_key, obs, jnp.zeros(env.action_dim))
    keys = jax.random.split(worlds_key, len(lessons))
    first, *others = [started(args, learner, x, k) for x, k in zip(lessons, keys, strict=True)]
    return Run(learner, first, tuple(others), key, jnp.int32(0))


def started(args: Args, learner: PyTree, lesson: Lesson, key: Key) -> rollout.Worlds:
    """A robot's worlds, each somewhere in its episode's time."""
    policy, context = taught(args, lesson), lesson.env.task.beginner()
    params = args.agent.deploy(learner), lesson.params, jnp.float32(1)
    count = args.num_envs // len(args.teachers)
    worlds = parallel.start(args.shards, lesson.env, policy, params, key, count, context)
    return rollout.staggered(lesson.env, worlds, jax.random.fold_in(key, 0))


def iterate(args: Args, lessons: list[Lesson], run: Run) -> tuple[Run, Any]:
    """Act for a while as each robot, and learn what its specialist would have done."""
    act_key, learn_key = jax.random.split(jax.random.fold_in(run.key, run.iteration))
    share = 1 - run.iteration / max(args.guided * math.prod(plan(args)), 1)
    mine, keys = args.agent.deploy(run.learner), jax.random.split(act_key, len(lessons))
    each = [
        parallel.collect(
            args.shards, x.env, taught(args, x), (mine, x.params, share), now, k, args.unroll
        )
        for x, now, k in zip(lessons, (run.worlds, *run.others), keys, strict=True)
    ]
    worlds, batches, ends = zip(*each, strict=True)
    # What a critic sees differs between robots, and is not learned from.
    seen = [(x.obs["policy"], x.aux) for x in batches]
    obs, wanted = jax.tree.map(lambda *xs: jnp.concatenate(xs, 1), *seen)
    batch = batches[0]._replace(obs=obs, aux=wanted)
    learner, metrics = args.agent.update(run.learner, batch, learn_key, args.shards)
    return Run(learner, worlds[0], worlds[1:], run.key, run.iteration + 1), (metrics, ends)


def phase(args: Args, lessons: list[Lesson], run: Run) -> tuple[Run, Metrics]:
    """As many iterations as the host leaves alone."""
    step = lambda run, _: iterate(args, lessons, run)  # noqa: E731
    run, (metrics, ends) = jax.lax.scan(step, run, length=plan(args).iterations)
    told = [end.means() for end in ends]
    returns = {f"{x.name}_return": y["episode_return"] for x, y in zip(lessons, told, strict=True)}
    return run, jax.tree.map(jnp.mean, metrics) | told[0] | returns


def course(args: Args, lessons: list[Lesson]) -> Course:
    """What the host is to train."""
    return Course(
        agent=args.agent,
        begin=partial(begin, args, lessons),
        phase=partial(phase, args, lessons),
        plan=plan(args),
        steps=lambda done: done * args.num_envs * args.unroll,
        look=partial(conclude, args, lessons),
    )


def conclude(args: Args, lessons: list[Lesson], log: Record) -> None:
    """Say what specialists and generalist come to, and leave a run of each other robot."""
    _, _, params = play.load_all(log.out)
    told: dict[str, dict[str, float]] = {}
    for lesson in lessons:
        mine = args.agent.policy(False, lesson.env.action_dim)
        sides = {"specialist": (lesson.teacher, lesson.params), "generalist": (mine, params[0])}
        told[lesson.name] = {
            who: float(play.judge(lesson.env, *side, args.eval_episodes).mean())
            for who, side in sides.items()
        }
        said = ", ".join(f"{who} {x:.1f}" for who, x in told[lesson.name].items())
        print(f"{lesson.name}: {said}", flush=True)
    log.update(robots=told)
    for lesson in lessons[1:]:
        embody(args, lesson, params, log)


def embody(args: Args, lesson: Lesson, params: list[Params], log: Record) -> None:
    """The same policies as a run on another robot, which can be played and driven."""
    facts = {n: log.manifest[n] for n in ("algorithm", "seeds", "physics", "horizon", "control_dt")}
    config = replace(args, env=lesson.env.task, env_name=lesson.name)
    policy = args.agent.policy(False, lesson.env.action_dim)
    with Record(log.out / lesson.name, args.steps, env=lesson.name, config=config, **facts) as mine:
        every = stacked(params)
        mine.save(args.steps, every)
        worlds = stacked([acted(lesson.env, policy, one) for one in params])
        Deployer(lesson.env, policy, lesson.name).write(mine, every, worlds)
        mine.update(status="done")
        play.conclude(mine, args.eval_episodes, False)


def stacked(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *xs: jnp.stack(xs), *trees)


def lessons_of(args: Args, env: Simulation) -> list[Lesson]:
    """What each specialist can teach; ValueError where it is none of such a task."""
    if not getattr(args.env, "embodied", False):
        raise ValueError("A generalist is told which robot it has: give a joystick --env.embodied.")
    if len(args.teachers) < 2:
        raise ValueError("Name at least two runs, one for each robot: --teachers RUN RUN.")
    found = []
    for run in args.teachers:
        theirs, policy, params = play.load(run)
        task: Any = theirs.task
        if not isinstance(task, Joystick) or task.embodied or task.omniscient:
            without = "without --env.embodied or --env.omniscient"
            raise ValueError(f"{run} is no specialist: it takes a joystick's run {without}.")
        name = runs.read_manifest(run)["env"]
        task = replace(task, embodied=True)
        if not found and (then := manifest.plain(task)) != (now := manifest.plain(args.env)):
            what = manifest.difference("env", then, now)
            raise ValueError(f"The first teacher, {run}, has {what}: give --env as it had it.")
        checks.same_actions(f"The teacher {run}", theirs, env)
        world = envs.simulate(task, args.physics, threads=args.threads) if found else env
        found.append(Lesson(name, world, unaware(policy), params))
    shapes = [jax.eval_shape(x.env.reset, jax.random.key(0)).obs["policy"].shape for x in found]
    if len({*shapes}) > 1:
        told = ", ".join(f"{x.name} {shape[0]}" for x, shape in zip(found, shapes, strict=True))
        raise ValueError(
            f"Specialists see as many numbers each, and these do not: {told}. Give all the same "
            "--env.measured and --env.history."
        )
    if len({x.name for x in found}) < len(found):
        raise ValueError("Each specialist is of a robot of its own, and two are of one task.")
    return found


def unaware(policy: Policy) -> Policy:
    """A specialist's, that looks past which robot it has."""

    def step(params: Params, carry: Any, obs: Obs, key: Key) -> Any:
        own = obs | {"policy": obs["policy"][: -len(ROBOTS)]}
        return policy.step(params, carry, own, key)

    return policy._replace(step=step)


def main(args: Args) -> None:
    env = host.simulated(args)
    lessons = lessons_of(args, env)
    host.train(check(args, lessons), env, lambda part: course(part, lessons))


def check(args: Args, lessons: list[Lesson]) -> list[Args]:
    """Refuse what makes no sense, before anything is made; seeds in groups that fit in memory."""
    cli.at_least(1, args, "steps", "seeds", "unroll", "eval_episodes")
    cli.at_least(len(lessons), args, "num_envs")
    cli.at_least(0, args, "evals", "save_s", "guided")
    parallel.check(args.shards, num_envs=args.num_envs // len(lessons))

    def once(key: Key) -> Any:
        run = begin(args, lessons, key)
        return run, iterate(args, lessons, run)[0]

    return groups(args, once, len(lessons))


if __name__ == "__main__":
    cli.run(main, Args)
