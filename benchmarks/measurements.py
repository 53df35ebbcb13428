"""What benchmarks.speed measures: for each row, how to run our side of it and the peer's."""

import functools
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.duels import playground
from benchmarks.measurement import OURS, Args, Measurement
from benchmarks.offline_rates import offline
from benchmarks.process import LONG, PEERS, Failed, Python, Run, trained

ENVPOOL = ("envpool", "numpy")
SBX = ("sbx-rl", "stable-baselines3", "jax", "gymnasium", "mujoco")
PLAYGROUND = ("playground", "jax", "mujoco", "mujoco-mjx", "warp-lang")
# World counts worth trying: compiling MJX takes a minute for each.
PLAYGROUND_WORLDS = {"jax": (64, 256), "warp": (256, 1024)}


def measurements(args: Args) -> list[Measurement]:
    """The rows of `args.group`."""
    groups = {
        "physics": physics,
        "rollout": rollout,
        "ppo": ppo,
        "large_batch": large_batch,
        "seeds": seeds,
        "offline": offline,
        "playground": playground,
    }
    groups |= {"sac": sac, "td3": functools.partial(off_policy, agent="td3")}
    return groups[args.group](args)


def physics(args: Args) -> list[Measurement]:
    """Bare stepping of three tasks against EnvPool's, and what each task takes to compile."""
    import envs  # only here: the other groups start without JAX

    stepping = [
        Measurement(
            f"physics/{env}/vs-envpool", "env steps/s", _stepping(args, "physics", "--env", env),
            *_envpool(args, env),
        )
        for env in ("HalfCheetah-v5", "Ant-v5", "Humanoid-v5")
    ]  # fmt: skip
    compiling = [
        Measurement(
            f"physics/compile/{env}", "s", _stepping(args, "compile", "--env", env, worlds=(64,))
        )
        for env in envs.names()
    ]
    return stepping + compiling


def rollout(args: Args) -> list[Measurement]:
    """Rollouts with a policy against EnvPool's bare stepping, Playground's, and bare physics."""
    env = "HalfCheetah-v5"
    ours = _stepping(args, "rollout", "--env", env)
    playground = Python(args.playground, PLAYGROUND, "--playground")

    def peer(seed: int) -> Run:
        return _per_substep(_playground(args, playground, seed))

    walker = "go1-joystick-flat"
    policy = PEERS.parent / "policies" / walker
    alone, bare = (
        _stepping(args, mode, policy, module="retracing") for mode in ("rollout", "bare")
    )
    return [
        Measurement(
            f"rollout/{walker}/vs-bare-batch", "env steps/s", alone, bare,
            Python(sys.executable, OURS),
        ),
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

    def ours(seed: int) -> Run:
        return trained("ppo", "--env", "HalfCheetah-v5", "--steps", args.steps, "--seed", seed)

    one, eight = functools.partial(peer, 1), functools.partial(peer, 8)
    return [
        Measurement(f"{name}/vs-sbx-default", "s", ours, one, theirs, pairs=3, mean="return"),
        Measurement(f"{name}/vs-sbx-best", "s", ours, eight, theirs, mean="return"),
    ]


def sac(args: Args) -> list[Measurement]:
    """SAC against SBX's, and its update against the matrix products it is made of."""
    one = Python(sys.executable, OURS)
    update, matmul = (
        lambda seed, mode=mode: one.run("-m", "benchmarks.update", mode, "--seed", seed)
        for mode in ("update", "matmul")
    )
    fraction = Measurement("sac/matmul-fraction", "s", update, matmul, one)
    return [*off_policy(args, "sac"), fraction]


def off_policy(args: Args, agent: str) -> list[Measurement]:
    """An update for each transition, compile and evaluation left out, against SBX's."""
    theirs = Python(args.peers, SBX, "--peers")

    def words(num_envs: int, seed: int) -> tuple[Any, ...]:
        return (
            "--env", "HalfCheetah-v5", "--num-envs", num_envs, "--steps", args.replay_steps,
            "--learning-starts", 1_000, "--seed", seed,
        )  # fmt: skip

    def ours(num_envs: int, seed: int) -> Run:
        own = "--updates-per-step", num_envs, "--evals", 0, "--eval-episodes", 1
        told = trained(agent, *words(num_envs, seed), *own)
        return {**told, "value": (args.replay_steps - 1_000) / told["value"]}

    def peer(num_envs: int, seed: int) -> Run:
        script = PEERS / "sbx_off_policy.py"
        return theirs.run(script, agent, *words(num_envs, seed), "--episodes", 1, timeout=LONG)

    return [
        Measurement(
            f"{agent}/{count}env/vs-sbx", "env steps/s", functools.partial(ours, count),
            functools.partial(peer, count), theirs,
        )
        for count in (1, 8)
    ]  # fmt: skip


def large_batch(args: Args) -> list[Measurement]:
    """FastTD3 and FastSAC on a walker, compile and evaluation left out; none beside them."""

    def ours(agent: str, seed: int) -> Run:
        steps = (2 + args.rounds) * args.many
        told = trained(
            agent, "--env", "go1-joystick-flat", "--num-envs", args.many, "--batch-size",
            args.batch, "--learning-starts", 2 * args.many, "--steps", steps, "--buffer-size",
            steps, "--seed", seed, "--evals", 0, "--eval-episodes", 1,
        )  # fmt: skip
        updates = {"fast_td3": 2, "fast_sac": 8}[agent] * args.rounds
        rates = {"updates_per_s": updates / told["value"], "seconds": told["value"]}
        return {**told, **rates, "value": args.rounds * args.many / told["value"]}

    return [
        Measurement(
            f"large_batch/{agent}/{args.many}x{args.batch}", "env steps/s",
            functools.partial(ours, agent), pairs=3, mean="updates_per_s",
        )
        for agent in ("fast_td3", "fast_sac")
    ]  # fmt: skip


def seeds(args: Args) -> list[Measurement]:
    """Seeds in one run against as many runs of one, each as long as the first."""
    many = args.together

    def ppo(count: int, seed: int) -> Run:
        words = "--env", "HalfCheetah-v5", "--steps", args.steps // 5, "--eval-episodes", 1
        told = trained("ppo", *words, "--seed", seed, "--seeds", count)
        return {**told, "value": told["value"] * many / count}

    def sac(count: int, seed: int) -> Run:
        words = (
            "--env", "HalfCheetah-v5", "--steps", args.replay_steps // 2, "--learning-starts",
            1_000, "--evals", 0, "--eval-episodes", 1, "--physics", "native",
        )  # fmt: skip
        told = trained("sac", *words, "--seed", seed, "--seeds", count)
        return {**told, "value": told["value"] * many / count}

    one = Python(sys.executable, OURS)
    return [
        Measurement(
            f"seeds/{name}/{many}-together-vs-alone", "s", functools.partial(train, many),
            functools.partial(train, 1), one, pairs=3,
        )
        for name, train in (("ppo", ppo), ("sac", sac))
    ]  # fmt: skip


def _stepping(
    args: Args, *words: object, worlds: tuple[int, ...] = (), module: str = "stepping"
) -> Callable[[int], Run]:
    ours, worlds = Python(sys.executable, OURS), worlds or args.worlds
    return lambda seed: ours.run(
        "-m", f"benchmarks.{module}", *words, "--worlds", *worlds, "--seconds", args.seconds,
        "--seed", seed,
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
