"""Episodes without actions: what can be done with them, and what inverse dynamics makes of them."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tyro

from experiments import cli, label, offline, prior
from rl.data import __main__ as data_cli
from rl.data import dataset, faults, formats, inverse, minari, npz
from rl.data.dataset import Dataset
from rl.data.inverse import InverseDynamics
from rl.data.join import joined
from rl.types import Transition

B = np.array([[0.1, 0.0, 0.05, -0.1], [0.0, 0.2, 0.05, 0.1]])  # what an action changes
MODEL = InverseDynamics((64, 64), 0.1, 3e-3)  # one, that it is compiled once
SMALL: dict[str, Any] = {"batch_size": 128, **vars(MODEL), "steps": 500}
LENGTH = 15  # of an episode


def drifting(seed: int, episodes: int) -> Dataset:
    """Chance acts where o' = o + a B: only the next observation tells what was done."""
    rng = np.random.default_rng(seed)
    action = rng.uniform(-1, 1, (episodes, LENGTH, 2)).astype("f4")
    begin = rng.normal(size=(episodes, 1, 4))
    path = np.concatenate([begin, action @ B], 1).cumsum(1).astype("f4")
    obs, count = path[:, :-1].reshape(-1, 4), episodes * LENGTH
    cut = np.arange(count) % LENGTH == LENGTH - 1
    steps = {"obs": obs, "action": action.reshape(-1, 2), "reward": obs[:, 0].copy(),
             "terminated": cut & ~cut, "truncated": cut, "mask": cut | ~cut}  # fmt: skip
    made = {"length": np.full(episodes, LENGTH), "last_obs": path[:, -1]}
    return Dataset(steps, made, {"control_dt": 0.1, "action_low": [-2, -2], "action_high": [2, 2]})


def without(data: Dataset) -> Dataset:
    steps = {name: x for name, x in data.steps.items() if name != "action"}
    facts = {name: x for name, x in data.facts.items() if not name.startswith("action_")}
    return Dataset(steps, data.episodes, facts | {"action": "none"})


def in_parts(data: Dataset) -> Dataset:
    """The same, seen by a policy as a part of it, beside what only critics see."""
    parts: list[dict[str, np.ndarray]] = []
    for arrays, own in ((data.steps, "obs"), (data.episodes, "last_obs")):
        rest = {name: x for name, x in arrays.items() if name != own}
        seen = {f"{own}/policy": arrays[own], f"{own}/critic": np.sin(99 * arrays[own])}
        parts.append(rest | seen)
    return Dataset(*parts, data.facts)


