"""Native MuJoCo on CPU threads behind one host callback for all worlds of all nested vmaps.

Stateless to its callers: a world is a row of what `KEPT` names, and each call writes rows and all
randomised model fields before it runs.  The result equals a plain MuJoCo loop to the last bit.
"""

import contextlib
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import batch as mjbatch

from envs.render import Cameras
from envs.task import ParamsByField, Readings, TaskSpec
from rl.types import Array, Metrics

State = mujoco.mjtState
NOT_COMPUTED = mujoco.mjtStage.mjSTAGE_NONE.value
POSITION_AND_VELOCITY = mujoco.mjtStage.mjSTAGE_VEL.value
# Every step is given targets and forces anew (zero if none); a world is the rest of its state.
GIVEN = sum(getattr(State, f"mjSTATE_{x}").value for x in ("CTRL", "QFRC_APPLIED", "XFRC_APPLIED"))
KEPT = State.mjSTATE_INTEGRATION.value & ~GIVEN
BAD = "QPOS", "QVEL", "QACC", "CTRL"
FATAL = [int(getattr(mujoco.mjtWarning, f"mjWARN_BAD{field}")) for field in BAD]
# What mj_setConst derives from the fields a task may randomise.
CONSTANTS = (
    "actuator_acc0", "actuator_length0", "body_invweight0", "body_subtreemass", "cam_mat0",
    "cam_pos0", "cam_poscom0", "dof_M0", "dof_invweight0", "geom_aabb", "geom_rbound",
    "light_dir0", "light_pos0", "light_poscom0", "tendon_invweight0", "tendon_length0",
)  # fmt: skip
MAX_BATCHES = 8  # kept per physics: training, evaluation, reset, and some to spare


class Data(NamedTuple):
    row: Array  # [S, 2] uint32: the state by KEPT, each float64 as two words
    out: Array  # [width] all that is read, in the order of `layout`
    images: Readings
    failed: Array  # [] bool


