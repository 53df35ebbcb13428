"""How near an update comes to its matrix products alone: one process, one line of JSON.

python -m benchmarks.update {update,matmul} --agent sac --env HalfCheetah-v5

`value` is seconds: of an update of an agent at its defaults, or of its products by themselves, each
shape by the faster of XLA and NumPy's BLAS.
"""

import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import envs
from benchmarks.learning import named
from rl.types import Transition

BATCH = 256
OPERANDS = 8  # of a product, in turn: as in an update, they are not still in the nearest cache
Shapes = tuple[tuple[int, ...], tuple[int, ...], Any]  # of both sides, and what is summed


@dataclass(frozen=True)
class Args:
    mode: Annotated[Literal["update", "matmul"], tyro.conf.Positional]
    agent: str = "sac"  # a file of agents/
    env: str = "HalfCheetah-v5"
    repeats: int = 9
    steps: int = 100  # in a repeat
    seed: int = 0


def example(agent: Any, env_name: str, key: jax.Array) -> tuple[Any, Transition]:
    """A fresh state, and batches [delay, B, n, ...] to learn from."""
    env, shape = envs.make(env_name), (agent.delay, BATCH, 1 + getattr(agent, "ahead", 0))
    obs, action = jnp.zeros_like(env.reset(key).obs), jnp.zeros(env.action_dim)
    many = lambda x: jax.random.uniform(key, (*shape, *x.shape))  # noqa: E731
    flag = jnp.zeros(shape, bool)
    batch = Transition(many(obs), many(action), many(jnp.zeros(())), flag, flag, many(obs))
    return agent.init(key, obs, action), batch


def median_time(call: Callable[[], Any], repeats: int) -> float:
    """Seconds of a call that has been compiled."""
    jax.block_until_ready(call())
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def products(jaxpr: Any) -> Iterator[Shapes]:
    """Every product of matrices in a program, those of its inner programs too."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            left, right = (x.aval.shape for x in eqn.invars)
            yield left, right, eqn.params["dimension_numbers"]
        inner = [x for x in jax.tree.leaves(eqn.params, is_leaf=_is_program) if _is_program(x)]
        for one in inner * eqn.params.get("length", 1):  # of a scan, as often as it goes round
            yield from products(getattr(one, "jaxpr", one))


def _is_program(x: Any) -> bool:
    return hasattr(x, "eqns") or hasattr(x, "jaxpr")


def alone(shapes: Shapes, args: Args) -> float:
    """Seconds of one product by the faster of XLA and NumPy, which takes it as rows by columns."""
    left, right, dims = shapes
    rng = np.random.default_rng(args.seed)
    a, b = (rng.random((OPERANDS, *shape), np.float32) for shape in (left, right))

    def dots(a: jax.Array, b: jax.Array) -> jax.Array:
        return jax.lax.map(lambda xs: jax.lax.dot_general(xs[0], xs[1], dims), (a, b))

    ready, held = jax.jit(dots).lower(a, b).compile(), (jnp.asarray(a), jnp.asarray(b))
    by_xla = median_time(lambda: ready(*held), args.steps) / OPERANDS
    (sum_left, _), (with_left, _) = dims
    groups = int(np.prod([left[i] for i in with_left], dtype=int))
    inner = int(np.prod([left[i] for i in sum_left], dtype=int))
    rows, columns = a[0].size // groups // inner, b[0].size // groups // inner
    rows_of = a.reshape(OPERANDS, groups, rows, inner)
    columns_of = b.reshape(OPERANDS, groups, inner, columns)
    out = np.empty((groups, rows, columns), np.float32)

    def by_blas() -> None:
        for x, y in zip(rows_of, columns_of, strict=True):
            np.matmul(x, y, out=out)

    return min(by_xla, median_time(by_blas, args.steps) / OPERANDS)


def main(args: Args) -> None:
    key, agent = jax.random.key(args.seed), named(args.agent)
    state, batch = example(agent, args.env, key)
    if args.mode == "matmul":
        found = Counter(products(jax.make_jaxpr(agent.update)(state, batch, key).jaxpr))
        value = sum(count * alone(shapes, args) for shapes, count in found.items())
        print(json.dumps({"value": value, "products": sum(found.values())}))
        return

    def many(state: Any) -> Any:
        keys = jax.random.split(key, args.steps)
        return jax.lax.scan(lambda s, k: (agent.update(s, batch, k)[0], None), state, keys)[0]

    ready = jax.jit(many).lower(state).compile()
    print(json.dumps({"value": median_time(lambda: ready(state), args.repeats) / args.steps}))


if __name__ == "__main__":
    main(tyro.cli(Args))
