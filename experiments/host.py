"""What all training has in common: its flags, and the host's side of it.

An experiment says how a run begins and what a phase of it is, both pure and of one seed.  Here
phases are compiled, and after each the host looks in: it logs, judges, saves, writes the artefact,
and ends what is done, asked to stop, or broken.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import tyro

import envs
from envs.simulation import Simulation
from experiments import cli, play
from experiments.deploy import Deployer, prompt
from rl import checkpoint, health, memory, parallel, record, rollout, runs
from rl.agent import Agent
from rl.rollout import Worlds
from rl.saver import Saver, Stop
from rl.types import Array, Key, Metrics, PyTree


@dataclass(frozen=True)
class Args:
    """Flags of every experiment that trains."""

    env: Any = field(default_factory=lambda: envs.make_task("HalfCheetah-v5"))  # --env NAME
    env_name: tyro.conf.Suppress[str] = "HalfCheetah-v5"
    steps: int = 1_000_000  # environment steps per seed, rounded up to whole phases
    seed: int = 0  # of the first run
    seeds: int = 1  # independent runs, trained side by side
    num_envs: int = 1  # worlds per seed
    physics: Literal["auto", "native", "mjx"] = "auto"  # auto: native on CPU, else mjx
    threads: int = 0  # for physics and XLA alike; 0: all this process has
    evals: int = 0  # times that the policy is judged while it trains
    eval_episodes: int = 32  # of each of them, and of the one after the end
    save_s: float = 30.0  # s between checkpoints, at least
    when_full: Literal["go-on", "stop"] = "go-on"  # the disk: with no new checkpoint, or not at all
    track: str = ""  # also watch it with trackio:PROJECT or wandb:PROJECT
    video: bool = True  # film an episode
    out: Path = Path("runs/run")  # directory of the run; -2, -3, ... if there is one already
    resume: Path | None = None  # a run to go on with, or one of its checkpoints/STEP
    agent: Any = None


class Run(NamedTuple):
    """All that training carries; an experiment with more to carry has a tuple of its own."""

    learner: PyTree  # the agent's state
    worlds: Worlds
    key: Key  # of the training to come
    iteration: Array  # [] int32


class Plan(NamedTuple):
    phases: int  # after each of which the host looks in
    iterations: int  # in a phase


class Course(NamedTuple):
    """What an experiment does to one seed; the host does the rest.  Any `replay` is a Buffer."""

    agent: Agent
    begin: Callable[..., Any]  # a Run, of what is `given`, a key, and what it is to `start` from
    phase: Callable[..., tuple[Any, Metrics]]  # of a run, and what is `given`
    plan: Plan
    steps: Callable[[int], int]  # of the environment, after so many iterations
    facts: Mapping[str, Any] = MappingProxyType({})  # that the manifest is to have besides
    given: tuple[PyTree, ...] = ()  # the same for all seeds: no constant of a program, if large
    start: tuple[PyTree, ...] = ()  # leaves [seeds, ...]
    look: Callable[[record.Record], None] = lambda log: None  # at the record, once all is done
    shards: int = 1  # that worlds and batches lie in


def simulated(args: Args) -> Simulation:
    """The environment of `args`; the first thing that a program does."""
    cli.use_threads(args.threads)
    return envs.simulate(args.env, args.physics, threads=args.threads)


def split(iterations: int, phases: int, most: int) -> Plan:
    """About so many phases, of at most so many iterations: Ctrl-C is to be heard in seconds."""
    each = min(-(-iterations // phases), most)
    return Plan(-(-iterations // each), each)


def train(parts: list[Any], env: envs.World, course: Callable[[Any], Course]) -> None:
    """Train each of the parts; one that fails keeps no other from its turn, Ctrl-C all."""
    failed = []
    for done, part in enumerate(parts, 1):
        try:
            with record_of(part, env) as log:
                learn(part, env, taken := course(part), log)
                play.conclude(log, part.eval_episodes, part.video)
                taken.look(log)
        except SystemExit as end:
            if not str(end).startswith("failed"):
                if rest := parts[done:]:
                    count = sum(part.seeds for part in rest)
                    print(f"not begun: --seed {rest[0].seed} --seeds {count}")
                raise
            failed.append(str(end))
    if failed:
        sys.exit("\n".join(failed))


def learn(args: Args, env: envs.World, course: Course, log: record.Record) -> None:
    """Look in after each phase, until it is done, stopped or broken."""
    (phases, iterations), deploy = course.plan, course.agent.deploy
    policy = course.agent.policy(explore=False, action_dim=env.action_dim)
    driven = prompt(course.agent).policy(explore=False, action_dim=env.action_dim)
    saver, deployer = Saver(log, args.save_s), Deployer(env, driven, args.env_name)
    log.update(**course.facts)
    run = started(args, course, log, saver)
    log.save(course.steps(int(run.iteration[0])), jax.device_get(deploy(run.learner)))

    def judged(learner: PyTree) -> rollout.Episodes:
        return play.judged(env, policy, deploy(learner), args.eval_episodes)

    phase = compiled(course, run)
    judge: Any = jax.jit(over_seeds(judged, isinstance(env, Simulation)))
    judge = judge.lower(jax.device_get(run.learner)).compile() if args.evals else judge
    log.spent("compile")

    def evaluate(step: int, learner: PyTree) -> None:
        found = jax.device_get(judge(jax.device_get(learner)))  # by one device
        log.evaluated(step, *play.outcomes(found), metrics=found.metrics)
        log.spent("evaluate")

    if args.evals and course.start and not int(run.iteration[0]):
        evaluate(course.steps(0), run.learner)  # what it is to be better than
    print(f"compiled {log.manifest['compile_s']:.0f} s; a line after each tenth", flush=True)
    with Stop() as stop:
        done = int(run.iteration[0]) // iterations
        while done < phases and not stop.asked:
            run, metrics = phase(run, *course.given)
            done += 1
            metrics, step = jax.device_get(metrics), course.steps(done * iterations)
            log.log(step, metrics)
            params = jax.device_get(deploy(run.learner))
            if what := health.trouble(metrics, params):
                stop.asked = f"failed: {what} by step {step:,}"
                health.diagnose(log, step, what, metrics, run.learner)
                break
            log.save(step, params)
            log.spent("train")
            if done * args.evals // phases > (done - 1) * args.evals // phases:
                evaluate(step, run.learner)
            if saver.due or stop.asked or done == phases:
                deployer.write(log, params, run.worlds)  # first: who is killed goes on from below
                saver.save(step, run)
                log.spent("save")
    log.update(status=stop.asked or "done")


def started(args: Args, course: Course, log: record.Record, saver: Saver) -> Any:
    """All seeds as they begin, or as the run that is resumed had come to be."""
    keys = jax.vmap(jax.random.key)(jnp.array(log.manifest["seeds"]))  # the same alone, in company
    told = course.given, keys, *course.start

    def fresh(given: tuple[PyTree, ...], *each: PyTree) -> Any:
        return over_seeds(lambda *one: course.begin(*given, *one))(*each)

    like = jax.eval_shape(fresh, *told)
    lies = parallel.placed(course.shards, like)
    if args.resume and (found := saver.restore(like, checkpoint.step_of(args.resume))):
        return found if lies is None else jax.device_put(found, lies)
    return jax.jit(fresh, out_shardings=lies)(*told)


def compiled(course: Course, run: Any) -> Callable[..., tuple[Any, Metrics]]:
    """A phase of all seeds, which leaves all where it lies."""

    def phase(run: Any, *given: PyTree) -> tuple[Any, Metrics]:
        return over_seeds(lambda one: course.phase(one, *given))(run)

    lies = parallel.placed(course.shards, run)
    program = jax.jit(phase, donate_argnums=0, out_shardings=lies and (lies, None))
    return program.lower(run, *course.given).compile()


def over_seeds(f: Callable[..., Any], together: bool = True) -> Callable[..., Any]:
    """`f` of each seed, arguments and results with leaves [seeds, ...].

    Side by side on an accelerator, if `together`.  In turn on a CPU, which that keeps as busy, and
    where a seed's numbers are then to the last bit those it would have alone.
    """
    if jax.default_backend() == "cpu" or not together:
        return lambda *args: jax.lax.map(lambda xs: f(*xs), args)
    return jax.vmap(f)


def record_of(args: Args, env: envs.World) -> record.Record:
    """The record of a new run of `args` in `env`, or of that which they resume."""
    ways = {"track": args.track, "strict": args.when_full == "stop"}
    if args.resume:
        found = runs.read_manifest(args.out)
        if args.resume == args.out and runs.finished(found):
            print(f"{args.out} is done: nothing to go on with. python -m experiments.play shows it")
            sys.exit(0)
        log = record.Record.again(args.out, **ways)
        if (args.out / "diverged.json").exists():
            print(f"it broke before ({log.before['status']}), and may again", flush=True)
        return log
    seeds = list(range(args.seed, args.seed + args.seeds))
    algorithm = type(args.agent).__name__.lower()
    if type(cli.agent(algorithm)) is not type(args.agent):  # or nobody could play it
        raise ValueError(f"{type(args.agent).__name__} is not the agent of agents/{algorithm}.py.")
    physics = type(env.physics).__name__.lower() if isinstance(env, Simulation) else "gymnasium"
    facts = {"algorithm": algorithm, "env": args.env_name, "config": args, "seeds": seeds}
    facts |= {"physics": physics, "horizon": env.horizon, "control_dt": env.control_dt}
    return record.Record(args.out, args.steps, **ways, **facts)


def groups(args: Any, each: int, what: str, mend: str) -> list[Any]:
    """`args` for as many seeds at a time as fit in memory, `each` bytes a seed for `what`.

    Every group has a run directory of its own.
    """
    last = args.seed + args.seeds - 1
    if not 0 <= args.seed <= last < 2**31:
        raise ValueError(f"--seed {args.seed} to {last}: seeds lie from 0 to 2,147,483,647.")
    most = int(0.75 * memory.available()) // max(each, 1)  # the rest is the program's, and others'
    if args.resume and most < args.seeds:
        memory.require(each * args.seeds, what, "resume it where there is more")
    if most < 1:
        memory.require(each, what, mend)
    if most >= args.seeds:
        return [args]
    seeds = range(args.seed, args.seed + args.seeds)
    parts = [seeds[i : i + most] for i in range(0, args.seeds, most)]
    print(
        f"{most} of {args.seeds} seeds fit in memory at a time, each with {what}: "
        f"{len(parts)} groups train one after another, in a directory each"
    )
    return [replace(args, seed=part[0], seeds=len(part)) for part in parts]


def goes_on(args: Args) -> bool:
    """Whether `args` resume a run from a state of it, and not from nothing."""
    return bool(args.resume) and any((args.out / "checkpoints").glob(f"*/{checkpoint.SEAL}"))
