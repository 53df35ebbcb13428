"""What a policy reads and writes, for who is to build a robot around it."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from rl import artefact
from rl.bridge import launch


@dataclass(frozen=True)
class Show:
    """Say what a policy reads and writes: names, units, frames, limits, gains and rates."""

    artefact: tyro.conf.Positional[Path]  # a file, or the directory of a run that has one


def show(args: Show) -> None:
    found = artefact.read(launch.found(args.artefact))
    spec, program = found.spec, found.program
    runtimes = f"jax alone: {program}" if isinstance(program, str) else "jax or numpy"
    print(f"{spec.name}: {1 / spec.control_dt:g} Hz, with {runtimes}")
    print(f"remembers {sum(x.size for x in found.carry)} numbers from tick to tick")
    print(f"is {spec.hash.hex()} in a robot's datagrams")
    if spec.max_tilt < 180:
        print(f"is damped where it leans by more than {spec.max_tilt:g} degrees")
    print("\nreads by name; a datagram has them in this order: numbers, unit, whose frame")
    for sensor in spec.sensors:
        print(f"  {sensor.name:22} {sensor.size:2} {sensor.unit:10} {sensor.frame}")
    print("\nis asked for, with --command or in a line of --script, after the time from which, s:")
    for channel in spec.command:
        print(f"  {channel.name:22} {channel.low:g} to {channel.high:g} {channel.unit}")
    print("" if spec.command else "  nothing\n")
    print(
        "writes targets, in this order; torque = kp (target - position) - kd velocity, to its most"
    )
    head = "", "target", "rest", "kp", "kd", "torque", "speed", "acceleration", "torque's rate"
    rows: list[tuple[str, ...]] = [head]
    for a in spec.actuators:
        span = f"{a.low:.4g} to {a.high:.4g} {a.unit}"
        each = (f"{x:.4g}" for x in (a.rest, a.kp, a.kd, a.torque, a.speed))
        rows.append((a.name, span, *each, f"{a.acceleration or '-'}", f"{a.torque_rate or '-'}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  " + "  ".join(map(str.ljust, row, widths)).rstrip())
