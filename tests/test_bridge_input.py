"""What the bridge is told on its command line, and in files, is checked before anything moves."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rl import artefact
from rl.bridge import commands
from rl.bridge.limits import Limits
from rl.bridge.show import Show, show
from rl.bridge.sim import sim as bridge
from rl.bridge.sim.simulator import Robot
from tests.rig import Rig

PATH = Path(__file__).parent.parent / "benchmarks" / "policies" / "go2-joystick-flat"
PATH /= "artefact-0.zip"
SOMEBODYS = Path(__file__).parent / "oracles" / "playground_go1.npz"


@pytest.fixture(scope="module")
def found() -> artefact.Artefact:
    return artefact.read(PATH)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (" \n", "is empty; its lines need these numbers: time, forward, left, turn left"),
        ("0 0 0 0", "Line 1 of .* is '0 0 0 0'; it needs these numbers, with commas"),
        ("0,0,0,0\n0,1,2", "Line 2 of .* is '0,1,2'; it needs these numbers"),
        ("0,0,0,0\n0,a,b,c", "Line 2 of .* is '0,a,b,c'; it needs these numbers"),
        ("1,0,0,0\n\n0,0,0,0", "Line 3 of .* is no later than the line before"),
        ("1,0,0,0\n1,0.5,0,0", "Line 2 of .* is no later than the line before"),
        ("-1,0,0,0", "Line 1 of .* has a time that is no finite number from 0 on"),
        ("0,nan,0,0", "Line 1 of .* asks for nan m/s of forward; it goes from -1.5 to 1.5"),
        ("nan,0,0,0", "Line 1 of .* has a time that is no finite number from 0 on"),
        ("0,0,0,0\n1,0,0,9", "Line 2 of .* asks for 9 rad/s of turn left; it goes from -1.2"),
    ],
)
def test_a_script_that_makes_no_sense_is_refused(
    text: str, why: str, found: artefact.Artefact, tmp_path: Path
) -> None:
    (tmp_path / "c.csv").write_text(text)
    with pytest.raises(ValueError, match=why):
        commands.script(found.spec, tmp_path / "c.csv")
    with pytest.raises(ValueError, match="There is no script to read in"):
        commands.script(found.spec, tmp_path)


def test_a_script_may_begin_with_a_byte_order_mark(
    found: artefact.Artefact, tmp_path: Path
) -> None:
    (tmp_path / "c.csv").write_text("0,0.5,0,0\n", "utf-8-sig")
    np.testing.assert_array_equal(commands.script(found.spec, tmp_path / "c.csv")(0), [0.5, 0, 0])


def test_a_command_is_one_that_the_policy_was_trained_for(found: artefact.Artefact) -> None:
    spec = found.spec
    np.testing.assert_array_equal(commands.constant(spec, (1.5, -0.8, 0))(0), [1.5, -0.8, 0])
    with pytest.raises(ValueError, match="--command has 2 numbers; it needs forward left"):
        commands.constant(spec, (1.0, 2.0))
    for bad in (np.nan, 1.6, -np.inf):
        with pytest.raises(ValueError, match=r"--command asks for .* m/s of forward; it goes from"):
            commands.constant(spec, (bad, 0.0, 0.0))
    blind = replace(spec, command=())
    assert commands.constant(blind, ())(0).shape == (0,)
    far = replace(spec, command=(replace(spec.command[0], low=0.5),))
    with pytest.raises(
        ValueError, match=r"needs a --command or a --script: forward 0\.5 to 1\.5 m"
    ):
        commands.constant(far, None)
    with pytest.raises(ValueError, match="--command has 0 numbers; it needs forward left"):
        commands.constant(spec, ())
    np.testing.assert_array_equal(commands.constant(spec, None)(0), np.zeros(3))
    with pytest.raises(ValueError, match="takes no numbers: say --command alone"):
        commands.constant(blind, (1.0,))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("state_age", (0, -1, np.nan, np.inf, 1e9)),
        ("plan_age", (0, -1, np.nan, np.inf)),
        ("operator_age", (0, -1, np.nan, np.inf)),
        ("tracking", (0, -1, np.nan, np.inf)),
        ("loss", (0, -1, np.nan, 1.1)),
        ("heat", (0, np.nan, 1000)),
        ("late", (0, -1, np.nan, 11)),
        ("blend_s", (-1, np.nan, np.inf)),
        ("hold_s", (-1, np.nan, np.inf, 1e9)),
        ("max_tilt", (0, -5, np.nan, 181)),
        ("damping", (0, -50, np.nan, np.inf, 1e9)),
        ("speed", (0, -1, np.nan, 1.1, 1e-9)),
    ],
)
def test_limits_that_limit_nothing_or_all_are_refused(name: str, values: tuple) -> None:
    flag = f"--limits.{name.replace('_', '-')}"
    for value in values:
        with pytest.raises(ValueError, match=rf"{flag} is {value}; it takes"):
            Limits(**{name: value}).check()


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        *(
            ("rate", x, "--rate is .*: it needs a multiple of 50 that divides --hz, 500")
            for x in (333.0, -50.0, 75.0, 1000.0, np.inf, np.nan)
        ),
        ("hz", 333.0, "--hz is 333: it needs a multiple of 50"),
        *(("hz", x, "--hz is .*: it needs a multiple") for x in (0.0, -500.0, np.inf, np.nan, 1e9)),
        *(("seconds", x, "--seconds is .*; it takes a time") for x in (0.0, 0.001, np.inf, np.nan)),
        ("address", "9870", "'9870' is no address: it is host:port"),
        ("address", "no.such.host.invalid:9870", "There is no host 'no.such.host.invalid'"),
        ("artefact", Path("no.zip"), "There is no artefact no.zip"),
        ("artefact", PATH.parent.parent, "has no artefact: training writes one where"),
        ("log", Path("/nowhere/log.npz"), "--log /nowhere/log.npz cannot be written"),
        ("log", Path("notes.md"), "--log notes.md will be an .npz file: give it that ending"),
        ("log", SOMEBODYS, "--log .* is there already: name another"),
    ],
)
def test_a_robot_that_makes_no_sense_is_refused(field: str, value: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        bridge.sim(replace(bridge.Sim(PATH, address="127.0.0.1:0"), **{field: value}))


@pytest.mark.parametrize(
    "what", ["array", "text", "none", "nan", "short", "one", "words", "absent"]
)
def test_starts_that_make_no_sense_are_refused(
    what: str, found: artefact.Artefact, tmp_path: Path
) -> None:
    robot = Robot(found, 500)
    qpos, qvel = (x[None] for x in robot.home())
    files = {
        "none": {"qpos": qpos[:0], "qvel": qvel[:0]},
        "nan": {"qpos": qpos * np.nan, "qvel": qvel},
        "short": {"qpos": qpos[:, 1:], "qvel": qvel},
        "one": {"qpos": np.float64(1), "qvel": np.float64(2)},
        "words": {"qpos": qpos.astype(str), "qvel": np.full(qvel.shape, "a")},
    }
    starts = tmp_path / "starts.npz"
    if what == "array":
        starts = starts.with_suffix(".npy")
        np.save(starts, qpos)
    elif what == "text":
        shutil.copy(__file__, starts)
    elif what in files:
        np.savez(starts, **files[what])
    with pytest.raises(
        ValueError, match=f"{starts.name}( is no .npz| needs at least| has qpos|.$)"
    ):
        bridge.sim(bridge.Sim(PATH, address="127.0.0.1:0", starts=starts))


def test_a_robot_whose_motors_are_in_another_order_than_its_models_is_refused(
    found: artefact.Artefact,
) -> None:
    motors = [*found.spec.actuators]
    motors[0], motors[3] = motors[3], motors[0]
    for wrong in (motors, motors[1:]):
        other = replace(found, spec=replace(found.spec, actuators=tuple(wrong)))
        with pytest.raises(ValueError, match=r"The model has .* as its actuator"):
            Robot(other, 500)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"control_dt": 0.0}, "its control_dt is 0.0 and no time"),
        ({"physics_dt": float("nan")}, "its physics_dt is nan and no time"),
        ({"max_tilt": float("nan")}, "its max_tilt is nan"),
        ({"kp": -35.0}, "the kp of FR_hip is -35.0"),
        ({"torque": float("nan")}, "the torque of FR_hip is nan"),
    ],
)
def test_a_spec_of_no_robot_is_refused(
    change: dict[str, float], why: str, found: artefact.Artefact, tmp_path: Path
) -> None:
    spec = found.spec
    if change.keys() & {"control_dt", "physics_dt", "max_tilt"}:
        spec = replace(spec, **change)
    else:
        first = replace(spec.actuators[0], **change)
        spec = replace(spec, actuators=(first, *spec.actuators[1:]))
    replace(found, spec=spec).write(tmp_path / "bad.zip")
    with pytest.raises(ValueError, match=why):
        artefact.read(tmp_path / "bad.zip")


def test_a_program_that_is_none_is_refused(found: artefact.Artefact) -> None:
    for noise in (b"", b"none", found.compiled[:-100]):
        with pytest.raises(ValueError, match="This JAX cannot read the artefact's program"):
            artefact.deploy(replace(found, compiled=noise), "jax")


@pytest.mark.parametrize(("task", "asked", "limit"), [(60, 180, 60), (60, 40, 40), (180, 180, 180)])
def test_who_asks_for_less_tilt_is_heard(
    task: float, asked: float, limit: float, found: artefact.Artefact
) -> None:
    spec, rest = (
        replace(found.spec, max_tilt=task),
        np.array([m.rest for m in found.spec.actuators]),
    )
    told = {sensor.name: np.zeros(sensor.size) for sensor in spec.sensors}
    told |= {motor.position: np.array([motor.rest]) for motor in spec.actuators}
    for degrees in (limit - 1, limit + 1):
        half = np.radians(degrees) / 2
        told["orientation"] = np.array([np.cos(half), 0, np.sin(half), 0])
        rig = Rig(Limits(max_tilt=asked), episodes=True, spec=spec)
        made = rig.tick(told, rest, reset=True).command
        assert made.damp == (limit < degrees <= 180)


def test_a_folder_is_told_with_what_is_in_it(tmp_path: Path) -> None:
    for folder, inside in ((tmp_path, "none"), (PATH.parent, PATH.name)):
        with pytest.raises(ValueError, match=f"{folder} is a folder; its artefacts: {inside}"):
            artefact.read(folder)


def test_what_a_policy_reads_and_writes_is_shown(
    found: artefact.Artefact, capsys: pytest.CaptureFixture[str]
) -> None:
    show(Show(PATH.parent))
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    told = [row[0] for row in rows]
    sensors, motors = found.spec.sensors, found.spec.actuators
    assert told[: len(sensors)] == [sensor.name for sensor in sensors]
    assert rows[told.index("orientation")] == ["orientation", "4", "w", "x", "y", "z", "world"]
    assert ["forward", "-1.5", "to", "1.5", "m/s"] in rows
    assert told[-len(motors) :] == [motor.name for motor in motors]
    calf = "FR_calf -2.723 to -0.8378 rad -1.8 35 0.5 45.43 15.7 - -"
    assert " ".join(rows[told.index("FR_calf")]) == calf


def test_a_robot_that_its_policy_damped_says_so(found: artefact.Artefact) -> None:
    robot = Robot(found, 500.0)
    robot.reset(*robot.home())
    robot.step(1)
    assert not robot.facts()["damped"]
    robot.damp()
    robot.step(1)
    assert robot.facts()["damped"]
