"""The result of a solve, and its file.

A file is one ``.npz``: arrays by name, and ``metadata``, a JSON text with status, conventions, options and versions.
Nothing in it is pickled.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.model_data import model_from_data, model_to_data
from trajopt.problem.marks import Marks, marks_from_data, marks_to_data
from trajopt.results.archive import DamagedArchive, ForeignFile, read_archive, write_archive
from trajopt.results.records import NUMBERS, OTHER, PHASES, IterationRecord
from trajopt.results.status import Status

FORMAT = "trajopt.solution"
FORMAT_VERSION = 2
CONVENTIONS = {
    "state": "x = (q, v); q = base position in the world, quaternion x y z w, joints",
    "velocity": "v = linear, angular, joint rates; base velocity in the LOCAL frame of the base",
    "tangent": "x (+) dx perturbs on the right, in the body frame",
    "policy": "u = us + k + K (x (-) xs)",
    "units": "SI, radians",
}
_ARRAYS = ("xs", "us", "K", "k", "times")
_MULTIPLIER = "multiplier: "
"""What the names of multipliers in a file begin with."""


class SolutionFileError(ValueError):
    """A file that is not a solution, or not a whole one."""


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """A trajectory with its feedback policy and the account of how it was found.

    xs (N + 1, nx), us (N, nu), K (N, nu, ndx) feedback gains, k (N, nu) the last feed-forward step, times (N + 1,) [s]: the grid
    of the problem; ``clock`` has the times of the motion, where states tell how long phases last.
    iterations: steps taken. history: one record per iteration. meta: JSON-like; options, solver, backend, digest; "hessian": the
    second derivatives in the quadratic models of the steps, by the same names for all solvers: "exact", of the Lagrangian;
    "exact cost", of the cost alone; "mixed", Gauss and Newton's of the cost with the exact curvature of the time steps;
    "gauss_newton", "scqp", "limited_memory".
    multipliers: by name, where the solver has them: "dynamics" (N, ndx), and (K, nr) of each constraint.
    model: the robot of the problem, if there is one; to be shown, never solved with.
    marks: goals, obstacles and shapes of the problem, to be shown likewise.
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
    marks: Marks | None = None

    @property
    def time_total(self) -> dict[str, float]:
        """Seconds by phase (:data:`trajopt.results.records.PHASES`), those of meta["times_before"] included; with "other", they add
        up to meta["solve_time"], where that is known."""
        before = self.meta.get("times_before", {})
        spent = {phase: before.get(phase, 0.0) + sum(r.times.get(phase, 0.0) for r in self.history) for phase in PHASES}
        if "solve_time" in self.meta:
            spent[OTHER] = self.meta["solve_time"] - sum(spent.values())
        return spent

    @property
    def duration(self) -> float:
        """Duration of the motion [s]: the end of ``times``, or the sum of durations in the states."""
        return float(self.meta.get("duration", self.times[-1]))

    @property
    def clock(self) -> Array:
        """(N + 1,) times of the motion [s]: ``times``, or what durations in its states make of them."""
        told = self.meta.get("clock", ())
        return np.array(told) if len(told) == len(self.times) else self.times

    def report(self) -> str:
        """The text that ``trajopt solve`` prints: status, cost and time, goals, replay, limits, and warnings.

        After a solve with ``check=False`` it has the first lines alone.
        """
        from trajopt.results.report import report

        return report(self)

    def __repr__(self) -> str:
        horizon = f"{len(self.us)} knots, {self.duration:.4g} s"
        return f"Solution({self.status.code}: cost {self.cost:.8g}, {self.iterations} iterations, {horizon})"

    def _repr_html_(self) -> str:
        """What a notebook shows: a table, and the curves of states, controls and convergence."""
        from trajopt.results.summary import Panel, as_html

        meta, nq = self.meta, self.xs.shape[1] if self.model is None else self.model.nq
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
            Panel("positions" if self.model is not None else "states", self.clock, self.xs[:, :nq], names),
            Panel("controls", self.clock[:-1], self.us, list(meta.get("control_names") or ())),
            Panel("convergence by iteration", records[:, 0], records[:, 1:], ("gradient", "defect"), logarithmic=True),
        ]
        return as_html({k: v for k, v in rows.items() if v != ""}, str(self.status), self.status.success, panels)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the file; it appears complete or not at all.

        Raises OSError where it cannot be written, TypeError where ``meta`` holds what JSON and NumPy do not know.
        """
        path = Path(path)
        history = np.array([[getattr(r, n) for n in NUMBERS] for r in self.history], dtype=float)
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays["history"] = history.reshape(len(self.history), len(NUMBERS))
        arrays["cost"] = np.array(self.cost)
        arrays |= {_MULTIPLIER + name: value for name, value in self.multipliers.items()}
        arrays["metadata"] = np.array(json.dumps(self._metadata(), default=_plain))
        write_archive(path, arrays)
        return path

    def _metadata(self) -> dict[str, Any]:
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
            "marks": self._marks_data(),
        }

    def _marks_data(self) -> dict[str, Any] | None:
        """The marks for a file; without shapes, and with a warning, where ``draw`` fails."""
        if self.marks is None:
            return None
        try:
            return marks_to_data(self.marks, self.xs)
        except Exception as error:  # of a user's function: the numbers of the solve are worth more
            warnings.warn(
                f"the file has no shapes to show: draw failed ({type(error).__name__}: {error})", stacklevel=3
            )
            return marks_to_data(replace(self.marks, draw=None), self.xs)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Solution:
        """Read a file written by :meth:`save`.

        Raises FileNotFoundError, or :class:`SolutionFileError` if the file is truncated or of another kind.
        """
        foreign = (
            f"{path} is not a trajopt solution file; give the solution.npz that a solve has written (a run of `trajopt replan` has "
            "animation.html beside it, and --video or --view show one)"
        )
        try:
            found = read_archive(Path(path))
            multipliers = [name for name in found if name.startswith(_MULTIPLIER)]
            arrays = {name: found[name] for name in (*_ARRAYS, "cost", "history", *multipliers)}
            metadata = json.loads(str(found["metadata"]))
        except DamagedArchive as error:
            raise SolutionFileError(f"{path} is not a whole solution file ({error}); solve and save again") from error
        except (ForeignFile, KeyError, ValueError) as error:
            raise SolutionFileError(foreign) from error
        if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
            raise SolutionFileError(f"{path} is no solution file: its metadata do not say {FORMAT!r}")
        if metadata["format_version"] > FORMAT_VERSION:
            newer = f"format {metadata['format_version']}; this version reads up to {FORMAT_VERSION}"
            raise SolutionFileError(f"{path} was written by a newer version ({newer}): update trajopt")
        return cls._assemble(arrays, metadata)

    @classmethod
    def _assemble(cls, arrays: dict[str, Array], metadata: dict[str, Any]) -> Solution:
        hessians = metadata["hessian"] if metadata["format_version"] > 1 else metadata["curvature"]
        rows = zip(arrays["history"], hessians, metadata["phase_times"], strict=True)
        history = []
        for values, hessian, times in rows:
            numbers = dict(zip(metadata["history_columns"], map(float, values), strict=True))
            numbers["iteration"] = int(numbers["iteration"])
            history.append(IterationRecord(**numbers, hessian=hessian, times=times))
        return cls(
            **{name: arrays[name] for name in _ARRAYS},
            cost=float(arrays["cost"]),
            status=Status.from_dict(metadata["status"]),
            iterations=metadata["iterations"],
            history=tuple(history),
            meta=metadata["meta"],
            model=model_from_data(metadata["robot"]) if metadata.get("robot") else None,
            marks=marks_from_data(metadata["marks"]) if metadata.get("marks") else None,
            multipliers={k.removeprefix(_MULTIPLIER): v for k, v in arrays.items() if k.startswith(_MULTIPLIER)},
        )


def _plain(value: Any) -> Any:
    """Numbers and arrays of NumPy as JSON has them. Raises TypeError for what it has not."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(
        f"meta holds a {type(value).__name__}, which a solution file cannot: give numbers, text, lists or dictionaries"
    )


def versions() -> dict[str, str]:
    """Versions of Python, NumPy and trajopt."""
    import platform

    from trajopt import __version__

    return {"python": platform.python_version(), "numpy": np.__version__, "trajopt": __version__}
