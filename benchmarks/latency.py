"""python -m benchmarks latency: how long a policy takes for a plan, alone, against sampling steps.

A plan of 8 actions of 4 numbers by one observation of 62, as a peg's insertion has it, of networks
of 3 layers of 512.  A call is a policy's first step of an episode, in which it plans.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import mujoco
import numpy as np
from matplotlib.figure import Figure

from agents.diffusion_bc import DiffusionBC
from agents.flow_bc import FlowBC
from agents.one_step import OneStep
from benchmarks import rows
from benchmarks.process import ROOT
from experiments.distill import timed, times
from rl import artefact
from rl.diffusion import Diffusion
from rl.export import Exporter
from rl.generative import Flow
from rl.policy import Policy
from rl.spec import Sensor, Spec
from rl.types import Array, Params, Readings

OBS, ACTIONS = 62, 4
STEPS = 1, 2, 5, 10, 20
BARS = {"flow/10": 2.0, "one-step/1": 0.3}  # ms, of the median on two cores


class Case(NamedTuple):
    agent: Any
    exported: bool = False  # also as a robot has it


CASES = {
    **{f"flow/{k}": Case(FlowBC(flow=Flow(steps=k)), k == 10) for k in STEPS},
    "heun/10": Case(FlowBC(flow=Flow(steps=10, solver="heun"))),
    "ddim/10": Case(DiffusionBC(diffusion=Diffusion(levels=100, steps=10, eta=0.0))),
    "one-step/1": Case(OneStep(base=FlowBC()), True),
}


@dataclass(frozen=True)
class Args:
    """Measure how long plans take, in ms, and draw it."""

    calls: int = 1_000
    results: Path = ROOT / "benchmarks" / "results" / "latency.jsonl"
    picture: Path = ROOT / "docs" / "latency.png"


def main(args: Args) -> None:
    if args.calls < 1:
        raise ValueError(f"--calls is {args.calls}; it needs at least 1.")
    about = rows.about()
    for name, case in CASES.items():
        for way, seconds in measured(case, args.calls).items():
            told = row(name + way, seconds, BARS.get(name))
            print(name + way, *(f"{x} {told[x]:.3f}" for x in ("p50", "p90", "p99")), flush=True)
            rows.write(args.results, told | about)
    args.picture.parent.mkdir(parents=True, exist_ok=True)
    figure(rows.read(args.results)).savefig(args.picture, dpi=100, metadata={"Software": None})
    print(f"rows in {args.results}, picture {args.picture}")


def measured(case: Case, calls: int) -> dict[str, np.ndarray]:
    """Seconds [calls] of a policy, and of its artefact."""
    obs, agent = np.zeros(OBS, np.float32), case.agent
    params = agent.deploy(agent.init(jax.random.key(0), obs, np.zeros(ACTIONS, np.float32)))
    policy = agent.policy(False, ACTIONS)
    took = {"": times(policy, params, obs, calls)}
    if not case.exported:
        return took
    deployed = robots(policy, params)

    def call() -> None:
        deployed.reset()
        deployed.step({"obs": obs}, np.zeros(0))

    return took | {"/artefact": timed(call, calls)}


def row(name: str, seconds: np.ndarray, bar: float | None) -> dict[str, Any]:
    p50, p90, p99 = (1e3 * np.quantile(seconds, (0.5, 0.9, 0.99))).tolist()
    told = {"what": f"latency/{name}", "p50": p50, "p90": p90, "p99": p99, "unit": "ms"}
    return told | {"calls": len(seconds), "bar": bar}


def robots(policy: Policy, params: Params) -> artefact.Deployed:
    """The policy out of an artefact, whose one reading is what it sees."""

    def step(params: Params, carry: Any, readings: Readings, command: Array) -> tuple[Array, Any]:
        return policy.step(params, carry, readings["obs"], jax.random.key(0))[:2]

    spec = Spec("peg", (Sensor("obs", OBS, "", ""),), (), (), 0.05, 0.05, 180.0)
    nothing = mujoco.MjModel.from_xml_string("<mujoco/>")
    exporter = Exporter(spec, nothing, step, params, policy.init(params))
    seen = {"obs": np.zeros((1, OBS), np.float32)}
    return artefact.deploy(exporter.artefact(params, seen, np.zeros((1, 0), np.float32)))


def figure(found: Mapping[str, dict[str, Any]]) -> Figure:
    """Medians against steps of sampling, with whiskers to the 90th percentile."""
    kinds: dict[str, dict[int, dict[str, Any]]] = {}
    for what, told in found.items():
        _, kind, steps, *of = what.split("/")
        kinds.setdefault(" ".join([kind, *of]), {})[int(steps)] = told
    whole = Figure(figsize=(6.5, 3.8), layout="constrained")
    axes = whole.subplots()
    for i, (kind, points) in enumerate(sorted(kinds.items(), key=lambda x: -len(x[1]))):
        steps = sorted(points)
        p50, p90 = (np.array([points[x][name] for x in steps]) for name in ("p50", "p90"))
        apart = np.array(steps) * 1.05**i  # so that none hides another
        axes.errorbar(apart, p50, [0 * p50, p90 - p50], label=kind, marker="o", ms=4, capsize=2)
    for name, bar in BARS.items():
        axes.axhline(bar, color="k", ls=":", lw=0.8)
        axes.text(3.2, bar, f"bar of {name}", ha="center", va="top", fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel="steps of sampling", ylabel="a plan, ms")
    axes.set_xticks(STEPS, map(str, STEPS))
    ticks = 0.1, 0.2, 0.5, 1, 2, 5, 10
    axes.set_yticks(ticks, map(str, ticks))
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    whole.legend(loc="outside right upper", fontsize=8, frameon=False)
    return whole
