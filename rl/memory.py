"""Refuse what would not fit before it is made."""

import jax
import psutil

from rl.types import PyTree, is_key


def size(*trees: PyTree) -> int:
    """Bytes of all leaves (arrays or ShapeDtypeStructs; a key counts as its words)."""
    total = 0
    for leaf in jax.tree.leaves(trees):
        if is_key(leaf):
            leaf = jax.eval_shape(jax.random.key_data, leaf)
        total += leaf.size * leaf.dtype.itemsize
    return total


def available() -> int:
    """Bytes free for JAX's default device: the accelerator's, or this machine's."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats["bytes_in_use"]
    return psutil.virtual_memory().available


def require(needed: int, what: str, mend: str) -> None:
    """Raise unless `needed` bytes are free; `what` needs them, `mend` says what to do."""
    free = available()
    if needed > free:
        raise ValueError(
            f"{what} would take about {needed / 1e9:.1f} GB "
            f"and {free / 1e9:.1f} GB are free: {mend}."
        )
