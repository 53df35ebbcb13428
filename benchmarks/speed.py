"""Speed next to a peer in the same run: python -m benchmarks.speed GROUP

GROUP is physics, rollout, ppo, sac, td3, large_batch, seeds, offline or playground.

Every measurement alternates ours, peer, ours, peer, each in a process of its own that starts
cold; compiling is left out and reported apart.  Peers run in their own environments, which
benchmarks/peers/README.md says how to make.  A row is written as soon as it is measured.
"""

import sys
from typing import Any

import tyro

from benchmarks import rows
from benchmarks.measurement import OURS, Args, Measurement
from benchmarks.measurements import measurements
from benchmarks.process import ROOT, Failed, Python, guard
from benchmarks.rows import Pair


def measure(one: Measurement, pairs: int) -> list[Pair]:
    """`pairs` runs of each side, in turn."""
    found: list[Pair] = []
    for seed in range(pairs):
        ours = one.ours(seed)
        found.append({"ours": ours, "peer": one.peer(seed) if one.peer else None})
        told = rows.row(one.what, one.unit, found[-1:])
        print(f"{one.what}  {seed + 1}/{pairs}  {_line(told)}", flush=True)
    return found


def _line(row: dict[str, Any]) -> str:
    against = "" if row["peer"] is None else f", peer {row['peer']:,.6g}, ratio {row['ratio']:.2f}"
    return f"ours {row['ours']:,.6g} {row['unit']}{against}"


def main(args: Args) -> None:
    wanted = [one for one in measurements(args) if args.only in one.what]
    if not wanted:
        every = ", ".join(one.what for one in measurements(args))
        raise Failed(f"No row of {args.group} has {args.only!r} in its name; there are {every}.")
    if args.pairs is not None and args.pairs < 1:
        raise Failed(f"--pairs is {args.pairs}; a row needs at least 1, a claim 5.")
    if min(args.worlds, default=0) < 1 or not args.seconds > 0:
        raise Failed("--worlds needs counts of at least 1, and --seconds a time above 0.")
    for name in ("together", "learners", "many", "batch", "rounds", "updates"):
        if (count := getattr(args, name)) < 1:
            raise Failed(f"--{name} is {count}; it needs at least 1.")
    # Before anything is measured: a peer that is missing should not be found out in an hour.
    sides = {one.theirs: one.theirs.versions() for one in wanted if one.theirs}
    host = rows.machine() | {"ours": Python(sys.executable, OURS).versions()}
    commit, path = rows.commit(ROOT), args.results / f"speed-{args.group}.jsonl"
    before = rows.read(path)
    for one in wanted:
        pairs = measure(one, args.pairs or one.pairs)
        extra = {name: rows.means(pairs, name) for name in (one.mean, "compile_s") if name}
        machine = host | {"peer": sides[one.theirs] if one.theirs else None}
        row = rows.row(
            one.what, one.unit, pairs, machine=machine, commit=commit,
            **{name: told for name, told in extra.items() if told},
        )  # fmt: skip
        rows.write(path, row)
        was = f" (was: {_line(before[one.what])})" if one.what in before else ""
        print(f"{one.what}  median  {_line(row)}{was}", flush=True)
    print(f"rows in {path}")


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.speed")))
