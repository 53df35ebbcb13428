"""Where a run is watched: TensorBoard's files, and trackio or Weights & Biases for who asks.

All are views of metrics.jsonl and evals.jsonl, under the tags the field knows.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rl import manifest

TAGS = {
    "episode_return": "charts/episodic_return", "episode_length": "charts/episodic_length",
    "steps_per_s": "charts/SPS", "updates": "charts/updates", "lr": "charts/learning_rate",
    "kl": "losses/approx_kl", "clip_fraction": "losses/clipfrac", "q": "losses/qf_values",
    "eval_return": "eval/episodic_return", "eval_length": "eval/episodic_length",
    "eval_success": "eval/success",
    "episodes": "charts/episodes", "failed": "charts/failed",
    "reused_starts": "charts/reused_starts",
}  # fmt: skip
NOT_SHOWN = ("step", "wall_s", "returns", "lengths", "successes")


def shown(row: dict[str, Any], seeds: int) -> Iterator[tuple[str, np.ndarray]]:
    """Tag and value of each seed [seeds] of what a row tells."""
    for name, value in row.items():
        if name not in NOT_SHOWN:
            own = f"eval/{name[5:]}" if name.startswith("eval_") else f"losses/{name}"
            yield TAGS.get(name, own), np.broadcast_to(np.asarray(value, float), seeds)


def table(config: dict[str, Any]) -> str:
    """Every hyperparameter in Markdown, by the name that it has on the command line."""
    lines = (f"| {name} | {value} |" for name, value in manifest.flat(config))
    return "\n".join(["| hyperparameter | value |", "|---|---|", *lines])


class Board:
    """TensorBoard's event files in `folder`, one run of its own for each of `seeds`.

    `about` is text in Markdown that each shows.  Their own writer has a thread, in which the
    failure of a full disk cannot be met.
    """

    def __init__(self, folder: Path, seeds: list[int], started: float, about: str) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2  # slow to import
        from tensorboard.plugins.text.summary_v2 import text_pb

        shutil.rmtree(folder, ignore_errors=True)  # made anew of the rows: each step once
        self.started = started  # unix time of wall_s 0
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary  # pyright: ignore
        name = f"events.out.tfevents.{started:.0f}"
        self._files = [folder / f"seed_{seed}" / name for seed in seeds]
        for file in self._files:
            file.parent.mkdir(parents=True)
            first = self._event(wall_time=started, file_version="brain.Event:2")
            text = self._event(wall_time=started, summary=text_pb("hyperparameters", about))
            self._write(file, [first, text])

    def show(self, *rows: dict[str, Any]) -> None:
        """Rows of metrics.jsonl or evals.jsonl."""
        events: list[list[Any]] = [[] for _ in self._files]
        for row in rows:
            about = {"step": row["step"], "wall_time": self.started + row["wall_s"]}
            for tag, values in shown(row, len(events)):
                for mine, x in zip(events, values, strict=True):
                    value = self._summary.Value(tag=tag, simple_value=x)
                    mine.append(self._event(summary=self._summary(value=[value]), **about))
        for file, mine in zip(self._files, events, strict=True):
            self._write(file, mine)

    def _write(self, file: Path, events: list[Any]) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        with file.open("ab") as opened:
            writer = RecordWriter(opened)
            for event in events:
                writer.write(event.SerializeToString())


def service(track: str) -> tuple[Any, str]:
    """The module of "trackio:PROJECT" or "wandb:PROJECT", which are used alike, and PROJECT."""
    name, _, project = track.partition(":")
    if name not in ("trackio", "wandb") or not project:
        raise ValueError(f"--track is {track!r}; it takes trackio:PROJECT or wandb:PROJECT.")
    try:
        if name == "trackio":
            import trackio as found  # pyright: ignore
        else:
            import wandb as found  # pyright: ignore
    except ImportError as error:
        raise ValueError(f"--track {track} needs its package: pip install {name}") from error
    return found, project


class Tracker:
    """A run of a `service`; one that is resumed goes on."""

    def __init__(self, service: tuple[Any, str], out: Path, manifest: dict[str, Any]) -> None:
        (module, project), run_id = service, manifest["run_id"]
        self.seeds, self._module = manifest["seeds"], module
        known = module.__name__ == "wandb"  # which knows a run by its id, trackio by its name
        names = {"name": out.name, "id": run_id} if known else {"name": f"{out.name}-{run_id}"}
        try:
            module.init(project=project, config=manifest, resume="allow", **names)
        except Exception as error:  # whatever theirs raise
            raise ValueError(f"--track cannot begin: {error}") from error

    def show(self, row: dict[str, Any]) -> None:
        """A row of metrics.jsonl or evals.jsonl, later than any before."""
        told = {}
        for tag, values in shown(row, len(self.seeds)):
            names = [tag] if len(self.seeds) == 1 else [f"{tag}/seed_{s}" for s in self.seeds]
            told |= dict(zip(names, values.tolist(), strict=True))
        self._module.log(told, step=row["step"])

    def finish(self) -> None:
        self._module.finish()
