"""Residuals: the sum and its world by an oracle, what is told of it, and PPO above a base."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.bc import BC
from agents.ppo import PPO
from agents.resip import ResiP
from rl import residual, rollout
from rl.env import State
from rl.policy import Policy, memoryless
from rl.residual import BASE, Assisted
from rl.types import Transition
from tests.oracles import residual as oracle

SIZE, A = 3, 2
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
INTO, PUSH = RNG.normal(size=(SIZE, A)).astype("f4"), RNG.normal(size=(A, SIZE)).astype("f4")
START = np.array([0.5, -0.3, 0.2], "f4")
LENGTH, SCALE = 4, 0.3


class Drift:
    """A point that drifts and is pushed; every episode begins alike and lasts four steps."""

    action_dim, horizon, control_dt, restarts = A, LENGTH, 0.1, "few"

    def reset(self, key: jax.Array, context: Any = None) -> State:
        no = jnp.bool(False)
        return State((), (), jnp.asarray(START), jnp.float32(0), no, no, {}, jnp.int32(0), key)

    def step(self, state: State, action: jax.Array) -> State:
        obs = 0.9 * state.obs + 0.2 * action @ PUSH
        t, key = state.t + 1, jax.random.fold_in(state.key, 9)
        return state._replace(obs=obs, reward=-(obs**2).sum(), t=t, truncated=t >= LENGTH, key=key)

    def restart(self, state: State, prepared: State | None = None) -> State:
        fresh = self.reset(state.key) if prepared is None else prepared
        return self.select(state.done, fresh, state)

    def select(self, done: jax.Array, fresh: State, state: State) -> State:
        return jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, state)


class Prepared(Drift):
    restarts = "prepared"


def base_step(params: Any, carry: jax.Array, obs: jax.Array, key: Any) -> Any:
    """It acts by what it sees and by how long it has acted, as chunks do."""
    return params * jnp.tanh(obs @ INTO + carry), carry + 0.4, ()


BASE_POLICY = Policy(lambda params: jnp.float32(0), base_step)
LEARNED = memoryless(
    lambda params, obs, key: (jnp.sin(params * (obs["policy"][:A] + obs[BASE])), ())
)


def played(env: Any, policy: Policy, params: Any, ticks: int, worlds: int = 2) -> Transition:
    """Transitions [T, N, ...]."""
    begun = rollout.start(env, policy, params, KEY, worlds)
    return jax.jit(lambda w: rollout.collect(env, policy, params, w, KEY, ticks)[1])(begun)


@pytest.mark.parametrize("world", [Drift(), Prepared()], ids=["few", "prepared"])
def test_an_assisted_world_and_the_sum_go_as_by_hand(world: Any) -> None:
    """Chunks go on over a restart of others, and begin anew with an episode of their own."""

    def env_step(obs: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        count["t"] += 1
        after = 0.9 * obs + 0.2 * action @ PUSH
        return after, -float((after**2).sum()), count["t"] % LENGTH == 0

    def acts(carry: Any, obs: np.ndarray) -> tuple[np.ndarray, float]:
        carry = 0.0 if carry is None else carry
        return 0.9 * np.tanh(obs @ INTO + carry), carry + 0.4

    count = {"t": 0}
    learned = lambda obs, base: np.sin(2.0 * (obs[:A] + base))  # noqa: E731
    want = oracle.rollout(env_step, START, acts, learned, SCALE, 11)
    env = Assisted(world, BASE_POLICY, jnp.float32(0.9))
    seen = played(env, residual.above(LEARNED, SCALE), jnp.float32(2), 11)
    for got, name in (
        (seen.obs["policy"], "obs"), (seen.obs[BASE], "base"), (seen.action, "total"),
        (seen.reward, "reward"), (seen.next_obs["policy"], "next_obs"),
        (seen.next_obs[BASE], "next_base"),
    ):  # fmt: skip
        np.testing.assert_allclose(got[:, 1], getattr(want, name), atol=2e-6, err_msg=name)
    params = {"base": jnp.float32(0.9), "learned": jnp.float32(2)}
    alone = played(world, residual.residual(BASE_POLICY, LEARNED, SCALE), params, 11)
    np.testing.assert_allclose(alone.action[:, 0], oracle.executed(want.total), atol=2e-6)
    assert np.abs(want.total).max() > 1  # what is asked for is more than what is done


def test_no_gradient_reaches_the_base() -> None:
    policy = residual.residual(BASE_POLICY, LEARNED, SCALE)

    def acted(params: Any) -> jax.Array:
        return policy.step(params, policy.init(params), jnp.asarray(START), KEY)[0].sum()

    slope = jax.grad(acted)({"base": jnp.float32(0.9), "learned": jnp.float32(2)})
    assert slope["base"] == 0
    assert abs(slope["learned"]) > 0.001


def test_a_trial_tells_what_episodes_come_to_with_and_without() -> None:
    """Means of all episodes without, of the late ones with; ends are theirs alone."""
    rng, worlds, ticks = np.random.default_rng(3), 3, 2_000
    reward = rng.normal(1, 1, (ticks, worlds)).astype("f4")
    ended = rng.random((ticks, worlds)) < 0.1
    alone = np.zeros((ticks, worlds), bool)
    sums, kind, lists = np.zeros(worlds), rng.random(worlds) < 0.5, ([], [])
    for t in range(ticks):
        alone[t], sums = kind, sums + reward[t]
        for n in np.flatnonzero(ended[t]):
            lists[0 if kind[n] else 1].append(sums[n])
            sums[n], kind[n] = 0, rng.random() < 0.5
    few = 200  # steps, in which there are no more than LATELY of a kind
    got = residual.tried(
        residual.trial(worlds), *map(jnp.asarray, (reward[:few], ended[:few], alone[:few]))
    )
    counts = [int(x) for x in got.counts]
    assert max(counts) <= residual.LATELY
    for i in (0, 1):
        np.testing.assert_allclose(got.means[i], np.mean(lists[i][: counts[i]]), rtol=1e-4)
        squares = np.square(lists[i][: counts[i]])
        np.testing.assert_allclose(got.squares[i], squares.mean(), rtol=1e-4)
    got = residual.tried(residual.trial(worlds), *map(jnp.asarray, (reward, ended, alone)))
    for i in (0, 1):
        assert int(got.counts[i]) == len(lists[i])
    np.testing.assert_allclose(got.means[0], np.mean(lists[0]), rtol=1e-4)
    assert len(lists[0]) > 5 * residual.LATELY
    assert abs(got.means[1] - np.mean(lists[1][-residual.LATELY :])) < 4
    np.testing.assert_allclose(got.sums, sums, atol=1e-3)


def test_it_passes_when_it_is_better_than_chance_tells() -> None:
    """By two standard errors of a difference of two means, one of late episodes at most."""

    def told(alone: float, together: float, counts: tuple[int, int]) -> bool:
        means = jnp.array([alone, together])  # of ones and zeros, whose squares they are
        begun = residual.trial(1)._replace(means=means, squares=means, counts=jnp.array(counts))
        return bool(begun.passed)

    assert not told(0.4, 0.7, (10, 40))  # errors of 0.24 / 10 and 0.21 / 40: 0.34 in all
    assert told(0.4, 0.75, (10, 40))
    assert not told(0.5, 0.6, (100, 40))
    assert told(0.5, 0.7, (100, 79))
    assert not told(0.5, 0.6, (100_000, 100_000))  # one is of the last 79 or so
    assert told(0.5, 0.62, (100_000, 100_000))
    assert told(1.0, 1.0, (10, 10))
    assert not told(0.2, 0.9, (50, 9))


def test_resip_learns_of_what_it_gave_before_it_was_scaled() -> None:
    """Its losses are PPO's, of views with the base's action behind them."""
    agent = ResiP(
        base=BC(hidden=(8,)),
        scale=SCALE,
        ppo=PPO(hidden=(8,), critic_hidden=(8,), epochs=1, minibatches=1),
    )
    state = agent.init(KEY, jnp.zeros(SIZE), jnp.zeros(A))
    env = Assisted(Drift(), agent.base.policy(False, A), state.base)
    params = agent.deploy(state)["learned"]
    seen = played(env, residual.above(agent.learned(True, A), SCALE), params, 8)
    np.testing.assert_allclose(
        seen.action, oracle.combined(seen.obs[BASE], seen.aux["more"], SCALE), atol=1e-6
    )
    told = oracle.seen(seen.obs["policy"], seen.obs[BASE])
    mean, log_std = agent.ppo.gaussian(params["actor"], jnp.asarray(told, jnp.float32), A)
    np.testing.assert_allclose(
        seen.aux["logp"], oracle.residual_logp(seen.aux["more"], mean, log_std), atol=1e-4
    )
    after, _ = jax.jit(agent.update)(state, seen, KEY)
    views = oracle.seen(seen.next_obs["policy"], seen.next_obs[BASE])
    plain = seen._replace(
        obs=jnp.asarray(told), next_obs=jnp.asarray(views), action=seen.aux["more"]
    )
    want, _ = jax.jit(agent.ppo.update)(state.ppo, plain, KEY)
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)  # compiled apart
    jax.tree.map(close, after.ppo, want)
