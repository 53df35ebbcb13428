"""What a referee is told to expect, and files that are none."""

import copy
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl.bridge import referee
from rl.bridge.referee import judge
from tests.truths import (  # fmt: skip
    PERIOD,
    PLANT,
    STEP,
    Frame,
    Scene,
    clean,
    command,
    header,
    lines,
    only,
    pack,
    run,
    shift,
    state,
)


def want(be: str, start: float, within: float, until: float) -> list[dict[str, Any]]:
    return [{"name": "w", "from": start, "within": within, "until": until, "be": be}]


@pytest.mark.parametrize(
    ("be", "start", "within", "until", "met"),
    [
        ("damped", 2.7, 0.1, 3.18, True),
        ("damped", 2.7, 0.1, 3.2, False),
        ("damped", 2.7, 0.1, 0.0, True),
        ("damped", 2.7, 0.05, 0.0, False),
        ("still", 2.2, 0.1, 2.7, True),
        ("still", 2.2, 0.1, 2.8, False),
        ("still", 1.3, 0.1, 1.5, False),
        ("still", 4.7, 0.0, 4.8, False),
        ("safe", 2.3, 0.0, 3.18, True),
        ("safe", 4.7, 0.0, 4.85, True),
        ("safe", 1.3, 0.1, 1.5, False),
        ("moving", 1.0, 0.1, 2.6, True),
        ("moving", 2.3, 0.1, 2.7, False),
        ("moving", 1.0, 0.1, 2.8, False),
        ("silent", 4.8, 0.0, 4.88, True),
        ("silent", 4.8, 0.0, 4.9, False),
        ("silent", 4.8, 0.01, 0.0, True),
        ("safe", 7.5, 0.0, 8.0, False),
        ("safe", 2.3, 0.0, float("inf"), False),
    ],
)
def test_expectations(scene: Scene, be: Any, start: Any, within: Any, until: Any, met: Any) -> None:
    verdict = run(scene, lambda frames, t: None, expect=want(be, start, within, until))
    only(verdict, "expect: w", not met)


def test_noise_changes_nothing(scene: Scene) -> None:
    chance = random.Random(3)

    def plant(frames: list[Frame], t: int) -> None:
        for frame in frames:
            bad = copy.copy(frame)
            bad.joint, bad.quaternion, bad.sequence = frame.joint + 3, [0.0] * 4, 10**6
            data = bytearray(state(bad))
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            nan = copy.copy(bad)
            nan.joint = frame.joint * np.nan
            frame.noise = [bytes(data), chance.randbytes(chance.randrange(200)), state(nan)]
            frame.noise += [
                state(bad)[:-4],
                pack(1, 0, 10**6, [0.0] * 16, "ff" * 8),
                command(frame),
            ]

    noisy, calm = run(scene, plant), run(scene, lambda frames, t: None)
    assert noisy == calm


def test_unmeasured_joints_skip_their_rules(scene: Scene) -> None:
    top = header(scene[0])
    for motor in top["spec"]["actuators"]:
        motor["position"] = motor["velocity"] = ""

    def plant(frames: list[Frame], t: int) -> None:
        frames[t].joint = frames[t].joint + 0.5
        frames[t].kp[2] = 50.0

    only(run(scene, plant, spec=top["spec"]), "", False)
    fast = run(scene, lambda frames, t: shift(frames, t, 0, 1.01 * STEP), spec=top["spec"])
    only(fast, "speed")


def test_first_tells_tick_motor_and_size(scene: Scene) -> None:
    verdict = run(scene, lambda frames, t: shift(frames, t, 2, 1.5 * STEP))
    tick = round(PLANT * scene[0] / PERIOD)
    assert verdict.first["speed"].startswith(f"tick {tick}, m2: ")
    assert verdict.violations["speed"] == scene[0]
    assert verdict.limits["speed"] == pytest.approx(1.5, rel=1e-5)


def spoil(rows: list[str], how: str) -> list[str]:
    top = json.loads(rows[0])
    if how == "limit":
        del top["limits"]["beyond"]
    if how == "nan":
        top["limits"]["speed"] = float("nan")
    if how == "period":
        top["spec"]["control_dt"] = 1e-5
    if how == "be":
        top["expect"] = want("happy", 0, 0, 0)
    if how == "sensor":
        top["spec"]["actuators"][0]["position"] = "nowhere"
    rows = [json.dumps(top), *rows[1:]]
    cut = {"empty": [], "header": rows[:1], "gap": rows[:2] + rows[3:], "line": [*rows, "{"]}
    cut |= {"hex": [*rows[:1], rows[1].replace('"sent": ["', '"sent": ["zz')], "text": ["hello"]}
    return cut.get(how, rows)


@pytest.mark.parametrize(
    "how",
    ["limit", "nan", "period", "be", "sensor", "empty", "header", "gap", "line", "hex", "text"],
)
def test_no_truth_file(how: Any) -> None:
    rows = lines(header(1), clean(1)[:5])
    assert not judge(rows).violations
    with pytest.raises(ValueError, match="no truth file: "):
        judge(spoil(rows, how))


def test_command_line(tmp_path: Path) -> None:
    frames = clean(1)
    texts = {"good": lines(header(1), frames), "none": ["{}"]}
    texts["bad"] = lines(header(1, released=[]), frames)
    for name, rows in texts.items():
        (tmp_path / name).write_text("\n".join(rows))

    def call(*names: str) -> subprocess.CompletedProcess[str]:
        paths = [str(tmp_path / name) for name in names]
        program = [sys.executable, "-m", referee.__name__, *paths]
        return subprocess.run(program, capture_output=True, text=True, check=False)

    good, bad, none = call("good"), call("good", "bad"), call("none")
    assert (good.returncode, bad.returncode, none.returncode) == (0, 1, 2)
    assert json.loads(good.stdout)["violations"] == {}
    assert [bool(json.loads(row)["violations"]) for row in bad.stdout.splitlines()] == [False, True]
    assert len(none.stderr.splitlines()) == 1
    absent = call("absent")
    assert (absent.returncode, absent.stderr.endswith("absent: No such file or directory.\n")) == (
        2, True)  # fmt: skip
    assert call().returncode == 2
