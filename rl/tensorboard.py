"""TensorBoard's files as a view of metrics.jsonl, under the tags the field knows."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

TAGS = {
    "episode_return": "charts/episodic_return", "episode_length": "charts/episodic_length",
    "steps_per_s": "charts/SPS", "lr": "charts/learning_rate", "kl": "losses/approx_kl",
    "clip_fraction": "losses/clipfrac", "q": "losses/qf_values",
    "eval_return": "eval/episodic_return", "eval_length": "eval/episodic_length",
}  # fmt: skip
NOT_SHOWN = ("step", "wall_s", "returns", "lengths")


class Board:
    """Event files in `folder`, one run of TensorBoard's for each of `seeds`."""

    def __init__(self, folder: Path, seeds: list[int], started: float) -> None:
        from tensorboard.summary import Writer  # slow to import

        shutil.rmtree(folder, ignore_errors=True)  # made anew of the rows: each step once
        self.started = started  # unix time of wall_s 0
        self.writers = [Writer(str(folder / f"seed_{seed}")) for seed in seeds]

    def show(self, row: dict[str, Any]) -> None:
        """A row of metrics.jsonl."""
        for name, value in row.items():
            if name in NOT_SHOWN:
                continue
            values = np.broadcast_to(np.asarray(value, np.float64), len(self.writers))
            for writer, x in zip(self.writers, values, strict=True):
                tag = TAGS.get(name, f"losses/{name}")
                writer.add_scalar(tag, x, row["step"], wall_time=self.started + row["wall_s"])

    def flush(self) -> None:
        for writer in self.writers:
            writer.flush()
