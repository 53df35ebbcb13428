"""OGBench's sets of a cube and of a maze, by the oracles in its package.

python -m experiments.make_ogbench --out data/cube.npz
python -m experiments.make_ogbench --set pointmaze-medium-navigate --episodes 100 --out data/maze.npz
python -m experiments.offline --env ogbench:cube-single-singletask-v0 --data data/cube.npz

Episodes have no end of their own (Park et al. 2024, arXiv:2410.20092): what was to be moved goes
elsewhere once it is there.  Rewards are those of one task, 0 where its goal is met and -1 elsewhere.
"""

import time
from collections import defaultdict
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from envs.adapters.foreign import Foreign
from experiments import play
from experiments.cli import at_least, guard
from rl import manifest
from rl.data import npz, ogbench
from rl.policy import uniform

JUDGED = 50  # episodes that say what a task is worth to its oracle, and to chance
KINDS = {"terminals": bool}  # of rows; all else is float32

Name = Literal["cube-single-play", "pointmaze-medium-navigate"]


@dataclass(frozen=True)
class Args:
    set: Name = "cube-single-play"
    task: int = 0  # whose goal is rewarded, of OGBench's five; 0: its default
    episodes: int = 1_000
    rows: int = 1_001  # of an episode, of which the last is no step
    noise: float | None = None  # of the oracle; None: OGBench's, 0.1 of a plan and 0.5 of a point
    seed: int = 0
    out: Path = Path("data/ogbench.npz")  # that is not there yet


class Oracle(Protocol):
    """Who acts in OGBench's environment `env`, for one goal after another."""

    env: Any

    def begin(self, info: dict[str, Any]) -> None: ...

    def act(self, info: dict[str, Any]) -> np.ndarray: ...

    def go_on(self, info: dict[str, Any]) -> None:
        """To another goal, if that is met."""


class Mover:
    """Takes a cube to its goal along a plan, and to another when that is over."""

    at = slice(14, 17)  # of qpos: where the cube is
    options: dict[str, Any] | None = None

    def __init__(self, env: Any, noise: float) -> None:
        from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle

        self.env = env
        self.plan = CubePlanOracle(env=env, noise=noise)

    def goal(self) -> tuple[np.ndarray, float]:
        return self.env.unwrapped._data.mocap_pos[0], 0.04

    def begin(self, info: dict[str, Any]) -> None:
        world = self.env.unwrapped._data
        w, x, y, z = world.mocap_quat[0]
        yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
        asked = {"block": 0, "block_pos": world.mocap_pos[0].copy(), "block_yaw": np.array([yaw])}
        self.plan.reset(None, info | {f"privileged/target_{name}": x for name, x in asked.items()})

    def act(self, info: dict[str, Any]) -> np.ndarray:
        return np.asarray(self.plan.select_action(None, info))

    def go_on(self, info: dict[str, Any]) -> None:
        if not self.plan.done:
            return
        if self.env.unwrapped._mode == "data_collection":
            _, info = self.env.unwrapped.set_new_target(p_stack=0.0)
        self.begin(info)


class Walker:
    """Goes through a maze to its goal, cell by cell, and to another when it is there."""

    at = slice(0, 2)  # of qpos: where it is

    def __init__(self, env: Any, noise: float) -> None:
        self.env, self.noise = env, noise
        free = np.argwhere(env.unwrapped.maze_map == 0)
        self.cells = [tuple(cell) for cell in free.tolist()]
        self.goals = [cell for cell in self.cells if not self._between_walls(*cell)]

    def goal(self) -> tuple[np.ndarray, float]:
        return np.asarray(self.env.unwrapped.cur_goal_xy), self.env.unwrapped._goal_tol

    @property
    def options(self) -> dict[str, Any] | None:
        if self.env.unwrapped._reward_task_id is not None:
            return None
        return {"task_info": {"init_ij": one_of(self.cells), "goal_ij": one_of(self.goals)}}

    def begin(self, info: dict[str, Any]) -> None: ...

    def act(self, info: dict[str, Any]) -> np.ndarray:
        maze = self.env.unwrapped
        ahead = maze.get_oracle_subgoal(maze.get_xy(), maze.cur_goal_xy)[0] - maze.get_xy()
        action = ahead / (np.linalg.norm(ahead) + 1e-6)
        return action + np.random.normal(0, self.noise, action.shape)

    def go_on(self, info: dict[str, Any]) -> None:
        if info["success"]:
            self.env.unwrapped.set_goal(one_of(self.goals))

    def _between_walls(self, i: int, j: int) -> bool:
        """Whether a cell is a part of a straight passage."""
        maze = self.env.unwrapped.maze_map
        sides = (maze[i - 1, j], maze[i + 1, j]), (maze[i, j - 1], maze[i, j + 1])
        return {*sides} == {(0, 0), (1, 1)}


