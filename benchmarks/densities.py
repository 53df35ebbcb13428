"""python -m benchmarks densities: which of several ways of acting imitators keep, seeing nothing.

Actions of two numbers that demonstrators drew from a density; what a Gaussian, a flow, a diffusion
and the flow's student in one pass draw after learning from them, and how far that is from the
density by the energy distance (Szekely, Rizzo 2013).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from scipy.spatial.distance import cdist

from agents.bc import BC
from agents.diffusion_bc import DiffusionBC
from agents.flow_bc import FlowBC
from agents.one_step import OneStep
from benchmarks import rows
from benchmarks.process import ROOT
from rl.chunks import Chunks
from rl.denoisers import Dense
from rl.types import Array, Key, Transition

DRAWN, BATCH, SPOTS, NARROW = 2_000, 256, 8, 0.04
BLANK, ACTION = jnp.ones(1), jnp.zeros(2)
ONE, NET, FAST = Chunks(horizon=1, execute=1), Dense((128, 128, 128)), 1e-3
FLOW = FlowBC(chunks=ONE, net=NET, lr=FAST)
AGENTS: dict[str, Any] = {
    "bc": BC(hidden=(128, 128)),
    "flow_bc": FLOW,
    "diffusion_bc": DiffusionBC(chunks=ONE, net=NET, lr=FAST),
    "one_step": OneStep(base=FLOW, net=NET, lr=FAST),
}


@dataclass(frozen=True)
class Args:
    """Train imitators of toy densities, and draw what they draw."""

    updates: int = 16_000  # of each
    results: Path = ROOT / "benchmarks" / "results" / "densities.jsonl"
    picture: Path = ROOT / "docs" / "densities.png"


def spots(key: Key, count: int) -> Array:
    """Narrow Gaussians on a circle."""
    at_key, key = jax.random.split(key)
    turn = jax.random.randint(at_key, (count, 1), 0, SPOTS) * 2 * jnp.pi / SPOTS
    middle = 0.75 * jnp.concatenate([jnp.cos(turn), jnp.sin(turn)], 1)
    return middle + NARROW * jax.random.normal(key, (count, 2))


def moons(key: Key, count: int) -> Array:
    """Two halves of circles, each with an end in the other."""
    side_key, along_key, key = jax.random.split(key, 3)
    side = 2.0 * jax.random.bernoulli(side_key, shape=(count, 1)) - 1
    turn = jnp.pi * jax.random.uniform(along_key, (count, 1))
    bent = jnp.concatenate([jnp.cos(turn) - 0.5, jnp.sin(turn) - 0.25], 1)
    return 0.6 * side * bent + NARROW * jax.random.normal(key, (count, 2))


DENSITIES = {"spots": spots, "moons": moons}


def batch(density: Callable[[Key, int], Array], key: Key) -> Transition:
    """Windows [1, B, 1, ...] of a demonstrator who sees nothing."""
    action = density(key, BATCH)[None, :, None]
    none, obs = jnp.zeros((1, BATCH, 1)), jnp.ones((1, BATCH, 1, 1))
    return Transition(obs, action, none, none > 0, none > 0, obs)


def learned(agent: Any, density: Callable[[Key, int], Array], updates: int, base: Any) -> Any:
    """What is deployed after so many updates, above a `base` that has been, if any."""
    begin_key, seen_key, key = jax.random.split(jax.random.key(0), 3)
    state = agent.init(begin_key, BLANK, ACTION)
    state = state._replace(base=base) if hasattr(state, "base") else state
    seen = jax.tree.map(lambda x: x[0], batch(density, seen_key))
    state = agent.observe(state, seen)

    def step(state: Any, key: Key) -> tuple[Any, None]:
        seen_key, key = jax.random.split(key)  # noise must not be what the data were drawn by
        return agent.update(state, batch(density, seen_key), key)[0], None

    keys = jax.random.split(key, updates)
    return agent.deploy(jax.jit(lambda s: jax.lax.scan(step, s, keys)[0])(state))


def drawn(agent: Any, params: Any) -> np.ndarray:
    """Actions [DRAWN, 2] at first steps of episodes."""
    policy = agent.policy(True, 2)
    act = lambda key: policy.step(params, policy.init(params), BLANK, key)[0]  # noqa: E731
    return np.asarray(jax.jit(jax.vmap(act))(jax.random.split(jax.random.key(7), DRAWN)))


def distance(x: np.ndarray, y: np.ndarray) -> float:
    """The energy distance of two samples, without a bias: below 0 by chance where they are one."""
    n, m = len(x), len(y)
    within = cdist(x, x).sum() / (n * (n - 1)) + cdist(y, y).sum() / (m * (m - 1))
    return float(2 * cdist(x, y).mean() - within)


def main(args: Args) -> None:
    if args.updates < 1:
        raise ValueError(f"--updates is {args.updates}; it needs at least 1.")
    about, found = rows.about(), {}
    for name, density in DENSITIES.items():
        made = {"demonstrations": np.asarray(density(jax.random.key(8), DRAWN))}
        fresh = np.asarray(density(jax.random.key(9), DRAWN))  # of which another sample is
        print(f"{name}: another sample {distance(made['demonstrations'], fresh):.5f}")
        params: Any = None
        for who, agent in AGENTS.items():
            mine = learned(agent, density, args.updates, params)
            params = mine if agent is FLOW else params  # whose student comes last
            made[who] = drawn(agent, mine)
            told = {"what": f"densities/{name}/{who}", "value": distance(made[who], fresh)}
            told |= {"unit": "energy distance", "updates": args.updates}
            print(f"{name}: {who} {told['value']:.5f}", flush=True)
            rows.write(args.results, told | about)
        found[name] = made
    args.picture.parent.mkdir(parents=True, exist_ok=True)
    figure(found).savefig(args.picture, dpi=90, metadata={"Software": None})
    print(f"rows in {args.results}, picture {args.picture}")


def figure(found: dict[str, dict[str, np.ndarray]]) -> Figure:
    """What demonstrators and imitators draw, a row for each density."""
    whole = Figure(figsize=(10, 2 * len(found) + 0.3), layout="constrained")
    for line, made in zip(whole.subplots(len(found), len(AGENTS) + 1), found.values(), strict=True):
        for axis, (who, x) in zip(line, made.items(), strict=True):
            axis.plot(*x.T, ".", ms=1.2, alpha=0.5, rasterized=True)
            axis.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), xticks=[], yticks=[], aspect="equal")
            axis.set_title(who, fontsize=9)
    return whole
