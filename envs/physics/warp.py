"""MJX-Warp: MuJoCo as kernels for NVIDIA, by way of MJX.  On a CPU it can be tried, slowly.

Warp's buffers are of all worlds together, and a world of ours carries none of them: the worlds of
all nested vmaps are laid out as one batch, whose buffers begin empty with each control step.
"""

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from envs.physics.mjx import MJX, _field, _sound, mjx
from envs.physics.native import CONSTANTS, Native
from envs.physics.warp_model import BATCHED, OverflowType, layout, put, room, unsupported
from envs.physics.warp_render import Pictures
from envs.task import ParamsByField, Readings, TaskSpec
from rl.types import Array, Metrics, PyTree

# What a step computes last: no later look at positions and velocities makes it anew.
LATE = (
    "act_dot", "actuator_force", "cacc", "cfrc_ext", "cfrc_int", "qacc", "qacc_smooth",
    "qfrc_actuator", "qfrc_constraint", "qfrc_inverse", "qfrc_smooth",
)  # fmt: skip
APART = ("cacc", "cfrc_ext", "cfrc_int")  # those that MJX keeps apart
FULL = int(  # our buffers
    OverflowType.NEFC | OverflowType.NJMAX_NNZ | OverflowType.BROADPHASE
    | OverflowType.NARROWPHASE | OverflowType.CCD | OverflowType.CONTACT_MATCH
)  # fmt: skip
LOST = int(OverflowType.EPA_HORIZON | OverflowType.HFIELD | OverflowType.TACTILE)  # Warp's own


Draw = Callable[[mjx.Model, mjx.Data], Readings]


class Data(NamedTuple):
    state: dict[str, Array]  # the fields of mjx.STATE
    reads: Readings
    failed: Array  # [] bool
    overflow: Array  # [] bool, more contacts than there is room for since the episode began


class Found(NamedTuple):
    """What a world has come to."""

    state: dict[str, Array]
    reads: Readings
    sound: Array  # [] bool, nothing blew up, and no contact was lost
    overflow: Array  # [] bool


