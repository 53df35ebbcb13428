"""Rows of PPO in worlds of ours beside MuJoCo Playground's: the same learner, here, in turn."""

import sys
from dataclasses import dataclass
from functools import partial

from benchmarks.measurement import OURS, Args, Measurement
from benchmarks.process import Python, Run, trained

PACKAGES = (*OURS, "playground", "mujoco-mjx", "warp-lang")
LARGE = (  # Playground's own for its walkers
    "--unroll", 20, "--agent.minibatches", 32, "--agent.epochs", 4,
    "--agent.hidden", 512, 256, 128, "--agent.critic-hidden", 512, 256, 128,
)  # fmt: skip


@dataclass(frozen=True)
class Duel:
    """A task of ours, its like in Playground, and how both are learned."""

    env: str
    theirs: str
    physics: str  # of ours; theirs is on the like of it, or on mjx
    worlds: int
    steps: int
    words: tuple[object, ...] = ()

    def learned(self, env: str, physics: str, seed: int) -> Run:
        """A run of PPO: its environment steps/s, compile and evaluation left out."""
        told = trained(
            "ppo", "--env", env, "--physics", physics, "--num-envs", self.worlds, "--steps",
            self.steps, "--evals", 0, "--eval-episodes", 1, "--seed", seed, *self.words,
        )  # fmt: skip
        return told | {"value": told["steps"] / told["value"]}


def playground(args: Args) -> list[Measurement]:
    """A quadruped on an accelerator; a cheetah and a cart-pole on a CPU, ours on native physics."""
    worlds, steps = args.duel_worlds or 8192, args.duel_steps or 20_000_000
    walker = "go1-joystick-flat", "playground:Go1JoystickFlatTerrain"
    small = (
        ("dmc-cheetah-run", "playground:CheetahRun"),
        ("dmc-cartpole-swingup", "playground:CartpoleSwingup"),
    )
    duels = [Duel(*walker, physics, worlds, steps, LARGE) for physics in ("mjx", "warp")]
    worlds, steps = args.duel_worlds or 64, args.duel_steps or 250_000
    duels += [Duel(*pair, "native", worlds, steps) for pair in small]
    here = Python(sys.executable, PACKAGES)
    return [
        Measurement(
            f"playground/{duel.env}/{duel.physics}/{duel.worlds}", "env steps/s",
            partial(duel.learned, duel.env, duel.physics),
            partial(duel.learned, duel.theirs, "warp" if duel.physics == "warp" else "mjx"),
            here,
        )
        for duel in duels
    ]  # fmt: skip
