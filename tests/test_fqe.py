"""Fitted-Q evaluation: values known on paper, and errors that it must not make."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.td3 import TD3
from experiments import fqe
from rl.data import sampling
from rl.data.dataset import Dataset
from rl.data.fqe import FQE, acts
from rl.policy import Policy, memoryless
from tests.learners import f64, window
from tests.test_rollout import Count, counting

GAMMA, END = 0.8, 0.1  # of each step of the slide below, that it is the last
SMALL = FQE(hidden=(64, 64), critics=2, lr=1e-3, gamma=GAMMA)
KEEN, LAZY = 0.5, -0.5  # two policies: what they do, as a multiple of where they are


def slide(count: int = 4_000, length: int = 5) -> Dataset:
    """Episodes of chance on s' = 0.8 s + 0.3 a, where a step pays the sum of s.

    Where none ended by itself a clock cuts them after `length` steps.
    """
    rng = np.random.default_rng(0)
    seen = rng.uniform(0, 1, (count, 2))
    columns: list[tuple[Any, ...]] = []
    for t in range(length):
        action = rng.uniform(-1, 1, (count, 2))
        after, ended = 0.8 * seen + 0.3 * action, rng.random(count) < END
        columns.append((seen, action, seen.sum(1), ended, ~ended & (t == length - 1), after))
        seen = after
    obs, action, reward, ended, cut, after = (np.stack(x, 1) for x in zip(*columns, strict=True))
    lengths = (ended | cut).argmax(1) + 1
    rows = np.arange(length) < lengths[:, None]
    steps = {
        "obs": obs[rows].astype("f4"), "action": action[rows].astype("f4"),
        "reward": reward[rows].astype("f4"), "terminated": ended[rows], "truncated": cut[rows],
    }  # fmt: skip
    last = after[np.arange(count), lengths - 1].astype("f4")
    return Dataset(
        steps | {"mask": ~steps["terminated"]}, {"length": lengths, "last_obs": last}, {}
    )


def worth(data: Dataset, gain: float) -> float:
    """On paper, the value of a = gain s from where episodes begin: it moves s by one factor."""
    starts = f64(data.steps["obs"])[data.starts]
    return starts.sum(1).mean() / (1 - GAMMA * (1 - END) * (0.8 + 0.3 * gain))


def linear(gain: float) -> Policy:
    return memoryless(lambda params, obs, key: (gain * obs, ()))


def believed(data: Dataset, policy: Policy, *, seed: int = 0, steps: int = 3_000) -> float:
    """What the experiment makes of a policy."""
    args = fqe.Args((Path("it"),), seed=seed, steps=steps, batch_size=256, fqe=SMALL)
    judged: Any = fqe.Judged(Path("it"), None, policy, ())
    return fqe.estimated(args, judged, sampling.source(data, sampling.Uniform())).value


@pytest.fixture(scope="module")
def data() -> Dataset:
    return slide()


@pytest.mark.long
@pytest.mark.optimised
def test_values_are_those_on_paper_of_two_policies(data: Dataset) -> None:
    found = {gain: believed(data, linear(gain)) for gain in (KEEN, LAZY)}
    for gain, value in found.items():
        assert value == pytest.approx(worth(data, gain), rel=0.04)
    assert found[KEEN] > 1.2 * found[LAZY]


@pytest.mark.long
@pytest.mark.optimised
@pytest.mark.parametrize("error", ["ends ignored", "clock ends", "data's actions"])
def test_an_error_is_told_from_the_truth(
    data: Dataset, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    steps = data.steps
    if error == "ends ignored":
        over = {"truncated": steps["terminated"] | steps["truncated"]}
        data = data._replace(steps=steps | over | {"mask": steps["mask"] | True})
    elif error == "clock ends":
        data = data._replace(steps=steps | {"mask": steps["mask"] & ~steps["truncated"]})
    else:
        monkeypatch.setattr(fqe, "next_actions", lambda source, *_: jnp.roll(source.action, -1, 0))
    wrong = believed(data, linear(KEEN))
    assert abs(wrong / worth(data, KEEN) - 1) > 0.1


def test_the_same_seed_makes_the_same_number(data: Dataset) -> None:
    few = data.chosen(np.arange(50))
    one, same, other = (believed(few, linear(KEEN), seed=seed, steps=100) for seed in (3, 3, 4))
    assert one == same != other


def test_a_target_is_the_oracle_s() -> None:
    """In float64, step by step: an end stops the bootstrap, and a clock does not."""
    rng = np.random.default_rng(1)
    agent = replace(SMALL, critics=3)
    batch = window(rng, length=1)
    flags = jnp.arange(len(batch.reward))[:, None] % 3
    batch = batch._replace(terminated=flags == 1, truncated=flags == 2)
    state = noisy(agent, rng)
    after = jnp.asarray(rng.uniform(-1, 1, batch.action[:, 0].shape), "f4")
    ours = f64(agent.backup(state, agent.sample(state, batch), after))

    def q(params: Any, obs: Any, action: Any) -> np.ndarray:
        """Critics' values [E, B] by numpy: dense, layer norm, ReLU."""
        mean, std = f64(state.obs.mean.critic), np.sqrt(f64(state.obs.var.critic) + 1e-8)
        x = np.concatenate([np.clip((f64(obs) - mean) / std, -10, 10), f64(action)], 1)
        nets = jax.tree.map(f64, params)["params"]["MLP_0"]
        x = np.broadcast_to(x, (agent.critics, *x.shape))
        for i in range(3):
            x = x @ nets[f"Dense_{i}"]["kernel"] + nets[f"Dense_{i}"]["bias"][:, None]
            if i < 2:
                scaled = nets[f"LayerNorm_{i}"]
                x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
                x = np.maximum(x * scaled["scale"][:, None] + scaled["bias"][:, None], 0)
        return x[..., 0]

    ends, obs = np.asarray(batch.terminated)[:, 0], batch.next_obs[:, 0]

    def wanted(params: Any = state.target, ends=ends, action: Any = after) -> np.ndarray:
        reward = f64(batch.reward)[:, 0]
        return np.stack([
            r + (0 if end else GAMMA) * v
            for r, end, v in zip(reward, ends, q(params, obs, action).T, strict=True)
        ], 1)  # fmt: skip

    np.testing.assert_allclose(ours, wanted(), rtol=1e-5, atol=1e-5)
    wrong = {
        "online critics": wanted(state.critic.params), "ends ignored": wanted(ends=ends & False),
        "clock ends": wanted(ends=ends | np.asarray(batch.truncated)[:, 0]),
        "data's actions": wanted(action=batch.action[:, 0]),
        "lowest": wanted().min(0)[None], "mean": wanted().mean(0)[None],
    }  # fmt: skip
    assert not [name for name, x in wrong.items() if np.allclose(ours, x, rtol=1e-3, atol=1e-3)]
    loss = agent.loss(state.critic.params, agent.sample(state, batch), jnp.asarray(ours, "f4"))[0]
    mine = q(state.critic.params, batch.obs[:, 0], batch.action[:, 0])
    assert float(loss) == pytest.approx(((mine - ours) ** 2).mean(1).sum(), rel=1e-4)
    told = agent.value(state, batch.next_obs[:, 0], after)
    np.testing.assert_allclose(f64(told), q(state.target, obs, after), rtol=1e-5, atol=1e-5)


