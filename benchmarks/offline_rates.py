"""Rows of offline learning: updates a second beside JAX-CORL, unifloral and FQL's authors, and what
they need."""

import functools
import sys

from benchmarks.measurement import OURS, Args, Measurement
from benchmarks.process import LONG, PEERS, Python, Run

CORL, UNIFLORAL = ("iql", "td3bc", "cql"), ("iql", "td3_bc")
NEEDS = ("jax", "jaxlib", "flax", "optax", "distrax")


def offline(args: Args) -> list[Measurement]:
    """An update on the same arrays, compile left out; matrix products alone; and memory."""
    theirs, one = Python(args.peers, NEEDS, "--peers"), Python(sys.executable, OURS)

    common = "--updates", args.updates, "--seeds", args.learners

    def ours(agent: str, seed: int) -> Run:
        given = *common, "--seed", seed
        return one.run("-m", "benchmarks.learning", agent, *given, timeout=LONG)

    def peer(script: str, name: str, agent: str, seed: int) -> Run:
        given = *common, "--seed", seed, "--checkout", args.checkouts / name
        return theirs.run(PEERS / script, agent, *given, timeout=LONG)

    found = []
    for name, script, agents in (
        ("jax-corl", "jax_corl.py", CORL), ("unifloral", "unifloral.py", UNIFLORAL),
        ("fql", "fql.py", ("fql",) * (args.learners == 1)),  # its update knows no seeds
    ):  # fmt: skip
        for agent in agents:
            run, mine = (functools.partial(f, *x) for f, x in (
                (peer, (script, name, agent)), (ours, (agent.replace("_", ""),)),
            ))  # fmt: skip
            seeds = f"/{args.learners}-seeds" * (args.learners > 1)
            what = f"offline/{agent.replace('_', '')}{seeds}/vs-{name}"
            found.append(Measurement(what, "updates/s", mine, run, theirs))
    found += [fraction(one, agent, args) for agent in ("iql", "td3bc", "cql", "fql")]
    return [
        *found,
        Measurement("offline/memory", "bytes/byte of data", functools.partial(held, one)),
    ]


def held(one: Python, seed: int) -> Run:
    """What a run holds more of as its data grow, by what they grow."""
    small, large = (
        one.run("-m", "benchmarks.memory", "--steps", steps, "--seed", seed)
        for steps in (50_000, 2_000_000)
    )
    grown = large["value"] - small["value"]
    return {"value": grown / (large["data"] - small["data"]), "small": small, "large": large}


def fraction(one: Python, agent: str, args: Args) -> Measurement:
    """An update against the matrix products that it is made of."""
    update, matmul = (
        lambda seed, mode=mode: one.run(
            "-m", "benchmarks.update", mode, "--agent", agent, "--seed", seed, timeout=LONG
        )
        for mode in ("update", "matmul")
    )
    return Measurement(f"offline/{agent}/matmul-fraction", "s", update, matmul, one)
