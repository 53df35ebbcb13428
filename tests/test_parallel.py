"""One run on as many devices as divide its shards is the run on one, but for the order of sums."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from agents.ppo import PPO
from experiments import ppo
from rl import buffer, parallel, runs
from rl.types import Transition
from tests.test_sweep import ROOT

SHARDS = 4
WORDS = "--steps 3200 --num-envs 8 --unroll 16 --agent.minibatches 4 --agent.epochs 2"
LOSSES = ["critic_loss", "actor_loss", "alpha_loss", "q", "policy_loss", "value_loss"]
SAME = f"--env Hopper-v5 --shards {SHARDS} --seeds 2 --evals 4 --eval-episodes 2 --no-video"


def trained(experiment: str, out: Path, devices: int, *words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", f"experiments.{experiment}", *words, "--out", str(out)]
    env = os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def told(run: Path) -> dict[str, np.ndarray]:
    """What each row tells of learning, by name."""
    rows = runs.read_metrics(run)
    names = [name for name in rows[-1] if name not in ("wall_s", "steps_per_s")]
    return {n: np.array([row.get(n, [np.nan] * 2) for row in rows]) for n in names}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    """Losses to 1e-5, and all else that rows tell to 1e-4."""
    assert one.keys() == other.keys()
    assert len(one["step"]) > 2
    for name, values in one.items():
        to = 1e-5 if name in LOSSES else 1e-4
        np.testing.assert_allclose(other[name], values, rtol=to, atol=1e-5, err_msg=name)


@pytest.mark.long
def test_a_run_on_four_devices_is_that_on_one(tmp_path: Path) -> None:
    words = [*SAME.split(), *WORDS.split(), "--save-s", "0"]
    found = []
    for devices in (1, 4):
        run = tmp_path / str(devices)
        ended = trained("ppo", run, devices, *words)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "SPMD" not in ended.stderr  # which warns where all is sent to one device
        found.append(told(run))
    same(*found)
    evals = [runs.read_rows(tmp_path / x / "evals.jsonl")[-1]["returns"] for x in "14"]
    np.testing.assert_allclose(*evals, rtol=1e-3)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--shards", "0"], "--shards is 0; it needs at least 1"),
        (["--shards", "4", "--num-envs", "6"], "--num-envs is 6; for --shards 4 it takes a mult"),
        (["--shards", "4", "--num-envs", "8", "--batch-size", "6"], "--batch-size is 6; for --sh"),
        (["--shards", "3", "--num-envs", "9", "--batch-size", "9"], "2 devices do not divide that"),
    ],
)
def test_what_does_not_divide_is_refused(words: list[str], why: str, tmp_path: Path) -> None:
    ended = trained("sac", tmp_path / "run", 2, *words)
    assert ended.returncode == 1
    assert why in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "run").exists()


def test_minibatches_that_a_shard_has_no_row_for_are_refused_before_anything_is_made() -> None:
    args = ppo.Args(num_envs=4, unroll=4, agent=PPO(minibatches=8), env=envs.named("Hopper-v5"))
    env = envs.simulate(args.env, "native")
    assert len(ppo.check(args, env)) == 1
    with pytest.raises(ValueError, match="16 transitions do not fill 8 minibatches"):
        ppo.check(replace(args, shards=SHARDS), env)


@pytest.fixture
def rows() -> Transition:
    """A tick of each of 8 worlds, which says whose it is."""
    world = jnp.arange(8.0)
    return Transition(world[:, None], world[:, None], world, world < 0, world < 0, world[:, None])


def test_of_each_shard_as_many_are_drawn(rows: Transition) -> None:
    ring = buffer.add(buffer.init(5, rows), jax.tree.map(lambda x: jnp.stack([x] * 5), rows))
    draw = jax.jit(lambda key: parallel.sample(SHARDS, ring, key, (3, 2, 20), 4))
    drawn = draw(jax.random.key(0)).reward
    assert drawn.shape == (3, 2, 20, 4)
    assert (drawn == drawn[..., :1]).all()  # a window stays in its world
    counts = np.stack([(drawn[..., 0] // 2 == shard).sum(-1) for shard in range(SHARDS)])
    assert (counts == 5).all()
    assert len(np.unique(drawn)) == 8


@pytest.mark.parametrize("shards", [1, SHARDS])
def test_each_row_is_dealt_once_and_of_each_shard_as_many(shards: int, rows: Transition) -> None:
    tick = jnp.arange(6.0)[:, None]
    named = jnp.broadcast_to(100 * tick + rows.reward, (6, 8))
    deal = jax.jit(lambda key: parallel.deal(shards, key, named, 3))
    first, other = (np.asarray(deal(jax.random.key(seed))) for seed in (0, 1))
    assert first.shape == (3, 16)
    assert sorted(first.ravel()) == sorted(named.ravel())
    assert (first != other).any()
    for batch in first if shards > 1 else ():
        assert np.bincount((batch % 100 // 2).astype(int)).tolist() == [4] * SHARDS
    left = parallel.deal(shards, jax.random.key(0), named, 5)
    assert left.shape == (5, 9 if shards == 1 else 8)  # what does not fill them is left out
