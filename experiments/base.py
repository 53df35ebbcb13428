"""The policy that another is built upon: that of a run, held to what a task shows and takes."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs import World, checks
from envs.simulation import Simulation
from experiments import cli, play
from rl import residual, runs
from rl.checkpoint import fingerprint
from rl.data.dataset import Dataset, named
from rl.data.sampling import tree
from rl.policy import Policy
from rl.residual import BASE, Assisted
from rl.types import Key, Params, PyTree

# What agents that learn above a base have, and the experiments that they have it for.
HOMES = {
    "beginner": "finetune", "planner": "finetune_ppo", "alone": "residual", "ppo": "residual_ppo",
}  # fmt: skip


class Interface(NamedTuple):
    """What lies between a policy and its robot."""

    observation: str
    normaliser: str
    action: str
    chunk: str
    rate: str

    def __str__(self) -> str:
        return "; ".join(f"{name} {told}" for name, told in self._asdict().items())


class Base(NamedTuple):
    params: Params
    facts: dict[str, Any]  # that a manifest has of it


def require_able(agent: Any, way: str) -> None:
    """Raise ValueError unless an agent has what the experiment that calls this asks of it."""
    if hasattr(agent, way):
        return
    who = type(agent).__name__
    able = ", ".join(name for name in cli.agent_names() if hasattr(cli.agent(name), way))
    other = [home for ability, home in HOMES.items() if hasattr(agent, ability)]
    told = "".join(f"; {who} is for python -m experiments.{home}" for home in other)
    raise ValueError(f"{who} does not learn above a base here: {able} can{told}.")


def base(args: Any, env: World) -> Base:
    """The parameters of `--base`; ValueError unless it fits the task, or on a resume is another."""
    run = args.base
    if run is None:
        raise ValueError(f"{cli.NO_BASE}.")
    try:
        theirs, _, found = play.load_all(run, most=1)
    except ValueError as error:
        raise ValueError(cli.no_base(error)) from error
    require_fit(run, theirs, env, args.agent.base, found[0])
    sha256 = fingerprint(found[0])
    told = runs.read_manifest(args.out).get("base", {}) if args.resume else {}
    if told.get("sha256", sha256) != sha256:
        raise ValueError(
            f"{args.out} was begun above another policy than is in {run} now: it had "
            f"{told['sha256'][:12]}, and this is {sha256[:12]}."
        )
    return Base(found[0], {"base": {"run": str(run), "sha256": sha256}})


def require_fit(run: Path, theirs: World, env: World, agent: Any, params: Params) -> None:
    """Raise ValueError where a run's policy sees, does or is asked at other times than is to be."""
    checks.same_actions(f"--base {run}", theirs, env)
    then = interface(theirs, agent, params)
    key = jax.random.key(0)
    fresh = jax.eval_shape(lambda: agent.deploy(agent.init(key, blank(env), action(env))))
    now = interface(env, agent, fresh)
    if then != now:
        parts = [n for n, x, y in zip(then._fields, then, now, strict=True) if x != y]
        raise ValueError(
            f"--base {run} does not fit this task: another {', '.join(parts)}.\n  base  {then}\n"
            f"  task  {now}"
        )


def blank(env: World) -> PyTree:
    """An observation of nothing."""
    like = jax.eval_shape(env.reset, jax.random.key(0)).obs
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)


def action(env: World) -> jax.Array:
    return jnp.zeros(env.action_dim)


def interface(env: World, agent: Any, params: Params) -> Interface:
    """That of a policy in an environment."""
    spec: Any = getattr(env.task, "spec", None)
    seen = named(jax.eval_shape(env.reset, jax.random.key(0)).obs)
    stats = [x.shape for name, x in named(params).items() if name.endswith("mean")]
    chunks = getattr(agent, "chunks", None)
    names = spec and (spec.actions or spec.actuators)
    kind = getattr(env.task, "actions", "")
    return Interface(
        observation=", ".join(
            f"{name} {list(x.shape)}".strip()
            for name, x in seen.items()
            if name != "critic"  # which no policy sees
        ),
        normaliser=", ".join(str(list(shape)) for shape in stats) or "none",
        action=f"[{env.action_dim}] " + " ".join([*(names or ()), *[f"({kind})"] * bool(kind)]),
        chunk=f"of {chunks.horizon}, {chunks.execute} done, seeing {chunks.history}"
        if chunks
        else "none",
        rate=f"{1 / env.control_dt:g} Hz",
    )


def assisted(args: Any, env: Simulation, learner: PyTree) -> Assisted:
    """The world as a residual sees it: with the base in it."""
    return Assisted(env, args.agent.base.policy(False, env.action_dim), learner.base)


def learners(args: Any, env: World, found: Base) -> PyTree:
    """What each seed begins with above it: leaves [seeds, ...]."""

    def one(key: Key) -> PyTree:
        return args.agent.init(key, blank(env), action(env), found.params)

    keys = jax.vmap(jax.random.key)(jnp.arange(args.seed, args.seed + args.seeds))
    return jax.jit(jax.vmap(one))(keys)


def along(data: Dataset, policy: Policy, params: Params) -> Dataset:
    """A dataset with what a base would have done in the place of who is recorded, at every step
    and after the last: obs is then that of a `residual.Assisted` world."""
    lengths, starts, episode = data.episodes["length"], data.starts, data.episode
    most = int(lengths.max()) + 1
    at = np.arange(most)
    rows = starts[:, None] + np.minimum(at, lengths[:, None] - 1)
    over = at >= lengths[:, None]

    def whole(name: str, x: np.ndarray) -> np.ndarray:
        """Episodes [E, most, ...], each followed by its last observation."""
        last = data.episodes[f"last_{name}"][:, None]
        return np.where(over.reshape(*over.shape, *[1] * (x.ndim - 1)), last, x[rows])

    parts = {name: whole(name, x) for name, x in data.parts("obs").items()}
    seen = parts["obs"] if "obs" in parts else tree(parts, "obs")
    keys = jax.random.split(jax.random.key(0), len(lengths))
    walk = jax.jit(jax.vmap(lambda obs, key: residual.followed(policy, params, obs, key)))
    done = np.asarray(walk(seen, keys), np.float32)
    renamed = {n: n if "/" in n else "obs/policy" for n in parts}
    steps = {renamed.get(n, n): x for n, x in data.steps.items()}
    episodes = {
        f"last_{renamed[n[5:]]}" if n[5:] in renamed else n: x for n, x in data.episodes.items()
    }
    index = np.arange(len(episode)) - starts[episode]
    steps[f"obs/{BASE}"] = done[episode, index]
    episodes[f"last_obs/{BASE}"] = done[np.arange(len(lengths)), lengths]
    return Dataset(steps, episodes, data.facts)
