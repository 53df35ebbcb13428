"""MuJoCo Playground's own environments, as its package has them (extra `playground`)."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from envs.adapters.playground import Playground
from rl import policy, rollout

pytest.importorskip("mujoco_playground")
CARTPOLE = "playground:CartpoleBalance"


@pytest.mark.long
def test_its_rewards_and_observations_are_those_of_the_package() -> None:
    """To the last bit, over the end of an episode, from the same keys."""
    env, count, length = Playground(CARTPOLE, '{"episode_length": 2}').world(), 2, 3
    act = policy.memoryless(lambda params, obs, key: (jax.random.uniform(key, (1,)), ()))

    @jax.jit
    def run() -> Any:
        worlds = rollout.start(env, act, (), jax.random.key(0), count)
        return rollout.collect(env, act, (), worlds, jax.random.key(1), length)[1]

    seen = run()
    reset, step = jax.jit(jax.vmap(env.theirs.reset)), jax.jit(jax.vmap(env.theirs.step))

    def begun(key: jax.Array) -> Any:
        keys = jax.vmap(lambda key: jax.random.split(key)[0])(jax.random.split(key, count))
        return reset(jax.random.key_data(keys))

    theirs = begun(jax.random.key(0))
    for t in range(length):
        np.testing.assert_array_equal(seen.obs[t], theirs.obs)
        theirs = step(theirs, seen.action[t])
        np.testing.assert_array_equal(seen.next_obs[t], theirs.obs)
        np.testing.assert_array_equal(seen.reward[t], theirs.reward)
        assert seen.truncated[t].all() == (t == 1)
        if t == 1:  # of those that are prepared
            theirs = begun(jax.random.split(jax.random.key(1))[0])
    assert not (seen.obs[0] == seen.obs[2]).all(-1).any()
    assert not seen.terminated.any()


@pytest.mark.parametrize(
    ("name", "overrides", "match"),
    [
        ("CartpoleBalence", "{}", "Did you mean CartpoleBalance"),
        ("Go1JoystickFlatTerrain", "{}", "MuJoCo Menagerie .* which is not there"),
        ("CheetahRun", '{"episode_lengths": 5}', "Did you mean episode_length"),
        ("CartpoleBalance", '{"vision_config.nworlds": 5}', "Did you mean nworld"),
        ("CheetahRun", '{"episode_length": "long"}', "cannot be made"),
        ("CheetahRun", '{"episode_length": 0}', "episodes of 0 steps"),
    ],
)
def test_what_the_package_has_not_is_refused(
    name: str, overrides: str, match: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    theirs = "mujoco_playground._src.mjx_env.MENAGERIE_PATH"
    monkeypatch.setattr(theirs, tmp_path / "none")
    with pytest.raises(ValueError, match=match):
        Playground(f"playground:{name}", overrides).world()
