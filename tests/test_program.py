"""A recorded function does in numpy what it does in JAX, or is refused by name."""

import json
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from jax import lax

from rl import artefact, nets
from rl.program import Program, record

SIZE = 6
ONES = np.ones(SIZE, np.float32)
# XLA has no numbers below 1e-38, and products of small ones go there.
TAME = st.floats(2**-10, 10, width=32).flatmap(lambda x: st.sampled_from([x, -x, 0.0]))
NO_NUMBER = TAME | st.sampled_from([np.nan, np.inf, -np.inf])
WILD = NO_NUMBER | st.sampled_from([-0.0, 1e30, -3e9])
WHOLE = st.integers(-20, 20) | st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, -1, -(2**31)])


def quaternion_product(p: Any, q: Any) -> Any:
    (a, u), (b, v) = (p[0], p[1:]), (q[0], q[1:])
    return jnp.concatenate([(a * b - u @ v)[None], a * v + b * u + jnp.cross(u, v)])


def turned(x: Any, y: Any) -> Any:
    """The vector y[:3] turned by the quaternion x[:4]."""
    quat = x[:4] / jnp.linalg.norm(x[:4])
    vector = jnp.concatenate([jnp.zeros(1), y[:3]])
    back = quat * jnp.array([1.0, -1, -1, -1])
    return quaternion_product(quaternion_product(quat, vector), back)[1:]


@jax.custom_jvp
def bent(x: Any) -> Any:
    return jnp.tanh(x) * 2


@jax.custom_vjp
def bent_back(x: Any) -> Any:
    return jnp.sin(x) + 1


bent.defjvp(lambda x, t: (bent(*x), t[0]))
bent_back.defvjp(lambda x: (bent_back(x), x), lambda x, t: (t,))


@partial(jax.jit, static_argnames="times")
def nested(x: Any, times: int) -> Any:
    return nested(x * 0.5 + 1, times - 1) if times else jnp.abs(x)


