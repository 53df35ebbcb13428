"""The documents keep their word: code runs, commands parse, files and targets are there."""

import importlib
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import tyro

import envs
from agents.flow_bc import FlowBC
from agents.sac import SAC
from benchmarks import report
from experiments import cli, launch

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/OWED.md")]
PAGES += [ROOT / "benchmarks/peers/README.md"]
PAGES += [ROOT / "docs" / f"{name}.md" for name in ("interface", "broken", "robot", "serve")]
BLOCKS = [
    (language, text)
    for page in PAGES
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.S | re.M)
]
COMMANDS = [
    line.split("#")[0].strip()
    for language, text in BLOCKS
    if not language
    for line in text.splitlines()
]


@pytest.mark.parametrize("code", [t for language, t in BLOCKS if language == "python"])
def test_code_runs(code: str) -> None:
    exec(compile(code, "README.md", "exec"), {})


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_one(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *words = shlex.split(command) or [""]
    if program == "make":
        known = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
        assert words[0] in known
    elif program == "benchmarks/gpu.sh":
        assert f"\n{words[0]}) " in (ROOT / program).read_text()
    elif words[:2] == ["-m", "pytest"]:
        assert all((ROOT / word).is_file() for word in words[2:])
    elif program == "python" and words[0] == "-m":
        name, words = words[1], words[2:]
        if name == "benchmarks":
            name, words = f"benchmarks.{words[0]}", words[1:]
        if name == "experiments.launch":
            at = words.index("--")
            assert tyro.cli(launch.Args, args=words[:at])
            name, words = f"experiments.{words[at + 1]}", words[at + 2 :]
        name = "rl.bridge.programs" if name == "rl.bridge" else name
        name += ".__main__" if (ROOT.joinpath(*name.split(".")) / "__main__.py").exists() else ""
        module = importlib.import_module(name)
        monkeypatch.setattr(sys, "argv", [command, *words])
        if hasattr(module, "parser"):  # of argparse
            assert module.parser().parse_args(words)
            return
        if "--help" in words:
            words.remove("--help")
        # There is no such run here to go on with, or to start from.
        monkeypatch.setattr(cli, "_begun", lambda args_type, run: args_type())
        above = "--base" in words
        task, theirs = ("panda-peg-insertion", FlowBC()) if above else ("Hopper-v5", SAC())
        learned = {"env": envs.make_task(task), "env_name": task}
        real = cli._of_run

        def started(begun: None, run: str) -> dict[str, Any]:
            there = (ROOT / run).is_dir()  # a policy that comes with the code
            return real(begun, str(ROOT / run)) if there else learned | {"agent": theirs}

        monkeypatch.setattr(cli, "_of_run", started)
        parse = cli.parse if hasattr(module.Args, "env_name") else tyro.cli
        assert isinstance(parse(module.Args, args=words), module.Args)


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    assert all((page.parent / link).exists() for link in links if "://" not in link), links


@pytest.mark.parametrize("suite", ["gym", "published"])
def test_tables_are_what_the_report_writes(suite: str, tmp_path: Path) -> None:
    report.main(report.Args((suite,), runs=tmp_path / "none", out=tmp_path / "report"))
    written = (tmp_path / "report" / "tables.md").read_text().split("### ")
    page = (ROOT / "README.md").read_text()
    for title in ("Return", "Over all tasks", "Comparisons"):
        table = next(part for part in written if part.startswith(title))
        rows = [line for line in table.splitlines() if line.startswith("| ")]
        if suite == "gym" or title != "Over all tasks":
            assert "\n".join(rows) in page, f"{title} of {suite}: {rows}"
