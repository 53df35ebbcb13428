"""Parameters as one safetensors file, by name; a changed structure is refused."""

import os
from pathlib import Path

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from rl.types import Params


def save_params(path: Path, params: Params) -> None:
    """Write `params` to `path` whole or not at all."""
    named = {name: np.asarray(leaf) for name, leaf in _named(params)}
    partial = path.with_suffix(".partial")
    partial.write_bytes(save(named))  # save_file's would be readable to its owner alone
    os.replace(partial, path)


def load_params(path: Path, like: Params) -> Params:
    """Parameters shaped and named as `like` (arrays or ShapeDtypeStructs) from `path`."""
    try:
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read as parameters: {error}") from error
    wanted = _named(like)
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


def _named(tree: Params) -> list[tuple[str, jax.Array]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves]