def one_of(cells: list[Any]) -> Any:
    return cells[np.random.randint(len(cells))]


ORACLES = {"cube-single-play": (Mover, 0.1), "pointmaze-medium-navigate": (Walker, 0.5)}


def main(args: Args) -> None:
    at_least(1, args, "episodes")
    at_least(2, args, "rows")
    at_least(0, args, "seed")
    if not 0 <= args.task <= 5:
        raise ValueError(f"--task is {args.task}; OGBench has 1 to 5 of each, and 0 is its default.")
    npz.require_writable(args.out)
    kind, usual = ORACLES[args.set]
    noise = usual if args.noise is None else args.noise
    name, task = args.set.rpartition("-")[0], f"task{args.task}-" * bool(args.task)
    judge = Foreign(f"ogbench:{name}-singletask-{task}v0")
    oracle = kind(judge.made(), 0.0)  # which also says if OGBench is not there
    scores = {"random": chance(judge), "oracle": mean([judged(oracle, i) for i in range(JUDGED)])}
    (goal, tolerance), options = oracle.goal(), {"terminate_at_goal": False}
    if kind is Mover:
        options["mode"] = "data_collection"
    oracle = kind(Foreign(f"ogbench:{name}-v0").made(max_episode_steps=args.rows, **options), noise)
    print(f"making   {args.episodes} episodes of {args.rows - 1:,} steps", flush=True)
    begun, runs = time.monotonic(), []
    for i in range(args.episodes):
        runs.append(lived(oracle, args.seed + i))
        if (i + 1) % max(args.episodes // 10, 1) == 0:
            print(f"         {i + 1} in {time.monotonic() - begun:.0f} s", flush=True)
    arrays = {n: np.concatenate([run[n] for run in runs]) for n in runs[0]}
    facts = {"task": judge.id, "env": judge, "by": "OGBench's oracle", "set": args.set,
             "noise": noise, "seed": args.seed, "scores": scores}  # fmt: skip
    data = ogbench.made(
        "What was made", arrays, manifest.plain(facts), tuple(goal.tolist()), kind.at, tolerance
    )
    print(f"sha256   {npz.write(args.out, data)}\ndata     {args.out}")
    met = np.mean([not x["mask"].all() for x in [data.chosen(np.array([i])).steps for i in range(args.episodes)]])
    for who, score in scores.items():
        print(f"{who:8} success {score['success']:.1%}, return {score['return']:.1f}")
    print(f"data     {met:.1%} of the episodes come to the task's goal")


def lived(oracle: Any, seed: int) -> dict[str, np.ndarray]:
    """Rows of an episode as OGBench has them, until its time is over."""
    run: dict[str, list[Any]] = defaultdict(list)
    np.random.seed(seed)  # of the oracles, and of where a point begins
    obs, info = oracle.env.reset(seed=seed, options=oracle.options)
    oracle.begin(info)
    over = False
    while not over:
        action = np.clip(oracle.act(info), -1, 1)
        after, reward, ended, cut, info = oracle.env.step(action)
        over = ended or cut
        oracle.go_on(info)
        row = {"observations": obs, "actions": action, "terminals": over, "rewards": reward}
        row |= {"qpos": info["prev_qpos"], "successes": info["success"]}
        for name, x in row.items():
            run[name].append(x)
        obs = after
    return {n: np.array(x, KINDS.get(n, np.float32)) for n, x in run.items()}


def judged(oracle: Any, seed: int) -> dict[str, float]:
    """What an episode of a task is worth to its oracle."""
    run = lived(oracle, seed)
    return {"return": float(run["rewards"].sum()), "success": float(run["successes"][-1])}


def mean(scores: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([x[name] for x in scores])) for name in scores[0]}


def chance(task: Foreign) -> dict[str, float]:
    """And what to actions of chance."""
    env = task.world()
    found = jax.jit(lambda: play.judged(env, uniform(env.action_dim), (), JUDGED))()
    env.close()
    told = {"return": found.returns, "success": found.final["success"]}
    return {name: float(jnp.mean(x)) for name, x in told.items()}


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m experiments.make_ogbench")))
