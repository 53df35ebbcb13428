"""python -m rl.data: what it says of a set, writes of it, and leaves behind when it is killed."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl.data import __main__ as cli
from rl.data import dataset, faults, formats, minari, npz
from rl.data.dataset import Dataset
from tests.recorded import CUBE, FORMATS, read, told


def sound() -> Dataset:
    """A set that nothing is wrong with: 40 episodes of 10 to 19 steps, half of which terminate."""
    rng = np.random.default_rng(0)
    lengths = 10 + np.arange(40) % 10
    count, last = lengths.sum(), np.cumsum(lengths) - 1
    over = np.zeros(count, bool)
    over[last[::2]] = True
    cut = np.zeros(count, bool)
    cut[last[1::2]] = True
    steps = {
        "obs": rng.normal(size=(count, 5)).astype(np.float32),
        "action": np.tanh(rng.normal(size=(count, 3))).astype(np.float32),
        "reward": rng.normal(size=count).astype(np.float32),
        "terminated": over, "truncated": cut, "mask": ~over,
    }  # fmt: skip
    episodes = {"length": lengths, "last_obs": rng.normal(size=(40, 5)).astype(np.float32)}
    return Dataset(steps, episodes, {})


def changed(data: Dataset, name: str, change: Callable[[Any], None]) -> Dataset:
    x = data.steps[name].copy()
    change(x)
    return data._replace(steps=data.steps | {name: x})


def doubled(data: Dataset) -> Dataset:
    return data.chosen(np.array([*range(40), 3]))


def never(data: Dataset) -> Dataset:
    over, nothing = data.steps["terminated"], np.zeros(len(data.steps["mask"]), bool)
    flags = {"terminated": nothing, "truncated": over | data.steps["truncated"], "mask": ~nothing}
    return data._replace(steps=data.steps | flags)


def repeat(x: np.ndarray) -> None:
    x[2:60:3] = x[1:59:3]


PLANTED = {
    "obs never changes in column 2": lambda d: changed(d, "obs", lambda x: x[:, 2].fill(7)),
    "obs has outliers in column 4: column 4 goes from .* to 1e\\+06": lambda d: changed(
        d, "obs", lambda x: x[3].__setitem__(4, 1e6)
    ),
    "All actions are zero": lambda d: changed(d, "action", lambda x: x.fill(0)),
    "Actions hardly use column 1": lambda d: changed(d, "action", lambda x: x[:, 1].fill(0.25)),
    "Actions are at a bound most of the time in 3 of 3 columns": lambda d: changed(
        d, "action", lambda x: np.copyto(x, np.sign(x))
    ),
    "All rewards are zero": lambda d: changed(d, "reward", lambda x: x.fill(0)),
    "The format has no rewards": lambda d: d._replace(facts={"reward": "none"}),
    "1 episodes are there twice: 40 is 3 again": doubled,
    "2 of 40 episodes end without a flag": lambda d: d._replace(facts={"cut": 2}),
    "Nothing ever terminates, and episodes last from 10 to 19 steps": never,
    "% of the steps are the same as the one before": lambda d: changed(
        changed(d, "obs", repeat), "action", repeat
    ),
}


@pytest.mark.parametrize("why", PLANTED)
def test_what_is_planted_is_found_and_nothing_else(why: str) -> None:
    data = PLANTED[why](sound())
    dataset.check("it", data)
    (sentence,) = faults.found(data)
    assert re.search(why, sentence)


def test_nothing_is_found_in_a_sound_set() -> None:
    assert list(faults.found(sound())) == []


def test_extremes_are_those_of_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [*faults.found(sound())], faults.extremes(sound().steps["obs"])
    monkeypatch.setattr(faults, "BLOCK", 7)
    low, high = faults.extremes(sound().steps["obs"])
    np.testing.assert_array_equal(low, whole[1][0])
    np.testing.assert_array_equal(high, sound().steps["obs"].max(0))


def test_info_says_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    cli.info(cli.Info(path=FORMATS / "lerobot/point"))
    out = capsys.readouterr().out
    for text in (
        "format     lerobot", "episodes   4", "steps      41, 4.1 s", "obs        float32[4]",
        "ends       2 terminated, 3 truncated; 2 steps without a future", "0.5 in the mean",
        "limits     -1, -1 to 0.0224404, 1 are what -1 to 1 stands for",
        "1 of 4 episodes end without a flag",
    ):  # fmt: skip
        assert text in out, text


def test_scores_are_told() -> None:
    data = sound()._replace(facts={"scores": {"random": {"return": 1.25, "success": 0.5}}})
    assert "score      random: return 1.25, success 0.5" in list(cli.told(data))


@pytest.mark.parametrize(
    ("source", "flags", "size"),
    [
        ("d4rl/old.hdf5", {"horizon": 15}, 41),
        ("ogbench/cube-single-play-v0.npz", {**CUBE, "at": (14, 17)}, 108),
        ("rlds/point.npz", {"low": (-2,), "high": (2,)}, 43),
    ],
)  # fmt: skip
def test_convert_writes_either_form_and_never_over_another(
    source: str,
    flags: dict[str, Any],
    size: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hashes = set()
    for out in (tmp_path / "it.npz", tmp_path / "it-v0"):
        cli.convert(cli.Convert(path=FORMATS / source, out=out, **flags))
        found = formats.read(out)
        hashes.add(found.sha256)
        assert len(found.steps["action"]) == size
        assert f"sha256   {found.sha256}" in capsys.readouterr().out
        before = told_files(tmp_path)
        with pytest.raises(ValueError, match="is there already"):
            cli.convert(cli.Convert(path=FORMATS / source, out=out, **flags))
        assert told_files(tmp_path) == before
    assert len(hashes) == 1
    with pytest.raises(ValueError, match="is no name of a dataset"):
        cli.convert(cli.Convert(path=FORMATS / source, out=tmp_path / "it.hdf5"))
    with pytest.raises(ValueError, match="belong together"):
        cli.info(cli.Info(path=FORMATS / source, low=(1.0,)))


def told_files(root: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_a_set_that_an_older_version_wrote_is_written_anew(tmp_path: Path) -> None:
    cli.convert(cli.Convert(path=FORMATS.parent / "dataset-1.npz", out=tmp_path / "it.npz"))
    data = npz.read(tmp_path / "it.npz")
    assert data.facts["schema"] == npz.SCHEMA
    assert "mask" in data.steps


CONVERTS = """
import sys
from pathlib import Path
from rl.data import __main__ as cli
print("go", file=sys.stderr, flush=True)
for i in range(10_000):
    cli.convert(cli.Convert(path=Path(sys.argv[1]), out=Path(sys.argv[2]) / (sys.argv[3] % i)))
