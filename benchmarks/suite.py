"""What a sweep compares, as data: a file of benchmarks/suites, checked before anything starts."""

import io
import json
import re
import tomllib
from contextlib import redirect_stderr
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, get_type_hints

from typeguard import TypeCheckError, check_type

from benchmarks.flags import Flag
from benchmarks.process import PEERS
from experiments import cli
from rl import manifest
from rl.adastop import AdaStop, Pair

HERE = Path(__file__).parent
SUITES, PUBLISHED = HERE / "suites", HERE / "published.json"
NAME = re.compile(r"\w[\w.,=+-]*")  # of an agent: it names a directory
MODULE = re.compile(r"\w+(\.\w+)*")
OWN = {*manifest.HOST, "agent", "env", "steps"}  # flags that a sweep gives by itself
TASK = "{task}"  # in a flag's text: the name of the task
Flags = dict[str, Any]
Measure = Literal["return", "success"]


@dataclass(frozen=True)
class Task:
    range: tuple[float, float] | None = None  # means that score 0 and 1
    flags: Flags = field(default_factory=dict)  # of every experiment on it
    steps: int = 0  # environment steps on it, of agents that have none of their own; 0: the suite's
    score: Measure | None = None  # where it is another than the suite's


@dataclass(frozen=True)
class Agent:
    """What learns: an experiment of ours, a peer's script, or what was published of another."""

    experiment: str = ""  # a module of experiments/, or of another package by its dotted name
    agent: str = ""  # a file of agents/, where the experiment takes any
    script: str = ""  # a file of benchmarks/peers, and first words of its command line
    published: str = ""  # an entry of published.json
    flags: Flags = field(default_factory=dict)
    on: dict[str, Flags] = field(default_factory=dict)  # and on one task, by its name
    words: tuple[str, ...] = ()  # that follow the flags, such as agent.head:hl-gauss
    steps: int | dict[str, int] = 0  # environment steps, or by task; 0: the task's, or the suite's
    steps_per_s: float = 0.0  # about, of a run, for an estimate where none is done; 0: not known


@dataclass(frozen=True)
class Suite:
    name: str
    tasks: dict[str, Task]
    agents: dict[str, Agent]
    about: str = ""
    steps: int = 0  # environment steps, where neither agent nor task has its own
    seeds: int = 5
    score: Measure = "return"  # what a run comes to: the mean of its returns, or of its successes
    last: int = 1  # evaluations, of whose mean a run's score is; never the best
    group: int = 1  # seeds in a run, side by side: more pay on an accelerator
    threads: int = 1  # of a run
    memory_gb: float = 2.0  # of a run, about
    pairs: tuple[Pair, ...] = ()  # of agents that are compared; none: all pairs
    adastop: AdaStop = field(default_factory=AdaStop)


def names() -> list[str]:
    return sorted(path.stem for path in SUITES.glob("*.toml"))


def read(name: str) -> Suite:
    """A suite by name, or of the file NAME.toml anywhere; ValueError says what is wrong with it."""
    path = Path(name) if name.endswith(".toml") else SUITES / f"{name}.toml"
    if not path.is_file():
        raise ValueError(f"There is no suite {name}: {', '.join(names())}, or a path of a .toml.")
    suite = _filled(Suite, {"name": path.stem, **toml(path)}, str(path))
    check(suite, str(path))
    return suite


def toml(path: Path) -> dict[str, Any]:
    """What a file of TOML has, or ValueError."""
    try:
        return tomllib.loads(path.read_text())
    except ValueError as error:  # of TOML or of UTF-8
        raise ValueError(f"{path} is no TOML: {error}.") from error


def _filled(kind: type, table: Any, where: str) -> Any:
    """A dataclass of a table, whose keys and values must be those of its fields."""
    if not isinstance(table, dict):
        raise ValueError(f"{where} takes a table, not {table!r}.")
    known, made = {f.name: f for f in fields(kind)}, {}
    for name, hint in get_type_hints(kind).items():
        if name in table:
            made[name] = _value(hint, table[name], f"{where}: {name}")
        elif known[name].default is MISSING and known[name].default_factory is MISSING:
            raise ValueError(f"{where} lacks {name}.")
    if unknown := sorted(table.keys() - known.keys()):
        raise ValueError(f"{where} has no setting {unknown[0]}; it has {', '.join(known)}.")
    return kind(**made)


def _value(hint: Any, value: Any, where: str) -> Any:
    if hint == Flags:
        return settings(value, where)
    if isinstance(hint, type) and is_dataclass(hint):
        return _filled(hint, value, where)
    if getattr(hint, "__origin__", None) is dict:
        if not isinstance(value, dict):
            raise ValueError(f"{where} takes a table, not {value!r}.")
        return {name: _value(hint.__args__[1], x, f"{where}.{name}") for name, x in value.items()}
    value = _tuples(value)
    value = float(value) if hint is float and type(value) is int else value
    if isinstance(value, bool) and hint in (int, float):
        raise ValueError(f"{where} is {value}; it takes a number.")
    try:
        return check_type(value, hint)
    except TypeCheckError as error:
        raise ValueError(f"{where} is {value!r}: {error}.") from error


def _tuples(value: Any) -> Any:
    return tuple(_tuples(x) for x in value) if isinstance(value, list) else value


def settings(flags: Any, where: str) -> Flags:
    """Flags by their dotted names, be they nested tables or not."""
    if not isinstance(flags, dict):
        raise ValueError(f"{where} takes a table, not {flags!r}.")
    found = dict(manifest.flat(flags))
    for name in found:
        if name.replace("-", "_") in OWN:
            raise ValueError(f"{where}: {name} is no flag to set here: the sweep gives it.")
    return found


