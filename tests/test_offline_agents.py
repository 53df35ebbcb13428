"""Agents that learn from data alone: the order of an update, what one does that its sibling does
not, values known on paper, and which steps of the data they see how often."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from agents import td3_bc
from agents.awac import AWAC
from agents.bc import BC
from agents.cql import CQL
from agents.dvl import DVL
from agents.iql import IQL
from agents.rebrac import ReBRAC
from agents.td3_bc import TD3BC
from rl.data import dataset, sampling
from rl.data.dataset import Dataset, named
from rl.types import Transition
from tests import learners
from tests.learners import KEY, SEEN, A, B, f64, given, improved
from tests.oracles import offline_weights

NETS: dict[str, Any] = {"hidden": (8,), "gamma": 0.9, "lr": 0.01, "tau": 0.3, "normalise": False}
NAME = lambda agent: type(agent).__name__  # noqa: E731


def mix(online: Any, target: Any) -> Any:
    return optax.incremental_update(online.params, target, 0.3)


def in_sample(agent: Any, state: Any, batches: Transition) -> list[Any]:
    """The state after an update of IQL or DVL, and those by the old value or critics."""
    sample, after = agent.sample(state, jax.tree.map(lambda x: x[0], batches)), []
    q = agent.q(state.target, sample.obs.critic, sample.action).min(0)
    value = improved(0.01, agent.value_loss, state.value, sample, q)
    for params in (value.params, state.value.params):
        better = q - agent.v(params, sample.obs.critic)
        target = sample.reward + sample.discount * agent.v(params, sample.next_obs.critic)
        actor = improved(0.01, agent.actor_loss, state.actor, sample, better, KEY)
        critic = improved(0.01, agent.critic_loss, state.critic, sample, target)
        target = mix(critic, state.target)
        after.append(type(state)(actor, critic, target, value, state.obs))
    return [*after, after[0]._replace(target=mix(state.critic, state.target))]


def weighted(agent: Any, state: Any, batches: Transition) -> list[Any]:
    """That after one of AWAC, and that by the old critics."""
    target_key, actor_key = jax.random.split(KEY)
    sample = agent.sample(state, jax.tree.map(lambda x: x[0], batches))
    target = agent.backup(state, sample, target_key)
    critic = improved(0.01, agent.critic_loss, state.critic, sample, target)
    now = state._replace(critic=critic, target=mix(critic, state.target))
    given = agent.actor_loss, state.actor
    after = [improved(0.01, *given, seen, sample, actor_key) for seen in (now, state)]
    return [now._replace(actor=actor) for actor in after]


def delayed(agent: Any, state: Any, batches: Transition) -> list[Any]:
    """That after one of TD3+BC or ReBRAC, and those by old critics or with targets moved twice."""
    now = before = state
    for i, key in enumerate(jax.random.split(KEY, 2)):
        batch = jax.tree.map(lambda x, i=i: x[i], batches)
        sample, *then = learners.sampled(agent, state, batch)
        target, before = agent.backup(now, sample, *then, key), now
        now = now._replace(critic=improved(0.01, agent.critic_loss, now.critic, sample, target))
    after = []
    for seen in (now, before):
        actor = improved(0.01, agent.actor_loss, now.actor, seen, sample)
        targets = mix(now.critic, now.target), mix(actor, now.target_actor)
        after.append(type(now)(actor, now.critic, *targets, now.obs))
    twice = mix(now.critic, mix(before.critic, state.target))
    return [*after, after[0]._replace(target=twice)]


@pytest.mark.parametrize(("agent", "by_hand"), [
    (IQL(**NETS), in_sample), (DVL(**NETS, weight=0.8), in_sample), (AWAC(**NETS), weighted),
    (TD3BC(**NETS), delayed), (ReBRAC(**NETS), delayed),
], ids=lambda x: NAME(x) if hasattr(x, "lr") else "")  # fmt: skip
def test_an_update_is_these_steps(agent: Any, by_hand: Callable) -> None:
    """And the critics of IQL and DVL alone know nothing of the policy, here one that is NaN."""
    state, batch = given(agent)
    batches = learners.stacked(batch, agent.delay)
    update = agent.update if agent.delay == 1 else jax.jit(agent.update)
    right, *wrong = by_hand(agent, state, batches)
    new, _ = update(state, batches, KEY)
    assert learners.alike(new, right)
    assert not any(learners.alike(new, x) for x in wrong)
    parts = [name for name in ("actor", "target_actor") if hasattr(state, name)]
    ill = {x: jax.tree.map(lambda x: x * jnp.nan, getattr(state, x)) for x in parts}
    critic = update(state._replace(**ill), batches, KEY)[0].critic
    well = all(jnp.isfinite(x).all() for x in jax.tree.leaves(critic.params))
    assert well == (by_hand is in_sample)


@pytest.mark.parametrize("agent", [
    IQL(lr=1e-2), DVL(lr=1e-2, weight=0.8), AWAC(lr=3e-3), TD3BC(lr=3e-3),
    ReBRAC(lr=3e-3, critic_bc=0.0),
    CQL(critic_hidden=(16,), critic_lr=3e-3, penalty=0.0, actions=1, lr=0.0),
], ids=NAME)  # fmt: skip
def test_q_converges_to_the_known_value(agent: Any) -> None:
    """Reward 1 at every step: 1 if that ends it, else 1 / (1 - gamma)."""
    agent = replace(agent, hidden=(16,), gamma=0.5, tau=0.2)
    values = jax.vmap(lambda ends: learners.values_of_a_fixed_reward(agent, ends))
    assert np.allclose(values(jnp.array([True, False]))[:, 0], [1, 2], atol=0.06)


@pytest.mark.parametrize(("agent", "wanted"), [
    (IQL(expectile=0.7), 0.7), (IQL(expectile=0.9), 0.9), (DVL(weight=0.6), 1 / 3),
    (DVL(weight=0.6, divergence="total_variation"), 0.0),
    (DVL(weight=0.8, divergence="total_variation"), 1.0),
    (DVL(divergence="reverse_kl", scale=1.0), np.log((1 + np.e) / 2)),
])  # fmt: skip
def test_the_value_of_two_actions(agent: IQL | DVL, wanted: float) -> None:
    """Of Q 0 and 1, as often: where the slope of its loss is 0, on paper."""
    state, batch = given(replace(agent, hidden=(8,)))
    sample, q = agent.sample(state, batch), jnp.arange(B) % 2.0
    bias = lambda v: jax.tree.map(lambda x: x * 0 + (v if x.size == 1 else 0), state.value.params)  # noqa: E731
    loss = lambda v: replace(agent, hidden=(8,)).value_loss(bias(v), sample, q)[0]  # noqa: E731
    values = jnp.linspace(-0.5025, 1.5025, 402)
    slopes = jax.vmap(jax.grad(loss))(values)
    assert abs(values[(slopes > 0).argmax()] - wanted) < 0.01


def test_rebrac_s_targets_are_td3_bc_s_less_what_leaving_the_data_costs() -> None:
    agent, plain = ReBRAC(**NETS, layer_norm=False, critic_bc=0.5), TD3BC(**NETS)
    state, batch = given(agent)
    sample, then = agent.sample(state, batch)
    less = plain.backup(td3_bc.State(*state), sample, KEY) - agent.backup(state, sample, then, KEY)
    over = np.asarray(batch.terminated | batch.truncated)[:, :-1].any(1)
    assert (less[~over] > 0.01).all()
    assert (less[over] == 0).all()


@pytest.mark.parametrize("agent", [BC(hidden=(8,)), IQL(hidden=(8,), normalise=True)], ids=NAME)
def test_observations_are_scaled_by_the_data_s_moments_and_dropout_is_of_learning(agent) -> None:
    agent = replace(agent, dropout=0.5)
    state, batch = given(agent)
    seen = batch._replace(obs=5 + 3 * batch.obs)
    state, scaled = agent.observe(state, seen), f64(seen.obs).reshape(-1, SEEN)
    scaled = (f64(seen.obs[0, 0]) - scaled.mean(0)) / scaled.std(0)
    policy = agent.policy(explore=False, action_dim=A)
    act = lambda key: policy.step(agent.deploy(state), (), seen.obs[0, 0], key)[0]  # noqa: E731
    mean, _ = agent.actor(A).apply(state.actor.params, jnp.asarray(scaled, "f4"))
    assert np.allclose(act(KEY), mean, atol=1e-3)
    assert jnp.array_equal(act(KEY), act(jax.random.key(9)))
    seen, keys = learners.stacked(seen, 1), jax.random.split(KEY)
    assert len({float(agent.update(state, seen, key)[1]["actor_loss"]) for key in keys}) == 2


LENGTHS, STEPS = np.tile([4, 1, 6, 3, 5, 2], 3), 63
SAMPLERS = {
    "advantage": (sampling.Weighted("advantage", 0.5), {"temperature": 0.5}),
    "return": (sampling.Weighted("return", 0.5), {"temperature": 0.5}),
    "top": (sampling.Top(0.5), {"share": 0.5}),
}


def recorded() -> Dataset:
    """Some are of a single step, and one has a step in its middle that nothing follows."""
    rng, count, ends = np.random.default_rng(0), LENGTHS.sum(), LENGTHS.cumsum() - 1
    over = np.isin(np.arange(count), ends)
    terminated = over & (np.arange(count) % 2 == 0)
    mask = ~terminated
    mask[6] = False
    draw = lambda *shape: rng.normal(size=shape).astype("f4")  # noqa: E731
    obs = {"obs/policy": draw(count, 1), "obs/world/raw": draw(count, 1)}
    last = {f"last_{name}": draw(len(LENGTHS), 1) for name in obs}
    steps = {"action": draw(count, 2), "reward": draw(count), "terminated": terminated}
    steps |= {"truncated": over & ~terminated, "mask": mask}
    return Dataset(steps | obs, {"length": LENGTHS} | last, {})


def wanted_law(data: Dataset, kind: str, **setting: float) -> np.ndarray:
    """The oracle's probability of each step."""
    obs = np.concatenate(list(data.parts("obs").values()), 1)
    ends = data.steps["terminated"] | data.steps["truncated"]
    given = data.steps["reward"], obs, ends, kind
    return offline_weights.transition_probabilities(*given, **setting)


