"""What each agent that learns from data does where its nearest sibling does otherwise: bandits."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from agents.awac import AWAC
from agents.bc import BC
from agents.cql import CQL
from agents.dvl import DVL
from agents.iql import IQL
from agents.rebrac import ReBRAC
from agents.td3 import TD3
from agents.td3_bc import TD3BC
from rl.types import Transition

Law = Callable[[jax.Array, tuple[int, ...]], tuple[jax.Array, jax.Array]]
NETS: dict[str, Any] = {"hidden": (32,), "lr": 3e-3}
OBS = jnp.zeros(1)


def seldom_good(key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Action 0.5 and a reward of 1 in a fifth of the data, -0.5 and none in the rest."""
    good = jax.random.bernoulli(key, 0.2, shape)
    return jnp.where(good, 0.5, -0.5)[..., None], good * 1.0


def middling(key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Actions from -0.3 to 0.3, which are their rewards."""
    action = jax.random.uniform(key, shape, minval=-0.3, maxval=0.3)
    return action[..., None], action


def learned(agent: Any, law: Law, updates: int = 600) -> Any:
    """The agent's state after updates on steps that end their episodes, all seen from one place."""
    shape = agent.delay, 64, 1 + getattr(agent, "ahead", 0)

    def learn(state: Any, key: jax.Array) -> tuple[Any, None]:
        action, reward = law(key, shape)
        obs, ends = jnp.zeros((*shape, 1)), jnp.full(shape, True)
        told = {"return": reward}
        batch = Transition(obs, action, reward, ends, ends & False, obs, told)
        return agent.update(state, batch, key)[0], None

    state = agent.init(jax.random.key(0), OBS, jnp.zeros(1))
    keys = jax.random.split(jax.random.key(1), updates)
    return jax.jit(lambda state: jax.lax.scan(learn, state, keys)[0])(state)


def does(agent: Any, law: Law) -> float:
    """What it does, without noise, after it has learned."""
    policy = agent.policy(explore=False, action_dim=1)
    params = agent.deploy(learned(agent, law))
    return float(policy.step(params, (), OBS, jax.random.key(0))[0][0])


def test_bc_does_what_is_usual_and_its_siblings_what_pays() -> None:
    assert does(BC(**NETS), seldom_good) < -0.25  # -0.3 is the mean
    for agent in (IQL(**NETS), AWAC(**NETS), DVL(**NETS, weight=0.8)):
        assert does(agent, seldom_good) > 0.2, agent


@pytest.mark.long
def test_imitation_keeps_near_the_data_what_td3_takes_to_an_edge() -> None:
    assert does(TD3(**NETS), middling) > 0.8
    for agent in (TD3BC(**NETS, alpha=0.5), ReBRAC(**NETS, actor_bc=2.0)):
        assert 0.05 < does(agent, middling) < 0.6, agent  # the data's mean is 0


def believed(agent: Any, *actions: float) -> list[float]:
    state, several = learned(agent, middling), jnp.array(actions)[:, None]
    obs = jnp.zeros((len(actions), 1))
    return agent.believed(state, obs, several).tolist()


def test_cql_holds_down_what_was_never_tried() -> None:
    agent = CQL((32,), (32,), lr=0.0, critic_lr=3e-3, penalty=5.0)
    seen, beyond = believed(agent, 0.25, 0.95)
    assert beyond < seen - 0.3
    seen, beyond = believed(replace(agent, penalty=0.0), 0.25, 0.95)  # SAC's critics
    assert beyond > seen + 0.3


def test_cal_ql_holds_down_nothing_of_the_policy_below_what_was_had() -> None:
    """Of a policy that stays as it began, whose actions the data hold as well."""
    agent = CQL((32,), (32,), lr=0.0, critic_lr=3e-3, penalty=5.0, importance=False)

    def constant(key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        return 0.1 * jax.random.normal(key, (*shape, 1)) + 0.8, jnp.ones(shape)

    def of_policy(agent: CQL) -> float:
        state = learned(agent, constant)
        own, _ = agent.act(state.actor.params, OBS[None], 1, jax.random.key(0), 256)
        own = own[0][jnp.abs(own[0, :, 0]) < 0.4]  # far from the data's 0.8
        obs = jnp.zeros((len(own), 1))
        return float(agent.believed(state, obs, own).mean())

    held_down, calibrated = of_policy(agent), of_policy(replace(agent, calibrated=True))
    assert held_down < -1
    assert calibrated > held_down + 1