def check(suite: Suite, where: str) -> None:
    """Raise ValueError for what makes no sense, names first; then every configuration."""
    for name in ("seeds", "last", "group", "threads"):
        if (count := getattr(suite, name)) < 1:
            raise ValueError(f"{where}: {name} is {count}; it takes at least 1.")
    if not suite.memory_gb > 0:
        raise ValueError(f"{where}: memory_gb is {suite.memory_gb}; it takes a number above 0.")
    if not suite.name.strip() or suite.name.startswith(".") or "/" in suite.name:
        raise ValueError(f"{where}: a suite's name is that of a directory, not {suite.name!r}.")
    if not suite.tasks or not suite.agents:
        raise ValueError(f"{where} has no {'agents' if suite.tasks else 'tasks'}.")
    for task, about in suite.tasks.items():
        if about.range and not about.range[0] < about.range[1]:
            raise ValueError(f"{where}: {task} has a range of {about.range}; the first is less.")
    for name, agent in suite.agents.items():
        at = f"{where}: agents.{name}"
        if not NAME.fullmatch(name):
            raise ValueError(f"{at}: a name has letters, digits and -_.,=+ alone, no sign first.")
        if sum(map(bool, (agent.experiment, agent.script, agent.published))) != 1:
            raise ValueError(f"{at} takes one of experiment, script and published.")
        named = {*agent.on, *(agent.steps if isinstance(agent.steps, dict) else ())}
        if unknown := sorted(named - suite.tasks.keys()):
            raise ValueError(f"{at} names {unknown[0]}; there is no such task.")
        if agent.published and suite.score != "return":
            raise ValueError(f"{at}: returns are published, and the suite scores {suite.score}.")
        for task in suite.tasks:
            if steps_of(suite, agent, task) < 1:
                raise ValueError(f"{at} has no steps on {task}, nor has the suite.")
            if agent.published:
                published(agent.published, steps_of(suite, agent, task), task, at)
            else:
                try:
                    resolve(suite, name, task)
                except ValueError as error:
                    raise ValueError(f"{at} on {task}: {error}") from error
    for pair in suite.pairs:
        if pair[0] == pair[1]:
            raise ValueError(f"{where}: pairs has {pair[0]} beside itself.")
        if unknown := sorted({*pair} - suite.agents.keys()):
            raise ValueError(f"{where}: pairs names {unknown[0]}; there is no such agent.")


def steps_of(suite: Suite, agent: Agent, task: str) -> int:
    own = agent.steps.get(task, 0) if isinstance(agent.steps, dict) else agent.steps
    return own or suite.tasks[task].steps or suite.steps


def pairs_of(suite: Suite) -> list[Pair]:
    """Who is compared with whom."""
    return list(suite.pairs) or list(combinations(suite.agents, 2))


def published(name: str, steps: int, task: str, where: str) -> list[float]:
    """Returns that others have published, one a seed."""
    table = json.loads(PUBLISHED.read_text())
    found = table.get(name, {}).get(str(steps), {}).get(task)
    if not found:
        raise ValueError(f"{where}: nothing is published of {name} on {task} at {steps:,} steps.")
    return found


def resolve(suite: Suite, name: str, task: str) -> tuple[str, tuple[str, ...], str]:
    """Program, words and the hash of the resolved configuration of an agent on a task."""
    agent = suite.agents[name]
    own = agent.flags | agent.on.get(task, {})
    flags = suite.tasks[task].flags | own if agent.experiment else own
    flags = {n: x.replace(TASK, task) if isinstance(x, str) else x for n, x in flags.items()}
    chosen = ("--agent", agent.agent) if agent.agent else ()
    spelt = [w for n, x in flags.items() for w in Flag(f"--{n.replace('_', '-')}", x).words]
    steps = str(steps_of(suite, agent, task))
    words = ("--env", task, *chosen, *spelt, "--steps", steps, *agent.words)
    if agent.script:
        script, *first = agent.script.split()
        _check_script(script, flags)
        config = {"script": script, "words": [*first, *words]}
        return script, (*first, *words), manifest.identity(config)
    program = agent.experiment if "." in agent.experiment else f"experiments.{agent.experiment}"
    return program, words, manifest.identity(manifest.plain(arguments(program, words)))


@cache
def arguments(program: str, words: tuple[str, ...]) -> Any:
    """The arguments that an experiment makes of its command line, or ValueError."""
    parent, name = program.rpartition(".")[0], program.removeprefix("experiments.")
    if not MODULE.fullmatch(program) or not find_spec(parent) or not find_spec(program):
        raise ValueError(f"there is no experiment {name!r}.")
    module, said = import_module(program), io.StringIO()
    if lacking := [part for part in ("Args", "main") if not hasattr(module, part)]:
        raise ValueError(f"{name} is no experiment: it has no {lacking[0]}.")
    try:
        with redirect_stderr(said):
            return cli.parse(module.Args, list(words))
    except SystemExit as error:
        box = [line.strip("│ ") for line in said.getvalue().splitlines() if line.startswith("│")]
        cut = next((i for i, line in enumerate(box) if line.startswith("──")), len(box))
        raise ValueError(f"{' '.join(box[:cut]).rstrip('.')}.") from error


def _check_script(script: str, flags: Flags) -> None:
    path = PEERS / script
    if not path.is_file():
        raise ValueError(f"there is no {path}.")
    known = re.findall(r'add_argument\("--([\w-]+)"', path.read_text())
    for name in flags:
        if name.replace("_", "-") not in known:
            raise ValueError(f"{script} has no --{name}; it has {', '.join(known)}.")
