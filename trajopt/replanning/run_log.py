"""Log of a replanning run: ticks, solves, events, statistics, and their files.

A folder contains ``run.npz`` with the arrays, and ``run.json`` with events, settings and statistics.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.manifold import Manifold, group_named
from dynamics_backends.protocol import Array
from dynamics_backends.user_input import parse_json, quoted
from trajopt.replanning.workers import Spell
from trajopt.results.archive import DamagedArchive, read_archive, write_archive, write_atomically

ARRAYS_FILE, RUN_FILE = "run.npz", "run.json"
FORMAT = "trajopt.replanning"
_ARRAYS = ("times", "xs", "estimates", "references", "us", "lags")
PERCENTILES = (50, 95, 99, 100)


class EventKind(StrEnum):
    """Kind of an event in a run.

    | kind | meaning |
    |---|---|
    | "no measurement" | the model predicts the state; one event for each gap |
    | "bad measurement" | a measurement that is not used, such as NaN |
    | "failed solve" | no plan; the last one is tracked |
    | "late plan" | a solve took longer than its deadline |
    | "skipped replanning" | a solve was due while the last one was running |
    | "bad control" | a control that is not finite; the last one is held |
    | "horizon ended" | no time is left to plan |
    | "plant diverged" | the run ends, because the state is not finite or huge |
    | "interrupted" | the user pressed Ctrl-C |
    | "stopped" | ``until`` of the loop returned a reason |
    """

    NO_MEASUREMENT = "no measurement"
    BAD_MEASUREMENT = "bad measurement"
    FAILED_SOLVE = "failed solve"
    LATE_PLAN = "late plan"
    SKIPPED = "skipped replanning"
    BAD_CONTROL = "bad control"
    HORIZON_ENDED = "horizon ended"
    PLANT_DIVERGED = "plant diverged"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"


class Event(NamedTuple):
    """Event of a run: time [s], kind, and message."""

    time: float
    kind: EventKind
    message: str


class Solve(NamedTuple):
    """Record of a solve. start: its start; valid: intended start of its plan; known: when its answer was available, times in [s].

    seconds: duration of the response. success: True if the plan can be executed, also if it was late and dropped; else iterations
    is 0 and cost NaN.
    """

    start: float
    valid: float
    known: float
    seconds: float
    iterations: int
    success: bool
    cost: float


class Tick(NamedTuple):
    """Values at a tick, see :class:`RunLog`. objects: true positions (n,), in the order of the objects."""

    time: float
    x: Array
    estimate: Array
    reference: Array
    u: Array
    lag: float
    objects: Sequence[Array]


@dataclass(eq=False, repr=False)
class RunLog:
    """Log of a run with M ticks.

    tick: control period [s]. times (M,) [s] of the beginnings of ticks; xs (M, nx) true states, estimates (M, nx) of them and
    references (M, nx) of the current plan at these times; us (M, nu) controls applied from then on. objects: true positions (M, n)
    by name. lags (M,): delay of each tick [s]. solves, events: in the order of their recording. spells: see
    :class:`~trajopt.replanning.workers.Spell`. meta: JSON-like. clearances: distance (M,) [m] from an object, by its name.
    manifold: of the states, None if unknown.
    """

    tick: float
    times: Array
    xs: Array
    estimates: Array
    references: Array
    us: Array
    lags: Array
    objects: Mapping[str, Array]
    solves: Sequence[Solve]
    events: Sequence[Event]
    spells: Sequence[Spell]
    meta: Mapping[str, Any] = field(default_factory=dict)
    clearances: Mapping[str, Array] = field(default_factory=dict)
    manifold: Manifold | None = None

    def __repr__(self) -> str:
        failed = sum(not solve.success for solve in self.solves)
        solves = f"{len(self.solves)} solves, {failed} failed"
        return f"RunLog({len(self.times)} ticks of {self.tick:g} s, {solves}, {len(self.events)} events)"

    def count(self, kind: EventKind) -> int:
        """Number of events of a kind."""
        return sum(event.kind == kind for event in self.events)

    def statistics(
        self, manifold: Manifold | None = None, distances: Mapping[str, Array] | None = None
    ) -> dict[str, Any]:
        """Statistics of the run by name: those of :func:`statistics_of`, tracking errors, lag of ticks, and clearances.

        The tracking error is the true state minus the reference, in the tangent space, for positions and velocities of a robot: the
        rms over ticks and entries, and the largest entry. Clearances are reported by minimum and last value. distances: arrays (M,)
        by name, reported by minimum, last value, median and rms. manifold: of the states, default that of the log, or a vector
        space if the log has none.
        """
        manifold = manifold or self.manifold or Manifold.vector(self.xs.shape[1])
        planning = statistics_of(self.solves, self.spells, self.events)
        numbers: dict[str, Any] = {
            **{key: value for key, value in planning.items() if key != "events"},
            **self._tracking_errors(manifold),
            "lag of ticks [ms]": _percentiles(self.lags * 1e3),
            "events": planning["events"],
        }
        clearances = {f"clearance from the {name} [m]": values for name, values in self.clearances.items()}
        for name, values in (clearances | dict(distances or {})).items():
            numbers[name] = {"smallest": float(values.min()), "last": float(values[-1])}
        for name, values in (distances or {}).items():
            numbers[name] |= {"median": float(np.median(values)), "rms": float(np.sqrt(np.mean(values**2)))}
        return numbers

    def _tracking_errors(self, manifold: Manifold) -> dict[str, dict[str, float]]:
        """Rms and largest entry of the tracking error by name, of states with velocities "v[...]" apart for these."""
        off = np.abs(manifold.difference(self.references.T, self.xs.T))
        fast = np.array([name.startswith("v[") for name in manifold.tangent_names])
        parts = {"positions [rad, m]": ~fast, "velocities [rad/s, m/s]": fast} if fast.any() else {"the state": ~fast}
        found = {f"tracking error of {part}": off[rows] for part, rows in parts.items() if rows.any()}
        largest = {name: float(rows.max(initial=0.0)) for name, rows in found.items()}
        scales = {name: max(size, 1.0) for name, size in largest.items()}  # squares of diverged states overflow
        return {
            name: {"rms": scales[name] * float(np.sqrt(((rows / scales[name]) ** 2).mean())), "largest": largest[name]}
            for name, rows in found.items()
        }

    def save(self, folder: str | os.PathLike[str], statistics: Mapping[str, Any] | None = None) -> list[Path]:
        """Write run.npz and run.json to a folder, which is created if needed; returns their paths.

        statistics: written to run.json. Raises OSError if a file cannot be written, TypeError for ``meta`` or statistics that JSON
        cannot represent.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {key: getattr(self, key) for key in _ARRAYS}
        arrays |= {f"object: {name}": value for name, value in self.objects.items()}
        arrays |= {f"clearance: {name}": value for name, value in self.clearances.items()}
        arrays |= {"solves": np.array(self.solves, dtype=float).reshape(len(self.solves), len(Solve._fields))}
        arrays |= {"spells": np.array(self.spells, dtype=float).reshape(len(self.spells), len(Spell._fields))}
        record = {"format": FORMAT, "tick": self.tick, "meta": dict(self.meta), "statistics": dict(statistics or {})}
        if self.manifold is not None:
            record["groups"] = [[group.name, group.nq] for group in self.manifold.groups]
        record["events"] = [[event.time, str(event.kind), event.message] for event in self.events]
        text = json.dumps(record, indent=1).encode()
        files = [folder / ARRAYS_FILE, folder / RUN_FILE]
        write_archive(files[0], arrays)
        write_atomically(files[1], lambda file: file.write(text))
        return files

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> RunLog:
        """Read a log written by :meth:`save`, without its statistics.

        Raises OSError if a file cannot be read, ValueError for other or damaged files.
        """
        folder = Path(folder)
        try:
            record = parse_json((folder / RUN_FILE).read_text(encoding="utf-8"))
            if record["format"] != FORMAT:
                raise ValueError(f"the format is {record['format']!r}")
            return cls._assemble(record, read_archive(folder / ARRAYS_FILE))
        except DamagedArchive as error:
            raise ValueError(f"{folder / ARRAYS_FILE} is incomplete or damaged ({error}); run it again") from error
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            advice = "use the output folder of `trajopt replan`"
            raise ValueError(f"{folder} contains no replanning run, or a modified one; {advice}") from error

    @classmethod
    def _assemble(cls, record: Mapping[str, Any], arrays: Mapping[str, Array]) -> RunLog:
        """Log from the record and the arrays of its files. Raises ValueError, KeyError or TypeError if these are inconsistent."""
        _check_shapes(arrays)
        if not isinstance(record["meta"], dict) or not 0.0 < float(record["tick"]) < np.inf:
            raise ValueError("its meta is not a table, or its tick is not a duration")
        solves = [Solve(a, b, c, d, int(e), bool(f), g) for a, b, c, d, e, f, g in arrays["solves"].tolist()]
        spells = [Spell(*(int(v) for v in row[:3]), *row[3:]) for row in arrays["spells"].tolist()]
        objects, clearances = (
            {key.removeprefix(kind): values for key, values in arrays.items() if key.startswith(kind)}
            for kind in ("object: ", "clearance: ")
        )
        events = [Event(t, EventKind(kind), message) for t, kind, message in record["events"]]
        return cls(
            record["tick"],
            **{key: arrays[key] for key in _ARRAYS},
            objects=objects,
            clearances=clearances,
            solves=solves,
            events=events,
            spells=spells,
            meta=record["meta"],
            manifold=Manifold([group_named(*group) for group in record["groups"]]) if "groups" in record else None,
        )


