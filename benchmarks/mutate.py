"""Do the tests notice when the code is wrong?  python -m benchmarks.mutate --count 10

Lines of the core are changed at random, one at a time, in a copy: an operator for its opposite, a
comparison turned round, a number moved, a sign or a `not` dropped.  The tests that reach the file
are run, the nearest first, until one fails; a change that none notices has survived.
"""

import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import tyro

from benchmarks.process import ROOT, guard

CORE = (
    "rl/*.py", "rl/bridge/*.py", "rl/bridge/*/*.py", "rl/data/*.py", "agents/*.py", "envs/*.py",
    "envs/physics/*.py", "experiments/host.py", "experiments/off_policy.py", "experiments/ppo.py",
)  # fmt: skip
SWAPS = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.Lt: ("<", ">="), ast.LtE: ("<=", ">"), ast.Gt: (">", "<="), ast.GtE: (">=", "<"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.And: ("and", "or"), ast.Or: ("or", "and"),
    ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "*"),
    ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}  # fmt: skip


@dataclass(frozen=True)
class Args:
    """Change lines of the core at random and run the tests on each change."""

    count: int = 10  # changes
    seed: int = 0
    minutes: float = 20.0  # of tests for each, at most; a change that outlives them has survived
    jobs: int = 2  # processes of a test run
    out: Path | None = None  # a file of JSON lines to add to


class Change(NamedTuple):
    path: str
    line: int
    was: str
    text: str  # the whole file's


def main(args: Args) -> None:
    rng, survived = random.Random(args.seed), 0
    for number in range(1, args.count + 1):
        change = drawn(rng)
        lines = change.text.splitlines()
        row = {"where": f"{change.path}:{change.line}", "was": change.was.strip(),
               "is": lines[change.line - 1].strip(), **judged(change, args)}  # fmt: skip
        survived += not row["caught_by"]
        print(f"{number:3} {row['where']}: {row['was']}\n    -> {row['is']}", flush=True)
        print(f"    {row['caught_by'] or 'SURVIVED'} ({row['s']} s)", flush=True)
        if args.out:
            with args.out.open("a") as file:
                file.write(json.dumps({"seed": args.seed, **row}) + "\n")
    print(f"{args.count - survived} of {args.count} were caught")


def drawn(rng: random.Random) -> Change:
    """A change of a line that has one, every line of the core being as likely."""
    paths = sorted(path for pattern in CORE for path in ROOT.glob(pattern))
    lines = [(path, i) for path in paths for i in range(path.read_text().count("\n"))]
    while True:
        path, line = rng.choice(lines)
        if found := [x for x in changes(path.read_text()) if x[0] == line + 1]:
            _, text = rng.choice(found)
            was = path.read_text().splitlines()[line]
            if parses(text):
                return Change(str(path.relative_to(ROOT)), line + 1, was, text)


def parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def changes(text: str) -> Iterator[tuple[int, str]]:
    """Lines, and what the file would be with one thing on them changed."""
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    code, tree = text.encode(), ast.parse(text)
    hints = {id(x) for node in ast.walk(tree) for x in ast.walk(unfit(node))}

    def swapped(left: ast.expr, right: ast.expr, kind: type) -> Iterator[tuple[int, str]]:
        old, new = SWAPS[kind]
        first = starts[(left.end_lineno or 1) - 1] + (left.end_col_offset or 0)
        last = starts[right.lineno - 1] + right.col_offset
        between = code[first:last].decode()
        if between.count(old) == 1:
            line = (left.end_lineno or 1) + between.partition(old)[0].count("\n")
            yield line, (code[:first] + between.replace(old, new).encode() + code[last:]).decode()

    for node in ast.walk(tree):
        if id(node) in hints:
            continue
        if isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
            yield from swapped(node.left, node.right, type(node.op))
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            yield from swapped(node.left, node.comparators[0], type(node.ops[0]))
        elif isinstance(node, ast.BoolOp):
            yield from swapped(node.values[0], node.values[1], type(node.op))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
            first = starts[node.lineno - 1] + node.col_offset
            last = first + (len("not") if isinstance(node.op, ast.Not) else 1)
            yield node.lineno, (code[:first] + code[last:].lstrip(b" ")).decode()
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            first = starts[node.lineno - 1] + node.col_offset
            last = starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)
            new = not node.value if isinstance(node.value, bool) else node.value * 2 + 1
            yield node.lineno, (code[:first] + repr(new).encode() + code[last:]).decode()


def unfit(node: ast.AST) -> ast.AST:
    """What of a node may be another and nothing is wrong: a type, and a zip that is strict."""
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return node.value
    found = getattr(node, "annotation", None) or getattr(node, "returns", None)
    return found if isinstance(found, ast.AST) else ast.Pass()


def judged(change: Change, args: Args) -> dict[str, object]:
    """Which test notices the change first, if one does, and after how many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        told = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
        for name in told.stdout.splitlines():
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, Path(folder) / name)
        (Path(folder) / change.path).write_text(change.text)
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-n", str(args.jobs), "--dist",
                 "loadfile", "--no-loadscope-reorder", "-p", "no:cacheprovider",
                 *reaching(change.path)]  # fmt: skip
        environment = os.environ | {"JAX_PLATFORMS": "cpu"}
        begun = os.times().elapsed
        try:
            said = subprocess.run(
                words, cwd=folder, capture_output=True, text=True, env=environment,
                timeout=60 * args.minutes,
            )  # fmt: skip
            failed = [x for x in said.stdout.splitlines() if x.startswith(("FAILED", "ERROR"))]
            caught = failed[0][:160] if failed else said.returncode and said.stdout[-160:]
        except subprocess.TimeoutExpired:
            caught = ""
        return {"caught_by": caught or "", "s": round(os.times().elapsed - begun)}


def reaching(path: str) -> list[str]:
    """Files of tests that import a module: those of its name, then by how few files are between."""
    found = {}
    for test in sorted((ROOT / "tests").glob("test_*.py")):
        if (steps := steps_to(test, path)) is not None:
            named = Path(path).stem in test.stem
            found[f"tests/{test.name}"] = (not named, steps, test.stat().st_size)
    return sorted(found, key=lambda name: found[name])


def steps_to(start: Path, path: str) -> int | None:
    """Imports from one of our files to another; None where there is no way."""
    seen: set[str] = set()
    front, steps = {start}, 0
    while front:
        fresh = frozenset().union(*map(imported, front)) - seen
        steps += 1
        if path in fresh:
            return steps
        seen |= fresh
        front = {ROOT / name for name in fresh}
    return None


@cache
def imported(path: Path) -> frozenset[str]:
    """Our files that one imports itself."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [x.name for x in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{x.name}" for x in node.names)]
    places = [ROOT.joinpath(*name.split(".")) for name in names]
    files = [file for at in places for file in (at.with_suffix(".py"), at / "__init__.py")]
    return frozenset(str(file.relative_to(ROOT)) for file in files if file.is_file())


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.mutate")))
