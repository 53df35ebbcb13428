"""Native physics is a plain MuJoCo loop to the last bit, whatever else runs beside it."""

import copy
from dataclasses import dataclass, replace
from functools import cache

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envs
from envs.gym_mujoco.half_cheetah import HalfCheetah
from envs.physics.native import CONSTANTS, KEPT, MAX_BATCHES, Native

TASKS = ["Ant-v5", "HalfCheetah-v5", "HumanoidStandup-v5", "InvertedDoublePendulum-v5"]
KINDS = ("nominal", "heavy")


@dataclass(frozen=True)
class Heavy(HalfCheetah):
    """A cheetah whose links weigh between half and twice as much, anew in each episode."""

    def reset(self, key, context):
        start = super().reset(key, context)
        mass = jnp.asarray(self.model().body_mass, jnp.float32)
        factor = jax.random.uniform(key, mass.shape, minval=0.5, maxval=2.0)
        return start._replace(params={"body_mass": mass * factor})


def compiled(env):
    """Vmapped and jitted methods, and `run`: a scan of steps over actions [T, N, A]."""
    step = jax.vmap(env.step)
    return {
        "reset": jax.jit(jax.vmap(env.reset)),
        "step": jax.jit(step),
        "restart": jax.jit(jax.vmap(env.restart)),
        "run": jax.jit(lambda s, actions: jax.lax.scan(lambda s, a: (step(s, a),) * 2, s, actions)),
    }


@cache
def env_of(kind):
    """A cheetah, "nominal" or "heavy", whose actions are its targets."""
    task = HalfCheetah if kind == "nominal" else Heavy
    return envs.simulate(task(rescale=False), physics="native")


@cache
def call(kind):
    return compiled(env_of(kind))


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


def actions(length, count, seed=0, size=6):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (length, count, size)).astype(np.float32)


def rows(data):
    """The states by KEPT [..., S] float64 of physics data."""
    words = np.ascontiguousarray(data.row)
    return words.reshape(*words.shape[:-2], -1).view(np.float64)


def bits(tree):
    """Leaves as bytes, so that NaN equals itself and -0 is not 0."""
    plain = jax.tree.map(
        lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x,
        tree,
    )
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(plain)]


def assert_same(a, b):
    """Equal to the last bit, but for what XLA may add up in another order: rewards."""
    assert bits(a._replace(reward=(), metrics=())) == bits(b._replace(reward=(), metrics=()))
    np.testing.assert_allclose(a.reward, b.reward, rtol=1e-5, atol=1e-5)


def world(tree, i):
    return jax.tree.map(lambda x: x[i], tree)


def plain_loop(model, substeps, qpos, qvel, ctrl):
    """The states by KEPT [T + 1, S] of one MjData under `ctrl` [T, A]."""
    data, seen = mujoco.MjData(model), []
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_forward(model, data)
    for now in (None, *ctrl):
        if now is not None:
            data.ctrl[:] = now
            mujoco.mj_step(model, data, nstep=substeps)
        seen.append(np.empty(mujoco.mj_stateSize(model, KEPT)))
        mujoco.mj_getState(model, data, seen[-1], KEPT)
    return np.stack(seen)


def states_of(physics, start, ctrl):
    """The states [T + 1, N, S] and readings [T + 1, N, ...] of `physics` under `ctrl` [T, N, A]."""

    @jax.jit
    def run(start, ctrl):
        data = jax.vmap(physics.reset, (None, None, 0, 0, 0))(
            physics.blank(), jnp.bool(True), start.qpos, start.qvel, start.params
        )

        def tick(data, ctrl):
            return (jax.vmap(physics.step)(data, {"ctrl": ctrl}, start.params),) * 2

        return data, jax.lax.scan(tick, data, ctrl)[1]

    first, rest = run(start, ctrl)
    data = jax.tree.map(lambda a, b: np.concatenate([a[None], b]), first, rest)
    return rows(data), physics.read(data)


@pytest.mark.parametrize("derived", ["lagged", "current"])
@pytest.mark.parametrize("name", TASKS)
def test_equals_a_plain_loop_bit_for_bit(name, derived):
    task, worlds = envs.make_task(name), 5
    spec, model = replace(task.spec, derived=derived), task.model()
    start = jax.vmap(task.reset, (0, None))(keys(worlds), ())
    ctrl = actions(12, worlds, size=model.nu)
    got, reads = states_of(Native(model, spec, threads=2), start, ctrl)
    for i in range(worlds):
        want = plain_loop(model, spec.substeps, start.qpos[i], start.qvel[i], ctrl[:, i])
        np.testing.assert_array_equal(got[:, i].view(np.uint64), want.view(np.uint64))
    np.testing.assert_array_equal(reads["ctrl"][1:], ctrl)


def test_current_readings_belong_to_the_state_and_lagged_ones_to_the_substep_before():
    task = envs.make_task("InvertedDoublePendulum-v5")
    model, data = task.model(), mujoco.MjData(task.model())
    start = jax.vmap(task.reset, (0, None))(keys(3), ())
    ctrl, seen = actions(6, 3, size=1), {}
    for derived in ("current", "lagged"):
        physics = Native(model, replace(task.spec, derived=derived), threads=2)
        state, reads = states_of(physics, start, ctrl)
        seen[derived] = reads["site_xpos"]
    for t, i in np.ndindex(7, 3):
        mujoco.mj_setState(model, data, state[t, i], KEPT)
        mujoco.mj_forward(model, data)
        np.testing.assert_array_equal(seen["current"][t, i], data.site_xpos.astype(np.float32))
    assert (seen["lagged"][0] == seen["current"][0]).all()  # a reset is fresh in either
    assert (seen["lagged"][1:] != seen["current"][1:]).any(axis=(2, 3)).all()


