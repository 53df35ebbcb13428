"""A task's data by who acts: an arm's expert, a run's policy as it explored, or chance.

python -m experiments.make_data --env panda-pick-cube
python -m experiments.make_data --env panda-push-t --expert.noise 0.1 --failures 0.2
python -m experiments.make_data --env HalfCheetah-v5 --by benchmarks/policies/half-cheetah-ppo

The same command makes the same data; its hash and what it is worth are in the file.
"""

from dataclasses import dataclass, field, replace
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
from experiments import cli, episodes, play
from experiments.episodes import Episode
from rl import checkpoint, manifest, resources
from rl.data import npz
from rl.data.dataset import Dataset
from rl.env import Env
from rl.policy import Policy, uniform
from rl.types import Key, Params

JUDGED = 200  # episodes that say what data are worth
FAILURES = 2**31  # no number of a batch: those that fail begin elsewhere


@dataclass(frozen=True)
class Args:
    env: Any = field(default_factory=lambda: envs.make_task("panda-pick-cube"))  # --env NAME
    env_name: tyro.conf.Suppress[str] = "panda-pick-cube"
    by: str = "expert"  # who acts: the task's expert, "random", or a run's directory
    explore: bool = True  # a run's policy, as it did when it learned
    successes: bool = False  # of a run or of chance, only episodes that succeed
    episodes: int = 100
    failures: float = 0.0  # share of the episodes that fail
    fumble: float = 0.03  # m, std of how wrong an expert that fails is about where things are
    expert: Expert = field(default_factory=Expert)  # way -1: each of the task's, as often
    seed: int = 0
    threads: int = 0  # for physics and XLA alike; 0: all this process has
    out: Path | None = None  # a new .npz file; None: data/TASK.npz


def main(args: Args) -> None:
    out = args.out or Path("data") / f"{args.env_name}.npz"
    resources.use_threads(args.threads)  # before an expert is asked, which touches JAX
    check(args, out)
    env = envs.simulate(args.env, "native", threads=args.threads)
    print(f"making   {args.episodes} episodes, and {2 * JUDGED} to judge them by", flush=True)
    data = episodes.joined(made(args, env), about(args, env))
    sha256 = npz.write(out, data)
    tell(args, data)
    print(f"sha256   {sha256}\ndata     {out}")


def tell(args: Args, data: Dataset) -> None:
    """What was made, and what it is worth."""
    found = data.episodes
    print(f"episodes {args.episodes}, {len(data.steps['reward']):,} steps in all")
    rows = {"data": {name: found[name].mean() for name in ("return", "success") if name in found}}
    for who, score in (rows | data.facts["scores"]).items():
        done = f"success {score['success']:.1%}, " if "success" in score else ""
        print(f"{who:8} {done}return {score['return']:.1f}")
    if "way" in found:
        counts = np.bincount(found["way"], minlength=len(args.env.ways))
        each = zip(args.env.ways, counts, strict=True)
        print("ways     " + ", ".join(f"{i} ({n}) {c}" for i, (n, c) in enumerate(each)))


def check(args: Args, out: Path) -> None:
    """Refuse what cannot be done, before anything is made."""
    if args.by == "expert":
        check_expert(args)
    elif args.by != "random" and not Path(args.by).exists():
        raise ValueError(f"There is no run {args.by}: --by takes expert, random, or a run's path.")
    if args.by == "expert" and args.successes:
        raise ValueError("--successes is for --by a run: an expert's are unless --failures asks.")
    if args.by != "expert" and (args.failures or args.expert != Expert()):
        raise ValueError("--failures and --expert... are for experts: --by tells who acts.")
    cli.at_least(1, args, "episodes")
    cli.at_least(0, args, "seed")
    if not 0 <= args.failures <= 1:
        raise ValueError(f"--failures is {args.failures}; it takes a share in [0, 1].")
    if not 0 < args.fumble < 1:
        raise ValueError(f"--fumble is {args.fumble}; it takes m between 0 and 1.")
    npz.require_writable(out)


def check_expert(args: Args) -> None:
    """Raise ValueError where there is no such expert of the task."""
    if not hasattr(args.env, "plan"):
        able = ", ".join(name for name in envs.names() if hasattr(envs.make_task(name), "plan"))
        raise ValueError(
            f"There is no expert for {args.env_name}; there are for {able}. --by RUN records a "
            "policy of yours."
        )
    args.expert.policy(args.env)  # says what is wrong with the way