def _check_shapes(arrays: Mapping[str, Array]) -> None:
    """Check that the arrays by tick of a run are numeric, with one number of ticks, at least 1, and one size of states.

    Raises ValueError if they are not. Other arrays, such as "solves", are not checked.
    """
    ticks = arrays["times"].shape
    for name, values in arrays.items():
        axes = {"times": 1, "lags": 1, "xs": 2, "estimates": 2, "references": 2, "us": 2}.get(name)
        of_ticks = axes is not None or name.startswith(("object: ", "clearance: "))
        if not of_ticks:
            continue
        if values.dtype.kind not in "fiu" or values.ndim != (axes or values.ndim):
            raise ValueError(f"{quoted(name)} has shape {values.shape} and type {values.dtype}")
        if values.shape[:1] != ticks:
            raise ValueError(f"{quoted(name)} has {values.shape[:1]} ticks, and the run {ticks}")
    if not ticks[0] or not arrays["xs"].shape == arrays["estimates"].shape == arrays["references"].shape:
        raise ValueError("the run has no ticks, or states of different sizes")


class RunRecorder:
    """Record of a running run. recent: number of latest ticks, solves and events to store, default all."""

    def __init__(self, recent: int | None = None) -> None:
        self.ticks: deque[Tick] = deque(maxlen=recent)
        self.solves: deque[Solve] = deque(maxlen=recent)
        self.events: deque[Event] = deque(maxlen=recent)

    def event(self, t: float, kind: EventKind, message: str) -> None:
        """Record an event at t [s]."""
        self.events.append(Event(t, kind, message))

    def log(self, tick: float, names: Sequence[str], spells: Sequence[Spell], manifold: Manifold) -> RunLog:
        """Log of the run so far, of what is stored. tick: control period [s]. names: names of the objects, in their order.

        Raises ValueError for a run without ticks.
        """
        if not self.ticks:
            raise ValueError("the run has no ticks; give a duration of at least one tick")
        *columns, objects = zip(*self.ticks, strict=True)
        by_name = {name: np.array(column) for name, column in zip(names, zip(*objects, strict=True), strict=True)}
        times, xs, estimates, references, us, lags = (np.array(column) for column in columns)
        held = times, xs, estimates, references, us, lags, by_name
        return RunLog(tick, *held, list(self.solves), list(self.events), spells, manifold=manifold)


