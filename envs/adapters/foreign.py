"""Tasks of others, by the id that Gymnasium has for their environments: `module:Name-v0`."""

import math
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces

from envs import render
from envs.adapters.from_gymnasium import FromGymnasium, from_gymnasium
from rl import rollout
from rl.policy import Policy
from rl.types import Params

SUCCESS = "success", "is_success"  # what is called so in a step's info
COLON = ":"  # in the names of these, and in no other's
NAMED = re.compile(r"[A-Za-z_][\w.]*:[^\s:]+")


class Seeded(gymnasium.Wrapper):
    """Seeds the other generators that environments draw of: numpy's own, and the actions'.

    Its spaces are made once: some environments make one, and warn, each time they are asked.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.action_space, self.observation_space = env.action_space, env.observation_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            np.random.seed(seed)
            self.action_space.seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its own making
            return super().reset(seed=seed, options=options)


@dataclass(frozen=True)
class Foreign:
    """An environment that `id`'s module registers; policies are judged in it, none learns there."""

    id: str

    def made(self, **options: Any) -> Any:
        """The environment; ValueError where there is none."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # likewise
                return Seeded(gymnasium.make(self.id, disable_env_checker=True, **options))
        except Exception as error:  # whatever a module makes of itself
            text = " ".join(str(error).split())
            if isinstance(error, ModuleNotFoundError) and not options:
                text += ". Install the package that has it"
            raise ValueError(
                f"{self.id} cannot be made: {type(error).__name__}: {text}."
            ) from error

    def world(self) -> FromGymnasium:
        """As many worlds as each reset asks for, in each of which "success" is told if it is."""
        probe = self.made()
        box, limit = probe.action_space, probe.spec and probe.spec.max_episode_steps
        if not isinstance(box, spaces.Box) or not box.is_bounded():
            raise ValueError(f"{self.id} takes actions of {box}: a Box with bounds is needed.")
        if not limit:
            raise ValueError(
                f"{self.id} has no end: register it with max_episode_steps, as long as an episode "
                "may take."
            )
        probe.reset(seed=0)
        info = probe.step(np.zeros_like(box.low))[-1]
        probe.close()
        tells = dict(zip(["success"], [name for name in SUCCESS if name in info], strict=False))
        return from_gymnasium(self.made, None, tells=tells, task=self)

    def film(
        self, path: Path, env: FromGymnasium, policy: Policy, params: Params, seconds: float
    ) -> str:
        """Write an episode as mp4, at most so many s of it, as it draws itself; what to say."""
        dt = env.control_dt if math.isfinite(env.control_dt) else 1 / 25
        stride, fps = render.pace(dt)
        try:
            theirs = self.made(render_mode="rgb_array")
            alone = from_gymnasium(lambda: theirs, 1, rescale=env.rescale)
            worlds = rollout.start(alone, policy, params, jax.random.key(0), 1)
            step = jax.jit(
                lambda worlds, key: rollout.collect(alone, policy, params, worlds, key, 1)
            )
            pictures, total = [theirs.render()], 0.0
            for t in range(1, math.ceil(seconds / dt)):
                worlds, seen, ends = step(worlds, jax.random.key(t))
                total += float(seen.reward.sum())
                if ends.ended.any():  # and begun anew
                    break
                if not t % stride:
                    pictures.append(theirs.render())
            alone.close()
            render.write(path, np.stack(pictures), fps)
        except Exception as error:  # of any package: what draws may lack anything
            return f"no video: {self.id} cannot be drawn: {' '.join(str(error).split())}"
        return f"video    {path} (return {total:.1f})"


def foreign(id: str) -> Foreign:
    """The task of that id; ValueError where it can be none."""
    if not NAMED.fullmatch(id):
        raise ValueError(f"{id} names no environment: MODULE:ID does, as gymnasium:Pendulum-v1.")
    return Foreign(id)