class Native:
    """Physics of `model` for what `spec` reads, on `threads` threads (0: as many as we have)."""

    dear_resets = False

    def __init__(self, model: mujoco.MjModel, spec: TaskSpec, threads: int = 0) -> None:
        self.model, self.spec = model, spec
        self.threads = threads or int(os.environ.get("NPROC", len(os.sched_getaffinity(0))))
        self.size = mujoco.mj_stateSize(model, KEPT)
        given = mujoco.mj_stateSize(model, State.mjSTATE_CTRL.value - 1)  # all the bits below
        self._given = slice(given, given + mujoco.mj_stateSize(model, GIVEN))  # in a whole state
        self.cameras = Cameras(model, spec.cameras, KEPT)
        self._scratch = data = mujoco.MjData(model)  # written whole before it is read
        self.layout = {name: (int(model.sensor(name).dim[0]),) for name in spec.sensors}
        self.layout |= {name: np.shape(getattr(data, name)) for name in spec.fields}
        for name in spec.precise:
            self.layout[f"{name}.rest"] = self.layout[name]
        self.width = sum(math.prod(shape) for shape in self.layout.values())
        # MuJoCo leaves contact forces to who asks; Gymnasium asks after the whole step, so exact
        # parity needs each world's own MjData, and takes a tenth of the time of Ant's step.
        self.post_constraint = "cfrc_ext" in spec.fields
        self._stage = POSITION_AND_VELOCITY if spec.derived == "current" else NOT_COMPUTED
        self._batches: OrderedDict[tuple, mjbatch.Batch] = OrderedDict()
        self._lock = threading.Lock()

    # What callers see: JAX arrays, one world.

    def blank(self) -> Data:
        row = jnp.zeros((self.size, 2), jnp.uint32)
        images = self.cameras.blank() if self.spec.cameras else {}
        return Data(row, jnp.zeros(self.width), images, jnp.bool(False))

    def reset(
        self, data: Data, mask: Array, qpos: Array, qvel: Array, params: ParamsByField,
        settle: int = 0, ctrl: Array | None = None,
    ) -> Data:  # fmt: skip
        first = {"qpos": qpos, "qvel": qvel} | ({} if ctrl is None else {"ctrl": ctrl})
        fresh = self._call(params, self._reset, data.row, mask, first, params, jnp.int32(settle))
        return jax.tree.map(lambda new, old: jnp.where(mask, new, old), fresh, data)

    def step(self, data: Data, inputs: dict[str, Array], params: ParamsByField) -> Data:
        new = self._call(params, self._step, data.row, inputs, params)
        return new._replace(out=jnp.where(new.failed, data.out, new.out))

    def read(self, data: Data) -> Readings:
        reads, start = {}, 0
        for name, shape in self.layout.items():
            size = math.prod(shape)
            reads[name] = data.out[..., start : start + size].reshape(*data.out.shape[:-1], *shape)
            start += size
        return reads | data.images

    def failed(self, data: Data) -> Array:
        return data.failed

    def marks(self, data: Data) -> Metrics:
        return {}

    def qpos(self, data: Data) -> np.ndarray:
        """Poses [..., nq] float64 of fetched data; on the host."""
        row = _rows(data.row, self.size).reshape(*data.row.shape[:-2], self.size)
        return row[..., 1 : 1 + self.model.nq]  # after the time

    def constants(self, params: ParamsByField, mask: Array) -> ParamsByField:
        if not params:
            return {}
        shapes = {
            n: jax.ShapeDtypeStruct(np.shape(getattr(self.model, n)), jnp.float32)
            for n in self._derived(params)
        }
        args = params, mask
        derived = jax.pure_callback(self._constants, shapes, *args, vmap_method="broadcast_all")
        return dict(params) | derived

    def _call(self, params: ParamsByField, host, row: Array, *args) -> Data:
        out = jax.ShapeDtypeStruct((self.width,), jnp.float32), jax.ShapeDtypeStruct((), jnp.bool)
        shapes = jax.ShapeDtypeStruct(row.shape, row.dtype), *out
        row, out, bad = jax.pure_callback(host, shapes, row, *args, vmap_method="broadcast_all")
        images = self.cameras.render(row, params) if self.spec.cameras else {}
        return Data(row, out, images, bad)

    # What runs on the host: numpy only, all worlds at once.

    def _step(self, row, inputs, params):
        lead, row = row.shape[:-2], _rows(row, self.size)
        with self._lock:
            batch = self._load(row, params)
            for name in inputs:
                _fill(batch.bind(name), inputs[name])
            failed = _run(batch, lambda: batch.step(nstep=self.spec.substeps, stage=self._stage))
            out = self._gather(batch, slice(None), post_constraint=self.post_constraint)
            failed |= ~np.isfinite(out).all(1)
            row = np.where(failed[:, None], row, np.delete(batch.state, self._given, axis=1))
        return _words(row, lead), out.reshape(*lead, -1), failed.reshape(lead)

    def _reset(self, row, mask, first, params, settle):
        lead, row = mask.shape, _rows(row, self.size).copy()
        out = np.zeros((len(row), self.width), np.float32)
        failed = np.zeros(len(row), bool)
        ids = np.flatnonzero(np.asarray(mask)).astype(np.int32)
        if len(ids):
            with self._lock:
                batch = self._load(row, params)
                batch.reset(ids, stage=NOT_COMPUTED)
                for name, value in first.items():
                    bound = batch.bind(name)
                    bound[ids] = np.asarray(value).reshape(bound.shape)[ids]
                if nstep := int(np.max(settle)):
                    failed[ids] = _run(batch, lambda: batch.step(ids, nstep=nstep))[ids]
                    batch.bind("time")[ids] = 0
                failed[ids] |= _run(batch, lambda: batch.forward(ids))[ids]
                row[ids] = np.delete(batch.state, self._given, axis=1)[ids]
                row[failed, 0] = np.nan  # no time: a start that is no good fails at its first step
                out[ids] = self._gather(batch, ids, post_constraint=False)
                out[failed] = np.nan_to_num(out[failed], posinf=0, neginf=0)
        return _words(row, lead), out.reshape(*lead, -1), failed.reshape(lead)

    def _constants(self, params, mask):
        lead, ids = mask.shape, np.flatnonzero(np.asarray(mask)).astype(np.int32)
        with self._lock:
            batch = self._batch(math.prod(lead), params, derive=True)
            batch.set_const(ids)
            return {
                n: np.array(batch.expand(n), np.float32).reshape(*lead, *batch.expand(n).shape[1:])
                for n in self._derived(params)
            }

    def _load(self, row: np.ndarray, params) -> mjbatch.Batch:
        """A batch whose every world is its row and its params, whatever ran in it before."""
        batch = self._batch(len(row), params)
        first, last = self._given.start, self._given.stop
        batch.state[:, :first], batch.state[:, last:] = row[:, :first], row[:, first:]
        batch.state[:, self._given] = 0
        return batch

    def _derived(self, params) -> list[str]:
        return [n for n in CONSTANTS if np.size(getattr(self.model, n)) and n not in params]

    def _batch(self, worlds: int, params, derive: bool = False) -> mjbatch.Batch:
        key = (worlds, tuple(sorted(params)), derive)  # what set_const derives stays in its batch
        if key not in self._batches:
            while len(self._batches) >= MAX_BATCHES:
                self._batches.popitem(last=False)
            self._batches[key] = batch = mjbatch.Batch(
                self.model, worlds, self.threads, persistent=self.post_constraint
            )
            for name in (*self.spec.fields, "sensordata"):
                batch.bind(name)  # before the first call: what is bound later reads zero until next
        self._batches.move_to_end(key)
        for name, value in params.items():
            _fill(self._batches[key].expand(name), value)
        return self._batches[key]

    def _gather(self, batch: mjbatch.Batch, ids, post_constraint: bool) -> np.ndarray:
        """Everything read, [worlds, width] float32."""
        columns, worlds = [], np.arange(batch.nsim)[ids]
        for name in self.layout:
            field = name.removesuffix(".rest")
            if name in self.spec.sensors:
                adr, dim = self.model.sensor(name).adr[0], self.model.sensor(name).dim[0]
                value = batch.bind("sensordata")[ids, adr : adr + dim]
            elif field == "cfrc_ext":
                value = self._contact_forces(batch, worlds, post_constraint)
            else:
                value = batch.bind(field)[ids].reshape(len(worlds), -1)
            if name != field:
                value = value - value.astype(np.float32)
            columns.append(value.astype(np.float32))
        return np.concatenate(columns, axis=1) if columns else np.zeros((len(worlds), 0), "f4")

    def _contact_forces(self, batch, worlds, post_constraint: bool) -> np.ndarray:
        """cfrc_ext of each world [worlds, nbody * 6]: zero until a step has been made."""
        out = np.zeros((len(worlds), self.model.nbody * 6))
        for i, world in enumerate(worlds if post_constraint else ()):
            batch.get_data(world, self._scratch)
            mujoco.mj_rnePostConstraint(self.model, self._scratch)
            out[i] = self._scratch.cfrc_ext.ravel()
        return out


def _run(batch: mjbatch.Batch, call: Callable[[], None]) -> np.ndarray:
    """Whether each world [worlds] failed in `call`."""
    # MuJoCo resets a world that blows up and counts a warning, all others at 0; from 1 it neither
    # counts to the same again nor prints.
    batch.warning[:, FATAL, 1] = 1
    with contextlib.suppress(mjbatch.SimulationError):  # told world by world in `status`
        call()
    warned = (batch.warning[:, FATAL, 1] != 1).any(1)
    return warned | (batch.status != 0) | ~np.isfinite(batch.state).all(1)


def _rows(row, size: int) -> np.ndarray:
    """Words [..., S, 2] as float64 rows [worlds, S]."""
    return np.ascontiguousarray(row).reshape(-1, size * 2).view(np.float64)


def _words(row: np.ndarray, lead: tuple[int, ...]) -> np.ndarray:
    return np.ascontiguousarray(row).view(np.uint32).reshape(*lead, -1, 2)


def _fill(bound: np.ndarray, value) -> None:
    bound[...] = np.asarray(value).reshape(bound.shape)
