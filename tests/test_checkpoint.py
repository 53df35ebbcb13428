"""Checkpoints and the replay beside them: kept, damaged, of something else, on a full disk."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl import buffer, record
from rl.checkpoint import SEAL, Checkpoints
from rl.saver import Blocks, Saver
from rl.types import Transition

ROOT = Path(__file__).parent.parent


def state(seed: int) -> dict[str, Any]:
    key = jax.random.key(seed)
    return {"w": jax.random.normal(key, (300, 3)), "key": key, "n": jnp.int32(seed)}


CONFIG = {"agent": {"gamma": 0.9, "tau": 0.005}, "seed": 0}
ABOUT = {"algorithm": "sac", "env": "Hopper-v5", "config": CONFIG}


@pytest.fixture
def saved(tmp_path: Path) -> Checkpoints:
    found = Checkpoints(tmp_path / "checkpoints", ABOUT)
    for step, score in ((1, 9.0), (2, 1.0), (3, 2.0), (4, 3.0), (5, 2.0)):
        found.save(step, state(step), score)
    return found


def same(a: Any, b: Any) -> bool:
    return jax.tree.all(jax.tree.map(lambda x, y: np.all(x == y), a, b))


def test_the_last_three_and_the_best_are_kept(saved: Checkpoints) -> None:
    assert saved.steps() == [1, 3, 4, 5]
    for step in saved.steps():
        assert same(saved.restore(state(0), step), state(step))
    with pytest.raises(ValueError, match=r"no checkpoint 2 in .*it has 1, 3, 4, 5\."):
        saved.restore(state(0), 2)


def test_a_resumed_run_still_knows_its_best(saved: Checkpoints) -> None:
    again = Checkpoints(saved.folder, ABOUT)
    again.save(6, state(6), 2.0)
    assert again.steps() == [1, 4, 5, 6]
    for step, score in ((7, 10.0), (8, 1.0), (9, 1.0), (10, 1.0)):
        again.save(step, state(step), score)
    assert again.steps() == [7, 8, 9, 10]


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes() or b"none")
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content[: len(content) // 2] if how == "cut" else content)
    if how == "gone":
        path.unlink()


@pytest.mark.parametrize("how", ["cut", "flipped", "gone"])
def test_a_damaged_checkpoint_is_refused(how: str, saved: Checkpoints) -> None:
    """Whichever of its files it is, and before orbax reads one."""
    count = len([p for p in (saved.folder / "5").rglob("*") if p.is_file()])
    for which in range(count):
        folder = saved.folder.parent / str(which)
        shutil.copytree(saved.folder, folder)
        path = sorted(p for p in (folder / "5").rglob("*") if p.is_file())[which]
        damage(path, how)
        found = Checkpoints(folder, ABOUT)
        if path.name == SEAL and how == "gone":  # as if it had been killed before
            assert found.steps() == [1, 3, 4]
            found.save(6, state(6), 1.0)
            assert found.steps() == [1, 3, 4, 6]
            assert not (folder / "5").exists()
        else:
            with pytest.raises(ValueError, match=r"Checkpoint .*/5 is damaged"):
                found.restore(state(0), 5)
        assert same(found.restore(state(0), 4), state(4))


def test_the_newest_checkpoint_that_is_good_with_its_rows_is_offered(tmp_path: Path) -> None:
    facts = {"algorithm": "sac", "env": "x", "config": {}, "seeds": [0]}
    with record.Record(tmp_path / "run", 200, **facts) as log:
        saver = Saver(log, 0)
        for done in (10, 20, 30):
            saver.save(done, learner(done))
        (_, _, rows) = saver.blocks._all()[1]
        damage(rows, "cut")
        with pytest.raises(ValueError, match=r"rows-.* cannot be read.*newest good one is .*/30:"):
            saver.restore(learner(0), 20)
        damage(next((saver.checkpoints.folder / "30" / "state").rglob("manifest.ocdbt")), "cut")
        with pytest.raises(ValueError, match=r"/30 is damaged.*newest good one is .*/10:"):
            Saver(log, 0).restore(learner(0))
        assert same(Saver(log, 0).restore(learner(0), 10), learner(10))


def test_a_checkpoint_of_something_else_is_refused_by_name(saved: Checkpoints) -> None:
    with pytest.raises(ValueError, match="has algorithm = 'sac', not 'ppo'"):
        Checkpoints(saved.folder, ABOUT | {"algorithm": "ppo"}).restore(state(0), 5)
    config = {"agent": {"gamma": 0.9, "tau": 0.01}, "seed": 0}
    with pytest.raises(ValueError, match=r"has config.agent.tau = 0.005, not 0.01\."):
        Checkpoints(saved.folder, ABOUT | {"config": config}).restore(state(0), 5)
    with pytest.raises(ValueError, match=r"has w as float32\[300, 3\], not float32\[4\]"):
        saved.restore(state(0) | {"w": jnp.zeros(4)}, 5)
    with pytest.raises(ValueError, match="has more as None"):
        saved.restore(state(0) | {"more": jnp.zeros(4)}, 5)


def test_a_disk_that_is_full_costs_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = {"algorithm": "ppo", "env": "x", "config": {}, "seeds": [0]}
    with record.Record(tmp_path / "run", 10, **facts) as log:
        saver = Saver(log, 0)
        saver.save(1, state(1))

        def full(step: int, **_: Any) -> None:
            (saver.checkpoints.folder / f"{step}.orbax-checkpoint-tmp").mkdir()
            raise ValueError("No space left on device, at great length")

        with monkeypatch.context() as patch:
            patch.setattr(saver.checkpoints._manager, "save", full)
            saver.save(2, state(2))
        with monkeypatch.context() as patch:
            patch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4000))
            saver.save(2, state(2))
        told = capsys.readouterr().err
        assert (
            f"could not write the checkpoint of step 2 in {log.out}: No space left on device, at"
            in told
        )
        assert (
            f"could not write the checkpoint of step 2 in {log.out}: No space left on device\n"
            in told
        )
        assert len(log.manifest["warnings"]) == 2
        assert not list(saver.checkpoints.folder.glob("*tmp*"))
        assert same(saver.restore(state(0)), state(1))
        saver.save(3, state(3))
        assert same(saver.restore(state(0)), state(3))


class Learner(NamedTuple):
    """A state with a replay, as an experiment's."""

    replay: buffer.Buffer


