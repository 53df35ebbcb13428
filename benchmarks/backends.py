"""Which task runs on which physics, and what keeps one from it: writes docs/backends.md."""

from dataclasses import dataclass
from pathlib import Path

import tyro

import envs
from benchmarks.process import ROOT, guard
from envs.physics import mjx, warp_model
from envs.physics.native import Native

PAGE = ROOT / "docs" / "backends.md"
HEAD = """# Tasks and physics

Written by `python -m benchmarks.backends`; a test holds it to that.

A task runs on a physics ("yes"), or the table names what that physics lacks or would leave out
without a word; `envs.make` refuses it with the same words.
The `-newton` tasks are Gymnasium's humanoids on a solver that MJX has.

MJX is float32, and turns the pyramid of friction of a capsule that stands steeper than 60 degrees
on a plane another way than MuJoCo does: single accelerations of Ant and the humanoids then differ.
Where an actuator's force is at its limit, MuJoCo and Warp integrate the arms without its damping
and MJX with it: arms that are asked for more than they can do, as by targets of chance, then move
another way. Nothing else differs, as `tests/test_mjx_parity.py` shows.

Warp is float32 as well. On a GPU it adds up in no fixed order, so that a seed or a resumed run is
not the same twice there: only alike. Its buffers have room for as many contacts as a model's geoms
can have, and at most for `TaskSpec.contacts` a world, 64, which worlds share: twice the 30 that was
the most of any world here, pushed about at random and from end to end
([rows](../benchmarks/results/contacts.jsonl)). Where there are more, training and judging stop and
say so. With more worlds comes more room: it is counted out of all that run side by side.
Its solver begins where that of the last step ended, MuJoCo's at the better of that and of no force
at all. Where it is stopped before it has converged, as after its one iteration on flat ground, a
walker's path is another; with 30 iterations a Go1 goes the same one to a millionth.

| task | native | mjx | warp |
|---|---|---|---|
"""


def page() -> str:
    """The page, as Markdown.  Constructs every physics and compiles none."""
    return HEAD + "".join(row(name) for name in envs.names())


def row(name: str) -> str:
    """The table's line of a task."""
    task = envs.make_task(name)
    Native(task.model(), task.spec)
    refused = [kind.unsupported(task.model(), task.spec) for kind in (mjx, warp_model)]
    return f"| {name} | yes | {' | '.join('; '.join(said) or 'yes' for said in refused)} |\n"


@dataclass(frozen=True)
class Args:
    """Write the page of what runs where."""

    to: Path = PAGE


def main(args: Args) -> None:
    args.to.write_text(page())
    print(args.to)


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.backends")))
