"""Keys of actors and their learner, in files."""

import stat
from pathlib import Path

import pytest
import zmq

from rl.bridge.learn import certs
from rl.bridge.learn.certs import Keys, keys


def test_a_pair_is_one_and_its_secret_is_for_its_owner_alone(tmp_path: Path) -> None:
    certs.make(tmp_path / "keys", "arm")
    secret = certs.read_secret(tmp_path / "keys" / "arm.secret")
    assert zmq.curve_public(secret) == certs.read_public(tmp_path / "keys" / "arm.public")
    modes = [stat.S_IMODE((tmp_path / "keys" / f"arm.{x}").stat().st_mode)
             for x in ("secret", "public")]  # fmt: skip
    assert modes == [0o600, 0o644]


@pytest.mark.parametrize("there", ["arm.secret", "arm.public"])
def test_no_key_is_written_over(there: str, tmp_path: Path) -> None:
    (tmp_path / there).write_text("mine")
    with pytest.raises(ValueError, match=rf"{there} is there already"):
        certs.make(tmp_path, "arm")
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_secret_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    certs.make(tmp_path, "arm")
    path = tmp_path / "arm.secret"
    path.chmod(mode)
    with pytest.raises(ValueError, match=f"can be read by others than you: chmod 600 {path}"):
        certs.read_secret(path)


def test_every_actor_is_allowed_and_the_learner_is_none(tmp_path: Path) -> None:
    keys(Keys(("learner", "arm", "leg-2"), tmp_path))
    (tmp_path / "notes.txt").write_text("whatever")
    found = certs.allowed(tmp_path)
    assert [*found] == ["arm", "leg-2"]
    assert found["arm"] == certs.read_public(tmp_path / "arm.public")
    (tmp_path / "other.public").write_bytes(found["arm"])
    with pytest.raises(ValueError, match=r"arm\.public and other\.public in .* are one key"):
        certs.allowed(tmp_path)
    (tmp_path / "other.public").rename(tmp_path / "An Arm.public")
    (tmp_path / "arm.public").unlink()
    with pytest.raises(ValueError, match=r"An Arm\.public is of no actor's name"):
        certs.allowed(tmp_path)


@pytest.mark.parametrize(
    "text", [b"", b"x" * 39, b"x" * 41, b"~" * 40, b"#" * 40, b"\xff" * 40, b"0" * 45]
)
def test_what_is_no_key_is_refused(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "arm.public").write_bytes(text)
    with pytest.raises(ValueError, match=r"arm\.public is no key: make one with"):
        certs.read_public(tmp_path / "arm.public")


def test_nothing_is_made_where_not_all_can_be(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "leg.public").touch()
    (file := tmp_path / "file").touch()
    for names, out, why in (
        (("arm", "arm"), tmp_path / "keys", "arm arm: name each once"),
        (("arm", "leg"), tmp_path / "there", "leg.public is there already"),
        (("arm", "A"), tmp_path / "keys", "'A' is no name"),
        (("arm",), file, "file is a file: keys take a folder"),
        (("arm",), file / "in", "The folder .* cannot be made: not a directory"),
        (("arm",), Path("/proc/x"), "The folder /proc/x cannot be made: no such file"),
    ):
        with pytest.raises(ValueError, match=why):
            keys(Keys(names, out))
    assert sorted(x.name for x in tmp_path.rglob("*.*")) == ["leg.public"]


def test_what_is_missing_or_misnamed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="There is no key"):
        certs.read_secret(tmp_path / "arm.secret")
    for name in ("Arm", "a/b", "", ".arm", "a" * 65):
        with pytest.raises(ValueError, match="is no name: it takes up to 64"):
            certs.make(tmp_path, name)
    with pytest.raises(ValueError, match="Name whose keys are to be made"):
        keys(Keys((), tmp_path))
