"""python -m benchmarks family RUN...: judge policies over a family of contexts, not over one.

Masses, friction, gains and delays that differ from the task's own: a ranking on one MDP can change
over its family (Jayawardana et al. 2022, arXiv:2210.08607).  Every policy meets every context from
the same starts.  A record and a picture lie beside the policy.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import tyro
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from rich.table import Table

import envs
from benchmarks.contexts import SCALES, SPLITS, Family, read
from envs.simulation import Simulation
from envs.variant import Variant, vary
from experiments import play
from rl import rollout, runs, stats
from rl.policy import Policy
from rl.types import Params

MEASURES = ("nominal", "mean", "iqm", "worst_tenth", *SPLITS)
COLOURS = {"nominal": "k", "interpolation": "tab:blue", "extrapolation": "tab:orange"}


@dataclass(frozen=True)
class Args:
    """Judge policies in every context of a family: mean, IQM and worst tenth."""

    run: tyro.conf.Positional[tuple[Path, ...]]  # runs' directories
    family: str = ""  # of benchmarks/families, or the path of a .toml; none: as the task has it
    episodes: int = 32  # in each context
    seed: int | None = None  # of the runs; None: all
    physics: Literal["native", "mjx", "warp"] = "native"
    out: Path | None = None  # records go to OUT/RUN; None: to the runs themselves


def main(args: Args) -> None:
    if not args.run or args.episodes < 1:
        raise ValueError("It takes the directory of a run, or several, and at least 1 episode.")
    places = [args.out / run.resolve().name if args.out else run for run in args.run]
    if len({place.resolve() for place in places}) < len(places):
        raise ValueError("Two runs would have their records in one place: judge them apart.")
    console, rows = Console(width=None if Console().is_terminal else 120), []
    for run, place in zip(args.run, places, strict=True):
        seeds = runs.read_manifest(run)["seeds"] if args.seed is None else [args.seed]
        env, policy, params = play.load_all(run, args.seed)
        env = envs.simulate(env.task, args.physics)
        family = read(args.family or default(env))
        stem = f"family-{family.name}" + ("" if args.seed is None else f"-{args.seed}")
        record = place / f"{stem}.jsonl"
        check_record(record, family)
        print(f"{family.name}: {len(family.contexts)} contexts x {args.episodes} starts of {run}")
        print(family.about)
        found = judged(env, policy, params, family, args.episodes)
        returns = np.asarray(found.returns)  # [seeds, contexts, starts]
        scores = returns[0].T if len(seeds) == 1 else returns.mean(-1)
        about = {"family": family.name, "sha256": family.hash, "run": str(run)}
        about |= {"env": runs.read_manifest(run)["env"], "physics": args.physics}
        rows.append(about | {"seeds": seeds, "summary": summary(scores, family)})
        console.print(table(scores, family))
        if failed := int(found.failed.sum()):
            print(f"note: the simulation failed in {failed} episodes, which ended there")
        told = [*lines(about, seeds, family, found), rows[-1]]
        place.mkdir(parents=True, exist_ok=True)
        runs.write(record, "".join(json.dumps(line) + "\n" for line in told).encode())
        picture(record.with_suffix(".png"), rows[-1], scores, family)
        print(f"record   {record}\npicture  {record.with_suffix('.png')}\n")
    console.print(comparison(rows))
    for said in reversals(rows):
        print(said)


def default(env: Simulation) -> str:
    return "quadruped-v1" if hasattr(env.task, "legged") else "gym-v1"


def judged(
    env: Simulation, policy: Policy, params: Sequence[Params], family: Family, episodes: int
) -> rollout.Episodes:
    """Each policy in each context, from the starts on which `play` judges: leaves [P, C, E].

    On MuJoCo a context at a time, so that it is the same to the last bit in any family: one
    program, and one for the model as it is, which no float32 hands over.  MJX takes all at once.
    """
    variants = [context.variant for context in family.contexts]
    if max(most := family.most) >= env.horizon:
        raise ValueError(f"{family.name} has delays of {most} steps, an episode {env.horizon}.")

    def one(params: Params, variant: Variant, scale: bool) -> rollout.Episodes:
        return play.judged(vary(env, variant, most, scale), policy, params, episodes)

    def stack(found: Sequence[Any]) -> Any:
        return jax.tree.map(lambda *x: np.stack(x), *found)

    if env.physics.dear_resets:
        many = jax.jit(jax.vmap(lambda p, v: one(p, v, True), (None, 0)))
        return stack([jax.device_get(many(p, stack(variants))).sound() for p in params])
    program, nominal = jax.jit(one, static_argnums=2), Variant()[: len(SCALES)]
    todo = [(p, v, v[: len(SCALES)] != nominal) for p in params for v in variants]
    shown = track(todo, "judging", transient=True, disable=not Console().is_terminal)
    found = stack([jax.device_get(program(*each)) for each in shown])
    return jax.tree.map(lambda x: x.reshape(len(params), len(variants), *x.shape[1:]), found)


def worst_tenth(means: np.ndarray) -> np.ndarray:
    """Mean of the lowest tenth, rounded up, of contexts' mean returns [..., C] (CVaR)."""
    return np.sort(means, -1)[..., : -(-means.shape[-1] // 10)].mean(-1)


def summary(scores: np.ndarray, family: Family) -> dict[str, list[float]]:
    """Each of MEASURES and its 95% interval, of scores [R, C] of starts, or of seeds' means."""

    def measures(drawn: np.ndarray) -> np.ndarray:  # [..., R, 1, C]
        means = drawn.mean(-3)[..., 0, :]
        splits = [means[..., family.of(split)].mean(-1) for split in SPLITS]
        iqm = stats.iqm(means[..., None, :])
        return np.stack([means[..., 0], means.mean(-1), iqm, worst_tenth(means), *splits], -1)

    joint = scores[:, None]  # a start is drawn for all contexts at once, as they share it
    found = np.vstack([measures(joint), stats.bootstrap(measures, joint)])
    return {name: found[:, i].tolist() for i, name in enumerate(MEASURES)}


def check_record(record: Path, family: Family) -> None:
    """Raise ValueError if what lies there is no earlier record of this family."""
    old = runs.read_rows(record)
    if old and old[0].get("sha256") != family.hash:
        raise ValueError(
            f"{record} is of other contexts: a family that changes needs a higher version. Move "
            "the file away, or give another --out."
        )
    if not old and record.with_suffix(".png").exists():
        raise ValueError(f"{record.with_suffix('.png')} is there already, without its record.")


def lines(
    about: dict[str, Any], seeds: list[int], family: Family, found: rollout.Episodes
) -> Iterator[dict[str, Any]]:
    """A row of each policy in each context."""
    for i, seed in enumerate(seeds):
        for j, context in enumerate(family.contexts):
            factors = {"context": context.label, "split": context.split}
            factors |= context.variant._asdict()
            of = {name: getattr(found, name)[i, j].tolist() for name in ("returns", "lengths")}
            yield about | {"seed": seed} | factors | of | {"failed": int(found.failed[i, j])}


def table(scores: np.ndarray, family: Family) -> Table:
    shown, means = Table(box=None), scores.mean(0)
    for name in ("context", "split", "return", "95% interval", "off nominal"):
        shown.add_column(name, justify="left" if name in ("context", "split") else "right")
    bounds = stats.interval_of_mean(scores).T
    for context, mean, (low, high) in zip(family.contexts, means, bounds, strict=True):
        interval, off = f"{number(low)} to {number(high)}", number(mean - means[0])
        shown.add_row(context.label, context.split, number(mean), interval, off)
    return shown


def comparison(rows: list[dict[str, Any]]) -> Table:
    """A line for each run."""
    shown = Table(box=None)
    for name in ("run", *MEASURES):
        side = "left" if name == "run" else "right"
        shown.add_column(name.replace("_", " "), justify=side, overflow="fold")
    for row in rows:
        told = (map(number, row["summary"][name]) for name in MEASURES)
        cells = [f"{middle}\n{low} to {high}" for middle, low, high in told]
        shown.add_row(f"{row['run']}\n{row['env']}, {row['family']}", *cells)
    return shown


def reversals(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Where runs of one task rank otherwise over the family than in the nominal context."""
    for env, name in dict.fromkeys((row["env"], row["family"]) for row in rows):
        mine = [row for row in rows if (row["env"], row["family"]) == (env, name)]
        ranks = {
            by: " > ".join(x["run"] for x in sorted(mine, key=lambda x: -x["summary"][by][0]))
            for by in ("nominal", "mean", "iqm", "worst_tenth")
        }
        for by, rank in ranks.items():
            if rank != ranks["nominal"]:
                yield f"{env}: by {by} {rank}, but nominally {ranks['nominal']}"


def picture(path: Path, row: dict[str, Any], scores: np.ndarray, family: Family) -> None:
    """A bar for each context, with its interval."""
    means, (low, high) = scores.mean(0), stats.interval_of_mean(scores)
    figure = Figure(figsize=(7, 1.2 + 0.17 * len(means)), layout="constrained")
    axes, at = figure.add_subplot(), np.arange(len(means))
    for split, colour in COLOURS.items():
        i = family.of(split)
        off = abs(np.stack([low, high]) - means)[:, i]
        axes.barh(at[i], means[i], xerr=off, color=colour, ecolor="0.5", label=split)
    axes.set_yticks(at, [context.label for context in family.contexts], fontsize=6)
    for name, style in (("mean", "-"), ("iqm", "--"), ("worst_tenth", ":")):
        axes.axvline(
            row["summary"][name][0], ls=style, color="k", lw=0.8, label=name.replace("_", " ")
        )
    name = Path(row["run"]).resolve().name
    figure.suptitle(f"{name}: {row['env']} over {row['family']}", fontsize=9)
    axes.set_xlabel("return")
    axes.invert_yaxis()
    axes.margins(y=0.01)
    figure.legend(fontsize=7, loc="outside lower center", ncols=6)
    figure.savefig(path, dpi=110)


def number(x: float) -> str:
    return f"{x:,.{0 if abs(x) >= 100 else 2}f}"
