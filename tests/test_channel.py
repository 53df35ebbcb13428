"""Networks lose, delay, double, overtake and damage as much as they say, the same for a seed."""

import numpy as np
import pytest

from rl.bridge.sim.channel import NETWORKS, Channel, Network

DT, COUNT = 0.002, 20_000


def sent(network: Network, seed: int = 0, count: int = COUNT) -> list[tuple[float, bytes]]:
    """When each came, of datagrams that are sent in every tick and have their number in them."""
    channel, found = Channel(network, np.random.default_rng(seed)), []
    for t in range(count):
        channel.send(t * DT, t.to_bytes(4, "little") * 8)
        found += [(t * DT, datagram) for datagram in channel.arrived(t * DT)]
    return found


def number(datagram: bytes) -> int:
    return int.from_bytes(datagram[:4], "little")


def test_no_network_is_a_wire() -> None:
    assert [(round(t / DT), number(x)) for t, x in sent(NETWORKS["none"], count=50)] == [
        (t, t) for t in range(50)
    ]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_seed_is_a_network(name: str) -> None:
    assert sent(NETWORKS[name], 3, 3000) == sent(NETWORKS[name], 3, 3000)
    if name in ("wifi", "bad"):
        assert sent(NETWORKS[name], 3, 3000) != sent(NETWORKS[name], 4, 3000)


def test_it_is_as_late_as_it_says_and_overtakes() -> None:
    found = sent(Network(delay=0.01, jitter=0.02))
    late = np.array([t - number(x) * DT for t, x in found])
    assert late.min() >= 0.01 - 1e-9
    assert late.mean() == pytest.approx(0.03 + DT / 2, rel=0.05)
    order = [number(x) for _, x in found]
    assert order != sorted(order)


def test_it_loses_doubles_and_damages_as_much_as_it_says() -> None:
    found = sent(Network(loss=0.1, twice=0.05, flipped=0.02))
    whole = [x for _, x in found if x == x[:4] * 8]
    assert len(found) / COUNT == pytest.approx(0.9 * 1.05, rel=0.02)
    assert 1 - len(whole) / len(found) == pytest.approx(0.02, rel=0.2)
    assert 1 - len({*map(number, whole)}) / COUNT == pytest.approx(0.1 + 0.9 * 0.02, rel=0.1)


def test_outages_come_and_last_as_it_says() -> None:
    came = np.zeros(COUNT, bool)
    came[[number(x) for _, x in sent(Network(outages=2.0, outage=0.1))]] = True
    edges = np.flatnonzero(np.diff(came.astype(int)))
    assert 1 - came.mean() == pytest.approx(0.1 / (0.5 + 0.1), rel=0.25)
    lengths = np.diff(edges)[int(not came[0]) :: 2] * DT
    assert lengths.mean() == pytest.approx(0.1, rel=0.3)
