"""Whether a task is done, learned of what robots did, and told by who learns on them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from experiments import classifier, cli, explorer, hil, judge
from experiments.classifier import Args
from experiments.explorer import Explorer, Judge
from experiments.taken import EXPLORER
from rl import artefact, guided, runs
from rl.bridge.checks import Reason
from rl.bridge.learn.ledger import Ledger
from rl.bridge.learn.outbox import LABEL
from rl.bridge.learn.steps import End, Step, pack
from rl.guided import Asked
from rl.record import Record
from tests.lives import AGENT, BRIDGE, GOAL, reach, readings, remembered

pytestmark = pytest.mark.long
NAME = "panda-reach"


def episode(number: int, offs: np.ndarray, **last: Any) -> list[Step | End]:
    """Steps so far off the goal [T, 3], m, of the last of which more is said."""
    none = np.zeros(3, np.float32)
    memories = np.asarray(remembered(jnp.asarray(offs, jnp.float32)))
    steps = [
        Step(
            number, 100 * number + i, 0.05 * i,
            np.concatenate([*readings(off).values()]), GOAL, none, none, False, True, False,
            0.0, 0, Reason(0), memories[i],
        )
        for i, off in enumerate(offs)
    ]  # fmt: skip
    steps[-1] = steps[-1]._replace(**last)
    return [*steps, End(number, steps[-1].period + 1, 9.0, Reason.ASKED, False)]


def ran(folder: Path, episodes: list[list[Step | End]]) -> Path:
    """A run whose robot did these episodes."""
    run, env = folder / "hil", reach()
    with Record(run, 1, algorithm="sac", env=NAME, config={"env": env.task}) as log:
        log.update(status="done")
    shutil.copy(folder.parent / EXPLORER, run / EXPLORER)
    ledger = Ledger(run / "ledger")
    every = [x for steps in episodes for x in steps]
    ledger.append(
        "arm", bytes(16), 0, [LABEL.pack(BRIDGE, i) + pack(x) for i, x in enumerate(every)]
    )
    ledger.close()
    return run


def walked(rng: np.random.Generator, done: bool, steps: int = 15) -> np.ndarray:
    """m off the goal [T, 3]: it comes near in the last three of its steps alone, if at all."""
    way = rng.normal(size=(steps, 3))
    far = np.linspace(0.4, 0.1, steps)
    far[-3:] = rng.uniform(0, 0.03, 3) if done else far[-3:]
    return far[:, None] * way / np.linalg.norm(way, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a classifier, beside that whose ledger it learned of; half is said by a human."""
    folder, rng = made(tmp_path_factory), np.random.default_rng(0)
    says: list[Any] = [{"said": True, "over": True}, {"done": 0.9}]
    episodes = [episode(i, walked(rng, True), **says[i % 2]) for i in range(1, 41)]
    episodes += [episode(i, walked(rng, False)) for i in range(41, 61)]
    run = ran(folder, [episodes[i] for i in rng.permutation(60)])
    classifier.main(Args(run, last=3, out=folder / "classifier", steps=1_500))
    return folder / "classifier"


def made(factory: pytest.TempPathFactory) -> Path:
    """A folder, above which the artefact of a policy lies."""
    folder = factory.mktemp("runs") / "of"
    folder.mkdir()
    explores(explorer.Nobody(), folder.parent / EXPLORER)
    return folder


def explores(judged: Judge, path: Path) -> artefact.Deployed:
    """A policy that learns, which has such a judge."""
    env, act = reach(), AGENT.policy(explore=True, action_dim=3)
    obs = env.reset(jax.random.key(0)).obs
    params = AGENT.deploy(AGENT.init(jax.random.key(0), obs, jnp.zeros(3)))
    Explorer(env, act, judged, NAME, params).artefact(params).write(path)
    return artefact.deploy(artefact.read(path))


def test_it_tells_what_is_done_in_episodes_that_it_has_not_seen(learned: Path) -> None:
    told = runs.read_manifest(learned)
    assert told["status"] == "done"
    assert told["episodes"] == 60
    assert told["done"] == 3 * 40
    assert told["precision"] >= 0.9
    assert told["recall"] >= 0.7  # it is held back
    assert 0 <= told["early"] <= 2
    losses = [row["loss"] for row in runs.read_metrics(learned)]
    assert losses[-1] < losses[0] / 4


def test_a_policy_on_a_robot_tells_as_the_network_does(learned: Path, tmp_path: Path) -> None:
    env = reach()
    judged: Any = judge.learned(learned, env, NAME)
    deployed = explores(judged, tmp_path / EXPLORER)
    sure, wanted, memory, still = [], [], env.task.memory(), np.zeros(3, np.float32)
    for i, far in enumerate([0.3, 0.2, 0.1, 0.02, 0.0]):
        now = readings(np.array([0, far, 0]))
        asked = guided.asked(Asked(GOAL, still, True, 1, i))
        told = guided.told(deployed.spec, deployed.step(now, asked))
        sure.append(told.done)
        obs, memory = env.task.observe(now, GOAL, memory)
        _, memory = env.task.control(still, now, memory)
        number = judge.logit(judged.hidden, judged.known, obs) - judged.known.bar
        wanted.append(1 / (1 + np.exp(-float(number))))
    np.testing.assert_allclose(sure, wanted, atol=1e-5)
    assert [x >= 0.5 for x in sure] == [False] * 3 + [True] * 2


