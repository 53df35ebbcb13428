"""Speed next to a peer in the same run: python -m benchmarks.speed {physics,rollout,ppo}

Every measurement alternates ours, peer, ours, peer, each in a process of its own that starts
cold; compiling is left out and reported apart.  Peers run in their own environments, which
benchmarks/peers/README.md says how to make.  A row is written as soon as it is measured.
"""

import functools
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from benchmarks import rows
from benchmarks.process import ROOT, Failed, Python
from benchmarks.rows import Pair, Run

PEERS = ROOT / "benchmarks" / "peers"
OURS = ("jax", "jaxlib", "flax", "mujoco")
ENVPOOL = ("envpool", "numpy")
SBX = ("sbx-rl", "stable-baselines3", "jax", "gymnasium", "mujoco")
PLAYGROUND = ("playground", "jax", "mujoco", "mujoco-mjx", "warp-lang")
# World counts worth trying: compiling MJX takes a minute for each.
PLAYGROUND_WORLDS = {"jax": (64, 256), "warp": (256, 1024)}
LONG = 3600.0  # s for one that trains


@dataclass(frozen=True)
class Args:
    """Measure a group of rows against the peers."""

    group: Annotated[Literal["physics", "rollout", "ppo"], tyro.conf.Positional]
    pairs: int | None = None  # of runs for each row (default: 5, and 3 of ppo/*/vs-sbx-default)
    only: str = ""  # measure only the rows whose name contains this
    peers: str = field(  # Python that has EnvPool and SBX ($SPEED_PEERS)
        default_factory=lambda: os.environ.get("SPEED_PEERS", ".venv-peers/bin/python")
    )
    playground: str = field(  # Python that has MuJoCo Playground ($SPEED_PLAYGROUND)
        default_factory=lambda: os.environ.get("SPEED_PLAYGROUND", ".venv-playground/bin/python")
    )
    worlds: tuple[int, ...] = (64, 256, 1024)  # the best of them counts, on each side its own
    seconds: float = 5.0  # s of stepping for each world count
    steps: int = 1_000_000  # of PPO
    results: Path = ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Measurement:
    """A row to be: each side is a function of the seed that runs one process."""

    what: str
    unit: str
    ours: Callable[[int], Run]
    peer: Callable[[int], Run] | None = None
    theirs: Python | None = None
    pairs: int = 5
    mean: str = ""  # what else of the runs the row gives a mean of


def measurements(args: Args) -> list[Measurement]:
    """The rows of `args.group`."""
    return {"physics": physics, "rollout": rollout, "ppo": ppo}[args.group](args)


def physics(args: Args) -> list[Measurement]:
    """Bare stepping of three tasks against EnvPool's, and what each task takes to compile."""
    import envs  # only here: the other groups start without JAX

    stepping = [
        Measurement(
            f"physics/{env}/vs-envpool", "env steps/s", _stepping(args, "physics", env),
            *_envpool(args, env),
        )
        for env in ("HalfCheetah-v5", "Ant-v5", "Humanoid-v5")
    ]  # fmt: skip
    compiling = [
        Measurement(f"physics/compile/{env}", "s", _stepping(args, "compile", env, worlds=(64,)))
        for env in envs.names()
    ]
    return stepping + compiling


def rollout(args: Args) -> list[Measurement]:
    """Rollouts with a policy against EnvPool's bare stepping, and against Playground's."""
    env = "HalfCheetah-v5"
    ours = _stepping(args, "rollout", env)
    playground = Python(args.playground, PLAYGROUND, "--playground")

    def peer(seed: int) -> Run:
        return _per_substep(_playground(args, playground, seed))

    return [
        Measurement(
            f"rollout/{env}/vs-envpool-bare", "env steps/s", ours, *_envpool(args, env)
        ),
        Measurement(
            "rollout/cheetah/vs-playground-substep", "physics substeps/s",
            lambda seed: _per_substep(ours(seed)), peer, playground,
        ),
    ]  # fmt: skip


def ppo(args: Args) -> list[Measurement]:
    """Learning HalfCheetah against SBX with one world, its default, and with eight."""
    theirs = Python(args.peers, SBX, "--peers")

    def peer(num_envs: int, seed: int) -> Run:
        told = theirs.run(
            PEERS / "sbx_ppo.py", "--env", "HalfCheetah-v5", "--num-envs", num_envs,
            "--steps", args.steps, "--seed", seed, timeout=LONG,
        )  # fmt: skip
        return {**told, "value": told["seconds"]}

    name = f"ppo/{args.steps / 1e6:g}M"
    ours = functools.partial(_train, args.steps)
    one, eight = functools.partial(peer, 1), functools.partial(peer, 8)
    return [
        Measurement(f"{name}/vs-sbx-default", "s", ours, one, theirs, pairs=3, mean="return"),
        Measurement(f"{name}/vs-sbx-best", "s", ours, eight, theirs, mean="return"),
    ]


def _stepping(
    args: Args, mode: str, env: str, worlds: tuple[int, ...] = ()
) -> Callable[[int], Run]:
    ours, worlds = Python(sys.executable, OURS), worlds or args.worlds
    return lambda seed: ours.run(
        "-m", "benchmarks.stepping", mode, "--env", env, "--worlds", *worlds,
        "--seconds", args.seconds, "--seed", seed,
    )  # fmt: skip


def _envpool(args: Args, env: str) -> tuple[Callable[[int], Run], Python]:
    python = Python(args.peers, ENVPOOL, "--peers")
    script = PEERS / "envpool_step.py"
    return lambda seed: python.run(
        script, "--env", env, "--worlds", *args.worlds, "--seconds", args.seconds, "--seed", seed
    ), python


def _playground(args: Args, python: Python, seed: int) -> Run:
    """The faster of Playground's CPU backends, with both; one that fails or stalls is told."""
    runs: dict[str, Run] = {}
    failed = None
    for impl, worlds in PLAYGROUND_WORLDS.items():
        try:
            runs[impl] = python.run(
                PEERS / "playground_step.py", "--impl", impl, "--worlds", *worlds,
                "--seconds", args.seconds, "--seed", seed,
            )  # fmt: skip
        except Failed as error:
            runs[impl], failed = {"value": 0.0, "error": str(error)}, error
    best = max(runs.values(), key=lambda run: run["value"])
    if failed and not best["value"]:
        raise failed
    return best | {"backends": runs}


def _per_substep(run: Run) -> Run:
    """A rate of environment steps as one of the physics steps they are made of."""
    return run | {"value": run["value"] * run["substeps"]}


def _train(steps: int, seed: int) -> Run:
    """Our PPO: seconds of learning, compile apart, and the return it reaches."""
    with tempfile.TemporaryDirectory() as out:
        said = Python(sys.executable, OURS).output(
            "-m", "experiments.ppo", "--env", "HalfCheetah-v5", "--steps", steps, "--seed", seed,
            "--out", out, "--no-video", timeout=LONG,
        )  # fmt: skip
        manifest = json.loads((Path(out) / "manifest.json").read_text())
    return {
        "value": manifest["train_s"],
        "compile_s": manifest["compile_s"],
        "return": float(said.splitlines()[-1].removeprefix("eval_return: ")),
    }


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
    try:
        main(tyro.cli(Args))
    except (Failed, ValueError) as error:
        sys.exit(f"error: {error}")
