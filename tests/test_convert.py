"""Flights as data: all that was told is there to the last number, and episodes end as they did."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from agents.flow_bc import FlowBC
from experiments import offline
from rl.bridge import states, wire
from rl.bridge.checks import Reason
from rl.bridge.limits import Limits
from rl.bridge.log import convert, flight, steps
from rl.bridge.log.convert import Convert
from rl.bridge.log.flight import Row
from rl.chunks import Chunks
from rl.data import npz, sampling
from rl.data.dataset import Dataset
from rl.data.sampling import Uniform
from rl.denoisers import Dense
from rl.spec import Spec
from tests import flights
from tests.flights import FALLEN, TICKS, Flown, eventful, wishes
from tests.rig import body, go2, of


@pytest.fixture(scope="module")
def rig() -> Flown:
    return eventful()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, rig: Flown) -> Path:
    return flights.write(tmp_path_factory.mktemp("flight") / "a.mcap", rig)


@pytest.fixture(scope="module")
def data(log: Path) -> Dataset:
    convert.convert(Convert((log,), log.with_name("a.npz")))
    return npz.read(log.with_name("a.npz"))


class Decoded:
    """A second reader of a log in which the robot speaks in every tick, by the wire's messages."""

    def __init__(self, spec: Spec, rows: list[Row]) -> None:
        said = [[x.datagram for x in row.heard if x.source == "robot"] for row in rows]
        self.seen = np.stack([wire.decode(x[-1]).numbers[:-1] for x in said])
        told = [wire.command_of(spec, wire.decode(row.told)) for row in rows]
        self.targets = np.stack([x.targets for x in told])
        self.asked = np.stack([x.asked for x in told])
        self.moving = np.array([row.state in states.MOVING for row in rows])
        begins = np.flatnonzero(np.diff(self.moving.astype(int), prepend=0) == 1)
        ends = np.flatnonzero(np.diff(self.moving.astype(int), append=0) == -1) + 1
        self.runs = [*zip(begins.tolist(), ends.tolist(), strict=True)]


def test_all_that_was_seen_and_told_is_there_to_the_last_number(data: Dataset, rig: Flown) -> None:
    found = Decoded(go2(), rig.rows)
    assert [end - begin for begin, end in found.runs] == [123, 52]
    assert data.episodes["length"].tolist() == [24, 10]  # whole periods of 5 ticks
    seen = np.concatenate([found.seen, found.asked], 1)
    at = np.concatenate([begin + TICKS * np.arange(24 if i == 0 else 10)
                         for i, (begin, _) in enumerate(found.runs)])  # fmt: skip
    np.testing.assert_array_equal(data.steps["obs"], seen[at])
    after = [begin + TICKS * n for (begin, _), n in zip(found.runs, (24, 10), strict=True)]
    np.testing.assert_array_equal(data.episodes["last_obs"], seen[after])
    np.testing.assert_array_equal(data.steps["targets"], found.targets[at + TICKS - 1])
    np.testing.assert_array_equal(data.steps["time"], [rig.rows[i].now for i in at])
    low, high = of("low"), of("high")
    back = low + (data.steps["action"] + 1) / 2 * (high - low)
    np.testing.assert_allclose(back, data.steps["targets"], atol=1e-6)
    assert data.facts["obs_names"][24:31] == [
        "gyro.0", "gyro.1", "gyro.2", *(f"orientation.{i}" for i in range(4))]  # fmt: skip
    assert data.facts["obs_names"][31:] == ["command forward", "command left", "command turn left"]


def test_wishes_are_those_the_policy_sent(data: Dataset, rig: Flown) -> None:
    first = [wishes(seed) for seed in (0, 3)]
    many = [[wish() for _ in range(300)] for wish in first]
    # A wish is drawn in each tick, and put to the bridge where a period begins.
    sent = [many[0][TICKS * i] for i in range(10)], [many[1][TICKS * i] for i in range(10)]
    np.testing.assert_array_equal(data.steps["wish"][:10], sent[0])
    np.testing.assert_array_equal(data.steps["wish"][24:], sent[1])
    assert data.steps["planned"].all()
    cut = data.steps["limited"]
    assert set(cut.tolist()) == {0, int(Reason.PACE)}
    told = np.abs(data.steps["targets"] - data.steps["wish"]).max(1) > 1e-6
    # Blended in, and driven by the policy: what is not as wished for was cut, and says so.
    np.testing.assert_array_equal(cut[30:] > 0, told[30:])
    assert {*told[30:].tolist()} == {True, False}


