"""What may be done with a policy that draws plans without teaching it anything: combinators.

Each makes of `draw(params, noise [B, H, A], seen [B, h, O], key, bounds)` another of its kind.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from rl.chunks import Draw
from rl.diffusion import Diffusion
from rl.generative import ANYWHERE, Bounds, Field, along
from rl.train import sound
from rl.types import Array, Key, Params

Worth = Callable[[Params, Array, Array], Array]  # [B] of plans [B, H, A] where that was seen
Score = Callable[[Params, Array, Array], Array]  # [B, H, A], the slope of their log-density


def candidates(
    draw: Draw, params: Params, noise: Array, seen: Array, key: Key, bounds: Bounds, count: int
) -> Array:
    """Plans [count, B, H, A], the first of the noise that is given."""
    noise_key, key = jax.random.split(key)
    more = jax.random.normal(noise_key, (count - 1, *noise.shape))
    every = jnp.concatenate([noise[None], more]).reshape(-1, *noise.shape[1:])
    told = jnp.broadcast_to(seen, (count, *seen.shape)).reshape(-1, *seen.shape[1:])
    return draw(params, every, told, key, bounds).reshape(count, *noise.shape)


def chosen(plans: Array, worth: Array) -> Array:
    """For each row the one of plans [count, B, ...] that is worth [count, B] most."""
    at = worth.argmax(0).reshape(1, -1, *[1] * (plans.ndim - 2))
    return jnp.take_along_axis(plans, at, 0)[0]


def top(plans: Array, worth: Array, count: int) -> Array:
    """For each row the `count` of plans [n, B, ...] that are worth [n, B] most, best first."""
    at = jax.lax.top_k(worth.T, count)[1].T
    return jnp.take_along_axis(plans, at.reshape(*at.shape, *[1] * (plans.ndim - 2)), 0)


def uphill(
    worth: Callable[[Array], Array],
    plans: Array,
    size: Array | float,
    steps: int,
    bounds: Bounds = ANYWHERE,
) -> tuple[Array, Array]:
    """Plans [n, B, ...] moved by `size` times the slope of what they are worth, within bounds, to
    the best of the places that each came by, where it began being one; and what they are worth
    there [n, B] (PA-RL: Mark et al. 2024, 2412.06685)."""

    def one(plan: Array) -> tuple[Array, Array]:
        def step(now: tuple[Array, Array, Array], _: None) -> tuple[Any, None]:
            plan, best, most = now
            value, back = jax.vjp(worth, plan)
            best, most = better(best, most, plan, value)
            (slope,) = back(jnp.ones_like(value))
            return (jnp.clip(plan + size * slope, *bounds), best, most), None

        begin = plan, plan, jnp.full(len(plan), -jnp.inf)
        (plan, best, most), _ = jax.lax.scan(step, begin, length=steps)
        return better(best, most, plan, worth(plan))

    return jax.lax.map(one, plans)


def better(best: Array, most: Array, plan: Array, value: Array) -> tuple[Array, Array]:
    """For each row the one of two plans [B, ...] that is worth more, the first if neither is."""
    return jnp.where(along(value > most, plan), plan, best), jnp.maximum(value, most)


def best_of(draw: Draw, worth: Worth, count: int) -> Draw:
    """The plan of `count` that is worth most (IDQL: Hansen-Estruch et al. 2023, 2304.10573)."""

    def best(params: Any, noise: Array, seen: Array, key: Key, bounds: Bounds) -> Array:
        plans = candidates(draw, params, noise, seen, key, bounds, count)
        value = jax.lax.map(lambda plan: worth(params, seen, plan), plans)
        return chosen(plans, value)

    return best


def careful(draw: Draw, score: Score, size: float, steps: int) -> Draw:
    """A plan moved to where data are denser, by `size` times their score, within bounds (CDSA: Liu
    et al. 2024, 2406.07541, but for the part that needs a model of the world)."""

    def moved(params: Any, noise: Array, seen: Array, key: Key, bounds: Bounds) -> Array:
        def step(plan: Array, _: None) -> tuple[Array, None]:
            return jnp.clip(plan + size * score(params, seen, plan), *bounds), None

        return jax.lax.scan(step, draw(params, noise, seen, key, bounds), length=steps)[0]

    return moved


@dataclass(frozen=True)
class Best:
    """The plan that is worth most."""

    count: int = 8  # plans that are drawn

    def __post_init__(self) -> None:
        sound(self, count=(self.count > 0, "a count of at least 1"))

    def require(self, base: Any, passes: int) -> None:
        """Raise ValueError unless a base can be guided so."""

    def guided(self, base: Any, passes: int, worth: Worth) -> Draw:
        return best_of(base.settled(passes).draw, worth, self.count)


@dataclass(frozen=True)
class Cdsa:
    """That plan, moved to where the data's are denser."""

    count: int = 8  # plans that are drawn
    blur: float = 0.3  # std, in the base's units, of the noise that a density is told with
    size: float = 0.02  # of a step, for each unit of the score
    steps: int = 3  # there

    def __post_init__(self) -> None:
        sound(
            self,
            count=(self.count > 0, "a count of at least 1"),
            blur=(self.blur > 0, "a number above 0"),
            size=(self.size >= 0, "a number of at least 0"),
            steps=(self.steps > 0, "a count of at least 1"),
        )

    def require(self, base: Any, passes: int) -> None:
        """Raise ValueError unless a base can be guided so."""
        if not hasattr(base, "score"):
            raise ValueError(
                f"Cdsa asks how dense data are, which {type(base).__name__} can't say."
            )

    def guided(self, base: Any, passes: int, worth: Worth) -> Draw:
        score = lambda params, seen, plan: base.score(params, seen, plan, self.blur)  # noqa: E731
        best = best_of(base.settled(passes).draw, worth, self.count)
        return careful(best, score, self.size, self.steps)


