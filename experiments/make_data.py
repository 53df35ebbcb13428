"""Demonstrations of an arm's task by its expert: clean, noisy, in several ways, with failures.

python -m experiments.make_data --env panda-pick-cube
python -m experiments.make_data --env panda-push-t --expert.noise 0.1 --failures 0.2

The same command makes the same data; its hash and what it is worth are in the file.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import envs
from envs.manipulation.expert import Expert
from envs.revealed import Revealed
from envs.simulation import Simulation
from experiments import cli, play
from rl import manifest, rollout
from rl.data import dataset
from rl.data.dataset import Dataset
from rl.policy import Policy, uniform
from rl.types import Key, Transition

WORLDS = 64  # episodes at a time
TRIES = 20  # episodes for each that is of use, at most
FIRST = 16 * TRIES  # episodes that may all be of no use
JUDGED = 200  # episodes that say what data are worth
FAILURES = 2**31  # no number of a batch: those that fail begin elsewhere


@dataclass(frozen=True)
class Args:
    env: Any = field(default_factory=lambda: envs.make_task("panda-pick-cube"))  # --env NAME
    env_name: tyro.conf.Suppress[str] = "panda-pick-cube"
    episodes: int = 100
    failures: float = 0.0  # share of the episodes that fail
    fumble: float = 0.03  # m, std of how wrong an expert that fails is about where things are
    expert: Expert = field(default_factory=Expert)  # way -1: each of the task's, as often
    seed: int = 0
    threads: int = 0  # for physics and XLA alike; 0: all this process has
    out: Path | None = None  # a new .npz file; None: data/TASK.npz


def main(args: Args) -> None:
    out = args.out or Path("data") / f"{args.env_name}.npz"
    cli.use_threads(args.threads)  # before an expert is asked, which touches JAX
    check(args, out)
    env = envs.simulate(args.env, "native", threads=args.threads)
    clumsy = replace(args.expert, mistake=max(args.fumble, args.expert.mistake))
    failures = round(args.failures * args.episodes)
    print(f"making   {args.episodes} episodes, and {2 * JUDGED} to judge them by", flush=True)
    key = jax.random.key(args.seed)
    good = gathered(env, args.expert, key, args.episodes - failures, True)
    bad = gathered(env, clumsy, jax.random.fold_in(key, FAILURES), failures, False)
    episodes = good + bad
    order = np.random.default_rng(args.seed).permutation(len(episodes))
    made = joined([episodes[i] for i in order], about(args, env))
    sha256 = dataset.write(out, made)
    done, ways = made.episodes["success"], made.episodes["way"]
    print(f"episodes {len(done)}, {len(made.steps['reward']):,} steps in all")
    print(f"success  {done.mean():.1%}, return {made.episodes['return'].mean():.1f}")
    counts = [f"{i} ({name}) {(ways == i).sum()}" for i, name in enumerate(args.env.ways)]
    print("ways     " + ", ".join(counts))
    for who, score in made.facts["scores"].items():
        print(f"{who:8} success {score['success']:.1%}, return {score['return']:.1f}")
    print(f"sha256   {sha256}\ndata     {out}")


def check(args: Args, out: Path) -> None:
    """Refuse what cannot be done, before anything is made."""
    if not hasattr(args.env, "plan"):
        able = ", ".join(name for name in envs.names() if hasattr(envs.make_task(name), "plan"))
        raise ValueError(f"There is no expert for {args.env_name}; there are for {able}.")
    cli.at_least(1, args, "episodes")
    cli.at_least(0, args, "seed")
    if not 0 <= args.failures <= 1:
        raise ValueError(f"--failures is {args.failures}; it takes a share in [0, 1].")
    if not 0 < args.fumble < 1:
        raise ValueError(f"--fumble is {args.fumble}; it takes m between 0 and 1.")
    if out.suffix != ".npz":
        raise ValueError(f"--out is {out}; it takes a file that ends in .npz.")
    if out.exists():
        raise ValueError(f"{out} is there already: name another file with --out, or delete it.")
    args.expert.policy(args.env)  # says what is wrong with the way
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out.parent).close()
    except OSError as error:
        raise ValueError(
            f"{out} cannot be written: {error.strerror}. Name a file in another folder with --out."
        ) from None


def gathered(env: Simulation, expert: Expert, key: Key, count: int, good: bool) -> list[Any]:
    """The first `count` episodes that succeed, or that fail, of those that `key` begins."""
    found: list[Any] = []
    policy, revealed = expert.policy(cast(Any, env.task)), Revealed(env)

    @jax.jit
    def some(key: jax.Array) -> tuple[Transition, jax.Array]:
        start_key, key = jax.random.split(key)
        worlds = rollout.start(revealed, policy, (), start_key, WORLDS)

        def tick(worlds: rollout.Worlds, key: jax.Array) -> Any:
            keys = jax.random.split(key, WORLDS)
            before = worlds.state
            action, carry, way = jax.vmap(policy.step, (None, 0, 0, 0))(
                (), worlds.carry, before.obs, keys
            )
            after = jax.vmap(revealed.step)(before, action)
            seen = Transition(
                before.obs, action, after.reward, after.terminated, after.truncated, after.obs, way
            )
            return worlds._replace(state=after, carry=carry), (seen, after.metrics["success"])

        return jax.lax.scan(tick, worlds, jax.random.split(key, env.horizon))[1]

    tried = 0
    while len(found) < count:
        if tried >= FIRST + TRIES * len(found):
            raise ValueError(
                f"Only {len(found)} of {tried:,} episodes {'succeeded' if good else 'failed'}, "
                f"and {count} are wanted: ask for "
                + ("less noise or more speed." if good else "more --fumble or fewer --failures.")
            )
        batch_key = jax.random.fold_in(key, tried // WORLDS)
        seen, success = jax.device_get(some(batch_key))
        found += [x for x in apart(seen, success) if x[1]["success"] == good]
        tried += WORLDS
    return found[:count]


def apart(seen: Transition, success: np.ndarray) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each world's episode: its steps, and its numbers."""
    over = seen.terminated | seen.truncated
    for world in range(success.shape[1]):
        length = int(over[:, world].argmax()) + 1
        steps = jax.tree.map(itemgetter((slice(length), world)), seen._replace(aux=()))
        way = int(seen.aux[0, world])
        total = float(steps.reward.sum())
        done = bool(success[length - 1, world])
        yield steps, {"length": length, "return": total, "success": done, "way": way}


