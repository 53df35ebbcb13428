"""What a robot did is seen by its learner as it was by the robot, and as a simulation has it."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import envs
from agents.bc import BC
from agents.resfit import ResFiT
from experiments import explorer, lived
from experiments.explorer import Explorer
from experiments.lived import Lived, Pieces, Robot, dagger, hil_serl, rlif, runs, takeover
from experiments.taken import Store
from rl import artefact, buffer
from rl.bridge.learn.outbox import LABEL
from rl.bridge.learn.steps import pack
from rl.residual import BASE
from rl.types import Transition
from tests.lives import AGENT, end, explorer_at, flown, fresh, reach, records


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> artefact.Deployed:
    return explorer_at(tmp_path_factory.mktemp("explorer") / "explorer.zip")


def read(spec: Any, kept: list[bytes]) -> list[Lived]:
    pieces, robot = Pieces(spec), Robot(reach(), spec)
    return [robot.lived(piece) for record in kept for piece in pieces.take(record)]


@pytest.mark.long
def test_a_robot_does_as_the_simulation_whoever_acts(policy: artefact.Deployed) -> None:
    flight = flown(policy, 12, lambda i: 4 <= i < 9)
    np.testing.assert_allclose(flight.targets, flight.wished, atol=1e-5)
    own = np.array([step.policy for step in flight.steps])
    assert np.abs(np.diff(own, axis=0)).min() > 0  # it explores, whoever acts


def test_its_learner_sees_what_it_saw(policy: artefact.Deployed) -> None:
    flight = flown(policy, 12, lambda i: 4 <= i < 9)
    (found,) = read(policy.spec, records([*flight.steps, end(flight.steps)]))
    for name, at in (("obs", 0), ("next_obs", 1)):
        seen = np.stack(flight.seen[at : at + 11])
        np.testing.assert_allclose(getattr(found.seen, name), seen, atol=1e-5, err_msg=name)
    np.testing.assert_array_equal(found.seen.action, np.stack(flight.did[:11]))
    assert found.human.tolist() == [4 <= i < 9 for i in range(11)]
    assert found.starts.nonzero()[0].tolist() == [3]
    assert found.seen.truncated.nonzero()[0].tolist() == [10]
    assert not found.seen.terminated.any()
    assert not found.seen.reward.any()


def test_what_is_done_ends_it_when_the_task_says_so(policy: artefact.Deployed) -> None:
    flight = flown(policy, 16, lambda i: True, goal=[0.0, 0.0, 0.05])
    told = [step.done > 0.5 for step in flight.steps]
    assert any(told)
    # The policy says of a step, as it begins, what the simulation says at the end of that before.
    assert told[1:] == flight.success[:-1]
    first = told.index(True)
    (found,) = read(policy.spec, records([*flight.steps, end(flight.steps)]))
    assert len(found.human) == first
    assert found.seen.terminated.nonzero()[0].tolist() == [first - 1]
    assert found.seen.reward.nonzero()[0].tolist() == [first - 1]


def test_it_goes_on_with_the_same_memory_in_another_piece(
    policy: artefact.Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    flight = flown(policy, 12, lambda i: i % 2)
    kept = records([*flight.steps, end(flight.steps)])
    (whole,) = read(policy.spec, kept)
    monkeypatch.setattr(lived, "MOST", 4)
    parts = read(policy.spec, kept)
    assert len(parts) > 2
    assert all(part.seen.truncated[-1] for part in parts)
    joined = jax.tree.map(lambda *xs: np.concatenate(xs), *(part.seen for part in parts))
    joined = joined._replace(truncated=whole.seen.truncated)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), joined, whole.seen)


def test_a_period_that_is_missing_is_no_transition(policy: artefact.Deployed) -> None:
    flight = flown(policy, 9, lambda i: False)
    steps = flight.steps
    parts = read(policy.spec, records([*steps[:4], *steps[5:], end(steps)]))
    assert [len(x.human) for x in parts] == [3, 3]
    assert [x.seen.truncated[-1].item() for x in parts] == [True, True]
    # What was remembered of it is known, though it is not.
    np.testing.assert_allclose(parts[1].seen.obs, np.stack(flight.seen[5:8]), atol=1e-5)


def test_what_is_done_after_a_missing_period_counts(policy: artefact.Deployed) -> None:
    flight = flown(policy, 16, lambda i: True, goal=[0.0, 0.0, 0.05])
    first = [step.done > 0.5 for step in flight.steps].index(True)
    steps = [*flight.steps[: first - 1], *flight.steps[first:]]
    (found,) = read(policy.spec, records([*steps, end(steps)]))
    assert len(found.human) == first - 1
    assert found.seen.terminated.nonzero()[0].tolist() == [first - 2]
    assert found.seen.reward.nonzero()[0].tolist() == [first - 2]


def test_a_record_that_is_there_twice_counts_once(policy: artefact.Deployed) -> None:
    steps = flown(policy, 6, lambda i: False).steps
    kept = records([*steps, end(steps)])
    pieces = Pieces(policy.spec)
    found = [
        p for record in (*kept[:4], *kept[1:4], b"noise", *kept[4:]) for p in pieces.take(record)
    ]
    assert [len(piece.steps) for piece in found] == [6]
    assert pieces.dropped == 4


def test_a_bridge_that_was_killed_leaves_an_episode_that_is_cut(policy: artefact.Deployed) -> None:
    steps = flown(policy, 6, lambda i: False).steps
    other = [LABEL.pack(bytes([1]) * 16, i) + pack(x) for i, x in enumerate([*steps, end(steps)])]
    first, second = read(policy.spec, [*records(list(steps[:5])), *other])
    assert (len(first.human), len(second.human)) == (4, 5)
    assert first.seen.truncated[-1]
    np.testing.assert_allclose(first.seen.obs, second.seen.obs[:4], atol=1e-6)


def test_between_checkpoints_it_goes_on_and_no_transition_has_two_commands(
    policy: artefact.Deployed,
) -> None:
    steps = flown(policy, 8, lambda i: False).steps
    new = np.array([0.4, 0.1, 0.3], np.float32)
    legs = [x._replace(over=i == 3, command=x.command if i < 4 else new)
            for i, x in enumerate(steps)]  # fmt: skip
    first, second = read(policy.spec, records([*legs, end(legs)]))
    assert (len(first.human), len(second.human)) == (3, 3)  # steps 0 to 2, and 4 to 6
    assert first.seen.truncated[-1]
    whole = read(policy.spec, records([*steps, end(steps)]))[0]
    np.testing.assert_array_equal(second.seen.action, whole.seen.action[4:7])


def test_who_goes_on_to_the_next_does_so_after_what_is_done(policy: artefact.Deployed) -> None:
    """That it is over is said a step after a program told that it is done."""
    steps = flown(policy, 10, lambda i: False).steps
    legs = [
        x._replace(over=i == 4, done=float(i == 3), command=x.command) for i, x in enumerate(steps)
    ]
    first, second = read(policy.spec, records([*legs, end(legs)]))
    assert (len(first.human), len(second.human)) == (3, 4)  # steps 0 to 2, and 5 to 8
    assert first.seen.terminated[-1]
    assert not second.seen.terminated.any()


def test_a_fall_ends_it(policy: artefact.Deployed) -> None:
    steps = flown(policy, 5, lambda i: False).steps
    (found,) = read(policy.spec, records([*steps, end(steps, fell=True)]))
    assert found.seen.terminated.nonzero()[0].tolist() == [3]
    assert not found.seen.truncated.any()


def some(human: list[int], terminated: bool = False) -> Lived:
    acts = np.array(human, bool)
    count = len(acts)
    last = np.arange(count) == count - 1
    numbers = np.arange(count, dtype=np.float32)
    seen: Any = Transition(numbers, numbers, last.astype(np.float32), last & terminated,
                           last & (not terminated), numbers + 1)  # fmt: skip
    starts = np.append(acts[1:] & ~acts[:-1], False)
    return Lived(seen, acts, starts)


def test_demonstrations_are_what_humans_did_each_run_of_it_cut_off() -> None:
    told = hil_serl(some([0, 1, 1, 0, 1, 1], terminated=True))
    assert np.asarray(told.shown.obs).tolist() == [1, 2, 4, 5]
    assert np.asarray(told.shown.truncated).tolist() == [False, True, False, False]
    assert np.asarray(told.shown.terminated).tolist() == [False, False, False, True]
    assert np.asarray(told.all.reward).tolist() == [0, 0, 0, 0, 0, 1]
    assert len(runs(told.all, np.zeros(6, bool)).reward) == 0


def test_that_a_human_takes_over_is_what_rlif_learns_from() -> None:
    told = rlif(some([0, 1, 1, 0, 0, 1], terminated=True))
    assert np.asarray(told.all.reward).tolist() == [-1, 0, 0, 0, -1, 0]


def test_a_takeover_is_the_end_of_an_episode_that_has_failed() -> None:
    lived = some([0, 1, 1, 0, 0, 1], terminated=True)
    told = takeover(lived)
    assert np.asarray(told.all.terminated).tolist() == [True, False, False, False, True, True]
    assert np.asarray(told.all.reward).tolist() == [0, 0, 0, 0, 0, 1]
    assert not (told.all.terminated & told.all.truncated).any()
    cut = takeover(some([1, 0, 0]))
    assert np.asarray(cut.all.truncated).tolist() == [False, False, True]
    for one, other in zip(told.shown, hil_serl(lived).shown, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_imitated_is_what_humans_did() -> None:
    told = dagger(some([0, 1, 1, 0, 0, 1], terminated=True))
    for one, other in zip(told.all, told.shown, strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.asarray(told.all.obs).tolist() == [1, 2, 5]
    assert np.asarray(told.all.truncated).tolist() == [False, True, False]
    assert not len(dagger(some([0, 0])).all.reward)


@pytest.mark.long
def test_what_learns_above_a_base_sees_what_that_did(tmp_path: Path) -> None:
    base = BC(hidden=(16,))
    agent = ResFiT(base=base, alone=0.0, hidden=(16,), critic_hidden=(16,), delay=1)
    deployed, state = explorer_at(tmp_path / "explorer.zip", agent), fresh(agent)
    flight = flown(deployed, 8, lambda i: 2 <= i < 5)
    (found,) = read(deployed.spec, records([*flight.steps, end(flight.steps)]))
    act = base.policy(False, 3).step
    own = [act(state.base, (), obs, jax.random.key(0))[0] for obs in flight.seen[:8]]
    for seen, at in ((found.seen.obs, 0), (found.seen.next_obs, 1)):
        told: Any = seen
        np.testing.assert_allclose(told[BASE], np.stack(own[at : at + 7]), atol=1e-5)
        np.testing.assert_allclose(told["policy"], np.stack(flight.seen[at : at + 7]), atol=1e-5)
    store = Store(Robot(reach(), deployed.spec), 32, 1.0, 0.0)
    store.add(hil_serl(found))
    batch = buffer.sample(store.seen.all, jax.random.key(1), 4, 3)
    batch = jax.tree.map(lambda x: x[None], batch)
    after, _ = agent.update(state, batch, jax.random.key(2))
    assert jax.tree.all(jax.tree.map(lambda x: np.isfinite(x).all(), after.critic.params))


def test_a_task_that_no_robot_measures_is_refused(tmp_path: Path) -> None:
    env = envs.make("HalfCheetah-v5")
    with pytest.raises(ValueError, match="reads what no robot measures"):
        Explorer(env, AGENT.policy(True, 6), explorer.Nobody(), "HalfCheetah-v5", {})
