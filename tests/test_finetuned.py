"""What fine-tuning makes of a base, as it is told and drawn."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import collect, finetuned, suite
from benchmarks.collect import Result
from benchmarks.process import ROOT
from benchmarks.scores import score
from tests.test_report_faults import result


def run(task: str, agent: str, seed: int, success: float, base: float = 0.5) -> Result:
    """A run of a base, that comes to success in a share of its ten episodes."""
    told = {"finetuned": {"base": {"return": 9.0, "success": base}, "policy": {}}}
    done = tuple(float(i < 10 * success) for i in range(10))
    made = replace(result(task, agent, seed, (1.0, 2.0)), about=told, took={"train": 120.0})
    made = replace(made, success=done, success_curve=(base, success), identity="")
    return replace(made, wall_s=(60.0, 120.0))


def test_a_row_tells_the_change_over_the_base_and_how_sure_it_is(tmp_path: Path) -> None:
    ends = {"fql": (0.9, 0.8, 0.7), "dsrl": (0.4, 0.4, 0.4), "qc": (0.6,)}
    found = [
        run("panda-peg-insertion", agent, i, x)
        for agent, xs in ends.items()
        for i, x in enumerate(xs)
    ]
    scores = score(found, suite.read("finetune"))
    lines = {line.split(" | ")[1]: line for line in finetuned.table(scores, 0.7)[2:]}
    assert lines["fql"].endswith("| 2 | 1.7 | 50 | 80 | +30 [+20, +40] |")
    assert lines["dsrl"].endswith("| 2 | - | 50 | 40 | -10 [-10, -10] |")
    assert lines["qc"].endswith("| 2 | - | 50 | 60 | +10 (one seed) |")
    ax = finetuned.figure(scores).axes[0]
    ends_drawn = {line.get_label(): np.asarray(line.get_ydata())[-1] for line in ax.lines}
    assert ends_drawn["fql"] == pytest.approx(0.8)
    assert ends_drawn["dsrl"] == pytest.approx(0.4)
    assert {float(np.asarray(line.get_ydata())[0]) for line in ax.lines} == {0.5}
    path = tmp_path / "finetune.jsonl"
    collect.write(path, found)
    finetuned.main(finetuned.Args(records=path, out=tmp_path / "x.png"))
    assert (tmp_path / "x.png").stat().st_size > 10_000


def test_runs_that_judged_no_base_are_not_compared(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    collect.write(path, [replace(run("panda-peg-insertion", "fql", 0, 0.5), about={})])
    with pytest.raises(ValueError, match="is no file: --records names"):
        finetuned.main(finetuned.Args(records=tmp_path / "nowhere.jsonl"))
    with pytest.raises(ValueError, match="has no run that judged its base"):
        finetuned.main(finetuned.Args(records=path, out=tmp_path / "x.png"))
    for of in ({"task": "panda-reach"}, {"agent": "sac"}, {"identity": "settings of before"}):
        collect.write(path, [replace(run("panda-peg-insertion", "fql", 0, 0.5), **of)])
        with pytest.raises(ValueError, match="of the suite finetune as it is now"):
            finetuned.main(finetuned.Args(records=path, out=tmp_path / "x.png"))
        path.unlink()


@pytest.mark.parametrize("level", [0.0, 1.5, float("nan")])
def test_a_level_that_is_no_share_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match=f"--level is {level}; it takes a share above 0"):
        finetuned.main(finetuned.Args(level=level))


def test_a_task_may_be_scored_otherwise_than_its_suite(tmp_path: Path) -> None:
    """By returns, where it is never done."""
    path = tmp_path / "two.toml"
    path.write_text(
        "score = 'success'\nsteps = 100\n[tasks.panda-reach]\n[tasks.Hopper-v5]\nscore = 'return'\n"
        "[agents.sac]\nexperiment = 'sac'\n"
    )
    two = suite.read(str(path))
    found = [
        replace(run("panda-reach", "sac", 0, 0.3), suite="two"),
        replace(run("Hopper-v5", "sac", 0, 0.3), suite="two", success=(), success_curve=()),
    ]
    scores = score(found, two)
    assert scores.returns("panda-reach", "sac") == [pytest.approx(0.3)]
    assert scores.returns("Hopper-v5", "sac") == [pytest.approx(1.0)]


def test_the_page_has_what_the_records_tell() -> None:
    found = collect.records(finetuned.RESULTS / "finetune.jsonl")
    lines = finetuned.table(score(found, suite.read("finetune")), finetuned.Args.level)
    page = (ROOT / "docs" / "finetuning.md").read_text(encoding="utf-8").splitlines()
    assert page[page.index(lines[0]) :][: len(lines)] == lines
