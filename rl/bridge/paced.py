"""A policy asked at its own rate, alone in a process as on a robot: how long each answer takes.

As there, it is urgent, and rehearses before it is asked.

python -m rl.bridge.paced ARTEFACT RUNTIME SECONDS says that it is warm, and then what came of it.
"""

import json
import logging
import os
import sys
import time
from pathlib import Path

import numpy as np

from rl import artefact
from rl.artefact import Deployed, Golden
from rl.bridge.clock import Real, urgent
from rl.bridge.policyd import REHEARSED_S


class Compiled(logging.Handler):
    """Counts what JAX says it has compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += record.getMessage().startswith("Finished XLA compilation")


def steps(policy: Deployed, golden: Golden, count: int) -> list[float]:
    """s of each of so many steps."""
    clock, took, dt = Real(policy.spec.control_dt), [], policy.spec.control_dt
    for i in range(count):
        clock.wait()
        t = i % len(golden.targets)
        readings = {name: x[t] for name, x in golden.readings.items()}
        began = time.monotonic()
        policy.step(readings, golden.command[t])
        took.append(time.monotonic() - began)
        time.sleep(max(dt - took[-1] - REHEARSED_S, 0.0))
        policy.rehearse()
    return took


def main(path: Path, runtime: str, seconds: float) -> None:
    os.environ["JAX_LOG_COMPILES"] = "1"  # before JAX is there
    counter, logger = Compiled(), logging.getLogger("jax")
    logger.addHandler(counter)
    logger.propagate = False
    found = artefact.read(path)
    policy = artefact.deploy(found, "jax" if runtime == "jax" else "numpy")
    warm = counter.count
    urgent("policy")
    print(json.dumps({"warm": warm}), flush=True)
    took = steps(policy, found.golden, max(round(seconds / found.spec.control_dt), 1))
    p50, p99 = np.percentile(took, (50, 99))
    print(json.dumps({"asked": len(took), "p50": p50, "p99": p99, "most": max(took),
                      "compiled": counter.count - warm}))  # fmt: skip


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
    except ValueError as error:
        print(json.dumps({"error": str(error)}))
        sys.exit(1)
