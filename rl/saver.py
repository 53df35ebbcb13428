"""A run that can be killed at any moment and goes on as if it had not been.

A checkpoint is the run's state; the replay lies beside it in blocks of rows, each written
once, so that a checkpoint writes only what is new.
"""

import re
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open

from rl import processes
from rl.checkpoint import Checkpoints, fingerprint, write_tensors
from rl.record import Record
from rl.types import PyTree, Transition

BLOCK = re.compile(r"rows-(\d+)-(\d+)\.safetensors")


class Saver:
    """Checkpoints of the run `log` and, in blocks, the replay they go with.

    A state's field `replay`, if it has one, is a Buffer with leaves [S, T, N, ...].  Of several
    processes all save and restore at once, and the first writes.
    """

    def __init__(self, log: Record, every: float, out: Path | None = None) -> None:
        """`every` s a checkpoint is due; `out` is the run's, where that of `log` is another."""
        about = {name: log.manifest[name] for name in ("algorithm", "env", "config", "seeds")}
        self.log, self.every, self.saved = log, every, time.perf_counter()
        out, self.first = out or log.out, processes.first()
        self.checkpoints = Checkpoints(out / "checkpoints", about, write=self.first)
        self.blocks = Blocks(out / "replay")
        self.rows = 0  # that blocks hold, from the run's first

    @property
    def due(self) -> bool:
        return time.perf_counter() - self.saved >= self.every

    def save(self, step: int, state: Any) -> None:
        """Write a checkpoint; where it cannot be, those there are stay."""
        write = partial(self._write, step, state, *self._whole_of(state))
        if self.first:
            self.log.attempt(f"checkpoint of step {step:,}", write)
        self.saved = time.perf_counter()

    def _whole_of(self, state: Any) -> tuple[Any, int, Transition | None]:
        """A state without its replay's rows; those that no block holds yet, from which on."""
        first, rows = 0, None
        if hasattr(state, "replay"):
            end, capacity = int(state.replay.written[0]), state.replay.data.reward.shape[1]
            first = max(processes.told(self.rows), end - capacity)
            if first < end:
                slots = np.arange(first, end) % capacity
                rows = jax.tree.map(lambda ring: ring[:, slots], state.replay.data)
                rows = jax.device_get(processes.gathered(rows))
        return processes.gathered(_without_rows(state)), first, rows

    def _write(self, step: int, like: Any, whole: Any, first: int, rows: Transition | None) -> None:
        if rows is not None:
            self.blocks.append(first, rows)
            self.rows = first + rows.reward.shape[1]
        self.checkpoints.save(step, whole, self.log.score)
        self._tidy(like)

    def _tidy(self, state: Any) -> None:
        """Delete the rows that no checkpoint there is needs; a row is a step of all worlds."""
        if hasattr(state, "replay"):
            _, capacity, worlds = state.replay.data.reward.shape
            ends = [step // worlds for step in self.checkpoints.steps()]
            self.blocks.keep([(end - capacity, end) for end in ends])

    def restore(self, like: Any, step: int | None = None) -> Any:
        """The newest checkpoint, or that of `step`, shaped as `like`; all later is forgotten.

        None where the run was killed before its first: it begins again.
        """
        state, steps = None, self.checkpoints.steps()
        if step is None and not steps:
            if self.log.manifest.get("resumed", [{}])[-1].get("was") == "done":
                raise ValueError(
                    f"{self.log.out} is done and has no checkpoint to go on from: begin a new run."
                )
            print("no checkpoint there: the run begins again", flush=True)
            step = -1
        else:
            step = steps[-1] if step is None else step
            state = self._offering(like, step)
            later = [str(s) for s in self.checkpoints.every() if s > step]
            dropped = f", without {', '.join(later)}" if later else ""
            print(f"goes on from its checkpoint {step}{dropped}", flush=True)
        self.rows = int(state.replay.written[0]) if state and hasattr(state, "replay") else 0
        processes.meet()  # all have read it
        if self.first:
            self.checkpoints.drop_after(step)
            self._tidy(like)
            self.log.rewind(step)
        return state

    def _offering(self, like: Any, step: int) -> Any:
        """The checkpoint of `step`; or what is wrong with it, and the newest that is good."""
        try:
            return self._whole(like, step)
        except ValueError as error:
            steps = reversed(self.checkpoints.steps())
            good = next((s for s in steps if self._is_good(like, s)), None)
            mend = "No other checkpoint is good: begin a new run."
            if good is not None:
                path = self.checkpoints.folder / str(good)
                mend = f"The newest good one is {path}: --resume {path}"
            raise ValueError(f"{error} {mend}") from error

    def _is_good(self, like: Any, step: int) -> bool:
        try:
            self._whole(like, step)
        except ValueError:
            return False
        return True

    def _whole(self, like: Any, step: int) -> Any:
        """The state at `step`, its replay filled."""
        state = self.checkpoints.restore(_without_rows(like), step)
        if not hasattr(state, "replay"):
            return state
        return state._replace(replay=self._filled(like.replay, int(state.replay.written[0])))

    def _filled(self, like: Any, end: int) -> Any:
        """The ring as it was when `end` rows had been written."""
        capacity = like.data.reward.shape[1]
        first = max(0, end - capacity)
        slots = np.arange(first, end) % capacity
        rows = self.blocks.load(first, end, like.data)

        def fill(ring: Any, rows: np.ndarray) -> jax.Array:
            whole = np.zeros(ring.shape, ring.dtype)
            whole[:, slots] = rows
            return jnp.asarray(whole)

        return like._replace(
            data=jax.tree.map(fill, like.data, rows),
            written=jnp.full(like.written.shape, end, jnp.int32),
        )


def _without_rows(state: Any) -> PyTree:
    if not hasattr(state, "replay"):
        return state
    return state._replace(replay=state.replay._replace(data=()))


class Blocks:
    """Rows of transitions with leaves [S, T, N, ...], counted from the run's first, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def append(self, first: int, rows: Transition) -> None:
        """Write rows `first`, `first` + 1, ... whole or not at all."""
        self.folder.mkdir(exist_ok=True)
        end = first + rows.reward.shape[1]
        path = self.folder / f"rows-{first:09}-{end:09}.safetensors"
        write_tensors(path, rows, {"hash": fingerprint(rows)})

    def load(self, first: int, end: int, like: Transition) -> Transition:
        """Rows `first` up to `end`; `like` (leaves [S, any, N, ...]) tells their structure."""
        found, begin = [], first
        for block_first, block_end, path in self._all():
            if block_first <= begin < block_end and begin < end:
                rows = _read(path, like)
                cut = slice(begin - block_first, min(end, block_end) - block_first)
                found.append(jax.tree.map(lambda x, cut=cut: x[:, cut], rows))
                begin = min(end, block_end)
        if begin < end:
            raise ValueError(f"{self.folder} lacks rows {begin:,} to {end:,} of the replay.")
        return jax.tree.map(lambda *xs: np.concatenate(xs, axis=1), *found)

    def keep(self, wanted: list[tuple[int, int]]) -> None:
        """Delete the blocks that hold no row from `first` up to `end` of any of `wanted`, or go
        on past it."""
        for _, block_end, path in self._all():
            if not any(first < block_end <= end for first, end in wanted):
                path.unlink()

    def _all(self) -> list[tuple[int, int, Path]]:
        named = ((BLOCK.fullmatch(path.name), path) for path in self.folder.glob("rows-*"))
        return sorted((int(m[1]), int(m[2]), path) for m, path in named if m)


def _read(path: Path, like: Transition) -> Transition:
    try:
        with safe_open(path, framework="numpy") as file:
            seal = file.metadata()
            named = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from error
    wanted = jax.tree_util.tree_leaves_with_path(like)
    names = [jax.tree_util.keystr(at, simple=True, separator="/") for at, _ in wanted]
    if named.keys() != set(names):
        raise ValueError(f"{path} holds {sorted(named)}, not {sorted(names)}.")
    rows = jax.tree.unflatten(jax.tree.structure(like), [named[name] for name in names])
    if not seal or fingerprint(rows) != seal.get("hash"):
        raise ValueError(f"{path} is damaged: its contents do not match their hash.")
    return rows
