"""The oracle of residual learning: what is played, and what critics are taught, by hand."""

import math

import numpy as np
import pytest

from tests.oracles import offpolicy, residual


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def linear(weight, bias=0.0):
    """Critics [E, B] of actions [B, A]: weight [E, A]; the bias [B] stands for the observation."""
    return lambda action: weight @ action.T + bias


# What is played


def test_total():
    base, mu = [[0.9, -0.5]], [[math.atanh(0.5), -math.atanh(0.8)]]
    np.testing.assert_allclose(residual.total(base, mu, 0.4), [[1.1, -0.82]])  # beyond 1: not cut
    np.testing.assert_allclose(residual.executed(residual.total(base, mu, 0.4)), [[1.0, -0.82]])
    np.testing.assert_allclose(residual.total([0.9], [1e3], 0.2), [1.1])  # never off by more
    np.testing.assert_array_equal(residual.total(base, mu, 0.0), base)
    np.testing.assert_array_equal(residual.executed([-3.0, -1.0, 0.3, 7.0]), [-1, -1, 0.3, 1])
    np.testing.assert_allclose(residual.combined([0.9], [5.0], 0.2), [1.9])  # no tanh
    with pytest.raises(AssertionError):
        residual.total(np.zeros((3, 2)), np.zeros(2), 0.1)


def counting(carry, obs):
    """A base that says how often it was asked since its episode began, and 0.1 of what it sees."""
    count = 0 if carry is None else carry
    return np.array([0.1 * obs[0], 0.01 * count]), count + 1


def adder(length):
    """An environment whose observation grows by what is played; an episode ends at `length`."""
    return lambda obs, action: (
        obs + np.array([action[0], 1.0]),
        10 * action[0],
        obs[1] + 1 == length,
    )


def test_rollout():
    """Three ticks an episode: 4, 4.9, 5.89 and 6.89, as 1.089 is stored and 1 is played."""
    learned = lambda obs, base: np.array([1.0, base[1] * 100 + obs[1]])  # noqa: E731
    got = residual.rollout(adder(3), [4.0, 0.0], counting, learned, 0.5, 5)
    np.testing.assert_allclose(got.obs[:, 0], [4, 4.9, 5.89, 4, 4.9])
    np.testing.assert_array_equal(got.obs[:, 1], [0, 1, 2, 0, 1])
    np.testing.assert_allclose(got.base[:, 0], [0.4, 0.49, 0.589, 0.4, 0.49])
    np.testing.assert_allclose(got.base[:, 1], [0, 0.01, 0.02, 0, 0.01])
    np.testing.assert_allclose(got.total[:, 0], [0.9, 0.99, 1.089, 0.9, 0.99])
    np.testing.assert_allclose(got.total[:, 1], [0, 1.01, 2.02, 0, 1.01])
    np.testing.assert_allclose(got.reward, [9, 9.9, 10, 9, 9.9])  # of what was executed
    np.testing.assert_array_equal(got.done, [False, False, True, False, False])
    np.testing.assert_allclose(got.next_obs[:, 0], [4.9, 5.89, 6.89, 4.9, 5.89])
    np.testing.assert_allclose(got.next_base[:, 0], [0.49, 0.589, 0.689, 0.49, 0.589])
    np.testing.assert_allclose(got.next_base[:, 1], [0.01, 0.02, 0.03, 0.01, 0.02])


def test_rollout_without_a_residual_is_the_base():
    """Whatever is learned, scale 0 plays the base alone; a new start in each episode."""
    starts = [[4.0, 0.0], [-2.0, 0.0], [1.0, 0.0]]
    learned = lambda obs, base: normal(3, 2)  # noqa: E731
    got = residual.rollout(adder(2), lambda episode: starts[episode], counting, learned, 0.0, 6)
    np.testing.assert_array_equal(got.total, got.base)
    np.testing.assert_array_equal(got.obs[::2], starts)
    np.testing.assert_allclose(got.next_obs, got.obs + np.stack([got.base[:, 0], np.ones(6)], 1))
    going_on = ~got.done[:-1]
    np.testing.assert_array_equal(got.next_base[:-1][going_on], got.base[1:][going_on])
    assert (got.next_base[:-1] != got.base[1:])[got.done[:-1]].all()


