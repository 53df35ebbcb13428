"""What is drawn and kept of policies on worse and worse wires."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import degradation


def test_curves_are_shares_of_a_good_wire() -> None:
    walker = {"of": "return", "delay_ms": {"0": 8.0, "20": 6.0, "80": 2.0},
              "loss_percent": {"0": 8.0, "10": 4.0}}  # fmt: skip
    arm = {"of": "success", "delay_ms": {"0": 0.5}, "loss_percent": {"0": 0.5, "20": 0.0}}
    delay, loss = degradation.picture({"walker": walker, "arm": arm}).axes
    np.testing.assert_allclose(delay.lines[0].get_xydata(), [[0, 1], [20, 0.75], [80, 0.25]])
    np.testing.assert_allclose(loss.lines[0].get_xydata(), [[0, 1], [10, 0.5]])
    np.testing.assert_allclose(loss.lines[1].get_xydata(), [[0, 1], [20, 0]])
    assert delay.lines[0].get_label() == "walker, return"


@pytest.mark.slow
def test_an_arm_reaches_less_over_a_bad_wire(tmp_path: Path) -> None:
    results, picture = tmp_path / "a.jsonl", tmp_path / "a.png"
    degradation.main(degradation.Args(("panda-reach",), 12, results=results, picture=picture))
    row = json.loads(results.read_text())
    assert row["what"] == "bridge/degradation-panda-reach"
    assert [float(x) for x in row["delay_ms"]] == list(degradation.DELAYS)
    assert row["delay_ms"]["0"] == row["loss_percent"]["0"] == 1
    assert row["delay_ms"]["80"] <= 0.5
    assert picture.read_bytes().startswith(b"\x89PNG")
