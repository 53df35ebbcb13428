"""Tasks of others, by the id that Gymnasium has for their environments: `module:Name-v0`."""

import warnings
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from envs.adapters.from_gymnasium import FromGymnasium, from_gymnasium

SUCCESS = "success", "is_success"  # what is called so in a step's info
COLON = ":"  # in the names of these, and in no other's


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
        except ImportError as error:
            module = self.id.partition(COLON)[0]
            raise ValueError(
                f"{self.id} needs what is not installed ({error}): install the package that has "
                f"{module}."
            ) from error
        except gymnasium.error.Error as error:
            raise ValueError(f"Gymnasium has no {self.id}: {error}") from error

    def world(self) -> FromGymnasium:
        """As many worlds as each reset asks for, in each of which "success" is told if it is."""
        probe = self.made()
        probe.reset(seed=0)
        info = probe.step(np.zeros_like(probe.action_space.sample()))[-1]
        probe.close()
        tells = dict(zip(["success"], [name for name in SUCCESS if name in info], strict=False))
        return from_gymnasium(self.made, None, tells=tells, task=self)
