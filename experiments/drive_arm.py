"""Episodes of an arm's task through the bridge: what is asked of it, and what came of it.

`experiments.drive` does a walker's tour; an arm instead begins episode after episode, its things
and goals drawn from where they are when a policy is judged, though not the same ones.
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import envs
from envs.manipulation.tabletop import Tabletop
from envs.simulation import Simulation
from experiments import play
from rl import runs
from rl.artefact import Artefact
from rl.types import Array


class Starts(NamedTuple):
    """Of E episodes."""

    qpos: np.ndarray  # [E, nq]
    qvel: np.ndarray  # [E, nv]
    command: np.ndarray  # [E, C]; C is 0 where nothing is asked for


class Verdict(NamedTuple):
    """What a task says of logged episodes, as it would have in training."""

    achieved: Any  # [T, E, C] what the command asks for, as it was
    there: Any  # [T, E] bool, the task is done now
    success: Any  # [T, E] bool, and has been for as long as counts


def arm_of(run: Path, name: str) -> Simulation | None:
    """The simulation of a run, or of an artefact's task, if it is an arm's."""
    if name not in envs.names() or not hasattr(envs.make_task(name), "table"):
        return None
    home = run if run.is_dir() else run.parent
    env = play.load(home)[0] if (home / "manifest.json").exists() else envs.make(name)
    return env if isinstance(getattr(env.task, "table", None), Tabletop) else None


def starts(env: Simulation, count: int) -> Starts:
    keys = jax.random.split(jax.random.key(play.EVAL_SEED), count)
    drawn = jax.vmap(lambda key: env.task.reset(key, env.task.context()))(keys)
    asked = drawn.command if env.task.spec.command else jnp.zeros((count, 0))
    return Starts(*map(np.asarray, (drawn.qpos, drawn.qvel, asked)))


def written(to: Path, begun: Starts, seconds: float, own: Path | None) -> tuple[Path, Path]:
    """Files TO-starts.npz and TO.csv of the starts and of what is asked, by `own` or as drawn."""
    first, script = to.with_name(f"{to.name}-starts.npz"), to.with_suffix(".csv")
    np.savez(first, qpos=begun.qpos, qvel=begun.qvel)
    rows = [(i * seconds, *asked) for i, asked in enumerate(begun.command)]
    text = "".join(",".join(f"{x:.9g}" for x in row) + "\n" for row in rows)
    runs.write(script, own.read_bytes() if own else text.encode())
    return first, script


def judged(env: Simulation, qpos: Any, qvel: Any, command: Any) -> Verdict:
    """Of episodes that are logged as [T, E, ...]."""
    task, physics = env.task, env.physics
    action, key = jnp.zeros(env.action_dim), jax.random.key(0)
    begun = task.reset(key, task.context())

    def tick(episode: Any, now: Any) -> Any:
        qpos, qvel, asked = now
        asked = asked if isinstance(begun.command, jax.Array) else begun.command
        raw = physics.read(physics.reset(physics.blank(), jnp.bool(True), qpos, qvel, {}))
        _, metrics = task.reward(raw, raw, action, asked, episode)
        _, episode, _ = task.advance(key, raw, action, asked, episode)
        found = [raw[name][:count] for name, count in task.spec.achieved]
        achieved = jnp.concatenate(found) if found else jnp.zeros(0)
        return episode, Verdict(achieved, metrics["there"], metrics["success"])

    def one(qpos: Array, qvel: Array, command: Array) -> Any:
        return jax.lax.scan(tick, begun.episode, (qpos, qvel, command))[1]

    replay = jax.jit(jax.vmap(one, 1, 1))
    return jax.device_get(replay(*map(jnp.asarray, (qpos, qvel, command))))


def by_episode(log: dict[str, Any], count: int) -> dict[str, np.ndarray]:
    """A log's rows as [T, E, ...]; ValueError where an episode was cut short."""
    if len(log["time"]) % count:
        raise ValueError(f"The log has {len(log['time'])} rows, and not {count} whole episodes.")
    each = (
        count,
        len(log["time"]) // count,
    )  # told, as a task may ask for nothing: rows of no numbers
    return {name: x.reshape(*each, *x.shape[1:]).swapaxes(0, 1) for name, x in log.items()}


def line(x: np.ndarray) -> np.ndarray:
    """[T, E, ...] as one row of episodes [E T, ...]."""
    return x.swapaxes(0, 1).reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def captions(found: Artefact, log: dict[str, Any], verdict: Verdict) -> list[str]:
    """What is asked, in brackets what came of it, and whether it is done; episode by episode."""
    said, rows = [], (log["command"], verdict.achieved, verdict.success)
    for asked, achieved, done in zip(*map(line, rows), strict=True):
        told = [
            f"{c.name} {x:+.2f} ({y:+.2f}) {c.unit}"
            for c, x, y in zip(found.spec.command, asked, achieved, strict=False)
        ]
        said.append("   ".join([*told, "done" if done else ""]))
    return said


def contacts(env: Simulation, force: np.ndarray) -> dict[str, np.ndarray]:
    """When fingers and things touched something [T] bool, by their names."""
    model, arm = env.task.model(), env.task.table.arm  # type: ignore[attr-defined]
    links = {link.name for link in (arm.base, *arm.links, arm.hand)}
    found: dict[str, np.ndarray] = {}
    for geom in np.flatnonzero(model.geom_bodyid):
        body = model.body(model.geom_bodyid[geom]).name
        if body not in links:
            found[body] = found.get(body, np.zeros(len(force), bool)) | (force[:, geom] > 0)
    return found


def plot(
    path: Path, found: Artefact, env: Simulation, log: dict[str, Any], verdict: Verdict
) -> Path:
    """What was asked for and came of it, when the task was done, contacts, and torques."""
    from matplotlib.figure import Figure  # slow to import

    torque, contact, asked = (line(log[name]) for name in ("torque", "contact", "command"))
    achieved, t = line(verdict.achieved), found.spec.control_dt * np.arange(len(torque))
    channels = found.spec.command
    figure = Figure(figsize=(9, 3.6 + 1.5 * len(channels)), layout="constrained")
    axes = figure.subplots(len(channels) + 3, 1, sharex=True)
    for i, channel in enumerate(channels):
        axes[i].plot(t, achieved[:, i], lw=0.9, label="achieved")
        axes[i].step(t, asked[:, i], where="post", color="k", lw=1, label="asked for")
        axes[i].set_ylabel(f"{channel.name}\n{channel.unit}")
    if channels:
        axes[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)
    done, touch, pull = axes[len(channels) :]
    for row, on in enumerate((verdict.there, verdict.success)):
        done.fill_between(t, row, row + 0.8, where=line(on) > 0, step="post", lw=0)
    done.set_yticks((0.4, 1.4), ("there", "success"))
    touched = contacts(env, contact)
    for row, on in enumerate(touched.values()):
        touch.fill_between(t, row, row + 0.8, where=on, step="post", lw=0)
    touch.set_yticks(np.arange(len(touched)) + 0.4, touched)
    touch.set_ylabel("contacts")
    limits = np.array([actuator.torque for actuator in found.spec.actuators])
    pull.plot(t, 100 * np.abs(torque / limits), lw=0.5)
    pull.set_ylabel("torque,\n% of limit")
    pull.set_xlabel("s; grey: an episode begins")
    for axis in axes:
        axis.grid(alpha=0.3)
        for start in t[:: len(verdict.there)]:
            axis.axvline(start, color="0.6", lw=0.8)
    figure.savefig(path, dpi=120)
    return path
