"""Look at a Go2 and what a policy would have it do, and send nothing: for the first day.

python -m rl.bridge.drivers.go2_look ARTEFACT --robot go2:eth0
"""

import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from rl import artefact
from rl.artefact import Deployed
from rl.bridge import commands, robots
from rl.bridge.drivers.go2 import Go2
from rl.bridge.wire import State
from rl.guard import guard


@dataclass(frozen=True)
class Args:
    """Say twice a second how a Go2 is, and what a policy would answer."""

    artefact: tyro.conf.Positional[Path]
    robot: str = "go2:eth0"
    command: tuple[float, ...] = ()  # that the policy is asked for
    seconds: float = 1e6


def main(args: Args) -> None:
    policy = artefact.deploy(artefact.read(args.artefact), "numpy")
    driver = robots.driver(policy.spec, args.robot)
    if not isinstance(driver, Go2):
        raise ValueError(f"--robot is {args.robot}; it takes go2:eth0, an interface of this host.")
    command = commands.constant(policy.spec, args.command)(0.0)
    began = shown = time.monotonic()
    counts: Counter[str] = Counter()
    state, asked = None, began
    while (now := time.monotonic()) < began + args.seconds:
        driver.transport.call()
        for datagram in driver.receive():
            found = driver.codec.state(datagram)
            counts["states" if found else "others"] += 1
            state, whole = found or state, datagram if found else None
            counts["unsigned"] += whole is not None and whole[-4:] == bytes(4)
        if state and now >= asked:
            targets, asked = policy.step(state.readings, command), now + policy.spec.control_dt
        if state and now > shown + 0.5:
            show(policy, state, targets, counts)
            counts.clear()
            shown = now
        time.sleep(0.002)
    driver.close()
    if state is None:
        raise ValueError(f"No Go2 at {driver.transport.name} said anything.")


def show(policy: Deployed, state: State, targets: np.ndarray, counts: Counter[str]) -> None:
    print(f"\n{state.time:9.3f} s  {counts['states']} states, {counts['unsigned']} of them without "
          f"a checksum, {counts['others']} other messages; hottest motor {state.heat:.0f} C"
          f"{', A MOTOR FAILS, OR SOMEBODY ELSE COMMANDS' * state.failed}")  # fmt: skip
    for name in ("orientation", "gyro", "accelerometer"):
        if name in state.readings:
            print(f"  {name:14}", " ".join(f"{x:+8.3f}" for x in state.readings[name]))
    for motor, target in zip(policy.spec.actuators, targets, strict=True):
        angle, speed = (state.readings[x][0] for x in (motor.position, motor.velocity))
        print(f"  {motor.name:14} {angle:+8.3f} rad {speed:+8.3f} rad/s   policy {target:+8.3f}")
    sys.stdout.flush()


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m rl.bridge.drivers.go2_look")))
