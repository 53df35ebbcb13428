"""What a program computes with: memory, threads and devices, and what it is short of."""

import os
import traceback

import jax
import psutil

from rl.types import PyTree, is_key

NAMES = "JAX_PLATFORMS", "JAX_NUM_CPU_DEVICES"  # what tells JAX of devices


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


def use_threads(threads: int) -> None:
    """Give XLA `threads` threads (0: all this process has); before JAX is first used."""
    if threads < 0:
        raise ValueError(f"--threads is {threads}; it needs a count, or 0 for all.")
    if threads > (most := 16 * (os.cpu_count() or 1)):
        raise ValueError(f"--threads is {threads}; it takes at most 16 for each core, {most}.")
    if threads:
        os.environ["NPROC"] = str(threads)


def short_of(error: BaseException) -> str:
    """A sentence where a program ended for want of memory or of a device; else empty."""
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return "Out of memory: lower the numbers of worlds, episodes or hidden units."
    where = traceback.extract_tb(error.__traceback__)
    if isinstance(error, jax.errors.JaxRuntimeError) or not where or where[-1].name != "backends":
        return ""
    told = [f"{name} is {os.environ[name]!r}" for name in NAMES if name in os.environ]
    why = str(error) or "there is none of that kind. (set JAX_PLATFORMS='' for what there is)"
    return " and ".join([*told, f"JAX has nothing to compute with: {why}"])
