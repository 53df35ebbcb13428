"""Suites: what makes no sense is refused before anything starts, in a sentence that says where."""

import json
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import plan, run, stop, suite
from benchmarks.suite import Agent, Suite, Task
from benchmarks.sweep import Progress
from benchmarks.table import Rates, Watch
from rl.adastop import AdaStop

HEAD = 'about = "x"\nsteps = 100\n'
GOOD = HEAD + "[tasks.Hopper-v5]\n[agents.a]\nexperiment = 'sac'\n"
SAC = "[tasks.Hopper-v5]\n[agents.a]\nexperiment = 'sac'\n"


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("about = ", "is no TOML"),
        ("about = 'x'\n", "lacks tasks"),
        (HEAD + "memory_gb = -1\n" + SAC, "memory_gb is -1.0; it takes a number above 0"),
        (HEAD + "seeds = true\n" + SAC, "seeds is True; it takes a number"),
        (HEAD + "pairs = [['a', 'a']]\n" + SAC, "pairs has a beside itself"),
        (HEAD + "name = '..'\n" + SAC, "a suite's name is that of a directory"),
        (GOOD.replace("agents.a", "agents.'..'"), "a name has letters"),
        (GOOD.replace("sac", "../x"), "there is no experiment '../x'"),
        (GOOD.replace("sac", "os.path"), "os.path is no experiment: it has no Args"),
        (GOOD.replace("steps = 100\n", ""), "agents.a has no steps on Hopper-v5"),
        (GOOD.replace("Hopper", "Hoper"), "on Hoper-v5: Unknown environment 'Hoper-v5'. Did you"),
        (GOOD.replace("sac", "sak"), "there is no experiment 'sak'"),
        (GOOD.replace("sac", "no.such"), "there is no experiment 'no.such'"),
        (GOOD + "flags = { agent.lrr = 1 }", "Unrecognized options: --agent.lrr"),
        (GOOD + "flags = { num-envs = 'x' }", "Error parsing --num-envs"),
        (GOOD + "flags = { threads = 2 }", "threads is no flag to set here"),
        (GOOD + "flags = { when_full = 'stop' }", "when_full is no flag to set here"),
        (GOOD + "script = 'sbx_ppo.py'", "takes one of experiment, script and published"),
        (GOOD + "flags = { agent = 'iql' }", "agent is no flag to set here: the sweep gives it"),
        (GOOD + "on = { Hopper-v5 = { agent = 'iql' } }", "agent is no flag to set here"),
        (GOOD + "on = { Hoper-v5 = {} }", "agents.a names Hoper-v5; there is no such task"),
        (GOOD + "steps = { Hoper-v5 = 9 }", "agents.a names Hoper-v5; there is no such task"),
        (GOOD + "on = { Hopper-v5 = 3 }", "agents.a: on.Hopper-v5 takes a table, not 3"),
        (GOOD + "on = { Hopper-v5 = { agent.lrr = 1 } }", "Unrecognized options: --agent.lrr"),
        (GOOD + "agent = 'td3'", "Unrecognized options: --agent"),
        (GOOD.replace("sac", "off_policy") + "agent = 'tde'", "Unknown agent 'tde'. Did you mean"),
        (HEAD + "[tasks.Hopper-v5]\n[agents.a]\nscript = 'none.py'", "there is no .*none.py"),
        (
            HEAD + "[tasks.Hopper-v5]\n[agents.a]\nscript = 'sbx_ppo.py'\nflags = { num-env = 1 }",
            "sbx_ppo.py has no --num-env; it has env, num-envs",
        ),
        (HEAD + "[tasks.Hopper-v5]\n[agents.a]\npublished = 'sac'", "at 100 steps"),
        (
            HEAD + "score = 'success'\n[tasks.Hopper-v5]\n[agents.a]\npublished = 'sac'",
            "agents.a: returns are published, and the suite scores success",
        ),
        (GOOD.replace("agents.a", "agents.'a/b'"), "a name has letters"),
        (HEAD + "sedes = 3\n" + SAC, "has no setting sedes; it has name, tasks"),
        (HEAD + "seeds = '3'\n" + SAC, "seeds is '3'"),
        (HEAD + "seeds = 0\n" + SAC, "seeds is 0; it takes at least 1"),
        (HEAD + "pairs = [['a', 'b']]\n" + SAC, "pairs names b; there is no such agent"),
        (HEAD + "adastop = { group = 0 }\n" + SAC, "AdaStop's group is 0"),
        (HEAD + "adastop = { size = 5 }\n" + SAC, "adastop has no setting size"),
        (GOOD.replace("v5]\n", "v5]\nrange = [3, 1]\n"), "has a range of"),
        (HEAD + "tasks = 3\n[agents.a]\nexperiment = 'sac'", "tasks takes a table"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, why: str, tmp_path: Path) -> None:
    args = run.Args(written(tmp_path, text), runs=tmp_path / "runs")
    with pytest.raises(ValueError, match=why) as said:
        run.main(args)
    assert "\n" not in str(said.value)
    assert not args.runs.exists()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"seeds": -1}, "--seeds is -1"),
        ({"jobs": -1}, "--jobs"),
        ({"seeds": 3, "stop": "adastop"}, "--seeds goes without --stop adastop"),
        ({"only": ("b",)}, "--only b: suite mine has no such task or agent"),
        ({"suite": "none"}, "There is no suite none: .*gym, .*or a path of a .toml"),
        ({"runs": Path(__file__)}, "test_suite.py is no directory that can be written to"),
        ({"engine": "ray", "address": "127.0.0.1:9"}, "no cluster of Ray lets this machine in"),
    ],
)
def test_a_sweep_of_nothing_is_refused(more: dict[str, Any], why: str, tmp_path: Path) -> None:
    told = {"suite": written(tmp_path, GOOD), "runs": tmp_path / "runs", **more}
    with pytest.raises(ValueError, match=why):
        run.main(run.Args(**told))


