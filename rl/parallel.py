"""One run on many devices: worlds, replay and batches lie in shards, and what is learned is whole.

A shard draws chances of its own, on whichever device it lies: so a run of so many shards is the
same, but for the order of sums, on one device and on as many as divide them.  The compiler adds
up gradients where batches lie apart (GSPMD: Xu et al. 2021, arXiv:2105.04663).  One shard is
what there is without any of this, to the last bit, on the first device.
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from rl import buffer, rollout
from rl.buffer import Buffer
from rl.env import Env
from rl.policy import Policy
from rl.rollout import Episodes, Worlds
from rl.types import Array, Key, Params, PyTree, Transition, keyed, words

AXIS = "shards"  # of the devices


@cache
def mesh(shards: int) -> Mesh:
    """Of all devices; ValueError where they do not divide the shards."""
    if shards % (count := jax.device_count()):
        raise ValueError(
            f"--shards is {shards}, and {count} devices do not divide that: take as many as do, or "
            f"begin a run with a multiple of {count}, or with 1, for the first device alone."
        )
    return jax.make_mesh((count,), (AXIS,), axis_types=(AxisType.Auto,))


def devices(shards: int) -> str:
    """What a run is computed on, in words."""
    kind, processes = jax.devices()[0].device_kind, jax.process_count()
    count = f"{jax.device_count()} x " * (shards > 1)
    return count + kind + f", in {processes} processes" * (processes > 1)


def check(shards: int, **counts: int) -> None:
    """ValueError unless shards can lie on the devices there are, and each has as many of these."""
    if shards < 1:
        raise ValueError(f"--shards is {shards}; it needs at least 1.")
    for name, count in counts.items():
        if count % shards:
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag} is {count}; for --shards {shards} it takes a multiple of it.")
    if shards > 1:
        mesh(shards)


def start(
    shards: int, env: Env, policy: Policy, params: Params, key: Key, num_envs: int,
    context: PyTree = None,
) -> Worlds:  # fmt: skip
    """As rollout.start, in so many shards."""
    if shards == 1:
        return rollout.start(env, policy, params, key, num_envs, context)

    held, anew = rollout.bare(env)

    def one(held: PyTree, params: Params, context: PyTree, key: Key) -> Worlds:
        return rollout.start(anew(held), policy, params, key, num_envs // shards, context)

    worlds = _apart(shards, one, (held, params, context), (keys(shards, key),))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), worlds)


def collect(
    shards: int, env: Env, policy: Policy, params: Params, worlds: Worlds, key: Key, length: int
) -> tuple[Worlds, Transition, Episodes]:
    """As rollout.collect, of worlds in so many shards."""
    if shards == 1:
        return rollout.collect(env, policy, params, worlds, key, length)

    held, anew = rollout.bare(env)

    def one(held: PyTree, params: Params, worlds: Worlds, key: Key) -> Any:
        return rollout.collect(anew(held), policy, params, worlds, key, length)

    def together(x: Array) -> Array:
        return jnp.moveaxis(x, 0, 1).reshape(length, -1, *x.shape[3:])

    split = jax.tree.map(lambda x: x.reshape(shards, -1, *x.shape[1:]), worlds)
    worlds, seen, ends = _apart(shards, one, (held, params), (split, keys(shards, key)))
    worlds = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), worlds)
    counts = {"failed": ends.failed.sum(), "reused": ends.reused.sum()}
    ends = jax.tree.map(together, ends._replace(failed=(), reused=()))._replace(**counts)
    return worlds, jax.tree.map(together, seen), ends


def sample(
    shards: int, ring: Buffer, key: Key, shape: tuple[int, ...], length: int = 1
) -> Transition:
    """Windows [*shape, length, ...] as buffer.sample draws them; of the last of `shape`, a batch,
    each shard gives as many as any other."""
    return draw(shards, ring, key, shape, partial(buffer.sample, length=length))


def draw(
    shards: int, ring: Buffer, key: Key, shape: tuple[int, ...],
    one: Callable[[Buffer, Key, int], Transition],
) -> Transition:  # fmt: skip
    """The same of what `one` draws of a ring, so many windows [count, ...] at a time."""
    *lead, batch = shape
    if shards == 1:
        drawn = one(ring, key, math.prod(shape))
        return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), drawn)
    count = math.prod(shape) // shards

    def laid(x: Array) -> Array:
        x = x.reshape(shards, *lead, batch // shards, *x.shape[2:])
        x = jnp.moveaxis(x, 0, len(lead))
        return x.reshape(*shape, *x.shape[len(lead) + 2 :])

    data = jax.tree.map(lambda x: x.reshape(x.shape[0], shards, -1, *x.shape[2:]), ring.data)
    own = lambda data, key: one(Buffer(data, ring.written), key, count)  # noqa: E731
    drawn = jax.vmap(own, (1, 0))(data, keys(shards, key))
    return spread(shards, jax.tree.map(laid, drawn), len(lead))


def spread(shards: int, batch: PyTree, axis: int) -> PyTree:
    """A batch along this axis over the devices, each of which then learns from its part."""
    if shards == 1:
        return batch
    lies = NamedSharding(mesh(shards), P(*[None] * axis, AXIS))
    return jax.lax.with_sharding_constraint(batch, lies)


def deal(shards: int, key: Key, rows: PyTree, count: int) -> PyTree:
    """Rows [T, N, ...] in an order of chance as so many batches [count, B, ...], to each of which
    every shard gives as many; what does not fill them is left out."""
    length, worlds = jax.tree.leaves(rows)[0].shape[:2]
    size = length * worlds // shards // count

    def one(key: Key, rows: PyTree) -> PyTree:
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
        order = jax.random.permutation(key, length * worlds // shards)
        order = order[: size * count].reshape(count, size)
        return jax.tree.map(lambda x: x[order], flat)

    if shards == 1:
        return one(key, rows)
    split = jax.tree.map(lambda x: x.reshape(length, shards, -1, *x.shape[2:]), rows)
    dealt = jax.vmap(one, (0, 1), 1)(keys(shards, key), split)
    dealt = jax.tree.map(lambda x: x.reshape(count, -1, *x.shape[3:]), dealt)
    return spread(shards, dealt, 1)


def keys(shards: int, key: Key) -> Key:
    """One for each shard."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(shards))


