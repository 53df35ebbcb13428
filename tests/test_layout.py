"""The architecture, as tests: who may import whom, what may stand where, how long it may be."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import jax
import pytest

import envs
from experiments import off_policy, ppo, sac
from experiments.course import Course

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "rl": {"rl"},
    "envs": {"rl", "envs"},
    "agents": {"rl"},
    "experiments": {"rl", "envs", "agents", "experiments"},
    "benchmarks": {"rl", "envs", "agents", "experiments", "benchmarks"},
}
MAX_LINES = 250
MAX_FUNCTION_LINES = 50
MAX_NESTED_DEFS = 2
MAX_ARGUMENTS = 8
MAX_POSITIONAL = 7  # the widest contract: physics.reset
MAX_FILES_RUN = 24  # between the script and the gradient
MAX_CLOSURE = 50  # and with what a run needs to be recorded, judged, resumed, filmed and exported
# Where compiled programs begin: experiments, measurements and the edges of the host.
MAY_JIT = (
    "experiments/", "benchmarks/", "envs/adapters/", "envs/render", "rl/artefact", "rl/export",
)  # fmt: skip
# What makes code of data, or objects of files.
MAKERS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "eval", "exec", "joblib"}
LOADERS = {"import_module", "__import__", "spec_from_file_location", "run_module", "run_path"}
DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)

OURS = [path for package in MAY_IMPORT for path in sorted((ROOT / package).rglob("*.py"))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
OTHERS = [ROOT / name for name in ("Makefile", "pyproject.toml", ".ci/run")]
OTHERS += sorted(ROOT.glob("*.md"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def each(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=name_of)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(module: ast.Module) -> set[str]:
    """Dotted names of everything imported, wherever the statement stands."""
    names = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, (
                f"line {node.lineno}: a relative import hides where a name lives"
            )
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def words(module: ast.Module) -> set[str]:
    """Every name, attribute and imported name."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found |= set(node.name.split("."))
    return found


def nested(node: ast.AST) -> int:
    """How many definitions deep the functions inside `node` go."""
    return max(
        (nested(child) + isinstance(child, DEFS) for child in ast.iter_child_nodes(node)), default=0
    )


@each(OURS)
def test_a_package_imports_only_what_lies_below_it(path: Path) -> None:
    top = {name.split(".")[0] for name in imports(tree(path))}
    assert "tests" not in top
    assert top & MAY_IMPORT.keys() <= MAY_IMPORT[name_of(path).split("/")[0]]


@each([path for path in OURS if name_of(path).startswith(("rl/", "agents/"))])
def test_no_way_around_the_directions_by_name(path: Path) -> None:
    assert not words(tree(path)) & LOADERS


@each([path for path in OURS if name_of(path).startswith("rl/bridge/")])
def test_the_bridge_makes_no_code_of_data(path: Path) -> None:
    """Nor does it read arrays of objects, or ask for any."""
    assert not words(tree(path)) & MAKERS
    keywords = {k.arg: ast.unparse(k.value) for node in ast.walk(tree(path))
                if isinstance(node, ast.Call) for k in node.keywords}  # fmt: skip
    assert keywords.get("allow_pickle", "False") == "False"
    assert keywords.get("dtype", "float") not in ("object", "'O'", "np.object_")


@each([path for path in OURS if name_of(path).startswith("rl/bridge/")])
def test_what_tells_motors_has_no_jax(path: Path) -> None:
    assert not {name.split(".")[0] for name in imports(tree(path))} & {"jax", "flax", "optax"}


def test_the_referee_has_nothing_of_what_it_judges() -> None:
    names = [imports(tree(ROOT / "rl" / "bridge" / f"{name}.py")) for name in ("referee", "truth")]
    ours = {x for x in set().union(*names) if x.split(".")[0] in MAY_IMPORT}
    assert ours == {"rl.bridge.truth", "rl.bridge.truth.Log", "rl.bridge.truth.log_of"}


@each([path for path in OURS if path.name == "__init__.py"])
def test_only_envs_re_exports(path: Path) -> None:
    assert not path.read_text().strip() or name_of(path) == "envs/__init__.py"


@each(OURS)
def test_jit_stands_where_programs_begin_and_pmap_nowhere(path: Path) -> None:
    used = words(tree(path))
    assert "pmap" not in used
    assert "jit" not in used or name_of(path).startswith(MAY_JIT)


