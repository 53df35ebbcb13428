"""States of a run, exact and whole; a policy's parameters as one file.  Never pickle.

A checkpoint carries the shapes and the meaning of what it holds, and is sealed with a hash of
every file, so that one that is damaged or of another run is refused by name instead of believed.
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
import numpy as np
from jax.sharding import SingleDeviceSharding
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from rl import manifest, resources, runs
from rl.types import Params, PyTree, keyed, words

KEEP = 3  # newest checkpoints, besides the best
SEAL = "seal.json"  # hashes of a checkpoint's files, written last: without it, it is not complete


class Checkpoints:
    """States at some steps of a run, in `folder`: the newest few, and that of the best score.

    `about` says what they are of (names to JSON): a checkpoint about anything else is refused.
    Of several processes each reads by itself, and those that are not to `write` change nothing.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any], write: bool = True) -> None:
        import orbax.checkpoint as ocp  # slow to import

        logging.getLogger("absl").setLevel(logging.CRITICAL)  # it prints what it raises as well
        self.folder, self.about = folder, json.loads(json.dumps(about))
        self._args = ocp.args
        me = jax.process_index()
        if write:
            folder.mkdir(parents=True, exist_ok=True)
        self._manager = ocp.CheckpointManager(
            folder.absolute(),
            options=ocp.CheckpointManagerOptions(
                enable_async_checkpointing=False, cleanup_tmp_directories=write,
                create=False, read_only=not write,
                multiprocessing_options=ocp.options.MultiprocessingOptions(
                    primary_host=me, active_processes={me}, barrier_sync_key_prefix=str(me)
                ),
            ),
        )  # fmt: skip

    def steps(self) -> list[int]:
        """Of the checkpoints that were written to their end."""
        return [s for s in self.every() if self._seal_of(s).is_file()]

    def every(self) -> list[int]:
        """Steps of all checkpoints, begun and finished."""
        return sorted(self._manager.all_steps())

    def save(self, step: int, state: PyTree, score: float) -> None:
        """Write `state` whole or not at all, and delete what is kept no longer; or OSError."""
        free = shutil.disk_usage(self.folder).free
        if free < 1.5 * resources.size(state) + 1e6:  # orbax's failure leaves its threads behind
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        about = {"about": self.about, "leaves": _leaves(state), "keys": "words"}
        numbers = jax.device_get(words(state))
        items = self._args.Composite(
            state=self._args.StandardSave(numbers), about=self._args.JsonSave(about)
        )
        try:
            self._manager.save(step, args=items, force=True)
            seal = {"score": score, "files": _hashes(self._seal_of(step).parent)}
            runs.write(self._seal_of(step), json.dumps(seal).encode())
        except Exception as error:  # orbax raises whatever its parts do
            for part in self.folder.glob("*.orbax-checkpoint-tmp*"):
                shutil.rmtree(part, ignore_errors=True)  # what a full disk should not hold
            raise OSError(str(error)) from error
        finally:
            self._delete_old()

    def restore(self, like: PyTree, step: int) -> PyTree:
        """The state at `step`, shaped as `like`; ValueError says what is wrong with it."""
        told = self._trusted(like, step)
        return keyed(self._item(step, "state", self._args.StandardRestore(_here(like, told))), like)

    def part(self, name: str, like: PyTree, step: int) -> PyTree:
        """What the state at `step` has by this name, shaped as `like`; ValueError as `restore`."""
        import orbax.checkpoint as ocp

        told = self._trusted({name: like}, step)
        path, how = self.folder.absolute() / str(step) / "state", ocp.checkpoint_utils
        here = {name: _here(like, told)}
        args = ocp.args.PyTreeRestore(here, how.construct_restore_args(here), partial_restore=True)
        found = ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).restore(path, args=args)
        return keyed(found[name], like)

    def drop_after(self, step: int) -> None:
        """Delete the checkpoints later than `step`."""
        for later in [s for s in self.every() if s > step]:
            self._manager.delete(later)

    def _trusted(self, like: PyTree, step: int) -> dict[str, Any]:
        """What the checkpoint at `step` says of itself; ValueError unless it is whole and has
        `like`'s leaves."""
        where = self.folder / str(step)
        if step not in self.steps():
            has = f"it has {', '.join(map(str, self.steps())) or 'none'}"
            raise ValueError(f"There is no checkpoint {step} in {self.folder}: {has}.")
        if self._seal(step).get("files") != _hashes(where):  # orbax's threads fail noisily
            raise ValueError(f"Checkpoint {where} is damaged: its files do not match their seal.")
        sealed = self._item(step, "about", self._args.JsonRestore())
        for name, wanted in self.about.items():
            if (told := sealed["about"].get(name)) != wanted:
                raise ValueError(
                    f"Checkpoint {where} has {manifest.difference(name, told, wanted)}."
                )
        for name, shape in _leaves(like).items():
            if (told := sealed["leaves"].get(name)) != shape:
                raise ValueError(f"Checkpoint {where} has {name} as {told}, not {shape}.")
        return sealed

    def _item(self, step: int, name: str, how: Any) -> Any:
        """What a checkpoint has by this name."""
        try:
            return self._manager.restore(step, args=self._args.Composite(**{name: how}))[name]
        except Exception as error:  # orbax raises whatever its parts do
            raise ValueError(f"Checkpoint {self.folder / str(step)} cannot be read.") from error

    def _delete_old(self) -> None:
        steps = self.steps()
        best = max(steps, key=lambda s: (self._seal(s).get("score", -np.inf), s), default=None)
        for old in [s for s in self.every() if s not in {*steps[-KEEP:], best}]:
            self._manager.delete(old)

    def _seal_of(self, step: int) -> Path:
        return self.folder / str(step) / SEAL

    def _seal(self, step: int) -> dict[str, Any]:
        try:
            return json.loads(self._seal_of(step).read_text())
        except (OSError, ValueError):
            return {}


def _here(like: PyTree, told: Mapping[str, Any]) -> PyTree:
    """`like`, as it was written, on the first device, on however many it lay then."""
    if "keys" in told:  # as words: before it was told, keys were written as such
        like = jax.eval_shape(words, like)
    here = SingleDeviceSharding(jax.local_devices()[0])
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), like)


def begun(resume: Path) -> tuple[Path, dict[str, Any]]:
    """The run that is to go on, which `resume` is or has as one of its checkpoints, and its
    manifest; ValueError where it cannot."""
    run = runs.run_of(resume)
    facts = runs.read_manifest(run)
    if resume != run and not (resume / SEAL).exists():
        has = sorted(int(seal.parent.name) for seal in resume.parent.glob(f"*/{SEAL}"))
        raise ValueError(f"{run} has no checkpoint {resume.name}; it has {has}.")
    for name, kind in {"argv": list, "seeds": list, "config": dict}.items():
        if not isinstance(facts.get(name), kind) or not facts[name]:
            raise ValueError(f"{run / 'manifest.json'} is damaged: it has no {name}.")
    return run, facts


def _hashes(folder: Path) -> dict[str, str]:
    """Of every file of a checkpoint but its seal."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != SEAL:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256")
            found[str(path.relative_to(folder))] = digest.hexdigest()
    return found


def fingerprint(tree: PyTree) -> str:
    """A hash of every leaf's name, dtype, shape and bytes."""
    digest = hashlib.sha256()
    for name, leaf in named(jax.device_get(words(tree))):
        leaf = np.asarray(leaf)
        digest.update(f"{name} {leaf.dtype} {leaf.shape}".encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


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
