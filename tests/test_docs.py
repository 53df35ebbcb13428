"""The algorithms' pages: flags as the command line has them, maths that renders, commands that are
commands, and nothing stale."""

import importlib
import inspect
import re
import shlex
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tyro
from matplotlib.mathtext import MathTextParser

import envs
from benchmarks import collect, docs, figures, flags, measured
from benchmarks.collect import Result
from experiments import cli

ROOT = Path(__file__).parent.parent
EACH = pytest.mark.parametrize("page", docs.NAMED.values(), ids=list(docs.NAMED))
SHARED = "hil", "walk", "simbav2", "fast_td3", "fast_sac", "offline_to_online"  # losses: elsewhere
FILES = sorted(docs.PAGES.glob("*.md"))
MATHS = [
    (path.stem, block or inline)
    for path in sorted(docs.EQUATIONS.glob("*.md"))
    for block, inline in re.findall(
        r"^\$\$\n(.*?)\n\$\$$|\$`(.*?)`\$", path.read_text(), re.M | re.S
    )
]
COMMANDS = sorted(
    {
        line.split("  #")[0]
        for path in FILES
        for block in re.findall(r"^```\n(.*?)^```", path.read_text(), re.S | re.M)
        for line in block.splitlines()
    }
)


def written(page: docs.Page) -> str:
    return (docs.PAGES / f"{page.name}.md").read_text()


def helped(page: docs.Page, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit):
        cli.parse(type(page.args), [*page.words, *words, "--help"])
    return capsys.readouterr().out


def test_they_are_as_they_would_be_written() -> None:
    docs.main(docs.Args(check=True))


def test_each_experiment_that_trains_and_each_agent_has_one() -> None:
    paths = (ROOT / "experiments").glob("*.py")
    modules = [importlib.import_module(f"experiments.{path.stem}") for path in paths]
    trains = {
        module.__name__.split(".")[1]
        for module in modules
        if hasattr(module, "main") and "resume" in {f.name for f in fields(module.Args)}
    }
    others = {"off_policy", "imitate", "generalist", "residual_walk"}
    own = trains - others  # whose agents have pages of other experiments
    assert own <= {page.experiment for page in docs.NAMED.values()} <= trains
    agents = {type(cli.agent(n)) for n in cli.agent_names() if n != "scripted"}  # learns nothing
    assert {type(page.args.agent) for page in docs.NAMED.values()} == agents


@EACH
def test_flags_are_those_of_the_command_line(
    page: docs.Page, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for word, _, _ in flags.choices(page.args)]
    said = [helped(page, capsys), *(helped(page, capsys, word) for word in words)]
    known = set(re.findall(r"--[a-z][\w.-]*", " ".join(said))) - {"--help"}
    _, _, tables = written(page).partition("\n## Flags\n")
    assert (
        set(re.findall(r"^\| `(--[\w.-]+)`", tables, re.M))
        | set(re.findall(r"^\| `--[\w.-]+`, `(--[\w.-]+)`", tables, re.M))
        == known
    )
    assert all(f"### With `{word}`" in tables for word in words)


@EACH
def test_a_default_spelt_out_changes_nothing(page: docs.Page) -> None:
    kind, every = type(page.args), [*flags.flags(page.args)]
    runs = "--start-from", "--base"  # of which there is none
    spelt = [word for flag in every if flag.name not in runs for word in flag.words]
    assert cli.parse(kind, [*page.words, *spelt]) == page.args
    for word, _, chosen in flags.choices(page.args):
        spelt = [word, *(word for flag in chosen for word in flag.words)]
        assert cli.parse(kind, [*page.words, *spelt]) == cli.parse(kind, [*page.words, word])


@EACH
def test_comments_are_what_help_says(page: docs.Page, capsys: pytest.CaptureFixture[str]) -> None:
    said = " ".join(helped(page, capsys).split())
    comments = flags.comments(type(page.args.agent))
    for flag in flags.flags(page.args.agent, "--agent."):
        assert comments.get(flag.name.split(".")[-1].replace("-", "_"), "") in said
    every = [*flags.flags(page.args)]
    every += [flag for _, _, chosen in flags.choices(page.args) for flag in chosen]
    assert not [flag.name for flag in every if re.match("$|; one of", flag.meaning)]


def test_no_meaning_stands_where_a_comment_does() -> None:
    """A field that has got a comment needs no line in meanings.toml any more."""
    used = {
        flag.meaning
        for page in docs.NAMED.values()
        for flag in (
            *flags.flags(page.args),
            *(flag for _, _, chosen in flags.choices(page.args) for flag in chosen),
        )
    }
    used = {meaning.split("; one of")[0] for meaning in used}
    assert set(flags.meanings().values()) <= used


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_tables_are_whole_and_links_lead_somewhere(path: Path) -> None:
    text = path.read_text()
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}) == 1
    assert text.count("```") % 2 == 0
    for link in re.findall(r"\]\(([^)]+)\)", text):
        file, _, place = link.partition("#")
        if "://" in link:
            continue
        target = path.parent / file if file else path
        assert target.exists(), link
        titles = re.findall(r"^#+ (.*)", target.read_text(), re.M) if place else []
        anchors = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
        assert not place or place in anchors, link


@pytest.mark.parametrize(("page", "maths"), MATHS)
def test_maths_is_tex_that_markdown_leaves_alone(page: str, maths: str) -> None:
    MathTextParser("path").parse(f"${maths}$")
    assert not re.search(r"[*<>|`]|\\[^a-zA-Z]|(?<![a-zA-Z0-9])_|^\s*[-+=#]", maths, re.M)


