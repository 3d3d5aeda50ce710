"""Solution of a solve, and its file.

A file is an ``.npz`` archive: arrays by name, and ``metadata``, a JSON text with status, conventions, options and versions.
It contains no pickled objects.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.model_data import model_from_data, model_to_data
from dynamics_backends.user_input import InputError, parse_json, quoted
from trajopt.problem.annotations import Annotations, annotations_from_data, annotations_to_data
from trajopt.results.archive import (
    ARRAYS,
    MULTIPLIER,
    ForeignFile,
    check_arrays,
    check_metadata,
    check_times,
    read_archive,
    status_from_data,
    write_archive,
)
from trajopt.results.records import NUMBERS, OTHER, PHASES, IterationRecord
from trajopt.results.status import Status, StatusCode, iterations_text

FORMAT = "trajopt.solution"
FORMAT_VERSION = 2
LAST_CONTROL = "last_control"
"""Key of ``meta`` with the control (nu,) at the last knot, for interpolated controls (first-order hold)."""
CONVENTIONS = {
    "state": "x = (q, v); q = base position in the world, quaternion x y z w, joints",
    "velocity": "v = linear, angular, joint rates; base velocity in the LOCAL frame of the base",
    "tangent": "x (+) dx perturbs on the right, in the body frame",
    "policy": "u = us + K (x (-) xs), within the bounds on u; k is the last feed-forward step of the solver, not part of it",
    "units": "SI, radians",
}


class SolutionFileError(InputError):
    """Error for a file that is not a solution file, or is incomplete or damaged."""


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """Trajectory with its feedback policy, status and iteration history.

    xs (N + 1, nx), us (N, nu), k (N, nu) the last feed-forward step, times (N + 1,) [s] of the states, computed from the durations
    in the states if phase durations are free. K (N, nu, ndx): gains of the feedback u = us + K (x (-) xs), clipped to the bounds of
    the controls. Shooting solvers return those of the last backward pass, with the penalties of constraints, and zero for controls
    on a bound: derivatives of the optimal controls, exact for ``ddp`` without constraints. Those of the direct solvers, also if
    ``auto`` has chosen one, are of an LQR that tracks the trajectory (:func:`~trajopt.tracking_gains`). It omits bounds and
    constraints: a control on a bound leaves it if the state asks for it. iterations: steps taken. history: one record
    per iteration, for some solvers also one of the solution. meta: JSON-like; options, solver, backend, digest; "hessian": second
    derivatives in the quadratic models of the steps, with the same names for all solvers: "exact" (of the Lagrangian), "exact
    cost" (of the cost alone), "mixed" (Gauss-Newton for the cost with the exact curvature of the time steps), "gauss_newton",
    "scqp", "limited_memory"; for ipm "barrier_strategy" at the end, and "monotone_since", the iteration at which an adaptive
    barrier became monotone for lack of progress. multipliers: by name, if the solver has them: "dynamics" (N, ndx), (K, nr) of
    each constraint, "terminal NAME" at the final knot, "bounds on x" (N + 1, ndx) and "bounds on u" (N, nu). model: robot of the
    problem, if any, for viewers. annotations: goals, obstacles and shapes of the problem, for viewers. problem: the solved
    :class:`~trajopt.OCP`; None for a solution from a file, a batch, another process or a real-time planner.
    """

    xs: Array
    us: Array
    K: Array
    k: Array
    status: Status
    cost: float
    iterations: int
    history: tuple[IterationRecord, ...]
    times: Array
    meta: Mapping[str, Any] = field(default_factory=dict)
    multipliers: Mapping[str, Array] = field(default_factory=dict)
    model: Model | None = None
    annotations: Annotations | None = None
    problem: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """State without the problem, whose functions may not be picklable."""
        return {**vars(self), "problem": None}

    @property
    def time_total(self) -> dict[str, float]:
        """Seconds by phase (:data:`trajopt.results.records.PHASES`), including those of meta["times_before"].

        If meta["solve_time"] is known, "other" contains the remaining time.
        """
        before = self.meta.get("times_before", {})
        spent = {phase: before.get(phase, 0.0) + sum(r.times.get(phase, 0.0) for r in self.history) for phase in PHASES}
        if "solve_time" in self.meta:
            spent[OTHER] = self.meta["solve_time"] - sum(spent.values())
        return spent

    @property
    def duration(self) -> float:
        """Duration of the motion [s]: the end of ``times``."""
        return float(self.times[-1])

    def report(self) -> str:
        """Text that ``trajopt solve`` prints: status, cost and time, goals, replay, limits, and warnings.

        After a solve with ``check=False`` it has no results of checks. Self-collision is checked now if the other checks were made
        without it; the first check of a robot reads its meshes, which may take seconds.
        """
        from trajopt.results.report import report

        return report(self.with_self_collision())

    def with_self_collision(self) -> Solution:
        """Copy with the result of the self-collision check at its knots in ``meta``.

        Unchanged if the solve made that check or no checks at all, and without a robot.
        """
        from trajopt.collisions.self_collision import NOT_CHECKED, check_self_collision

        if self.meta.get("self_collision") != NOT_CHECKED or self.model is None:
            return self
        check = check_self_collision(self.model, self.model.configuration_of(self.xs))
        collisions = [
            {
                "sentence": c.sentence(float(self.times[c.knot])),
                "enforced": False,
                "kind": "self-collision",
                "excess": c.depth,
                "short": f"{' and '.join(c.links)} by {c.depth:.3g} m",
            }
            for c in check.collisions
        ]
        meta = {**self.meta, "self_collision": check.note, "limits": [*self.meta.get("limits", ()), *collisions]}
        return replace(self, meta=meta)

    def __repr__(self) -> str:
        horizon = f"{len(self.us)} knots, {self.duration:.4g} s"
        return f"Solution({self.status.code}: cost {self.cost:.8g}, {iterations_text(self.iterations)}, {horizon})"

    def _repr_html_(self) -> str:
        """HTML for notebooks: a table, and plots of states (of a robot only its positions), controls and convergence."""
        from trajopt.results.report import Panel, as_html

        meta, shown = self.meta, self.xs if self.model is None else self.model.configuration_of(self.xs)
        names = list(meta.get("state_names") or ()) if self.model is None else list(self.model.q_names)
        rows = {
            "problem": meta.get("problem", ""),
            "solver": ", ".join(filter(None, [meta.get("solver"), *meta.get("backends", ())])),
            "cost": f"{self.cost:.8g}",
            "iterations": self.iterations,
            "solve time": f"{1e3 * meta['solve_time']:.1f} ms" if "solve_time" in meta else "",
            "horizon": f"{len(self.us)} knots, {self.duration:.4g} s",
        }
        records = np.array([[r.iteration, r.gradient, r.defect] for r in self.history], dtype=float).reshape(-1, 3)
        panels = [
            Panel("positions" if self.model is not None else "states", self.times, shown, names),
            Panel("controls", self.times[:-1], self.us, list(meta.get("control_names") or ())),
            Panel("convergence by iteration", records[:, 0], records[:, 1:], ("gradient", "defect"), logarithmic=True),
        ]
        return as_html({k: v for k, v in rows.items() if v != ""}, str(self.status), self.status.success, panels)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the solution file atomically, and return its path.

        Raises OSError if it cannot be written, TypeError if ``meta`` contains values that JSON and NumPy cannot represent.
        """
        path = Path(path)
        history = np.array([[getattr(r, n) for n in NUMBERS] for r in self.history], dtype=float)
        arrays = {name: getattr(self, name) for name in ARRAYS}
        arrays["history"] = history.reshape(len(self.history), len(NUMBERS))
        arrays["cost"] = np.array(self.cost)
        arrays |= {MULTIPLIER + name: value for name, value in self.multipliers.items()}
        arrays["metadata"] = np.array(json.dumps(self._metadata(), default=_plain))
        write_archive(path, arrays)
        return path

    def _metadata(self) -> dict[str, Any]:
        """Metadata of a file as JSON values: everything except the arrays."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "status": self.status.to_dict(),
            "iterations": self.iterations,
            "history_columns": NUMBERS,
            "hessian": [r.hessian for r in self.history],
            "phase_times": [r.times for r in self.history],
            "conventions": CONVENTIONS,
            "versions": versions(),
            "meta": dict(self.meta),
            "robot": None if self.model is None else model_to_data(self.model),
            "marks": self._annotations_data(),
        }

    def _annotations_data(self) -> dict[str, Any] | None:
        """Annotations for a file, or None without any; without shapes, and with a warning, if ``draw`` fails."""
        if self.annotations is None:
            return None
        try:
            return annotations_to_data(self.annotations, self.xs)
        except Exception as error:  # a failing user function must not prevent saving
            warnings.warn(f"the file contains no shapes: draw failed ({type(error).__name__}: {error})", stacklevel=3)
            return annotations_to_data(replace(self.annotations, draw=None), self.xs)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Solution:
        """Read a file written by :meth:`save`.

        Raises OSError, and :class:`SolutionFileError` for a file that is damaged, incomplete or of another kind.
        """
        try:
            arrays = read_archive(Path(path))
            check_arrays(arrays)
            metadata = parse_json(str(arrays["metadata"]))
            if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
                raise SolutionFileError(f"{path} is not a solution file: its metadata lack the format {FORMAT!r}")
            version: Any = metadata.get("format_version")
            if type(version) is not int or version < 1:
                raise ValueError(f"its format version is {quoted(version)}")
            if version > FORMAT_VERSION:
                newer = f"format {version}; this version reads up to {FORMAT_VERSION}"
                raise SolutionFileError(f"{path} was written by a newer version ({newer}): update trajopt")
            if version == 1:
                metadata["hessian"] = metadata.get("curvature")
            check_metadata(metadata)
            return cls._assemble(arrays, metadata)
        except SolutionFileError:
            raise
        except ForeignFile as error:
            raise SolutionFileError(
                f"{path} is not a trajopt solution file; give the solution.npz of a solve (runs of `trajopt replan` have an "
                "animation.html; see --video and --view)"
            ) from error
        except ValueError as error:
            raise SolutionFileError(
                f"{path} is an incomplete or damaged solution file ({error}); solve and save again"
            ) from error

    @classmethod
    def _assemble(cls, arrays: Mapping[str, Array], metadata: dict[str, Any]) -> Solution:
        """Solution from arrays and checked metadata. Raises ValueError if these are inconsistent."""
        numbers = {key: np.asarray(value, float) for key, value in arrays.items() if value.dtype.kind in "fiu"}
        clock = metadata["meta"].pop("clock", ())  # in files of versions whose times were those of the grid
        if len(clock) == len(numbers["times"]):
            numbers["times"] = np.array(clock)
        check_times(numbers["times"])
        model = _built(model_from_data, metadata.get("robot"), "robot")
        if model is not None and numbers["xs"].shape[1] < len(model.independent_q):
            raise ValueError(
                f"its states have {numbers['xs'].shape[1]} entries, and its robot has {len(model.independent_q)} coordinates"
            )
        return cls(
            **{name: numbers[name] for name in ARRAYS},
            cost=float(numbers["cost"]),
            status=status_from_data(metadata["status"]),
            iterations=metadata["iterations"],
            history=_history(numbers["history"], metadata),
            meta=metadata["meta"],
            model=model,
            annotations=_built(annotations_from_data, metadata.get("marks"), "goals and obstacles"),
            multipliers={k.removeprefix(MULTIPLIER): v for k, v in numbers.items() if k.startswith(MULTIPLIER)},
        )


def uninterrupted(solution: Solution) -> Solution:
    """Return the solution unchanged. Raises KeyboardInterrupt if Ctrl-C ended its solve."""
    if solution.status.code is StatusCode.INTERRUPTED:
        raise KeyboardInterrupt
    return solution


def _built(build: Callable[[Any], Any], data: Any, what: str) -> Any:
    """Object built from checked metadata; None without any. Raises ValueError, with ``what`` in its message, if that fails."""
    if not data:
        return None
    try:
        return build(data)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"its {what} cannot be read: {error}") from error


def _history(values: Array, metadata: Mapping[str, Any]) -> tuple[IterationRecord, ...]:
    """Records from checked metadata; values: (records, columns).

    Raises ValueError for other columns or row counts, and for an iteration number that is not finite.
    """
    columns, hessians, times = metadata["history_columns"], metadata["hessian"], metadata["phase_times"]
    if not _NEEDED <= set(columns) <= set(NUMBERS) or len(set(columns)) < len(columns):
        raise ValueError(f"the columns of its history are {quoted(columns)}")
    if values.shape != (len(times), len(columns)) or len(hessians) != len(times):
        shape = f"{values.shape} for {len(times)} and {len(hessians)} records of {len(columns)} columns"
        raise ValueError(f"its history has shape {shape}")
    if not np.isfinite(values[:, columns.index("iteration")]).all():
        raise ValueError("an iteration number of its history is not finite")
    history = []
    for row, hessian, seconds in zip(values.tolist(), hessians, times, strict=True):
        numbers = dict(zip(columns, row, strict=True))
        numbers["iteration"] = int(numbers["iteration"])
        history.append(IterationRecord(**numbers, hessian=hessian, times=seconds))
    return tuple(history)


_NEEDED = {f.name for f in fields(IterationRecord) if f.name in NUMBERS and f.default is MISSING}
"""Columns that every history must have."""


def _plain(value: Any) -> Any:
    """Convert NumPy numbers and arrays for JSON. Raises TypeError for other types."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(
        f"meta contains a {type(value).__name__}, which a solution file cannot store; use numbers, text, lists or dictionaries"
    )


def versions() -> dict[str, str]:
    """Versions of Python, NumPy and trajopt."""
    import platform

    from trajopt import __version__

    return {"python": platform.python_version(), "numpy": np.__version__, "trajopt": __version__}
