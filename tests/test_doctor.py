"""A host's verdict follows from what was measured; what is measured here is only its shape."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rl.bridge import __main__ as bridge
from rl.bridge import doctor, host
from rl.bridge.host import BAD, FAIR, GOOD, Finding
from rl.bridge.punctual import lateness, unfit

GO2 = Path(__file__).parent.parent / "benchmarks/policies/go2-joystick-flat/artefact-0.zip"
PING = """PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.

--- 10.0.0.2 ping statistics ---
20 packets transmitted, 20 received, {lost}% packet loss, time 3830ms
rtt min/avg/max/mdev = 0.210/0.310/{most}/0.020 ms
"""


def on_time(count: int = 5000) -> np.ndarray:
    return np.full(count, 2e-5)


def test_a_host_that_is_on_time_is_fit() -> None:
    found = lateness(on_time(), 0, 500)
    assert (found.ticks, found.missed, found.often) == (5000, 0, 0)
    assert found.p50 == found.p99 == found.most == 2e-5
    assert unfit(found, 500) == ""


def test_three_late_ticks_in_a_second_are_too_many_and_two_are_not() -> None:
    late = on_time()
    late[[1000, 1200]] = 0.011
    assert unfit(lateness(late, 0, 500), 500) == ""
    late[1499] = 0.011
    assert "3 ticks in a second began more than 10 ms late" in unfit(lateness(late, 0, 500), 500)
    late[1499], late[1500] = 2e-5, 0.011  # a second after the first
    assert unfit(lateness(late, 0, 500), 500) == ""


def test_ticks_that_are_left_out_count() -> None:
    assert unfit(lateness(on_time(), 4, 500), 500) == ""
    assert "left out" in unfit(lateness(on_time(), 50, 500), 500)


def test_what_is_late_for_one_rate_is_not_for_another() -> None:
    late = np.full(5000, 8e-4)
    assert "0.8 ms late, of 2" in unfit(lateness(late, 0, 500), 500)
    assert unfit(lateness(late, 0, 50), 50) == ""


@pytest.mark.parametrize("count", [0, 1, 99])
def test_few_ticks_say_nothing(count: int) -> None:
    assert "says nothing" in unfit(lateness(on_time(count), 0, 500), 500)


@pytest.mark.parametrize(
    ("finding", "grade", "words"),
    [
        (host.cores(8, 0.5), GOOD, ""),
        (host.cores(2, 0.5), FAIR, "4 or more"),
        (host.cores(8, 9.0), FAIR, "end what is there"),
        (host.virtual("flags\t\t: fpu hypervisor lahf\n"), FAIR, "a machine of its own"),
        (host.virtual("flags\t\t: fpu lahf\n"), GOOD, ""),
        (host.governor([]), GOOD, ""),
        (host.governor(["performance"] * 4), GOOD, ""),
        (host.governor(["performance", "powersave"]), FAIR, "cpupower frequency-set -g"),
        (host.kernel("#1 SMP PREEMPT_RT", ""), GOOD, ""),
        (host.kernel("#1 SMP PREEMPT_DYNAMIC", "1\n"), GOOD, ""),
        (host.kernel("#1 SMP PREEMPT_DYNAMIC", ""), FAIR, "realtime"),
        (host.isolated("2-3\n", 3), GOOD, ""),
        (host.isolated("\n", 7), FAIR, "isolcpus=7"),
        (host.isolated("\n", 1), FAIR, "4 or more"),
        (host.quota("max 100000\n"), GOOD, ""),
        (host.quota(""), GOOD, ""),
        (host.quota("150000 100000\n"), FAIR, "--cpus"),
        (host.clocksource("tsc\n"), GOOD, ""),
        (host.clocksource("hpet\n"), FAIR, "echo tsc | sudo tee"),
        (host.swap("Filename Type Size Used Priority\n", False), GOOD, ""),
        (host.swap("Filename Type\n/swapfile file\n", True), GOOD, ""),
        (host.swap("Filename Type\n/swapfile file\n", False), FAIR, "swapoff"),
        (host.buffers("212992\n"), GOOD, ""),
        (host.buffers("4096\n"), FAIR, "sysctl -w net.core.rmem_default"),
        (host.loopback(2e-5, 5e-5, 1e-3, 500), GOOD, ""),
        (host.loopback(2e-5, 5e-3, 1e-2, 500), FAIR, "cores"),
        (host.disk(0.02, 5e7), GOOD, ""),
        (host.disk(9.0, 5e7), FAIR, "another disk"),
        (host.disk(0.02, 1e5), BAD, "another disk"),
        (host.link(PING.format(lost=0, most=0.5), 500), GOOD, ""),
        (host.link(PING.format(lost=0, most=3.1), 500), FAIR, "a cable"),
        (host.link(PING.format(lost=10, most=0.5), 500), BAD, "a cable"),
        (host.link("", 500), BAD, "address"),
    ],
)  # fmt: skip
def test_each_finding_has_its_grade_and_what_mends_it(
    finding: Finding, grade: str, words: str
) -> None:
    assert finding.grade == grade
    assert words in finding.mend
    assert bool(finding.mend) == (grade != GOOD)


def test_what_was_not_granted_is_mended_in_limits() -> None:
    assert [x.grade for x in host.granted(["memory locked", "SCHED_FIFO 50"])] == [GOOD, GOOD]
    memory, none = host.granted(["memory locked"]), host.granted([])
    assert [x.grade for x in memory] == [FAIR, GOOD]
    assert "limits.d" in memory[0].mend
    assert [x.grade for x in none] == [FAIR, FAIR]


def test_time_that_was_stolen_is_a_share_of_all() -> None:
    before, after = "cpu  100 0 50 800 0 0 0 10 0 0\ncpu0 1\n", "cpu  150 0 50 840 0 0 0 20 0 0\n"
    assert host.steal(before, after).found.startswith("10.0%")
    assert host.steal(before, after).grade == FAIR
    assert host.steal(before, before).grade == GOOD


def test_a_policy_must_answer_within_its_period_and_compile_no_more() -> None:
    said = {"p50": 1e-3, "p99": 2e-3, "most": 5e-3, "compiled": 0, "asked": 100}
    assert host.policy("jax", said, 0.02).grade == GOOD
    assert host.policy("jax", said | {"p99": 0.015}, 0.02).grade == FAIR
    slow = host.policy("jax", said | {"p99": 0.03}, 0.02)
    assert (slow.grade, "--runtime numpy" in slow.mend) == (BAD, True)
    assert host.policy("jax", said | {"compiled": 1}, 0.02).grade == BAD
    assert host.policy("numpy", {"error": "jax alone"}, 0.02).grade == FAIR


def test_one_bad_thing_makes_a_host_unfit_and_fair_ones_do_not() -> None:
    good, fair = Finding("a", "", GOOD), Finding("b", "", FAIR, "do")
    assert host.verdict([good], 500) == "fit for 500 Hz"
    assert host.verdict([good, fair, fair], 500) == "fit for 500 Hz; 2 things could be better"
    assert host.verdict([good, fair, Finding("disk", "", BAD)], 50) == "not fit for 50 Hz: disk"


def test_it_measures_this_host_and_ends_as_its_verdict_says(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "rl.bridge", "doctor", "--seconds", "0.5", "--log", tmp_path]
    ran = subprocess.run(map(str, words), capture_output=True, text=True, check=False)
    *_, verdict = ran.stdout.splitlines()
    assert verdict.startswith("verdict  ")
    assert ran.returncode == (0 if verdict.startswith("verdict  fit for 500 Hz") else 1)
    assert not ran.stderr
    for what in ("wake-ups", "UDP round trip", "disk", "priority", "memory", "kernel", "swap"):
        assert f"  {what}" in ran.stdout
    assert not list(tmp_path.iterdir())


def test_a_policy_is_asked_at_its_rate_in_a_process_of_its_own() -> None:
    words = [sys.executable, "-m", "rl.bridge.paced", str(GO2), "numpy", "0.2"]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    warm, said = map(json.loads, ran.stdout.splitlines())
    assert warm == {"warm": 0}
    assert said["asked"] == 10
    assert 0 < said["p50"] <= said["p99"] <= said["most"]
    assert said["compiled"] == 0


def test_what_jax_compiles_is_counted() -> None:
    words = [sys.executable, "-m", "rl.bridge.paced", str(GO2), "jax", "0.1"]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    warm, said = map(json.loads, ran.stdout.splitlines())
    assert warm["warm"] > 0
    assert said["compiled"] == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--rate", "0"], "--rate is 0; it takes 1 to 10000 Hz"),
        (["--seconds", "0"], "--seconds is 0; it takes 0.1"),
        (["--rate", "1", "--seconds", "0.5"], "fewer than 100 ticks.*it takes --seconds 100"),
        (["--rate", "30", "--seconds", "3"], "fewer than 100 ticks.*it takes --seconds 4"),
        (["--log", "/nowhere"], "--log /nowhere is no folder"),
        (["--log", "/proc"], "--log /proc takes no file"),
        (["--robot", "no.such.host.invalid"], "There is no host 'no.such.host.invalid'"),
        (["--robot", "no..host"], "There is no host 'no..host'"),
        (["--robot", "127.0.0.1:²"], "'127.0.0.1:²' is no address"),
        (["--artefact", "nowhere.zip"], "There is no artefact nowhere.zip"),
    ],
)
def test_bad_flags_are_refused_before_anything_is_measured(
    words: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bridge", "doctor", *words])
    with pytest.raises(SystemExit, match=why):
        bridge.main()
    assert not capsys.readouterr().out


@pytest.mark.parametrize("robot", ["127.0.0.1", "localhost", "127.0.0.1:9870", "localhost:9870"])
def test_a_robot_is_named_or_has_an_address(robot: str, tmp_path: Path) -> None:
    assert doctor.checked(doctor.Doctor(robot=robot, log=tmp_path)) == (None, "127.0.0.1")
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_not_there_says_nothing() -> None:
    assert doctor.read("/sys/no/such/file") == ""
