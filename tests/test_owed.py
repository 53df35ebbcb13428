"""What is owed: nothing is lost on the way to the file and back."""

import datetime
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from itertools import dropwhile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks import owed, suite
from benchmarks.__main__ import COMMANDS
from benchmarks.owed import Owed

LINE = st.text(st.characters(exclude_categories=("C", "Zl", "Zp")), min_size=1, max_size=30)
COMMAND = LINE.filter(lambda x: not x.startswith("## "))
NOTE = COMMAND.map(str.strip).filter(lambda x: x and not x.startswith("## "))
ENTRY = st.builds(
    Owed, LINE, st.dates().map(datetime.date.isoformat), LINE, LINE,
    st.lists(COMMAND, min_size=1, max_size=3).map(tuple), st.just("") | NOTE,
)  # fmt: skip
A, B, C = (
    Owed(f"what {x}", f"2026-01-0{i}", f"{i} h", f"bar {x}", (f"python -m {x}", "ls | wc"), note)
    for i, x, note in ((1, "a", ""), (2, "b & `b`", "So far: *nothing*."), (3, "c", ""))
)


@given(st.lists(ENTRY, max_size=4))
@example([A._replace(commands=("```", "#"), what="`a` ## 1.", note="```")])
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, entries: list) -> None:
    path = tmp_path_factory.mktemp("owed") / "OWED.md"
    owed.write(path, entries)
    assert owed.read(path) == sorted(entries, key=lambda entry: entry.since)
    text = path.read_bytes()
    owed.write(path, owed.read(path))
    assert path.read_bytes() == text
    numbers = re.findall(r"^## (\d+)\. .*\n\nSince ", text.decode(), re.MULTILINE)
    assert numbers == [str(i) for i, _ in enumerate(entries, 1)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    owed.write(tmp_path / "OWED.md", [C, A, B])
    return tmp_path / "OWED.md"


def test_the_oldest_comes_first_and_is_listed(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert owed.read(path) == [A, B, C]
    owed.main(owed.Args(file=path))
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in said[::3]] == [
        [str(x), f"2026-01-0{x}"] for x in (1, 2, 3)
    ]
    assert [line.strip() for line in said[1::3]] == [x.commands[0] for x in (A, B, C)]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_that_which_is_paid_is_struck(path: Path, number: int) -> None:
    owed.main(owed.Args("paid", number, file=path))
    assert owed.read(path) == [x for i, x in enumerate([A, B, C], 1) if i != number]
    assert re.findall(r"^## (\d)\.", path.read_text(), re.MULTILINE) == ["1", "2"]


def test_what_is_added_is_of_today(path: Path) -> None:
    before = datetime.date.today().isoformat()
    commands = ("python -m x --flag 'a b'", "python -m y")
    owed.main(owed.Args("add", what="w", takes="t", bar="b", command=commands, note="n", file=path))
    *rest, new = owed.read(path)
    assert rest == [A, B, C]
    assert before <= new.since <= datetime.date.today().isoformat()
    assert new == Owed("w", new.since, "t", "b", commands, "n")
    first = path.with_name("NEW.md")  # where nothing was owed yet
    owed.main(
        owed.Args("add", what="w", takes="t", bar="b", command=commands, note="n", file=first)
    )
    assert owed.read(first) == [new]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (owed.Args("paid"), "a number from 1 to 3"),
        (owed.Args("paid", 4), "a number from 1 to 3"),
        (owed.Args("paid", -1), "a number from 1 to 3"),
        (owed.Args("list", what="w"), "--what goes with owed add"),
        (owed.Args("paid", 1, note="n"), "--note goes with owed add"),
        (owed.Args("list", 1), "A number goes with owed paid"),
        (owed.Args("add", what="w", takes="t", bar="b"), "takes --command too"),
        (owed.Args("add", takes="t", bar="b", command=("c",)), "takes --what too"),
        (owed.Args("add", what="a\nb", takes="t", bar="b", command=("c",)), "single lines"),
        (owed.Args("add", what="w", takes="t", bar="b", command=("a\nb",)), "single lines"),
    ],
)
def test_what_makes_no_sense_changes_nothing(path: Path, args: owed.Args, why: str) -> None:
    text = path.read_bytes()
    with pytest.raises(ValueError, match=why):
        owed.main(owed.Args(**{**vars(args), "file": path}))
    assert path.read_bytes() == text


