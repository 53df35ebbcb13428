"""The deployable policy in one file: from named raw sensors and a command to actuator targets.

A zip, so that it is replaced whole or not at all and goes to a robot as it is: the spec, the
function compiled for JAX (StableHLO) and written out for numpy, its parameters, the model of the
robot, golden vectors that every runtime must reproduce, and a hash of each.  Nothing in it is
rebuilt from an agent or a task, and nothing is a pickle.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors.numpy import load, save

from rl.program import Equation, Program
from rl.spec import Sensor, Spec, from_facts

SCHEMA = 2  # 1 does not say how far the robot may lean
TOLERANCE = 1e-5  # of targets, in units of the actuators: float32 on another machine
HASHES = "hashes.json"
PARTS = "spec.json", "program.json", "policy.stablehlo", "arrays.safetensors", "model.mjb"
Leaves = Sequence[np.ndarray]
Call = Callable[..., Leaves]


class Deployed:
    """A policy that runs: `step` from readings and command to targets, carrying its memory."""

    def __init__(self, spec: Spec, call: Call, params: Leaves, carry: Leaves) -> None:
        self.spec, self.call, self._first = spec, call, carry
        self.params, self.carry, self._sensors = params, carry, _sorted(spec)
        self.newest: tuple[Any, ...] = ()

    def reset(self) -> None:
        """Forget all that was."""
        self.carry = self._first

    def step(self, readings: Mapping[str, np.ndarray], command: np.ndarray) -> np.ndarray:
        """Targets [A] for readings by name, each [size], and a command [C] (or rl/guided.py's)."""
        flat = [self._of(readings, sensor) for sensor in self._sensors]
        if np.shape(command) != (self.spec.asked,):
            names = ", ".join(channel.name for channel in self.spec.command)
            raise ValueError(f"The command has shape {np.shape(command)}; it needs {names}.")
        self.newest = flat, np.asarray(command, np.float32)
        targets, *self.carry = self.call(self.params, self.carry, *self.newest)
        return np.asarray(targets)

    def rehearse(self) -> None:
        """Take the newest step again, and forget it: what the next needs is then in the caches of
        a processor that did something else meanwhile."""
        if self.newest:
            self.call(self.params, self.carry, *self.newest)

    def _of(self, readings: Mapping[str, np.ndarray], sensor: Sensor) -> np.ndarray:
        if sensor.name not in readings:
            raise ValueError(f"No reading {sensor.name!r}; there are {', '.join(readings)}.")
        value = np.asarray(readings[sensor.name], np.float32)
        if value.shape != (sensor.size,):
            raise ValueError(f"{sensor.name} has shape {value.shape}; it needs ({sensor.size},).")
        return value


def _sorted(spec: Spec) -> list[Sensor]:
    """In the order in which a call takes its readings."""
    return sorted(spec.sensors, key=lambda sensor: sensor.name)


@dataclass(frozen=True)
class Golden:
    """What came in and what went out, tick by tick: leaves [T, ...]."""

    readings: dict[str, np.ndarray]
    command: np.ndarray
    targets: np.ndarray


@dataclass(frozen=True)
class Artefact:
    """All that a file holds."""

    spec: Spec
    program: Program | str  # for numpy; or why there is none
    compiled: bytes  # StableHLO, as jax.export has it
    params: Leaves
    carry: Leaves  # before the first call
    model: bytes  # MJB: the robot in its world
    golden: Golden
    digest: str = ""  # SHA-256 of the file that it was read from
    run: str = ""  # the one run of experiments.hil that it practises for, if it does

    def write(self, path: Path) -> None:
        """The file `path`, whole or not at all."""
        from rl import runs  # a robot only reads, and has no JAX

        parts = {
            "spec.json": _json({"schema": SCHEMA, "run": self.run, **asdict(self.spec)}),
            "program.json": _json(_plain(self.program)),
            "policy.stablehlo": self.compiled,
            "arrays.safetensors": save(self._arrays()),
            "model.mjb": self.model,
        }
        parts[HASHES] = _json({name: _hash(content) for name, content in parts.items()})
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in parts.items():
                archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
        runs.write(path, file.getvalue())

    def _arrays(self) -> dict[str, np.ndarray]:
        groups: dict[str, Mapping[Any, np.ndarray]] = {
            "params": dict(enumerate(self.params)),
            "carry": dict(enumerate(self.carry)),
            "constant": {} if isinstance(self.program, str) else self.program.constants,
            "reading": self.golden.readings,
            "golden": {"command": self.golden.command, "targets": self.golden.targets},
        }
        return {
            f"{group}/{name}": np.asarray(x, order="C")
            for group, members in groups.items()
            for name, x in members.items()
        }


def read(path: Path) -> Artefact:
    """The artefact at `path`; ValueError if there is none, or if it is not as it was written."""
    try:
        content = path.read_bytes()
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        return replace(_unpacked(parts), digest=_hash(content))
    except FileNotFoundError:
        raise ValueError(f"There is no artefact {path}.") from None
    except IsADirectoryError:
        inside = ", ".join(sorted(x.name for x in path.glob("artefact-*.zip"))) or "none"
        raise ValueError(f"{path} is a folder; its artefacts: {inside}.") from None
    except Exception as error:  # whatever a damaged zip makes of itself
        why = str(error) or repr(error)
        raise ValueError(f"{path} is no good artefact: {why}.") from error


def _unpacked(parts: dict[str, bytes]) -> Artefact:
    if lacks := [name for name in (HASHES, *PARTS) if name not in parts]:
        raise ValueError(f"it has no {lacks[0]}")
    hashes = json.loads(parts.pop(HASHES))
    if bad := [name for name, content in parts.items() if hashes.get(name) != _hash(content)]:
        raise ValueError(f"its {bad[0]} is not what was written")
    facts = json.loads(parts["spec.json"])
    if facts.pop("schema", None) != SCHEMA:
        raise ValueError("another version wrote it")
    arrays = load(parts["arrays.safetensors"])
    golden = _group(arrays, "golden")
    return Artefact(
        spec=from_facts(facts),
        program=_program(json.loads(parts["program.json"]), _group(arrays, "constant")),
        compiled=parts["policy.stablehlo"],
        params=_listed(arrays, "params"),
        carry=_listed(arrays, "carry"),
        model=parts["model.mjb"],
        golden=Golden(_group(arrays, "reading"), golden["command"], golden["targets"]),
        run=facts.get("run", ""),
    )


def deploy(found: Artefact, runtime: Literal["jax", "numpy"] = "jax") -> Deployed:
    """The policy, compiled and warm; ValueError if it does not reproduce its golden vectors."""
    runtimes = {"jax": _jax_call, "numpy": _numpy_call}
    if runtime not in runtimes:
        raise ValueError(f"There is no runtime {runtime!r}; there are {', '.join(runtimes)}.")
    if not len(found.golden.targets):
        raise ValueError("The artefact has no golden vectors: nothing says that it runs as it did.")
    call, params = runtimes[runtime](found)
    policy, golden = Deployed(found.spec, call, params, found.carry), found.golden
    for t, want in enumerate(golden.targets):
        got = policy.step({name: x[t] for name, x in golden.readings.items()}, golden.command[t])
        if not (off := float(np.abs(got - want).max())) <= TOLERANCE:
            raise ValueError(
                f"With {runtime} the policy is {off:.2g} off its golden targets at tick {t}, and "
                f"may be {TOLERANCE:g} off: this machine does not run it as it was trained."
            )
    policy.reset()
    return policy


def _jax_call(found: Artefact) -> tuple[Call, Any]:
    """One executable, compiled here and now: what does not fit it is refused, and never compiled
    for anew while a robot waits; and its parameters."""
    import jax  # a robot that runs with numpy has no JAX
    from jax import export

    params = [jax.numpy.asarray(x) for x in found.params]
    names = sorted(sensor.name for sensor in found.spec.sensors)
    readings = [found.golden.readings[name][0] for name in names]
    try:
        step = jax.jit(export.deserialize(bytearray(found.compiled)).call)
        like = params, [*found.carry], readings, found.golden.command[0]
        compiled = step.lower(*like).compile()
    except Exception as error:  # whatever JAX makes of a program that is none
        raise ValueError(f"This JAX cannot read the artefact's program: {error!r}.") from error
    return lambda params, carry, *now: compiled(list(params), list(carry), *now), params


def _numpy_call(found: Artefact) -> tuple[Call, Leaves]:
    if isinstance(found.program, str):
        raise ValueError(f"This policy runs with JAX alone: {found.program}.")
    run = found.program.run
    return lambda params, carry, told, asked: run(*params, *carry, *told, asked), found.params


def _json(x: Any) -> bytes:
    return (json.dumps(x, indent=1) + "\n").encode()


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _group(arrays: Mapping[str, np.ndarray], group: str) -> dict[str, np.ndarray]:
    start = f"{group}/"
    return {n.removeprefix(start): x for n, x in arrays.items() if n.startswith(start)}


def _listed(arrays: Mapping[str, np.ndarray], group: str) -> list[np.ndarray]:
    found = _group(arrays, group)
    return [found[str(i)] for i in range(len(found))]


def _plain(program: Program | str) -> dict[str, Any]:
    if isinstance(program, str):
        return {"why": program}
    equations = [list(equation) for equation in program.equations]
    return {"inputs": program.inputs, "equations": equations, "outputs": program.outputs}


def _program(found: dict[str, Any], constants: Mapping[str, np.ndarray]) -> Program | str:
    if "why" in found:
        return found["why"]
    operand = lambda x: tuple(x) if isinstance(x, list) else x  # noqa: E731
    equations = tuple(
        Equation(name, tuple(map(operand, operands)), tuple(results), dtype, settings)
        for name, operands, results, dtype, settings in found["equations"]
    )
    outputs = tuple(map(operand, found["outputs"]))
    numbered = {int(slot): x for slot, x in constants.items()}
    return Program(tuple(found["inputs"]), numbered, equations, outputs)