def explained(found: np.ndarray, action: np.ndarray) -> float:
    return float(1 - ((found - action) ** 2).mean() / action.var(0).mean())


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a small set with actions, a larger one, and that one without them."""
    folder = tmp_path_factory.mktemp("sets")
    npz.write(folder / "small.npz", drifting(0, 40))
    npz.write(folder / "true.npz", drifting(1, 60))
    npz.write(folder / "big.npz", without(drifting(1, 60)))
    return folder


def run(folder: Path, out: Path, **other: Any) -> Dataset:
    given = {"labelled": folder / "small.npz", "unlabelled": folder / "big.npz", "out": out}
    label.main(label.Args(**(given | SMALL | other)))
    return npz.read(out)


def test_labels_are_what_was_done(
    sets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, true = run(sets, tmp_path / "labelled.npz"), npz.read(sets / "true.npz")
    out, err = capsys.readouterr()
    assert explained(made.steps["action"], true.steps["action"]) > 0.95
    ends = np.cumsum(true.episodes["length"]) - 1
    for rows in (true.starts, ends):  # without a past, and with the observation after the last
        assert explained(made.steps["action"][rows], true.steps["action"][rows]) > 0.95
    assert made.steps.keys() == true.steps.keys()
    for name in true.steps.keys() - {"action"}:
        np.testing.assert_array_equal(made.steps[name], true.steps[name])
    told = made.facts["labels"]
    assert told["labelled_sha256"] == npz.read(sets / "small.npz").sha256
    assert told["unlabelled_sha256"] == npz.read(sets / "big.npz").sha256
    with pytest.raises(ValueError, match="is there already"):
        run(sets, tmp_path / "labelled.npz")
    assert (made.facts["action"], made.facts["action_high"]) == ("inverse dynamics", [2, 2])
    assert told["held_out_r2"] > 0.95
    assert 0 < told["held_out_mse"] < 0.05 / 3  # uniform actions vary by a third
    assert f"{told['held_out_mse']:.4g}, R^2 {told['held_out_r2']:.3f}" in out
    assert "update   500 of 500" in out
    assert "warning" not in err
    both = joined({"small": npz.read(sets / "small.npz"), "labelled": made})
    dataset.check("both", both)
    assert both.facts["parts"][1]["action"] == "inverse dynamics"
    assert [path.name for path in tmp_path.iterdir()] == ["labelled.npz"]


def test_without_the_next_observation_nothing_is_learned(sets: Path) -> None:
    args, held = label.Args(sets, sets, sets, **SMALL), npz.read(sets / "true.npz")
    known = label.known(drifting(0, 36))
    order = np.random.default_rng(0).permutation(len(known.action))
    mixed = known._replace(seen=known.seen._replace(next_obs=known.seen.next_obs[order]))
    sound, blind = (label.learn(args, MODEL, data, held) for data in (known, mixed))
    assert label.worth(MODEL, sound, held).r2 > 0.95
    assert label.worth(MODEL, blind, held).r2 < 0.1


@pytest.mark.parametrize("parts", [False, True])
def test_what_is_seen_around_a_step_is_of_its_episode(parts: bool) -> None:
    obs = np.arange(5, dtype=np.float32)[:, None]
    last = np.array([[12], [15]], np.float32)
    steps, episodes = {"obs": obs, "reward": obs[:, 0]}, {"length": np.array([2, 3])}
    data = Dataset(steps, episodes | {"last_obs": last}, {})
    seen = inverse.around(in_parts(data) if parts else data, np.array([4, 0, 1, 2, 3]))
    np.testing.assert_array_equal(seen.past[:, 0], [3, 0, 0, 0, 2])
    np.testing.assert_array_equal(seen.first, [False, True, False, True, False])
    np.testing.assert_array_equal(seen.obs[:, 0], [4, 0, 1, 2, 3])
    np.testing.assert_array_equal(seen.next_obs[:, 0], [15, 1, 12, 3, 4])


def test_a_first_step_has_no_past_and_predictions_are_actions() -> None:
    seen, action = label.known(drifting(0, 36))
    state = MODEL.init(jax.random.key(0), jax.tree.map(lambda x: x[0], seen), action[0])
    state = MODEL.observe(state, seen)
    predict = jax.jit(lambda seen: MODEL.predict(state, seen, 2))
    found, other = predict(seen), predict(seen._replace(past=seen.past + 3))
    np.testing.assert_array_equal(np.abs(found - other).max(1) == 0, seen.first)
    assert np.abs(predict(seen._replace(next_obs=-1e6 * seen.obs))).max() <= 1


def test_the_same_command_makes_the_same_file(sets: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        run(sets, tmp_path / f"{name}.npz", seed=seed)
    a, b, c = ((tmp_path / f"{name}.npz").read_bytes() for name in "abc")
    assert a == b != c
    npz.write(tmp_path / "small.npz", in_parts(drifting(0, 40)))
    npz.write(tmp_path / "big.npz", in_parts(without(drifting(1, 60))))
    made = run(tmp_path, tmp_path / "parts.npz", seed=3)
    plain = npz.read(tmp_path / "a.npz")
    np.testing.assert_array_equal(made.steps["action"], plain.steps["action"])


def test_it_warns_of_labels_that_are_worth_little(
    sets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = ACT(f=lambda x: 0.55 * x + 0.45 * shuffled(x))(npz.read(sets / "small.npz"))
    npz.write(tmp_path / "half.npz", half)
    made = run(sets, tmp_path / "out.npz", labelled=tmp_path / "half.npz")
    assert 0 < made.facts["labels"]["held_out_r2"] < 0.5
    assert capsys.readouterr().err.startswith("warning: R^2 on held-out episodes is ")


shuffled = np.random.default_rng(5).permutation


def changed(name: str, f: Any) -> Any:
    return lambda data: data._replace(steps=data.steps | {name: f(data.steps[name])})


def with_facts(data: Dataset, **facts: Any) -> Dataset:
    return data._replace(facts=data.facts | facts)


def narrow(data: Dataset) -> Dataset:
    cut = {"obs": data.steps["obs"][:, :3]}, {"last_obs": data.episodes["last_obs"][:, :3]}
    return data._replace(steps=data.steps | cut[0], episodes=data.episodes | cut[1])


ACT, SEE = partial(changed, "action"), partial(changed, "obs")
TASK = partial(with_facts, task="reach", env={"size": 1.0})
REFUSED: dict[str, tuple[Any, Any, dict[str, Any]]] = {  # of the small set, the big one, the flags
    r"different tasks: task = 'reach', not 'lift'": (TASK, partial(with_facts, task="lift"), {}),
    r"different tasks: env.size = 1.0, not 2": (TASK, partial(with_facts, env={"size": 2}), {}),
    r"different tasks: a policy sees obs\[4\], and obs\[3\]": (None, narrow, {}),
    "big.npz has actions: --unlabelled takes": (None, lambda _: drifting(1, 3), {}),
    "small.npz has no actions: --labelled takes": (without, None, {}),
    "has one episode, and two are needed": (lambda d: d.chosen(np.array([2])), None, {}),
    "worse than the same action everywhere": (ACT(f=shuffled), None, {}),
    "--held-out is 1": (None, None, {"held_out": 1.0}),
    "--steps is 0": (None, None, {"steps": 0}),
    "dropout is 1": (None, None, {"dropout": 1.0}),
    "ends in .npz": (None, None, {"out": Path("out-v0")}),
    "is no finite number: lower --lr": (SEE(f=lambda x: 1e38 * np.sign(x)), None, {}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_labelled_is_refused(why: str, tmp_path: Path) -> None:
    small, big, flags = REFUSED[why]
    npz.write(tmp_path / "small.npz", (small or (lambda d: d))(drifting(0, 40)))
    npz.write(tmp_path / "big.npz", (big or (lambda d: d))(without(drifting(1, 60))))
    with pytest.raises(ValueError, match=why):
        run(tmp_path, **({"out": tmp_path / "out.npz"} | flags))
    assert {path.name for path in tmp_path.iterdir()} == {"small.npz", "big.npz"}


def test_who_needs_actions_says_where_they_come_from(sets: Path, tmp_path: Path) -> None:
    big, mend = npz.read(sets / "big.npz"), r"has no action.*python -m experiments\.label"
    words = ["--env", "InvertedPendulum-v5", "--agent", "bc", "--data", str(sets / "big.npz")]
    with pytest.raises(ValueError, match=mend):
        offline.main(cli.parse(offline.Args, [*words, "--out", str(tmp_path / "run")]))
    obs, off = jnp.zeros(4), jnp.bool(False)
    like = Transition(obs, jnp.zeros(2), jnp.float32(0), off, off, obs)
    with pytest.raises(ValueError, match=mend):
        prior.shaped(Path("big.npz"), big, like)
    with pytest.raises(ValueError, match=r"would have no actions.*experiments\.label"):
        minari.write(tmp_path / "it-v0", big)
    small = npz.read(sets / "small.npz")
    big = with_facts(big, **{name: small.facts[name] for name in label.LIMITS})
    for named in ({"small": small, "big": big}, {"big": big, "small": small}):
        with pytest.raises(ValueError, match=r"^big has no actions, and small.*experiments\.label"):
            joined(named)
    assert list(tmp_path.iterdir()) == []


def test_a_set_is_without_actions_only_if_it_says_so(sets: Path) -> None:
    big = npz.read(sets / "big.npz")
    with pytest.raises(ValueError, match="has no action, and its facts do not say"):
        dataset.check("it", big._replace(facts={}))
    with pytest.raises(ValueError, match="has an action, and its facts deny it"):
        dataset.check("it", with_facts(npz.read(sets / "true.npz"), action="none"))


def test_convert_leaves_actions_out_and_all_else_alone(
    sets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["convert", str(sets / "true.npz"), str(tmp_path / "it.npz"), "--no-actions"]
    data_cli.convert(args := tyro.cli(data_cli.Args, args=words))
    true, found = npz.read(sets / "true.npz"), formats.read(tmp_path / "it.npz")
    assert found.sha256 == without(true).sha256
    assert found.facts["action_high"] == [2, 2]
    data_cli.convert(replace(args, out=tmp_path / "kept.npz", actions=True))
    assert npz.read(tmp_path / "kept.npz").sha256 == true.sha256
    data_cli.info(data_cli.Info(path=tmp_path / "it.npz"))
    assert "action     none: python -m experiments.label" in capsys.readouterr().out
    data_cli.plot(data_cli.Plot(path=tmp_path / "it.npz", out=tmp_path / "it.png"))
    assert (tmp_path / "it.png").stat().st_size > 20_000
    twice = joined({"one": found, "two": found.chosen(np.arange(2))})
    dataset.check("both", twice)
    assert any("episodes are there twice" in sentence for sentence in faults.found(twice))
