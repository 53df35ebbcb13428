"""Newer weights are looked at before a policy has them: bad ones are refused, the old ones kept."""

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl.artefact import Deployed
from rl.bridge.learn import newer, weights
from rl.bridge.learn.newer import Leaves, Newer
from tests.guided import SIZE, spec

SIZES = (4, 8), (8,), (8, SIZE)


def leaves(scale: float = 1.0, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [(scale * rng.normal(size=size)).astype(np.float32) for size in SIZES]


def call(params: Any, carry: Any, readings: Any, asked: Any) -> Any:
    """A network of one layer, in the place of a compiled program."""
    hidden = np.tanh(np.asarray(params[0]).T @ np.asarray(asked)[:4] + np.asarray(params[1]))
    own = np.tanh(hidden @ np.asarray(params[2]))
    return np.concatenate([np.zeros(12), own, [0.0]]), *carry


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Newer:
    monkeypatch.setattr(newer, "LOOKS_S", 0.0)
    policy = Deployed(spec(), call, leaves(0.3), [np.zeros(1)])
    (tmp_path / "weights").mkdir()
    found = Newer(tmp_path / "weights", policy)
    rng = np.random.default_rng(2)
    for _ in range(8):
        found.recent.append(([np.zeros(1)], [], rng.normal(size=8)))
    return found


def publish(
    made: Newer, version: int, what: list[np.ndarray] | bytes, seen: Collection[int] = ()
) -> None:
    blob = what if isinstance(what, bytes) else newer.pack(Leaves(what, seen))
    weights.publish(made.folder, version, blob)
    made.look()


def same(params: Any, what: list[np.ndarray]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(params, what, strict=True))


def refused(made: Newer) -> list[dict[str, Any]]:
    path = made.folder / weights.REFUSED
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_good_ones_are_taken(made: Newer) -> None:
    publish(made, 3, better := leaves(0.35))
    assert made.version == 3
    assert same(made.policy.params, better)
    assert refused(made) == []


def spoilt(change: Callable[[list[np.ndarray]], Any]) -> list[np.ndarray]:
    made = leaves(0.3)
    change(made)
    return made


BAD: dict[str, tuple[list[np.ndarray] | bytes, str]] = {
    "NaN": (spoilt(lambda x: x[1].__setitem__(3, np.nan)), "some are no numbers"),
    "infinite": (spoilt(lambda x: x[0].__setitem__((0, 0), np.inf)), "some are no numbers"),
    "of fewer leaves": (leaves(0.3)[:2], "they are of another network"),
    "of another shape": (spoilt(lambda x: x.__setitem__(1, np.zeros(9, "<f4"))),
                         "they are of another network"),
    "of another type": (spoilt(lambda x: x.__setitem__(1, np.zeros(8))),
                        "they are of another network"),
    "exploding": (leaves(30.0), "one grew to"),
    "upside down": ([-100 * np.sign(x) if i == 2 else x for i, x in enumerate(leaves(0.3))],
                    "one grew to"),
    "no file of weights": (b"no weights at all", "they are no weights"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_ones_are_refused_and_the_old_ones_kept_and_it_is_counted(
    made: Newer, name: str
) -> None:
    publish(made, 2, good := leaves(0.32))
    what, why = BAD[name]
    publish(made, 5, what)
    made.look()  # and are not looked at again
    assert made.version == 2
    assert same(made.policy.params, good)
    assert [x["version"] for x in refused(made)] == [5]
    assert refused(made)[0]["why"].startswith(why)
    publish(made, 6, better := leaves(0.33))
    assert made.version == 6
    assert same(made.policy.params, better)


def test_ones_that_would_do_something_else_altogether_are_refused(made: Newer) -> None:
    flat = leaves(3.0)
    publish(made, 2, [flat[0], flat[1], 3 * np.ones((8, SIZE), np.float32)])
    assert made.version == 2, refused(made)  # or what follows says nothing
    publish(made, 3, [-flat[0], -flat[1], 3 * np.ones((8, SIZE), np.float32)])
    assert made.version == 2
    assert "actions would be others" in refused(made)[0]["why"]


def test_moments_of_what_was_seen_have_units_of_their_own(made: Newer) -> None:
    grown = leaves(0.3)
    grown[1] = np.full(8, 1e4, np.float32)
    publish(made, 2, grown)
    assert "one grew to 1e+04, and may to 10" in refused(made)[0]["why"]
    made.recent.clear()  # what they do is looked at as that of others
    publish(made, 3, grown, seen=[1])
    assert made.version == 3
    grown = [*grown[:1], np.full(8, np.nan, np.float32), grown[2]]
    publish(made, 4, grown, seen=[1])
    assert (made.version, refused(made)[-1]["why"]) == (3, "some are no numbers")


def test_what_is_refused_again_and_again_is_said_now_and_then(
    made: Newer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in range(1, 6):
        publish(made, version, leaves(30.0))
    said = capsys.readouterr()
    assert said.out == ""  # of which launch reads a line, and no more
    assert [line.split(":")[0] for line in said.err.splitlines()] == ["refused  weights 1"]
    assert len(refused(made)) == 5
    monkeypatch.setattr(newer, "SAID_S", 0.0)
    publish(made, 6, leaves(30.0))
    assert "refused  weights 6: one grew" in capsys.readouterr().err


def test_older_ones_are_not_looked_at(made: Newer) -> None:
    publish(made, 7, good := leaves(0.32))
    for path in made.folder.glob("*.weights"):
        path.unlink()
    publish(made, 6, leaves(0.5))
    assert made.version == 7
    assert same(made.policy.params, good)


def test_damaged_ones_are_not_there(made: Newer) -> None:
    weights.publish(made.folder, 4, newer.pack(Leaves(leaves(0.32))))
    path = next(made.folder.glob("*.weights"))
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    made.look()
    assert (made.version, refused(made)) == (0, [])
