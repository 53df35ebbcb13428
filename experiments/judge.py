"""A network that tells whether a task is done (experiments/classifier.py), as a judge of steps."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from envs.simulation import Simulation
from experiments.base import blank
from experiments.explorer import Judge, Nobody, scripted
from rl import checkpoint, nets, norm, runs
from rl.types import Array, Obs, Params, PyTree, Readings

FILE = "classifier.safetensors"


class Known(NamedTuple):
    """All that tells whether it is done."""

    net: Params
    seen: norm.Stats  # of observations
    bar: Array  # [] logit at which it is as likely as not


class Learned:
    """What it has learned, in the place of a program (experiments/explorer.py)."""

    def __init__(self, hidden: tuple[int, ...], known: Known) -> None:
        self.hidden, self.known = hidden, known

    def init(self) -> PyTree:
        return ()

    def step(self, carry: PyTree, readings: Readings, command: Array, obs: Obs) -> Any:
        return jax.nn.sigmoid(logit(self.hidden, self.known, obs) - self.known.bar), carry


def judge(success: Path | str, env: Simulation, name: str) -> Judge:
    """Who says of a robot's steps that it is done: a program of the task's, nobody, or what a run
    of experiments/classifier.py has learned."""
    if isinstance(success, Path):
        return learned(success, env, name)
    return scripted(env) if success == "task" else Nobody()


def network(hidden: tuple[int, ...]) -> nets.MLP:
    return nets.MLP((*hidden, 1), nn.tanh)  # bounded, where nothing was seen


def logit(hidden: tuple[int, ...], known: Known, obs: Obs) -> Array:
    """How sure it is [...] of observations with leaves [..., size], before its bar."""
    seen = nets.flatten(norm.normalise(known.seen, obs))
    return nets.apply(network(hidden), known.net, seen)[..., 0]


def learned(run: Path, env: Simulation, name: str) -> Judge:
    """What a run of this has learned of the same task; ValueError of another, or of damage."""
    found = runs.read_manifest(run)
    if found.get("algorithm") != "classifier" or found.get("status") != "done":
        raise ValueError(f"{run} is no run of experiments.classifier that is done.")
    if found.get("env") != name:
        raise ValueError(f"{run} tells when {found.get('env')} is done, and not {name}.")
    if not found.get("recall", 1):
        raise ValueError(f"{run} calls nothing done yet: practise on, and learn another.")
    try:
        hidden, sha256 = tuple(found["config"]["hidden"]), found["sha256"]
        net = network(hidden)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{run / 'manifest.json'} is damaged: {error!r}.") from error
    obs = blank(env)

    def fresh() -> Known:
        return Known(net.init(jax.random.key(0), nets.flatten(obs)), norm.init(obs), jnp.float32(0))

    known = checkpoint.load_params(run / FILE, jax.eval_shape(fresh))
    if checkpoint.fingerprint(known) != sha256:
        raise ValueError(f"{run / FILE} is damaged: it is not what its manifest tells.")
    return Learned(hidden, known)
