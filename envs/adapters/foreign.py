"""Tasks of others, by the id that Gymnasium has for their environments: `module:Name-v0`."""

import re
import warnings
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from envs.adapters.from_gymnasium import FromGymnasium, from_gymnasium

SUCCESS = "success", "is_success"  # what is called so in a step's info
COLON = ":"  # in the names of these, and in no other's
NAMED = re.compile(r"(?P<module>[A-Za-z_][\w.]*):[^\s:]+")


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

    def made(self, **options: Any) -> gymnasium.Env:
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


def foreign(id: str) -> Foreign:
    """The task of that id; ValueError where it can be none."""
    if not NAMED.fullmatch(id):
        raise ValueError(f"{id} names no environment: MODULE:ID does, as gymnasium:Pendulum-v1.")
    return Foreign(id)
