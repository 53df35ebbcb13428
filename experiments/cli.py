"""The command line: `--env NAME --env.<field> VALUE`, and errors as one sentence."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import tyro

import envs
from envs import render
from envs.simulation import Simulation
from rl import manifest, memory, record, runs
from rl.checkpoint import SEAL


def run(main: Callable[..., None], args_type: Any) -> None:
    """Parse `args_type` (which has `env` and `env_name`) and call `main` with it."""
    guard(lambda: main(parse(args_type, sys.argv[1:])))


def guard(main: Callable[[], None]) -> None:
    """Call `main`; what its user can mend ends the program with one sentence."""
    try:
        main()
    except (ValueError, OSError, render.CannotRender) as error:
        sys.exit(f"error: {error}")
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        sys.exit("error: Out of memory: lower the numbers of worlds, episodes or hidden units.")
    except KeyboardInterrupt:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)  # as shells have it; an orderly end crashes while XLA still compiles


def parse(args_type: Any, args: list[str]) -> Any:
    """`args_type` from `args`, its field `env` being the task that `--env` names.

    `--resume RUN` stands for the flags that RUN was begun with.
    """
    defaults, rest = args_type(), []
    name, words = defaults.env_name, iter(args)
    for word in words:
        flag, _, value = word.partition("=")
        if flag == "--env":
            name = value or next(words, "")
        else:
            rest.append(word)
    parsed = tyro.cli(
        args_type,
        prog=f"python -m experiments.{Path(sys.argv[0]).stem} --env {name}",
        description=f"--env is one of {', '.join(envs.names())}.",
        args=rest,
        default=args_type(env=envs.make_task(name), env_name=name),
    )
    if getattr(parsed, "resume", None) is None:
        return parsed
    if not args[0].startswith("--resume") or len(args) > (1 if "=" in args[0] else 2):
        raise ValueError("--resume takes no other flags: a run goes on with those it has.")
    return _begun(args_type, parsed.resume)


def _begun(args_type: Any, resume: Path) -> Any:
    """The arguments of the run at `resume`, which may name one of its checkpoints."""
    run = resume.parent.parent if resume.parent.name == "checkpoints" else resume
    facts = runs.read_manifest(run)
    for name, kind in {"argv": list, "seeds": list, "config": dict}.items():
        if not isinstance(facts.get(name), kind) or not facts[name]:
            raise ValueError(f"{run / 'manifest.json'} is damaged: it has no {name}.")
    argv = facts["argv"]
    if Path(argv[0]).stem != Path(sys.argv[0]).stem:
        raise ValueError(f"{run} was begun by {argv[0]}: resume it with that.")
    args = parse(args_type, argv[1:])
    seeds = facts["seeds"]  # of all that argv named, those of this group
    args = replace(args, seed=seeds[0], seeds=len(seeds))
    now, then = manifest.plain(args), facts["config"]
    if now != then:
        what = manifest.difference("config", then, now)
        raise ValueError(
            f"{run} has {what} as this version makes of its flags: "
            "resume it with the commit in its manifest."
        )
    return replace(args, out=run, resume=resume)


def record_of(args: Any, env: Simulation) -> record.Record:
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
    physics = type(env.physics).__name__.lower()
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


def in_turn(parts: list[Any], train: Callable[[Any], None]) -> None:
    """`train` each of the parts; one that fails keeps no other from its turn, Ctrl-C all."""
    failed = []
    for done, part in enumerate(parts, 1):
        try:
            train(part)
        except SystemExit as end:
            if not str(end).startswith("failed"):
                if rest := parts[done:]:
                    count = sum(part.seeds for part in rest)
                    print(f"not begun: --seed {rest[0].seed} --seeds {count}")
                raise
            failed.append(str(end))
    if failed:
        sys.exit("\n".join(failed))


def step_of(resume: Path) -> int | None:
    """The step of RUN/checkpoints/STEP; None of a RUN."""
    if resume.parent.name != "checkpoints":
        return None
    if not resume.name.isdigit():
        raise ValueError(f"{resume} is no checkpoint: their names are numbers of steps.")
    return int(resume.name)


def goes_on(args: Any) -> bool:
    """Whether `args` resume a run from a state of it, and not from nothing."""
    return bool(args.resume) and any((args.out / "checkpoints").glob(f"*/{SEAL}"))


def same_actions(whose: str, theirs: Simulation, env: Simulation) -> None:
    """Raise ValueError where an action of theirs is none of the same size here."""
    then, now = (getattr(x.task, "action_scale", None) for x in (theirs, env))
    if then != now:
        raise ValueError(
            f"{whose} acts with --env.action-scale {then}, and this task has {now}: its actions "
            "would move other ways. Give both the same."
        )


def over_seeds(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` of each seed, arguments and results with leaves [seeds, ...].

    Side by side on an accelerator.  In turn on a CPU, which that keeps as busy, and where a
    seed's numbers are then to the last bit those it would have alone.
    """
    if jax.default_backend() != "cpu":
        return jax.vmap(f)
    return lambda *args: jax.lax.map(lambda xs: f(*xs), args)


def at_least(least: int, args: Any, *names: str) -> None:
    """Raise unless each of these numbers is `least` or more."""
    for name in names:
        if not (value := getattr(args, name)) >= least:
            raise ValueError(f"--{name.replace('_', '-')} is {value}; it needs at least {least}.")


def use_threads(threads: int) -> None:
    """Give XLA `threads` threads (0: all this process has); before JAX is first used."""
    if threads < 0:
        raise ValueError(f"--threads is {threads}; it needs a count, or 0 for all.")
    if threads > (most := 16 * (os.cpu_count() or 1)):
        raise ValueError(f"--threads is {threads}; it takes at most 16 for each core, {most}.")
    if threads:
        os.environ["NPROC"] = str(threads)
