"""The command line: `--env NAME --env.<field> VALUE`, and errors as one sentence."""

import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import tyro

import agents
import envs
from envs import render
from envs.checks import known
from rl import checkpoint, manifest, processes, resources, runs

NO_BASE = "There is nothing to build upon: name a run with --base"
CHOICE = re.compile(r"(\w+)[\w.]*:[\w-]+")  # which kind a field is of: agent.guide:doit


def run(main: Callable[..., None], args_type: Any) -> None:
    """Parse `args_type` (which has `env` and `env_name`) and call `main` with it."""

    def whole() -> None:
        count, args = processes.join(), parse(args_type, sys.argv[1:])
        processes.check(count, getattr(args, "shards", 1))
        main(args)

    guard(whole)


def guard(main: Callable[[], None]) -> None:
    """Call `main`; what its user can mend ends the program with one sentence."""
    try:
        main()
    except BrokenPipeError:
        os._exit(141)  # as shells have it: who read what is printed has gone, as `head` does
    except (ValueError, OSError, render.CannotRender) as error:
        processes.end(f"error: {error}")
    except (MemoryError, RuntimeError, AssertionError) as error:
        if not (said := resources.short_of(error)):
            raise
        processes.end(f"error: {said}")
    except KeyboardInterrupt:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)  # as shells have it; an orderly end crashes while XLA still compiles


def parse(args_type: Any, args: list[str], begun: Mapping[str, Any] | None = None) -> Any:
    """`args_type` from `args`, with the task that `--env` names, and the agent that `--agent` does.

    Where any agent may learn, `--start-from RUN` stands for RUN's, and for its task; a run that was
    `begun` (its manifest) has them itself.  `--resume RUN` stands for RUN's flags.
    """
    defaults: Any = args_type()
    hints = get_type_hints(args_type)
    begins = "resume" not in hints or _named(args, ["--resume"])[0] in ({}, {"--resume": "None"})
    anew = [] if begins else _anew(args_type, args)
    any_agent = hints.get("agent") is Any
    named = ["--env", *["--agent"] * any_agent]
    named += ["--start-from"] * (any_agent and "start_from" in hints)
    named += ["--base"] * ("base" in hints)
    made, rest = _named(args, named)
    default: dict[str, Any] = {}
    if "--start-from" in made:
        if not {"--env", "--agent"} <= made.keys():
            default = _of_run(begun, made["--start-from"])
        default["start_from"] = Path(made["--start-from"])
    if "--base" in made:
        default = _above(begun, made, defaults.agent) | {"base": Path(made["--base"])}
        if any(word.startswith(("--agent.base.", "agent.base.")) for word in rest):
            raise ValueError("What is under --agent.base is as --base has it: leave it out.")
    elif "base" in hints and "--env" not in made and (odd := _not_of(defaults.env, rest)):
        raise ValueError(f"{NO_BASE}, of whose task {odd} is then a flag.")
    if "--env" in made and not ("--base" in made and made["--env"] == default["env_name"]):
        default |= {"env": envs.named(made["--env"]), "env_name": made["--env"]}
    elif "env" not in default:
        default |= {"env": defaults.env, "env_name": defaults.env_name}
    if "--agent" in made and "--base" not in made:
        default["agent"] = agent(made["--agent"])
    parsed = tyro.cli(
        args_type,
        prog=f"python -m experiments.{Path(sys.argv[0]).stem} --env {default['env_name']}"
        + f" --agent {made.get('--agent')}" * ("--agent" in made),
        description=f"--env is one of {', '.join(envs.names())}, "
        + "or playground:NAME of MuJoCo Playground."
        + f" --agent is one of {', '.join(agent_names())}." * any_agent,
        args=ordered(rest, hints),
        default=args_type(**default),
    )
    if "--base" in made:
        parsed = replace(parsed, agent=replace(parsed.agent, base=default["agent"].base))
    if getattr(parsed.env, "id", parsed.env_name) != parsed.env_name:  # a field of Gymnasium's
        raise ValueError(f"--env names {parsed.env_name}, and --env.id {parsed.env.id}: leave it.")
    if getattr(parsed, "resume", None) is None:
        return parsed
    return replace(_begun(args_type, parsed.resume), **{x: getattr(parsed, x) for x in anew})


def _anew(args_type: Any, args: list[str]) -> list[str]:
    """The fields given besides --resume, which may be others then: `anew` is in their metadata."""
    able = {f"--{f.name}": f.name for f in fields(args_type) if "anew" in f.metadata}
    given = {*[part for word in args for part in word.split("=", 1)][::2]}
    if not given <= {"--resume", *able}:
        but = "".join(f" but {flag}" for flag in able)
        raise ValueError(f"--resume takes no other flags{but}: a run goes on with those it has.")
    return [able[flag] for flag in given - {"--resume"}]