def joined(episodes: list[Any], facts: dict[str, Any]) -> Dataset:
    steps = [dataset.named(steps) for steps, _ in episodes]
    numbers = [numbers for _, numbers in episodes]
    return Dataset(
        {name: np.concatenate([x[name] for x in steps]) for name in steps[0]},
        {name: np.array([x[name] for x in numbers]) for name in numbers[0]},
        facts,
    )


def about(args: Args, env: Simulation) -> dict[str, Any]:
    """Where data come from, and the scores of their expert without noise and of random actions."""
    random = uniform(env.action_dim)
    best = replace(args.expert, noise=0.0, mistake=0.0).policy(args.env)
    scores = {who: score(env, policy) for who, policy in (("random", random), ("expert", best))}
    config = manifest.plain({"env": args.env, "expert": args.expert})
    return {"task": args.env_name, **config, "seed": args.seed, "ways": [*args.env.ways],
            "failures": args.failures, "fumble": args.fumble, "scores": scores,
            "control_dt": env.control_dt}  # fmt: skip


def score(env: Simulation, policy: Policy) -> dict[str, float]:
    """Mean return and success from the starts that every policy is judged on."""

    @jax.jit
    def judged() -> tuple[jax.Array, jax.Array]:
        found = play.judged(Revealed(env), policy, (), JUDGED)
        return jnp.mean(found.returns), jnp.mean(found.final["success"])

    total, success = judged()
    return {"return": float(total), "success": float(success)}


if __name__ == "__main__":
    cli.run(main, Args)
