"""A robot whose policy a server runs: the right one, and silent where that does not answer."""

import re
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import tyro

from benchmarks import serving
from rl import artefact
from rl.artefact import Artefact, Deployed
from rl.bridge.launch import Run
from rl.bridge.serve import remote as program
from rl.bridge.serve.elsewhere import Elsewhere
from rl.bridge.serve.facts import facts
from rl.bridge.serve.remote import Remote
from tests.serving import PATH, altered, served, until

WORD = "a-token-of-31-characters-or-so."


@cache
def found() -> Artefact:
    return artefact.read(PATH)


@contextmanager
def remote(at: str, of: Artefact | None = None, **more: Any) -> Iterator[Remote]:
    with closing(Remote(of or found(), Elsewhere(at, **more))) as made:
        yield made


def step(policy: Deployed, t: int) -> np.ndarray:
    told = found().golden
    return policy.step({name: x[t] for name, x in told.readings.items()}, told.command[t])


@pytest.mark.parametrize("runtime", ["jax", "numpy"])
def test_it_is_as_if_it_ran_here(runtime: Any) -> None:
    """To the last bit, and whatever is rehearsed."""
    here = artefact.deploy(found(), runtime)
    with served(found(), artefact.deploy(found(), runtime)) as made, remote(made.at) as there:
        for t in (*range(16), None, *range(16)):
            if t is None:
                here.reset()
                there.reset()
                continue
            np.testing.assert_array_equal(step(there, t), step(here, t))
            here.rehearse()
            there.rehearse()
        with pytest.raises(ValueError, match="No reading 'FL_calf_pos'"):
            there.step({}, np.zeros(3))


def test_who_lost_its_memory_is_silent_until_all_is_to_be_forgotten(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "AGAIN_S", 0.05)
    here = artefact.deploy(found(), "numpy")
    with served(found()) as first, remote(first.at) as there:
        for t in range(3):
            step(there, t)
        first.close()
        for _ in range(3):
            with pytest.raises(TimeoutError):
                step(there, 3)
        time.sleep(0.2)
        with served(found(), port=first.port):
            until(lambda: there.link)
            for _ in range(3):
                with pytest.raises(TimeoutError, match="does not answer"):
                    step(there, 3)
            there.reset()
            for t in range(3):
                np.testing.assert_array_equal(step(there, t), step(here, t))
    lost, none, back, *_ = capfd.readouterr().err.splitlines()
    assert lost == f"policy   {first.at} is lost: it hung up"
    assert none.startswith(f"policy   {first.at} is lost: No server answers")
    assert back == f"policy   {first.at} answers again: its robot goes on when it is armed"


def test_an_answer_that_does_not_come_in_time_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "WAITS", 10)
    monkeypatch.setattr(program, "AGAIN_S", 0.05)
    going, here = Event(), artefact.deploy(found(), "numpy")
    going.set()
    slow = altered(artefact.deploy(found(), "numpy"), lambda x: (going.wait(9), x)[1])
    with served(found(), slow) as made, remote(made.at) as there:
        step(there, 0)
        going.clear()
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            step(there, 1)
        assert 0.2 <= time.monotonic() - began < 2
        going.set()
        until(lambda: there.link and there.link.number == 1)
        with pytest.raises(TimeoutError):
            step(there, 2)
        there.reset()  # and the answer that was late is nobody's
        np.testing.assert_array_equal(step(there, 3), step(here, 3))


def test_a_server_that_hangs_up_or_answers_nonsense_is_silent() -> None:
    wrong = lambda x: x[:3], lambda x: x[None], lambda x: 1 / 0
    for then in wrong:
        after = [then] + [lambda x: x] * 16
        policy = altered(artefact.deploy(found(), "numpy"), lambda x: after.pop()(x))  # noqa: B023
        with served(found(), policy) as made, remote(made.at) as there:
            with pytest.raises(TimeoutError):
                step(there, 0)
            assert there.why


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"word": WORD}, r"refuses \(401\): Who asks needs a token."),
        ({"told": {"server": "other"}}, "is not robotrl, or of another version."),
        ({"told": []}, "is not robotrl, or of another version."),
    ],
)
def test_a_server_that_is_not_the_right_one_is_refused(change: Any, why: str) -> None:
    with served(found(), **change) as made:
        if not why:
            with remote(made.at):
                return
        with pytest.raises(ValueError, match=why), remote(made.at):
            pass


