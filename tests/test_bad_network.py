"""An actor behind a network that breaks anywhere, or leads nowhere: each record comes once."""

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rl.bridge.learn import line
from tests.apart import Stage, port_of, rows_of, until


class Wire:
    """A port whose connections go to another, until so many bytes, about, have gone through each;
    then it is cut, or, if it is `silent`, swallows all that comes."""

    def __init__(self, to: int, size: int, silent: bool) -> None:
        self.to, self.size, self.silent = to, size, silent
        self.door, self.rng = socket.create_server(("127.0.0.1", 0)), random.Random(0)
        self.address = f"tcp://127.0.0.1:{self.door.getsockname()[1]}"
        self.cuts, self.sockets = 0, [self.door]
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                ends = [self.door.accept()[0], socket.create_connection(("127.0.0.1", self.to))]
                self.sockets += ends
                left = [self.rng.expovariate(1 / self.size)]
                for pair in (ends, ends[::-1]):
                    self.threads.append(threading.Thread(target=self._pump, args=(*pair, left)))
                    self.threads[-1].start()

    def _pump(self, here: socket.socket, there: socket.socket, left: list[float]) -> None:
        with suppress(OSError):
            while data := here.recv(8192):
                before, left[0] = left[0], left[0] - len(data)
                self.cuts += before >= 0 > left[0]
                if before >= 0:
                    there.sendall(data[: int(before)])
                if left[0] < 0 and not self.silent:
                    break
        for end in (here, there):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for each in self.sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        for each in self.sockets:
            each.close()


@contextmanager
def wire(to: int, size: int, silent: bool) -> Iterator[Wire]:
    made = Wire(to, size, silent)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(("size", "silent", "cuts"), [(30_000, False, 10), (100_000, True, 2)])
def test_each_record_comes_once_over_connections_that_end_anywhere(
    size: int, silent: bool, cuts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl.bridge.learn.uplink.DEAD_S", 1.0)
    monkeypatch.setitem(line.OPTIONS, line.zmq.RECONNECT_IVL, 20)
    stage = Stage(tmp_path)
    learner = stage.learner()
    with wire(port_of(learner.address), size, silent) as network:
        arm = stage.actor(network.address)
        records = [b"%d " % i + bytes(i * 7 % 2000) for i in range(400)]
        for record in records:
            arm.uplink.append(record)
        until(lambda: not arm.uplink.pending, arm, learner, timeout=40)
        stage.close()
        assert network.cuts >= cuts
    assert [row.record for row in rows_of(tmp_path)] == records