@each([path for path in OURS if name_of(path).startswith(("rl/", "envs/", "agents/"))])
def test_descriptions_are_frozen(path: Path) -> None:
    """What is not says so by being a plain @dataclass: a log, a tally."""
    for node in ast.walk(tree(path)):
        for mark in getattr(node, "decorator_list", ()):
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "dataclass":
                assert "frozen=True" in ast.unparse(mark), f"line {mark.lineno}"


@each(OURS + TESTS)
def test_a_file_and_its_functions_keep_the_budget(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES, f"{lines} lines; is there a natural seam?"
    for node in ast.walk(tree(path)):
        if not isinstance(node, DEFS):
            continue
        where, args = f"{node.name}, line {node.lineno}", node.args
        positional = [a.arg for a in args.posonlyargs + args.args if a.arg not in ("self", "cls")]
        assert (node.end_lineno or 0) - node.lineno < MAX_FUNCTION_LINES, where
        assert nested(node) <= MAX_NESTED_DEFS, where
        assert len(positional) <= MAX_POSITIONAL, where
        assert len(positional) + len(args.kwonlyargs) <= MAX_ARGUMENTS, where


@each(OURS + TESTS + OTHERS)
def test_nothing_is_left_over_and_no_machine_is_named(path: Path) -> None:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        assert not re.search(r"\b(TO[D]O|FIX[M]E|XX[X])\b(?!.*#\d)", line), (
            f"line {number}: no issue"
        )
        assert not re.search(r"(?<![\w.~$}/])/(home|root|tmp|work|opt|Users)/", line), (
            f"line {number}"
        )


def modules_behind(name: str) -> list[Path]:
    """Files that `name` brings: a module, a package that is not empty, or nothing of ours."""
    path = ROOT.joinpath(*name.split("."))
    found = [path.with_suffix(".py"), path / "__init__.py"]
    return [p for p in found if p in OURS and p.read_text().strip()]


OFFERS = (  # names of which a user takes one
    "envs.gym_mujoco.", "envs.dmc.", "envs.locomotion.", "envs.manipulation.", "envs.adapters.",
    "envs.physics.mjx", "envs.physics.warp",
)  # fmt: skip
TAKEN = "envs.gym_mujoco.half_cheetah"


def closure(start: Path) -> set[Path]:
    """Files to open to follow `start` on HalfCheetah: all that is imported, by whatever way."""
    seen, todo = set(), [start]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for name in imports(tree(path)):
            offered = name_of(path) == "envs/__init__.py" and name.startswith(OFFERS)
            if not offered or name == TAKEN:
                todo += modules_behind(name)
    return seen


def run_through(course: Course) -> set[Path]:
    """Our files of which something runs while a seed begins and learns for a phase."""
    seen: set[str] = set()
    sys.setprofile(lambda frame, event, _: seen.add(frame.f_code.co_filename))
    try:
        jax.eval_shape(lambda key: course.phase(course.begin(key)), jax.random.key(0))
    finally:
        sys.setprofile(None)
    return {path for path in OURS if str(path) in seen}


def test_few_files_lie_between_the_command_line_and_the_gradient() -> None:
    for script, course in (
        (ppo, lambda args, env: ppo.course(args, env, None)),
        (sac, lambda args, env: off_policy.course(args, env, (), {})),
    ):
        args, start = script.Args(), Path(script.__file__)
        files = run_through(course(args, envs.simulate(args.env, "native"))) | {start}
        assert ROOT / "rl" / "train.py" in files
        assert len(files) <= MAX_FILES_RUN, " ".join(sorted(map(name_of, files)))
        files = closure(start)
        assert len(files) <= MAX_CLOSURE, " ".join(sorted(map(name_of, files)))


def test_contributing_tells_these_budgets() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rows = dict(re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", page, re.M))
    assert rows["file"] == f"{MAX_LINES} lines"
    assert (
        rows["function"] == f"{MAX_FUNCTION_LINES} lines, definitions nested {MAX_NESTED_DEFS} deep"
    )
    assert rows["arguments"] == f"{MAX_ARGUMENTS}, of which {MAX_POSITIONAL} positional"
    files = {name: told for name, told in rows.items() if name.startswith("our files")}
    assert [told.split()[0] for told in files.values()] == [str(MAX_FILES_RUN), str(MAX_CLOSURE)]


def test_paths_that_contributing_names_are_there() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:rl|envs|agents|experiments|benchmarks)/[\w/]+\.py): ([\w.]+)`", page)
    assert len(named) > 20
    for path, function in named:
        known = {getattr(node, "name", "") for node in ast.walk(tree(ROOT / path))}
        assert {*function.split(".")} <= known, f"{path}: {function}"
