"""Serve a policy to robots elsewhere: python -m rl.bridge serve ARTEFACT"""

import asyncio
import gc
import ipaddress
import logging
import platform
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from rl import artefact
from rl.bridge import launch, wire
from rl.bridge.clock import urgent
from rl.bridge.serve import token
from rl.bridge.serve.facts import facts


@dataclass(frozen=True)
class Serve:
    """Run a policy for robots elsewhere, which ask over websocket in openpi's frames."""

    artefact: tyro.conf.Positional[Path]  # a file, or the directory of a run that has one
    listen: str = "127.0.0.1:8000"  # of who may ask; 0.0.0.0:8000 of all, who need a token
    token: Path | None = None  # a file with what who asks must say; it is made if there is none
    cert: Path | None = None  # a file with a certificate, for TLS
    key: Path | None = None  # and with its key
    runtime: Literal["jax", "numpy"] = "jax"


def serve(args: Serve) -> None:
    path, (host, port) = launch.found(args.artefact), wire.address(args.listen)
    if not args.token and not ipaddress.ip_address(host).is_loopback:
        raise ValueError(f"--listen {args.listen} is heard on a network: it takes a --token FILE.")
    tls, word, made = _tls(args), "", False
    if args.token:
        if made := not args.token.exists():
            token.make(args.token)
        word = token.read(args.token)
    for name in ("websockets", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # of whoever knocks
    with socket.socket() as listening:
        _bind(listening, host, port)
        found = artefact.read(path)
        policy = artefact.deploy(found, args.runtime)
        from rl.bridge.serve.server import Server  # nobody else needs websockets

        listening.listen()
        at = host.replace(launch.ALL, platform.node()), listening.getsockname()[1]
        url = f"{'wss' if tls else 'ws'}://{at[0]}:{at[1]}"
        print(f"serving  {found.spec.name} with {args.runtime} at {url}", flush=True)
        if args.token:
            print(f"token    {args.token}, {'made now' if made else 'as it was'}; "
                  "who asks has it in a file of its own, of mode 0600", flush=True)  # fmt: skip
        gc.collect()
        gc.freeze()
        urgent("policy")  # both as rl/bridge/policyd.py has it
        try:
            asyncio.run(Server(policy, facts(found, args.runtime), word).live(listening, tls))
        finally:
            print("ended    nobody is served any more", flush=True)


def _bind(listening: socket.socket, host: str, port: int) -> None:
    """Take the address, where nobody is heard before the policy is warm."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        why = f"Cannot listen on {host}:{port}: {error.strerror}. Name another with --listen."
        raise ValueError(why) from error


def _tls(args: Serve) -> ssl.SSLContext | None:
    if not (args.cert or args.key):
        return None
    if not (args.cert and args.key):
        raise ValueError("--cert and --key: TLS takes both, a certificate and its key.")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(args.cert, args.key)
    except OSError as error:  # of ssl as well
        why = f"--cert {args.cert} and --key {args.key} are no certificate and its key"
        raise ValueError(f"{why}: {error.strerror or error}.") from error
    return context
