"""From a teacher that knows everything to a student that a robot can run.

python -m experiments.walk --env go2-joystick-flat --env.omniscient --out runs/teacher
python -m experiments.teacher_student --env go2-joystick-flat --env.history 10

The teacher saw friction, masses and its own velocity; the student sees a history of what the robot
measures, acts, and learns what the teacher would have done in its place (agents/dagger.py).
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import tyro

import envs
from agents.dagger import DAgger, State
from envs.simulation import Simulation
from experiments import cli, play
from experiments.deploy import Deployer
from rl import health, memory, record, rollout
from rl.policy import Policy
from rl.saver import Saver, Stop
from rl.types import Array, Key, Metrics, Obs, Params

PHASES = 100  # at most this many looks of the host
MOST_PER_PHASE = 16  # iterations: Ctrl-C is heard in seconds


@dataclass(frozen=True)
class Args:
    env: Any = field(default_factory=lambda: envs.make_task("go2-joystick-flat", history=10))
    env_name: tyro.conf.Suppress[str] = "go2-joystick-flat"
    teacher: Path = Path("runs/teacher")  # a run of PPO on the same task with --env.omniscient
    steps: int = 3_000_000
    seed: int = 0
    seeds: int = 1
    num_envs: int = 256
    unroll: int = 24
    guided: float = 0.2  # share of the steps during which teacher and student take turns in acting
    physics: Literal["auto", "native", "mjx"] = "auto"
    threads: int = 0
    eval_episodes: int = 32
    save_s: float = 30.0
    when_full: Literal["go-on", "stop"] = "go-on"
    track: str = ""
    video: bool = True
    out: Path = Path("runs/student")
    resume: Path | None = None
    agent: DAgger = DAgger()


class Run(NamedTuple):
    """All that training carries."""

    agent: State
    worlds: rollout.Worlds
    key: Key
    iteration: Array  # [] int32


def taught(args: Args, env: Simulation, teacher: Policy, share: Array) -> Policy:
    """The student's policy but, in this share of its steps, the teacher's; aux is the teacher's."""
    student = args.agent.policy(True, env.action_dim)

    def step(params: Params, carry: Any, obs: Obs, key: Key) -> tuple[Array, Any, Array]:
        mine, theirs = params
        wanted, _, _ = teacher.step(theirs, (), {"policy": obs["critic"]}, key)
        action, carry, _ = student.step(mine, carry, obs, key)
        wanted = jnp.clip(wanted, -1, 1)
        return jnp.where(jax.random.uniform(key) < share, wanted, action), carry, wanted

    return Policy(init=lambda params: student.init(params[0]), step=step)


def begin(args: Args, env: Simulation, taught_by: tuple[Policy, Params], key: Key) -> Run:
    agent_key, worlds_key, key = jax.random.split(key, 3)
    obs = jax.tree.map(jnp.zeros_like, env.reset(key).obs)
    agent = args.agent.init(agent_key, obs, jnp.zeros(env.action_dim))
    policy = taught(args, env, taught_by[0], jnp.float32(1))
    params = args.agent.deploy(agent), taught_by[1]
    context = args.env.beginner()
    worlds = rollout.start(env, policy, params, worlds_key, args.num_envs, context)
    return Run(agent, worlds, key, jnp.int32(0))


def iterate(
    args: Args, env: Simulation, taught_by: tuple[Policy, Params], run: Run
) -> tuple[Run, tuple[Metrics, rollout.Episodes]]:
    """Act for a while, and learn what the teacher would have done."""
    act_key, learn_key = jax.random.split(jax.random.fold_in(run.key, run.iteration))
    share = 1 - run.iteration / max(args.guided * math.prod(plan(args)), 1)
    policy = taught(args, env, taught_by[0], share)
    params = args.agent.deploy(run.agent), taught_by[1]
    worlds, batch, episodes = rollout.collect(env, policy, params, run.worlds, act_key, args.unroll)
    agent, metrics = args.agent.update(run.agent, batch, learn_key)
    return Run(agent, worlds, run.key, run.iteration + 1), (metrics, episodes)