def test_of_labels_that_mean_nothing_it_learns_nothing(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder, rng = made(tmp_path_factory), np.random.default_rng(1)
    offs = rng.normal(size=(40, 12, 3)) * 0.2
    episodes = [episode(i, off, done=float(i % 2)) for i, off in enumerate(offs, 1)]
    run = ran(folder, episodes)
    classifier.main(Args(run, last=1, out=folder / "classifier", steps=500))
    told = runs.read_manifest(folder / "classifier")
    chance = 20 / (40 * 12)
    assert told["step_precision"] < chance + 0.1
    assert told["recall"] < 0.15  # it is held back


def few(folder: Path, done: int, undone: int, steps: int = 8) -> Path:
    far = np.full((steps, 3), 0.2)
    episodes = [episode(i, far, done=float(i <= done)) for i in range(1, done + undone + 1)]
    return ran(folder, episodes)


@pytest.mark.parametrize(
    ("done", "undone", "steps", "why"),
    [(0, 0, 8, "has 0 episodes that ended as done, and 0"),
     (4, 9, 8, "has 4 episodes that ended as done, and 13"),
     (9, 4, 5, "has 9 episodes that ended as done, and 4")],
)  # fmt: skip
def test_too_little_of_one_kind_is_refused(
    tmp_path_factory: pytest.TempPathFactory, done: int, undone: int, steps: int, why: str
) -> None:
    run = few(made(tmp_path_factory), done, undone, steps)
    with pytest.raises(ValueError, match=f"{why}.*: 5 of each are needed at least"):
        classifier.main(Args(run, out=run.parent / "classifier"))
    assert not (run.parent / "classifier").exists()


@pytest.mark.parametrize(
    ("args", "why"),
    [({"last": 0}, "--last is 0"), ({"false": 1.0}, "--false is 1.0"),
     ({"hidden": ()}, "--hidden is"), ({}, "is no run of experiments.hil: it has no ledger")],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(tmp_path: Path, args: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        classifier.main(Args(tmp_path, **args))


def damaged(run: Path) -> None:
    path = run / judge.FILE
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 1
    path.write_bytes(whole)


def shorter(run: Path) -> None:
    (run / judge.FILE).write_bytes((run / judge.FILE).read_bytes()[:-8])


def changed(**facts: Any) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        path = run / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | facts))

    return change


WRONG = {
    "task": (changed(env="panda-push-t"), "tells when panda-push-t is done, and not panda-reach"),
    "kind": (changed(algorithm="sac"), "is no run of experiments.classifier that is done"),
    "begun": (changed(status="running"), "is no run of experiments.classifier that is done"),
    "nothing": (changed(recall=0.0), "calls nothing done yet: practise on, and learn another"),
    "config": (changed(config=3), "manifest.json is damaged"),
    "size": (changed(config={"hidden": [32, 32]}), "the task or the network's sizes differ"),
    "bit": (damaged, "is damaged: it is not what its manifest tells"),
    "cut": (shorter, "cannot be read as parameters"),
    "file": (lambda run: (run / judge.FILE).unlink(), "cannot be read as parameters"),
    "run": (shutil.rmtree, "is no run: there is no such directory"),
}


@pytest.mark.parametrize("name", WRONG)
def test_no_classifier_of_this_task_is_refused(learned: Path, tmp_path: Path, name: str) -> None:
    spoil, why = WRONG[name]
    shutil.copytree(learned, tmp_path / "run")
    spoil(tmp_path / "run")
    args = hil.Args(env=reach().task, env_name=NAME, success=tmp_path / "run")
    with pytest.raises(ValueError, match=why) as raised:
        judge.judge(args.success, reach(), NAME)
    assert "\n" not in str(raised.value)


def test_another_observation_is_refused(learned: Path) -> None:
    with pytest.raises(ValueError, match=r"where (.*) is needed: the task"):
        judge.learned(learned, envs.make(NAME, scripted=True), NAME)


def test_who_learns_takes_a_classifier_by_its_folder(learned: Path) -> None:
    words = ["--env", NAME, "--success"]
    parsed = [cli.parse(hil.Args, [*words, x]).success for x in ("task", "none", str(learned))]
    assert parsed == ["task", "none", learned]


def test_what_nobody_has_seen_is_not_done() -> None:
    """Two numbers were low together or, where it was done, high together."""
    done = np.arange(200) % 2 == 1
    seen = np.where(done, 1.0, -1.0)[:, None] + np.random.default_rng(0).normal(size=(200, 2)) * 0.1
    args, every = Args(Path(), steps=500), np.ones(200, bool)
    rows = classifier.Rows(seen.astype(np.float32), done, np.arange(200))
    known, _ = classifier.learned(args, rows, every)
    corners = np.array([[1, 1], [-1, -1], [1, -1], [-1, 1]], np.float32)
    sure = np.asarray(judge.logit(args.hidden, known, corners))
    assert sure[0] > 1
    assert (sure[1:] < -1).all()