@pytest.mark.parametrize("kind", SAMPLERS)
def test_steps_are_as_likely_as_the_oracle_has_them(kind: str) -> None:
    (sampler, setting), data = SAMPLERS[kind], recorded()
    weights = sampler.weights(data)[data.episode]
    probability = wanted_law(data, kind, **setting)
    np.testing.assert_allclose(weights / weights.sum(), probability, atol=1e-9)
    source = sampling.source(data, sampler)
    count = np.bincount(sampling.places(source, KEY, 40_000), minlength=len(weights))
    assert (abs(count / 40_000 - probability) <= 4.5 * np.sqrt(probability / 40_000)).all()
    worse = replace(sampler, **{name: x / 2 for name, x in setting.items()}).weights(data)
    assert not np.allclose(worse[data.episode] / (worse * LENGTHS).sum(), probability, atol=1e-3)


def test_a_window_ends_where_its_episode_does() -> None:
    """Where the world ended it and yet a value is told to come (mask), as dataset.check allows."""
    (data := recorded()).steps["mask"][:] = True
    data.steps["action"] = np.clip(data.steps["action"], -1, 1)
    dataset.check("it", data)
    last = sampling.windows(sampling.source(data, sampling.Uniform()), jnp.cumsum(LENGTHS) - 1, 1)
    assert (last.terminated | last.truncated).all()


