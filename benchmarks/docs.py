"""python -m benchmarks docs: write docs/algorithms, a page for each algorithm that trains.

A page is what docs/equations says of its algorithm, the flags of its experiment with their defaults
and comments, and the curve that the records of a suite make.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from typing import Any, get_type_hints

from benchmarks import figures
from benchmarks import suite as suites
from benchmarks.collect import Result
from benchmarks.flags import Flag, choices, flags, table
from benchmarks.measured import drawn, ends, measured, suite_of
from benchmarks.process import ROOT
from experiments import cli

PAGES, EQUATIONS = ROOT / "docs" / "algorithms", ROOT / "docs" / "equations"
ARM = "panda-peg-insertion"  # a task that bases are of
BASES = [f"python -m experiments.{x} --env {ARM}" for x in (
    "make_data --out data/peg.npz", "imitate --data data/peg.npz --out runs/flow",
    "imitate --agent diffusion_bc --data data/peg.npz --out runs/diffusion")]  # fmt: skip
LINK = "../../benchmarks/suites"
OFFLINE = "bc", "flow_bc", "diffusion_bc", "td3_bc", "rebrac", "iql", "cql", "awac", "dvl"
FINETUNED = "dsrl", "expo", "qc", "pa_rl", "idql", "qam"
FINETUNED_PPO = "reinflow", "dppo"


@dataclass(frozen=True)
class Page:
    """A name, the experiment that trains it, and that whose defaults it is read against."""

    name: str
    experiment: str
    base: str = ""
    agent: str = ""  # of an experiment that takes any
    arm: str = ""  # of a suite, whose curve it shows; none: the one of its own name
    task: str = ""  # above a base: one of some

    @cached_property
    def args(self) -> Any:
        """As its command line has them without another word."""
        return cli.parse(import_module(f"experiments.{self.experiment}").Args, self.words)

    @property
    def words(self) -> list[str]:
        return [*self.learner, *["--env", self.task] * bool(self.task)]

    @property
    def learner(self) -> list[str]:
        return ["--agent", self.agent] if self.agent else []

    @property
    def program(self) -> str:
        return " ".join([f"python -m experiments.{self.experiment}", *self.learner])

    @property
    def examples(self) -> list[str]:
        """The commands of its experiment's docstring, with its agent."""
        doc = getdoc(import_module(f"experiments.{self.experiment}")) or ""
        found = re.findall(r"python -m experiments\..*", doc)
        found = [x for x in found if self.agent and f"--agent {self.agent} " in x] or found
        return [re.sub(r"--agent \w+", " ".join(self.learner) or r"\g<0>", x) for x in found]


