"""A report of a flight tells what was, by a second count, and as a page that stands alone."""

import itertools
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from rl.bridge import states
from rl.bridge.checks import Reason
from rl.bridge.limits import Limits
from rl.bridge.log import flight, report, report_page, review
from rl.bridge.log.report import Report
from rl.bridge.log.review import Told
from tests import flights
from tests.flights import TICKS, Flown, eventful, wishes
from tests.rig import body, go2, of


@pytest.fixture(scope="module")
def rig() -> Flown:
    """An eventful flight, of which ticks are late and some are missed."""
    made, rng = eventful(), np.random.default_rng(0)
    late = rng.exponential(1e-4, len(made.rows))
    made.rows = [row._replace(late=x) for row, x in zip(made.rows, late, strict=True)]
    return made


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, rig: Flown) -> Path:
    return flights.write(tmp_path_factory.mktemp("flight") / "a.mcap", rig)


@pytest.fixture(scope="module")
def told(log: Path) -> Told:
    return review.of(flight.read(log), log)


def test_states_follow_one_another_with_their_reasons(told: Told, rig: Flown) -> None:
    runs = [(state, [*rows]) for state, rows in itertools.groupby(rig.rows, lambda x: x.state)]
    assert [x.state for x in told.spans] == [state for state, _ in runs]
    assert [x.begin for x in told.spans] == [rows[0].now for _, rows in runs]
    assert all(a.end == b.begin for a, b in itertools.pairwise(told.spans))
    assert [x.why for x in told.spans] == [
        "the log begins", "told to stand", "told to arm", "told to take", "told to give",
        "told to wait", "told to stand", "told to arm", "it leans too far",
    ]  # fmt: skip
    assert told.seconds == pytest.approx(len(rig.rows) * rig.core.dt)


def test_lateness_is_that_of_all_ticks(told: Told, rig: Flown) -> None:
    late = np.array([row.late for row in rig.rows])
    assert told.late == pytest.approx([np.median(late), np.quantile(late, 0.99), late.max()])
    assert told.missed == 0


def test_missed_ticks_are_counted(tmp_path: Path) -> None:
    rig = Flown().armed()
    rig.rows = [x._replace(number=x.number + 3 * (i > 50)) for i, x in enumerate(rig.rows)]
    path = flights.write(tmp_path / "a.mcap", rig)
    assert review.of(flight.read(path), path).missed == 3


def test_limits_are_counted_by_periods_and_joints(told: Told, rig: Flown) -> None:
    """By periods of five ticks from where it was armed, cut short ones among them."""
    moving, periods = [], 0
    for state, rows in itertools.groupby(rig.rows, lambda x: x.state in states.MOVING):
        if state:
            run = [*rows]
            moving += [run[i : i + TICKS] for i in range(0, len(run), TICKS)]
    periods = len(moving)
    hit = [any(row.mask & Reason.PACE for row in some) for some in moving]
    assert told.cuts.keys() == {Reason.PACE}
    assert told.cuts[Reason.PACE].share == pytest.approx(sum(hit) / periods)
    cut = np.array([np.any([row.stages[1] != row.stages[0] for row in x], 0) for x in moving])
    shares = dict(zip([a.name for a in go2().actuators], cut.mean(0).tolist(), strict=True))
    joints = told.cuts[Reason.PACE].joints
    assert len(joints) == 3
    assert [share for _, share in joints] == sorted(shares.values(), reverse=True)[:3]
    assert all(shares[name] == share for name, share in joints)


def test_joints_at_the_end_of_their_range_are_named(tmp_path: Path) -> None:
    wished = of("rest").copy()
    wished[2] = of("low")[2] - 1
    rig = Flown(Limits(stand_s=0.5, blend_s=0.0)).armed().live(50, states.ARM, wished)
    path = flights.write(tmp_path / "a.mcap", rig)
    cuts = review.of(flight.read(path), path).cuts
    assert cuts[Reason.POSITION].joints == [(go2().actuators[2].name, 1.0)]


