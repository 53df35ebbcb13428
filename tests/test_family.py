"""Policies over a family of contexts: it is fixed, and the nominal one is what it always was."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import envs
from agents.ppo import PPO
from benchmarks import family
from benchmarks.contexts import SPLITS, Context, Family, read
from envs.disturb import Disturbance
from envs.simulation import Simulation
from envs.variant import Variant, vary
from experiments import play
from rl.policy import Policy
from rl.types import Params

POLICIES = Path(__file__).parent.parent / "benchmarks" / "policies"
SHIPPED = {  # a family that changes is another one: give it a higher version
    "gym-v1": "1f13e4784f6eda3edd06a2060b00425a32112b9b815d06c376b5944d20206382",
    "quadruped-v1": "efc57d260aa77a378ceb6395503b636d69a08a736cbc9a0f56b9eb3e343b8b21",
}
SMALL = """
name = "small"
version = 2
about = "Three contexts."
interpolation = [{ mass = 1.1 }]
extrapolation = [{ gain = 0.5, action_delay = 1 }]
"""


def novice(env: Simulation) -> tuple[Policy, Params]:
    """A policy that has learned nothing, and does something."""
    agent, obs = PPO(), env.reset(jax.random.key(0)).obs
    state = agent.init(jax.random.key(1), obs, jnp.zeros(env.action_dim))
    return agent.policy(explore=False, action_dim=env.action_dim), agent.deploy(state)


def of(*variants: Variant) -> Family:
    """A family of these."""
    return Family("some-v1", "", tuple(Context("extrapolation", v) for v in variants))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_family_that_was_published_stays_as_it_is(name: str) -> None:
    found = read(name)
    assert found.hash == SHIPPED[name]
    assert len(found.contexts) == 50  # a tenth is a whole number of them
    assert found.contexts[0] == Context("nominal", Variant())
    near, far = ([c.variant for c in found.contexts if c.split == split] for split in SPLITS)
    low, high = np.min(near, 0), np.max(near, 0)
    assert all(((np.array(v) < low) | (np.array(v) > high)).any() for v in far)
    assert high[3:].max() == 0
    assert found.most == (2, 2)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("mass = 1.1", "mas = 1.1", r"small-v2\.toml: context 1 of interpolation has no mas; it"),
        ("mass = 1.1", "mass = 0.0", r"small-v2\.toml: context 1 of interpolation: mass is 0\.0;"),
        ("mass = 1.1", "mass = inf", "mass is inf; a factor is a finite number above 0"),
        ("mass = 1.1", "mass = true", "mass is True; a factor"),
        ("mass = 1.1", "mass = 1", "context 1 of interpolation is there already: nominal"),
        ("{ mass = 1.1 }", "3", "context 1 of interpolation is 3; it takes a table"),
        ("_delay = 1", "_delay = -1", "extrapolation: action_delay is -1; a delay is a whole"),
        ("_delay = 1", "_delay = 0.5", r"action_delay is 0\.5; a delay is a whole number"),
        ("[{ mass = 1.1 }]", "[]", "interpolation is .*; it takes a list, and none empty"),
        ('about = "Three', 'abuot = "Three', r"small-v2\.toml has no setting abuot; it has name"),
        ("version = 2", "version = 3", "tells of small-v3: name and version are those of the"),
        ("version = 2", 'version = "2"', "version is '2'; it takes a int"),
        ("version = 2", "version = ", r"small-v2\.toml is no TOML"),
    ],
)
def test_a_bad_family_is_refused(old: str, new: str, why: str, tmp_path: Path) -> None:
    assert old in SMALL
    path = tmp_path / "small-v2.toml"
    path.write_text(SMALL.replace(old, new))
    with pytest.raises(ValueError, match=why):
        read(str(path))


def test_an_unknown_family_and_a_delay_longer_than_an_episode_are_refused() -> None:
    with pytest.raises(ValueError, match="There is no family gym: gym-v1, quadruped-v1, or"):
        read("gym")
    env = envs.make("InvertedPendulum-v5", "native", max_episode_steps=3)
    with pytest.raises(ValueError, match=r"delays of \(3, 0\) steps, an episode 3"):
        family.judged(env, None, [], of(Variant(action_delay=3)), 1)


NOISY = Disturbance(noise={"qvel": 0.1}, target_delay=(0, 1))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "steps", "own"),
    [("Hopper-v5", 60, NOISY), ("dmc-cartpole-swingup", 50, Disturbance())],
)
def test_the_nominal_context_is_the_ordinary_evaluation(
    name: str, steps: int, own: Disturbance
) -> None:
    env = envs.make(name, "native", max_episode_steps=steps, disturbance=own)
    policy, params = novice(env)
    variants = Variant(gain=0.7), Variant(), Variant(2.0, 1.5, 0.5, 2, 1)
    found = family.judged(env, policy, [params], of(*variants), 4).returns[0]
    np.testing.assert_array_equal(found[1], play.judge(env, policy, params, 4))
    assert np.ptp(found, axis=0).min() > 0


@pytest.mark.slow
def test_a_robot_that_differs_by_itself_is_the_same_when_nothing_is_added() -> None:
    env, policy, params = play.load(POLICIES / "go2-joystick-flat")
    env = envs.simulate(env.task, "native", max_episode_steps=30)
    found = family.judged(env, policy, [params], of(Variant(), Variant(action_delay=1)), 3)
    np.testing.assert_array_equal(found.returns[0, 0], play.judge(env, policy, params, 3))
    assert (found.returns[0, 0] != found.returns[0, 1]).all()


def test_a_context_is_the_same_alone_and_among_others() -> None:
    env = envs.make("Hopper-v5", "native", max_episode_steps=100)
    policy, params = novice(env)
    one, other = Variant(1.5, 0.5, 1.2, 1, 0), Variant(0.5, 2.0, 0.8, 0, 1)
    among = family.judged(env, policy, [params], of(one, other, one), 4)
    alone = family.judged(env, policy, [params], of(one), 4)
    np.testing.assert_array_equal(among.returns[0, 0], among.returns[0, 2])
    np.testing.assert_array_equal(among.returns[0, 0], alone.returns[0, 0])
    np.testing.assert_array_equal(among.lengths[0, 2], alone.lengths[0, 0])


def test_all_contexts_of_all_policies_are_two_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    env, traced = envs.make("InvertedPendulum-v5", "native", max_episode_steps=5), []
    policy, params = novice(env)
    monkeypatch.setattr(family, "vary", lambda *args: traced.append(args) or vary(*args))
    variants = [Variant(mass=x, action_delay=i) for i, x in enumerate((1.0, 0.5, 2.0))]
    found = family.judged(env, policy, [params, params], of(*variants, Variant()), 2)
    assert len(traced) == 2
    assert found.returns.shape == (2, 4, 2)
    np.testing.assert_array_equal(found.returns[0], found.returns[1])


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60))
def test_the_worst_tenth_is_no_more_than_the_middle_half(means: list[float]) -> None:
    x = np.array(means)
    worst, slack = family.worst_tenth(x), 1e-6
    assert x.min() - slack <= worst <= family.stats.iqm(x[None]) + slack
    assert worst <= x.mean() + slack


def test_a_summary_is_what_it_says() -> None:
    contexts = [Context("nominal", Variant())]
    contexts += [Context(SPLITS[i > 9], Variant(mass=1 + i)) for i in range(1, 20)]
    means = np.array([7.0, *range(1, 20)])
    noise = np.random.default_rng(0).normal(0, 1, (16, 1))  # of a start, in all contexts alike
    told = family.summary(means + noise - noise.mean(), Family("x-v1", "", tuple(contexts)))
    middles = {name: found[0] for name, found in told.items()}
    expected = {"nominal": 7, "mean": 9.85, "worst_tenth": 1.5, "iqm": np.sort(means)[5:15].mean()}
    assert middles == pytest.approx(expected | {"interpolation": 5, "extrapolation": 14.5})
    widths = {round(high - low, 9) for _, low, high in told.values()}
    assert len(widths) == 1  # what starts share does not average out over contexts
    assert 0.6 < widths.pop() < 1.4  # 2 x 1.96 / sqrt(16)


@pytest.mark.long
def test_a_run_is_recorded_and_nothing_else_overwritten(tmp_path: Path, capsys) -> None:
    small, run, out = tmp_path / "small-v2.toml", POLICIES / "half-cheetah-ppo", tmp_path / "out"
    small.write_text(SMALL)
    args = family.Args((run,), str(small), episodes=2, out=out)
    family.main(args)
    said = capsys.readouterr().out
    assert "small-v2: 3 contexts x 2 starts" in said
    assert "Three contexts." in said
    record = out / run.name / "family-small-v2.jsonl"
    rows = [json.loads(line) for line in record.read_text().splitlines()]
    assert [row.get("context") for row in rows] == [
        "nominal", "mass 1.1", "gain 0.5, action delay 1", None,
    ]  # fmt: skip
    assert rows[2]["gain"] == 0.5
    assert rows[2]["action_delay"] == 1
    assert rows[0]["returns"] == play.judge(*play.load(run), 2).tolist()
    assert rows[3]["summary"]["nominal"][0] == pytest.approx(np.mean(rows[0]["returns"]))
    assert np.mean(rows[2]["returns"]) < 0.5 * np.mean(rows[0]["returns"])
    assert record.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"
    small.write_text(SMALL.replace("1.1", "1.2"))
    with pytest.raises(ValueError, match="is of other contexts: a family that changes needs"):
        family.main(args)
    record.unlink()
    with pytest.raises(ValueError, match=r"family-small-v2\.png is there already"):
        family.main(args)
    with pytest.raises(ValueError, match="Two runs would have their records in one place"):
        family.main(family.Args((run, run), out=out))
    with pytest.raises(ValueError, match="It takes the directory of a run"):
        family.main(family.Args(()))


def test_a_ranking_that_turns_over_the_family_is_told() -> None:
    def row(run: str, nominal: float, worst: float) -> dict:
        told = {name: [5.0 * (run == "a")] for name in family.MEASURES}
        told |= {"nominal": [nominal], "worst_tenth": [worst]}
        return {"run": run, "env": "E", "family": "F", "summary": told}

    said = list(family.reversals([row("a", 9, 1), row("b", 8, 2)]))
    assert said == ["E: by worst_tenth b > a, but nominally a > b"]