@dataclass(frozen=True)
class Doit:
    """A diffusion steered on its way, so that what is worth more is likelier: a Doob h-transform
    that no one learns (DOIT: Zhu et al. 2026, arXiv:2602.16198); of some such plans the best.

    As in the authors' code what proposals are worth is measured by its std over these, and the
    noise that is predicted moves against the slope of log h.
    """

    count: int = 1  # plans that are drawn; the best of more is one that critics err about
    proposals: int = 32  # of each step, half of them opposite to the others
    temperature: float = 0.5  # in stds of what they are worth
    strength: float = 0.5  # of what moves the noise that is predicted
    eta: float = 0.5  # noise of drawing
    last: float = 0.5  # share of the steps that is steered; of noise alone little can be foreseen

    def __post_init__(self) -> None:
        sound(
            self,
            count=(self.count > 0, "a count of at least 1"),
            proposals=(self.proposals > 0 and self.proposals % 2 == 0, "an even count above 0"),
            temperature=(self.temperature > 0, "a number above 0"),
            eta=(0 < self.eta <= 1, "a share in (0, 1]"),
            last=(0 < self.last <= 1, "a share in (0, 1]"),
        )

    def require(self, base: Any, passes: int) -> None:
        """Raise ValueError unless a base can be guided so."""
        if not hasattr(base, "diffusion"):
            raise ValueError(
                f"Doit steers a diffusion's steps; {type(base).__name__} has none: give a base "
                "that is a diffusion, or agent.guide:best."
            )
        if (passes or base.diffusion.steps) < 2:
            raise ValueError(
                "Doit never steers a diffusion's last step, and there is no other: give "
                "--agent.passes of at least 2, or agent.guide:best."
            )

    def guided(self, base: Any, passes: int, worth: Worth) -> Draw:
        steps = passes or base.diffusion.steps
        diffusion = replace(base.diffusion, eta=self.eta, steps=steps)
        most = max(1, round(self.last * steps))  # beside the very last, which adds no noise

        def walk(params: Any, noise: Array, seen: Array, key: Key, bounds: Bounds) -> Array:
            field = lambda x, level: base.field(params["net"], x, seen, level)  # noqa: E731
            value = lambda plan: worth(params, seen, plan)  # noqa: E731

            step = self.steered(diffusion, field, value, bounds)

            def move(x: Array, now: tuple[Array, Array, Array, Key]) -> tuple[Array, None]:
                left, level, to, key = now
                draw_key, key = jax.random.split(key)
                mean, std = step(x, level, to, draw_key, (left <= most) & (left > 0))
                return mean + std * jax.random.normal(key, x.shape), None

            each = jnp.arange(steps)[::-1], *diffusion.stairs(), jax.random.split(key, steps)
            return jnp.clip(jax.lax.scan(move, noise, each)[0], *bounds)

        return best_of(walk, worth, self.count)

    def steered(
        self, diffusion: Diffusion, field: Field, value: Callable[[Array], Array], bounds: Bounds
    ) -> Callable[..., tuple[Array, Array]]:
        """Of x [B, ...], its level, a lower one, a key, and whether it is `on`: mean and std [] of
        the step there."""

        def step(x: Array, level: Array, to: Array, key: Key, on: Array) -> tuple[Array, Array]:
            def plain(x: Array) -> tuple[Array, tuple[Array, Array]]:
                data, noise = diffusion.told(field, x, level, bounds)
                mean, std = diffusion.mixed(data, noise, level, to)
                return mean, (noise, std)

            mean, back, (noise, std) = jax.vjp(plain, x, has_aux=True)
            some = jax.random.normal(key, (self.proposals // 2, *x.shape))
            some = jnp.concatenate([some, -some])
            (clear, rest), (then, less) = (diffusion.parts(y) for y in (level, to))
            plans = jnp.clip((mean + std * some - less * noise) / then, *bounds)
            worths = jax.lax.map(value, plans)
            spread = self.temperature * jnp.maximum(worths.std(0), 1e-6)
            share = jax.nn.softmax((worths - worths.mean(0)) / spread, 0)
            (slope,) = back((along(share, some) * some).sum(0) / jnp.where(on, std, 1))
            noise = noise - self.strength * rest * slope
            data = jnp.clip((x - rest * noise) / clear, *bounds)
            return jnp.where(on, diffusion.mixed(data, noise, level, to)[0], mean), std

        return step
