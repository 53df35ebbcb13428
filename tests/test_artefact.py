"""A deployable policy: what is written is what is read, runs as it was trained, or is refused."""

import hashlib
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from rl import artefact, export
from rl.artefact import Artefact, Deployed
from rl.spec import Actuator, Spec

MODEL = mujoco.MjModel.from_xml_string("""<mujoco>
  <worldbody><body name="base">
    <joint name="hinge"/><geom size="0.1"/><site name="imu"/>
    <body pos="0 0 0.2"><joint name="rail" type="slide"/><geom size="0.1"/></body>
  </body></worldbody>
  <actuator>
    <position name="turn" joint="hinge" kp="30" kv="2" ctrlrange="-1 2" forcerange="-5 5"/>
    <position name="push" joint="rail" kp="70" kv="3" ctrlrange="-0.1 0.1" forcerange="-9 9"/>
  </actuator>
  <sensor>
    <jointpos name="turned" joint="hinge"/><jointvel name="turning" joint="hinge"/>
    <jointpos name="pushed" joint="rail"/><gyro name="gyro" site="imu"/>
    <framequat name="lean" objtype="site" objname="imu"/>
  </sensor>
</mujoco>""")
MEASURED = "turned", "turning", "pushed", "gyro"


def act(params: Any, carry: Any, readings: Any, command: Any) -> Any:
    """Not in the order of the spec, with a memory of floats and of counts."""
    seen = jnp.concatenate([readings[n] for n in ("pushed", "gyro", "turning", "turned")])
    x = jnp.tanh(params["in"] @ seen + command[0]) + 0.5 * carry["last"]
    return params["out"] * x, {"last": x, "ticks": carry["ticks"] + 1}


def exported(step: Any) -> Artefact:
    sensors = export.sensors(MODEL, MEASURED)
    motors = export.actuators(MODEL, ("turn", "push"), MEASURED, (0.5, 0), (20, 1))
    spec = Spec("arm", sensors, motors, export.channels([("haste", "1", -1, 1)]), 0.02, 0.002, 180)
    rng = np.random.default_rng(0)
    params = {"in": rng.normal(size=(2, 6)).astype("f4"), "out": np.array([1, 0.1], np.float32)}
    carry = {"last": np.zeros(2, np.float32), "ticks": np.int32(0)}
    return export.Exporter(spec, MODEL, step, params, carry).artefact(params, *stream(spec, 8))


