"""What a robot's page shows of what its bridge says."""

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rl import artefact
from rl.bridge import states
from rl.bridge.checks import Reason
from rl.bridge.messages import Loop, Status
from rl.bridge.page import board
from rl.bridge.page.board import Board
from rl.bridge.page.paged import Page
from rl.bridge.tally import Tally
from tests.rig import Rig, body, go2, of

FIXTURE = Path(__file__).parent / "fixtures" / f"artefact-{artefact.SCHEMA}.zip"
ARM = artefact.read(FIXTURE).spec
BLANK = {s.name: np.zeros(s.size, "<f4") for s in ARM.sensors}


def status(tick: int = 0, state: str = states.ARMED, why: int = 0, **more: Any) -> Status:
    return Status(tick, 0.05 * tick, state, why, 0, 0, BLANK, np.zeros(6))._replace(**more)


def test_a_status_is_told_as_it_is() -> None:
    readings = body(angles=np.arange(12) / 8, quat=(np.nan, 0, 0, 0))
    loop = Loop(late=0.001, missed=3, took=math.nan, unanswered=2, loss=0.25)
    asked = np.array([0.5, 0, -0.25])
    said = Status(7, 0.14, states.HOLD, Reason.PLAN, Reason.PLAN | Reason.HELD, 0, readings,
                  of("rest"), asked=asked, loop=loop)  # fmt: skip
    told = board.told(go2(), said)
    assert (told["state"], told["why"]) == ("hold", "no target for too long")
    assert told["now"] == "no target for too long, it was held for too long"
    assert told["joints"] == [i / 8 for i in range(12)]
    np.testing.assert_allclose(told["targets"], of("rest"), atol=1e-6)
    assert told["asked"] == [0.5, 0, -0.25]
    assert told["loop"] == {
        "late": 0.001, "missed": 3, "took": None, "unanswered": 2, "loss": 0.25
    }  # fmt: skip
    facts = board.facts(go2())
    assert [x["name"] for x in facts["joints"]] == [a.name for a in go2().actuators]
    assert [x["unit"] for x in facts["command"]] == ["m/s", "m/s", "rad/s"]


@given(arrays("<f4", 6, elements=st.floats(width=32)), st.builds(Loop, *[st.floats()] * 5))
def test_whatever_numbers_come_a_browser_can_read_them(numbers: np.ndarray, loop: Loop) -> None:
    shown = Board(ARM)
    shown.hear(status(targets=numbers, asked=numbers[:3], loop=loop), 1.0)
    told = json.loads(json.dumps(shown.look(1.0), allow_nan=False))
    kept = [x for x in told["targets"] if x is not None]
    np.testing.assert_allclose(kept, numbers[np.isfinite(numbers)], rtol=1e-5, atol=1e-6)


def test_changes_are_noted_once_and_not_for_ever() -> None:
    shown, expected = Board(ARM), []
    for tick in range(3 * board.MOST_CHANGES):
        state = states.STATES[tick // 2 % 7]
        shown.hear(status(tick, state), float(tick))
        expected += [state] * (tick % 2 == 0)
    assert [x.state for x in shown.changes] == expected[-board.MOST_CHANGES :]
    assert np.diff([x.number for x in shown.changes]).tolist() == [1] * (board.MOST_CHANGES - 1)
    shown.bye(300.0)
    shown.bye(301.0)
    assert [x.state for x in shown.changes][-2:] == [expected[-1], board.GONE]
    assert (shown.look(302.0)["bridge"], shown.look(302.0)["gone"]) == (board.GONE, 300.0)


def test_a_look_has_the_worst_since_the_last_and_the_rate_that_was_kept() -> None:
    shown = Board(ARM)
    assert shown.look(0.0)["bridge"] == board.WAITING
    for second, (lates, missed) in enumerate([((0.001, 0.004, 0.0), 0), ((0.002,), 25)]):
        for late in lates:
            shown.hear(status(100 * second, loop=Loop(late, missed, 0.003)), float(second))
        told = shown.look(second + 0.5)
        assert told["loop"]["late"] == max(lates)
        assert told["loop"]["took"] == 0.003
    assert told["rate"] == 75  # of 100, of which 25 were left out
    again = shown.look(1.6)
    assert again["loop"] == {"late": 0, "missed": 25, "took": None, "unanswered": 0, "loss": 0}
    assert (again["bridge"], shown.look(2.5)["bridge"]) == (board.LIVE, board.SILENT)


def test_a_bridge_says_how_it_keeps_up() -> None:
    rig, tally = Rig().armed(), Tally()
    told = rig.tick(body(), command=np.array([9.0, 0.1, 0]))
    for late, took, asked in ((0.003, 0.001, True), (0.0, math.nan, False), (0.0, math.nan, True)):
        tally.count(told, late, took, asked)
    said = rig.core.status(3, tally.loop)
    assert said.loop[:1] + said.loop[3:] == (0.003, 1, 0.0)
    assert math.isnan(said.loop.took)
    np.testing.assert_allclose(said.asked, [go2().command[0].high, 0.1, 0], rtol=1e-6)


class Slow:
    """A browser that takes a message when it is told to."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.takes = asyncio.Semaphore(0)

    async def send(self, message: Any) -> None:
        await self.takes.acquire()
        self.taken.append(message)


def test_a_slow_browser_is_told_what_is_newest() -> None:
    async def told() -> list[Any]:
        page: Any = Page(FIXTURE, Board(ARM), None, 1)
        slow: Any = Slow()
        telling = asyncio.create_task(page.tell(slow))
        for _ in range(2):
            slow.takes.release()
        await asyncio.sleep(0.01)
        for tick in range(500):
            page.board.hear(status(tick, states.STATES[tick % 7]), float(tick))
            page.publish()
            page.picture = b"%d" % tick
            await asyncio.sleep(0)
        for _ in range(8):
            slow.takes.release()
            await asyncio.sleep(0.01)
        telling.cancel()
        return slow.taken

    facts, nothing, first, picture, last, *more = asyncio.run(told())
    assert json.loads(facts)["facts"]["name"] == ARM.name
    assert json.loads(nothing)["changes"] == []
    assert (json.loads(first)["time"], json.loads(last)["time"]) == (0, round(499 * 0.05, 6))
    assert len(json.loads(last)["changes"]) == board.MOST_CHANGES
    assert picture == b"499"
    assert more == []
