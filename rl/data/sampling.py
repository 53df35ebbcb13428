"""What learning draws from a dataset: windows of consecutive steps, by one law or another."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl.data.dataset import NONE, Dataset
from rl.data.join import PART
from rl.train import sound
from rl.types import Array, Key, Obs, Transition


class Source(NamedTuple):
    """S steps of E episodes, on the device; a step's next observation is the next row's."""

    obs: Obs  # leaves [S, ...]
    last_obs: Obs  # leaves [E, ...], after each episode
    action: Array  # [S, A]
    reward: Array  # [S]
    terminated: Array  # [S] bool: nothing after it has a value
    truncated: Array  # [S] bool: its episode ends with it, and something after it has one
    aux: Any  # leaves [S, ...]
    episode: Array  # [S] int32
    first: Array  # [E] int32
    length: Array  # [E] int32
    law: "Law | tuple[()]"


class Law(NamedTuple):
    """With which probability an episode is drawn, as a table of aliases (Walker 1977): an episode
    drawn evenly is kept with its share, else its alias stands for it."""

    share: Array  # [E]
    alias: Array  # [E] int32


FITTED = 5  # episodes for each number that returns are fitted by


def merits(data: Dataset) -> np.ndarray:
    """Returns of episodes [E]; ValueError where the data tell no rewards."""
    if data.facts.get("reward") == NONE:
        raise ValueError("The data tell no rewards, so no episode is better: leave --sampler out.")
    return data.sums()


@dataclass(frozen=True)
class Uniform:
    """Every step as often as any other."""

    def weights(self, data: Dataset) -> np.ndarray | None:
        """Of steps, by their episode [E]; None: all alike."""
        return None


@dataclass(frozen=True)
class Weighted:
    """Steps of better episodes more often (Hong et al. 2023, arXiv:2306.13085).

    By "advantage" an episode is as good as its return is above that of others from such a start
    (a linear regression on the first observation); by "return", as its return is high.
    """

    by: Literal["advantage", "return"] = "advantage"
    temperature: float = 0.1  # in units of the range of what they are weighted by

    def __post_init__(self) -> None:
        sound(self, temperature=(self.temperature > 0, "a number above 0"))

    def weights(self, data: Dataset) -> np.ndarray:
        good = returns = merits(data)
        if self.by == "advantage":
            starts = [x[data.starts].reshape(len(good), -1) for x in data.parts("obs").values()]
            design = np.concatenate([*starts, np.ones((len(good), 1))], 1).astype(np.float64)
            if len(good) < (needed := FITTED * design.shape[1]):
                what = f"{design.shape[1] - 1} numbers of a first observation"
                why = f"To tell returns by {what} takes {needed} episodes to learn from, not"
                raise ValueError(f"{why} {len(good)}: --sampler.by return.")
            good = good - design @ np.linalg.lstsq(design, good)[0]
        spread = np.ptp(good)
        if spread <= 1e-6 * max(np.abs(returns).max(), 1):  # what rounding leaves is no merit
            return np.ones(len(good))
        return np.exp((good - good.max()) / (self.temperature * spread))


@dataclass(frozen=True)
class Top:
    """Steps of the best episodes alone, by return."""

    share: float = 0.1  # of the episodes

    def __post_init__(self) -> None:
        sound(self, share=(0 < self.share <= 1, "a share in (0, 1]"))

    def weights(self, data: Dataset) -> np.ndarray:
        returns = merits(data)
        best = np.argsort(-returns, kind="stable")[: max(int(self.share * len(returns)), 1)]
        return np.isin(np.arange(len(returns)), best).astype(float)


@dataclass(frozen=True)
class Mixture:
    """Each of the datasets that were joined as often as its share, however large it is."""

    shares: tuple[float, ...] = (0.5, 0.5)  # in the order they were joined in

    def __post_init__(self) -> None:
        well = min(self.shares, default=-1.0) >= 0 < sum(self.shares) < np.inf
        sound(self, shares=(well, "finite numbers of at least 0, not all 0"))

    def weights(self, data: Dataset) -> np.ndarray:
        part, count = data.episodes.get(PART), len(self.shares)
        if part is None:
            raise ValueError(
                "sampler:mixture draws from what python -m rl.data join made one, and the data are "
                "of one making."
            )
        if (there := len(data.facts["parts"])) != count:
            raise ValueError(
                f"--sampler.shares are {count} numbers; the data are of {there} parts."
            )
        steps = np.bincount(part, data.episodes["length"], count)
        if (gone := (steps == 0) & (np.array(self.shares) > 0)).any():
            raise ValueError(
                f"All episodes of part {int(gone.argmax())} of the data are held out, and a share "
                "of what is learned from is to be of it: lower --held-out."
            )
        return (np.array(self.shares) / np.maximum(steps, 1))[part]


Sampler = Uniform | Weighted | Top | Mixture


def law(weights: np.ndarray, lengths: np.ndarray) -> Law:
    """Episodes as often as their steps' weights [E] add up to (Vose 1991)."""
    mass = weights * lengths
    scaled = mass * len(mass) / mass.sum()
    share, alias = np.ones(len(mass), np.float32), np.arange(len(mass), dtype=np.int32)
    poor, rich = list(np.flatnonzero(scaled < 1)), list(np.flatnonzero(scaled >= 1))
    while poor and rich:
        low, high = poor.pop(), rich[-1]
        share[low], alias[low] = scaled[low], high
        scaled[high] -= 1 - scaled[low]
        if scaled[high] < 1:
            poor.append(rich.pop())
    return Law(jnp.asarray(share), jnp.asarray(alias))


