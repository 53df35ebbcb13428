"""Rows of speed measurements: their arithmetic, their file, and peers that fail."""

import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import measurements, overhead, process, rows, speed, stepping
from benchmarks.measurement import Args, Measurement
from benchmarks.process import Failed, Python
from benchmarks.rows import Pair


def pairs(*values: tuple[float, float | None]) -> list[Pair]:
    return [
        {"ours": {"value": ours}, "peer": None if peer is None else {"value": peer}}
        for ours, peer in values
    ]


def test_a_ratio_is_the_median_of_pairwise_ratios_not_the_ratio_of_medians() -> None:
    row = rows.row("a", "steps/s", pairs((10, 1), (20, 20), (90, 30)))
    assert (row["ours"], row["peer"]) == (20, 20)
    assert row["ratio"] == 3  # of 10, 1, 3


def test_less_time_is_a_ratio_above_one() -> None:
    assert rows.row("a", "s", pairs((2.0, 8.0)))["ratio"] == 4
    assert rows.row("a", "steps/s", pairs((2.0, 8.0)))["ratio"] == 0.25


def test_a_row_without_a_peer_has_no_ratio() -> None:
    row = rows.row("a", "s", pairs((3, None), (1, None), (2, None)))
    assert (row["ours"], row["peer"], row["ratio"]) == (2, None, None)


def test_a_row_needs_a_pair() -> None:
    with pytest.raises(ValueError, match="No pairs were measured for rollout/x"):
        rows.row("rollout/x", "s", [])


def test_a_row_keeps_every_raw_pair_and_all_that_a_run_said(tmp_path: Path) -> None:
    said = pairs((1, 2), (3, 4))
    said[0]["ours"]["rates"] = {"64": 1, "256": 0.5}
    rows.write(tmp_path / "x.jsonl", rows.row("a", "s", said, machine={"cores": 2}, commit="c"))
    row = rows.read(tmp_path / "x.jsonl")["a"]
    assert row["pairs"] == said
    assert {"what", "ours", "peer", "ratio", "unit", "pairs", "machine", "commit"} <= row.keys()


def test_measuring_again_replaces_the_row_of_that_name_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.jsonl"
    for what, ours in (("b", 1), ("a", 2), ("b", 3)):
        rows.write(path, rows.row(what, "steps/s", pairs((ours, 1))))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["what"], row["ours"]) for row in lines] == [("a", 2), ("b", 3)]
    assert [p.name for p in path.parent.iterdir()] == ["x.jsonl"]


def test_a_broken_results_file_is_told_by_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"what": "a"}\n{"wha')
    with pytest.raises(ValueError, match="line 2, is not a row"):
        rows.write(path, rows.row("b", "s", pairs((1, 1))))
    assert path.read_text() == '{"what": "a"}\n{"wha'


def test_means_are_of_the_sides_that_have_them() -> None:
    said = pairs((1, 1), (1, 1))
    for pair, value in zip(said, (10.0, 30.0), strict=True):
        pair["ours"]["return"] = value
    assert rows.means(said, "return") == {"ours": 20.0}
    assert rows.means(pairs((1, None)), "value") == {"ours": 1}


def test_a_commit_tells_changed_code_but_not_changed_results(tmp_path: Path) -> None:
    assert rows.commit(tmp_path) == "unknown"
    git = Python("git", ())
    git.output("init", "-q", tmp_path, timeout=30)
    (tmp_path / "code.py").write_text("")
    here = ("-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b")
    git.output(*here, "add", "code.py", timeout=30)
    git.output(*here, "commit", "-qm", "first", timeout=30)
    clean = rows.commit(tmp_path)
    assert len(clean) == 40
    rows.write(tmp_path / "benchmarks/results/x.jsonl", rows.row("a", "s", pairs((1, 1))))
    assert rows.commit(tmp_path) == clean
    (tmp_path / "code.py").write_text("changed = True")
    assert rows.commit(tmp_path) == clean + "-dirty"


def test_the_load_is_that_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(rows, "about", lambda: log.append("about") or {})
    monkeypatch.setattr(overhead, "smoke", lambda folder: log.append("work") or {})
    overhead.main(overhead.Args("smoke", tmp_path / "x.jsonl"))
    assert log == ["about", "work"]


def test_a_rate_does_not_run_out_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(perf_counter=itertools.count().__next__)
    monkeypatch.setattr(stepping, "time", clock)
    assert stepping.rate(lambda state, key: (state,), 0, 2, 11_000) == pytest.approx(2, rel=1e-3)


PEER = Python(sys.executable, (), "--peers")


def test_the_result_is_the_last_object_printed_whatever_else_is() -> None:
    script = """print('{"value": 1}\\n{"value": 2}\\nsolver: limit reached')"""
    assert PEER.run("-c", script) == {"value": 2}


def test_versions_are_those_of_that_python() -> None:
    found = replace(PEER, packages=("numpy",)).versions()
    assert found == {"python": sys.version.split()[0], "numpy": __import__("numpy").__version__}


def test_a_peer_does_not_see_our_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(process.ROOT))
    script = "import json, os; print(json.dumps([os.environ.get('PYTHONPATH')]).strip('[]'))"
    assert PEER.output("-c", script, timeout=30).strip() == "null"


