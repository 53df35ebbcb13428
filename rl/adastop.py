"""AdaStop: as many seeds as it takes to tell agents apart (Mathieu et al. 2023, arXiv:2306.10882).

Agents are run in groups of seeds.  After each group a permutation test compares their means, pair
by pair, and who is told apart needs no more.  The chance that any of the comparisons is decided
falsely, over all groups, is `alpha` at the most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

Pair = tuple[str, str]
Decision = Literal["larger", "smaller", "equal", "open"]  # of the first's mean; or not yet decided


@dataclass(frozen=True)
class AdaStop:
    """How many seeds at a time, how often, and with what chance of a false decision."""

    group: int = 5  # seeds
    groups: int = 5  # at the most
    alpha: float = 0.05
    permutations: int = 10_000
    seed: int = 0  # of those

    def __post_init__(self) -> None:
        counts = {"group": self.group, "groups": self.groups, "permutations": self.permutations}
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"AdaStop's {name} is {count}; it takes at least 1.")
        if not 0 < self.alpha < 1:
            raise ValueError(f"AdaStop's alpha is {self.alpha}; it takes a chance between 0 and 1.")

    def decide(
        self, scores: Mapping[str, Sequence[float]], pairs: Sequence[Pair] | None = None
    ) -> dict[Pair, Decision]:
        """What scores, in order of their seeds, say of `pairs` of agents, or of all pairs.

        It looks at whole groups that both of an open pair have, from the first on: nothing is kept
        between calls, and more scores change no decision.
        """
        pairs = list(combinations(scores, 2)) if pairs is None else list(pairs)
        found: dict[Pair, Decision] = dict.fromkeys(pairs, "open")
        rng = np.random.default_rng(self.seed)
        sums = {pair: np.zeros(self.permutations) for pair in pairs}
        alive, spent = np.ones(self.permutations, bool), 0.0
        for look in range(self.groups):
            open_pairs = [pair for pair in pairs if found[pair] == "open"]
            members = {name for pair in open_pairs for name in pair}
            if not members or min(len(scores[x]) for x in members) < (look + 1) * self.group:
                return found
            now = slice(look * self.group, (look + 1) * self.group)
            for one, other in open_pairs:
                both = np.array([*scores[one][now], *scores[other][now]], float)
                sums[one, other] += self.differences(both, rng)
            left = self.alpha * (look + 1) / self.groups - spent
            while open_pairs:
                most = np.max([np.abs(sums[pair]) for pair in open_pairs], axis=0)
                bound = self.bound(most[alive], left)
                farthest = max(open_pairs, key=lambda pair: abs(sums[pair][0]))
                if abs(sums[farthest][0]) <= bound:
                    spent += np.mean(alive & (most > bound))
                    alive &= most <= bound
                    break
                found[farthest] = "larger" if sums[farthest][0] > 0 else "smaller"
                open_pairs.remove(farthest)
        return {pair: "equal" if x == "open" else x for pair, x in found.items()}

    def differences(self, both: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Difference of the halves' means [permutations] of `both` [2 * group] as it is, first, and
        in random orders."""
        orders = np.tile(np.arange(len(both)), (self.permutations, 1))
        orders[1:] = rng.permuted(orders[1:], axis=1)
        halves = both[orders].reshape(self.permutations, 2, self.group)
        means = np.sort(halves, axis=-1).mean(-1)  # the same scores add up to the same
        return means[:, 0] - means[:, 1]

    def bound(self, most: np.ndarray, left: float) -> float:
        """The least bound that no more than the share `left` of all permutations exceeds."""
        allowed = int(np.floor(left * self.permutations + 1e-9))
        ranked = np.sort(most)[::-1]
        return float(ranked[allowed]) if allowed < len(ranked) else -np.inf
