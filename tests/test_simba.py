"""SimbaV2's networks and scaled rewards against oracles in float64."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.sac import SAC
from rl import norm, simba
from rl.heads import C51
from rl.types import Transition
from tests.learners import SEEN, A, B, close, window
from tests.oracles import crossq, networks

AGENT = SAC(
    nets="simbav2", hidden=(8,), critic_hidden=(16, 16), head=C51(-3, 4, 21), alpha=0.3, gamma=0.9,
    critics=2, lr=1e-2, critic_lr=1e-2,
)  # fmt: skip
KEY = jax.random.key(5)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def scale_of(x: Any, begin: float, scale: float) -> tuple[np.ndarray, float, float]:
    return np.asarray(x["factor"], np.float64), begin, scale


def kernel(x: Any) -> np.ndarray:
    return np.asarray(x["Dense_0"]["kernel"], np.float64)


def trunk(params: Any, width: int, blocks: int) -> tuple[Any, Any]:
    """The oracle's embedding and blocks."""
    gain = (2 / width) ** 0.5
    embed = kernel(params["Sphere_0"]), scale_of(params["Scaler_0"], gain, gain)
    rest = []
    for i in range(blocks):
        wide = scale_of(params[f"Scaler_{2 * i + 1}"], gain / 2, gain / 2)
        alpha = scale_of(params[f"Scaler_{2 * i + 2}"], 1 / (blocks + 1), width**-0.5)
        rest.append((tuple(kernel(params[f"Sphere_{2 * i + k}"]) for k in (1, 2)), wide, alpha))
    return embed, rest


def head(params: Any) -> tuple[Any, Any, Any]:
    kernels = tuple(kernel(params[f"Sphere_{k}"]) for k in (0, 1))
    return kernels, scale_of(params["Scaler_0"], 1.0, 1.0), np.asarray(params["bias"], np.float64)


def moved(params: Any, rng: np.random.Generator) -> Any:
    """`params` away from where they begin, on the sphere again."""
    noisy = jax.tree.map(lambda x: x + 0.2 * jnp.asarray(rng.random(x.shape), "f4"), params)
    return simba.project(noisy)


def member(params: Any, i: int) -> Any:
    return jax.tree.map(lambda x: x[i], params["params"])


