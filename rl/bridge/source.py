"""Whose words a robot is driven by, as a command line says it."""

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

from tyro.constructors import PrimitiveConstructorSpec

from rl.bridge import commands
from rl.bridge.pilot import Script, Source
from rl.spec import Spec


def _numbers(words: list[str]) -> tuple[float, ...]:
    try:
        return tuple(map(float, words))
    except ValueError:
        raise ValueError("it takes numbers") from None


Numbers = Annotated[tuple[float, ...] | None, PrimitiveConstructorSpec(
    "*", "[FLOAT [FLOAT ...]]", _numbers, lambda x: x is None or isinstance(x, tuple),
    lambda x: ["none"] if x is None else [str(number) for number in x],
)]  # fmt: skip


class Driver(Source, Protocol):
    """Who is shown how it is."""

    def silent(self, seconds: float) -> bool:
        """Say that nothing is heard of the bridge; whether to leave."""
        ...


@dataclass(frozen=True)
class By:
    """Who drives it: one of these."""

    command: Numbers = None  # what is asked of it, all the time; may be nothing
    script: Path | None = None  # or a CSV file of times, s, and commands
    keys: bool = False  # or a keyboard's, of this terminal
    gamepad: tuple[Path, ...] | None = None  # or a gamepad's, /dev/input/js0 if no other is named
    spacemouse: tuple[Path, ...] | None = None  # or a SpaceMouse's, beside keys; found if not named
    seconds: float = 20.0  # of a command or a script, for a robot that has no end of its own

    @property
    def said(self) -> bool:
        return self.acts or bool(self.script) or self.command is not None

    @property
    def acts(self) -> bool:
        """A human has a hand on it."""
        return self.keys or (self.gamepad, self.spacemouse) != (None, None)

    def source(self, spec: Spec, terminal: bool) -> AbstractContextManager[Driver]:
        """Its words; the keys' of a `terminal`, if nobody is named.  ValueError of what makes no
        sense."""
        keys = self.keys or self.spacemouse is not None
        named = bool(self.script), self.command is not None, keys, self.gamepad is not None
        if sum(named) > 1:
            raise ValueError("--script, --command, --keys, --gamepad or --spacemouse: one of them.")
        if not 0 < self.seconds < float("inf"):
            raise ValueError(f"--seconds is {self.seconds:g}; it takes a time above 0 s.")
        if self.gamepad is not None:
            from rl.bridge.gamepad import DEVICE, Gamepad  # Linux alone

            if len(self.gamepad) > 1:
                raise ValueError("--gamepad takes one device.")
            return Gamepad(spec, *(self.gamepad or (DEVICE,)))
        if keys and not sys.stdin.isatty():
            beside = "--spacemouse takes a terminal, by whose keys a robot can be stopped: "
            raise ValueError(
                f"{beside * (not self.keys)}There is no terminal whose keys could drive it."
            )
        if keys or (terminal and not self.said):
            from rl.bridge.keys import Keys  # POSIX alone

            return Keys(spec, beside=self._beside())
        asked = (commands.script(spec, self.script) if self.script
                 else commands.constant(spec, self.command))  # fmt: skip
        return nullcontext(Script(asked, self.seconds, self.said))

    def _beside(self) -> Any:
        """What is beside the keys: it cannot stop a robot, and they can."""
        if self.spacemouse is None:
            return None
        from rl.bridge.spacemouse import SpaceMouse  # Linux alone

        if len(self.spacemouse) > 1:
            raise ValueError("--spacemouse takes one device.")
        return SpaceMouse(*self.spacemouse)
