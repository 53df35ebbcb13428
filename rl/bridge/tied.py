"""A process that ends with the one that started it, however that ends."""

import os
import signal
import time
from threading import Thread

GLANCE_S = 0.5  # between two looks at whether it is there


def tie(parent: int) -> None:
    """Be sent SIGTERM when the process with this number is no longer the one that started us."""
    Thread(target=_mind, args=(parent,), daemon=True).start()


def _mind(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(GLANCE_S)
    os.kill(os.getpid(), signal.SIGTERM)