NAMED = {
    page.name: page
    for page in (
        Page("ppo", "ppo"), Page("sac", "sac"), Page("td3", "td3", "sac"),
        Page("crossq", "crossq", "sac"), Page("simbav2", "simbav2", "sac"),
        Page("fast_td3", "fast_td3", "td3"), Page("fast_sac", "fast_sac", "sac"),
        Page("drq", "drq", "sac"),
        *(Page(name.replace("_", ""), "offline", agent=name) for name in OFFLINE),
        Page("offline_to_online", "offline_to_online", arm="wsrl-10"), Page("hil", "hil"),
        Page("resfit", "residual", task=ARM), Page("resip", "residual_ppo", task=ARM),
        Page("dagger", "teacher_student"), Page("walk", "walk", "ppo"),
        Page("onestep", "distill", task=ARM), Page("fql", "fql"),
        *(Page(name, "finetune", agent=name, task=ARM) for name in FINETUNED),
        *(Page(name, "finetune_ppo", agent=name, task=ARM) for name in FINETUNED_PPO),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Args:
    """Write the pages of the algorithms, or see whether they are as they would be written."""

    check: bool = False  # write nothing; fail where a page is another
    results: Path = suites.HERE / "results"  # of a suite, its records are SUITE.jsonl


def main(args: Args) -> None:
    if not args.results.is_dir():
        raise ValueError(f"--results {args.results}: there is no such directory.")
    found = measured(args.results, {n: p.arm or n for n, p in NAMED.items()})
    texts = {"README": index(found)} | {n: text(p, found.get(n, {})) for n, p in NAMED.items()}
    paths = {PAGES / f"{name}.md": said for name, said in texts.items()}
    if args.check:
        for path, said in paths.items():
            if not path.exists() or path.read_text(encoding="utf-8") != said:
                raise ValueError(f"{path} is stale: python -m benchmarks docs writes it anew.")
        return
    PAGES.mkdir(exist_ok=True)
    for path, said in paths.items():
        path.write_text(said, encoding="utf-8")
    for name, page in NAMED.items():
        if tasks := drawn(found.get(name, {})):
            counted = "updates" if page.experiment == "offline" else "environment steps"
            figures.learned(tasks, counted).savefig(
                PAGES / f"{name}.png", dpi=80, metadata={"Software": None}
            )
        else:
            (PAGES / f"{name}.png").unlink(missing_ok=True)
    print(f"Wrote {len(paths)} pages to {PAGES}.")


def text(page: Page, tasks: dict[str, list[Result]]) -> str:
    told = (EQUATIONS / f"{page.name}.md").read_text(encoding="utf-8").rstrip()
    source = f"docs/equations/{page.name}.md, experiments/{page.experiment}.py and records"
    note = f"<!-- Written by python -m benchmarks docs from {source}. -->"
    parts = [note, told, "## Run it", commands(page), "## Measured", curve(page, tasks)]
    return "\n\n".join([*parts, "## Flags", *tables(page)]) + "\n"


def index(found: dict[str, Any]) -> str:
    lines = ["| page | train it with | curve |", "|---|---|---|"]
    for name, page in NAMED.items():
        title = (EQUATIONS / f"{name}.md").read_text(encoding="utf-8").split("\n")[0].lstrip("# ")
        there = "yes" if drawn(found.get(name, {})) else "none yet"
        lines.append(f"| [{title}]({name}.md) | `{page.program}` | {there} |")
    head = "# Algorithms\n\nWritten by `python -m benchmarks docs`; a test holds it to that.\n"
    return "\n".join([head, *lines]) + "\n"


def commands(page: Page) -> str:
    """How to train, go on, look at it and drive it."""
    out, program = page.args.out, f"python -m experiments.{page.experiment}"
    asked = [x for x in BASES if f"{x.split()[-3]} " in " ".join({*BASES, *page.examples} - {x})]
    lines = asked * bool(page.task) + page.examples
    lines.append(f"{program} --resume {out}  # goes on with a run that was stopped")
    lines.append(f"python -m experiments.play {out}  # its return over fixed starts, and a video")
    if page.args.env.spec.command:
        lines += [f"python -m experiments.drive {out}  # its artefact on a simulated robot"]
        lines += [f"python -m benchmarks.walking {out} --kicked"]
    more = "`--resume RUN` goes on with a run that was stopped, by the flags it had; `--out` names "
    more += "a new one. The [README](../../README.md#train) tells what a run leaves."
    if page.task:
        more += "\n\n`--base` names any run that fits, and its task is taken unless `--env` names "
        more += f"another. [{ARM}-base](../../benchmarks/policies/{ARM}-base), a flow, is ready."
    if page.experiment.startswith("finetune"):
        more += " The last line of a run compares it with the base from the same starts, drawn in "
        more += "as many passes as that was made with, whatever `--agent.passes` is."
    if hasattr(page.args, "data"):
        more += "\n\nThe [README](../../README.md#learn-from-data) tells how to make the file that "
        more += "`--data` names, or to convert one."
    return "\n".join(["```", *lines, "```", "", more])


def curve(page: Page, tasks: dict[str, list[Result]]) -> str:
    """The picture, or that there is none; what measures it; and the numbers there are."""
    suite = suite_of(arm := page.arm or page.name)
    parts = ["No curve has been measured yet."]
    if drawn(tasks):
        said = f"The mean over seeds with its 95% bootstrap interval, of {arm}."
        parts = [f"![Return, or share of successes, against steps]({page.name}.png)", said]
    if suite:
        records = f"benchmarks/results/{suite}.jsonl"
        settings = f"the settings of [{suite}.toml]({LINK}/{suite}.toml)"
        parts[-1] += f" What measures it, with {settings}, not all of them the defaults:"
        lines = [f"run {suite} --only {arm}", f"report {suite} --records {records}", "docs"]
        parts.append("\n".join(["```", *(f"python -m benchmarks {x}" for x in lines), "```"]))
    else:
        parts[-1] += " No suite has it; this draws one into its run's directory:"
        start = page.examples[-1] if {"data", "base"} & {*vars(page.args)} else page.program
        parts.append(f"```\n{start} --seeds 5\n```")
    return "\n\n".join([*parts, ends(tasks)] if tasks else parts)


def tables(page: Page) -> Iterator[str]:
    """The flags of the run, of the agent, of its choices and of the task."""
    args, told = page.args, {}
    if page.base:
        told = {flag.name: flag for flag in flags(NAMED[page.base].args)}
        yield f"In brackets, where it is another, the default of [{page.base}]({page.base}.md)."
    task = "the base's" if page.task else args.env_name
    env = Flag("--env", task, "the task, one of [these](../../README.md#environments)")
    every = [env, *flags(args)]
    if get_type_hints(type(args))["agent"] is Any:
        name = page.agent or type(args.agent).__name__.lower()
        every.insert(1, Flag("--agent", name, "who learns, a file of [agents](../../agents)"))
    for title, above in (("Of the run", "--"), ("Of the agent", r"--agent\.[\w.]*")):
        own = [flag for flag in every if re.fullmatch(rf"{above}[\w-]+", flag.name)]
        yield f"### {title}\n\n{table(own, told)}"
    for word, about, chosen in choices(args):
        yield f"### With `{word}`\n\n{about}" + (f"\n\n{table(chosen)}" if chosen else "")
    yield f"### Of the task\n\nThose of {args.env_name}; `--env NAME --help` lists another's."
    yield table([flag for flag in every if flag.name.startswith("--env.")])
