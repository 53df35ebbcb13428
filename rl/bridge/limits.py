"""How much a robot may do before it is held or damped: numbers, each with what it takes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    speed: float = 1.0  # share of the joints' speeds that targets may move at
    torque: float = 1.0  # times a motor's own, and its rate's, that a target may ask for
    acceleration: float = 1.0  # times the joints' own
    damping: float = 2.0  # N m s/rad, of each motor that is damped
    state_age: float = 0.1  # s, of a state that may still be acted upon
    plan_age: float = 2.5  # periods since the last target was due, in which it is held
    operator_age: float = 0.2  # s of silence of who drives it
    hold_s: float = 0.5  # s that a walker is held before it is damped, unless it stands still
    max_tilt: float = 180.0  # degrees, if the policy's task has no less
    beyond: float = 0.1  # rad or m that a joint may be beyond its range
    tracking: float = 0.8  # rad or m that a joint may be from where it is wished to be ...
    tracking_s: float = 0.25  # ... for so many s
    loss: float = 0.3  # share of the states that may be lost in half a second
    heat: float = 85.0  # degrees C of a motor
    late: float = 0.01  # s that a tick may begin late; three times in a second are too often
    missed: float = 0.25  # share of ticks that may be left out in the 2 s before it is armed
    clears: int = 3  # times in an hour that a fault which nobody asked for may be cleared
    stand_s: float = 2.5  # s to go from where it is to its rest, at least
    blend_s: float = 1.0  # s from there to the policy's targets

    def check(self) -> None:
        """Raise ValueError unless each limits something, and not all."""
        for name, least, most, unit in (
            ("speed", 0.01, 1, "as a share"),
            ("torque", 0.01, 100, "times"),
            ("acceleration", 0.01, 100, "times"),
            ("damping", 0.01, 100, "N m s/rad"),
            ("state_age", 0.001, 10, "s"),
            ("plan_age", 0.1, 1000, "periods"),
            ("operator_age", 0.01, 10, "s"),
            ("hold_s", 0, 10, "s"),
            ("max_tilt", 0.1, 180, "degrees"),
            ("beyond", 0.001, 1, "rad or m"),
            ("tracking", 0.001, 10, "rad or m"),
            ("tracking_s", 0.001, 10, "s"),
            ("loss", 0.01, 1, "as a share"),
            ("heat", 30, 150, "degrees C"),
            ("late", 0.0001, 10, "s"),
            ("missed", 0.01, 1, "as a share"),
            ("clears", 0, 1e6, "times"),
            ("stand_s", 0, 60, "s"),
            ("blend_s", 0, 60, "s"),
        ):
            if not least <= getattr(self, name) <= most:
                flag, has = f"--limits.{name.replace('_', '-')}", getattr(self, name)
                raise ValueError(f"{flag} is {has}; it takes {least:g} to {most:g} {unit}.")