def _named(args: list[str], flags: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """What these flags name, and the rest of the words."""
    made: dict[str, str] = {}
    rest: list[str] = []
    words = iter(args)
    for word in words:
        flag, _, value = word.partition("=")
        if flag not in flags:
            rest.append(word)
            continue
        made[flag] = value or next(words, "")
        if not made[flag] or made[flag].startswith("--"):
            kind = "name" if flag in ("--env", "--agent") else "run"
            raise ValueError(f"{flag} takes a {kind}.")
    return made, rest


def _not_of(env: Any, words: list[str]) -> str:
    """The first flag of an environment that `env` has not, "" if there is none."""
    flags = [word.partition("=")[0] for word in words if word.startswith("--env.")]
    own = {f.name.replace("_", "-") for f in fields(env)}
    name = lambda flag: flag.split(".")[1].removeprefix("no-")  # noqa: E731
    return next((flag for flag in flags if name(flag).replace("_", "-") not in own), "")


def ordered(words: list[str], fields: Collection[str]) -> list[str]:
    """Last the kinds that are chosen of these fields, each before its flags, as tyro wants it."""
    last: dict[str, list[str]] = {}
    for word in words:
        if (kind := CHOICE.fullmatch(word)) and kind[1] in fields:
            last[word.partition(":")[0]] = [word]
    rest: list[str] = []
    at, chosen = rest, {part[0] for part in last.values()}
    asked = [word for word in words if word in ("-h", "--help")]  # of what was chosen, if anything
    for word in words:
        if word.startswith("--") or word in chosen:
            at = next((last[path] for path in last if word.startswith(f"--{path}.")), rest)
        if word not in chosen and word not in asked:
            at.append(word)
    return rest + [word for part in last.values() for word in part] + asked


def agent_names() -> list[str]:
    """The files of agents/, each of them one algorithm."""
    return sorted(path.stem for path in Path(agents.__path__[0]).glob("[!_]*.py"))


def agent(name: str) -> Any:
    """The agent of agents/NAME.py with its own settings; underscores do not count."""
    files = {file.replace("_", ""): file for file in agent_names()}
    plain = name.replace("_", "").lower()
    file = files.get(plain) or known("agent", name, agent_names())
    module = import_module(f"agents.{file}")
    return next(x for called, x in vars(module).items() if called.lower() == plain)()


def learned_by(algorithm: str, config: Mapping[str, Any]) -> Any:
    """The agent that a manifest tells of, and the agents within it.

    Raises KeyError or TypeError where it is of another version.
    """
    like = agent(algorithm)
    within = {n: x for n, x in config.items() if isinstance(x, dict) and getattr(like, n) is None}
    like = replace(like, **{n: learned_by(x["is"], x) for n, x in within.items()})
    return manifest.made(like, config)


def found(agent: Any, task: Any) -> Any:
    """`agent`, and what it is above, with what is its task's: a program, or a mirror."""
    if getattr(agent, "base", None) is not None:
        agent = replace(agent, base=found(agent.base, task))
    wanted = [f.name for f in fields(agent) if "found" in f.metadata]
    wanted = [name for name in wanted if getattr(agent, name) is True]
    return replace(agent, **{name: getattr(task, name, None) for name in wanted})


def _above(begun: Mapping[str, Any] | None, made: Mapping[str, str], own: Any) -> dict[str, Any]:
    """The task of a run that is a base, and the agent that is to learn above it."""
    try:
        found = _of_run(begun, made["--base"])
    except ValueError as error:
        raise ValueError(no_base(error)) from error
    if begun:
        return found
    mine = agent(made["--agent"]) if "--agent" in made else own
    if not hasattr(mine, "base"):
        able = ", ".join(name for name in agent_names() if hasattr(agent(name), "base"))
        raise ValueError(f"{type(mine).__name__} learns above no base; {able} do.")
    theirs, run = found["agent"], runs.run_of(Path(made["--base"]))
    if hasattr(theirs, "mirror") and runs.read_manifest(run)["config"].get("mirror"):
        theirs = replace(theirs, mirror=True)  # which is the task's
    return found | {"agent": replace(mine, base=theirs)}


def no_base(error: ValueError) -> str:
    """What is wrong with a run that --base names, and what mends it."""
    return f"{str(error).rstrip('.')}; make it anew, or name another run with --base."


def _of_run(begun: Mapping[str, Any] | None, run: str) -> dict[str, Any]:
    """The task and agent of a run that is begun, or else of the run that it starts from."""
    facts = begun or runs.read_manifest(runs.run_of(Path(run)))
    try:
        task = manifest.made(envs.named(facts["env"]), facts["config"]["env"])
        theirs = learned_by(facts["algorithm"], facts["config"]["agent"])
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{run}/manifest.json is damaged or of another version: {error!r}."
        ) from None
    return {"env": task, "env_name": facts["env"], "agent": theirs}


def _begun(args_type: Any, resume: Path) -> Any:
    """The arguments of the run at `resume`, which may name one of its checkpoints."""
    run, facts = checkpoint.begun(resume)
    argv, seeds = facts["argv"], facts["seeds"]  # of all that argv named, those of this group
    if Path(argv[0]).stem != Path(sys.argv[0]).stem:
        raise ValueError(f"{run} was begun by {argv[0]}: resume it with that.")
    args = replace(parse(args_type, argv[1:], facts), seed=seeds[0], seeds=len(seeds))
    known = manifest.plain(args_type()) | facts["config"]  # flags that are new are at their default
    now, then = (manifest.first(x) for x in (manifest.plain(args), known))
    if now != then:
        what = manifest.difference("config", then, now)
        raise ValueError(
            f"{run} has {what} as this version makes of its flags: "
            "resume it with the commit in its manifest."
        )
    return replace(args, out=run, resume=resume)


def at_least(least: int, args: Any, *names: str) -> None:
    """Raise unless each of these numbers is `least` or more."""
    for name in names:
        if not (value := getattr(args, name)) >= least:
            raise ValueError(f"--{name.replace('_', '-')} is {value}; it needs at least {least}.")