def made(args: Args, env: Simulation) -> list[Episode]:
    """Episodes of who acts, in an order of no meaning."""
    key, failures = jax.random.key(args.seed), round(args.failures * args.episodes)
    if args.by != "expert":
        policy, params = actor(args, env)
        wanted = lambda facts: facts.get("success", False) or not args.successes  # noqa: E731
        try:
            return episodes.gathered(told(args, env), policy, params, key, args.episodes, wanted)
        except episodes.TooFew as error:
            raise ValueError(
                f"Only {error.found} of {error.tried:,} episodes succeeded, and {args.episodes} "
                "are wanted: ask for fewer, or leave --successes out."
            ) from None
    clumsy = replace(args.expert, mistake=max(args.fumble, args.expert.mistake))
    good = shown(env, args.expert, key, args.episodes - failures, True)
    bad = shown(env, clumsy, jax.random.fold_in(key, FAILURES), failures, False)
    order = np.random.default_rng(args.seed).permutation(args.episodes)
    return [(good + bad)[i] for i in order]


def told(args: Args, env: Simulation) -> Env:
    """The world, with its readings where an expert's episodes have them: ways are told by these."""
    return Revealed(env) if hasattr(args.env, "plan") else env


def shown(env: Simulation, expert: Expert, key: Key, count: int, good: bool) -> list[Episode]:
    """Episodes in which an expert succeeds, or in which it fails, with its way."""
    policy, wanted = expert.policy(cast(Any, env.task)), lambda facts: facts["success"] == good
    try:
        found = episodes.gathered(Revealed(env), policy, (), key, count, wanted)
    except episodes.TooFew as error:
        raise ValueError(
            f"Only {error.found} of {error.tried:,} episodes {'succeeded' if good else 'failed'}, "
            f"and {count} are wanted: ask for "
            + (
                "less --expert.noise or .mistake, or more .speed."
                if good
                else "more --fumble or fewer --failures."
            )
        ) from None
    return [Episode(x.steps, x.facts | {"way": int(x.steps.aux[0])}) for x in found]


def actor(args: Args, env: Simulation) -> tuple[Policy, Params]:
    """Whose actions are recorded: chance's, or those of a run's policy as it explored."""
    if args.by == "random":
        return uniform(env.action_dim), ()
    run = Path(args.by)
    theirs, policy, params = play.load(run, explore=args.explore)
    then, now = manifest.plain(theirs.task), manifest.plain(env.task)
    if then != now:
        raise ValueError(f"{run} is of another task: {manifest.difference('env', then, now)}.")
    return policy, params


def about(args: Args, env: Simulation) -> dict[str, Any]:
    """Where the data come from, and the scores of who acted, without noise, and of chance."""
    facts = {"task": args.env_name, "env": args.env, "by": args.by, "seed": args.seed,
             "control_dt": env.control_dt}  # fmt: skip
    world: Env = env
    if args.by == "expert":
        best, params = replace(args.expert, noise=0.0, mistake=0.0).policy(args.env), ()
        facts |= {"expert": args.expert, "ways": [*args.env.ways], "failures": args.failures,
                  "fumble": args.fumble}  # fmt: skip
        world, who = Revealed(env), "expert"
    else:
        best, params = actor(replace(args, explore=False), env)
        facts |= {"explore": args.explore, "successes": args.successes}
        facts |= {"policy_sha256": checkpoint.fingerprint(params)}
        who = "policy"
    scores = {"random": score(world, uniform(env.action_dim), ())}
    if args.by != "random":
        scores[who] = score(world, best, params)
    return manifest.plain(facts) | {"scores": scores}


def score(env: Env, policy: Policy, params: Params) -> dict[str, float]:
    """Mean return, and success, from the starts that every policy is judged on."""
    judged = jax.jit(lambda params: play.judged(env, policy, params, JUDGED))(params).sound()
    found = {"return": judged.returns, "success": judged.final.get("success")}
    return {name: float(jnp.mean(x)) for name, x in found.items() if x is not None}


if __name__ == "__main__":
    cli.run(main, Args)