# ResFiT


def test_window_return():
    """gamma 1/2: to the window's end, terminated, truncated, both, and at the first step."""
    reward = np.array([[8.0, 4, 2], [8, 4, math.nan], [8, 4, math.nan], [8, 4, 2], [8, 4, 2]])
    terminated = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0]])
    truncated = np.array([[0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0]])
    got, discount, steps = residual.window_return(reward, terminated, truncated, 0.5)
    np.testing.assert_array_equal(got, [10.5, 10, 10, 10.5, 8])
    np.testing.assert_array_equal(discount, [0.125, 0, 0.25, 0, 0])
    np.testing.assert_array_equal(steps, [3, 2, 2, 3, 1])


def test_window_return_of_values_that_fit():
    """r = V(s) - gamma V(s'): whatever the window's length, return and bootstrap are V(s)."""
    value, none = normal(1, 8), np.zeros((1, 7))
    reward = (value[:-1] - 0.9 * value[1:])[None]
    for length in range(1, 8):
        ends = none.copy()
        ends[0, length - 1] = 1
        for window, end in ((7, ends), (length, none)):
            cut = (x[:, :window] for x in (reward, none, end))
            got, discount, steps = residual.window_return(*cut, 0.9)
            assert steps == [length]
            assert got + discount * value[length] == pytest.approx(value[0])


def test_target():
    """By hand: A = 1, the noise not scaled, the sum clipped after it, the lowest counts."""
    weight, bias = np.array([[1.0], [2.0], [-3.0]]), np.array([0.0, 10.0, 0.0, 0.0])
    base, mu = [[0.5], [0.8], [-0.9], [0.95]], np.arctanh([[0.5], [0.5], [-0.5], [0.5]])
    noise, discount = [[0.05], [0.3], [0.04], [-0.1]], [0.9, 0.5, 0.0, 1.0]
    # 0.5 + 0.1 + 0.05 = 0.65; 0.8 + 0.1 + 0.3 is cut to 1; any; 0.95 + 0.1 - 0.1 = 0.95
    args = ([1.0, 2.0, 3.0, 4.0], discount, base, mu, noise, 0.2)
    drawn = [0, 1], [2, 1], [1]
    got = [residual.target(*args, linear(weight[which], bias)) for which in drawn]
    np.testing.assert_allclose(got[0], [1 + 0.9 * 0.65, 2 + 0.5 * 11, 3, 4.95])
    np.testing.assert_allclose(got[1], [1 - 0.9 * 1.95, 2 + 0.5 * 7, 3, 4 - 2.85])
    np.testing.assert_allclose(got[2], [1 + 0.9 * 1.3, 2 + 0.5 * 12, 3, 4 + 1.9])
    with pytest.raises(AssertionError):
        residual.target(*args, linear(weight[[]], bias))
    with pytest.raises(AssertionError):
        residual.target(*args[:4], np.zeros(4), 0.2, linear(weight, bias))


def test_target_without_residual_and_noise_is_of_the_base():
    """One critic and scale 0: SARSA on what the base does."""
    reward, discount, base = normal(2, 5), np.full(5, 0.9), normal(3, 5, 2)
    critic = linear(normal(4, 1, 2))
    args = (base, normal(5, 5, 2), np.zeros((5, 2)), 0.0, critic)
    want = offpolicy.sac_target(
        reward, discount, critic(base.clip(-1, 1)), next_logp=np.zeros(5), alpha=0.0, entropy=False
    )
    np.testing.assert_allclose(residual.target(reward, discount, *args), want)
