"""Where a policy runs: on this machine, or on a server's, as a command line says it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from rl import artefact
from rl.artefact import Artefact, Deployed


@dataclass(frozen=True)
class Elsewhere:
    """A server that runs the policy."""

    policy: str = ""  # ws://HOST:PORT or wss://HOST:PORT of a server that runs it in our place
    token: Path | None = None  # the file with that server's token
    cert: Path | None = None  # of wss, whose certificate is believed; else as the system does

    def check(self) -> None:
        """Raise ValueError of what makes no sense."""
        if not self.policy and (self.token or self.cert):
            raise ValueError("--token and --cert are for a server: name it with --policy.")
        try:
            at = urlsplit(self.policy)
            good = at.scheme in ("ws", "wss") and at.hostname and at.port and at.path in ("", "/")
        except ValueError:  # of a port that is none
            good = False
        if self.policy and not good:
            raise ValueError(f"--policy {self.policy} is no ws://HOST:PORT or wss://HOST:PORT.")
        if self.cert and not self.policy.startswith("wss:"):
            raise ValueError(f"--cert: {self.policy} has no TLS; with it, it is wss://HOST:PORT.")

    @property
    def flags(self) -> list[str]:
        """That say so to another program."""
        said = {"policy": self.policy, "token": self.token, "cert": self.cert}
        return [f"--{name}={x}" for name, x in said.items() if x]

    def deploy(self, found: Artefact, runtime: Literal["jax", "numpy"]) -> Deployed:
        """The artefact's policy; ValueError if it does not reproduce its golden vectors."""
        self.check()
        if not self.policy:
            return artefact.deploy(found, runtime)
        from rl.bridge.serve.remote import Remote  # nobody else needs websockets

        return Remote(found, self)