def test_answers_are_at_once_late_or_never(tmp_path: Path) -> None:
    """Of six questions the second is answered two ticks later, the fourth and the last never."""
    rig = Flown(Limits(stand_s=0.5, plan_age=9)).armed()
    rig.live(1, states.ARM, of("rest"))
    for t in range(1, 30):
        if t == 7:
            rig.answering = False
            rig.core.begin((rig.number + 1) * rig.core.dt, 0.0)
            rig.policy(of("rest")[None], 2)
        rig.tick(body(rig.at), of("rest") if t // TICKS in (0, 2, 4) else None)
    path = flights.write(tmp_path / "a.mcap", rig)
    answers = review.of(flight.read(path), path).answers
    assert (answers.asked, len(answers.took), answers.never) == (6, 3, 2)
    assert answers.late == pytest.approx([2 * rig.core.dt])


def test_what_was_not_taken_is_counted_as_the_bridge_did(tmp_path: Path) -> None:
    rig, rng = Flown().armed(), np.random.default_rng(0)
    rig.live(20, states.ARM, wishes(0))
    for t in range(40):
        if t % 4 == 0:
            rig.core.hear("policy", rng.bytes(50))
            rig.policy(of("rest")[None], 0)  # an old plan
        if t % 8 == 1:
            rig.core.hear("watcher", rng.bytes(20))
        if t % 8 == 3:
            rig.robot(body(rig.at), seq=1)
        rig.tick(body(rig.at), of("rest"), event=states.ARM if t == 5 else "")
    path = flights.write(tmp_path / "a.mcap", rig)
    found = review.of(flight.read(path), path)
    assert found.counts == +rig.core.ears.counts
    assert found.counts.keys() == {
        "policy: unknown", "policy: old", "watcher: unknown", "robot: old"}  # fmt: skip
    assert found.refused == Counter({"arm": 1})


def test_a_pilot_that_asks_until_its_robot_stands_was_not_refused(tmp_path: Path) -> None:
    rig = Flown(Limits(stand_s=0.5))
    for event in ("", states.STAND, *[states.ARM] * 5, states.GIVE):
        rig.tick(body(rig.at), event=event)
    while rig.core.state != states.ARMED:
        rig.tick(body(rig.at), of("rest"), event=states.ARM)
    path = flights.write(tmp_path / "a.mcap", rig)
    assert review.of(flight.read(path), path).refused == Counter({"give": 1})


def test_the_last_word_of_a_script_that_leaves_was_not_refused(tmp_path: Path) -> None:
    rig = Flown().armed().live(50, states.ARM, wishes(0))
    rig.core.hear("bridge", b"")
    rig.live(1, states.WAIT, of("rest"))
    assert rig.core.state == states.PASSIVE
    path = flights.write(tmp_path / "a.mcap", rig)
    found = review.of(flight.read(path), path)
    assert (found.refused, found.spans[-2].why) == (Counter(), "told to arm")


def test_heat_and_losses_are_told(tmp_path: Path) -> None:
    rig = Flown().armed()
    for heat in (40.0, 61.0, 55.0):
        rig.seq += 1  # a state is lost
        rig.tick(body(rig.at), heat=heat)
    path = flights.write(tmp_path / "a.mcap", rig)
    found = review.of(flight.read(path), path)
    states_ = [x for row in rig.rows for x in row.heard if x.source == "robot"]
    assert (found.heat, found.loss) == (61.0, pytest.approx(3 / (3 + len(states_))))
    assert ("heat", "61 degrees C, the hottest motor") in [*report.lines(found, path)]


def test_the_text_is_short_and_says_it_all(told: Told, log: Path, capsys: Any) -> None:
    report.report(Report(log))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) < 140
    text = "\n".join(lines)
    assert f"{len(told.lived)} at 250 Hz, 0 missed" in text
    began = time.strftime("%Y-%m-%d", time.gmtime(1.75e9))
    assert f"go2, 2.2 s from {began}" in text
    for words in ("asked 36 times, 36 answers at once", "it fell: it leans too far",
                  "24 steps, 25% by a human; its operator said so", "told to take",
                  "by a limit of speed or acceleration, most "):  # fmt: skip
        assert words in text


def test_the_page_stands_alone_and_has_every_joint(log: Path, tmp_path: Path) -> None:
    report.report(Report(log, out := tmp_path / "a.html"))
    page = out.read_text()
    svgs = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(svgs) == 3
    texts = ["".join(ElementTree.fromstring(svg).itertext()) for svg in svgs]
    assert all(motor.name in texts[2] for motor in go2().actuators)
    assert "armed" in texts[0]
    assert "it leans too far" in page
    assert not re.findall(r"(?:src|href)=[\"'](?!#)", page.replace("xlink:href", "href"))
    assert "<script" not in page


def test_a_thinned_line_keeps_its_peaks_and_its_gaps() -> None:
    times, numbers = np.arange(9000.0), np.sin(np.arange(9000.0))
    numbers[[1234, 5678]] = 7, -7
    numbers[3000:3100] = np.nan
    t, x = report_page.thinned(times, numbers)
    assert len(t) <= 1.5 * report_page.POINTS
    assert (np.diff(t) > 0).all()
    assert (np.nanmax(x), np.nanmin(x)) == (7, -7)
    assert t[np.nanargmax(x)] == 1234
    assert np.isnan(x[(t >= 3000) & (t < 3100)]).any()


def test_a_line_does_not_lead_over_a_gap() -> None:
    t, x = report_page.broken(np.array([0.0, 1, 2, 50, 51]), np.arange(5.0))
    assert t.tolist() == [0, 1, 2, 50, 50, 51]
    assert np.flatnonzero(np.isnan(x)).tolist() == [3]


def test_of_a_log_cut_in_half_the_first_half_is_told(tmp_path: Path, log: Path) -> None:
    (path := tmp_path / "cut.mcap").write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    told = review.of(flight.read(path), path)
    assert 200 < len(told.lived) < 400
    assert any("cut short" in text for _, text in report.lines(told, path))
    (path := tmp_path / "none.mcap").write_bytes(log.read_bytes()[:8000])
    (flights.write(tmp_path / "empty.mcap", Flown(), []))
    with pytest.raises(ValueError, match="has no tick that is whole"):
        report.report(Report(tmp_path / "empty.mcap"))


def test_bad_input_is_refused(tmp_path: Path, log: Path) -> None:
    (tmp_path / "a.html").write_text("mine")
    for args, why in (
        (Report(tmp_path / "none.mcap"), "There is no log"),
        (Report(log, tmp_path / "a.html"), "is there already"),
        (Report(log, tmp_path / "a.pdf"), "will be an .html file"),
    ):
        with pytest.raises(ValueError, match=why):
            report.report(args)
    assert (tmp_path / "a.html").read_text() == "mine"
