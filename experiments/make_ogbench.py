"""OGBench's sets of a cube and of a maze, by the oracles in its package.

python -m experiments.make_ogbench --out data/cube.npz
python -m experiments.make_ogbench --set pointmaze-medium-navigate --episodes 100 --out data/m.npz
python -m experiments.offline --env ogbench:cube-single-singletask-v0 --data data/cube.npz

Episodes have no end of their own (Park et al. 2024, arXiv:2410.20092): what was to be moved goes
elsewhere once it is there.  Rewards are those of one task: 0 where its goal is met, -1 elsewhere.
"""

import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from envs.adapters.foreign import Foreign
from experiments import cli, play
from rl import manifest
from rl.data import npz, ogbench
from rl.data.dataset import Dataset
from rl.policy import uniform

JUDGED = 50  # episodes that say what a task is worth to its oracle, and to chance
NEAR = 0.04  # m, of a cube to its goal


@dataclass(frozen=True)
class Args:
    set: Literal["cube-single-play", "pointmaze-medium-navigate"] = "cube-single-play"
    task: int = 0  # whose goal is rewarded, of OGBench's five; 0: its default
    episodes: int = 1_000
    rows: int = 1_001  # of an episode, of which the last is no step
    noise: float | None = None  # of the oracle; None: OGBench's, 0.1 of a plan and 0.5 of a point
    seed: int = 0
    out: Path = Path("data/ogbench.npz")  # that is not there yet


class Mover:
    """Takes a cube to its goal along a plan, and elsewhere when that is over."""

    at = slice(14, 17)  # of qpos: where the cube is
    usual = 0.1  # noise of the plan
    options: dict[str, Any] | None = None  # of a reset

    def __init__(self, env: Any, noise: float) -> None:
        from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle

        self.env, self.plan = env, CubePlanOracle(env=env, noise=noise)

    @property
    def goal(self) -> tuple[np.ndarray, float]:
        """Where it is, and how near to it is there."""
        return self.env.unwrapped._data.mocap_pos[0], NEAR

    def begin(self, info: dict[str, Any]) -> None:
        world = self.env.unwrapped._data
        w, x, y, z = world.mocap_quat[0]
        yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
        asked = {"block": 0, "block_pos": world.mocap_pos[0].copy(), "block_yaw": np.array([yaw])}
        self.plan.reset(None, info | {f"privileged/target_{name}": x for name, x in asked.items()})

    def act(self, info: dict[str, Any]) -> np.ndarray:
        return np.asarray(self.plan.select_action(None, info))

    def go_on(self, info: dict[str, Any]) -> None:
        """Elsewhere, or once more where a task has one goal, if what was planned is done."""
        if not self.plan.done:
            return
        if self.env.unwrapped._mode == "data_collection":
            _, info = self.env.unwrapped.set_new_target(p_stack=0.0)
        self.begin(info)


class Walker:
    """Goes through a maze to its goal, cell by cell, and elsewhere when it is there."""

    at = slice(0, 2)  # of qpos: where it is
    usual = 0.5  # std of what an action is off by

    def __init__(self, env: Any, noise: float) -> None:
        self.env, self.noise = env, noise
        self.cells = np.argwhere(env.unwrapped.maze_map == 0).tolist()
        self.goals = [cell for cell in self.cells if not self._between_walls(*cell)]

    @property
    def goal(self) -> tuple[np.ndarray, float]:
        """Where it is, and how near to it is there."""
        return np.asarray(self.env.unwrapped.cur_goal_xy), self.env.unwrapped._goal_tol

    @property
    def options(self) -> dict[str, Any] | None:
        if self.env.unwrapped._reward_task_id is not None:
            return None
        return {"task_info": {"init_ij": one_of(self.cells), "goal_ij": one_of(self.goals)}}

    def begin(self, info: dict[str, Any]) -> None:
        """It plans nothing."""

    def act(self, info: dict[str, Any]) -> np.ndarray:
        maze = self.env.unwrapped
        ahead = maze.get_oracle_subgoal(maze.get_xy(), maze.cur_goal_xy)[0] - maze.get_xy()
        action = ahead / (np.linalg.norm(ahead) + 1e-6)
        return action + np.random.normal(0, self.noise, action.shape)

    def go_on(self, info: dict[str, Any]) -> None:
        if info["success"]:
            self.env.unwrapped.set_goal(one_of(self.goals))

    def _between_walls(self, i: int, j: int) -> bool:
        """Whether a cell is part of a straight passage: nobody needs to go there."""
        maze = self.env.unwrapped.maze_map
        sides = (maze[i - 1, j], maze[i + 1, j]), (maze[i, j - 1], maze[i, j + 1])
        return {*sides} == {(0, 0), (1, 1)}


def one_of(cells: list[Any]) -> tuple[int, int]:
    return tuple(cells[np.random.randint(len(cells))])