def test_who_drove_is_told(data: Dataset, rig: Flown) -> None:
    begin = next(i for i, row in enumerate(rig.rows) if row.state == states.ARMED)
    drove = [rig.rows[begin + TICKS * i + TICKS - 1].state for i in range(24)]
    assert {states.ARMED, states.INTERVENE} == {*drove}
    human = data.steps["human"][:24]
    np.testing.assert_array_equal(human, [x == states.INTERVENE for x in drove])
    # Of these the targets are the human's jog, and not what the policy wished for.
    moved = np.diff(data.steps["targets"][:24][human][2:], axis=0)
    np.testing.assert_allclose(moved, np.tile(np.linspace(-0.5, 0.5, 12) * 0.02, (3, 1)), atol=1e-5)


def test_a_fall_terminates_and_a_word_does_not(data: Dataset) -> None:
    assert np.flatnonzero(data.steps["terminated"]).tolist() == [33]
    assert np.flatnonzero(data.steps["truncated"]).tolist() == [23]
    assert data.steps["mask"].sum() == 33
    assert data.episodes["why"].tolist() == [int(Reason.ASKED), int(Reason.TILT)]
    assert "cut" not in data.facts
    assert data.facts["reward"] == "none"


@pytest.mark.parametrize(("quat", "event", "fell"), [
    (FALLEN, "", True), ((1, 0, 0, 0), states.STOP, False), (FALLEN, states.WAIT, True),
    ((1, 0, 0, 0), states.RELAX, False),
])  # fmt: skip
def test_how_it_ended(tmp_path: Path, quat: Any, event: str, fell: bool) -> None:
    rig = Flown().armed().live(20, states.ARM, wishes(0)).live(3, event, wishes(1), quat=quat)
    (found,) = steps.episodes(flight.read(flights.write(tmp_path / "a.mcap", rig)))
    assert (found.fell, len(found.time)) == (fell, 4)
    assert found.why == (Reason.TILT if fell else Reason.ASKED)
    # It left as a period ended, so that what was seen then is what was seen last.
    np.testing.assert_array_equal(found.readings[-1][-4:], np.float32(quat))


def test_a_held_plan_says_so(tmp_path: Path) -> None:
    """Of three targets, in answer to the first question alone."""
    rig, plan = Flown(Limits(stand_s=0.5, plan_age=50)).armed(), of("rest") + 0.1 * np.arange(
        3)[:, None]  # fmt: skip
    rig.live(1, states.ARM, plan).live(29)
    (found,) = steps.episodes(flight.read(flights.write(tmp_path / "a.mcap", rig)))
    assert found.planned.tolist() == [True, True, True, False, False]
    np.testing.assert_array_equal(found.wish, np.float32(plan[[0, 1, 2, 2, 2]]))


def test_episodes_of_a_simulated_robot_begin_anew(tmp_path: Path) -> None:
    rig = Flown(ticks=1, episodes=True)
    for _ in range(3):
        rig.tick(body(rig.at), wishes(0)(), reset=True)
        rig.live(9, "", wishes(0))
    found = steps.episodes(flight.read(flights.write(tmp_path / "a.mcap", rig)))
    # What the last step led to belongs to the next episode, or is not in the log.
    assert [len(x.time) for x in found] == [9, 9, 9]
    assert not any(x.why or x.fell for x in found)


def test_of_a_log_cut_in_half_what_is_whole_is_data(
    tmp_path: Path, log: Path, rig: Flown, data: Dataset, capsys: Any
) -> None:
    begin = next(i for i, row in enumerate(rig.rows) if row.state == states.ARMED)
    (cut := tmp_path / "cut.mcap").write_bytes(
        log.read_bytes()[: flights.ends(log)[begin + 61] + 5]
    )
    convert.convert(Convert((cut,), tmp_path / "cut.npz"))
    assert f"cut short, or is damaged: {begin + 62} ticks are whole" in capsys.readouterr().out
    found = npz.read(tmp_path / "cut.npz")
    assert found.episodes["length"].tolist() == [12]
    for name in ("obs", "action", "human", "wish", "limited"):
        np.testing.assert_array_equal(found.steps[name], data.steps[name][:12])
    np.testing.assert_array_equal(found.episodes["last_obs"][0], data.steps["obs"][12])
    assert found.steps["truncated"][-1]
    assert found.facts["cut"] == 1
    assert not found.facts["flights"][0]["whole"]


