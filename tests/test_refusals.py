"""What a core refuses though it is asked to, why, and that who asked is told."""

import logging
import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl import artefact
from rl.bridge import messages, wire
from rl.bridge.core import Core, Setup
from rl.bridge.drivers.udp import Codec
from rl.bridge.limits import Limits
from rl.bridge.lock import lock
from rl.bridge.pilot import TRIES, Script
from rl.bridge.refusals import ticks_of
from rl.bridge.states import ARM, ARMED, CLEAR, FAULT, HOLD, PASSIVE, READY, STAND, STOP
from tests.rig import Rig, body, go2, of
from tests.test_lockstep import PATH

FAST = 10  # ticks of the wire in a period: 2 ms each


def told(rig: Rig) -> str:
    """What operators are told that was refused, over the wire."""
    message = messages.status_message(rig.spec, rig.core.status(0))
    status = messages.status_of(rig.spec, wire.decode(wire.encode(message)))
    assert status is not None
    return status.refused.text


def standing(limits: Limits = Limits(), ticks: int = 1, **more: Any) -> Rig:
    """One that stands and waits to be armed."""
    rig = Rig(limits, ticks)
    rig.core = Core(Setup(go2(), limits, ticks, **more), Codec(go2()))
    for event in (STAND, *[""] * round(3 / rig.core.dt)):
        rig.tick(body(), event=event)
    assert rig.core.state == READY
    return rig


def greet(rig: Rig, **more: Any) -> None:
    rig.core.hear("policy", wire.encode(wire.hello(rig.spec)._replace(**more)))


def armed(rig: Rig, **more: Any) -> bool:
    return rig.tick(body(), of("rest"), event=ARM, **more).state == ARMED


def test_who_asks_is_told_until_something_is_done() -> None:
    rig = Rig()
    rig.tick(body(), event=ARM)
    assert told(rig) == "'arm' leads nowhere from passive; an operator may say stand, relax, stop."
    rig.tick(body(), event=STAND)
    assert told(rig) == ""
    rig.tick(body(), event=ARM)
    assert told(rig) == "'arm' is refused: it is still on its way to its rest."
    rig.tick(body())
    assert "on its way" in told(rig)
    rig.tick(body(), heat=99.0)
    rig.tick(body(), event=ARM, heat=99.0)
    assert told(rig) == "'arm' is refused: a motor is too hot, or says that it failed."
    assert rig.core.state == HOLD


def test_a_policy_of_another_artefact_is_none() -> None:
    digest = "ab" * 32
    rig = standing(artefact=digest)
    assert not armed(rig)
    assert told(rig) == "'arm' is refused: no policy has come."
    greet(rig, seq=wire.tag("cd" * 32))
    assert not armed(rig)
    assert "the policy that came is of another artefact: start it and" in told(rig)
    other = wire.hello(replace(go2(), control_dt=0.01))
    rig.core.hear("policy", wire.encode(other._replace(seq=wire.tag(digest))))
    assert not armed(rig)
    greet(rig, seq=wire.tag(digest))
    greet(rig, seq=wire.tag("cd" * 32))  # which changes nothing
    assert armed(rig)
    assert told(rig) == ""


def test_a_policy_that_is_slower_than_its_period_is_armed_in_lock_step_alone() -> None:
    rig = standing()
    greet(rig, time=0.03)
    assert not armed(rig)
    assert "its policy takes 30 ms for a step, more than its period" in told(rig)
    assert armed(rig, waits=True)
    rig = standing()
    greet(rig, time=0.015)
    assert armed(rig)


def test_a_machine_that_leaves_out_ticks_is_not_armed_until_it_does_no_more() -> None:
    rig = standing(ticks=FAST)
    greet(rig)
    for _ in range(500):
        rig.number += 1  # every other is left out
        rig.tick(body(), late=0.003)
    assert rig.core.state == READY
    assert not armed(rig)
    assert "this machine does not keep the rate, and was 3 ms late in the last 2 s" in told(rig)
    for _ in range(400):  # 0.8 s
        rig.tick(body())
    assert not armed(rig)
    for _ in range(300):
        rig.tick(body())
    assert armed(rig)
    loose = standing(Limits(missed=0.6), FAST)
    greet(loose)
    for _ in range(500):
        loose.number += 1
        loose.tick(body(), late=0.003)
    assert armed(loose)


def test_a_machine_that_was_far_too_late_is_not_armed_from_hold() -> None:
    rig = Rig(ticks=FAST).armed()
    for _ in range(3):
        rig.tick(body(), of("rest"), late=0.02)
    assert rig.core.state == HOLD
    rig.tick(body())
    assert not armed(rig)
    assert "was 20 ms late" in told(rig)
    for _ in range(1001):
        rig.tick(body())
    assert armed(rig)