def statistics_of(solves: Iterable[Solve], spells: Iterable[Spell], events: Iterable[Event]) -> dict[str, Any]:
    """Statistics of planning by name: numbers of solves, failed ones, late plans and skipped solves, and of events by kind.

    Also percentiles of the milliseconds of responses and preparations, and of the iterations of solves that gave a plan.
    """
    solves, kinds = list(solves), [event.kind for event in events]
    return {
        "solves": len(solves),
        "failed": sum(not s.success for s in solves),
        "late": kinds.count(EventKind.LATE_PLAN),
        "skipped": kinds.count(EventKind.SKIPPED),
        "response [ms]": _percentiles(np.array([s.seconds for s in solves]) * 1e3),
        "preparation [ms]": _percentiles(np.array([s.prepare for s in spells]) * 1e3),
        "iterations": _percentiles(np.array([s.iterations for s in solves if s.success])),
        "events": {str(kind): kinds.count(kind) for kind in EventKind if kind in kinds},
    }


def _percentiles(values: Array) -> dict[str, float]:
    """Percentiles by name (p50, p95, p99, max); empty without values."""
    if not len(values):
        return {}
    names = [f"p{p}" if p < 100 else "max" for p in PERCENTILES]
    return dict(zip(names, map(float, np.percentile(values, PERCENTILES)), strict=True))
