"""The export of a run: its best seed's artefact as it is, checked, and never over another file."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl import artefact
from rl.bridge import export
from rl.bridge.export import Export
from tests.test_artefact import small


def made(run: Path, seeds: tuple[int, ...], **facts: Any) -> Path:
    """A run that has an artefact of each of these seeds, which are different files."""
    run.mkdir()
    for seed in seeds:
        spec = replace(small().spec, name=f"arm-{seed}")
        replace(small(), spec=spec).write(run / f"artefact-{seed}.zip")
    told = {"seeds": [0, 1, 2], "status": "done"} | facts
    (run / "manifest.json").write_text(json.dumps(told))
    return run


RETURNS = {"eval_returns": [[1.0, 5.0], [4.0, 4.0], [0.0, 3.0]]}
DONE = {"eval_successes": [[0.0, 1.0], [0.0, 0.0], [1.0, 1.0]]}


@pytest.mark.parametrize(("facts", "seed", "best"), [
    (RETURNS, None, 1), (RETURNS | DONE, None, 2), (RETURNS, 0, 0), ({}, 2, 2),
])  # fmt: skip
def test_the_best_seed_is_taken_as_it_is(
    tmp_path: Path, capsys: Any, facts: Any, seed: int | None, best: int
) -> None:
    run, out = made(tmp_path / "run", (0, 1, 2), **facts), tmp_path / "policy.zip"
    export.export(Export(run, out, seed))
    whole = (run / f"artefact-{best}.zip").read_bytes()
    assert out.read_bytes() == whole
    told = capsys.readouterr().out
    assert f"arm-{best}: seed {best}" in told
    assert hashlib.sha256(whole).hexdigest() in told
    assert "at 50 Hz with jax and numpy" in told
    assert {x.name for x in tmp_path.iterdir()} == {"run", "policy.zip"}


def test_of_seeds_some_may_have_none(tmp_path: Path) -> None:
    """The second is best, and has no artefact."""
    run = made(tmp_path / "run", (0, 2), **RETURNS)
    assert export.chosen(run, None)[0].name == "artefact-0.zip"
    with pytest.raises(ValueError, match="no artefact of seed 1; it has those of 0, 2"):
        export.chosen(run, 1)


def test_the_only_one_needs_no_record(tmp_path: Path) -> None:
    path, why = export.chosen(made(tmp_path / "run", (2,)), None)
    assert (path.name, why) == ("artefact-2.zip", "seed 2, the only one")


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    run, out = made(tmp_path / "run", (0, 1)), tmp_path / "policy.zip"
    (there := tmp_path / "there.zip").write_bytes(b"mine")
    none = made(tmp_path / "none", ())
    for args, why in (
        (Export(run, out), "has not come to its end.*--seed, one of"),
        (Export(run, there, 0), "is there already"),
        (Export(run, tmp_path / "policy.txt", 0), "policy.txt will be a .zip file"),
        (Export(run, tmp_path / "no" / "policy.zip", 0), "there is no folder for it"),
        (Export(none, out), "has no artefact: training writes one"),
        (Export(tmp_path / "nothing", out), "there is no such directory"),
        (Export(there, out), "it has no manifest.json"),
    ):
        with pytest.raises(ValueError, match=why):
            export.export(args)
    assert there.read_bytes() == b"mine"
    assert {path.suffix for path in tmp_path.iterdir() if path.is_file()} == {".zip"}
    assert not out.exists()


@pytest.mark.parametrize("runtime", ["jax", "numpy"])
def test_what_does_not_do_as_it_did_is_refused(tmp_path: Path, runtime: str) -> None:
    run, good = made(tmp_path / "run", ()), small()
    if runtime == "jax":
        golden = replace(good.golden, targets=good.golden.targets + np.float32(1e-3))
        bad = replace(good, golden=golden)
    else:  # of which the program alone is another's
        program: Any = good.program
        twice = {k: 2 * x if x.dtype.kind == "f" else x for k, x in program.constants.items()}
        equations = tuple(
            x._replace(name="sub") if x.name == "add" else x for x in program.equations
        )
        bad = replace(good, program=program._replace(constants=twice, equations=equations))
    bad.write(run / "artefact-0.zip")
    with pytest.raises(ValueError, match=f"With {runtime} the policy is .* off its golden"):
        export.export(Export(run, tmp_path / "policy.zip"))
    assert not (tmp_path / "policy.zip").exists()


def test_jax_alone_will_do(tmp_path: Path, capsys: Any) -> None:
    run = made(tmp_path / "run", ())
    replace(small(), program="it has a loop").write(run / "artefact-0.zip")
    export.export(Export(run, tmp_path / "policy.zip"))
    assert "with jax alone (it has a loop)" in capsys.readouterr().out
    assert artefact.read(tmp_path / "policy.zip").spec == small().spec


def test_the_command_line_says_what_is_wrong_in_a_line(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "rl.bridge", "export", str(tmp_path / "nothing")]
    told = subprocess.run(words, capture_output=True, text=True)
    assert told.returncode == 1
    assert told.stderr.startswith("error: ")
    assert told.stderr.count("\n") == 1
