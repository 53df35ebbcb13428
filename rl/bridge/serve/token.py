"""The word that who asks a policy server must know: in a file that nobody but its user can read."""

import hmac
import os
import re
import secrets
from pathlib import Path

TOKEN = re.compile(r"[!-~]{16,200}")  # what a header may hold


def read(path: Path) -> str:
    """The token in a file; ValueError of a file that others can read, or that has none."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise ValueError(f"--token {path} can be read by others: chmod 600 {path}")
        said = file.read(1024).decode("latin-1").strip()
    if not TOKEN.fullmatch(said):
        raise ValueError(
            f"--token {path} has no token: that is a line of 16 to 200 characters without blanks."
        )
    return said


def make(path: Path) -> None:
    """A file with a fresh one."""
    made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(made, "w") as file:
        print(secrets.token_urlsafe(32), file=file)


def header(token: str) -> dict[str, str]:
    """As openpi's client says it."""
    return {"Authorization": f"Api-Key {token}"} if token else {}


def allows(token: str, said: list[str]) -> bool:
    """Whether these headers say it; how long that takes tells nothing of it."""
    ours = header(token)["Authorization"].encode()
    return len(said) == 1 and hmac.compare_digest(said[0].encode(errors="surrogateescape"), ours)
