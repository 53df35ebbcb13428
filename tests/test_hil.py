"""The learner beside robots, as it runs: it is killed, goes on, and has all that they did."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import practised
from experiments import cli, explorer, hil, play
from experiments.lived import Pieces
from experiments.taken import check_size, taken_in
from rl import artefact, runs
from rl.bridge import wire
from rl.bridge.learn import certs, newer, weights
from rl.bridge.learn.journal import Journal
from rl.bridge.learn.outbox import LABEL
from rl.bridge.learn.steps import pack
from rl.bridge.learn.uplink import Uplink
from rl.record import Record
from tests.guided import spec
from tests.lives import end, flown

PATIENCE = 120.0  # s
ROBOTS = "arm", "other"
FLAGS = (
    "--env", "panda-reach", "--env.rewards=sparse", "--learning-starts=10", "--updates=1",
    "--batch-size=16", "--buffer-size=1000", "--eval-episodes=2", "--no-video", "--save-s=0",
    "--publish-s=0.2", "--agent.hidden=16", "--agent.critic-hidden=16", "--agent.critics=2",
    "--agent.delay=1", "--robots", *ROBOTS,
)  # fmt: skip


@contextmanager
def learner(*words: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.hil", *map(str, words)], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def until(done: Callable[[], bool], *links: Uplink) -> None:
    """Poll these until it is."""
    ends = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < ends
        time.sleep(0.01)
        for link in links:
            link.tell({"pending": link.pending, "over": link.over})  # as an actor does
            link.poll()


def kept(policy: artefact.Deployed, bridge: int, count: int) -> list[bytes]:
    """What a bridge has kept of an episode, every third step of which is a human's."""
    *steps, last = flown(policy, count, lambda i: i % 3 == 0).steps
    steps.append(last._replace(over=True))
    every = [pack(step) for step in (*steps, end(steps))]
    return [LABEL.pack(bytes([bridge]) * 16, i) + x for i, x in enumerate(every)]


def transitions(spec: Any, *robots: list[bytes]) -> int:
    count = 0
    for records in robots:
        pieces = Pieces(spec)
        found = [piece for record in records for piece in pieces.take(record)]
        count += sum(len(piece.steps) - 1 for piece in found)
    return count


def recorded(out: Path) -> None:
    """Each step that has a line has one, and so has each checkpoint."""
    facts, rows = runs.read_manifest(out), [row["step"] for row in runs.read_metrics(out)]
    assert artefact.read(out / "explorer.zip").run == f"run-{facts['run_id']}"
    assert "warnings" not in facts
    assert rows == sorted(set(rows))
    assert {int(path.name) for path in (out / "checkpoints").iterdir()} <= {0, *rows}


