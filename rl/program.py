"""A traced JAX function as plain data that numpy runs: a policy on a robot that has no JAX.

`record` turns a function into a list of operations, with every call in it written out and what
does not matter to the result left out.  `Program` runs one, and knows nothing of JAX.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Operand = int | tuple[str, Any]  # a slot, or a dtype and a number of it
# What calls another function once: a loop has one as well, and is no call.
CALLS = {
    "checkpoint", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call",
    "custom_vjp_call_jaxpr", "jit", "pjit", "remat", "remat2",
}  # fmt: skip
CALLED = "jaxpr", "call_jaxpr", "fun_jaxpr"  # where a call's equation keeps that function


class Equation(NamedTuple):
    name: str
    operands: tuple[Operand, ...]
    results: tuple[int, ...]
    dtype: str  # of the results
    settings: dict[str, Any]


class Program(NamedTuple):
    """Operations on numbered slots, in order."""

    inputs: tuple[int, ...]
    constants: dict[int, np.ndarray]
    equations: tuple[Equation, ...]
    outputs: tuple[Operand, ...]

    def run(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """The outputs."""
        slots = {**self.constants, **dict(zip(self.inputs, inputs, strict=True))}

        def value(x: Operand) -> Any:
            return slots[x] if isinstance(x, int) else np.dtype(x[0]).type(x[1])

        with np.errstate(all="ignore"):  # what is no number is for the caller to judge
            for name, operands, results, dtype, settings in self.equations:
                out = OPERATIONS[name](*map(value, operands), **settings)
                every = out if isinstance(out, list) else [out]
                for slot, x in zip(results, every, strict=True):
                    slots[slot] = np.asarray(x, dtype)
        return [np.asarray(value(x)) for x in self.outputs]


def record(f: Callable[..., Any], *example: Any) -> Program:
    """The program of `f`: its inputs are the leaves of `example`, its outputs those of the result.

    Raises ValueError naming an operation that numpy does not do here.
    """
    import jax  # here alone: a robot runs programs without it

    fresh, constants, equations = itertools.count(), {}, []

    def walk(jaxpr: Any, consts: Sequence[Any], operands: Sequence[Operand]) -> list[Operand]:
        known: dict[Any, Operand] = dict(zip(jaxpr.invars, operands, strict=True))
        for variable, const in zip(jaxpr.constvars, consts, strict=True):
            known[variable] = slot = next(fresh)
            constants[slot] = const

        def read(variable: Any) -> Operand:
            if hasattr(variable, "val"):
                return str(variable.aval.dtype), np.asarray(variable.val).item()
            return known[variable]

        for equation in jaxpr.eqns:
            ins = [read(variable) for variable in equation.invars]
            if str(equation.primitive) in CALLS:
                inner = next(equation.params[n] for n in CALLED if n in equation.params)
                outs = walk(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), ins)
            else:
                outs = [next(fresh) for _ in equation.outvars]
                if outs:  # else it tells someone something, and nothing comes of it
                    equations.append(_plain(equation, ins, outs))
            known |= dict(zip(equation.outvars, outs, strict=True))
        return [read(variable) for variable in jaxpr.outvars]

    closed = jax.make_jaxpr(f)(*example)
    inputs = tuple(next(fresh) for _ in closed.jaxpr.invars)
    outputs = walk(closed.jaxpr, closed.consts, inputs)
    needed, kept = {x for x in outputs if isinstance(x, int)}, []
    for equation in reversed(equations):
        if needed & {*equation.results}:
            kept.append(equation)
            needed |= {x for x in equation.operands if isinstance(x, int)}
    for equation in reversed(kept):
        if equation.name not in OPERATIONS:
            raise ValueError(f"numpy has no {equation.name!r} here: see rl/program.py")
    constants = {slot: np.asarray(x) for slot, x in constants.items() if slot in needed}
    return Program(inputs, constants, tuple(reversed(kept)), tuple(outputs))


def _plain(equation: Any, ins: list[Operand], outs: list[int]) -> Equation:
    """`equation` with settings that JSON can hold."""
    name, params = str(equation.primitive), equation.params
    if name == "dot_general" and params["dimension_numbers"][1][0]:
        name = "dot_general of batches"
    dtype = str(equation.outvars[0].aval.dtype)
    settings = {n: _data(x) for n, x in params.items() if n in SETTINGS}
    vector = name == "gather" and (len(ins), params["slice_sizes"]) == (2, (1,))
    if vector and equation.outvars[0].aval.ndim == 1 and "FILL" not in str(params["mode"]):
        name, settings = "take", {}
    return Equation(name, tuple(ins), tuple(outs), dtype, settings)


def _data(x: Any) -> Any:
    if isinstance(x, tuple | list):
        return [_data(y) for y in x]
    if isinstance(x, np.dtype):
        return str(x)
    return int(x) if isinstance(x, np.integer) else x


SETTINGS = {
    "axes", "axis", "broadcast_dimensions", "dimension", "dimension_numbers", "dimensions",
    "limit_indices", "new_dtype", "new_sizes", "permutation", "shape", "sizes", "slice_sizes",
    "start_indices", "strides", "y",
}  # fmt: skip


def _broadcast(x: Any, shape: list[int], broadcast_dimensions: list[int]) -> np.ndarray:
    wide = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, np.shape(x), strict=True):
        wide[axis] = size
    return np.broadcast_to(np.reshape(x, wide), shape)


def _product(x: np.ndarray, y: np.ndarray, dimension_numbers: list[Any]) -> np.ndarray:
    return np.tensordot(x, y, dimension_numbers[0])


def _slice(x: np.ndarray, start_indices: Any, limit_indices: Any, strides: Any = None) -> Any:
    return x[tuple(map(slice, start_indices, limit_indices, strides or [1] * x.ndim))]


def _dynamic_slice(x: np.ndarray, *starts: Any, slice_sizes: list[int]) -> np.ndarray:
    sizes = zip(starts, slice_sizes, x.shape, strict=True)
    low = [min(max(int(start), 0), have - size) for start, size, have in sizes]
    return x[tuple(slice(a, a + size) for a, size in zip(low, slice_sizes, strict=True))]


def _converted(x: Any, new_dtype: str) -> Any:
    """As XLA converts: to whole numbers, what is beyond them is the nearest, and NaN is 0."""
    if np.dtype(new_dtype).kind not in "iu" or np.asarray(x).dtype.kind != "f":
        return x
    most = np.iinfo(new_dtype)
    return np.clip(np.nan_to_num(np.asarray(x, float), posinf=np.inf, neginf=-np.inf), most.min,
                   most.max)  # fmt: skip


def _divide(x: Any, y: Any) -> Any:
    if np.asarray(x).dtype.kind == "f":
        return np.divide(x, y)
    # XLA's whole numbers: towards 0, and all bits set where there is no quotient.
    return np.where(np.equal(y, 0), np.invert(y), (x - np.fmod(x, y)) // y)


def _remainder(x: Any, y: Any) -> Any:
    if np.asarray(x).dtype.kind == "f":
        return np.fmod(x, y)
    return np.where(np.equal(y, 0), x, np.fmod(x, y))


def _iota(shape: list[int], dimension: int) -> np.ndarray:
    return np.indices(shape)[dimension]


def _logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _select(which: Any, *cases: Any) -> np.ndarray:
    return np.select([np.equal(which, i) for i in range(len(cases))], cases)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "atan2": np.arctan2,
    "and": np.bitwise_and,
    "broadcast_in_dim": _broadcast,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "concatenate": lambda *xs, dimension: np.concatenate(xs, dimension),
    "convert_element_type": _converted,
    "copy": lambda x: x,
    "cos": np.cos,
    "div": _divide,
    "dot_general": _product,
    "dynamic_slice": _dynamic_slice,
    "eq": np.equal,
    "erf": np.vectorize(math.erf, otypes=[float]),
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "ge": np.greater_equal,
    "gt": np.greater,
    "iota": _iota,
    "integer_pow": lambda x, y: x**y,
    "is_finite": np.isfinite,
    "le": np.less_equal,
    "log": np.log,
    "log1p": np.log1p,
    "logistic": _logistic,
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "not": np.invert,
    "or": np.bitwise_or,
    "pow": np.power,
    "reduce_and": lambda x, axes: np.all(x, tuple(axes)),
    "reduce_max": lambda x, axes: np.max(x, tuple(axes)),
    "reduce_min": lambda x, axes: np.min(x, tuple(axes)),
    "reduce_or": lambda x, axes: np.any(x, tuple(axes)),
    "reduce_sum": lambda x, axes: np.sum(x, tuple(axes)),
    "rem": _remainder,
    "reshape": lambda x, new_sizes, dimensions=None: np.reshape(x, new_sizes),
    "rev": lambda x, dimensions: np.flip(x, dimensions),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "select_n": _select,
    "sign": np.sign,
    "sin": np.sin,
    "slice": _slice,
    "split": lambda x, sizes, axis: np.split(x, np.cumsum(sizes)[:-1], axis),
    "sqrt": np.sqrt,
    "square": np.square,
    "stack": lambda *xs, axis: np.stack(xs, axis),
    "take": lambda x, at: np.take(x, at[:, 0], mode="clip"),
    "squeeze": lambda x, dimensions: np.squeeze(x, tuple(dimensions)),
    "stop_gradient": lambda x: x,
    "sub": np.subtract,
    "tan": np.tan,
    "tanh": np.tanh,
    "transpose": lambda x, permutation: np.transpose(x, permutation),
    "unstack": lambda x, axis: [np.take(x, i, axis) for i in range(x.shape[axis])],
}