def test_episodes_whose_starts_explain_their_returns_are_alike() -> None:
    """What rounding leaves of a line that meets every return must not be taken for an advantage."""
    one, other = (data := recorded()).parts("obs").values()
    data.steps["reward"] = np.zeros(STEPS, "f4")
    data.steps["reward"][data.starts] = (2 * one - other + 3)[data.starts, 0]
    weights = sampling.Weighted("advantage", 0.1).weights(data)
    np.testing.assert_array_equal(weights, weights[0])


POSITIVE = st.floats(-12, 12).map(lambda x: 10.0**x)
MASSES = st.lists(st.tuples(st.one_of(st.just(0.0), POSITIVE), st.integers(1, 1000)), max_size=60)


@drawn(MASSES, POSITIVE)
def test_a_table_of_aliases_is_its_law(masses: list[tuple[float, int]], some: float) -> None:
    weights, lengths = np.array([*masses, (some, 7)]).T
    share, alias = (np.asarray(x) for x in sampling.law(weights, lengths))
    found = f64(share).copy()
    np.add.at(found, alias, 1 - f64(share))
    mass = weights * lengths
    np.testing.assert_allclose(found / len(mass), mass / mass.sum(), atol=1e-6)
    assert (found[mass == 0] == 0).all()


def test_windows_are_those_of_a_loop_and_uniform_is_over_steps() -> None:
    data, aux = recorded(), {"return": np.arange(STEPS, dtype="f4")}
    source = sampling.source(data, sampling.Uniform(), aux)
    count = np.bincount(sampling.places(source, KEY, 40_000), minlength=STEPS)
    assert (abs(count / 40_000 - 1 / STEPS) < 4.5 * np.sqrt(1 / STEPS / 40_000)).all()
    found = named(sampling.windows(source, jnp.arange(STEPS), 3))
    ends, steps = LENGTHS.cumsum() - 1, data.steps | {"aux/return": aux["return"]}
    steps["terminated"] = ~steps.pop("mask")
    for name, own in [(x, x.replace("next_obs", "obs")) for x in found]:
        for at, k in np.ndindex(STEPS, 3):
            row = min(at + k, STEPS - 1)
            wanted = steps[own][row]
            if name != own:
                over = data.episodes[f"last_{own}"][np.searchsorted(ends, row)]
                wanted = over if row in ends else steps[own][row + 1]
            np.testing.assert_array_equal(found[name][at, k], wanted)