@pytest.mark.parametrize(
    ("peer", "script", "why"),
    [
        (replace(PEER, path="nowhere/bin/python"), "pass", "is not there"),
        (PEER, "import envpool_of_another_name", "No module named 'envpool_of_another_name'"),
        (PEER, "raise SystemExit(3)", "exit status 3"),
        (PEER, "print('hello')", "printed no result"),
        (PEER, "import time; time.sleep(60)", "gave no result within 1 s"),
    ],
)
def test_a_peer_that_fails_is_told_in_one_sentence_with_its_path_and_the_cure(
    peer: Python, script: str, why: str
) -> None:
    with pytest.raises(Failed) as told:
        peer.run("-c", script, timeout=1.0 if "sleep" in script else 60.0)
    said = str(told.value)
    assert said.startswith(f"The peer's Python, {peer.path}, ")
    assert why in said
    assert "benchmarks/peers/README.md" in said
    assert "--peers" in said
    assert "\n" not in said


def test_our_own_failure_is_not_blamed_on_the_peer() -> None:
    with pytest.raises(Failed, match=r"^Our own side, .* failed: ValueError: broken\.$"):
        Python(sys.executable, ()).run("-c", "raise ValueError('broken')")


def faked(log: list[str], peer: Python | None = None) -> Measurement:
    """A row measured without a process: ours 3, the peer's 1, 2, ... by seed."""

    def run(side: str, seed: int) -> rows.Run:
        log.append(f"{side}{seed}")
        return {"value": 3.0 if side == "ours" else seed + 1.0, "compile_s": 1.0}

    return Measurement(
        "rollout/fake", "steps/s", lambda s: run("ours", s), lambda s: run("peer", s), peer, 3
    )


def test_sides_alternate_and_the_row_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    monkeypatch.setattr(speed, "measurements", lambda args: [faked(log, PEER)])
    speed.main(Args("rollout", results=tmp_path))
    assert log == ["ours0", "peer0", "ours1", "peer1", "ours2", "peer2"]
    row = rows.read(tmp_path / "speed-rollout.jsonl")["rollout/fake"]
    assert row["ratio"] == 1.5
    assert row["compile_s"] == {"ours": 1.0, "peer": 1.0}
    assert row["machine"]["ours"].keys() == {"python", *speed.OURS}
    assert row["machine"]["peer"] == {"python": sys.version.split()[0]}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"only": "humanoid"}, "there are rollout/fake"),
        ({"pairs": 0}, "--pairs is 0"),
        ({"together": 0}, "--together is 0"),
        ({}, "nowhere/bin/python, is not there"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is(
    change: dict, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    missing = Python("nowhere/bin/python", (), "--peers")
    monkeypatch.setattr(speed, "measurements", lambda args: [faked(log, missing)])
    with pytest.raises(Failed, match=why):
        speed.main(replace(Args("rollout", results=tmp_path), **change))
    assert not log
    assert not list(tmp_path.iterdir())


def test_playground_counts_with_its_faster_backend_and_a_stalled_one_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(self: Python, *argv: object, **_: object) -> rows.Run:
        if "warp" in argv:
            raise self.failed("gave no result within 300 s")
        return {"value": 7.0, "substeps": 1}

    monkeypatch.setattr(Python, "run", run)
    best = measurements._playground(Args("rollout"), PEER, 0)
    assert best["value"] == 7
    assert "within 300 s" in best["backends"]["warp"]["error"]
    monkeypatch.setattr(measurements, "PLAYGROUND_WORLDS", {"warp": (1,)})
    with pytest.raises(Failed, match="within 300 s"):
        measurements._playground(Args("rollout"), PEER, 0)


def test_a_rate_per_substep_counts_the_substeps_of_its_own_side() -> None:
    assert measurements._per_substep({"value": 10.0, "substeps": 5})["value"] == 50


def test_every_row_of_the_bars_is_measured() -> None:
    args = Args("rollout")
    groups = "physics", "rollout", "ppo", "sac", "td3", "large_batch", "seeds", "playground"
    named = {m.what: m for g in groups
             for m in measurements.measurements(replace(args, group=g))}  # fmt: skip
    assert named.keys() >= {
        "physics/HalfCheetah-v5/vs-envpool", "rollout/HalfCheetah-v5/vs-envpool-bare",
        "rollout/cheetah/vs-playground-substep", "rollout/go1-joystick-flat/vs-bare-batch",
        "ppo/1M/vs-sbx-default", "ppo/1M/vs-sbx-best",
        "sac/1env/vs-sbx", "sac/8env/vs-sbx", "sac/matmul-fraction", "td3/1env/vs-sbx",
        "seeds/sac/5-together-vs-alone", "playground/go1-joystick-flat/mjx/8192",
        "playground/go1-joystick-flat/warp/8192", "playground/dmc-cheetah-run/native/64",
        "playground/dmc-cartpole-swingup/native/64",
        "large_batch/fast_td3/1024x8192",
    }  # fmt: skip
    import envs

    assert {f"physics/compile/{name}" for name in envs.names()} <= named.keys()
    shorter = measurements.measurements(Args("ppo", steps=50_000))
    assert [m.what for m in shorter] == ["ppo/0.05M/vs-sbx-default", "ppo/0.05M/vs-sbx-best"]
