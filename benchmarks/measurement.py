"""A row of benchmarks.speed to be: what both sides run, and the flags that say how."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from benchmarks.process import ROOT, Python, Run, peers_python

OURS = ("jax", "jaxlib", "flax", "mujoco")


@dataclass(frozen=True)
class Args:
    """Measure a group of rows against the peers."""

    group: Annotated[
        Literal[
            "physics",
            "rollout",
            "ppo",
            "sac",
            "td3",
            "large_batch",
            "seeds",
            "offline",
            "playground",
        ],
        tyro.conf.Positional,
    ]
    pairs: int | None = None  # of runs for each row (5, or 3 of ppo/*/vs-sbx-default, seeds/*)
    only: str = ""  # measure only the rows whose name contains this
    peers: str = field(default_factory=peers_python)  # that has EnvPool and SBX ($SPEED_PEERS)
    playground: str = field(  # Python that has MuJoCo Playground ($SPEED_PLAYGROUND)
        default_factory=lambda: os.environ.get("SPEED_PLAYGROUND", ".venv-playground/bin/python")
    )
    worlds: tuple[int, ...] = (64, 256, 1024)  # the best of them counts, on each side its own
    seconds: float = 5.0  # s of stepping for each world count
    steps: int = 1_000_000  # of PPO
    replay_steps: int = 8_000  # of SAC and TD3, the first 1,000 of them random
    many: int = 1_024  # worlds of large_batch
    batch: int = 8_192  # that it learns from
    rounds: int = 10  # steps of all its worlds
    checkouts: Path = ROOT / ".peers"  # with JAX-CORL and unifloral as they were cloned
    updates: int = 2_000  # of offline agents, in each of five repeats
    learners: int = 1  # of each offline agent, side by side
    together: int = 5  # seeds in a run of seeds
    duel_worlds: int | None = None  # of playground (8,192, or 64 on a CPU)
    duel_steps: int | None = None  # of PPO there (20,000,000, or 250,000)
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