def stream(spec: Spec, ticks: int, seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Random readings [ticks, size] and commands."""
    rng = np.random.default_rng(seed)
    readings = {s.name: rng.normal(size=(ticks, s.size)).astype("f4") for s in spec.sensors}
    return readings, rng.uniform(-1, 1, (ticks, len(spec.command))).astype("f4")


@cache
def small() -> Artefact:
    return exported(act)


def followed(deployed: Deployed, readings: dict[str, np.ndarray], command: np.ndarray) -> Any:
    """Targets [T, A]."""
    told = [{name: x[t] for name, x in readings.items()} for t in range(len(command))]
    return np.stack([deployed.step(*now) for now in zip(told, command, strict=True)])


def content(made: Artefact) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        made.write(Path(folder) / "made.zip")
        return (Path(folder) / "made.zip").read_bytes()


def parts(of: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(of)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(path: Path, members: dict[str, bytes], sealed: bool = False) -> Path:
    """A file of these; `sealed` with their hashes."""
    if sealed:
        hashes = {name: hashlib.sha256(x).hexdigest() for name, x in members.items()}
        members = members | {artefact.HASHES: json.dumps(hashes).encode()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, x in members.items():
            archive.writestr(name, x)
    return path


def flipped(x: bytes, at: int) -> bytes:
    return x[:at] + bytes([x[at] ^ 0x5A]) + x[at + 1 :]


def refused(path: Path) -> str:
    with pytest.raises(ValueError, match=rf"^{path} is (no good artefact|a folder).*\.$") as error:
        artefact.read(path)
    return str(error.value)


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    small().write(tmp_path / "a.zip")
    found, made = artefact.read(tmp_path / "a.zip"), small()
    assert (found.spec, found.spec.hash) == (made.spec, made.spec.hash)
    assert (found.compiled, found.model) == (made.compiled, made.model)
    assert found.program._replace(constants={}) == made.program._replace(constants={})
    mine, theirs = ((list(x.params), list(x.carry), x.program.constants, vars(x.golden))
                    for x in (found, made))  # fmt: skip
    jax.tree.map(partial(np.testing.assert_array_equal, strict=True), mine, theirs)
    assert content(found) == (tmp_path / "a.zip").read_bytes()
    assert [x.name for x in tmp_path.iterdir()] == ["a.zip"]


def test_the_spec_is_the_models() -> None:
    spec = small().spec
    sensors = *spec.sensors, *export.sensors(MODEL, ["lean"])
    assert [(s.size, s.unit, s.frame) for s in sensors] == [
        (1, "rad", "hinge"), (1, "rad/s", "hinge"), (1, "m", "rail"), (3, "rad/s", "imu"),
        (4, "w x y z", "world"),
    ]  # fmt: skip
    assert spec.actuators == (
        Actuator("turn", "rad", -1, 2, 0.5, 30, 2, 5, 20, "turned", "turning"),
        Actuator("push", "m", -0.1, 0.1, 0, 70, 3, 9, 1, "pushed", ""),
    )


def test_a_name_that_the_model_lacks_is_told_with_those_it_has() -> None:
    with pytest.raises(ValueError, match=r"no sensor 'smell'; it has turned, turning, .*, lean"):
        export.sensors(MODEL, ["turned", "smell"])
    with pytest.raises(ValueError, match="no actuator 'pull'; it has turn, push"):
        export.actuators(MODEL, ["pull"], (), [0], [1])


@pytest.mark.parametrize("runtime", ["jax", "numpy"])
def test_it_does_what_the_function_did(runtime: Any) -> None:
    """Golden vectors first, then tick by tick with a memory, and again after a reset."""
    deployed, golden = artefact.deploy(small(), runtime), small().golden
    got = followed(deployed, golden.readings, golden.command)
    np.testing.assert_allclose(got, golden.targets, rtol=0, atol=1e-6)
    params = dict(zip(("in", "out"), small().params, strict=True))
    readings, command = stream(small().spec, 200, seed=1)
    carry, want = {"last": np.zeros(2, np.float32), "ticks": np.int32(0)}, []
    for t in range(200):
        told = {name: x[t] for name, x in readings.items()}
        targets, carry = act(params, carry, told, command[t])
        want.append(targets)
    for _ in range(2):
        deployed.reset()
        got = followed(deployed, readings, command)
        np.testing.assert_allclose(got, np.stack(want), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", [*artefact.PARTS, artefact.HASHES])
def test_a_flipped_byte_or_a_missing_member_is_refused(name: str, tmp_path: Path) -> None:
    members = parts(content(small()))
    for at in (0, len(members[name]) // 2, len(members[name]) - 2):
        damaged = {**members, name: flipped(members[name], at)}
        said = refused(zipped(tmp_path / "a.zip", damaged))
        assert f"its {name} is not what was written" in said or name == artefact.HASHES
    rest = {n: x for n, x in members.items() if n not in (name, artefact.HASHES)}
    lacking = zipped(tmp_path / "a.zip", rest, sealed=name != artefact.HASHES)
    assert f"it has no {name}." in refused(lacking)


def test_a_flipped_byte_anywhere_is_refused_or_makes_no_difference(tmp_path: Path) -> None:
    path, whole, silent = tmp_path / "a.zip", content(small()), 0
    for at in (*range(0, len(whole) - 600, 7), *range(len(whole) - 600, len(whole))):
        path.write_bytes(flipped(whole, at))
        try:
            found = artefact.read(path)
        except ValueError as error:
            assert str(error).startswith(f"{path} is no good artefact: ")  # noqa: PT017
        else:
            silent += 1
            assert content(found) == whole
    assert silent < 300  # dates and permissions


def test_what_is_no_artefact_is_refused(tmp_path: Path) -> None:
    whole = content(small())
    for bad in (b"", b"PK", b"not a zip", *(whole[: n * len(whole) // 9] for n in range(1, 9))):
        (tmp_path / "a.zip").write_bytes(bad)
        refused(tmp_path / "a.zip")
    refused(tmp_path)
    with pytest.raises(ValueError, match=r"There is no artefact .*none\.zip"):
        artefact.read(tmp_path / "none.zip")


def test_another_version_is_refused(tmp_path: Path) -> None:
    members = parts(content(small()))
    facts = json.loads(members["spec.json"])
    for change, said in (({"schema": 1}, "another version wrote it"), ({"sensors": [1]}, "")):
        members["spec.json"] = json.dumps(facts | change).encode()
        assert said in refused(zipped(tmp_path / "a.zip", members, sealed=True))


@pytest.mark.parametrize("runtime", ["jax", "numpy"])
@pytest.mark.parametrize("factor", [1.001, np.nan])
def test_other_parameters_than_the_golden_ones_are_refused(
    runtime: Any, factor: float, tmp_path: Path
) -> None:
    """Even where every hash is right."""
    changed = replace(small(), params=[x * np.float32(factor) for x in small().params])
    changed.write(tmp_path / "a.zip")
    changed = artefact.read(tmp_path / "a.zip")
    with pytest.raises(ValueError, match=f"With {runtime} the policy is .* off its golden targets"):
        artefact.deploy(changed, runtime)


@pytest.mark.parametrize("runtime", ["jax", "numpy"])
def test_wrong_readings_and_commands_are_refused(runtime: Any) -> None:
    deployed = artefact.deploy(small(), runtime)
    told = {name: x[0] for name, x in small().golden.readings.items()}
    with pytest.raises(ValueError, match=r"No reading 'gyro'; there are pushed\.$"):
        deployed.step({"pushed": told["pushed"]}, np.zeros(1))
    with pytest.raises(ValueError, match=r"gyro has shape \(2,\); it needs \(3,\)"):
        deployed.step(told | {"gyro": np.zeros(2)}, np.zeros(1))
    for command in (np.nan, np.zeros(2), np.zeros((1, 1))):
        with pytest.raises(ValueError, match=r"The command has shape .*; it needs haste"):
            deployed.step(told, command)
    assert deployed.step(told | {"more": np.zeros(1)}, np.zeros(1)).shape == (2,)


def test_a_policy_that_numpy_cannot_run_says_so(tmp_path: Path) -> None:
    made = exported(lambda params, carry, told, command: (jnp.sort(told["gyro"])[:2], carry))
    made.write(tmp_path / "a.zip")
    found = artefact.read(tmp_path / "a.zip")
    with pytest.raises(ValueError, match="runs with JAX alone: numpy has no 'sort'"):
        artefact.deploy(found, "numpy")
    artefact.deploy(found, "jax")


def test_a_robot_needs_neither_jax_nor_mujoco(tmp_path: Path) -> None:
    small().write(tmp_path / "a.zip")
    code = f"""import sys; from pathlib import Path
from rl import artefact; from rl.bridge import policyd, robotd
artefact.deploy(artefact.read(Path({str(tmp_path / "a.zip")!r})), "numpy")
print(sorted({{"jax", "jaxlib", "flax", "mujoco"}} & {{*sys.modules}}))"""
    found = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent.parent,
                           capture_output=True, text=True)  # fmt: skip
    assert (found.stdout, found.stderr) == ("[]\n", "")
