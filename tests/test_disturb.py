"""What the simulator adds between task and world: noise, bias and delay."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest, norm

import envs
from envs.disturb import Disturbance

LENGTH = 8
NAME = "Hopper-v5"


@cache
def plain():
    return compiled(None)


def compiled(disturbance):
    """Jitted `run(keys [N], actions [T, N, A])`: states [N] at the start and [T, N] after."""
    env = envs.make(NAME, physics="native", disturbance=disturbance)
    reset, step, restart = map(jax.vmap, (env.reset, env.step, env.restart))

    def run(keys, actions):
        first = reset(keys)
        return first, jax.lax.scan(lambda s, a: (step(s, a),) * 2, first, actions)[1]

    return jax.jit(run), jax.jit(lambda s: restart(s._replace(truncated=jnp.ones_like(s.done))))


def keys(count):
    return jax.random.split(jax.random.key(0), count)


def actions(count):
    return np.random.default_rng(0).uniform(-1, 1, (LENGTH, count, 3)).astype(np.float32)


def told(first, rest, name):
    """Readings [T + 1, N, size] as the robot was told them."""
    return np.concatenate([first.sim.told[name][None], rest.sim.told[name]])


def read(state):
    """What its physics read [..., size]."""
    return envs.make(NAME, physics="native").physics.read(state.sim.data)


def real(first, rest, name):
    """Readings [T + 1, N, size] as they are."""
    known = [read(state)[name] for state in (first, rest)]
    return np.concatenate([known[0][None], known[1]])


def assert_same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def facts(state):
    return state.obs, state.reward, state.terminated, state.truncated, state.sim.data


@cache
def noisy():
    """In the velocities, of size 0.5, and in them alone."""
    return compiled(Disturbance(noise={"qvel": 0.5}))


def test_the_default_disturbs_nothing():
    run, _ = compiled(Disturbance())
    for got, want in zip(run(keys(3), actions(3)), plain()[0](keys(3), actions(3)), strict=True):
        assert_same(facts(got), facts(want))


def test_noise_is_normal_fresh_and_of_the_given_size():
    first, rest = noisy()[0](keys(500), actions(500))
    error = told(first, rest, "qvel") - real(first, rest, "qvel")
    assert kstest(error.ravel(), norm(0, 0.5).cdf).pvalue > 1e-3
    assert error.std() == pytest.approx(0.5, rel=0.02)
    for now, later in [(error[:-1], error[1:]), (error[:, :-1], error[:, 1:]),
                       (error[..., :-1], error[..., 1:])]:  # fmt: skip
        assert abs(np.corrcoef(now.ravel(), later.ravel())[0, 1]) < 0.03
    np.testing.assert_array_equal(told(first, rest, "qpos"), real(first, rest, "qpos"))
    np.testing.assert_array_equal(rest.obs[..., 5:], np.clip(rest.sim.told["qvel"], -10, 10))


def test_noise_reaches_the_robot_and_not_the_reward():
    rest = noisy()[0](keys(500), actions(500))[1]
    want = plain()[0](keys(500), actions(500))[1]
    assert_same(rest.sim.data, want.sim.data)
    assert_same(rest.terminated, want.terminated)
    np.testing.assert_allclose(rest.reward, want.reward, rtol=1e-5)
    assert (rest.obs[..., 5:] != want.obs[..., 5:]).mean() > 0.9


@pytest.mark.parametrize("delay", [2])
def test_bias_holds_for_an_episode_and_is_drawn_anew_at_a_reset(delay):
    """From the first reading on, even where readings come late."""
    run, restart = compiled(Disturbance(bias={"qpos": 0.2}, reading_delay=(delay, delay)))
    first, rest = run(keys(500), actions(500))
    known = real(first, rest, "qpos")
    late = np.concatenate([known[:1]] * delay + [known[: len(known) - delay]])
    bias = told(first, rest, "qpos") - late
    assert np.abs(bias - bias[0]).max() < 1e-5
    assert kstest(bias[0].ravel(), "uniform", (-0.2, 0.4)).pvalue > 1e-3
    np.testing.assert_array_equal(told(first, rest, "qvel")[delay:], real(first, rest, "qvel")[
        : len(known) - delay])  # fmt: skip
    again = restart(jax.tree.map(lambda x: x[-1], rest))
    new = np.asarray(again.sim.told["qpos"] - read(again)["qpos"])
    assert abs(np.corrcoef(new.ravel(), bias[0].ravel())[0, 1]) < 0.05
    assert kstest(new.ravel(), "uniform", (-0.2, 0.4)).pvalue > 1e-3


def test_readings_come_exactly_so_many_steps_late():
    delay = 2
    first, rest = compiled(Disturbance(reading_delay=(delay, delay)))[0](keys(4), actions(4))
    want_first, want = plain()[0](keys(4), actions(4))
    assert_same(rest.sim.data, want.sim.data)
    obs, known = (np.concatenate([a.obs[None], b.obs]) for a, b in
                  [(first, rest), (want_first, want)])  # fmt: skip
    np.testing.assert_array_equal(obs[delay:], known[:-delay])
    np.testing.assert_array_equal(obs[:delay], np.broadcast_to(known[0], obs[:delay].shape))
    assert (known[1:] != known[:-1]).any(2).all()


@pytest.mark.parametrize("delay", [1, 3])
def test_targets_come_exactly_so_many_steps_late(delay):
    """A plain environment given the same actions `delay` steps later does the same."""
    got = compiled(Disturbance(target_delay=(delay, delay)))[0](keys(4), actions(4))[1]
    shifted = np.concatenate([np.zeros_like(actions(4)[:delay]), actions(4)[:-delay]])
    want = plain()[0](keys(4), shifted)[1]
    assert_same(got.sim.data, want.sim.data)
    np.testing.assert_array_equal(got.obs, want.obs)


def test_a_range_of_delays_is_drawn_per_episode():
    run, restart = compiled(Disturbance(reading_delay=(1, 3), target_delay=(0, 2)))
    first, rest = run(keys(200), actions(200))
    last = jax.tree.map(lambda x: x[-1], rest)
    for kind, delays in {"reading_delay": {1, 2, 3}, "target_delay": {0, 1, 2}}.items():
        drawn = np.asarray(getattr(first.sim.disturbed, kind))
        assert set(drawn.tolist()) == delays
        assert min(np.bincount(drawn)[list(delays)]) > 40
        np.testing.assert_array_equal(getattr(last.sim.disturbed, kind), drawn)
        new = np.asarray(getattr(restart(last).sim.disturbed, kind))
        assert 0.2 < (new == drawn).mean() < 0.5
    delay, known = np.asarray(first.sim.disturbed.reading_delay), real(first, rest, "qpos")
    for t in range(LENGTH + 1):
        want = known[np.maximum(t - delay, 0), np.arange(200)]
        np.testing.assert_array_equal(told(first, rest, "qpos")[t], want)


@pytest.mark.parametrize("steps", [(2, 1), (-1, 0), (-2, -1)])
@pytest.mark.parametrize("name", ["reading_delay", "target_delay"])
def test_bad_delays_are_refused(name, steps):
    options: dict[str, Any] = {name: steps}
    with pytest.raises(ValueError, match=f"{name} is .* needs 0 <= least <= most"):
        Disturbance(**options)


@pytest.mark.parametrize("name", ["reading_delay", "target_delay"])
def test_a_delay_as_long_as_the_episode_is_refused(name):
    options: dict[str, Any] = {name: (0, 20)}
    given: dict[str, Any] = {"physics": "native", "disturbance": Disturbance(**options)}
    with pytest.raises(ValueError, match=f"{name} is up to 20 control steps of an episode of 20"):
        envs.make(NAME, max_episode_steps=20, **given)
    envs.make(NAME, max_episode_steps=21, **given)
    with pytest.raises(ValueError, match=f"{name} is up to 1000 control steps"):
        envs.make("go1-joystick-flat", **{name: (0, 1000)})


@pytest.mark.parametrize("size", [-0.1, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", ["noise", "bias"])
def test_bad_sizes_are_refused(kind, size):
    options: dict[str, Any] = {kind: {"qpos": size}}
    with pytest.raises(ValueError, match=f"{kind} of 'qpos' is .* finite size >= 0"):
        Disturbance(**options)


@pytest.mark.parametrize("kind", ["noise", "bias"])
def test_an_unknown_reading_is_refused_with_those_there_are(kind):
    options: dict[str, Any] = {kind: {"gyro": 0.1}}
    env = envs.make(NAME, physics="native", disturbance=Disturbance(**options))
    with pytest.raises(ValueError, match=r"No reading 'gyro' .*'qpos'.*'qvel'"):
        env.reset(jax.random.key(0))


def test_pictures_take_no_noise():
    with pytest.raises(ValueError, match="'eye' is uint8"):
        Disturbance(noise={"eye": 0.1}).check({"eye": jnp.zeros((4, 4, 3), jnp.uint8)})
