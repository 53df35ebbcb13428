"""What on-policy learning judges by: against the oracles, and on a chain whose values are known."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl import baseline, norm
from rl.baseline import Baseline
from rl.types import Transition
from tests.oracles import finetune, ppo

KEY = jax.random.key(0)
SIZE, B = 4, 6
RNG = np.random.default_rng(0)
CHAIN = 7  # states


def drawn(*shape: int) -> Any:
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


OBS = 2 + 3 * drawn(B, SIZE)
STEPS = Transition(
    {"policy": drawn(9, B, 2), "critic": 2 + 3 * drawn(9, B, SIZE)},
    drawn(9, B, 2),
    drawn(9, B),
    jnp.asarray(RNG.random((9, B)) < 0.15),
    jnp.asarray(RNG.random((9, B)) < 0.15),
    {"policy": drawn(9, B, 2), "critic": 2 + 3 * drawn(9, B, SIZE)},
)


def test_a_batch_is_judged_as_by_the_oracle() -> None:
    """A time limit goes on from the observation that was the last, not from the next one's."""
    learner = Baseline(hidden=(8,), gamma=0.9, lam=0.7)
    value = learner.init(KEY, OBS[0])
    value = value._replace(returns=value.returns._replace(mean=jnp.float32(2), var=jnp.float32(9)))
    value = value._replace(obs=norm.update(value.obs, OBS))
    net = value.net.params["params"]
    layers = [(x["kernel"], x["bias"]) for x in (net["Dense_0"], net["Dense_1"])]

    def worth(obs: Any) -> tuple[np.ndarray, np.ndarray]:
        known = (np.asarray(obs["critic"]) - value.obs.mean) / np.sqrt(value.obs.var + 1e-8)
        return known, 2 + 3 * ppo.mlp(known, layers)[..., 0]

    (known, now), (_, then) = worth(STEPS.obs), worth(STEPS.next_obs)
    ends = STEPS.reward, now, then, STEPS.terminated, STEPS.truncated
    want = ppo.gae(*ends, gamma=0.9, lam=0.7)
    judged = jax.jit(learner.judge)(value, STEPS)
    close = partial(np.testing.assert_allclose, atol=1e-4)
    close(judged.known, known)
    close(judged.advantage, want)
    close(judged.returns, want + now)
    close(judged.target, (want + now - 2) / 3)
    close(learner.loss(value.net.params, judged.known, judged.target)[0],
          ppo.value_loss((now - 2) / 3, judged.target))  # fmt: skip
    shifted = np.concatenate([now[1:], then[-1:]])  # of the next episode, after an end
    cut = STEPS.terminated | STEPS.truncated
    for wrong in ((STEPS.reward, now, shifted, *ends[3:]), (*ends[:3], cut, ends[4])):
        assert np.abs(ppo.gae(*wrong, gamma=0.9, lam=0.7) - want).max() > 0.1
    after = learner.observe(value, STEPS, judged)
    more = norm.update(value.returns, judged.returns)
    close(after.returns.mean, more.mean)
    close(after.obs.mean, norm.update(value.obs, STEPS.obs["critic"]).mean)


def visited(total: int, count: int, minibatches: int, key: jax.Array = KEY) -> Any:
    """Rows [count, minibatches, size] in which epochs go, and what they tell."""
    size = total // minibatches

    def step(state: Any, few: Any) -> Any:
        at, log = state
        apart = jnp.abs(few["x"][:, 0] - 10 * few["row"]).max()
        told = {"mean": few["row"].mean(), "apart": apart}
        return (at + 1, log.at[at].set(few["row"])), told

    rows = jnp.arange(total)
    begin = jnp.int32(0), jnp.zeros((count * minibatches, size), jnp.int32)
    sample = {"row": rows, "x": 10.0 * jnp.stack([rows, rows], 1)}
    (_, log), told = jax.jit(
        lambda key: baseline.epochs(step, begin, sample, key, count, minibatches)
    )(key)
    return np.asarray(log).reshape(count, minibatches * size), told


def test_epochs_visit_every_sample_once_in_orders_of_their_own() -> None:
    log, told = visited(24, 5, 4)
    np.testing.assert_array_equal(np.sort(log, 1), np.tile(np.arange(24), (5, 1)))
    assert len(np.unique(log, axis=0)) == 5
    assert (log != np.arange(24)).any(1).all()
    assert float(told["apart"]) == 0  # leaves go together
    assert float(told["mean"]) == pytest.approx(11.5)
    np.testing.assert_array_equal(visited(24, 5, 4)[0], log)
    assert (visited(24, 5, 4, jax.random.key(1))[0] != log).any()
    odd, _ = visited(27, 3, 4)  # what does not fill a minibatch waits for another epoch
    assert all(len(set(row)) == 24 for row in odd)
    assert len(set(odd.ravel())) > 24


@pytest.mark.parametrize(("total", "minibatches"), [(7, 4), (3, 4), (1, 1)])
def test_minibatches_that_teach_nothing_are_refused(total: int, minibatches: int) -> None:
    said = f"{total} samples do not fill {minibatches} minibatches of 2 or more: collect more "
    with pytest.raises(ValueError, match=said):
        visited(total, 1, minibatches)
    visited(2 * minibatches, 1, minibatches)


