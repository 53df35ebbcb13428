"""What all training has in common: its flags, and the host's side of it.

An experiment says how a run begins and what a phase of it is, both pure and of one seed.  Here
phases are compiled, and after each the host looks in: it logs, judges, saves, writes the artefact,
and ends what is done, asked to stop, or broken.
"""

import atexit
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import tyro

import envs
from envs.simulation import Simulation
from experiments import cli, play
from experiments.course import Course, Plan, compiled, judge, over_seeds
from experiments.deploy import Deployer, prompt
from rl import checkpoint, health, parallel, processes, record, resources, runs
from rl.saver import Saver
from rl.stop import Stop
from rl.types import PyTree

# What a manifest tells of what learns where, besides how far it is.
TOLD = "algorithm", "env", "config", "seeds", "physics", "horizon", "control_dt"


@dataclass(frozen=True)
class Args:
    """Flags of every experiment that trains."""

    looks: ClassVar[int] = 1_000  # of the host: vector steps, or updates from data, between two
    env: Any = field(default_factory=lambda: envs.make_task("HalfCheetah-v5"))  # --env NAME
    env_name: tyro.conf.Suppress[str] = "HalfCheetah-v5"
    steps: int = 1_000_000  # environment steps per seed, rounded up to whole phases
    seed: int = 0  # of the first run
    seeds: int = 1  # independent runs, trained side by side
    num_envs: int = 1  # worlds per seed
    shards: int = 1  # of worlds and batches, a multiple of all devices; 1: on the first alone
    physics: Literal["auto", "native", "mjx", "warp"] = "auto"  # auto: native on CPU, else mjx
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


def simulated(args: Args) -> Simulation:
    """The environment of `args`; the first thing that a program does."""
    resources.use_threads(args.threads)
    seen(args)
    return envs.simulate(args.env, args.physics, threads=args.threads)


def world(args: Args) -> envs.Learnable:
    """The same, be it a simulation of ours or not."""
    resources.use_threads(args.threads)
    seen(args)
    return envs.learnable(args.env, args.physics, threads=args.threads)


def seen(args: Args) -> None:
    """ValueError where pictures would be drawn that the agent does not look at."""
    if getattr(args.env, "pixels", 0) and not hasattr(args.agent, "encoder"):
        who = type(args.agent).__name__
        raise ValueError(f"{who} sees no pictures: leave out --env.pixels, or take drq.")


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
                with processes.together(log.out, lambda status, log=log: log.update(status=status)):
                    learn(part, env, taken := course(part), log)
                conclude(part, taken, log)
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
    driven = prompt(course.agent).policy(explore=False, action_dim=env.action_dim)
    saver = Saver(log, args.save_s, args.out if args.resume else None)
    deployer = Deployer(env, driven, args.env_name)
    log.update(**course.facts)
    print(f"on       {parallel.devices(args.shards)}", flush=True)
    run = started(args, course, log, saver)
    log.save(course.steps(int(run.iteration[0])), jax.device_get(deploy(run.learner)))
    given = parallel.whole(args.shards, course.given)
    phase, evaluate = compiled(args.shards, course, run, given), judge(args, env, course, run, log)
    compiled_s = log.spent("compile")
    if args.evals and course.start and not int(run.iteration[0]):
        evaluate(course.steps(0), run.learner)  # what it is to be better than
    print(f"compiled {compiled_s:.0f} s; a line after each tenth", flush=True)
    with Stop() as stop:
        done = int(run.iteration[0]) // iterations
        asked, due = processes.agreed(stop.asked, False)
        while done < phases and not asked:
            run, metrics = phase(run, *given)
            done += 1
            metrics, step = jax.device_get(metrics), course.steps(done * iterations)
            log.log(step, metrics)
            params = jax.device_get(deploy(run.learner))
            if what := health.trouble(metrics, params):
                asked = f"failed: {what} by step {step:,}"
                health.diagnose(log, step, what, metrics, run.learner)
                break
            log.save(step, params)
            log.spent("train")
            if done * args.evals // phases > (done - 1) * args.evals // phases:
                evaluate(step, run.learner)
            asked, due = processes.agreed(stop.asked, saver.due)
            if due or asked or done == phases:
                deployer.write(log, params, run.worlds)  # first: who is killed goes on from below
                saver.save(step, run)
                log.spent("save")
    log.update(status=asked or "done")


