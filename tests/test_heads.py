"""Critic heads and n-step returns against oracles in float64."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

from agents.sac import SAC
from rl import heads, returns
from tests.learners import HEADS, B, close, window
from tests.oracles import heads as head_oracle
from tests.oracles import offpolicy


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_window_returns_what_the_oracle_does(rng: np.random.Generator) -> None:
    batch = window(rng, count=200, length=5)
    reward, discount, after = returns.n_step(batch, 0.9)
    wanted = offpolicy.n_step(batch.reward, batch.terminated, batch.truncated, 0.9)
    assert close(reward, wanted[0])
    assert close(discount, wanted[1])
    assert (after == batch.next_obs[np.arange(200), wanted[2]]).all()


def test_heads_are_the_oracles(rng: np.random.Generator) -> None:
    logits, y = rng.normal(size=(B, 21)), rng.normal(0, 3, size=B)
    reward, discount, bonus = rng.normal(size=(3, B))
    hl, c51 = HEADS["hl-gauss"], HEADS["c51"]
    probs = head_oracle.hl_gauss(y, -3, 4, 21)
    as32 = [jnp.asarray(x, jnp.float32) for x in (logits, y, reward, discount, bonus)]
    assert close(hl.loss(as32[0], as32[1][:, None]), head_oracle.cross_entropy(logits, probs))
    assert close(hl.value(as32[0]), head_oracle.hl_gauss_value(logits, -3, 4))
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    moved = head_oracle.c51_project(shares, -3, 4, reward, discount=discount, bonus=bonus)
    ours = c51.backup(as32[0], *as32[2:])
    assert close(ours, moved)
    assert close(c51.loss(as32[0], ours), head_oracle.cross_entropy(logits, moved))
    assert close(c51.value(as32[0]), head_oracle.c51_value(logits, -3, 4))
    for plant in (-as32[2], jnp.roll(as32[2], 1)):
        assert not close(c51.backup(as32[0], plant, *as32[3:]), moved)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: heads.C51(bins=1), "C51's bins is 1; it takes a count of at least 2"),
        (lambda: heads.HLGauss(low=10.0), "HLGauss's high is 10.0; it takes a number above low"),
        (lambda: heads.HLGauss(spread=0.0), "spread is 0.0"),
        (lambda: SAC(target_entropy=float("nan")), "SAC's target_entropy is nan"),
        (lambda: SAC(nets="simbav2", layer_norm=True), "it takes False with nets simbav2"),
        (lambda: SAC(critics=2, subset=3), "subset is 3"),
    ],
)
def test_hyperparameters_that_make_no_sense_are_refused(make: Callable, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()