def test_inline_makes_one_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: dict[str, Any] = {"jobs": 4, "dry_run": True, "runs": tmp_path / "runs"}
    run.main(run.Args(written(tmp_path, GOOD), "inline", **told))
    assert "5 to make, 1 at a time" in capsys.readouterr().out


def test_a_run_that_failed_tells_nothing_of_the_speed(tmp_path: Path) -> None:
    read = suite.read(written(tmp_path, GOOD))
    unit = plan.units(read, {("Hopper-v5", "a"): [0]}, tmp_path)[0]
    unit.out.mkdir(parents=True)
    (unit.out / "manifest.json").write_text('{"train_s": 2.0}')
    assert Rates(read, [unit], 0.0).of(unit.arm) == 50  # of 100 steps
    rates = Rates(read, [], 0.0)
    Watch(read, rates, 1, []).show(Progress(failed={unit: "diverged"}))
    assert rates.of(unit.arm) == 0


def test_what_is_left_takes_as_long_as_who_ends_last(tmp_path: Path) -> None:
    read = suite.read(written(tmp_path, GOOD + "steps_per_s = 10\n"))
    units = plan.units(read, {("Hopper-v5", "a"): range(3)}, tmp_path)
    rates = Rates(read, [], 2.0)  # s to begin, and 10 of each run
    assert rates.left(Progress(deque(units)), 2) == (24.0, True)
    units[0].out.mkdir(parents=True)
    (units[0].out / "metrics.jsonl").write_text('{"step": 50}\n')
    assert rates.left(Progress(deque(units[1:]), {units[0]: None}), 2) == (17.0, True)
    assert rates.left(Progress(), 2) == (0.0, True)


@pytest.mark.parametrize("name", suite.names())
def test_suites_that_come_with_the_code_are_whole(name: str) -> None:
    found = suite.read(name)
    assert {"smoke", "gym", "quadruped"} <= {*suite.names()}
    wanted = run.arms(found, run.Args(name))
    units = plan.units(found, wanted, Path("nowhere"))
    assert sum(len(unit.seeds) for unit in units) == len(wanted) * found.seeds
    identities = {(unit.task, unit.agent): unit.identity for unit in units}
    assert len(set(identities.values())) == len(identities)


def test_ten_seeds_of_every_task_are_published() -> None:
    known = json.loads(suite.PUBLISHED.read_text())
    tasks = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5")
    for agent in ("sac", "crossq", "simbav2"):
        for steps in ("200000", "1000000"):
            counts = {task: len(returns) for task, returns in known[agent][steps].items()}
            assert counts == dict.fromkeys(tasks, 10)


def test_flags_say_the_same_nested_and_dotted(tmp_path: Path) -> None:
    def words(flags: str) -> tuple[str, ...]:
        read = suite.read(written(tmp_path, GOOD + f"flags = {{ {flags} }}"))
        return suite.resolve(read, "a", "Hopper-v5")[1]

    nested = words("agent = { lr = 1e-3, hidden = [8, 8], normalise = true }, n_step = 3")
    dotted = '"agent.lr" = 1e-3, agent.hidden = [8, 8], agent.normalise = true, n-step = 3'
    assert nested == words(dotted)
    own = "--agent.lr 0.001 --agent.hidden 8 8 --agent.normalise --n-step 3"
    assert " ".join(nested) == f"--env Hopper-v5 {own} --steps 100"
    assert "--agent.no-normalise" in words("agent.normalise = false")


def test_an_agent_that_any_loop_takes_is_named_by_its_file(tmp_path: Path) -> None:
    text = GOOD.replace("sac", "off_policy") + "agent = 'td3'\nflags = { agent.tau = 0.1 }"
    named = suite.resolve(suite.read(written(tmp_path, text)), "a", "Hopper-v5")
    own = GOOD.replace("sac", "td3") + "flags = { agent.tau = 0.1, learning-starts = 10_000 }"
    assert named[2] == suite.resolve(suite.read(written(tmp_path, own)), "a", "Hopper-v5")[2]


