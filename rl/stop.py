"""How a loop is asked to end from outside."""

import os
import signal
import sys
import threading
import time
from typing import Self

ECHO = 0.5  # s in which another is the first again: timeout passes on what a terminal sends to all
SIGNALS = {int(signal.SIGINT): "Ctrl-C", int(signal.SIGTERM): "SIGTERM"}


class Stop:
    """A first Ctrl-C or SIGTERM asks a loop to end in good order, a second one ends it at once.

    While it is entered, `asked` says what asked; empty if nothing did.  A thread listens, for
    Python itself hears nothing, and of two signals the last, until a compiled program returns.

    Only in the main thread: elsewhere, signals are left to whoever has it.
    """

    def __init__(self) -> None:
        self.asked = ""
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        ear, self._mouth = os.pipe()
        os.set_blocking(self._mouth, False)
        self._fd_before = signal.set_wakeup_fd(self._mouth)
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as in the background of a script
                self._before[number] = signal.signal(number, lambda *_: None)
        threading.Thread(target=self._listen, args=[ear], daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # pyright: ignore
        signal.set_wakeup_fd(self._fd_before)
        os.close(self._mouth)

    def _listen(self, ear: int) -> None:
        first = 0.0
        while heard := os.read(ear, 1):
            if heard[0] in self._before:
                if self.asked and time.monotonic() < first + ECHO:
                    continue
                if self.asked:
                    said = "\nstopped at once: --resume goes on from the last checkpoint"
                    print(said, file=sys.stderr, flush=True)
                    os._exit(128 + heard[0])  # as shells have it
                first, self.asked = time.monotonic(), f"stopped by {SIGNALS[heard[0]]}"
                print(
                    "\nasked to stop: saves after this phase, and ends; again, at once", flush=True
                )
        os.close(ear)
