"""What a robot did for a run goes to that run, and it hears when all of it is learned."""

from pathlib import Path

import pytest

from rl.bridge.learn import frames, weights
from tests.test_intake import A, Rig, hello, rig, some, taken

__all__ = ["rig"]  # a fixture


@pytest.mark.parametrize("theirs", ["hil-1f", ""])
def test_what_was_done_for_another_run_is_not_taken_and_both_are_told(
    tmp_path: Path, theirs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rig, named = Rig(tmp_path, run="hil-2b"), theirs or "a run without a name"
    for _ in range(3):
        (told,) = rig.says(hello(run=theirs))
        assert isinstance(told, frames.Refused)
        assert f"is that of hil-2b, and this robot practises for {named}: take" in told.text
        assert f"stays where it is, for the learner of {named}" in told.text
    rig.says(some(0, 3))
    assert (taken(tmp_path), rig.refused["run"]) == ([], 3)
    assert capsys.readouterr().out == f"refused  arm, which practises for {named}\n"  # once
    assert rig.says(hello(run="hil-2b")) == [frames.Welcome({A: -1})]
    rig.close()


def test_that_all_is_learned_is_told_to_who_is_there_and_to_who_comes(
    rig: Rig, tmp_path: Path
) -> None:
    rig.says(hello())
    rig.look()
    assert rig.told == []
    weights.publish(tmp_path / "weights", 1, b"x")
    (tmp_path / "weights" / weights.OVER).write_text("it is done")
    rig.look()
    assert [message for _, message in rig.told][1:] == [frames.Over("it is done")]
    rig.told.clear()
    rig.look()
    assert rig.told == []  # once
    assert rig.says(some(0, 2)) == [frames.Ack({A: 1})]  # what is left is taken in
    assert rig.says(hello())[-1] == frames.Over("it is done")