def test_steps_are_the_agents_or_the_tasks_or_the_suites(tmp_path: Path) -> None:
    text = "steps = 100\n[tasks.Hopper-v5]\nsteps = 300\n[tasks.Ant-v5]\n"
    read = suite.read(written(tmp_path, text + '[agents.a]\nexperiment = "sac"\n'
                              '[agents.b]\nexperiment = "sac"\nsteps = 200\n[agents.c]\n'
                              'experiment = "sac"\nsteps = { Ant-v5 = 400 }'))  # fmt: skip
    steps = {
        (task, name): suite.steps_of(read, agent, task)
        for task in read.tasks for name, agent in read.agents.items()
    }  # fmt: skip
    assert steps == {("Hopper-v5", "a"): 300, ("Hopper-v5", "b"): 200,
                     ("Ant-v5", "a"): 100, ("Ant-v5", "b"): 200,
                     ("Hopper-v5", "c"): 300, ("Ant-v5", "c"): 400}  # fmt: skip
    assert "--steps 300" in " ".join(suite.resolve(read, "a", "Hopper-v5")[1])


def returns(counts: dict[str, int], **means: float) -> dict[tuple[str, str], list[float]]:
    rng = np.random.default_rng(0)
    return {("t", name): list(rng.normal(means[name], 1, n)) for name, n in counts.items()}


def test_nobody_begins_a_group_before_the_others_have_ended_theirs() -> None:
    agents = {name: Agent(experiment="sac") for name in "abc"}
    of = Suite("s", {"t": Task()}, agents, seeds=7, adastop=AdaStop(3, 4), pairs=(("a", "b"),))

    def wanted(**counts: int) -> dict[str, int]:
        found = stop.wanted(of, returns(counts, a=0, b=0, c=0))
        return {agent: len(seeds) for (_, agent), seeds in found.items()}

    assert wanted() == {"a": 3, "b": 3, "c": 7}  # c is compared with nobody
    assert wanted(a=3, b=2) == {"a": 3, "b": 3, "c": 7}
    assert wanted(a=3, b=3) == {"a": 6, "b": 6, "c": 7}
    assert wanted(a=12, b=12) == {"a": 12, "b": 12, "c": 7}


def test_who_is_told_apart_needs_no_more() -> None:
    agents = {name: Agent(experiment="sac") for name in "abc"}
    of = Suite("s", {"t": Task()}, agents, adastop=AdaStop(5, 4))
    known = returns(dict.fromkeys("abc", 5), a=0, b=0, c=20)
    found = stop.wanted(of, known)
    assert {agent: len(seeds) for (_, agent), seeds in found.items()} == {"a": 10, "b": 10, "c": 5}
    scores = {name: own for (_, name), own in known.items()}
    said = stop.verdicts(AdaStop(5, 4), scores, [("a", "c"), ("c", "b"), ("a", "b")], 1)
    assert said == {("a", "c"): ("smaller", 5), ("c", "b"): ("larger", 5), ("a", "b"): ("open", 5)}


def test_runs_whose_demonstrations_are_not_there_are_not_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demos, where = tmp_path / "picks.npz", tmp_path / "runs"
    flags = f"{{ demos = '{demos}', learning-starts = 1 }}"
    name = written(
        tmp_path,
        f"{HEAD}[tasks.panda-pick-cube]\n[agents.a]\nexperiment = 'sac'\nflags = {flags}\n",
    )
    with pytest.raises(ValueError, match=rf"read what is not there: {demos}\. Make it first"):
        run.main(run.Args(name, runs=where))
    assert not where.exists()
    run.main(run.Args(name, runs=where, dry_run=True))
    assert f"to be made before, as its runs read it: {demos}" in capsys.readouterr().out
    demos.touch()
    run.main(run.Args(name, runs=where, dry_run=True))
    assert str(demos) not in capsys.readouterr().out


def test_a_flag_may_name_its_task(tmp_path: Path) -> None:
    text = HEAD + SAC.replace("sac'", "offline'\nagent = 'iql'\nflags = { data = 'd/{task}.npz' }")
    words = suite.resolve(suite.read(written(tmp_path, text)), "a", "Hopper-v5")[1]
    assert words[words.index("--data") + 1] == "d/Hopper-v5.npz"


def test_an_agent_may_have_flags_on_one_task(tmp_path: Path) -> None:
    own = "flags = { num-envs = 1 }\non.Hopper-v5 = { num-envs = 2 }"
    text = GOOD.replace("[agents", "[tasks.Ant-v5]\n[agents") + own
    found = suite.read(written(tmp_path, text))
    for task, count in ("Hopper-v5", "2"), ("Ant-v5", "1"):
        words = suite.resolve(found, "a", task)[1]
        assert words[words.index("--num-envs") + 1] == count
