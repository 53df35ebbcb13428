"""Our side of a speed measurement: one process, one line of JSON.

python -m benchmarks.stepping {physics,rollout,compile} --env HalfCheetah-v5 --worlds 64 256

`value` is the best rate over the world counts in environment steps/s, compile apart; of
`compile`, the seconds from the environment's name to a compiled rollout.
"""

import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import tyro

import envs
from envs.simulation import Simulation
from rl import nets, rollout
from rl.policy import Policy, memoryless
from rl.types import Array, Key, Obs, Params

HIDDEN = (256, 256)
STEPS_PER_CALL = 8192  # over all worlds, at the least 32 for each: a phase of training


@dataclass(frozen=True)
class Args:
    mode: Annotated[Literal["physics", "rollout", "compile"], tyro.conf.Positional]
    env: str = "HalfCheetah-v5"
    worlds: tuple[int, ...] = (64, 256, 1024)
    seconds: float = 5.0  # s of measuring for each world count
    seed: int = 0


def gaussian(action_dim: int) -> tuple[nets.Gaussian, Policy]:
    """A 2x256 network and the policy that samples from it and keeps the log-density."""
    net = nets.Gaussian(action_dim, HIDDEN)

    def act(params: Params, obs: Obs, key: Key) -> tuple[Array, Array]:
        return nets.normal(key, *nets.apply(net, params, nets.flatten(obs)))

    return net, memoryless(act)


def compiled_rollout(env: Simulation, worlds: int, key: Key) -> tuple[Callable, Any]:
    """A compiled phase of collecting, `(worlds, key) -> worlds, ...`, and fresh worlds."""
    net, policy = gaussian(env.action_dim)
    obs = jax.eval_shape(env.reset, key).obs
    blank = jax.tree.map(lambda x: jnp.zeros(x.shape), obs)
    params = jax.jit(net.init)(key, nets.flatten(blank))
    start = jax.jit(lambda key: rollout.start(env, policy, params, key, worlds))
    fresh = start.lower(key).compile()(key)

    def phase(params: Params, fresh: rollout.Worlds, key: Key):
        return rollout.collect(env, policy, params, fresh, key, _length(worlds))

    ready = jax.jit(phase).lower(params, fresh, key).compile()
    return lambda fresh, key: ready(params, fresh, key), fresh


def compiled_physics(env: Simulation, worlds: int, key: Key) -> tuple[Callable, Any]:
    """A compiled scan of physics steps under random targets, and fresh physics data.

    No observation, reward or policy; worlds that the task would end begin again, because a
    fallen humanoid has more contacts than a peer's that is put back on its feet.
    """
    task, physics = env.task, env.physics
    low, high = jnp.array(task.spec.low), jnp.array(task.spec.high)
    starts = jax.vmap(task.reset, (0, None))

    def begin(key: Key) -> Any:
        start = starts(jax.random.split(key, worlds), task.context())
        blank = jax.tree.map(lambda x: jnp.stack([x] * worlds), physics.blank())
        mask = jnp.ones(worlds, bool)
        return jax.vmap(physics.reset)(blank, mask, start.qpos, start.qvel, {})

    def tick(data: Any, key: Key) -> tuple[Any, tuple]:
        action_key, start_key = jax.random.split(key)
        targets = jax.random.uniform(action_key, (worlds, len(low)), minval=low, maxval=high)
        data = jax.vmap(lambda x, ctrl: physics.step(x, {"ctrl": ctrl}, {}))(data, targets)
        done = jax.vmap(task.terminated, (0, None))(physics.read(data), ())

        def again(data: Any) -> Any:
            start = starts(jax.random.split(start_key, worlds), task.context())
            return jax.vmap(physics.reset)(data, done, start.qpos, start.qvel, {})

        return jax.lax.cond(done.any(), again, lambda data: data, data), ()

    def phase(data: Any, key: Key) -> tuple[Any, tuple]:
        return jax.lax.scan(tick, data, jax.random.split(key, _length(worlds)))

    fresh = jax.jit(begin)(key)
    return jax.jit(phase).lower(fresh, key).compile(), fresh


def rate(advance: Callable, state: Any, steps: int, seconds: float) -> float:
    """Steps/s of calling `advance` over and over for `seconds`, after one call to warm up."""
    keys = itertools.cycle(jax.random.split(jax.random.key(1), 10_000))
    state = jax.block_until_ready(advance(state, next(keys)))[0]
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        state = jax.block_until_ready(advance(state, next(keys)))[0]
        done += steps
    return done / (time.perf_counter() - begin)


def _length(worlds: int) -> int:
    return max(32, STEPS_PER_CALL // worlds)


def main(args: Args) -> None:
    build = compiled_physics if args.mode == "physics" else compiled_rollout
    rates: dict[int, float] = {}
    compiles: dict[int, float] = {}
    for worlds in args.worlds:
        begin = time.perf_counter()
        env = envs.make(args.env, "native")
        advance, fresh = build(env, worlds, jax.random.key(args.seed))
        compiles[worlds] = time.perf_counter() - begin
        if args.mode != "compile":
            rates[worlds] = rate(advance, fresh, worlds * _length(worlds), args.seconds)
    slowest = max(compiles.values())
    told = {"compile_s": slowest, "substeps": env.task.spec.substeps, "rates": rates}
    if args.mode == "compile":
        told = {"worlds": args.worlds}
    print(json.dumps({"value": max(rates.values(), default=slowest), **told}))


if __name__ == "__main__":
    main(tyro.cli(Args))