def test_of_a_log_with_a_hole_an_episode_ends_there_and_goes_on_behind_it(
    tmp_path: Path, log: Path, rig: Flown
) -> None:
    whole, begin = bytearray(log.read_bytes()), flights.ends(log)
    armed = next(i for i, row in enumerate(rig.rows) if row.state == states.ARMED)
    whole[begin[armed + 40] - 9] ^= 1
    (path := tmp_path / "a.mcap").write_bytes(whole)
    found, whole_ = (steps.episodes(flight.read(x)) for x in (path, log))
    assert [len(x.time) for x in whole_] == [24, 10]
    assert [len(x.time) for x in found] == [7, 15, 10]
    assert found[2].fell
    for name in ("readings", "targets", "human"):
        hole, all_ = getattr(found[1], name), getattr(whole_[0], name)
        np.testing.assert_array_equal(hole, all_[9:])


def test_several_flights_are_one_set(tmp_path: Path, log: Path, data: Dataset) -> None:
    rig = Flown().armed().live(50, states.ARM, wishes(9)).live(3, states.STOP)
    other = flights.write(tmp_path / "b.mcap", rig)
    convert.convert(Convert((log, other), tmp_path / "ab.npz"))
    found = npz.read(tmp_path / "ab.npz")
    assert found.episodes["flight"].tolist() == [0, 0, 1]
    np.testing.assert_array_equal(found.steps["obs"][:34], data.steps["obs"])
    assert [x["log"] for x in found.facts["flights"]] == ["a.mcap", "b.mcap"]


def test_an_agent_learns_of_it(data: Dataset) -> None:
    """The clone of two episodes comes nearer to what was done."""
    agent = FlowBC(net=Dense((32,)), chunks=Chunks(horizon=2, execute=1), lr=3e-3)
    source = sampling.source(data, Uniform())
    state = agent.init(jax.random.key(0), source.obs[0], source.action[0])
    state, losses = agent.observe(state, offline.every(source)), []
    update = jax.jit(agent.update)
    for i in range(60):
        batch = sampling.sample(source, jax.random.key(i), 32 * agent.delay, 1 + agent.ahead)
        batch = jax.tree.map(lambda x: x.reshape(agent.delay, 32, *x.shape[1:]), batch)
        state, metrics = update(state, batch, jax.random.key(i))
        losses.append(float(next(iter(metrics.values())).mean()))
    assert np.mean(losses[-10:]) < np.mean(losses[:10])


def test_bad_input_is_refused_and_nothing_is_written_over(
    tmp_path: Path, log: Path, data: Dataset
) -> None:
    go = partial(Convert, (log,))
    (noise := tmp_path / "noise.mcap").write_bytes(b"no log")
    idle = flights.write(tmp_path / "idle.mcap", Flown().armed())
    other = Flown(spec=replace(go2(), name="another"))
    another = flights.write(tmp_path / "another.mcap", other.armed().live(9, states.ARM, wishes(0)))
    (tmp_path / "there").mkdir()
    for args, why in (
        (Convert((tmp_path / "none.mcap",), tmp_path / "x.npz"), "There is no log"),
        (Convert((noise,), tmp_path / "x.npz"), "is no log of a flight"),
        (Convert((idle,), tmp_path / "x.npz"), "armed for no whole period"),
        (Convert((log, another), tmp_path / "x.npz"), "of different robots"),
        (Convert((log, log), tmp_path / "x.npz"), "named twice"),
        (go(log.with_name("a.npz")), "is there already"),
        (go(tmp_path / "there"), "is there already"),
        (go(tmp_path / "x.npz", task="walk"), "--task is for LeRobot"),
        (go(tmp_path / "x.npz", artefact=noise), "--artefact is for a recording"),
    ):
        with pytest.raises(ValueError, match=why):
            convert.convert(args)
    assert not (tmp_path / "x.npz").exists()
