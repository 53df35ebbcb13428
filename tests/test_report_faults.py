"""What a report is not made of, and where it is not put."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from benchmarks import exports, figures, report, scores, suite, tables
from benchmarks.collect import Result

SMOKE = str(suite.HERE / "results" / "smoke.jsonl")


def result(task: str, agent: str, seed: int, curve: tuple[float, ...]) -> Result:
    steps = tuple(range(1, len(curve) + 1)) or (9,)
    return Result("s", task, agent, agent, seed, steps, (), curve, (1.0 + seed,))


def test_a_report_takes_no_file_of_its_user_for_its_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("tables.md", "index.html", "curves-mine.png"):
        (mine / name).write_text("of my own")
    with pytest.raises(ValueError, match="mine has files that are no report's"):
        report.main(report.Args((SMOKE,), out=mine))
    assert {path.read_text() for path in mine.iterdir()} == {"of my own"}
    with pytest.raises(ValueError, match="is a file; a report needs a folder"):
        report.main(report.Args((SMOKE,), out=mine / "tables.md"))


def test_a_report_is_made_anew_where_it_was_and_leaves_what_was_put_beside(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for _ in range(2):
        report.main(report.Args((SMOKE,), out=tmp_path / "empty"))
        (tmp_path / "empty" / "curves-mine.png").write_text("of my own")
    assert (tmp_path / "empty" / "curves-mine.png").read_text() == "of my own"


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("nowhere", "neither a directory nor a file .*nowhere"),
        ("nowhere.jsonl", "neither a directory nor a file .*nowhere.jsonl"),
        ("picture.png", "picture.png is no file of records"),
    ],
)
def test_what_is_no_directory_nor_records_is_named(tmp_path: Path, what: str, why: str) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    with pytest.raises(ValueError, match=why):
        report.main(report.Args((str(tmp_path / what),), out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_agents_known_by_their_ends_alone_are_told_beside_the_curves() -> None:
    found = [
        result("t", agent, seed, curve)
        for (agent, curve), seed in product((("a", tuple(range(9))), ("b", ())), range(2))
    ]
    made = scores.score(found, None)
    assert figures.without_curves(made, 9) == ["b"]
    drawn = dict(report.drawings(made, []))
    assert drawn["curves-9"][1].endswith("of b no curve is known")
    assert "time-9" not in drawn
    slow = [replace(r, agent="c", wall_s=r.steps) for r in found if r.agent == "a"]
    drawn = dict(report.drawings(scores.score([*found, *slow], None), []))
    assert drawn["time-9"][1].endswith("of a no times are known")


def test_every_agent_is_in_the_legend_as_wide_as_it_is() -> None:
    agents = [f"an-agent-with-a-name-{i}" for i in range(10)]
    found = [
        result("t", agent, seed, tuple(float(i + seed) for i in range(5)))
        for agent, seed in product(agents, range(2))
    ]
    made = scores.score(found, None)
    for figure in (figures.profiles(made), figures.efficiency(made, agents)):
        figure.canvas.draw()
        box, (legend,) = figure.bbox, figure.legends
        for text in legend.get_texts():
            extent = text.get_window_extent()
            assert box.x0 <= extent.x0
            assert extent.x1 <= box.x1
        assert [text.get_text() for text in legend.get_texts()] == agents


def test_a_run_that_was_never_judged_on_its_way_has_no_rate() -> None:
    run = replace(result("t", "a", 0, ()), steps=(), took={"compile": 1.0, "train": 2.0})
    rows = tables.runtimes(scores.score([run], None)).rows
    assert rows == [("t", "a", "1.00", "2.00", "-", "-")]


def test_tasks_that_were_judged_at_no_common_steps_have_no_common_curve() -> None:
    spans = ("s", (1, 2, 3)), ("t", (7, 8, 9))
    found = [
        replace(result(task, "a", seed, (0.0, 1.0, 2.0)), steps=steps)
        for (task, steps), seed in product(spans, range(2))
    ]
    assert not figures.efficiency(scores.score(found, None), ["a"]).axes[0].lines


def test_a_column_is_named_after_what_is_in_it(tmp_path: Path) -> None:
    made = scores.score([result("t", "a", 0, (1.0, 2.0))], None)
    for what, other in (("return", "success"), ("success", "return")):
        exports.csv(tmp_path, replace(made, what=what))
        for path in tmp_path.iterdir():
            head = path.read_text().splitlines()[0].split(",")
            assert what in head
            assert other not in head


def test_a_long_table_is_folded_up() -> None:
    long = tables.Table("Long", ("a", "b"), [("x", "1")] * (tables.LONG + 1))
    assert "<details><summary>Long: 41 lines" in long.page()
    assert "41 lines: on the page" in report.brief(long)
    short = long._replace(rows=long.rows[:3])
    assert "<details>" not in short.page()
    assert report.brief(short) == short.markdown()
    assert r"\begin{tabular}{lr}" in short.latex()
