"""How fast an agent learns from data: one process, one line of JSON.

python -m benchmarks.learning iql --updates 2000

`value` is updates of the critics a second, of all seeds together, the median of five repeats, on
noise of HalfCheetah's shapes, with the means of all that a run tells of them.
"""

import json
import statistics
import time
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from experiments import cli
from rl.data import sampling
from rl.data.dataset import Dataset

OBS, ACTION, EPISODE, REPEATS = 17, 6, 1_000, 5


@dataclass(frozen=True)
class Args:
    agent: Annotated[str, tyro.conf.Positional]  # a file of agents/
    updates: int = 2_000  # in each repeat
    batch_size: int = 256
    hidden: tuple[int, ...] = ()  # of every network; none: the agent's own
    steps: int = 200_000  # of the data
    seed: int = 0  # of the first
    seeds: int = 1  # side by side under vmap


def noise(steps: int, seed: int) -> Dataset:
    rng = np.random.default_rng(seed)
    normal = lambda *shape: rng.standard_normal(shape, np.float32)  # noqa: E731
    last = np.arange(steps) % EPISODE == EPISODE - 1
    never, count = np.zeros(steps, bool), int(last.sum())
    return Dataset(
        {"obs": normal(steps, OBS), "action": np.clip(normal(steps, ACTION), -1, 1),
         "reward": normal(steps), "terminated": never, "truncated": last, "mask": ~never},
        {"length": np.full(count, EPISODE), "last_obs": normal(count, OBS)}, {},
    )  # fmt: skip


def named(name: str) -> Any:
    """The agent of a file of agents/; one that learns above another is its own experiment's."""
    agent = cli.agent(name)
    if getattr(agent, "base", agent) is None:
        return import_module(f"experiments.{name}").Args().agent
    return agent


def main(args: Args) -> None:
    agent = named(args.agent)
    if args.hidden:
        widths = {n: args.hidden for n in ("hidden", "critic_hidden") if hasattr(agent, n)}
        agent = replace(agent, **widths)
    shape, length = (agent.delay, args.batch_size), 1 + getattr(agent, "ahead", 0)
    rounds = -(-args.updates // agent.delay)

    def learn(state: Any, key: jax.Array, source: sampling.Source) -> Any:
        def step(state: Any, key: jax.Array) -> tuple[Any, Any]:
            sample_key, learn_key = jax.random.split(key)
            batch = sampling.sample(source, sample_key, shape[0] * shape[1], length)
            batch = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), batch)
            return agent.update(state, batch, learn_key)

        state, metrics = jax.lax.scan(step, state, jax.random.split(key, rounds))
        return state, jax.tree.map(jnp.mean, metrics)

    def begin(key: jax.Array) -> Any:
        return agent.init(key, jnp.zeros(OBS), jnp.zeros(ACTION))

    def keys(first: int) -> jax.Array:
        each = [jax.random.key(first + i) for i in range(args.seeds)]
        return jnp.stack(each) if args.seeds > 1 else each[0]

    if args.seeds > 1:
        learn, begin = jax.vmap(learn, (0, 0, None)), jax.vmap(begin)
    source = sampling.source(noise(args.steps, args.seed), sampling.Uniform())
    state = jax.jit(begin)(keys(args.seed))
    begun = time.perf_counter()
    ready = jax.jit(learn, donate_argnums=0).lower(state, keys(0), source).compile()
    compile_s, rates = time.perf_counter() - begun, []
    for repeat in range(REPEATS):
        begun = time.perf_counter()
        state, _ = jax.block_until_ready(ready(state, keys(repeat * args.seeds), source))
        rates.append(args.seeds * rounds * agent.delay / (time.perf_counter() - begun))
    told = {"value": statistics.median(rates), "rates": rates, "compile_s": compile_s}
    print(json.dumps(told | {"device": jax.devices()[0].device_kind}))


if __name__ == "__main__":
    main(tyro.cli(Args))
