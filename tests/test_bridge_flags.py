"""What a flight is begun with is checked before anything moves, and it tells how it ended."""

import json
from pathlib import Path

import psutil
import pytest
import tyro

from rl.bridge import flight, sim
from rl.bridge.launch import Run, check_log
from tests.test_bridge import bridge, child, ended

PATH = Path(__file__).parent.parent / "benchmarks" / "policies" / "go2-joystick-flat"
PATH /= "artefact-0.zip"


@pytest.mark.parametrize("motor", [12, 99, 1.5])
def test_a_fault_of_a_motor_that_is_not_there_is_refused(motor: float, tmp_path: Path) -> None:
    (plan := tmp_path / "plan.json").write_text(
        json.dumps([{"kind": "motor limp", "since": 0, "until": 9, "motor": motor}])
    )
    with pytest.raises(ValueError, match=f"befalls motor {motor}: there are 0 to 11"):
        sim.sim(sim.Sim(PATH, address="127.0.0.1:0", faults=plan))


def test_a_log_of_a_flight_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (file := tmp_path / "file").touch()
    (link := tmp_path / "link.mcap").symlink_to(tmp_path / "nowhere")
    for path, why in (
        (file / "a.mcap", "cannot be written: Not a directory"),
        (tmp_path / "none" / "a.mcap", "cannot be written: No such file or directory"),
        (Path("/proc/a.mcap"), "cannot be written"),
        (link, "is there already"),
        (file, "is there already"),
        (tmp_path / "a.csv", "will be an .mcap file"),
    ):
        with pytest.raises(ValueError, match=f"--log {path} {why}"):
            check_log(path)
    check_log(fine := tmp_path / "a.mcap")
    assert not fine.exists()


@pytest.mark.parametrize("port", ["abc", "0", "65536", "-1", "1.5", "²"])
def test_a_port_that_is_none_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        tyro.cli(Run, args=[str(PATH), f"--page={port}"])
    assert "it takes one port, from 1 to 65535" in " ".join(capsys.readouterr().err.split())


def test_a_flight_whose_log_is_not_whole_says_so_at_its_end(tmp_path: Path) -> None:
    log, ages = tmp_path / "a.mcap", {"state-age": 9, "operator-age": 9, "late": 9, "plan-age": 900}
    patient = [f"--limits.{name}={age}" for name, age in ages.items()]
    run = bridge("run", PATH, "--robot", "sim", "--seconds", 1, "--runtime", "numpy",
                 "--command", 0, 0, 0, *patient, "--log", log)  # fmt: skip
    assert any("running" in line for line in iter(run.stdout.readline, ""))
    child(child(run, "robotd"), "recorder").rlimit(psutil.RLIMIT_FSIZE, (100_000, 100_000))
    code, said = ended(run)
    assert (code, f"error: {log} is not whole: what could be written" in said) == (1, True), said
    assert flight.read(log).rows
