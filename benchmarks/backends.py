"""Which task runs on which physics, and what keeps one from it: writes docs/backends.md."""

import envs
from benchmarks.process import ROOT
from envs.physics.mjx import unsupported
from envs.physics.native import Native

PAGE = ROOT / "docs" / "backends.md"
HEAD = """# Tasks and physics

Written by `python -m benchmarks.backends`; a test holds it to that.

A task runs on a physics ("yes"), or the table names what that physics lacks or would leave out
without a word; `envs.make` refuses it with the same words.
The `-newton` tasks are Gymnasium's humanoids on a solver that MJX has.

MJX is float32, and turns the pyramid of friction of a capsule that stands steeper than 60 degrees
on a plane another way than MuJoCo does: single accelerations of Ant and the humanoids then differ,
and nothing else does, as `tests/test_mjx_parity.py` shows.

| task | native | mjx |
|---|---|---|
"""


def page() -> str:
    """The page, as Markdown.  Constructs every physics and compiles none."""
    return HEAD + "".join(row(name) for name in envs.names())


def row(name: str) -> str:
    """The table's line of a task."""
    task = envs.make_task(name)
    Native(task.model(), task.spec)
    refused = "; ".join(unsupported(task.model(), task.spec))
    return f"| {name} | yes | {refused or 'yes'} |\n"


def main() -> None:
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
    print(f"Wrote {PAGE}.")


if __name__ == "__main__":
    main()
