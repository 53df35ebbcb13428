"""A run of another codebase, kept as one of ours: python -m benchmarks.foreign OUT SCRIPT WORDS

The script, of benchmarks/peers, is told --env, --steps, --seed and what else a suite has for it.
It prints lines of JSON: {"eval": {"step": 1000, "returns": [...]}} as it goes, and {"returns":
[...]} of the episodes after its end, with "train_s".  It cannot be resumed: a run that died begins
again.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measurements import SBX
from benchmarks.process import PEERS, Failed, Python, Terminated, guard, peers_python
from rl.record import Record


def main(out: Path, script: str, words: list[str]) -> None:
    own, seed = words[:-2], int(words[-1])  # ..., --seed N
    steps, task = (own[own.index(flag) + 1] for flag in ("--steps", "--env"))
    python = Python(peers_python(), SBX, "--peers")
    facts = {
        "algorithm": Path(script).stem, "env": task, "config": {"script": script, "words": own},
        "seeds": [seed], "packages": python.versions(), "physics": "gymnasium",
    }  # fmt: skip
    if (out / "manifest.json").exists():
        log = Record.again(out)
        log.rewind(-1)
    else:
        log = Record(out, int(steps), **facts)
    with log:
        try:
            told = listen(log, [os.path.abspath(python.path), str(PEERS / script), *words])
        except Terminated:
            log.update(status="stopped by SIGTERM")  # as a run of ours says it
            raise
        if not told.get("returns"):
            raise Failed(f"{script} printed no returns")
        log.update(train_s=told.get("train_s", 0.0), eval_returns=[told["returns"]], status="done")
        print(f"eval_return: {np.mean(told['returns']):.1f}")


def listen(log: Record, command: list[str]) -> dict[str, Any]:
    """The last JSON object that a script prints; its evaluations are recorded as they come."""
    # The claim of the run is inherited: while a script lives, nobody else begins it.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, close_fds=False)
    told: dict[str, Any] = {}
    try:
        for line in process.stdout or ():
            if not line.startswith("{"):
                print(line, end="", flush=True)
                continue
            told = json.loads(line)
            if found := told.get("eval"):
                returns = np.array([found["returns"]], float)
                log.evaluated(found["step"], returns, np.full_like(returns, np.nan))
    except BaseException:
        process.terminate()
        raise
    if code := process.wait():
        raise Failed(f"{command[1]} failed (exit status {code})")
    return told


if __name__ == "__main__":
    guard(lambda: main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