def tree(parts: dict[str, np.ndarray], name: str) -> Any:
    """Of an observation's parts by their place, the observation."""
    if name in parts:
        return parts[name]
    found: dict[str, Any] = {}
    for place, x in parts.items():
        *above, last = place.removeprefix(f"{name}/").split("/")
        inner = found
        for part in above:
            inner = inner.setdefault(part, {})
        inner[last] = x
    return found


def source(data: Dataset, sampler: Sampler, aux: Any = ()) -> Source:
    """A dataset on the device, and how it is drawn from; `aux` has leaves [S, ...].

    Where it can be, it is used as it lies: who has it must not write to it.
    """
    lengths, weights = data.episodes["length"], sampler.weights(data)
    last = {n.removeprefix("last_"): x for n, x in data.episodes.items() if n.startswith("last_")}
    ends = np.diff(data.episode, append=-1) != 0
    host: Any = {
        "obs": tree(data.parts("obs"), "obs"),
        "last_obs": tree(last, "obs"),
        "action": data.steps["action"],
        "reward": data.steps["reward"],
        "terminated": ~data.steps["mask"],
        "truncated": data.steps["truncated"] | (ends & data.steps["mask"]),
        "aux": aux,
        "episode": data.episode,
        "first": data.starts.astype(np.int32),
        "length": lengths.astype(np.int32),
        "law": () if weights is None else law(weights, lengths),
    }
    return Source(**jax.tree.map(lambda x: jax.device_put(x, may_alias=True), host))


def to_go(data: Dataset, gamma: float) -> np.ndarray:
    """Discounted return [S] from each step to the end of its episode.

    Where an episode was cut off a cost of its last step counts as if it went on for ever, and a
    gain as if none followed: values are at least that (Nakamoto et al. 2023, arXiv:2303.05479, of
    sparse rewards).
    """
    reward, mask = data.steps["reward"].astype(np.float64), data.steps["mask"]
    starts, lengths = data.starts, data.episodes["length"]
    found = np.zeros(len(reward))
    after = np.minimum(reward[starts + lengths - 1], 0) / (1 - gamma if gamma < 1 else np.inf)
    for back in range(1, int(lengths.max()) + 1):
        alive = lengths >= back
        rows = (starts + lengths - back)[alive]
        found[rows] = reward[rows] + gamma * mask[rows] * after[alive]
        after[alive] = found[rows]
    return found.astype(np.float32)


def places(source: Source, key: Key, count: int) -> Array:
    """Steps [count] at which windows begin, drawn by the source's law."""
    if not isinstance(source.law, Law):
        return jax.random.randint(key, (count,), 0, len(source.reward))
    episode_key, keep_key, step_key = jax.random.split(key, 3)
    drawn = jax.random.randint(episode_key, (count,), 0, len(source.length))
    kept = jax.random.uniform(keep_key, (count,)) < source.law.share[drawn]
    episode = jnp.where(kept, drawn, source.law.alias[drawn])
    return source.first[episode] + jax.random.randint(step_key, (count,), 0, source.length[episode])


def windows(source: Source, at: Array, length: int) -> Transition:
    """What begins at steps `at` [B]: [B, length, ...].

    A window may run on over the end of an episode, whose last step says so; at the end of the data
    the last step stands again.
    """
    last = len(source.reward) - 1
    row = jnp.minimum(at[:, None] + jnp.arange(length), last)
    terminated, truncated = source.terminated[row], source.truncated[row]
    episode = source.episode[row]
    ends = row == source.first[episode] + source.length[episode] - 1

    def after(obs: Array, last_obs: Array) -> Array:
        over = ends.reshape(*ends.shape, *[1] * (obs.ndim - 1))
        return jnp.where(over, last_obs[episode], obs[jnp.minimum(row + 1, last)])

    return Transition(
        obs=jax.tree.map(lambda x: x[row], source.obs),
        action=source.action[row],
        reward=source.reward[row],
        terminated=terminated,
        truncated=truncated,
        next_obs=jax.tree.map(after, source.obs, source.last_obs),
        aux=jax.tree.map(lambda x: x[row], source.aux),
    )


def sample(source: Source, key: Key, count: int, length: int) -> Transition:
    """`count` windows of `length` steps, drawn by the source's law: [count, length, ...]."""
    return windows(source, places(source, key, count), length)