def _apart(shards: int, one: Any, whole: tuple[PyTree, ...], split: tuple[PyTree, ...]) -> Any:
    """`one` of what is `whole` everywhere and of each shard of what is `split`, on its device."""
    ins = (*[None] * len(whole), *[0] * len(split))
    specs = tuple(P(AXIS) if x == 0 else P() for x in ins)
    return jax.shard_map(
        jax.vmap(one, ins), mesh=mesh(shards), in_specs=specs, out_specs=P(AXIS), check_vma=False
    )(*whole, *split)


def placed(shards: int, run: Any) -> Any:
    """Where each leaf of a run, [seeds, ...], lies: worlds and what they did in shards, all else
    whole; None where there is but one shard."""
    if shards == 1:
        return None
    apart = {Worlds: P(None, AXIS), Transition: P(None, None, AXIS)}

    def lies(x: Any) -> Any:
        return jax.tree.map(lambda _: NamedSharding(mesh(shards), apart.get(type(x), P())), x)

    return jax.tree.map(lies, run, is_leaf=lambda x: type(x) in apart)


def everywhere(shards: int) -> NamedSharding:
    """What every device has whole."""
    return NamedSharding(mesh(shards), P())


def whole(shards: int, tree: PyTree) -> PyTree:
    """Arrays that each process has, for programs of all devices."""
    if shards == 1:
        return tree
    return place(tree, jax.tree.map(lambda _: everywhere(shards), tree))


def place(tree: PyTree, lies: PyTree) -> PyTree:
    """Arrays that each process has, whole, where they are to lie."""

    def put(x: Array, lies: NamedSharding) -> Array:
        return jax.make_array_from_callback(x.shape, lies, lambda at: x[at])

    return keyed(jax.tree.map(put, jax.device_get(words(tree)), lies), tree)
