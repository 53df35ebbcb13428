"""What an expert reads, in an observation: an expert is then a policy like any other."""

from typing import NamedTuple

from envs.manipulation.tabletop import Memory
from rl.types import Obs, PyTree, Readings

SCRIPT = "script"  # the entry of an observation; no view of policy or critic has it


class Script(NamedTuple):
    """All that the robot itself has."""

    told: Readings
    command: PyTree
    memory: Memory


def read(seen: Obs, readings: Readings, command: PyTree, memory: Memory) -> Obs:
    """An observation with a `Script`."""
    told = Script(readings, command, memory)
    return (seen if isinstance(seen, dict) else {"policy": seen}) | {SCRIPT: told}