BREAKS = [
    (r"Takes: 2 h", "It takes 2 h"), (r"\nTo compare with: bar b.*", ""), (r"## 2\. ", "## Two: "),
    (r"(?s)```\npython -m b.*?```\n", ""), (r"Since 2026-01-02\. ", ""),
    (r"(?<=bar b & `b`)\n\n```", "\n```"), (r"```\n\nSo far", "So far"),
]  # fmt: skip


@pytest.mark.parametrize(("found", "put"), BREAKS)
@pytest.mark.parametrize("do", ["list", "add", "paid"])
def test_an_entry_broken_by_hand_is_refused_by_name(
    path: Path, do: str, found: str, put: str
) -> None:
    text, changes = re.subn(found, put, path.read_text())
    assert changes == 1
    path.write_text(text)
    told = {"what": "w", "takes": "t", "bar": "b", "command": ("c",), "file": path}
    name = "one" if "Two" in put else "what b & `b`"
    with pytest.raises(ValueError, match=f"the entry '{name}' is not as"):
        owed.main(owed.Args(do, 1, **told))  # pyright: ignore[reportArgumentType]
    assert path.read_text() == text


def test_what_is_owed_here_can_be_run() -> None:
    entries = owed.read(owed.Args().file)
    assert entries == sorted(entries, key=lambda entry: entry.since)
    for command in (command for entry in entries for command in entry.commands):
        if command.startswith("benchmarks/gpu.sh "):
            assert f"\n{command.split()[1]}) " in owed.Args().file.with_name("gpu.sh").read_text()
            continue
        setting = re.compile(r"[A-Z_]+=")  # of the environment, before the command
        python, m, module, *words = dropwhile(setting.match, shlex.split(command))
        assert (python, m) == ("python", "-m")
        assert find_spec(module), command
        if module == "benchmarks":
            assert words[0] in COMMANDS, command
            if words[0] in ("run", "report", "search"):
                assert words[1] in suite.names(), command


def test_what_takes_an_accelerator_is_in_parts_of_gpu_sh() -> None:
    for entry in owed.read(owed.Args().file):
        if re.search("accelerator|GPU", entry.takes):
            assert all(x.startswith("benchmarks/gpu.sh ") for x in entry.commands), entry


def gpu(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    script = owed.Args().file.with_name("gpu.sh")
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"} | env
    return subprocess.run([script, *words], env=env, text=True, capture_output=True, check=False)


def test_gpu_sh_lists_its_parts_and_begins_nothing_else(tmp_path: Path) -> None:
    listed = gpu()
    assert (listed.returncode, listed.stderr) == (0, "")
    parts = listed.stdout.partition(", of: ")[2].split()
    for entry in owed.read(owed.Args().file):
        named = {x.split()[1] for x in entry.commands if x.startswith("benchmarks/gpu.sh ")}
        assert named <= {*parts}
    for told, why in (
        (gpu("go3"), "there is no part go3"),
        (gpu("go1", "go2"), "'go1 go2' are several parts"),
        (gpu("go1 go1-end"), "'go1 go1-end' are several parts"),
        (gpu("go2", LIMIT="ten"), "LIMIT is 'ten'"),
        (gpu("go1-end", TINY="1", OUT=str(tmp_path)), "has not trained to its end"),
        (gpu("go2", JAX_PLATFORMS="cpu", TINY=""), "JAX finds no GPU here"),
    ):
        assert told.returncode
        assert why in told.stderr