@pytest.mark.parametrize("clip", [0.2, "each"])
def test_the_surrogate_is_the_oracles(clip: Any) -> None:
    logp, old, advantage = 0.4 * drawn(64), 0.4 * drawn(64), drawn(64)
    clip = 0.05 + 0.3 * jnp.asarray(RNG.random(64)) if clip == "each" else clip
    got = float(baseline.surrogate(logp, old, advantage, clip))
    assert got == pytest.approx(finetune.ratio_loss(logp, old, advantage, clip), abs=1e-5)
    ratio = np.exp(logp - old)
    wrong = -np.maximum(ratio * advantage, np.clip(ratio, 1 - clip, 1 + clip) * advantage).mean()
    assert abs(got - wrong) > 0.05
    even = baseline.normalised(advantage)
    np.testing.assert_allclose(even, finetune.normalise_advantage(advantage), atol=1e-5)


def walked(rng: np.random.Generator, at: np.ndarray, ticks: int, p: float) -> Any:
    """Transitions of walks along a chain, worth 1 at its right end; some are cut, and go on
    elsewhere."""
    rows = []
    for _ in range(ticks):
        after = at + np.where(rng.random(len(at)) < p, 1, -1)
        over, cut = (after == 0) | (after == CHAIN + 1), rng.random(len(at)) < 0.15
        rows.append((at, after == CHAIN + 1, over, cut & ~over, np.clip(after, 1, CHAIN)))
        at = np.where(over | cut, rng.integers(1, CHAIN + 1, len(at)), after)
    now, reward, over, cut, then = (np.stack(x) for x in zip(*rows, strict=True))
    eye = np.eye(CHAIN, dtype="f4")
    parts = eye[now - 1], now[..., None], 10.0 * reward, over, cut, eye[then - 1]
    return at, Transition(*map(jnp.asarray, parts))


def taught(learner: Baseline) -> Any:
    """All that a batch teaches."""

    @jax.jit
    def update(value: Any, batch: Transition, key: jax.Array) -> Any:
        judged = learner.judge(value, batch)
        sample = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (judged.known, judged.target))
        after, told = baseline.epochs(lambda v, s: learner.step(v, *s), value, sample, key, 4, 8)
        return learner.observe(after, batch, judged), told

    return update


def meant(learner: Baseline, value: Any, known: Any) -> Any:
    """Values in units of rewards."""
    std = jnp.sqrt(value.returns.var)
    return value.returns.mean + std * learner.scaled(value.net.params, known)


def test_a_batch_that_is_counted_changes_no_value() -> None:
    """Of the same sight, however far its returns lie from all before."""
    learner = Baseline(hidden=(8, 8))
    value = learner.init(KEY, OBS[0])
    value = value._replace(returns=norm.Stats(jnp.float32(50), jnp.float32(-2), jnp.float32(9)))
    more = learner.judge(value, STEPS)._replace(returns=300 + 40 * drawn(9, B))
    after = learner.observe(value, STEPS, more)
    before = meant(learner, value, OBS)
    np.testing.assert_allclose(meant(learner, after, OBS), before, atol=1e-4)
    assert np.abs(meant(learner, value._replace(returns=after.returns), OBS) - before).max() > 100


def test_values_of_what_never_ends_do_not_run_away() -> None:
    """Where all that is earned is much alike and a time limit is the one end, a return is a hundred
    times what its spread begins with."""
    learner, rng = Baseline(hidden=(32,)), np.random.default_rng(0)
    value, update, told = learner.init(KEY, jnp.zeros(SIZE)), taught(learner), []
    for i in range(150):
        obs, after = (jnp.asarray(rng.normal(size=(16, 32, SIZE)), jnp.float32) for _ in range(2))
        reward = 1 + 0.3 * obs[..., 0]
        none = jnp.zeros(reward.shape, bool)
        batch = Transition(obs, obs[..., :2], reward, none, none, after)
        value, _ = update(value, batch, jax.random.fold_in(KEY, i))
        told.append(float(meant(learner, value, norm.normalise(value.obs, obs)).mean()))
    assert max(told) < 110, told
    assert told[-1] > 80, told


def test_a_baseline_learns_what_states_of_a_chain_are_worth() -> None:
    """In units of tens, of cut episodes too, to a tenth of what they differ by."""
    gamma, p = 0.95, 0.6
    move = np.zeros((CHAIN, CHAIN))
    for i in range(CHAIN):
        for j, chance in ((i + 1, p), (i - 1, 1 - p)):
            if 0 <= j < CHAIN:
                move[i, j] = chance
    paid = np.where(np.arange(CHAIN) == CHAIN - 1, 10 * p, 0)
    worth = np.linalg.solve(np.eye(CHAIN) - gamma * move, paid)
    cut = np.linalg.solve(np.eye(CHAIN) - 0.85 * gamma * move, paid)  # were a time limit an end
    learner = Baseline(hidden=(32,), lr=3e-3, gamma=gamma, lam=0.9)
    value, rng = learner.init(KEY, jnp.zeros(CHAIN)), np.random.default_rng(0)

    update, at = taught(learner), rng.integers(1, CHAIN + 1, 64)
    for i in range(60):
        at, batch = walked(rng, at, 32, p)
        value, _ = update(value, batch, jax.random.fold_in(KEY, i))
    got = meant(learner, value, norm.normalise(value.obs, jnp.eye(CHAIN)))
    assert np.abs(got - worth).max() < 0.1 * np.ptp(worth), (got, worth)
    assert np.abs(cut - worth).max() > 0.2 * np.ptp(worth)