ELEMENTWISE = {  # of numbers, or of arrays of them
    "arithmetic": lambda x, y: (x + y, x - y, x * y, x / y, -x, abs(x), 2.0**24 + y, x * 0.1),
    "powers": lambda x, y: (x**2, x**3, y**-2, jnp.square(x), jnp.sqrt(x), lax.rsqrt(jnp.abs(y)),
                            jnp.abs(x) ** jnp.clip(y, -3, 3)),
    "exponentials": lambda x, y: (jnp.exp(x), jnp.exp2(y), jnp.expm1(x), jnp.log(x), jnp.log1p(y)),
    "angles": lambda x, y: (jnp.sin(x), jnp.cos(y), jnp.tan(jnp.clip(x, -1.5, 1.5)), jnp.tanh(y)),
    "limits": lambda x, y: (jnp.clip(x, -1, 1), lax.clamp(-2.0, x, 0.1), jnp.maximum(x, y),
                            jnp.minimum(0.3, y)),
    "comparisons": lambda x, y: (x < y, x <= y, x == y, x != y, x > 0.1, x >= y, x - 0.1 == y,
                                 jnp.isfinite(x), jnp.isnan(y), jnp.isinf(x)),
    "booleans": lambda x, y: ((x < 0) & (y < 0), (x < 0) | ~(y > 1), (x > 0) + (y > 0), (x > 0) * 3,
                              (x > 0) * 1.5, (x > 0) == (y > 0), jnp.maximum(x > 0, y > 0)),
    "choices": lambda x, y: (
        jnp.where(x > y, x, -y), jnp.where(jnp.isnan(x), 0, x), jnp.nan_to_num(x),
        jnp.where(x > 0, y > 0, x > 1), jnp.where(x > 0, 7, y),
        lax.select_n((x > 0).astype(jnp.int32) + (x > 1), x, y, x * y),
    ),
    "squashed": lambda x, y: (jax.nn.sigmoid(x), nn.softplus(y), jnp.sign(x), lax.erf(y),
                              nn.relu(x), nn.silu(y), nn.gelu(x), nn.elu(y), nn.leaky_relu(x)),
    "remainders": lambda x, y: (x % y, lax.rem(x, y), x % 3),
    "calls": lambda x, y: (nested(x, 3), bent(y), bent_back(x), jax.checkpoint(jnp.sin)(y)),
    "to whole": lambda x, y: [x.astype(k) for k in ("int32", "int8", "uint8", "uint32", bool)],
}  # fmt: skip
WHOLES = {
    "whole arithmetic": lambda n, m: (n + m, n - m, n * m, -n, abs(n), jnp.sign(n), n**2, n**3),
    "quotients": lambda n, m: (n // m, n % m, lax.div(n, m), lax.rem(n, m), n // 3, n % -3, n // 0),
    "bits and order": lambda n, m: (n & m, n | m, ~n, n < m, n == m, jnp.maximum(n, m),
                                    jnp.clip(n, -3, 3), jnp.where(n < m, n, 5)),
    "narrow": lambda n, m: (n.astype("int8") + m.astype("int8"), n.astype("uint8") * 3,
                            n.astype("uint8") // m.astype("uint8"), n.astype(bool)),
    "to floats": lambda n, m: (n / m, n * 0.5, n.astype("float32"), m > 0.5),
}  # fmt: skip
ARRAYS = {
    "norm": lambda x, y: (jnp.linalg.norm(x), x / jnp.linalg.norm(x, axis=-1, keepdims=True)),
    "softmax": lambda x, y: (nn.softmax(x), nn.log_softmax(y), jax.nn.logsumexp(x)),
    "turned": turned,
    "sums": lambda x, y: (x.sum(), x.mean(), x.reshape(2, 3).sum(0), x.std(), y.var(),
                          y.reshape(3, 2).mean(-1, keepdims=True), x.reshape(2, 3).std(1)),
    "extremes": lambda x, y: (x.max(), y.min(), x.reshape(2, 3).max(1), jnp.ptp(y)),
    "any and all": lambda x, y: ((x > 0).any(), (x > y).all(), (x > 0).sum(), (y > 0).mean(),
                                 (x > 0).reshape(2, 3).any(0), (x > 0).max()),
    "joined": lambda x, y: (
        jnp.concatenate([x[:2], y, x[:0]]), jnp.stack([x, y], 1), jnp.append(x, y[2]),
        jnp.hstack([x, 3.0]), jnp.concatenate([x.reshape(2, 3), y.reshape(2, 3)], 1),
    ),
    "parted": lambda x, y: (jnp.split(x, 3), jnp.split(y, [1, 4]), jnp.unstack(x.reshape(2, 3))),
    "cut": lambda x, y: (x[2], x[-1], x[1:5:2], x[::-1], y[..., None], x.reshape(2, 3)[:, 1],
                         lax.dynamic_slice(x, (y[0].astype(jnp.int32),), (2,))),
    "moved": lambda x, y: (
        jnp.roll(x, 2), jnp.roll(y, -1), jnp.flip(x), x.reshape(2, 3).T, jnp.flip(y.reshape(3, 2)),
        jnp.moveaxis(x.reshape(1, 2, 3), -1, 0), jnp.squeeze(y[None]), jnp.broadcast_to(x, (2, 6)),
    ),
    "taken": lambda x, y: (x[np.array([2, 5, -1])], jnp.take(y, x.astype(int), mode="clip")),
    "made": lambda x, y: (x + jnp.arange(SIZE), jnp.eye(2) + x[0], jnp.zeros(3), jnp.float32(2.5),
                          lax.broadcasted_iota(jnp.int32, (2, 3), 1), jnp.nan, y, x),
    "products": lambda x, y: (
        x @ y, jnp.outer(x, y), x.reshape(2, 3) @ y[:3], y[:2] @ x.reshape(2, 3),
        x.reshape(2, 3) @ y.reshape(3, 2), jnp.einsum("ij,kj->ki", x[None], y.reshape(1, 6)),
        jnp.tensordot(x.reshape(1, 2, 3), y.reshape(3, 2, 1), ((1, 2), (1, 0))),
    ),
}  # fmt: skip


def again(program: Program) -> Program:
    """`program` from what a file would hold."""
    text = artefact._json(artefact._plain(program))
    made = artefact._program(json.loads(text), {str(n): x for n, x in program.constants.items()})
    assert isinstance(made, Program)
    return made


@cache
def both(name: str) -> tuple[Any, Any]:
    """The function compiled, and the program of it."""
    f = {**ELEMENTWISE, **ARRAYS, **WHOLES}[name]
    g = f if name in ARRAYS else lambda x, y: (f(x, y), f(x[0], y[0]))
    example = ONES.astype(np.int32) if name in WHOLES else ONES
    return jax.jit(g), again(record(g, example, example)).run


def assert_same(name: str, *inputs: np.ndarray, atol: float) -> None:
    compiled, run = both(name)
    for got, want in zip(run(*inputs), jax.tree.leaves(compiled(*inputs)), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        exactly = got.dtype.kind != "f"
        np.testing.assert_allclose(got, want, rtol=0 if exactly else 2e-6, atol=atol)


def pair(elements: st.SearchStrategy[Any], dtype: Any = np.float32) -> st.SearchStrategy[Any]:
    return arrays(dtype, (2, SIZE), elements=elements)


@pytest.mark.parametrize("name", ELEMENTWISE)
@given(inputs=pair(WILD))
@settings(max_examples=30)
def test_numbers_are_those_of_jax(name: str, inputs: np.ndarray) -> None:
    assert_same(name, *inputs, atol=1e-6)


@pytest.mark.parametrize("name", ARRAYS)
@given(inputs=pair(NO_NUMBER))
@settings(max_examples=30)
def test_arrays_are_those_of_jax(name: str, inputs: np.ndarray) -> None:
    assert_same(name, *inputs, atol=2e-5)  # sums of tens that nearly cancel


@pytest.mark.parametrize("name", WHOLES)
@given(inputs=pair(WHOLE, np.int32))
@settings(max_examples=60)
def test_whole_numbers_are_those_of_jax(name: str, inputs: np.ndarray) -> None:
    assert_same(name, *inputs, atol=0)


def test_whole_numbers_divide_as_on_paper() -> None:
    """Towards 0; by 0 the quotient has all its bits set, and the remainder is what there was."""
    n, m = np.array([[7, -7, 7, 5, 0, -(2**31)], [2, 2, -2, 0, 0, -1]], np.int32)
    quotient, rest = record(lambda n, m: (lax.div(n, m), lax.rem(n, m)), n, m).run(n, m)
    assert quotient.tolist() == [3, -3, -3, -1, -1, -(2**31)]
    assert rest.tolist() == [1, -1, 1, 5, 0, 0]


@pytest.mark.parametrize("activation", [nn.tanh, nn.relu, nn.silu, nn.gelu, nn.elu])
def test_networks_are_those_of_jax(activation: Any) -> None:
    net = nets.MLP((32, 32, 4), activation, layer_norm=activation in (nn.relu, nn.silu))
    params = net.init(jax.random.key(0), jnp.zeros(8))
    run = again(record(net.apply, params, jnp.zeros(8))).run
    compiled, leaves = jax.jit(net.apply), jax.device_get(jax.tree.leaves(params))
    for x in np.random.default_rng(0).normal(0, 3, (20, 8)).astype(np.float32):
        np.testing.assert_allclose(run(*leaves, x)[0], compiled(params, x), rtol=5e-6, atol=5e-6)
    bad = np.full(8, np.nan, np.float32)
    np.testing.assert_array_equal(run(*leaves, bad)[0], compiled(params, bad))


def test_a_wide_network_keeps_float32() -> None:
    """It is the product of real numbers, to a few roundings."""
    rng = np.random.default_rng(0)
    kernels = [rng.normal(0, n**-0.5, (n, m)).astype("f4") for n, m in ((48, 256), (256, 256))]
    x = rng.normal(size=48).astype(np.float32)
    (got,) = record(lambda x, a, b: jnp.tanh(x @ a) @ b, x, *kernels).run(x, *kernels)
    truth = np.tanh(x.astype(float) @ kernels[0]) @ kernels[1]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, truth, atol=2e-6)


UNKNOWN = {
    "sort": lambda x: jnp.sort(x),
    "gather": lambda x: jnp.take(x, x.astype(jnp.int32)),  # NaN where there is no such place
    "scatter": lambda x: x.at[2].set(1.0),
    "while": lambda x: lax.while_loop(lambda x: x.sum() < 10, lambda x: x + 1, x),
    "scan": lambda x: lax.fori_loop(0, 3, lambda i, x: x * 2, x),
    "cond": lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
    "cumsum": lambda x: jnp.cumsum(x),
    "dot_general of batches": lambda x: jnp.einsum("bi,bi->b", x.reshape(2, 3), x.reshape(2, 3)),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_numpy_does_not_do_is_refused_by_name(name: str) -> None:
    """When it is recorded, not on the robot; in a function that is called as well."""
    for f in (UNKNOWN[name], jax.jit(UNKNOWN[name])):
        with pytest.raises(ValueError, match=f"numpy has no '{name}' here"):
            record(f, ONES)


def test_what_does_not_matter_is_left_out() -> None:
    """Even what numpy could not do, or not hold."""
    key, table, used = jax.random.key(0), jnp.arange(5.0), jnp.arange(float(SIZE))

    def f(x: Any) -> Any:
        jax.debug.print("{}", x)
        unused = jnp.sort(x), jax.random.normal(key, (3,)), jnp.sin(table)
        return (unused, x * 2 + used)[1]

    program = record(f, ONES)
    assert [equation.name for equation in program.equations] == ["mul", "add"]
    (constant,) = program.constants.values()
    np.testing.assert_array_equal(constant, used)


def test_a_program_written_down_is_the_same() -> None:
    def f(x: Any, y: Any) -> Any:
        return jnp.where(x > -jnp.inf, x, 3) + jnp.arange(6.0).reshape(2, 3).sum(), y[1:4:2], True

    program = record(f, ONES, ONES)
    copy = again(program)
    assert copy._replace(constants={}) == program._replace(constants={})
    assert copy.constants.keys() == program.constants.keys()
    assert artefact._program(json.loads(artefact._json(artefact._plain("for cause"))), {}) == (
        "for cause"
    )
