"""What happens to datagrams on their way: a network of a seed, in the robot's own time."""

import heapq
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Network:
    """One direction of a link; times in s, shares of datagrams."""

    delay: float = 0.0
    jitter: float = 0.0  # mean of a Gamma of shape 2 on top: what is behind may overtake
    loss: float = 0.0  # each by itself
    outages: float = 0.0  # a second, on average ...
    outage: float = 0.0  # ... and how long one lasts, on average
    twice: float = 0.0
    flipped: float = 0.0  # one bit of it


# As measured and told of in bridge notes: a cable, a good Wi-Fi, one at the edge of its reach.
NETWORKS = {
    "none": Network(),
    "wired": Network(delay=0.0002, jitter=0.00005, loss=1e-5),
    "wifi": Network(delay=0.003, jitter=0.002, outages=0.2, outage=0.05, twice=0.001),
    "bad": Network(0.02, 0.015, loss=0.03, outages=0.1, outage=0.2, twice=0.01, flipped=0.002),
}


class Channel:
    """Datagrams under way."""

    def __init__(self, network: Network, rng: np.random.Generator) -> None:
        self.network, self.rng = network, rng
        self.under_way: list[tuple[float, int, bytes]] = []
        self.count = 0
        self.begins = self.ends = 0.0  # of this outage, or the next

    def send(self, now: float, datagram: bytes) -> None:
        network, rng = self.network, self.rng
        if self._is_out(now) or rng.random() < network.loss:
            return
        for _ in range(1 + (rng.random() < network.twice)):
            late = network.delay + (rng.gamma(2, network.jitter / 2) if network.jitter else 0.0)
            whole = rng.random() >= network.flipped
            self.count += 1
            entry = now + late, self.count, datagram if whole else _flipped(datagram, rng)
            heapq.heappush(self.under_way, entry)

    def _is_out(self, now: float) -> bool:
        network, rng = self.network, self.rng
        if not network.outages:
            return False
        while now >= self.ends:
            self.begins = self.ends + rng.exponential(1 / network.outages)
            self.ends = self.begins + rng.exponential(network.outage)
        return now >= self.begins

    @property
    def due(self) -> float:
        """When something arrives next, s; infinite if nothing is under way."""
        return self.under_way[0][0] if self.under_way else float("inf")

    def arrived(self, now: float) -> list[bytes]:
        """What has come by now, in the order in which it came."""
        found = []
        while self.under_way and self.under_way[0][0] <= now + 1e-9:
            found.append(heapq.heappop(self.under_way)[2])
        return found


def _flipped(datagram: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(len(datagram)))
    return datagram[:at] + bytes([datagram[at] ^ 1 << int(rng.integers(8))]) + datagram[at + 1 :]