def noisy(agent: FQE, rng: np.random.Generator) -> Any:
    """A state whose parameters are all different, and whose statistics are of some data."""
    seen = jnp.asarray(rng.normal(2, 3, (64, 3)), "f4")
    state = agent.init(jax.random.key(0), seen, jnp.zeros(2))
    shaken = lambda tree: jax.tree.map(  # noqa: E731
        lambda x: x + jnp.asarray(0.3 * rng.normal(size=x.shape), "f4"), tree
    )
    critic = state.critic._replace(params=shaken(state.critic.params))
    np.testing.assert_allclose(f64(state.obs.mean.critic), f64(seen).mean(0), rtol=1e-4)
    np.testing.assert_allclose(f64(state.obs.var.critic), f64(seen).var(0), rtol=1e-4)
    return state._replace(critic=critic, target=shaken(state.target))


def test_what_a_policy_does_next_is_of_the_next_observation(data: Dataset) -> None:
    """Over the ends of episodes and of the data, and clipped as a task clips."""
    few = data.chosen(np.array([0, 7, 5]))
    source, policy = sampling.source(few, sampling.Uniform()), linear(3.0)
    after, last = (acts(policy, (), obs) for obs in (source.obs, source.last_obs))
    next_obs = sampling.windows(source, jnp.arange(len(source.reward)), 1).next_obs[:, 0]
    wanted = jnp.clip(3.0 * next_obs, -1, 1)
    np.testing.assert_array_equal(fqe.next_actions(source, after, last), wanted)
    assert (jnp.abs(3.0 * next_obs) > 1).any()


def test_only_who_remembers_is_refused(data: Dataset) -> None:
    with pytest.raises(ValueError, match="it cannot be judged: This policy remembers"):
        believed(data, counting())
    agent = TD3(hidden=(8,))
    params = agent.deploy(agent.init(jax.random.key(0), jnp.zeros(2), jnp.zeros(2)))
    found = acts(agent.policy(explore=False, action_dim=2), params, data.steps["obs"][:5])
    assert found.shape == (5, 2)


def test_what_is_measured_is_discounted() -> None:
    """Four steps, which pay 1 to 4."""
    judged: Any = fqe.Judged(Path("it"), Count(endless=True), linear(0.0), ())
    value, error = fqe.measured(fqe.Args((), judge=3, fqe=SMALL), judged)
    assert value == pytest.approx(1 + 2 * GAMMA + 3 * GAMMA**2 + 4 * GAMMA**3, rel=1e-5)
    assert error == pytest.approx(0, abs=1e-6)
