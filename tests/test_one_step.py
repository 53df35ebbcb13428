"""A student of a planner: its loss by hand, both ways of its teacher, and a run of it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.bc import BC
from agents.diffusion_bc import DiffusionBC
from agents.flow_bc import FlowBC
from agents.one_step import OneStep, State
from benchmarks import latency, rows
from experiments import cli, distill, offline, play
from rl import record, runs
from rl.chunks import Chunks, unit
from rl.data import npz
from rl.denoisers import Dense, waves
from rl.diffusion import Diffusion
from rl.types import Transition
from tests.test_offline import NAME, balancing

KEY, B, A, SIZE = jax.random.key(0), 64, 2, 3
PLANS, NET = Chunks(history=2, horizon=3, execute=2), Dense((32, 32))
TEACHER = FlowBC(chunks=PLANS, net=NET)
STUDENT = OneStep(base=TEACHER, net=NET, average=0.9)
WAYS, NARROW = np.array([-0.7, 0.7]), 0.05


@dataclass(frozen=True)
class TwoWays(FlowBC):
    """The flow of two narrow Gaussians, which nothing need learn."""

    def field(
        self, params: Any, x: jax.Array, seen: Any, time: jax.Array, size: Any = None
    ) -> jax.Array:
        t = time[:, None, None]
        spread = (1 - t) ** 2 + (t * NARROW) ** 2
        off = x[None] - t * WAYS[:, None, None, None]
        weight = jax.nn.softmax(-0.5 * (off**2 / spread).sum((2, 3)), axis=0)
        data = WAYS[:, None, None, None] + t * NARROW**2 / spread * off
        return ((weight[..., None, None] * data).sum(0) - x) / (1 - t)


def steps(key: jax.Array, length: int) -> Transition:
    """Windows [1, B, length, ...] of anything."""
    obs_key, action_key = jax.random.split(key)
    obs = jax.random.normal(obs_key, (1, B, length, SIZE))
    action = 0.4 * jax.random.normal(action_key, (1, B, length, A))
    none = jnp.zeros((1, B, length))
    return Transition(obs, action, none, none > 0, none > 0, obs)


def begun(agent: OneStep) -> State:
    """A student whose teacher has seen what there is to see."""

    def begin(seen: Transition) -> State:
        state = agent.init(KEY, jnp.zeros(SIZE), jnp.zeros(A))
        theirs = agent.base.init(jax.random.key(1), jnp.zeros(SIZE), jnp.zeros(A))
        return state._replace(base=agent.base.deploy(agent.base.observe(theirs, seen)))

    return jax.jit(begin)(jax.tree.map(lambda x: x[0], steps(KEY, 4)))


def passed(params: Any, x: np.ndarray, time: float, seen: np.ndarray) -> np.ndarray:
    """`Plain` in float64: dense layers with GELU by tanh."""
    told = np.asarray(waves(jnp.array([time])), np.float64)
    y = np.concatenate([x.reshape(B, -1), seen.reshape(B, -1), np.repeat(told, B, 0)], 1)
    layers = [params["params"][f"Dense_{i}"] for i in range(3)]
    for i, layer in enumerate(layers):
        y = y @ np.asarray(layer["kernel"], np.float64) + np.asarray(layer["bias"], np.float64)
        if i < 2:
            y = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
    return y.reshape(x.shape)


def test_an_update_learns_the_teachers_plan_of_the_same_noise() -> None:
    state, batch = begun(STUDENT), steps(jax.random.key(2), 4)
    new, metrics = jax.jit(STUDENT.update)(state, batch, KEY)
    scales = jax.tree.map(lambda x: np.asarray(x, np.float64), state.base["scales"])
    seen_key, noise_key, _ = jax.random.split(KEY, 3)
    noise = np.asarray(jax.random.normal(noise_key, (B, 3, A)), np.float64)
    obs = np.asarray(batch.obs[0, :, :2], np.float64)
    seen = (obs - scales.obs.mean) / np.sqrt(scales.obs.var)
    seen = seen + 0.3 * np.asarray(jax.random.normal(seen_key, (B, 2, SIZE)), np.float64)
    plan = noise
    for i in range(10):
        plan = plan + passed(state.base["net"], plan, i / 10, seen) / 10
    std = np.sqrt(scales.action.var)
    plan = np.clip(plan, (-1 - scales.action.mean) / std, (1 - scales.action.mean) / std)
    loss = ((passed(state.net.params, noise, 0.0, seen) - plan) ** 2).mean()
    np.testing.assert_allclose(metrics["distill_loss"], loss, rtol=1e-4)
    slow = jax.tree.map(lambda x, y: 0.9 * x + 0.1 * y, state.slow, new.net.params)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), new.slow, slow)


def test_a_teacher_stays_and_does_not_go_to_the_robot() -> None:
    state = begun(STUDENT)
    new, _ = jax.jit(STUDENT.update)(state, steps(KEY, 4), KEY)
    new = STUDENT.observe(new, steps(jax.random.key(5), 4))
    jax.tree.map(np.testing.assert_array_equal, new.base, state.base)
    params = STUDENT.deploy(new)
    assert [*params] == ["net", "scales"]
    jax.tree.map(np.testing.assert_array_equal, params["scales"], state.base["scales"])


def test_both_ways_are_kept_each_of_its_own_noise() -> None:
    agent = OneStep(TwoWays(chunks=PLANS, net=NET), Dense((64, 64)), lr=2e-3, average=0.99)

    def step(state: State, key: jax.Array) -> tuple[State, Any]:
        return agent.update(state, steps(key, 4), key)

    state, _ = jax.jit(lambda state, keys: jax.lax.scan(step, state, keys))(
        begun(agent), jax.random.split(KEY, 2_000)
    )
    keys = jax.random.split(jax.random.key(3), 500)

    def planned(policy: Any, params: Any) -> np.ndarray:
        carry = policy.init(params)
        plan = lambda key: policy.step(params, carry, jnp.zeros(SIZE), key)[1].chunk  # noqa: E731
        mean, std = unit(state.base["scales"].action)
        return np.asarray((jax.jit(jax.vmap(plan))(keys) - mean) / std)

    mine = planned(agent.policy(False, A), agent.deploy(state))
    theirs = planned(agent.base.policy(False, A), state.base)
    way, wanted = mine.mean((1, 2)) > 0, theirs.mean((1, 2)) > 0
    apart = np.abs(mine - theirs).mean((1, 2))
    print(
        way.mean(),
        wanted.mean(),
        np.mean(way == wanted),
        np.quantile(apart, [0.5, 0.9, 1]),
        np.mean(np.abs(np.abs(mine) - 0.7).max((1, 2)) < 0.3),
    )
    assert 0.4 < way.mean() < 0.6
    assert np.mean(way == wanted) > 0.95
    assert np.median(apart) < 0.1
    assert np.mean(np.abs(np.abs(mine) - 0.7).max((1, 2)) < 0.3) > 0.8  # few are between


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: OneStep(BC()), "learns from a flow or a diffusion, and BC is neither"),
        (lambda: OneStep(STUDENT), "and OneStep is neither"),
        (lambda: OneStep(spread=-1.0), "OneStep's spread is -1.0; it takes a number of at"),
        (lambda: OneStep(average=1.0), "OneStep's average is 1.0; it takes a share"),
        (lambda: offline.check_agent(OneStep()), "OneStep cannot learn from data; awac, .* can"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()


def test_a_diffusion_teaches_by_ddim_whatever_noise_it_acts_with() -> None:
    """Its plan of the same noise is then the same, whatever key it is drawn by."""
    sure, shaky = (
        OneStep(DiffusionBC(PLANS, NET, Diffusion(steps=4, eta=eta)), NET) for eta in (0.0, 1.0)
    )
    losses = [
        jax.jit(agent.update)(begun(sure), steps(KEY, 4), KEY)[1]["distill_loss"]
        for agent in (sure, shaky)
    ]
    assert np.isfinite(losses[0])
    assert losses[0] == losses[1]
    noise, bounds = jax.random.normal(KEY, (B, 4, A)), (-jnp.ones(A), jnp.ones(A))
    state = begun(sure)
    seen = jnp.zeros_like(shaky.chunks.begin(state.base["scales"])[0])[None].repeat(B, 0)
    noise = noise[:, : PLANS.horizon]

    def drawn(agent: Any, key: jax.Array) -> jax.Array:
        return agent.draw(state.base, noise, seen, key, bounds)

    keys = jax.random.split(KEY)
    one, other = (drawn(shaky.base.settled(), key) for key in keys)
    np.testing.assert_array_equal(one, other)
    assert np.abs(drawn(shaky.base, keys[0]) - drawn(shaky.base, keys[1])).max() > 0.01


def run_of_a_flow(out: Path) -> Path:
    """A run that has learned nothing."""
    words = ["--agent", "flow_bc", "--env", NAME, "agent.net:dense", "--agent.net.hidden", "16"]
    args = cli.parse(offline.Args, words)
    facts = {"algorithm": "flowbc", "env": NAME, "config": args, "seeds": [0]}
    state = args.agent.init(KEY, jnp.zeros(4), jnp.zeros(1))
    with record.Record(out, 1, **facts) as log:
        log.save(1, jax.tree.map(lambda x: x[None], args.agent.deploy(state)))
    return out


@pytest.mark.long
def test_a_run_is_taught_by_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distill, "CALLS", 5)
    data = balancing(tmp_path / "data.npz", episodes=6)
    teacher, out = run_of_a_flow(tmp_path / "flow"), tmp_path / "student"
    quick = ["--base", str(teacher), "--data", str(data), "--steps", "40", "--batch-size", "16",
             "--eval-episodes", "2", "--no-video", "--evals", "0", "--threads", "1"]  # fmt: skip
    words = [*quick, "--out", str(out), "agent.net:dense", "--agent.net.hidden", "16"]
    distill.main(cli.parse(distill.Args, words))
    said, found = capsys.readouterr().out.splitlines()[-1], runs.read_manifest(out)
    assert re.fullmatch(
        r"teacher return [\d.]+, [\d.]+ ms a plan; student return [\d.]+, [\d.]+ ms a plan", said
    )
    assert found["base"]["run"] == str(teacher)
    told = found["distilled"]
    assert told["student"]["return"] == np.mean(found["eval_returns"])
    assert all(x["return"] > 0 and x["plan_ms"] > 0 for x in told.values())
    _, _, params = play.load_all(out)
    assert [*params[0]] == ["net", "scales"]
    with pytest.raises(ValueError, match="There is nothing to build upon: name a run"):
        distill.main(cli.parse(distill.Args, ["--env", NAME, *quick[2:]]))
    with pytest.raises(ValueError, match="does not fit this task: another observation"):
        distill.main(cli.parse(distill.Args, [*quick, "--env", "Hopper-v5"]))
    made = npz.read(data)
    other = tmp_path / "other.npz"
    npz.write(other, made._replace(facts=made.facts | {"task": "Hopper-v5"}))
    with pytest.raises(ValueError, match="was made of another task"):
        distill.main(cli.parse(distill.Args, [*quick, "--data", str(other)]))


def test_latency_leaves_a_row_of_each_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency, "CASES", {"one-step/1": latency.Case(STUDENT, True)})
    results, picture = tmp_path / "rows.jsonl", tmp_path / "latency.png"
    latency.main(latency.Args(calls=3, results=results, picture=picture))
    found = rows.read(results)
    assert [*found] == ["latency/one-step/1", "latency/one-step/1/artefact"]
    assert all(0 < x["p50"] <= x["p90"] <= x["p99"] for x in found.values())
    assert picture.exists()
