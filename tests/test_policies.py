"""The policies that come with the code do what is told of them."""

from pathlib import Path

import numpy as np
import pytest

from experiments import cli, drive, play, ppo, walk
from rl import runs

POLICIES = Path(__file__).parent.parent / "benchmarks" / "policies"


@pytest.mark.parametrize("name", sorted(path.name for path in POLICIES.iterdir()))
def test_it_is_as_good_as_when_it_was_trained(name: str) -> None:
    run = POLICIES / name
    assert max(path.stat().st_size for path in run.iterdir()) <= 1_000_000
    env, policy, params = play.load(run)
    told = np.mean(runs.read_manifest(run)["eval_returns"])
    assert np.mean(play.judge(env, policy, params, 8)) > 0.8 * told


def test_the_walker_follows_its_joystick_through_the_bridge(tmp_path: Path) -> None:
    script = tmp_path / "script.csv"
    script.write_text("0,0,0,0\n1,0.8,0,0\n4,0,0,-0.8\n")
    run = POLICIES / "go2-joystick-flat"
    drive.main(drive.Args(run, script=script, seconds=7, video=False, out=tmp_path))
    log = np.load(tmp_path / "drive.npz")
    did = drive.velocities(log["qpos"], log["qvel"])
    np.testing.assert_allclose(did[100:200].mean(0), [0.8, 0, 0], atol=0.25)
    np.testing.assert_allclose(did[250:350].mean(0), [0, 0, -0.8], atol=0.25)
    assert (log["qpos"][:, 2] > 0.2).all()
    assert (tmp_path / "drive.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_a_go1_learns_to_walk(tmp_path: Path) -> None:
    words = ["--env", "go1-joystick-flat", "--env.curriculum-on", "--steps", "2500000"]
    words += ["--evals", "0", "--no-video", "--out", str(tmp_path / "run")]
    ppo.main(cli.parse(walk.Args, words))
    assert np.mean(runs.read_manifest(tmp_path / "run")["eval_returns"]) > 18  # who stands: 15