def plan(args: Args) -> tuple[int, int]:
    """Phases, and iterations in each."""
    total = -(-args.steps // (args.num_envs * args.unroll))
    each = min(-(-total // PHASES), MOST_PER_PHASE)
    return -(-total // each), each


def main(args: Args) -> None:
    cli.use_threads(args.threads)
    env = envs.simulate(args.env, args.physics, threads=args.threads)
    taught_by = teacher_of(args, env)

    def train(part: Args) -> None:
        with cli.record_of(part, env) as log:
            learn(part, env, taught_by, log)
            play.conclude(log, part.eval_episodes, part.video)

    cli.in_turn(check(args, env, taught_by), train)


def teacher_of(args: Args, env: Simulation) -> tuple[Policy, Params]:
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
    cli.same_actions(f"The teacher {args.teacher}", theirs, env)
    return policy, params


def learn(
    args: Args, env: Simulation, taught_by: tuple[Policy, Params], log: record.Record
) -> None:
    """The host's side: look in after each phase, until it is done, stopped or broken."""
    saver, (phases, each) = Saver(log, args.save_s), plan(args)
    deployer = Deployer(env, args.agent.policy(False, env.action_dim), args.env_name)
    keys = jax.vmap(jax.random.key)(jnp.array(log.manifest["seeds"]))
    fresh = jax.jit(cli.over_seeds(lambda key: begin(args, env, taught_by, key)))
    run = args.resume and saver.restore(jax.eval_shape(fresh, keys), cli.step_of(args.resume))
    run = fresh(keys) if run is None else run
    log.save(jax.device_get(args.agent.deploy(run.agent)))

    def phase(run: Run) -> tuple[Run, Metrics]:
        step = lambda run, _: iterate(args, env, taught_by, run)  # noqa: E731
        run, (metrics, episodes) = jax.lax.scan(step, run, length=each)
        return run, jax.tree.map(jnp.mean, metrics) | episodes.means()

    train = jax.jit(cli.over_seeds(phase), donate_argnums=0).lower(run).compile()
    log.spent("compile")
    with Stop() as stop:
        while (done := int(run.iteration[0]) // each + 1) <= phases and not stop.asked:
            run, metrics = train(run)
            metrics, step = jax.device_get(metrics), done * each * args.num_envs * args.unroll
            log.log(step, metrics)
            params = jax.device_get(args.agent.deploy(run.agent))
            if what := health.trouble(metrics, params):
                stop.asked = f"failed: {what} by step {step:,}"
                health.diagnose(log, step, what, metrics, run.agent)
                break
            log.save(params)
            log.spent("train")
            if saver.due or stop.asked or done == phases:
                saver.save(step, run)
                deployer.write(log, params, run.worlds)
                log.spent("save")
    log.update(status=stop.asked or "done")


def check(args: Args, env: Simulation, taught_by: tuple[Policy, Params]) -> list[Args]:
    """Refuse what makes no sense, before anything is made; seeds in groups that fit in memory."""
    cli.at_least(1, args, "steps", "seeds", "num_envs", "unroll", "eval_episodes")
    cli.at_least(0, args, "save_s", "guided")

    def once(key: Key) -> Any:
        run = begin(args, env, taught_by, key)
        return run, iterate(args, env, taught_by, run)[0]

    shapes = jax.eval_shape(once, jax.random.key(0))  # says what its batch is too small for
    obs = memory.size(shapes[0].worlds.state.obs) * args.unroll
    return cli.groups(
        args, 3 * memory.size(shapes[0]) + 4 * obs,
        f"{args.num_envs:,} worlds x {args.unroll} steps", "lower --num-envs or --unroll",
    )  # fmt: skip


if __name__ == "__main__":
    cli.run(main, Args)
