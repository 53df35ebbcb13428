"""States of a run, exact and whole; a policy's parameters as one file.  Never pickle.

A checkpoint carries the shapes, the meaning and a hash of what it holds, so that one that is
damaged or of another run is refused by name instead of believed.
"""

import errno
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from rl import memory, runs
from rl.types import Array, Params, PyTree

KEEP = 3  # newest checkpoints, besides the best


class Checkpoints:
    """States at some steps of a run, in `folder`: the newest few, and that of the best score.

    `about` says what they are of (names to JSON): a checkpoint about anything else is refused.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        import orbax.checkpoint as ocp  # slow to import
        from orbax.checkpoint import checkpoint_managers as managers

        logging.getLogger("absl").setLevel(logging.CRITICAL)  # it prints what it raises as well

        def score(metrics: Any) -> float:
            return metrics["score"]

        best = managers.BestN(get_metric_fn=score, n=1)
        keep = managers.AnyPreservationPolicy([managers.LatestN(KEEP), best])
        self.folder, self.about = folder, json.loads(json.dumps(about))
        self._args = ocp.args
        self._manager = ocp.CheckpointManager(
            folder.absolute(),
            options=ocp.CheckpointManagerOptions(
                enable_async_checkpointing=False, preservation_policy=keep,
                best_fn=score,  # or orbax forgets the scores with the process
                cleanup_tmp_directories=True,
            ),
        )  # fmt: skip

    def steps(self) -> list[int]:
        return sorted(self._manager.all_steps())

    def save(self, step: int, state: PyTree, score: float) -> None:
        """Write `state` whole or not at all; OSError where it cannot be."""
        free = shutil.disk_usage(self.folder).free
        if free < 1.5 * memory.size(state) + 1e6:  # orbax's own failure leaves its threads behind
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        about = {"about": self.about, "leaves": _leaves(state), "hash": fingerprint(state)}
        items = self._args.Composite(
            state=self._args.StandardSave(state), about=self._args.JsonSave(about)
        )
        try:
            self._manager.save(step, args=items, metrics={"score": score}, force=True)
        except Exception as error:  # orbax raises whatever its parts do
            for part in self.folder.glob("*.orbax-checkpoint-tmp*"):
                shutil.rmtree(part, ignore_errors=True)  # what a full disk should not hold
            raise OSError(str(error)) from error

    def restore(self, like: PyTree, step: int | None = None) -> tuple[int, PyTree]:
        """The newest state, or that of `step`, shaped as `like`; ValueError names what is wrong."""
        steps = self.steps()
        if step is None and steps:
            step = steps[-1]
        if step not in steps:
            has = f"it has {steps}" if steps else "it has none"
            raise ValueError(f"There is no checkpoint {step} in {self.folder}: {has}.")
        try:
            return step, self._read(step, like)
        except ValueError as error:
            good = [s for s in reversed(steps) if s != step and self._is_good(s, like)]
            offer = f"The newest good one is {self.folder / str(good[0])}." if good else ""
            raise ValueError(f"Checkpoint {self.folder / str(step)} {error} {offer}") from error

    def drop_after(self, step: int) -> None:
        """Delete the checkpoints later than `step`."""
        for later in [s for s in self.steps() if s > step]:
            self._manager.delete(later)

    def _read(self, step: int, like: PyTree) -> PyTree:
        args = self._args
        try:
            found = self._manager.restore(step, args=args.Composite(about=args.JsonRestore()))
            sealed = found["about"]
            told, leaves, seal = sealed["about"], sealed["leaves"], sealed["hash"]
        except Exception as error:  # orbax raises whatever its parts do
            raise ValueError("cannot be read: it is damaged or not complete.") from error
        for name, wanted in self.about.items():
            if told.get(name) != wanted:
                raise ValueError(f"has {name} {told.get(name)!r}, not {wanted!r}.")
        for name, shape in _leaves(like).items():
            if leaves.get(name) != shape:
                raise ValueError(f"has {name} as {leaves.get(name)}; this run needs {shape}.")
        try:
            items = args.Composite(state=args.StandardRestore(like))
            state = self._manager.restore(step, args=items)["state"]
        except Exception as error:
            raise ValueError("cannot be read: it is damaged or not complete.") from error
        if fingerprint(state) != seal:
            raise ValueError("is damaged: its contents do not match their hash.")
        return state

    def _is_good(self, step: int, like: PyTree) -> bool:
        try:
            self._read(step, like)
        except ValueError:
            return False
        return True


def fingerprint(tree: PyTree) -> str:
    """A hash of every leaf's name, dtype, shape and bytes."""
    digest = hashlib.sha256()
    for name, leaf in named(jax.device_get(jax.tree.map(_words, tree))):
        leaf = np.asarray(leaf)
        digest.update(f"{name} {leaf.dtype} {leaf.shape}".encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def _words(leaf: Array) -> Array:
    """A key as the words it is made of, any other array as it is."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def _leaves(tree: PyTree) -> dict[str, str]:
    return {name: f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in named(tree)}


def save_params(path: Path, params: Params) -> None:
    """Write `params` to `path` whole or not at all."""
    write_tensors(path, params)


def write_tensors(path: Path, tree: PyTree, about: dict[str, str] | None = None) -> None:
    """Write the leaves of `tree` by name to a safetensors file, whole or not at all."""
    tensors = {name: np.asarray(leaf, order="C") for name, leaf in named(tree)}
    runs.write(path, save(tensors, about))  # save_file's only its owner could read


def load_params(path: Path, like: Params) -> Params:
    """Parameters shaped and named as `like` (arrays or ShapeDtypeStructs) from `path`."""
    try:
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read as parameters: {error}") from error
    wanted = named(like)
    for name, leaf in wanted:
        if name not in found:
            raise ValueError(f"{path} lacks {name}: it was saved by another agent or network.")
        if found[name].shape != leaf.shape:
            raise ValueError(
                f"{path} has {name} of shape {found[name].shape} where {leaf.shape} is needed: "
                "the task or the network's sizes differ."
            )
    if extra := found.keys() - {name for name, _ in wanted}:
        raise ValueError(f"{path} also holds {sorted(extra)[0]}: it was saved by another agent.")
    return jax.tree.unflatten(jax.tree.structure(like), [found[name] for name, _ in wanted])


def named(tree: PyTree) -> list[tuple[str, Any]]:
    """Every leaf by its path."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves]
