"""The peer: EnvPool's bare stepping, no policy.  Runs in the peers' own environment.

python benchmarks/peers/envpool_step.py --env HalfCheetah-v5 --worlds 64 256 1024

One line of JSON: `value`, its best rate over the world counts in environment steps/s.
"""

import argparse
import json
import os
import time

import envpool
import numpy as np

MADE = 16  # batches of random actions, made before the clock starts


def rate(env_name: str, worlds: int, seconds: float, seed: int) -> float:
    """Steps/s of `worlds` in synchronous mode on as many threads as this process has cores."""
    threads = len(os.sched_getaffinity(0))
    env = envpool.make(
        env_name, env_type="gymnasium", num_envs=worlds, num_threads=threads, seed=seed
    )
    env.reset()
    space = env.action_space
    shape = (MADE, worlds, *space.shape)
    actions = np.random.default_rng(seed).uniform(space.low, space.high, shape)
    actions = actions.astype(space.dtype)
    calls = max(32, 8192 // worlds)  # between two looks at the clock, as ours

    def advance() -> None:
        for call in range(calls):
            env.step(actions[call % MADE])

    advance()
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        advance()
        done += calls * worlds
    elapsed = time.perf_counter() - begin
    env.close()
    return done / elapsed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--worlds", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rates = {worlds: rate(args.env, worlds, args.seconds, args.seed) for worlds in args.worlds}
    print(json.dumps({"value": max(rates.values()), "rates": rates}))


if __name__ == "__main__":
    main()
