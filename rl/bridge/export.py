"""The one file a robot needs of a run: the artefact of its best seed, checked, under a name."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from rl import artefact
from rl.artefact import Artefact
from rl.bridge import launch


@dataclass(frozen=True)
class Export:
    """Take of a run what a robot needs: the policy of its best seed, which does as it did."""

    run: tyro.conf.Positional[Path]  # a run's directory
    out: Path = Path("policy.zip")  # that is not there yet
    seed: int | None = None  # of the run; None: whose last evaluation was best


def export(args: Export) -> None:
    if args.out.exists():
        raise ValueError(f"--out {args.out} is there already: name another.")
    if args.out.suffix != ".zip":
        raise ValueError(f"--out {args.out} will be a .zip file: give it that ending.")
    if not args.out.parent.is_dir():
        raise ValueError(f"--out {args.out} cannot be written: there is no folder for it.")
    path, why = chosen(args.run, args.seed)
    found, content = artefact.read(path), path.read_bytes()
    runtimes = verified(found)
    partial = args.out.with_name(f"{args.out.name}.partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, args.out)
    finally:
        partial.unlink(missing_ok=True)
    spec = found.spec
    command = ", ".join(f"{c.name} {c.low:g} to {c.high:g} {c.unit}" for c in spec.command)
    print(f"policy   {spec.name}: {why}")
    print(f"runs     at {1 / spec.control_dt:g} Hz with {runtimes}, as its golden vectors tell")
    print(f"reads    {len(spec.sensors)} sensors, {sum(s.size for s in spec.sensors)} numbers")
    print(f"asked    {command or 'nothing'}")
    print(f"writes   targets of {len(spec.actuators)} motors")
    print(f"sha256   {hashlib.sha256(content).hexdigest()}")
    print(f"out      {args.out}: python -m rl.bridge show {args.out}")


def verified(found: Artefact) -> str:
    """The runtimes with which it reproduces its golden vectors; ValueError if one does not."""
    artefact.deploy(found, "jax")
    if isinstance(found.program, str):
        return f"jax alone ({found.program})"
    artefact.deploy(found, "numpy")
    return "jax and numpy"


def chosen(run: Path, seed: int | None) -> tuple[Path, str]:
    """An artefact of a run, of `seed` or its best, and why that."""
    from rl import runs  # which a robot has no need of

    facts = runs.read_manifest(run)
    launch.found(run)  # or there is none
    paths = {int(path.stem.partition("-")[2]): path for path in run.glob("artefact-*.zip")}
    there = dict(sorted(paths.items()))
    if seed is not None:
        if seed not in there:
            told = ", ".join(map(str, there))
            raise ValueError(f"{run} has no artefact of seed {seed}; it has those of {told}.")
        return there[seed], f"seed {seed}, as asked"
    if len(there) == 1:
        (only,) = there
        return there[only], f"seed {only}, the only one"
    scores = scored(facts)
    if not scores:
        told = ", ".join(map(str, there))
        raise ValueError(
            f"{run} has not come to its end, so nobody knows which of its seeds is best: say "
            f"--seed, one of {told}."
        )
    best = max(there, key=lambda s: scores[s])
    return there[best], f"seed {best}, the best of {len(there)} (return {scores[best][1]:.4g})"


def scored(facts: dict[str, Any]) -> dict[int, tuple[float, float]]:
    """Of each seed, by a manifest: its share of successes, 0 where there are none, and its return,
    in its last evaluation; nothing if it has none."""
    if "eval_returns" not in facts:
        return {}
    returns = np.mean(facts["eval_returns"], axis=1)
    done = facts.get("eval_successes")
    shares = np.mean(done, axis=1) if done else np.zeros(len(returns))
    return dict(zip(facts.get("seeds", ()), zip(shares.tolist(), returns.tolist(), strict=True),
                    strict=True))  # fmt: skip