def main(args: Args) -> None:
    cli.at_least(1, args, "episodes")
    cli.at_least(2, args, "rows")
    cli.at_least(0, args, "seed")
    if not 0 <= args.task <= 5:
        raise ValueError(f"--task is {args.task}; OGBench has 1 to 5, and 0 is its default.")
    if args.noise is not None and not 0 <= args.noise < np.inf:
        raise ValueError(f"--noise is {args.noise}; it takes a number of at least 0.")
    npz.require_writable(args.out)
    name, task = args.set.rpartition("-")[0], f"task{args.task}-" * bool(args.task)
    rewarded = Foreign(f"ogbench:{name}-singletask-{task}v0")
    kind: Any = Mover if args.set == "cube-single-play" else Walker
    expert = kind(rewarded.made(), 0.0)  # which also says if OGBench is not there
    print(f"judging  its oracle and chance, by {JUDGED} episodes each", flush=True)
    scores = {"random": chance(rewarded), "expert": skill(expert)}
    options = {"mode": "data_collection"} if kind is Mover else {}
    env = Foreign(f"ogbench:{name}-v0").made(
        max_episode_steps=args.rows, terminate_at_goal=False, **options
    )
    noise = kind.usual if args.noise is None else args.noise
    print(f"making   {args.episodes} episodes of {args.rows - 1:,} steps", flush=True)
    goal, tolerance = expert.goal
    facts = {"task": rewarded.id, "env": rewarded, "by": "expert", "set": args.set,
             "noise": noise, "seed": args.seed, "scores": scores}  # fmt: skip
    arrays = recorded(kind(env, noise), args.seed, args.episodes)
    data = ogbench.made(
        "What was made", arrays, manifest.plain(facts), tuple(goal.tolist()), kind.at, tolerance
    )
    sha256 = npz.write(args.out, data)
    tell(data)
    print(f"sha256   {sha256}\ndata     {args.out}")


def recorded(oracle: Any, seed: int, episodes: int) -> dict[str, np.ndarray]:
    """Rows of episodes, as OGBench has them."""
    begun, lives = time.monotonic(), []
    for i in range(episodes):
        lives.append(lived(oracle, int(np.random.SeedSequence([seed, i]).generate_state(1)[0])))
        if (i + 1) % max(episodes // 10, 1) == 0:
            print(f"         {i + 1} in {time.monotonic() - begun:.0f} s", flush=True)
    return {name: np.concatenate([life[name] for life in lives]) for name in lives[0]}


def lived(oracle: Any, seed: int) -> dict[str, np.ndarray]:
    """Rows of an episode, until its time is over."""
    np.random.seed(seed)  # of the oracles, and of where they go
    obs, info = oracle.env.reset(seed=seed, options=oracle.options)
    oracle.begin(info)
    rows, over = defaultdict(list), False
    while not over:
        action = np.clip(oracle.act(info), -1, 1)
        after, reward, terminated, truncated, info = oracle.env.step(action)
        over = terminated or truncated
        if not over:  # a goal that is met at last stays the episode's
            oracle.go_on(info)
        row = {"observations": obs, "actions": action, "terminals": over, "rewards": reward}
        for name, x in (row | {"qpos": info["prev_qpos"], "success": info["success"]}).items():
            rows[name].append(x)
        obs = after
    return {name: np.array(x, bool if name == "terminals" else np.float32)
            for name, x in rows.items()}  # fmt: skip


def skill(oracle: Any) -> dict[str, float]:
    """What a task is worth to its oracle without noise."""
    lives = [lived(oracle, i) for i in range(JUDGED)]
    found = {"return": [x["rewards"].sum() for x in lives]}
    found["success"] = [x["success"][-1] for x in lives]
    return {name: float(np.mean(x)) for name, x in found.items()}


def chance(task: Foreign) -> dict[str, float]:
    """And what it is to actions of chance."""
    env = task.world()
    found = jax.jit(lambda: play.judged(env, uniform(env.action_dim), (), JUDGED))()
    told = {"return": found.returns, "success": found.final["success"]}
    env.close()
    return {name: float(jnp.mean(x)) for name, x in told.items()}


def tell(data: Dataset) -> None:
    """What was made, and what its task is worth."""
    print(f"episodes {len(data.starts)}, {len(data.steps['reward']):,} steps in all")
    met = np.maximum.reduceat(~data.steps["mask"], data.starts).mean()
    print(f"data     the goal is met in {met:.1%} of the episodes, by the way")
    for who, score in data.facts["scores"].items():
        print(f"{who:8} success {score['success']:.1%}, return {score['return']:.1f}")


if __name__ == "__main__":
    cli.guard(lambda: main(tyro.cli(Args, prog="python -m experiments.make_ogbench")))
