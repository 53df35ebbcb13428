"""Keys by which actors and their learner know each other: CURVE pairs, each of two files.

NAME.secret stays on its machine; NAME.public goes to whom it speaks with.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path

import tyro
import zmq
from zmq.utils import z85

from rl.bridge.learn.frames import NAME

LEARNER = "learner"
LENGTH = 40  # characters of a key, in Z85


@dataclass(frozen=True)
class Keys:
    """Make a pair of keys for each name: of the learner, and of its actors."""

    names: tyro.conf.Positional[tuple[str, ...]]  # learner, and actors' own
    out: Path  # a folder, made if it is not there


def keys(args: Keys) -> None:
    if not args.names:
        raise ValueError(f"Name whose keys are to be made, as in: keys {LEARNER} arm --out keys.")
    if len({*args.names}) < len(args.names):
        raise ValueError(f"{' '.join(args.names)}: name each once.")
    for name in args.names:
        _check(args.out, name)  # all, before the first is made
    for name in args.names:
        make(args.out, name)
        print(f"made     {args.out / name}.secret and .public")
    print(f"An actor NAME needs NAME.secret and {LEARNER}.public, the learner {LEARNER}.secret and")
    print("NAME.public of each of its actors. No secret goes anywhere else.")


def make(folder: Path, name: str) -> None:
    """Write NAME.secret, for its owner's eyes alone, and NAME.public; ValueError over others."""
    _check(folder, name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"The folder {folder} cannot be made: {(error.strerror or str(error)).lower()}."
        ) from error
    public, secret = zmq.curve_keypair()
    files = {"public": (public, 0o644), "secret": (secret, 0o600)}
    for kind, (key, mode) in files.items():
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(folder / f"{name}.{kind}", flags, mode), "wb") as file:
            file.write(key + b"\n")


def _check(folder: Path, name: str) -> None:
    """ValueError where no pair can be made."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name: it takes up to 64 of a-z, 0-9, _, . and -.")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: keys take a folder.")
    for path in (folder / f"{name}.public", folder / f"{name}.secret"):
        if path.exists():
            raise ValueError(f"{path} is there already: remove it first, if nobody needs it.")


def read_public(path: Path) -> bytes:
    """A key in Z85; ValueError if there is none."""
    how = "make one with python -m rl.bridge keys."
    try:
        key = path.read_bytes().strip()
        z85.decode(key)
    except FileNotFoundError:
        raise ValueError(f"There is no key {path}: {how}") from None
    except (KeyError, ValueError, struct.error):
        key = b""
    if len(key) != LENGTH:
        raise ValueError(f"{path} is no key: {how}")
    return key


def read_secret(path: Path) -> bytes:
    """ValueError if there is none, or if others than its owner can read it."""
    key = read_public(path)
    if path.stat().st_mode & 0o077:
        raise ValueError(f"{path} can be read by others than you: chmod 600 {path}.")
    return key


def allowed(folder: Path) -> dict[str, bytes]:
    """The actors' public keys that lie in a folder, by name."""
    paths = sorted(folder.glob("*.public"))
    found = {path.stem: read_public(path) for path in paths if path.stem != LEARNER}
    owners = {key: name for name, key in found.items()}
    for name, key in found.items():
        if not NAME.fullmatch(name):
            raise ValueError(f"{folder / name}.public is of no actor's name: rename it.")
        if owners[key] != name:
            raise ValueError(f"{name}.public and {owners[key]}.public in {folder} are one key.")
    return found