def oracle_critics(params: Any, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Logits [2, B, K]."""
    each = [member(params, i) for i in range(2)]
    parts = [(*trunk(one["Trunk_0"], 16, 2), head(one["Head_0"])) for one in each]
    return np.stack([crossq.simba_critic(obs, action, *part) for part in parts])


def oracle_actor(params: Any, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    params = params["params"]
    return crossq.simba_actor(
        obs, *trunk(params["Trunk_0"], 8, 1), head(params["Head_0"]), head(params["Head_1"])
    )


def test_networks_are_the_oracles(rng: np.random.Generator) -> None:
    state = AGENT.init(KEY, jnp.zeros(SEEN), jnp.zeros(A))
    obs, action = rng.normal(size=(B, SEEN)), rng.uniform(-1, 1, size=(B, A))
    x, a = jnp.asarray(obs, jnp.float32), jnp.asarray(action, jnp.float32)
    for shift in (False, True):
        critic, actor = state.critic.params, state.actor.params
        if shift:
            critic, actor = moved(critic, rng), moved(actor, rng)
        assert close(AGENT.q(critic, x, a), oracle_critics(critic, obs, action))
        ours = simba.SimbaGaussian(A, (8,)).apply(actor, x)
        for one, other in zip(ours, oracle_actor(actor, obs), strict=True):
            assert close(one, other)


def test_losses_are_the_oracles(rng: np.random.Generator) -> None:
    state, batch = AGENT.init(KEY, jnp.zeros(SEEN), jnp.zeros(A)), window(rng, length=1)
    critic, target = moved(state.critic.params, rng), moved(state.critic.params, rng)
    state = state._replace(critic=state.critic._replace(params=critic), target=target)
    sample = AGENT.sample(state, batch)
    obs, after, done = (np.asarray(x, np.float64) for x in (
        sample.obs.policy, sample.next_obs.policy, sample.action,
    ))  # fmt: skip
    act_key = jax.random.split(KEY, 3)[0]
    mean, log_std = oracle_actor(state.actor.params, after)
    u = mean + np.exp(log_std) * np.asarray(jax.random.normal(act_key, mean.shape), np.float64)
    logp = crossq.offpolicy.tanh_normal_logp(u, mean, log_std)
    logits, follow = oracle_critics(critic, obs, done), oracle_critics(target, after, np.tanh(u))
    told = {"reward": sample.reward, "discount": np.asarray(sample.discount), "next_logp": logp}
    wanted = crossq.simba_critic_loss(logits, follow, told, -3, 4, alpha=0.3, how="min")
    ours = AGENT.critic_loss(critic, sample, AGENT.backup(state, sample, KEY), KEY)[0]
    assert close(2 * ours, wanted)  # the mean over two critics here, their sum there
    for plant in ({"reward": -sample.reward}, {"next_logp": -logp}, {"discount": 0.9 + 0 * logp}):
        wrong = crossq.simba_critic_loss(logits, follow, told | plant, -3, 4, alpha=0.3, how="min")
        assert not close(2 * ours, wrong)


def test_every_step_ends_on_the_sphere(rng: np.random.Generator) -> None:
    state = AGENT.init(KEY, jnp.zeros(SEEN), jnp.zeros(A))
    batch = jax.tree.map(lambda x: x[None], window(rng, length=1))
    after, _ = jax.jit(AGENT.update)(state, batch, KEY)
    for params in (
        state.actor.params,
        state.critic.params,
        after.actor.params,
        after.critic.params,
    ):
        for path, x in jax.tree_util.tree_leaves_with_path(params):
            if "kernel" in jax.tree_util.keystr(path):
                assert np.allclose(jnp.linalg.norm(x, axis=-2), 1, atol=1e-5)
    for now, then in ((after.actor, state.actor), (after.critic, state.critic)):
        changed = jax.tree.map(lambda a, b: bool((a != b).any()), now.params, then.params)
        assert all(jax.tree.leaves(changed))
    tau = AGENT.tau  # targets are not projected
    mixed = jax.tree.map(lambda a, b: tau * a + (1 - tau) * b, after.critic.params, state.target)
    assert jax.tree.all(
        jax.tree.map(lambda a, b: jnp.allclose(a, b, atol=1e-7), after.target, mixed)
    )


def test_kernels_are_projected_as_the_oracle_says(rng: np.random.Generator) -> None:
    x = rng.normal(size=(5, 3))
    ours = simba.project({"Sphere_0": {"kernel": jnp.asarray(x)}, "other": jnp.asarray(x)})
    assert close(ours["Sphere_0"]["kernel"], networks.unit_columns(x))
    assert close(ours["other"], x)


@pytest.mark.parametrize("bound", [5.0, 0.5])
def test_rewards_are_scaled_as_the_oracle_says(bound: float, rng: np.random.Generator) -> None:
    reward, done = rng.normal(1, 3, size=40), rng.random(40) < 0.2
    flags = jnp.asarray(done)[:, None]
    seen = Transition(
        obs=(), action=jnp.zeros((40, 1, 1)), reward=jnp.asarray(reward, jnp.float32)[:, None],
        terminated=flags & (jnp.arange(40) % 2 == 0)[:, None],
        truncated=flags & (jnp.arange(40) % 2 == 1)[:, None], next_obs=(),
    )  # fmt: skip
    _, wanted = networks.reward_scale(reward, done, gamma=0.9, g_max=bound, form="episode")
    returns, rows = norm.returns(1), [0, 1, 7, 8, 30, 40]
    for first, end in pairwise(rows):
        part = jax.tree.map(lambda x, rows=slice(first, end): x[rows], seen)
        returns = norm.earn(returns, part, 0.9)
        assert np.isclose(norm.unit(returns, bound), wanted[end - 1], rtol=1e-5)


def test_learning_rates_fall_to_half() -> None:
    agent = SAC(lr=1e-2, halve_lr=10)
    tx, params = agent.tx(agent.lr), jnp.float32(0)
    opt, sizes = tx.init(params), []
    for _ in range(20):
        step, opt = tx.update(jnp.float32(1), opt, params)
        sizes.append(-float(step))
    assert np.allclose(sizes[:11:5], [1e-2, 7.5e-3, 5e-3], rtol=1e-4)
    assert np.allclose(sizes[10:], 5e-3, rtol=1e-4)


def test_blocks_of_unequal_width_are_refused() -> None:
    with pytest.raises(ValueError, match="one for each block"):
        SAC(nets="simbav2", critic_hidden=(64, 32))
