"""Sweeps, their reports and comparisons: python -m benchmarks COMMAND, or COMMAND --help."""

import sys
from importlib import import_module

import tyro

from benchmarks.process import guard

COMMANDS = {
    "run": "make the runs of a suite",
    "report": "tables, figures and a page of runs",
    "compare": "what differs between two sets of runs, and whether it is chance",
    "search": "try settings of an agent, and the best of them again on fresh seeds",
    "docs": "write docs/algorithms",
    "family": "a policy in worlds that differ",
    "latency": "how long a policy takes for a plan",
    "finetuned": "what methods make of the same bases",
    "guides": "what comes of a policy as its plans are chosen",
    "densities": "which of several ways of acting imitators keep",
    "planted": "verdicts on runs on data whose condition is known",
    "owed": "what is still to be measured, and with which command",
}


def main() -> None:
    name, rest = (sys.argv[1] if len(sys.argv) > 1 else ""), sys.argv[2:]
    if name not in COMMANDS:
        lines = [f"  {command:9} {what}" for command, what in COMMANDS.items()]
        print("\n".join([str(__doc__), *lines]))
        sys.exit(name not in ("", "-h", "--help") and f"error: There is no command {name}.")
    module = import_module(f"benchmarks.{name}")
    guard(
        lambda: module.main(tyro.cli(module.Args, args=rest, prog=f"python -m benchmarks {name}"))
    )


if __name__ == "__main__":
    main()