def learner(rows: int, capacity: int = 6) -> Learner:
    """After so many rows, each of one world, that hold their own number."""
    ring = buffer.init(capacity, jax.tree.map(lambda x: x[0, 0], blocks(0, 1)))
    ring = buffer.add(ring, jax.tree.map(lambda x: x[0], blocks(0, rows)))
    return Learner(jax.tree.map(lambda x: x[None], ring))


def test_every_checkpoint_that_is_kept_has_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"algorithm": "sac", "env": "x", "config": {}, "seeds": [0]}
    with record.Record(tmp_path / "run", 200, **facts) as log:
        saver = Saver(log, 0)
        for done, score in ((5, 9.0), (15, 1.0), (25, 2.0), (35, 3.0), (45, 4.0)):
            log.judged = np.array([score])
            saver.save(done, learner(done))
        held = saver.blocks._all()
        assert [(a, b) for a, b, _ in held] == [(0, 5), (19, 25), (29, 35), (39, 45)]
        with monkeypatch.context() as patch:  # a full disk, when two replays' worth has come
            patch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
            for done in (55, 65, 75):
                saver.save(done, learner(done))
        for step in (45, 35, 25, 5):
            found = Saver(log, 0)
            assert same(found.restore(learner(0), step), learner(step))
            assert found.rows == step


def blocks(first: int, count: int) -> Transition:
    x = np.arange(first, first + count, dtype=np.float32)[None, :, None]
    return Transition({"a": x[..., None]}, x[..., None], x, x > 3, x > 5, {"a": x[..., None]}, ())


def test_rows_are_read_back_over_the_seams_of_blocks(tmp_path: Path) -> None:
    store = Blocks(tmp_path / "replay")
    for first, count in ((0, 4), (4, 3), (7, 5)):
        store.append(first, blocks(first, count))
    for first, end in ((0, 12), (3, 8), (5, 6)):
        assert same(store.load(first, end, blocks(0, 1)), blocks(first, end - first))
    with pytest.raises(ValueError, match="lacks rows 12 to 14"):
        store.load(3, 14, blocks(0, 1))
    store.keep([(5, 7), (0, 2)])
    assert same(store.load(4, 7, blocks(0, 1)), blocks(4, 3))
    with pytest.raises(ValueError, match="lacks rows 0 to 7"):
        store.load(0, 7, blocks(0, 1))
    path = next((tmp_path / "replay").glob("rows-*"))
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged"):
        store.load(4, 7, blocks(0, 1))


def test_a_run_in_use_is_refused(tmp_path: Path) -> None:
    with record.Record(tmp_path / "run", 10) as log:
        code = "import sys; from pathlib import Path; from rl.record import Record;"
        code += "Record.again(Path(sys.argv[1]))"
        other = subprocess.run(
            [sys.executable, "-c", code, str(log.out)], cwd=ROOT, close_fds=False,
            env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert f"is in use by process {os.getpid()} on " in other.stderr
    with record.Record.again(tmp_path / "run"):
        pass  # free again
