"""A flight as a recording of Rerun (rerun.io): each number over time, and the robot as it stood."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rl.artefact import Artefact
from rl.bridge import robots
from rl.bridge.checks import said
from rl.bridge.limiter import STAGES
from rl.bridge.log import moments, steps
from rl.bridge.log.flight import Flight
from rl.bridge.log.moments import Moment
from rl.bridge.tally import CUT
from rl.spec import Spec

if TYPE_CHECKING:
    from rl.bridge.log.poses import Body

Series = tuple[np.ndarray, np.ndarray]  # ticks [n], of all that were lived, and numbers [n]
KINDS = {2: "sphere", 3: "capsule", 4: "ellipsoid", 5: "cylinder", 6: "box"}  # of MuJoCo's geoms
COLOURS = {
    "disconnected": 0x9E9E9EFF, "passive": 0x90A4AEFF, "ready": 0x42A5F5FF, "armed": 0x66BB6AFF,
    "intervene": 0xAB47BCFF, "hold": 0xFFA726FF, "fault": 0xEF5350FF,
}  # fmt: skip


def write(path: Path, found: Flight, body: Artefact | None) -> None:
    """A file that is not there yet, whole or not at all; with the `body` its robot is drawn."""
    try:
        import rerun as rr  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ValueError("A recording needs Rerun: pip install 'robotrl[rerun]'") from None
    spec, codec = found.about.setup.spec, robots.codec(found.about)
    lived = [*moments.moments(found.about.setup, codec, found.rows)]
    clock = np.array([x.row.now for x in lived]), np.array([x.row.number for x in lived])
    partial = path.with_name(f"{path.name}.partial")
    recording = rr.RecordingStream(f"robotrl {spec.name}")
    try:
        recording.save(partial, default_blueprint=_blueprint(spec, body is not None))

        def send(entity: str, ticks: np.ndarray, columns: Any) -> None:
            times = rr.TimeColumn("time", duration=clock[0][ticks])
            number = rr.TimeColumn("tick", sequence=clock[1][ticks])
            recording.send_columns(entity, [times, number], columns)

        for entity, (ticks, numbers) in series(spec, lived).items():
            send(entity, ticks, rr.Scalars.columns(scalars=numbers))
        _tell_states(rr, recording, send, lived)
        if body:
            from rl.bridge.log.poses import Body

            _draw(rr, recording, send, Body(body), lived)
        recording.flush()
    finally:
        recording.disconnect()
    os.replace(partial, path)


def series(spec: Spec, lived: list[Moment]) -> dict[str, Series]:
    """All that are numbers in every tick or in some, by the entity that has them."""
    seen = [i for i, x in enumerate(lived) if x.robot]
    told = [i for i, x in enumerate(lived) if x.row.stages.size]
    wished = [i for i, x in enumerate(lived) if x.moving and x.wish is not None]
    asked = [i for i, x in enumerate(lived) if np.isfinite(x.row.took)]
    readings = {s.name: [x.robot.readings[s.name] for x in lived if x.robot] for s in spec.sensors}
    found: dict[str, Series] = {
        "bridge/late_ms": _series(range(len(lived)), [1e3 * x.row.late for x in lived]),
        "policy/answered_ms": _series(asked, [1e3 * lived[i].row.took for i in asked]),
    }
    for at, motor in enumerate(spec.actuators):
        joint = f"joints/{motor.name}"
        if motor.position:
            found[f"{joint}/measured"] = _series(seen, [x[0] for x in readings.pop(motor.position)])
        if motor.velocity:
            found[f"speeds/{motor.name}"] = _series(
                seen, [x[0] for x in readings.pop(motor.velocity)]
            )
        found[f"{joint}/wished"] = _series(wished, [lived[i].wish[at] for i in wished])  # type: ignore[index]
        for stage, after in enumerate(STAGES):
            name = "told" if stage == len(STAGES) - 1 else f"after_{after.__name__}"
            found[f"{joint}/{name}"] = _series(told, [lived[i].row.stages[stage, at] for i in told])
    for name, values in readings.items():
        for i, numbers in enumerate(zip(*values, strict=True)):
            found[f"sensors/{name}/{i}"] = _series(seen, numbers)
    for i, name in enumerate(steps.names(spec)[1]):
        found[f"command/{name.replace(' ', '_')}"] = _series(
            range(len(lived)), [x.command[i] for x in lived]
        )
    return {name: one for name, one in found.items() if len(one[0])}


def _series(ticks: Any, numbers: Any) -> Series:
    return np.array(ticks, int), np.array(numbers, float)


def _tell_states(rr: Any, recording: Any, send: Any, lived: list[Moment]) -> None:
    """In which state it was, what limited it, why, and what its pilot asked for."""
    names, colours = [*COLOURS], [*COLOURS.values()]
    recording.log("state", rr.StateConfiguration(values=names, colors=colours), static=True)
    for entity, (ticks, words) in texts(lived).items():
        lane = entity in ("state", "limits")
        columns = rr.StateChange.columns(state=words) if lane else rr.TextLog.columns(text=words)
        if words:
            send(entity, np.array(ticks), columns)


def texts(lived: list[Moment]) -> dict[str, tuple[list[int], list[str]]]:
    """By entity, the ticks in which it says something else than before, and what."""
    found = {}
    for entity, each in (
        ("state", [x.row.state for x in lived]),
        ("limits", [said(x.row.mask & CUT) for x in lived]),
        ("reasons", [said(x.row.mask & ~CUT) for x in lived]),
    ):
        new = [i for i, x in enumerate(each) if i == 0 or x != each[i - 1]]
        found[entity] = new, [each[i] for i in new]
    asked = [(i, word) for i, x in enumerate(lived) for word in x.events]
    return found | {"pilot": ([i for i, _ in asked], [word for _, word in asked])}


def _draw(rr: Any, recording: Any, send: Any, body: "Body", lived: list[Moment]) -> None:
    """Its bodies' shapes, and in each period where they are."""
    recording.log("robot", rr.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
    model, shown = body.model, [i for i in range(body.model.nbody) if body.known[i]]
    for geom in range(model.ngeom):
        owner = int(model.geom_bodyid[geom])
        if body.known[owner] and (shape := _shape(rr, model, geom)):
            recording.log(f"robot/{model.body(owner).name}/{geom}", shape, static=True)
    ticks = _periods(lived)
    poses = [body.pose(lived[i].robot.readings) for i in ticks]  # type: ignore[union-attr]
    for i in shown:
        columns = rr.Transform3D.columns(
            translation=np.array([x.position[i] for x in poses]),
            quaternion=np.array([np.roll(x.quat[i], -1) for x in poses]),  # x y z w
        )
        send(f"robot/{model.body(i).name}", ticks, columns)


def _periods(lived: list[Moment]) -> np.ndarray:
    """Ticks in which a robot that speaks is drawn: 25 times a second, or all if there are fewer."""
    found, due = [], -np.inf
    for i, x in enumerate(lived):
        if x.robot and x.row.now >= due:
            found, due = [*found, i], x.row.now + 0.04 - 1e-9
    return np.array(found, int)


def _shape(rr: Any, model: Any, geom: int) -> Any:
    """A geom in its body's frame; None of a plane, and of what has a mesh."""
    size, colour = model.geom_size[geom], (255 * model.geom_rgba[geom]).astype(np.uint8)
    at, quat = model.geom_pos[geom], np.roll(model.geom_quat[geom], -1)
    common: dict[str, Any] = {"quaternions": [quat], "colors": [colour], "fill_mode": "solid"}
    long: dict[str, Any] = {"lengths": [2 * size[1]], "radii": [size[0]], **common}
    match KINDS.get(model.geom(geom).type[0]):
        case "sphere":
            return rr.Ellipsoids3D(half_sizes=[[size[0]] * 3], centers=[at], **common)
        case "capsule":  # which begins at an end there, and at its middle here
            w, x, y, z = model.geom_quat[geom]
            axis = np.array([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x**2 + y**2)])
            return rr.Capsules3D(translations=[at - size[1] * axis], **long)
        case "ellipsoid":
            return rr.Ellipsoids3D(half_sizes=[size], centers=[at], **common)
        case "cylinder":
            return rr.Cylinders3D(centers=[at], **long)
        case "box":
            return rr.Boxes3D(half_sizes=[size], centers=[at], **common)


def _blueprint(spec: Spec, drawn: bool) -> Any:
    import rerun.blueprint as rrb  # pyright: ignore[reportMissingImports]

    joints = [rrb.TimeSeriesView(origin=f"joints/{a.name}", name=a.name) for a in spec.actuators]
    rest = [rrb.TimeSeriesView(origin=x, name=x) for x in ("command", "speeds", "sensors")]
    timing = rrb.TimeSeriesView(contents=["bridge/**", "policy/**"], name="ms")
    state = rrb.StateTimelineView(contents=["state/**", "limits/**"], name="state")
    left = [rrb.Spatial3DView(origin="robot", name="robot")] if drawn else []
    left += [rrb.TextLogView(contents=["pilot/**", "reasons/**"], name="what was said")]
    right = rrb.Vertical(state, rrb.Tabs(*joints, *rest), timing, row_shares=[2, 5, 3])
    return rrb.Blueprint(rrb.Horizontal(rrb.Vertical(*left), right, column_shares=[2, 3]))
