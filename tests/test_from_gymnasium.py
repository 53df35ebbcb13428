"""Worlds of third parties under our contract: parity, and no step repeated or left out."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from slide import Slide, slide

import envs
from rl import policy, rollout

WORLDS = 3


def from_slide(worlds=WORLDS, factory=slide, **options):
    return envs.from_gymnasium(factory, worlds, horizon=6, **options)


def begin(env, worlds=WORLDS, seed=0):
    return jax.vmap(env.reset)(jax.random.split(jax.random.key(seed), worlds))


def collected(env, worlds, length, seed=1):
    act = policy.uniform(env.action_dim)
    run = jax.jit(lambda w, key: rollout.collect(env, act, (), w, key, length))
    return jax.block_until_ready(run(worlds, jax.random.key(seed)))


def test_steps_equal_gymnasiums_own():
    seeds = []

    class Told(gymnasium.Wrapper):
        def reset(self, *, seed=None, options=None):
            seeds.append(seed)
            return super().reset(seed=seed, options=options)

    env = envs.from_gymnasium(lambda: Told(gymnasium.make("HalfCheetah-v5")), 2, rescale=False)
    assert (env.horizon, env.action_dim, env.control_dt) == (1000, 6, pytest.approx(0.05))
    state, step = begin(env, 2), jax.jit(jax.vmap(env.step))
    assert len(set(seeds)) == 2
    actions = np.random.default_rng(0).uniform(-1, 1, (30, 2, 6)).astype(np.float32)
    theirs = [gymnasium.make("HalfCheetah-v5") for _ in seeds]
    first = [e.reset(seed=s)[0] for e, s in zip(theirs, seeds, strict=True)]
    np.testing.assert_allclose(state.obs, first, rtol=1e-6)
    for action in actions:
        state = step(state, action)
        obs, reward, *_ = zip(
            *(e.step(a) for e, a in zip(theirs, action, strict=True)), strict=True
        )
        np.testing.assert_allclose(state.obs, obs, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(state.reward, reward, rtol=1e-6, atol=1e-6)


def test_collect_records_how_episodes_really_ended():
    env = from_slide(rescale=False)
    act = policy.memoryless(lambda params, obs, key: (jax.random.normal(key, (2,)), ()))
    worlds = rollout.start(env, act, (), jax.random.key(0), WORLDS)
    _, seen, ends = jax.jit(lambda w, key: rollout.collect(env, act, (), w, key, 40))(
        worlds, jax.random.key(1)
    )
    seen, counts, over = jax.device_get(seen), np.zeros(2, int), 0
    for i in range(WORLDS):
        theirs, seeds = slide(), iter(env.host.envs[i].unwrapped.seeds)
        obs = theirs.reset(seed=next(seeds))[0]
        for t in range(40):
            row = jax.tree.map(lambda x, t=t, i=i: x[t, i], seen)
            np.testing.assert_allclose(row.obs["at"], obs["at"], rtol=1e-5, atol=1e-6)
            obs, reward, terminated, truncated, _ = theirs.step(row.action.astype(float))
            np.testing.assert_allclose(row.next_obs["at"], obs["at"], rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(row.next_obs["image"], obs["image"])
            np.testing.assert_allclose(row.reward, float(reward), rtol=1e-5, atol=1e-6)
            assert (row.terminated, row.truncated) == (terminated, truncated)
            counts += [terminated, truncated]
            if terminated or truncated:
                over += 1
                obs = theirs.reset(seed=next(seeds))[0]
    assert counts.min() >= 2, "episodes ended in one way only"
    assert int(ends.ended.sum()) == over


def test_one_host_call_a_step_whatever_the_worlds(monkeypatch):
    env = from_slide()
    calls, step = [], env.host.step
    monkeypatch.setattr(env.host, "step", lambda *args: calls.append(1) or step(*args))
    worlds = rollout.start(env, policy.uniform(2), (), jax.random.key(0), WORLDS)
    collected(env, worlds, 10)
    assert len(calls) == 10


def test_evaluate_steps_no_ended_episode():
    env = from_slide(rescale=False)
    act = policy.memoryless(lambda params, obs, key: (jax.random.normal(key, (2,)) * 2, ()))
    episodes = jax.jit(lambda key: rollout.evaluate(env, act, (), key, WORLDS))(jax.random.key(3))
    assert episodes.ended.all()
    assert len(set(episodes.lengths.tolist())) > 1
    assert [len(e.unwrapped.actions) for e in env.host.envs] == episodes.lengths.tolist()


def test_equal_keys_give_equal_episodes():
    runs = []
    for seed in (0, 0, 1):
        env = from_slide()
        worlds = rollout.start(env, policy.uniform(2), (), jax.random.key(seed), WORLDS)
        runs.append(np.asarray(collected(env, worlds, 15)[1].obs["at"]))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_actions_are_clipped_rescaled_and_cast():
    env = from_slide(2)
    jax.vmap(env.step)(begin(env, 2), jnp.array([[-5.0, 0.0], [1.0, 5.0]]))
    got = [e.unwrapped.actions[0] for e in env.host.envs]
    np.testing.assert_allclose(got, [[-2, 0.25], [2, 0.5]])
    assert got[0].dtype == np.float64


def test_shapes_are_known_without_touching_the_host():
    env = from_slide()
    state = jax.eval_shape(lambda: begin(env))
    assert state.obs["image"].shape == (WORLDS, 2, 2, 3)
    assert state.obs["at"].dtype == np.float32
    assert not env.host.clock.any()


def refused(match):
    return pytest.raises(Exception, match=match)  # JAX's class for what a callback raises varies


def test_a_state_is_good_for_one_step():
    env, action = from_slide(), jnp.zeros((WORLDS, 2))
    step = jax.jit(jax.vmap(env.step))
    first = begin(env)
    second = jax.block_until_ready(step(first, action))
    with refused("stepped twice or out of order"):  # a repeat
        jax.block_until_ready(step(first, action))
    ahead = second._replace(sim=second.sim._replace(clock=second.sim.clock + 1))
    with refused("stepped twice or out of order"):  # a gap
        jax.block_until_ready(step(ahead, action))
    third = jax.block_until_ready(step(second, action))  # what was refused has moved nothing
    with refused("stepped twice or out of order"):
        jax.block_until_ready(jax.vmap(env.restart)(second._replace(truncated=second.done | True)))
    with refused("out of order, as"):
        jax.block_until_ready(step(jax.tree.map(lambda x: x[::-1], third), action))
    begin(env)
    with refused("an environment of its own"):  # as evaluation between two collects would
        jax.block_until_ready(step(third, action))


@pytest.mark.parametrize("shape", [(WORLDS - 1,), (WORLDS + 1,), (2, WORLDS), ()])
def test_only_all_worlds_at_once(shape):
    env = from_slide()
    reset = env.reset
    for _ in shape:
        reset = jax.vmap(reset)
    with refused(r"made 3 worlds and got a batch of shape"):
        jax.block_until_ready(reset(jax.random.split(jax.random.key(0), shape)))
    assert not env.host.clock.any()
    with refused(r"made 3 worlds"):
        jax.block_until_ready(
            jax.jit(lambda k: rollout.evaluate(env, policy.uniform(2), (), k, 5))(jax.random.key(0))
        )


def test_masked_restart_touches_only_ended_worlds():
    env = from_slide()
    state = jax.vmap(env.step)(begin(env), jnp.zeros((WORLDS, 2)))
    ended = state._replace(truncated=jnp.array([False, True, False]))
    after = jax.jit(jax.vmap(env.restart))(ended)
    assert [len(e.unwrapped.seeds) for e in env.host.envs] == [1, 2, 1]
    assert after.t.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(after.obs["at"][::2], state.obs["at"][::2])
    assert not np.allclose(after.obs["at"][1], state.obs["at"][1])
    jax.block_until_ready(jax.vmap(env.step)(after, jnp.zeros((WORLDS, 2))))


def test_resuming_elsewhere_cuts_the_episodes_and_says_so():
    there, here = from_slide(), from_slide()
    worlds = rollout.start(there, policy.uniform(2), (), jax.random.key(0), WORLDS)
    saved = jax.device_get(collected(there, worlds, 3)[0]._replace(carry=()))
    with pytest.warns(UserWarning, match="cannot be resumed"):
        _, seen, ends = collected(here, saved, 8)
    assert seen.truncated[0].all()
    assert not seen.terminated[0].any()
    assert not seen.reward[0].any()
    np.testing.assert_array_equal(seen.next_obs["at"][0], saved.state.obs["at"])
    assert ends.lengths[0].tolist() == (saved.episode_length + 1).tolist()
    assert not ends.ended[1].any()
    assert [len(e.unwrapped.actions) for e in here.host.envs] == [7] * WORLDS


def test_an_error_of_a_third_party_is_told():
    class Broken(Slide):
        def step(self, action):
            raise RuntimeError("motor 3 is on fire")

    env = from_slide(factory=Broken)
    with refused("motor 3 is on fire"):
        jax.block_until_ready(jax.jit(jax.vmap(env.step))(begin(env), jnp.zeros((WORLDS, 2))))


def test_what_cannot_be_taken_is_refused():
    with pytest.raises(ValueError, match="Box actions"):
        envs.from_gymnasium(lambda: gymnasium.make("CartPole-v1"), 1)
    with pytest.raises(ValueError, match="pass horizon="):
        envs.from_gymnasium(Slide, 1)

    class Unbounded(Slide):
        def __init__(self):
            super().__init__()
            self.action_space = spaces.Box(-np.inf, np.inf, (2,))

    with pytest.raises(ValueError, match="rescale=False"):
        from_slide(factory=Unbounded)
    assert from_slide(factory=Unbounded, rescale=False).action_dim == 2


def test_there_and_back_again():
    env, made = envs.make("InvertedPendulum-v5", max_episode_steps=8), []

    def factory():
        made.append(envs.to_gymnasium(env))
        return made[-1]

    back = envs.from_gymnasium(factory, WORLDS, horizon=env.horizon)
    assert (back.action_dim, back.control_dt) == (env.action_dim, pytest.approx(env.control_dt))
    state, step = begin(back), jax.jit(jax.vmap(back.step))
    mine = jax.tree.map(lambda *x: jnp.stack(x), *(e.state for e in made))
    straight = jax.jit(jax.vmap(env.step))
    for action in jax.random.uniform(jax.random.key(2), (6, WORLDS, 1), minval=-1, maxval=1):
        alive = ~np.asarray(mine.done)
        state, mine = step(state, action), straight(mine, action)
        np.testing.assert_allclose(state.obs[alive], mine.obs[alive], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(state.reward[alive], mine.reward[alive], rtol=1e-6)
        np.testing.assert_array_equal(state.done[alive], mine.done[alive])


def test_dict_observations_and_images_keep_their_dtypes():
    env = envs.to_gymnasium_vector(from_slide(), WORLDS)
    assert env.single_observation_space == spaces.Dict(
        {
            "at": spaces.Box(-np.inf, np.inf, (2,), np.float32),
            "image": spaces.Box(0, 255, (2, 2, 3), np.uint8),
        }
    )
    assert env.reset(seed=0)[0] in env.observation_space
    for _ in range(8):
        assert env.step(env.action_space.sample())[0] in env.observation_space