@EACH
def test_it_names_every_loss_and_no_method_that_is_not_there(page: docs.Page) -> None:
    text, agent = written(page), type(page.args.agent)
    named = re.findall(rf"`{agent.__name__}\.(\w+)`", text)
    assert all(hasattr(agent, name) for name in named)
    if page.name not in SHARED:
        assert {name for name in vars(agent) if name.endswith("loss")} <= {*named}


@EACH
def test_it_cites_what_the_code_does(page: docs.Page) -> None:
    module = sys.modules[type(page.args).__module__]
    doc = inspect.getdoc(module) or ""
    if page.name not in SHARED:
        doc += inspect.getdoc(sys.modules[type(page.args.agent).__module__]) or ""
    assert {*re.findall(r"\d{4}\.\d{5}", doc)} <= {*re.findall(r"\d{4}\.\d{5}", written(page))}


OF_RUN = cli._of_run


def started(begun: None, run: str) -> dict[str, Any]:
    """What a run that is not there would have been: of the agent it is named after, an imitator's
    or a program's on a task of an arm."""
    if (ROOT / run).is_dir():  # a policy that is
        return OF_RUN(begun, str(ROOT / run))
    name = Path(run).name.split("-")[0]
    arms = {"flow": "flow_bc", "diffusion": "diffusion_bc", "scripted": "scripted"}
    task = "panda-push-t" if name in arms else "Hopper-v5"
    agent = cli.agent(({"calql": "cql"} | arms).get(name, name))
    return {"env": envs.make_task(task), "env_name": task, "agent": agent}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_one(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    python, _, name, *words = shlex.split(command)
    assert python == "python"
    if name == "benchmarks":
        name, words = f"benchmarks.{words[0]}", words[1:]
    module = importlib.import_module(name)
    monkeypatch.setattr(sys, "argv", [f"{name.split('.')[-1]}.py", *words])
    monkeypatch.setattr(cli, "_begun", lambda args_type, run: args_type())  # there is no such run
    monkeypatch.setattr(cli, "_of_run", started)
    parse = cli.parse if hasattr(module.Args, "env_name") else tyro.cli
    assert isinstance(parse(module.Args, args=words), module.Args)


def test_pictures_are_there_and_small() -> None:
    shown = {x for path in FILES for x in re.findall(r"!\[.*\]\((.*)\)", path.read_text())}
    assert {path.name for path in docs.PAGES.glob("*.png")} == shown
    assert all(path.stat().st_size < 100_000 for path in docs.PAGES.glob("*.png"))


def result(seed: int, curve: tuple[float, ...], identity: str = "new") -> Result:
    steps = tuple(range(1_000, 1_000 * len(curve) + 1, 1_000))
    about = {"started": identity, "git": {"commit": "0123456789", "dirty": True}}
    return Result("gym", "T", "sac", identity, seed, steps, (), curve, curve[-1:], {}, about)


ARMS = {"sac": "sac", "walk": "walk"}


def test_a_curve_is_of_the_newest_configuration(tmp_path: Path) -> None:
    found = [result(0, (1.0, 3.0)), result(1, (3.0, 5.0)), result(0, (9.0, 9.0), "before")]
    found += [replace(found[0], agent="sac-wide"), replace(found[0], agent="walk")]  # not in it
    collect.write(tmp_path / "gym.jsonl", found)
    whole = measured.measured(tmp_path, ARMS)
    tasks = whole["sac"]
    assert [*whole] == ["sac"]
    assert [(x.seed, x.curve) for x in tasks["T"]] == [(0, (1, 3)), (1, (3, 5))]
    assert measured.ends(tasks).splitlines()[-1] == "| T | 2 | 2,000 | 4 | 3 to 5 | 0123456+ |"
    unknown = [replace(x, about={"git": {"commit": None}}) for x in tasks["T"]]
    assert measured.ends({"T": unknown}).endswith("| unknown |")
    done = [replace(x, success=(1.0, 0.0), success_curve=x.curve) for x in tasks["T"]]
    assert "| 50% | 50% to 50% |" in measured.ends({"T": [x.by("success") for x in done]})
    assert "(sac.png)" in docs.curve(docs.NAMED["sac"], tasks)
    axes = figures.learned(tasks).axes[0]
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[1, 2], [2, 4]])
    low_high = np.asarray(axes.collections[0].get_paths()[0].vertices)[:, 1]
    assert (low_high.min(), low_high.max()) == (1, 5)
    collect.write(tmp_path / "gym.jsonl", [result(2, (1.0, 2.0, 3.0))])
    with pytest.raises(ValueError, match="sac on T were judged at other steps"):
        measured.measured(tmp_path, ARMS)


def test_one_evaluation_is_no_curve() -> None:
    told = docs.curve(docs.NAMED["sac"], {"T": [result(0, (1.0,)), result(1, (1.0,))]})
    assert "No curve has been measured yet" in told
    assert "| T | 2 | 1,000 | 1 | 1 to 1 |" in told


def test_a_stale_page_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "PAGES", tmp_path)
    monkeypatch.setattr(docs, "NAMED", {name: docs.NAMED[name] for name in ("sac", "td3")})
    (tmp_path / "td3.png").touch()
    docs.main(docs.Args(results=tmp_path))
    assert {path.stem for path in tmp_path.iterdir()} == {"README", *docs.NAMED}
    docs.main(docs.Args(check=True, results=tmp_path))
    (tmp_path / "sac.md").write_text("other")
    with pytest.raises(ValueError, match=r"sac\.md is stale: python -m benchmarks docs"):
        docs.main(docs.Args(check=True, results=tmp_path))
