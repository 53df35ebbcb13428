"""What is measured of a learner on data, against sums of its own; and which data that is."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl.data import held_out, sampling, verdict
from rl.data.dataset import Dataset
from rl.policy import memoryless
from rl.types import Transition
from tests.test_verdict import values

RNG = np.random.default_rng(0)
ROWS = 40
OBS, NEXT = RNG.normal(size=(2, ROWS, 3)).astype("f4")
ACTION = RNG.uniform(-1, 1, (ROWS, 2)).astype("f4")
REWARD, CAME = RNG.normal(size=(2, ROWS)).astype("f4")
OVER = np.arange(ROWS) % 5 == 0  # terminated
CUT = np.arange(ROWS) % 7 == 0


class Fixed:
    """A learner whose policy and beliefs are plain formulas of what is seen."""

    gamma = 0.9

    def policy(self, explore: bool, action_dim: int) -> Any:
        assert not explore
        return memoryless(lambda params, obs, key: (params * jnp.tanh(obs[..., :2]), ()))

    def deploy(self, state: Any) -> Any:
        return jnp.float32(0.5)

    def believed(self, state: Any, obs: Any, action: Any) -> Any:
        return obs[..., 2] + 3 * action[..., 0] - action[..., 1] ** 2


def act(obs: np.ndarray) -> np.ndarray:
    return 0.5 * np.tanh(obs[:, :2])


def believed(obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    return obs[:, 2] + 3 * action[:, 0] - action[:, 1] ** 2


def seen() -> Transition:
    return Transition(*map(jnp.asarray, (OBS, ACTION, REWARD, OVER, CUT, NEXT)),
                      aux={"return": jnp.asarray(CAME)})  # fmt: skip


def test_what_is_measured_is_what_it_says() -> None:
    found = held_out.measured(Fixed(), None, seen(), jax.random.key(0))
    q = believed(OBS, ACTION)
    target = REWARD + 0.9 * np.where(OVER, 0, believed(NEXT, act(NEXT)))  # a clock ends no value
    apart = ((act(OBS) - ACTION) ** 2).mean()
    wanted = {
        "distance": np.sqrt(apart), "imitated": 1 - apart / ACTION.var(0).mean(),
        "q_data": q.mean(), "q_policy": believed(OBS, act(OBS)).mean(),
        "gap": believed(OBS, act(OBS)).mean() - q.mean(), "td": np.sqrt(((q - target) ** 2).mean()),
        "bellman": 1 - (q - target).var() / target.var(), "above_return": (q - CAME).mean(),
        "return_std": CAME.std(), "explained": 1 - (q - CAME).var() / CAME.var(),
    }  # fmt: skip
    for name, x in wanted.items():
        np.testing.assert_allclose(found[name], x, rtol=2e-5, err_msg=name)
    assert found.keys() == wanted.keys() | {"q_chance"}


def test_chance_is_all_of_what_may_be_done() -> None:
    many = jax.tree.map(lambda x: jnp.concatenate([x] * 500), seen())
    found = held_out.measured(Fixed(), None, many, jax.random.key(0))
    # Of actions in [-1, 1]: none in the mean, and a third of their square.
    np.testing.assert_allclose(found["q_chance"], OBS[:, 2].mean() - 1 / 3, atol=0.05)


def test_who_believes_nothing_is_measured_by_its_actions() -> None:
    class Imitator:
        policy, deploy = Fixed.policy, Fixed.deploy

    found = held_out.measured(Imitator(), None, seen(), jax.random.key(0))
    assert found.keys() == {"distance", "imitated"}


@pytest.mark.parametrize(
    "sampler", [sampling.Top(0.1), sampling.Weighted("return", 0.05), sampling.Uniform()]
)
def test_what_is_looked_at_is_what_is_learned_from(sampler: Any) -> None:
    """As often as it is drawn: a policy that learns of the best alone is not asked for the rest."""
    lengths = np.full(50, 10)
    reward = np.repeat(np.linspace(0, 1, 50), 10).astype("f4")
    cut = np.arange(500) % 10 == 9
    data = Dataset(
        {"obs": reward[:, None], "action": np.zeros((500, 1), "f4"), "reward": reward,
         "terminated": cut & ~cut, "truncated": cut, "mask": cut | ~cut},
        {"length": lengths, "last_obs": np.zeros((50, 1), "f4")}, {},
    )  # fmt: skip
    source = sampling.source(data, sampler, {"return": reward})
    drawn = np.asarray(held_out.glimpse(source, jax.random.key(0)).reward)
    weights = sampler.weights(data)
    weights = np.ones(50) if weights is None else weights
    wanted = (weights * np.linspace(0, 1, 50)).sum() / weights.sum()
    np.testing.assert_allclose(drawn.mean(), wanted, atol=0.03)


def test_what_is_held_out_and_drawn_otherwise_is_no_sign_of_overfitting() -> None:
    rising = values(held_td=2 + np.linspace(0, 4, 40))
    assert verdict.judge(rising, (-10, 300)).word == "overfitting"
    told = verdict.judge(rising, (-10, 300), alike=False)
    assert told.word == "healthy"
    assert "drawn otherwise" in told.why
    rough = values(train_bellman=np.full(40, 0.4))
    assert verdict.judge(rough, (-10, 300), alike=False).word == "underfitting"
