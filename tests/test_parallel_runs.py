"""Whatever learns, and from whatever, does on several devices what it does on one."""

from pathlib import Path

import numpy as np
import pytest

from tests.test_dagger import SMALL as STUDENT
from tests.test_dagger import TEACHER
from tests.test_finetune_runs import OFF, ON, imitator
from tests.test_offline import SMALL, balancing
from tests.test_parallel import told, trained
from tests.test_residual_runs import QUICK

RUNS = {
    "offline": [*SMALL, "--agent", "iql", "--data", "DATA", "--steps", "200"],
    "offline_to_online": [
        *SMALL, "--agent", "iql", "--data", "DATA", "--num-envs", "4", "--steps", "700",
        "--learning-starts", "200", "--buffer-size", "4000",
    ],
    "finetune": [
        *OFF, "--agent", "dsrl", "--agent.hidden", "8", "--base", "FLOW", "--data", "DATA",
    ],
    "finetune_ppo": [*ON, "--agent", "reinflow", "--base", "FLOW"],
    "residual": [*QUICK, "--num-envs", "4", "--base", "FLOW", "--data", "DATA"],
    "residual_ppo": [
        "--base", "FLOW", "--num-envs", "4", "--unroll", "16", "--steps", "512", "--no-video",
        "--agent.ppo.minibatches", "2",
    ],
    "teacher_student": [
        "--env", "go2-joystick-rough", "--teacher", str(TEACHER), "--steps", "256", *STUDENT,
        "--agent.hidden", "8", "--agent.minibatches", "2",
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Data, and a run whose policy plans four actions at a time."""
    data = balancing(tmp_path_factory.mktemp("data") / "balancing.npz")
    flow = imitator(data, tmp_path_factory.mktemp("runs") / "flow", "flow_bc")
    return {"DATA": str(data), "FLOW": str(flow)}


@pytest.mark.slow
@pytest.mark.parametrize("experiment", RUNS)
def test_on_two_devices_as_on_one(experiment: str, given: dict[str, str], tmp_path: Path) -> None:
    words = [given.get(word, word) for word in RUNS[experiment]]
    found = []
    for devices in (1, 2):
        run = tmp_path / str(devices)
        ended = trained(experiment, run, devices, *words, "--shards", "2", "--save-s", "0")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "SPMD" not in ended.stderr
        found.append(told(run))
    one, two = found
    assert one.keys() == two.keys()
    for name, values in one.items():
        np.testing.assert_allclose(two[name], values, rtol=1e-3, atol=1e-4, err_msg=name)
