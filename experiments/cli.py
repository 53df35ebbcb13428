"""The command line: `--env NAME --env.<field> VALUE`, and errors as one sentence."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tyro

import envs
from envs import render


def run(main: Callable[..., None], args_type: Any) -> None:
    """Parse `args_type` (which has `env` and `env_name`) and call `main` with it."""
    guard(lambda: main(parse(args_type, sys.argv[1:])))


def guard(main: Callable[[], None]) -> None:
    """Call `main`; what its user can mend ends the program with one sentence."""
    try:
        main()
    except (ValueError, FileNotFoundError, render.CannotRender) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)  # as shells have it; an orderly end crashes while XLA still compiles


def parse(args_type: Any, args: list[str]) -> Any:
    """`args_type` from `args`, its field `env` being the task that `--env` names."""
    defaults, rest = args_type(), []
    name, words = defaults.env_name, iter(args)
    for word in words:
        flag, _, value = word.partition("=")
        if flag == "--env":
            name = value or next(words, "")
        else:
            rest.append(word)
    return tyro.cli(
        args_type,
        prog=f"python -m experiments.{Path(sys.argv[0]).stem} --env {name}",
        description=f"--env is one of {', '.join(envs.names())}.",
        args=rest,
        default=args_type(env=envs.make_task(name), env_name=name),
    )


def at_least_one(args: Any, *names: str) -> None:
    """Raise unless each of these counts is positive."""
    for name in names:
        if (count := getattr(args, name)) < 1:
            raise ValueError(f"--{name.replace('_', '-')} is {count}; it needs at least 1.")


def use_threads(threads: int) -> None:
    """Give XLA `threads` threads (0: all this process has); before JAX is first used."""
    if threads < 0:
        raise ValueError(f"--threads is {threads}; it needs a count, or 0 for all.")
    if threads:
        os.environ["NPROC"] = str(threads)
