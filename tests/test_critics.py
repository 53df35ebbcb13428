"""Critics of plans against the oracles; and what neither they nor baselines take."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl import norm
from rl.baseline import Baseline
from rl.critics import Critics
from rl.types import Transition
from tests.oracles import finetune, networks, offpolicy, ppo

KEY = jax.random.key(0)
SIZE, B, E = 4, 6, 3
PLAN = (5, 2)  # [H, A]
RNG = np.random.default_rng(0)
CRITICS = Critics(hidden=(8, 7), count=E, lr=1e-2, tau=0.3)


def drawn(*shape: int) -> Any:
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


OBS, PLANS = 2 + 3 * drawn(B, SIZE), drawn(B, *PLAN)
STEPS = Transition(
    {"policy": drawn(9, B, 2), "critic": 2 + 3 * drawn(9, B, SIZE)},
    drawn(9, B, 2),
    drawn(9, B),
    jnp.asarray(RNG.random((9, B)) < 0.15),
    jnp.asarray(RNG.random((9, B)) < 0.15),
    {"policy": drawn(9, B, 2), "critic": 2 + 3 * drawn(9, B, SIZE)},
)


def begun(critics: Critics = CRITICS) -> Any:
    return critics.observe(critics.init(KEY, OBS[0], PLANS[0]), STEPS)


def forward(params: Any, x: np.ndarray) -> np.ndarray:
    """[B], of one of an ensemble."""
    net = params["params"]["MLP_0"]
    layers = [(net[f"Dense_{i}"]["kernel"], net[f"Dense_{i}"]["bias"]) for i in range(3)]
    norms = [(net[f"LayerNorm_{i}"]["scale"], net[f"LayerNorm_{i}"]["bias"]) for i in range(2)]
    return networks.mlp(x, layers, norms)[:, 0]


@pytest.mark.parametrize("normalise", [True, False])
def test_every_critic_values_plans_for_itself(normalise: bool) -> None:
    critics = Critics(hidden=(8, 7), count=E, normalise=normalise)
    critic = begun(critics)
    q = critics.q(critic.net.params, critic.obs, OBS, PLANS)
    assert q.shape == (E, B)
    mean, var = ppo.pooled_moments(np.asarray(STEPS.obs["critic"]))
    seen = (np.asarray(OBS) - mean) / np.sqrt(var + 1e-8) if normalise else np.asarray(OBS)
    told = np.concatenate([seen, np.asarray(PLANS).reshape(B, -1)], 1)
    for i in range(E):
        alone = jax.tree.map(lambda x, i=i: x[i], critic.net.params)
        np.testing.assert_allclose(q[i], forward(alone, told), atol=2e-5)
    for leaf in jax.tree.leaves(critic.net.params):
        if leaf.std() > 0:  # a kernel
            assert len(np.unique(np.asarray(leaf).reshape(E, -1), axis=0)) == E
    assert np.abs(np.diff(q, axis=0)).min(0).max() > 0.01
    flat = critics.q(critic.net.params, critic.obs, OBS, PLANS.reshape(B, -1))
    np.testing.assert_array_equal(q, flat)


def test_what_is_seen_is_counted_as_the_critic_sees_it() -> None:
    critic, more = begun(), jax.tree.map(lambda x: x + 1, STEPS)
    both = [np.asarray(x.obs["critic"]).reshape(-1, SIZE) for x in (STEPS, more)]
    twice = CRITICS.observe(critic, more)
    mean, var = ppo.pooled_moments(both)
    np.testing.assert_allclose(twice.obs.mean, mean, rtol=1e-4)
    np.testing.assert_allclose(twice.obs.var, var, rtol=1e-4)
    assert twice.net is critic.net
    plain = STEPS._replace(obs=STEPS.obs["critic"])
    again = norm.update(critic.obs, STEPS.obs["critic"])
    np.testing.assert_array_equal(CRITICS.observe(critic, plain).obs.mean, again.mean)


def test_the_loss_is_the_oracles() -> None:
    critic, target = begun(), drawn(B)
    q = np.asarray(CRITICS.q(critic.net.params, critic.obs, OBS, PLANS))
    loss = partial(CRITICS.loss, critic.net.params, critic.obs, OBS, PLANS)
    got, metrics = loss(target)
    assert abs(float(got) - finetune.critic_loss(q, target)) < 1e-5
    assert float(metrics["critic_loss"]) == float(got)
    assert abs(float(metrics["q"]) - q.mean()) < 1e-5
    each = drawn(E, B)
    want = np.mean([finetune.critic_loss(q[[i]], each[i]) for i in range(E)])
    assert abs(float(loss(each)[0]) - want) < 1e-5
    assert abs(float(loss(each[::-1])[0]) - want) > 1e-2
    same = jnp.broadcast_to(target, (E, B))
    assert float(loss(same)[0]) == pytest.approx(float(got), abs=1e-6)


@pytest.mark.parametrize("shape", [(B,), (E, B)])
def test_a_step_descends_and_targets_follow(shape: tuple[int, ...]) -> None:
    critic, target = begun(), drawn(*shape)
    step = jax.jit(CRITICS.step)
    after, first = step(critic, OBS, PLANS, target)
    moved = jax.tree.map(lambda x, y: bool((x != y).any()), critic.slow, after.slow)
    assert any(jax.tree.leaves(moved))
    jax.tree.map(
        lambda slow, new, old: np.testing.assert_allclose(
            slow, offpolicy.polyak(old, new, CRITICS.tau), atol=1e-6
        ),
        after.slow,
        after.net.params,
        critic.slow,
    )
    metrics = first
    for _ in range(300):
        after, metrics = step(after, OBS, PLANS, target)
    assert float(metrics["critic_loss"]) < 0.01 * float(first["critic_loss"])
    q = CRITICS.q(after.net.params, after.obs, OBS, PLANS)
    np.testing.assert_allclose(q, jnp.broadcast_to(target, (E, B)), atol=0.2)


@pytest.mark.parametrize(
    ("kind", "said", "why"),
    [
        (Critics, {"hidden": (8, 0)}, "Critics's hidden is .*sizes of at least 1"),
        (Critics, {"count": 0}, "Critics's count is 0; it takes a count of at least 1"),
        (Critics, {"lr": -1.0}, "Critics's lr is -1.0; it takes a number of at least 0"),
        (Critics, {"tau": 1.1}, r"Critics's tau is 1.1; it takes a number in \[0, 1\]"),
        (Critics, {"lr": float("inf")}, "Critics's lr is inf"),
        (Baseline, {"hidden": (-1,)}, "Baseline's hidden is "),
        (Baseline, {"lr": float("nan")}, "Baseline's lr is nan"),
        (Baseline, {"gamma": 1.5}, r"Baseline's gamma is 1.5; it takes a number in \[0, 1\]"),
        (Baseline, {"lam": -0.1}, "Baseline's lam is -0.1"),
        (Baseline, {"max_grad_norm": 0.0}, "Baseline's max_grad_norm is 0.0; .* above 0"),
    ],
)
def test_what_makes_no_sense_is_refused(kind: Any, said: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        kind(**said)
