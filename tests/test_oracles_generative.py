"""The oracle of flows, against what needs no implementation."""

import numpy as np
import pytest
from scipy import stats

from tests.oracles import generative

MEAN, STD = np.array([0.7, -1.5]), np.array([0.3, 2.0])
AT_ONE, NOISE_AT_ONE = "data_at_one", "noise_at_one"


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def velocity(x, t):
    return generative.gaussian_velocity(x, t, MEAN, STD)


def backwards(x, t):
    return -velocity(x, 1.0 - t)


def test_flow_loss():
    data, noise = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.0, -2.0], [1.0, 0.0]])
    time = np.array([0.25, 0.5])
    # x_t is [[.25, -1], [2, 2]], the velocity [[1, 4], [2, 4]], the net's [[.5, -.75], [2.5, 2.5]].
    net = lambda x, t: x + np.asarray(t)[:, None]  # noqa: E731
    squares = np.array([[0.5**2, 4.75**2], [0.5**2, 1.5**2]])
    loss = lambda **kw: generative.flow_loss(net, data, noise, time, AT_ONE, **kw)  # noqa: E731
    assert loss() == pytest.approx(squares.mean())
    mask = np.array([[1, 1], [0, 1]])
    assert loss(mask=mask) == pytest.approx((squares * mask).sum() / 3)
    mirrored = lambda x, t: -net(x, 1.0 - t)  # noqa: E731
    other = generative.flow_loss(mirrored, data, noise, 1.0 - time, NOISE_AT_ONE)
    assert other == pytest.approx(loss())


def test_the_velocity_of_a_gaussian_is_the_loss_least():
    """At t = 0.4: the loss of the best net is the variance of data - noise given x_t."""
    rows, t = 4000, np.full(4000, 0.4)
    data, noise = MEAN + STD * normal(0, rows, 2), normal(1, rows, 2)
    loss = lambda net: generative.flow_loss(net, data, noise, t, AT_ONE)  # noqa: E731
    spread = 0.6**2 + 0.4**2 * STD**2
    left = STD**2 + 1 - (0.4 * STD**2 - 0.6) ** 2 / spread
    assert loss(velocity) == pytest.approx(left.mean(), rel=0.05)
    for change in (0.1, -0.1):
        assert loss(lambda x, t, c=change: velocity(x, t) + c) > loss(velocity)
        assert loss(lambda x, t, c=change: velocity(x, t) * (1 + c)) > loss(velocity)


@pytest.mark.parametrize(("net", "convention"), [(velocity, AT_ONE), (backwards, NOISE_AT_ONE)])
def test_euler_and_heun_converge(net, convention):
    """The flow of a Gaussian takes noise to mean + std noise."""
    noise = normal(2, 500, 2)
    exact = MEAN + STD * noise
    errors = {}
    for name in ("euler", "heun"):
        for steps in (40, 80):
            got = getattr(generative, name)(net, noise, steps, convention)
            errors[name, steps] = np.abs(got - exact).max()
    assert errors["euler", 80] < 0.2
    assert errors["euler", 40] / errors["euler", 80] == pytest.approx(2.0, abs=0.2)
    assert errors["heun", 80] < 2e-3
    assert errors["heun", 40] / errors["heun", 80] == pytest.approx(4.0, abs=0.4)


def test_logit_normal():
    assert generative.logit_normal(np.zeros(1), 0.0, 1.0) == 0.5
    z = np.array([-1.0, 0.0, 2.0])
    got = generative.logit_normal(z, -0.5, 2.0)
    np.testing.assert_allclose(np.log(got / (1 - got)), [-2.5, -0.5, 3.5])