@pytest.mark.long
def test_two_robots_are_learned_from_and_a_killed_learner_goes_on_with_all(tmp_path: Path) -> None:
    out, listen = tmp_path / "run", wire.free_address()
    words = *FLAGS, f"--out={out}", f"--listen={listen}", "--steps=70"
    with ExitStack() as stack:
        first = stack.enter_context(learner(*words))
        until((out / "keys" / "learner.public").exists)
        policy, run = artefact.deploy(found := artefact.read(out / "explorer.zip")), found.run
        robots = [kept(policy, 1, 42), kept(policy, 2, 33)]
        total = transitions(policy.spec, *robots)
        assert total >= 70
        links = []
        for name in ROBOTS:
            until((out / "keys" / f"{name}.secret").exists)
            journal = stack.enter_context(closing(Journal(tmp_path / name, name, run=run)))
            keys = certs.read_secret(out / "keys" / f"{name}.secret")
            public = certs.read_public(out / "keys" / "learner.public")
            links.append(Uplink(journal, f"tcp://{listen}", keys, public, policy.spec.hash))
            stack.enter_context(closing(links[-1]))
        for link, records, some in zip(links, robots, (100, 20), strict=True):
            for record in records[:some]:  # a whole episode, and a part of one
                link.append(record)
        until(lambda: all(link.weights and not link.pending for link in links), *links)
        before = links[0].weights
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        for record in robots[1][20:]:  # nobody is there
            links[1].append(record)
        second = stack.enter_context(learner("--resume", out))
        until(lambda: second.poll() is not None, *links)
        told = second.stdout.read() if second.stdout else ""
        assert second.returncode == 0, told
        assert before
        assert links[0].weights.version > before.version  # pyright: ignore
        assert {link.over for link in links} == {"it has all of its 70 steps, and needs none more"}
    facts = runs.read_manifest(out)
    assert facts["status"] == "done"
    assert (facts["steps"], facts["practised"]["episodes"]) == (70, 2)
    recorded(out)
    records = sum(map(len, robots))
    assert practised.kept(out) == {"records": records, "lost": 0, "duplicated": 0}
    newest = weights.newest(out / "weights", 0)
    assert newest
    told = newer.unpack(newest.blob)
    assert told
    assert told.seen  # the agent's statistics
    begin = np.load(out / "starts.npz")
    assert begin["qpos"].shape == begin["qvel"].shape == (explorer.STARTS, 9)
    assert np.isfinite(begin["qpos"]).all()
    env, judged, params = play.load(out)
    assert play.judge(env, judged, params, 2).shape == (2,)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--mix", "1.5"], "--mix is 1.5"),
        (["--demos", "nowhere"], "is no run of experiments.hil"),
        (["--learning-starts", "1"], "--learning-starts is 1; it needs at least 3"),
        (["--agent", "ppo"], "PPO cannot learn from data"),
        (["--seeds", "2"], "--seeds is 2"),
        (["--robots", "arm", "arm"], "--robots is arm arm; it takes the name of each robot"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, words: list[str], why: str) -> None:
    with learner(*words, "--out", tmp_path / "run") as process:
        told, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1
        assert why in told
        assert "Traceback" not in told
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"robots": ()}, "--robots is empty"),
        ({"robots": ("learner",)}, "--robots is learner"),
        ({"robots": ("a/b",)}, "--robots is a/b"),
        ({"publish_s": float("nan")}, "--publish-s is nan; it needs at least 0"),
        ({"most_updates": -1.0}, "--most-updates is -1"),
        ({"reward_shift": float("inf")}, "--reward-shift is inf"),
        ({"secrets": Path("nowhere")}, "There is no key nowhere"),
        ({"listen": "here"}, "'here' is no address"),
    ],
)
def test_flags_that_make_no_sense_are_refused_before_anything_is_made(
    flags: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        hil.check(hil.Args(**{"listen": wire.free_address()} | flags))


def test_a_port_that_is_taken_is_refused_before_anything_is_made() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"--listen {listen}: address already in use; name"):
            hil.check(hil.Args(listen=listen))


def test_a_replay_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"--buffer-size 10,000,000,000 would take .*: lower it"):
        check_size(10**10, hil.host.simulated(hil.Args()))


def test_a_run_that_goes_on_may_listen_elsewhere_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["hil.py", "--steps=500", "--listen=127.0.0.1:9891"])
    begun, run = cli.parse(hil.Args, sys.argv[1:]), tmp_path / "run"
    with Record(run, 500, config=begun, env=begun.env_name):
        pass
    same = replace(begun, out=run, resume=run)
    assert cli.parse(hil.Args, ["--resume", str(run)]) == same
    elsewhere = cli.parse(hil.Args, [f"--resume={run}", "--listen", "127.0.0.1:9892"])
    assert elsewhere == replace(same, listen="127.0.0.1:9892")
    with pytest.raises(ValueError, match="--resume takes no other flags but --listen: a run goes"):
        cli.parse(hil.Args, ["--resume", str(run), "--listen=127.0.0.1:9892", "--steps=600"])


def test_keys_that_are_gone_are_not_made_anew(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    come = taken_in(tmp_path, spec(), wire.free_address(), ROBOTS, None)
    with pytest.raises(ValueError, match=r"keys/learner\.secret is gone, by which robots"), come:
        pass
    assert not (tmp_path / "keys").exists()