def test_time_that_jumps_in_lock_step_is_not_late() -> None:
    rig = standing(ticks=FAST)
    greet(rig)
    rig.number += 900
    rig.tick(body())
    assert armed(rig)


def failed(rig: Rig) -> None:
    rig.tick(body(), event=STAND)
    rig.tick(body(quat=(np.cos(0.6), np.sin(0.6), 0, 0)))
    assert rig.core.state == FAULT


def test_a_robot_that_fails_again_and_again_is_cleared_three_times_an_hour() -> None:
    rig = Rig()
    rig.tick(body())
    for _ in range(3):
        failed(rig)
        assert rig.tick(body(), event=CLEAR).state == PASSIVE
    for _ in range(5):  # it was asked for
        assert rig.tick(body(), event=STOP).state == FAULT
        assert rig.tick(body(), event=CLEAR).state == PASSIVE
    failed(rig)
    assert rig.tick(body(), event=CLEAR).state == FAULT
    assert "it failed and was cleared 3 times within an hour" in told(rig)
    rig.number += round(3600 / rig.core.dt)
    rig.tick(body())
    assert rig.tick(body(), event=CLEAR).state == PASSIVE


class Hot(Rig):
    """Whose motors are."""

    def tick(self, told: Any = None, wished: Any = None, event: str = "", **more: Any) -> Any:
        return super().tick(told, wished, event, heat=99.0 * (self.number > 100), **more)


@pytest.mark.parametrize(
    ("rig", "why"),
    [(Rig, "'arm' is refused: no policy has come."), (Hot, "'stand' is refused: a motor is too hot"
      )],
)  # fmt: skip
def test_a_script_that_cannot_arm_ends_with_the_reason(rig: Any, why: str) -> None:
    made, script = rig(), Script(lambda t: np.zeros(3), 5.0)
    made.core.ears.met = False
    for t in range(round(60 / made.core.dt)):
        made.tick(body())
        said = script.word(made.core.status(t)._replace(time=made.core.now))
        made.tick(body(), event=said.event)
        if said.why:
            break
    assert said.why.startswith(why)
    assert TRIES / 5 < made.core.now < 15


def test_a_robots_rate_is_a_multiple_of_the_policys() -> None:
    spec = go2()
    assert [ticks_of(spec, rate) for rate in (50.0, 500.0, 1000.0)] == [1, 10, 20]
    for rate in (0.0, -50.0, 49.0, 75.0, 510.0, float("nan"), float("inf"), 1e300):
        with pytest.raises(ValueError, match=r"^The robot speaks .* its policy is asked 50 times"):
            ticks_of(spec, rate)


def test_a_lock_is_one_bridges_and_goes_with_it_however_it_ends() -> None:
    robot = wire.free_address()
    words = f"import time; from rl.bridge.lock import lock; held = lock({robot!r})"
    for sent in (signal.SIGKILL, signal.SIGTERM):
        first = subprocess.Popen(
            [sys.executable, "-c", f"{words}; print(1, flush=True); time.sleep(99)"],
            stdout=subprocess.PIPE,
        )
        assert first.stdout is not None
        assert first.stdout.readline() == b"1\n"
        with pytest.raises(ValueError, match=f"^Process {first.pid} is the bridge of the robot at"):
            lock(robot)
        with lock(wire.free_address()):  # another's is free
            first.send_signal(sent)
        first.communicate()
        with (
            lock(robot),
            pytest.raises(ValueError, match=f"^Process {os.getpid()} is the bridge"),
        ):
            lock(robot)


def test_nothing_is_compiled_once_a_policy_is_warm(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever it is told: what does not fit is an error, and not another program."""
    found = artefact.read(PATH)
    policy = artefact.deploy(found, "jax")
    readings = {name: x[0] for name, x in found.golden.readings.items()}
    command = found.golden.command[0]
    with jax.log_compiles(), caplog.at_level(logging.DEBUG):
        jax.jit(lambda x: x + 1)(jnp.zeros(3))
        assert [record for record in caplog.records if "ompil" in record.message]
        caplog.clear()
        for t in range(50):
            policy.step({k: x.astype(("f4", "f8", "f2")[t % 3]) for k, x in readings.items()},
                        command.astype(("f4", "f8")[t % 2]))  # fmt: skip
            if t % 10 == 0:
                policy.reset()
        for bad in ([x[..., None] for x in found.carry], [x.astype("c8") for x in found.carry], []):
            policy.carry = bad
            with pytest.raises(TypeError):
                policy.step(readings, command)
        assert [record.message for record in caplog.records] == []