def test_shortcut_by_hand():
    net = lambda x, t, d: x + 10 * t[:, None] + 100 * d[:, None]  # noqa: E731
    data, noise, time = np.ones((2, 1)), -np.ones((2, 1)), np.full(2, 0.5)
    d = np.array([0.25, 0.0])
    # x_t = 0; 30 at t, then 7.5 + 7.5 + 25 = 40 from x = 7.5 at t = 0.75.
    target = generative.shortcut_targets(net, data, noise, time, d)
    np.testing.assert_allclose(target, [[35.0], [2.0]])
    # net(0, .5, .5) = 55 for 35, net(0, .5, 0) = 5 for 2; the second row's d is not looked at.
    d, both = np.array([0.25, 0.25]), np.array([True, False])
    loss = generative.shortcut_loss(net, net, data, noise, time, d, both)
    assert loss == pytest.approx((20.0**2 + 3.0**2) / 2)
    shifted = lambda *args: net(*args) + 1.0  # noqa: E731
    loss = generative.shortcut_loss(net, shifted, data, noise, time, d, both)
    # 31 at t, then 7.75 + 7.5 + 25 + 1 = 41.25: 36.125 of the target's net.
    assert loss == pytest.approx((18.875**2 + 3.0**2) / 2)
    # Two steps of 0.5 from 1: 1 + 0.5 (1 + 0 + 50) = 26.5, then 26.5 + 0.5 (26.5 + 5 + 50).
    assert generative.shortcut_sample(net, np.ones((1, 1)), 2) == pytest.approx(67.25)


@pytest.mark.parametrize("steps", [1, 3])
def test_shortcut_of_a_point(steps):
    """To one point every jump is straight, so that the exact field is its own shortcut."""
    point, noise = np.array([0.5, -2.0]), normal(3, 4, 2)
    net = lambda x, t, d: (point - x) / (1.0 - t[:, None])  # noqa: E731
    data, time = np.tile(point, (4, 1)), np.array([0.0, 0.25, 0.5, 0.25])
    d, which = np.full(4, 0.25), np.array([True, True, False, True])
    assert generative.shortcut_loss(net, net, data, noise, time, d, which) < 1e-24
    np.testing.assert_allclose(generative.shortcut_sample(net, noise, steps), data)


def joint(slopes, shifts, stds, chain):
    """[B]: the log density of chain [S + 1, B] after its first, of x' = slope x + shift + std z."""
    steps = len(slopes)
    back = np.eye(steps) - np.diag(slopes[1:], -1)
    spread = np.linalg.inv(back) * stds  # x = spread @ z + middle
    out = []
    for x in chain.T:
        first = np.array(shifts, dtype=float)
        first[0] += slopes[0] * x[0]
        middle = np.linalg.solve(back, first)
        out.append(stats.multivariate_normal(middle, spread @ spread.T).logpdf(x[1:]))
    return np.array(out)


@pytest.mark.parametrize("convention", [AT_ONE, NOISE_AT_ONE])
def test_flow_chain_likelihood_is_the_joint_density(convention):
    net = lambda x, t: -2.0 * x + t[:, None]  # noqa: E731
    chain, stds = normal(10, 5, 3, 2), np.array([0.5, 0.3, 0.7, 0.1])
    up = convention == AT_ONE
    dt, times = (0.25, [0, 0.25, 0.5, 0.75]) if up else (-0.25, [1, 0.75, 0.5, 0.25])
    got = generative.flow_chain_log_likelihood(net, chain, stds, convention)
    slopes, shifts = [1 - 2.0 * dt] * 4, [dt * t for t in times]
    wanted = sum(joint(slopes, shifts, stds, chain[:, :, j]) for j in range(2))
    np.testing.assert_allclose(got, wanted)


def test_energy_distance():
    assert generative.energy_distance([[0.0]], [[3.0]]) == pytest.approx(6.0)
    assert generative.energy_distance([[0.0], [2.0]], [[1.0]]) == pytest.approx(1.0)
    assert generative.energy_distance([[0.0, 0.0]], [[3.0, 4.0]]) == pytest.approx(10.0)
    x = normal(11, 50, 2)
    assert generative.energy_distance(x, x[::-1]) == pytest.approx(0.0, abs=1e-12)
    one, other = normal(12, 500, 2), normal(13, 500, 2)
    assert generative.energy_distance(one, other) < 0.02
    assert generative.energy_distance(one, other + 0.5) > 0.1