def test_randomised_worlds_equal_a_plain_loop_on_their_own_models():
    task, worlds = Heavy(), 4
    physics = Native(task.model(), task.spec, threads=2)
    start = jax.vmap(task.reset, (0, None))(keys(worlds), ())
    params = jax.jit(jax.vmap(physics.constants, (0, None)))(start.params, True)
    ctrl, start = actions(10, worlds), start._replace(params=params)
    got, _ = states_of(physics, start, ctrl)
    for i in range(worlds):
        model = copy.copy(task.model())
        model.body_mass[:] = start.params["body_mass"][i]
        mujoco.mj_setConst(model, mujoco.MjData(model))
        for name, value in start.params.items():
            assert name == "body_mass" or name in CONSTANTS
            want = np.asarray(getattr(model, name), np.float32)
            np.testing.assert_array_equal(value[i], want, err_msg=name)
            getattr(model, name)[...] = value[i]  # carried in float32
        want = plain_loop(model, task.spec.substeps, start.qpos[i], start.qvel[i], ctrl[:, i])
        np.testing.assert_array_equal(got[:, i].view(np.uint64), want.view(np.uint64))
    assert len({start.params["dof_invweight0"][i].tobytes() for i in range(worlds)}) == worlds


def test_nominal_and_randomised_interleaved_equal_themselves_alone():
    """On ONE physics, where what is left of one call would show in the next."""
    physics = Native(HalfCheetah().model(), HalfCheetah().spec, threads=2)
    shared = {kind: compiled(replace(env_of(kind), physics=physics)) for kind in KINDS}
    state = {kind: shared[kind]["reset"](keys(4)) for kind in KINDS}
    alone = {kind: call(kind)["reset"](keys(4)) for kind in KINDS}
    for t, now in enumerate(actions(8, 4)):
        for kind, do in shared.items():
            state[kind] = do["step"](state[kind], now)
            do["reset"](keys(4, seed=t + 1))  # other masses, in the same batch
            alone[kind] = call(kind)["step"](alone[kind], now)
            assert_same(state[kind], alone[kind])
    assert bits(state["nominal"].obs) != bits(state["heavy"].obs)


def test_calls_duplicated_or_reordered_give_the_same():
    for do in map(call, KINDS):
        states = [do["reset"](keys(3))]
        for now in actions(5, 3):
            states.append(do["step"](states[-1], now))
        for t in (3, 0, 4, 4, 2, 1, 0):
            assert_same(do["step"](states[t], actions(5, 3)[t]), states[t + 1])


def test_nested_vmaps_equal_flat():
    env = env_of("heavy")
    nested = jax.jit(lambda k, a: jax.vmap(jax.vmap(lambda k, a: env.step(env.reset(k), a)))(k, a))
    flat = jax.jit(lambda k, a: jax.vmap(lambda k, a: env.step(env.reset(k), a))(k, a))
    two = nested(keys(6).reshape(2, 3), actions(2, 3))
    one = flat(keys(6), actions(2, 3).reshape(6, 6))
    assert_same(jax.tree.map(lambda x: x.reshape(6, *x.shape[2:]), two), one)


def test_eager_equals_jit_equals_scan():
    do, ctrl = call("nominal"), actions(4, 3)
    eager = jitted = do["reset"](keys(3))
    scanned = do["run"](jitted, ctrl)[1]
    for t, now in enumerate(ctrl):
        jitted = do["step"](jitted, now)
        eager = jax.vmap(env_of("nominal").step)(eager, now)
        assert_same(jitted, world(scanned, t))
        assert_same(jitted, eager)


@settings(max_examples=10, deadline=None)
@given(
    masks=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=6),
    seed=st.integers(0, 2**31 - 1),
    kind=st.sampled_from(KINDS),
)
def test_a_world_does_not_notice_how_many_others_there_are_or_when_they_restart(masks, seed, kind):
    do, ctrl = call(kind), actions(len(masks), 4, seed)

    def run(worlds):
        state = do["reset"](keys(4, seed)[worlds])
        for now, mask in zip(ctrl, np.array(masks), strict=True):
            state = do["step"](state, now[worlds])
            state = do["restart"](state._replace(truncated=jnp.asarray(mask[worlds])))
        return state

    together = run(slice(None))
    for i in range(4):
        assert_same(world(together, slice(i, i + 1)), run(slice(i, i + 1)))


def test_the_number_of_batches_is_bounded():
    physics, worlds = Native(HalfCheetah().model(), HalfCheetah().spec, 1), MAX_BATCHES + 4
    words = np.asarray(call("nominal")["reset"](keys(worlds)).sim.data.row)
    ctrl = actions(1, worlds)[0]
    whole = physics._step(words, {"ctrl": ctrl}, {})
    for some in (*range(1, worlds), 1, 2):
        got = physics._step(words[:some], {"ctrl": ctrl[:some]}, {})
        assert len(physics._batches) <= MAX_BATCHES
        assert bits(got) == bits([x[:some] for x in whole])