def conclude(args: Args, course: Course, log: record.Record) -> None:
    """The first process tells what came of the run, and the others wait for it."""
    try:
        if processes.first():
            play.conclude(log, args.eval_episodes, args.video)
            course.look(log)
    finally:
        processes.meet()
    if log.manifest["status"] != "done":
        sys.exit(1)


def started(args: Args, course: Course, log: record.Record, saver: Saver) -> Any:
    """All seeds as they begin, or as the run that is resumed had come to be."""
    keys = jax.vmap(jax.random.key)(jnp.array(log.manifest["seeds"]))  # the same alone, in company
    told = course.given, keys, *course.start

    def fresh(given: tuple[PyTree, ...], *each: PyTree) -> Any:
        return over_seeds(lambda *one: course.begin(*given, *one))(*each)

    like = jax.eval_shape(fresh, *told)
    lies = parallel.placed(args.shards, like)
    if args.resume and (found := saver.restore(like, runs.step_of(args.resume))):
        return found if lies is None else parallel.place(found, lies)
    return jax.jit(fresh, out_shardings=lies)(*parallel.whole(args.shards, told))


def record_of(args: Args, env: envs.World) -> record.Record:
    """The record of a new run of `args` in `env`, or of that which they resume.

    Of several processes the first writes it, and the others a copy that nobody keeps.
    """
    ways = {"track": args.track, "strict": args.when_full == "stop"}
    if args.resume:
        found = runs.read_manifest(args.out)
        if args.resume == args.out and runs.finished(found):
            print(f"{args.out} is done: nothing to go on with. python -m experiments.play shows it")
            sys.exit(0)
        if not processes.first():
            return aside(args, {name: found[name] for name in TOLD})
        log = record.Record.again(args.out, **ways)
        if (args.out / "diverged.json").exists():
            print(f"it broke before ({log.before['status']}), and may again", flush=True)
        return log
    seeds = list(range(args.seed, args.seed + args.seeds))
    algorithm = type(args.agent).__name__.lower()
    if type(cli.agent(algorithm)) is not type(args.agent):  # or nobody could play it
        raise ValueError(f"{type(args.agent).__name__} is not the agent of agents/{algorithm}.py.")
    facts = {"algorithm": algorithm, "env": args.env_name, "config": args, "seeds": seeds}
    facts |= {"physics": env.backend, "horizon": env.horizon, "control_dt": env.control_dt}
    if not processes.first():
        return aside(args, facts)
    return record.Record(args.out, args.steps, **ways, **facts)


def aside(args: Args, facts: dict[str, Any]) -> record.Record:
    """The record of a process that is not the run's first, which is gone when that ends."""
    out = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    return record.Record(out, args.steps, **facts)


def groups(args: Any, each: int, what: str, mend: str) -> list[Any]:
    """`args` for as many seeds at a time as fit in memory, `each` bytes a seed for `what`.

    Every group has a run directory of its own.
    """
    last = args.seed + args.seeds - 1
    if not 0 <= args.seed <= last < 2**31:
        raise ValueError(f"--seed {args.seed} to {last}: seeds lie from 0 to 2,147,483,647.")
    ours = int(0.75 * resources.available())  # the rest is the program's, and others'
    most = processes.least(ours // max(each, 1))
    if args.resume and most < args.seeds:
        resources.require(each * args.seeds, what, "resume it where there is more")
    if most < 1:
        resources.require(each, what, mend)
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
