"""Programs as policies: an agent that is one is told of its task once that is known."""

from dataclasses import replace
from functools import partial
from typing import Any

import envs
from agents.scripted import Scripted
from envs.manipulation.expert import Expert
from rl.policy import Policy


def found(agent: Any, task: Any) -> Any:
    """`agent`, or who learns above it, with the task's program if that is what it is."""
    if getattr(agent, "base", None) is not None:
        return replace(agent, base=found(agent.base, task))
    return replace(agent, program=partial(program, task)) if isinstance(agent, Scripted) else agent


def shown(task: Any) -> Any:
    """`task` showing what its program reads; ValueError where it has none."""
    if not hasattr(task, "scripted"):
        able = ", ".join(n for n in envs.names() if hasattr(envs.make_task(n), "scripted"))
        raise ValueError(f"There is no script for this task; there are for {able}.")
    return replace(task, scripted=True)


def program(task: Any, agent: Scripted) -> Policy:
    """What acts in `task` by these settings; ValueError where it cannot."""
    if not getattr(task, "scripted", False):
        raise ValueError("A script acts by what --env.scripted has a task show: give it that.")
    return Expert(agent.way, agent.speed, agent.noise, agent.mistake).policy(task)
