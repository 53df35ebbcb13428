"""What an operator asks of a policy: the same all the time, or by a script of times and numbers."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from rl.spec import Spec

ROUNDING = 1e-6  # of a command that was float32

Operator = Callable[[float], np.ndarray]  # the command [C] at a time, s


def constant(spec: Spec, numbers: tuple[float, ...] | None) -> Operator:
    """The same command for ever; zeros where nothing was said."""
    if numbers and not spec.command:
        raise ValueError(f"{spec.name} takes no numbers: say --command alone.")
    if numbers is not None and len(numbers) != len(spec.command):
        names = " ".join(channel.name.replace(" ", "-") for channel in spec.command)
        raise ValueError(f"--command has {len(numbers)} numbers; it needs {names}.")
    value = np.array(numbers or (0.0,) * len(spec.command))
    if not numbers and any(not channel.low <= 0 <= channel.high for channel in spec.command):
        told = ", ".join(f"{c.name} {c.low:g} to {c.high:g} {c.unit}" for c in spec.command)
        raise ValueError(f"{spec.name} needs a --command or a --script: {told}.")
    _check_range(spec, value, "--command")
    return lambda t: value


def script(spec: Spec, path: Path) -> Operator:
    """Commands of a CSV file without a head: from which time on, s, and the numbers."""
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise ValueError(f"There is no script to read in {path}: {why}.") from None
    names = ", ".join(("time", *(channel.name for channel in spec.command)))
    rows: list[list[float]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where, row = f"Line {number} of {path}", _numbers(line)
        if len(row) != 1 + len(spec.command):
            raise ValueError(
                f"{where} is {line[:40]!r}; it needs these numbers, with commas between: {names}."
            )
        if not 0 <= row[0] < np.inf:
            raise ValueError(f"{where} has a time that is no finite number from 0 on.")
        if rows and row[0] <= rows[-1][0]:
            raise ValueError(f"{where} is no later than the line before.")
        _check_range(spec, np.array(row[1:]), where)
        rows.append(row)
    if not rows:
        raise ValueError(f"{path} is empty; its lines need these numbers: {names}.")
    found = np.array(rows)
    times, values = found[:, 0] - 1e-6, found[:, 1:]  # a time on a tick is that tick's
    none = np.zeros(len(spec.command))

    def at(t: float) -> np.ndarray:
        i = int(np.searchsorted(times, t, side="right")) - 1
        return values[i] if i >= 0 else none

    return at


def _numbers(line: str) -> list[float]:
    """Those of a line of a CSV file; none if something else is there."""
    try:
        return [float(x) for x in line.split(",")]
    except ValueError:
        return []


def _check_range(spec: Spec, numbers: np.ndarray, whose: str) -> None:
    """Raise unless a policy was trained to be told these numbers [C]."""
    for channel, x in zip(spec.command, numbers, strict=True):
        if not channel.low - ROUNDING <= x <= channel.high + ROUNDING:
            raise ValueError(
                f"{whose} asks for {x:g} {channel.unit} of {channel.name}; "
                f"it goes from {channel.low:g} to {channel.high:g}."
            )
