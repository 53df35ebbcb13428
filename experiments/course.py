"""What an experiment does to one seed, and the programs that the host makes of it for all."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

import envs
from experiments import play
from rl import parallel, processes, record, rollout
from rl.agent import Agent
from rl.rollout import Worlds
from rl.types import Array, Key, Metrics, PyTree


class Run(NamedTuple):
    """All that training carries; an experiment with more to carry has a tuple of its own."""

    learner: PyTree  # the agent's state
    worlds: Worlds
    key: Key  # of the training to come
    iteration: Array  # [] int32


class Plan(NamedTuple):
    phases: int  # after each of which the host looks in
    iterations: int  # in a phase


class Course(NamedTuple):
    """What an experiment does to one seed; the host does the rest.  Any `replay` is a Buffer."""

    agent: Agent
    begin: Callable[..., Any]  # a Run, of what is `given`, a key, and what it is to `start` from
    phase: Callable[..., tuple[Any, Metrics]]  # of a run, and what is `given`
    plan: Plan
    steps: Callable[[int], int]  # of the environment, after so many iterations
    facts: Mapping[str, Any] = MappingProxyType({})  # that the manifest is to have besides
    given: tuple[PyTree, ...] = ()  # the same for all seeds: no constant of a program, if large
    start: tuple[PyTree, ...] = ()  # leaves [seeds, ...]
    look: Callable[[record.Record], None] = lambda log: None  # at the record, once all is done


def compiled(
    shards: int, course: Course, run: Any, given: tuple[PyTree, ...]
) -> Callable[..., tuple[Any, Metrics]]:
    """A phase of all seeds, which leaves all where it lies."""

    def phase(run: Any, *given: PyTree) -> tuple[Any, Metrics]:
        return over_seeds(lambda one: course.phase(one, *given))(run)

    lies = parallel.placed(shards, run)
    whole = lies and (lies, parallel.everywhere(shards))
    program = jax.jit(phase, donate_argnums=0, out_shardings=whole)
    return program.lower(run, *given).compile()


def judge(
    args: Any, env: envs.World, course: Course, run: Any, log: record.Record
) -> Callable[[int, PyTree], None]:
    """What records how good a learner is at a step; of several processes the first does."""
    policy = course.agent.policy(explore=False, action_dim=env.action_dim)

    def judged(learner: PyTree) -> rollout.Episodes:
        return play.judged(env, policy, course.agent.deploy(learner), args.eval_episodes)

    if not args.evals or not processes.first():
        return lambda step, learner: None
    program = jax.jit(over_seeds(judged, env.backend != "gymnasium"))
    program = program.lower(jax.device_get(run.learner)).compile()  # of one device

    def evaluate(step: int, learner: PyTree) -> None:
        found = jax.device_get(program(jax.device_get(learner))).sound()
        log.evaluated(step, *play.outcomes(found), metrics=found.metrics)
        log.spent("evaluate")

    return evaluate


def over_seeds(f: Callable[..., Any], together: bool = True) -> Callable[..., Any]:
    """`f` of each seed, arguments and results with leaves [seeds, ...].

    Side by side on an accelerator, if `together`.  In turn on a CPU, which that keeps as busy, and
    where a seed's numbers are then to the last bit those it would have alone.
    """
    if jax.default_backend() == "cpu" or not together:
        return lambda *args: jax.lax.map(lambda xs: f(*xs), args)
    return jax.vmap(f)