def test_another_artefact_or_one_that_runs_otherwise_is_refused() -> None:
    other = replace(found(), digest="0" * 64)
    with served(other) as made, pytest.raises(ValueError, match="another artefact"):
        Remote(found(), Elsewhere(made.at))
    slow = replace(found(), spec=replace(found().spec, control_dt=0.025))
    with (
        served(found(), told=facts(slow, "")) as made,
        pytest.raises(ValueError, match=r"control_dt is 0\.025"),
    ):
        Remote(found(), Elsewhere(made.at))
    off = altered(artefact.deploy(found(), "numpy"), lambda x: x + np.float32(1e-4))
    why = "is 0.0001 off its golden targets at tick 0, and may be 1e-05 off"
    with served(found(), off) as made, pytest.raises(ValueError, match=why):
        Remote(found(), Elsewhere(made.at))
    lost = altered(artefact.deploy(found(), "numpy"), lambda x: x * np.nan)
    with served(found(), lost) as made, pytest.raises(ValueError, match="nan off its golden"):
        Remote(found(), Elsewhere(made.at))


def test_who_has_the_token_is_let_in(tmp_path: Path) -> None:
    (file := tmp_path / "token").write_text(WORD + "\n")
    file.chmod(0o600)
    with served(found(), word=WORD) as made, remote(made.at, token=file) as there:
        step(there, 0)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One of this machine alone, made as docs/serve.md says."""
    folder = tmp_path_factory.mktemp("tls")
    page = (Path(__file__).parent.parent / "docs" / "serve.md").read_text()
    (line,) = re.findall(r"^openssl .*$", page, re.M)
    words = line.replace("IP:192.168.1.20", "IP:127.0.0.1").split()
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


def test_over_tls(certificate: tuple[Path, Path]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with served(found(), tls=context) as made:
        with remote(made.at, cert=certificate[0]) as there:
            step(there, 0)
        with pytest.raises(ValueError, match=r"is not believed, self-signed.*--cert takes a copy"):
            Remote(found(), Elsewhere(made.at))
        with pytest.raises(ValueError, match=r"speaks otherwise: is it wss://\?"):
            Remote(found(), Elsewhere(made.at.replace("wss", "ws")))
    with served(found()) as made, pytest.raises(ValueError, match=r"otherwise: is it ws://\?"):
        Remote(found(), Elsewhere(made.at.replace("ws", "wss")))
    with pytest.raises(ValueError, match=r"No server answers at ws://127\..*: Connection refused"):
        Remote(found(), Elsewhere(made.at))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--policy", "127.0.0.1:8000"], "is no ws://HOST:PORT or wss://HOST:PORT"),
        (["--policy", "http://127.0.0.1:8000"], "is no ws://"),
        (["--policy", "ws://127.0.0.1"], "is no ws://"),
        (["--policy", "ws://127.0.0.1:99999"], "is no ws://"),
        (["--policy", "ws://127.0.0.1:8000/x"], "is no ws://"),
        (["--policy", "ws://127.0.0.1:8000", "--cert", "a"], "has no TLS"),
        (["--token", "a"], "name it with --policy"),
        (["--cert", "a"], "name it with --policy"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], why: str) -> None:
    args = tyro.cli(Run, args=[str(PATH), *words])
    with pytest.raises(ValueError, match=why):
        args.elsewhere.check()


def test_where_it_is_is_told_on() -> None:
    words = ["--policy=wss://a:1", "--token=t", "--cert=c"]
    elsewhere = tyro.cli(Run, args=[str(PATH), *words]).elsewhere
    elsewhere.check()
    assert elsewhere.flags == words
    assert Elsewhere().flags == []


def test_what_is_measured_is_what_is_sent(tmp_path: Path) -> None:
    """Of an observation of 98 KB."""
    large = artefact.read(serving.seeing(tmp_path / "seeing.zip"))
    with served(large) as made, remote(made.at, large) as there:
        seen = np.full(serving.SEES, 0.25, np.float32)
        assert there.step({"image": seen}, np.zeros(0)) == [0.25]
    run = serving.echoed(large, 20, 0.0)
    assert 0 < run["value"] <= run["p99"] < 1
