"""What a policy server says of itself first, and whether it is the one that a robot wants."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np

from rl.artefact import Artefact
from rl.bridge import wire
from rl.bridge.greeting import check_hello

SCHEMA = 1


def facts(found: Artefact, runtime: str) -> dict[str, Any]:
    """The first frame of a connection."""
    return {
        "server": "robotrl", "schema": SCHEMA, "runtime": runtime, "artefact": found.digest,
        "hash": found.spec.hash.hex(), "spec": asdict(found.spec),
    }  # fmt: skip


def check(found: Artefact, said: Any, at: str) -> None:
    """Raise ValueError unless a server that says these is one of the same artefact."""
    ours = facts(found, "")
    if not isinstance(said, dict) or any(said.get(x) != ours[x] for x in ("server", "schema")):
        raise ValueError(f"What serves at {at} is not robotrl, or of another version.")
    theirs = found.spec.hash if said.get("hash") == ours["hash"] else b""
    text = json.dumps(said.get("spec"), default=str, skipkeys=True)
    hello = wire.Message(wire.HELLO, 0, theirs, 0, 0.0, np.zeros(0), text)
    check_hello(found.spec, hello, f"The server at {at}")
    if said.get("artefact") != found.digest:
        raise ValueError(
            f"The server at {at} is of another artefact: start it and the bridge with one file."
        )
