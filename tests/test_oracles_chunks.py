"""The oracle of chunks, on cases worked by hand."""

import math

import numpy as np
import pytest

from tests.oracles import chunks


def plan(horizon):
    """Chunks that say when they were made, and of which observation: [10 tick + i, obs]."""
    return lambda tick, obs: [[10.0 * tick + i, obs] for i in range(horizon)]


def test_receding():
    got = chunks.receding(plan(4), np.arange(7) * 0.5, 3)
    np.testing.assert_array_equal(got[:, 0], [0, 1, 2, 30, 31, 32, 60])
    np.testing.assert_array_equal(got[:, 1], [0, 0, 0, 1.5, 1.5, 1.5, 3])
    got = chunks.receding(plan(4), np.arange(3), 1)
    np.testing.assert_array_equal(got[:, 0], [0, 10, 20])


def test_ensembled():
    """H = 3 and weights 1, 1/2, 1/4 from the oldest on: (1 1 + 10/2) / 1.5 = 4 at tick 1."""
    got = chunks.ensembled(plan(3), np.arange(4), math.log(2))
    np.testing.assert_allclose(got[:, 0], [0, 4, (2 + 5.5 + 5) / 1.75, (12 + 10.5 + 7.5) / 1.75])
    np.testing.assert_allclose(got[:, 1], [0, 0.5 / 1.5, (0.5 + 0.5) / 1.75, (1 + 1 + 0.75) / 1.75])
    got = chunks.ensembled(plan(3), np.arange(4), 0.0)
    np.testing.assert_allclose(got[:, 0], [0, 5.5, 11, 21])


def test_delayed():
    """The third plan is so late that the second is used up; the fifth is at once there."""
    got, requests = chunks.delayed(plan(4), np.arange(12) * 0.5, 2, [9, 1, 3, 1, 0, 5])
    assert requests == [(0, 0), (2, 3), (4, 7), (7, 8), (9, 9), (11, 16)]
    np.testing.assert_array_equal(got[:, 0], [0, 1, 2, 21, 22, 23, 23, 43, 71, 90, 91, 92])
    np.testing.assert_array_equal(got[:, 1], [0, 0, 0, 1, 1, 1, 1, 2, 3.5, 4.5, 4.5, 4.5])


def test_delayed_beyond_the_chunk():
    """A plan that comes after its own end is held at its last action."""
    got, requests = chunks.delayed(plan(2), np.arange(6), 1, [0, 3, 1, 1])
    assert requests == [(0, 0), (1, 4), (4, 5), (5, 6)]
    np.testing.assert_array_equal(got[:, 0], [0, 1, 1, 1, 11, 41])


def test_delayed_by_nothing_is_receding():
    obs = np.arange(9)
    got, requests = chunks.delayed(plan(4), obs, 2, [0] * 9)
    np.testing.assert_array_equal(got, chunks.receding(plan(4), obs, 2))
    assert requests == [(t, t) for t in (0, 2, 4, 6, 8)]


def test_real_time_chunking():
    got = chunks.rtc_weights(6, 2, 2)  # c = 2/3 and 1/3
    np.testing.assert_allclose(got, [1, 1, 0.3677064, 0.0767458, 0, 0], atol=1e-6)
    np.testing.assert_array_equal(chunks.rtc_weights(4, 2, 2), [1, 1, 0, 0])
    assert chunks.rtc_guidance(0.0) == 10.0
    assert chunks.rtc_guidance(0.01) == 10.0
    assert chunks.rtc_guidance(0.2) == pytest.approx(4.25)  # 4 / (0.64 / 0.68)
    assert chunks.rtc_guidance(0.5) == pytest.approx(2.0)
    assert chunks.rtc_guidance(0.5, beta=1.0) == 1.0
