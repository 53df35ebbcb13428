"""The peer: MuJoCo Playground's CheetahRun on CPU, no policy.  Runs in its own environment.

python benchmarks/peers/playground_step.py --impl jax --worlds 16 64

One line of JSON: `value`, its best rate over the world counts in environment steps/s, of
`substeps` physics steps each; compile apart.
"""

import argparse
import json
import time

import jax
from mujoco_playground import dm_control_suite

STEPS_PER_CALL = 2048  # over all worlds, at the least 32 for each
CONTACTS = 32  # a world; the cheetah's eight capsules make 16 with the floor at most


def rate(impl: str, worlds: int, seconds: float, seed: int) -> tuple[float, float, int]:
    """Environment steps/s of a jitted scan of vmapped steps, compile seconds, and substeps."""
    # Warp's work on a CPU grows with the contacts it has room for: its default is for thousands
    # of worlds, and ten times slower here.
    overrides = {"impl": impl, "naconmax": CONTACTS * worlds}
    env = dm_control_suite.load("CheetahRun", config_overrides=overrides)
    length = max(32, STEPS_PER_CALL // worlds)

    def tick(state, key):
        action = jax.random.uniform(key, (worlds, env.action_size), minval=-1, maxval=1)
        return jax.vmap(env.step)(state, action), ()

    def phase(state, key):
        return jax.lax.scan(tick, state, jax.random.split(key, length))[0]

    begin = time.perf_counter()
    keys = jax.random.split(jax.random.key(seed), worlds)
    state = jax.jit(jax.vmap(env.reset)).lower(keys).compile()(keys)
    advance = jax.jit(phase).lower(state, jax.random.key(seed)).compile()
    compile_s = time.perf_counter() - begin

    keys = iter(jax.random.split(jax.random.key(seed + 1), 10_000))
    state = jax.block_until_ready(advance(state, next(keys)))
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        state = jax.block_until_ready(advance(state, next(keys)))
        done += length * worlds
    return done / (time.perf_counter() - begin), compile_s, env.n_substeps


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--impl", choices=["jax", "warp"], default="jax")
    parser.add_argument("--worlds", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    runs = {n: rate(args.impl, n, args.seconds, args.seed) for n in args.worlds}
    rates = {worlds: run[0] for worlds, run in runs.items()}
    print(
        json.dumps(
            {
                "value": max(rates.values()),
                "compile_s": max(run[1] for run in runs.values()),
                "substeps": runs[args.worlds[0]][2],
                "impl": args.impl,
                "rates": rates,
            }
        )
    )


if __name__ == "__main__":
    main()