class Warp(MJX):
    """Physics of `model` for what `spec` reads.

    Raises ValueError naming what of the two Warp lacks, or would leave out without a word.
    """

    def __init__(self, model: mujoco.MjModel, spec: TaskSpec) -> None:
        self.spec, self.model = spec, model
        if missing := unsupported(model, spec):
            raise ValueError(
                f"Warp cannot simulate this task: {'; '.join(missing)}. Use physics native."
            )
        self._native = Native(model, spec)
        self.pictures = Pictures(model, spec.cameras) if spec.cameras else None
        free = copy(model)  # of constraints, which no position or velocity needs
        free.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
        with jax.ensure_compile_time_eval():
            self._put = put(model, "cfrc_ext" in spec.fields, spec.contacts)
            self._free = put(free, False, spec.contacts)
            self.room = contacts, convex, rows = room(self._put, model, spec.contacts)
            self._blank = mjx.make_data(
                model, impl="warp", naconmax=contacts, naccdmax=convex, njmax=rows
            )

    def blank(self) -> Any:
        return Data(*super().blank(), jnp.bool(False))

    def reset(
        self, data: Any, mask: Array, qpos: Array, qvel: Array, params: ParamsByField,
        settle: int = 0, ctrl: Array | None = None,
    ) -> Any:  # fmt: skip
        def begin(params: ParamsByField, d: mjx.Data, draw: Draw) -> Found:
            if settle:
                d = self._steps(self._model(params), d, settle).replace(time=self._blank.time)
            d = mjx.forward(self._model(params), d)
            found, full = self._found(d, d, contact_forces=False), _full(d)
            reads = jax.tree.map(lambda x: jnp.nan_to_num(x, posinf=0.0, neginf=0.0), found.reads)
            reads |= draw(self._model(params), d)
            return found._replace(reads=reads, overflow=found.overflow | full)

        first = {"qpos": qpos, "qvel": qvel} | ({} if ctrl is None else {"ctrl": ctrl})
        found = self._worlds(begin, self._state(self._blank) | first, params)
        fresh = Data(found.state, found.reads, ~found.sound, found.overflow)
        return jax.tree.map(lambda new, old: jnp.where(mask, new, old), fresh, data)

    def step(self, data: Any, inputs: dict[str, Array], params: ParamsByField) -> Any:
        def advance(params: ParamsByField, d: mjx.Data, draw: Draw) -> Found:
            seen = d = self._steps(self._model(params), d, self.spec.substeps)
            now = self._model(params, self._free)
            if self.pictures or self.spec.derived == "current":
                seen = mjx.forward(now, d)
            found = self._found(d, seen if self.spec.derived == "current" else d, True)
            return found._replace(reads=found.reads | draw(now, seen))

        found = self._worlds(advance, data.state | inputs, params)
        fine = jnp.stack([jnp.isfinite(x).all() for x in found.reads.values()]).all()
        overflow = data.overflow | found.overflow
        failed = ~(found.sound & fine) | overflow
        after = Data(found.state, found.reads, failed, overflow)
        kept = jax.tree.map(lambda new, old: jnp.where(failed, old, new), after, data)
        return kept._replace(failed=failed, overflow=overflow)

    def read(self, data: Any) -> Readings:
        names = *self._native.layout, *(camera.name for camera in self.spec.cameras)
        return {name: data.reads[name] for name in names}  # noise is drawn in order

    def marks(self, data: Any) -> Metrics:
        return {"overflow": data.overflow.astype(jnp.float32)}

    def _worlds(
        self, advance: Callable[[ParamsByField, mjx.Data, Draw], Found],
        state: dict[str, Array], params: ParamsByField,
    ) -> Found:  # fmt: skip
        """What `advance` finds of a world; Warp is called once for all that there are."""

        def many(given: tuple[dict[str, Array], ParamsByField]) -> Found:
            blank = self._batch(count := len(given[0]["qpos"]))
            draw = self.pictures.of(count) if self.pictures else lambda put, d: {}
            return jax.vmap(lambda x, params: advance(params, blank.replace(**x), draw))(*given)

        return _together(many, (state, params))

    def _batch(self, worlds: int) -> mjx.Data:
        """Data of one of so many worlds, with the buffers of all."""
        impl = _inner(self._blank)
        contacts, convex = worlds * self.room.contacts, worlds * self.room.convex
        buffers = {
            field.name: jnp.broadcast_to(x[:1], (contacts, *x.shape[1:]))
            for field in layout.DataWarp.fields()
            if field.name.startswith("contact__")
            if len(x := getattr(impl, field.name))
        }
        return self._blank.replace(
            _impl=impl.replace(naconmax=contacts, naccdmax=convex, **buffers)
        )

    def _found(self, d: mjx.Data, seen: mjx.Data, contact_forces: bool) -> Found:
        """What is there after the steps of `d`, with positions and velocities as `seen`."""
        late = self.model.sensor_needstage == mujoco.mjtStage.mjSTAGE_ACC
        each = jnp.asarray(np.repeat(late, self.model.sensor_dim))
        ours = {name: getattr(d, name) for name in LATE if name not in APART}
        theirs = {name: getattr(d._impl, name) for name in APART}
        seen = seen.replace(
            sensordata=jnp.where(each, d.sensordata, seen.sensordata),
            _impl=_inner(seen).replace(**theirs), **ours,
        )  # fmt: skip
        sound = _sound(d) & ((_inner(d).overflow & LOST) == 0)
        overflow = (_inner(d).overflow & FULL) != 0
        return Found(self._state(d), self._reads(seen, contact_forces), sound, overflow)

    def _model(self, params: ParamsByField, put: mjx.Model | None = None) -> mjx.Model:
        put = self._put if put is None else put
        ours, theirs = {}, {}
        for name, value in params.items():
            if BATCHED["Model"].get(name):
                held = _field(put, name)
                fields = theirs if hasattr(put._impl, name) else ours
                fields[name] = jnp.reshape(value, held.shape)
            elif name not in CONSTANTS:
                raise ValueError(
                    f"Warp cannot vary {name} between worlds. Leave it out of the task's params, "
                    "or use --physics native."
                )
        return put.replace(**ours, _impl=_inner(put).replace(**theirs))


def _inner(found: mjx.Data | mjx.Model) -> Any:
    """What of data or a model is Warp's own."""
    return found._impl


def _full(d: mjx.Data) -> Array:
    """[] bool, there were more contacts than there is room for, of which only steps take note."""
    impl = _inner(d)
    most = jnp.maximum(jnp.max(impl.nacon), jnp.max(impl.ncollision))
    return (most > impl.naconmax) | (jnp.max(impl.nefc) > impl.njmax)


def _together(many: Callable[[PyTree], PyTree], given: PyTree) -> PyTree:
    """What `many` makes of worlds [N, ...], of one of them: all vmaps around are one such N."""

    @jax.custom_batching.custom_vmap
    def flat(given: PyTree) -> PyTree:
        return many(given)

    @flat.def_vmap
    def flatten(size: int, batched: list[PyTree], given: PyTree) -> tuple[PyTree, PyTree]:
        whole = jax.tree.map(
            lambda x, b: x if b else jnp.broadcast_to(x, (size, *x.shape)), given, batched[0]
        )
        found = flat(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), whole))
        found = jax.tree.map(lambda x: x.reshape(size, -1, *x.shape[1:]), found)
        return found, jax.tree.map(lambda _: True, found)

    one = flat(jax.tree.map(lambda x: jnp.asarray(x)[None], given))
    return jax.tree.map(lambda x: x[0], one)