"""


def refusal(path: Path) -> str:
    """Why it is not read, or nothing."""
    try:
        formats.read(path)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.long
@pytest.mark.parametrize("name", ["%d.npz", "it-v%d"])
def test_killed_at_any_moment_it_leaves_whole_sets_alone(name: str, tmp_path: Path) -> None:
    npz.write(tmp_path / "it.npz", sound())
    rng = np.random.default_rng(0)
    for attempt in range(4):
        (out := tmp_path / f"out-{attempt}").mkdir()
        code = [sys.executable, "-c", CONVERTS, tmp_path / "it.npz", out, name]
        child = subprocess.Popen(code, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert child.stderr
        child.stderr.readline()
        time.sleep(rng.uniform(0.02, 0.3))
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stderr.close()
        for path in out.iterdir():
            said = "" if path.suffix != ".partial" else refusal(path)
            if said:  # what is not whole yet has no name of its own, and is refused
                assert re.search(r"is no dataset|of no format|is damaged", said)
            else:
                assert formats.read(path).sha256 == sound().sha256
        again = out / (name % 0 if name % 0 not in os.listdir(out) else name % 99_999)
        cli.convert(cli.Convert(path=tmp_path / "it.npz", out=again))  # whatever was left
        assert formats.read(again).sha256 == sound().sha256


def test_plot_draws(tmp_path: Path) -> None:
    npz.write(tmp_path / "it.npz", sound())
    cli.plot(cli.Plot(path=tmp_path / "it.npz", out=tmp_path / "it.png"))
    assert (tmp_path / "it.png").stat().st_size > 20_000
    with pytest.raises(ValueError, match="is there already"):
        cli.plot(cli.Plot(path=tmp_path / "it.npz", out=tmp_path / "it.png"))


def test_the_command_itself_tells_errors_in_a_line() -> None:
    code = [sys.executable, "-m", "rl.data", "info", FORMATS / "d4rl/old.hdf5"]
    done = subprocess.run(code, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "give --horizon" in done.stderr


def test_a_data_set_that_minari_s_metadata_deny_is_refused(tmp_path: Path) -> None:
    minari.write(tmp_path / "it-v0", read("rlds/point.npz"))
    told(tmp_path / "it-v0", "data/metadata.json", robotrl={"facts": {}, "steps": []})
    with pytest.raises(ValueError, match="was changed"):
        formats.read(tmp_path / "it-v0")
