"""One problem solved by several backends, solvers and Hessians: a table, a CSV file, and a plot of their convergence.

A row shows what ran, not what was asked for: the Hessian, the integrator, the engine.  Rows are comparable where they solve the
same model: the same problem (time steps and cost agree along the guess), the same integrator and the same Hessian as the first
finished row; a row of another model says so, with the reason.  A combination that cannot run is a row with its reason.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.interface.libraries import CompilerError
from dynamics_backends.compiled.interface.sources import TraceError
from dynamics_backends.registry import engine_in_use
from experiments.analysis.derivative_error import REFERENCE, derivative_error
from trajopt import Solution, StatusCode
from trajopt.config.build import build_task, make_ready, solve_task
from trajopt.config.config import Config, ConfigError, read_config
from trajopt.config.other_solver import accepts, carried_over
from trajopt.config.task import Task
from trajopt.results.records import OTHER, PHASES
from trajopt.solvers.registry import SOLVERS
from trajopt.stage.numerics import numerics_for
from trajopt.step.contraction import missing_curvature
from trajopt.validation.validation import InvalidProblem

COLUMNS = (
    "row",
    "problem",
    "backend",
    "engine",
    "integrator",
    "solver",
    "hessian",
    "status",
    "comparable",
    "iterations",
    "final_cost",
    "gradient",
    "violation",
    "derivative_error",
    "time_total",
    *(f"time_{phase}" for phase in (*PHASES, OTHER)),
)
NOTES = "notes"
"""The last column of the CSV file; sentences under the Markdown table."""
IMPOSSIBLE, DEFECT = "not possible", "error"
"""In the place of a status: the combination cannot run, and an exception that nobody foresaw."""
CANNOT_RUN = (ValueError, OSError, ImportError, CompilerError, TraceError)
"""Exceptions that say why a combination cannot run."""
SAME = 1e-6
"""Largest difference of states and costs, relative to max(1, their size), that rounding makes between engines and methods."""


class Variant(NamedTuple):
    """A combination to run. hessian: the one asked for, "" for the solver's own. reason: why it cannot run, or ""."""

    config: Config
    hessian: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Facts:
    """The engine, scheme and solver that one combination ran with.

    engine: "compiled", "numpy", or "compiled in part". integrator: the scheme, its substeps and the hold of the controls.
    hessian: see :class:`~trajopt.results.solution.Solution`. solver: with the methods that ``auto`` has called.
    derivative_error: see :mod:`experiments.analysis.derivative_error`.
    """

    engine: str
    integrator: str
    solver: str
    hessian: str
    derivative_error: float


@dataclass(frozen=True)
class Run:
    """One row. number: from 1 on. solution, facts: None where the combination did not run. comparable: "no" where ``notes`` say how
    the model differs from that of the first finished row. error: an exception that nobody foresaw."""

    number: int
    variant: Variant
    solution: Solution | None = None
    facts: Facts | None = None
    comparable: str = ""
    notes: tuple[str, ...] = ()
    error: Exception | None = field(default=None, compare=False)

    @property
    def key(self) -> tuple[str, str]:
        """Solver with its Hessian, and backend."""
        row = self.row()
        return f"{row['solver']} {row['hessian']}".strip(), row["backend"]

    def row(self) -> dict[str, Any]:
        """The values of :data:`COLUMNS`; times in seconds; gradient of the Lagrangian and violation at the end."""
        config, s, facts = self.variant.config, self.solution, self.facts
        row: dict[str, Any] = dict.fromkeys(COLUMNS, float("nan"))
        row |= {"row": self.number, "problem": Path(config.source).stem, "backend": config.backend.name}
        row["comparable"] = self.comparable
        if s is None or facts is None:
            asked = self.variant.hessian or getattr(config.solver_options, "hessian", "")
            status = IMPOSSIBLE if self.error is None else DEFECT
            engine = engine_in_use(config.backend.engine)
            names = {"engine": engine, "integrator": "", "solver": config.solver_name, "hessian": asked}
            return row | names | {"status": status}
        last = s.history[-1] if s.history else None
        if last is not None:
            row |= {"gradient": last.gradient, "violation": max(last.defect, last.constraint_violation)}
        row |= {"status": str(s.status.code), "iterations": s.iterations, "final_cost": s.cost}
        row["time_total"] = s.meta["solve_time"]
        return row | asdict(facts) | {f"time_{phase}": seconds for phase, seconds in s.time_total.items()}


def with_solver(config: Config, name: str) -> Config:
    """The configuration with another solver. Options that differ from their defaults are kept where it has them too and
    accepts them, but for those that one of the names stands for.

    Raises ConfigError for an unknown solver.
    """
    if name == config.solver_name or name not in SOLVERS:
        return config if name == config.solver_name else _with_options(config, name, {})
    return _with_options(config, name, carried_over(vars(config.solver_options), config.solver_name, name)[0])


def with_hessian(config: Config, hessian: str) -> Config | None:
    """The configuration with another Hessian; None for a solver that does not have it."""
    Options = type(config.solver_options)
    if "hessian" not in {f.name for f in fields(Options)} or not accepts(Options, "hessian", hessian):
        return None
    return _with_options(config, config.solver_name, {**asdict(config.solver_options), "hessian": hessian})


def _with_options(config: Config, solver: str, options: dict[str, Any]) -> Config:
    given = {key: value for key, value in options.items() if value is not None}
    return read_config(config.as_dict() | {"solver": {**given, "name": solver}}, config.source)


def variants(
    config: Config, backends: Sequence[str], solvers: Sequence[str], hessians: Sequence[str] = ()
) -> list[Variant]:
    """Every solver with every Hessian and every backend; empty lists stand for those of the configuration.

    Raises ConfigError for an unknown name, and for a Hessian that none of the solvers has.
    """
    chosen = [Variant(with_solver(config, name)) for name in solvers or [config.solver_name]]
    for hessian in hessians:
        if not any(with_hessian(v.config, hessian) for v in chosen):
            names = ", ".join(v.config.solver_name for v in chosen)
            raise ConfigError(config.source, [f"--hessians: none of the solvers ({names}) has hessian = {hessian!r}"])
    if hessians:
        chosen = [_of_hessian(v.config, hessian) for v in chosen for hessian in hessians]
    methods = backends or [config.backend.name]
    return [v._replace(config=_of_backend(v.config, b)) for v in chosen for b in methods]


def _of_hessian(config: Config, hessian: str) -> Variant:
    found = with_hessian(config, hessian)
    if found is None:
        return Variant(config, hessian, f"solver = {config.solver_name!r} has no hessian = {hessian!r}")
    return Variant(found, hessian)


def _of_backend(config: Config, name: str) -> Config:
    return read_config(config.with_backend(name).as_dict(), config.source)


def first_task(given: Sequence[Variant]) -> Task:
    """The task of the first combination whose problem can be built. Raises what the first one raises where none can."""
    first: Exception | None = None
    for variant in given:
        try:
            return build_task(variant.config)
        except CANNOT_RUN as error:
            first = first or error
    raise first or ValueError("nothing to compare")


def run_all(given: Sequence[Variant]) -> Iterator[Run]:
    """One row for each combination, one after the other.

    Ctrl-C ends them, without the run that was interrupted; an exception in one is a row, and the others follow.
    """
    comparison = _Comparison()
    for number, variant in enumerate(given, 1):
        try:
            run = comparison.run(number, variant)
        except KeyboardInterrupt:  # while building
            return
        if run.solution is not None and run.solution.status.code == StatusCode.INTERRUPTED:
            return
        yield run


class _Comparison:
    """first: the number, task and facts of the first finished row. reference: the problem by the reference's derivatives."""

    def __init__(self) -> None:
        self.first: tuple[int, Task, Facts] | None = None
        self.reference: Task | None = None

    def run(self, number: int, variant: Variant) -> Run:
        """The row of a combination."""
        if variant.reason:
            return Run(number, variant, notes=(variant.reason,))
        config = variant.config
        try:
            try:
                task = build_task(config)
                make_ready(config, task)  # compiling and tracing are not timed
                solution = solve_task(config, task)
            except CANNOT_RUN as error:
                return Run(number, variant, notes=(str(error),))
            if solution.status.code == StatusCode.INTERRUPTED:
                return Run(number, variant, solution)
            facts = self._facts(config, task, solution)
            differences = list(self._differences(task, facts))
        except Exception as error:  # a defect, which is raised once the finished rows are written
            return Run(number, variant, notes=(f"{type(error).__name__}: {error}",), error=error)
        self.first = self.first or (number, task, facts)
        notes = [f"not comparable with row {self.first[0]}: {'; '.join(differences)}"] if differences else []
        comparable = "no" if differences else "yes"
        notes += _remarks(config, task, solution, facts)
        return Run(number, variant, solution, facts, comparable, tuple(notes))

    def _facts(self, config: Config, task: Task, solution: Solution) -> Facts:
        evaluator = numerics_for(task.ocp).evaluator
        steps = [s for s in (phase.dynamics.sampling for phase in task.ocp.phases) if s is not None]
        whole = all(stage.compiled for stage in evaluator.stages[:-1]) and not solution.meta.get("not_compiled")
        numpy = all(step.backend.engine == "numpy" for step in steps)
        engine = "numpy" if numpy else "compiled" if whole else "compiled in part"
        methods = [attempt["solver"] for attempt in solution.meta.get("attempts", ())]
        solver = f"{config.solver_name} ({', '.join(methods)})" if methods else config.solver_name
        hessian = str(solution.meta.get("hessian", ""))
        return Facts(engine, integrator_of(config, task), solver, hessian, self._error(config, task, solution))

    def _error(self, config: Config, task: Task, solution: Solution) -> float:
        """At the solution, or at the guess where that is not finite or has another horizon than the problem (as solutions of
        refined problems may); NaN where the reference cannot run."""
        if self.reference is None:
            try:
                self.reference = build_task(_of_backend(config, REFERENCE).with_engine("numpy"))
            except CANNOT_RUN:
                return float("nan")
        finite = np.isfinite(solution.xs).all() and np.isfinite(solution.us).all()
        xs, us = (solution.xs, solution.us) if finite and len(solution.us) == task.ocp.horizon else task.guess
        return derivative_error(numerics_for(task.ocp).evaluator, self.reference.ocp, np.asarray(xs), np.asarray(us))

    def _differences(self, task: Task, facts: Facts) -> Iterator[str]:
        """The differences from the model of the first finished row."""
        if self.first is None:
            return
        _, first, of_first = self.first
        if facts.hessian != of_first.hessian:
            yield f"Hessian {facts.hessian}, there {of_first.hessian}"
        if facts.integrator != of_first.integrator:
            yield f"integrator {facts.integrator}, there {of_first.integrator}"
        yield from _other_problem(first, task)


def _reason(error: Exception) -> str:
    """The error's message in one line."""
    findings = [f.message for f in error.findings] if isinstance(error, InvalidProblem) else [str(error)]
    return "; ".join(" ".join(message.split()) for message in findings)


def integrator_of(config: Config, task: Task) -> str:
    """The schemes of a problem's time steps, with their substeps where they have several, and the hold of the controls."""
    names: dict[str, None] = {}
    for phase in task.ocp.phases:
        sampling, substeps = phase.dynamics.sampling, getattr(phase.dynamics, "substeps", 1)
        scheme = type(phase.dynamics).__name__ if sampling is None else sampling.scheme
        names[f"{substeps} x {scheme}" if substeps > 1 else scheme] = None
    held = getattr(config.solver_options, "hold", "zero_order") == "zero_order"
    return " + ".join(names) + ("" if held else ", first-order hold")


def _other_problem(first: Task, task: Task) -> Iterator[str]:
    """Differences of a problem from the first one: in its sizes, or in time steps and cost along the first one's guess."""
    one, other = first.ocp, task.ocp
    sizes = [(o.horizon, o.manifold.nx, o.manifold.ndx, o.nu, len(o.phases)) for o in (one, other)]
    if sizes[0] != sizes[1]:
        yield f"the problem has (N, nx, ndx, nu, phases) = {sizes[1]}, there {sizes[0]}"
        return
    xs, us = (np.asarray(part) for part in first.guess)
    with np.errstate(all="ignore"):
        for i, (knots, own, its) in enumerate(zip(one.phase_slices, one.phases, other.phases, strict=True)):
            at = xs[knots], us[knots, : own.dynamics.nu], one.t[knots]
            there = own.dynamics.step(*at, own.dt, own.parameters)
            here = its.dynamics.step(*at, its.dt, its.parameters)
            if (size := _difference(here, there)) > SAME:
                yield f"time steps of phase {i} differ by {size:.1e} along the guess"
        if (size := _difference(other.cost(xs, us), one.cost(xs, us))) > SAME:
            yield f"costs of the guess differ by {size:.1e}"


def _difference(here: Any, there: Any) -> float:
    """The largest difference relative to max(1, size); infinity where only one side is finite, 0 where none is."""
    size = np.abs(np.subtract(here, there)) / np.maximum(1.0, np.abs(there))
    neither = ~(np.isfinite(here) | np.isfinite(there))
    return float(np.where(np.isfinite(size), size, np.where(neither, 0.0, np.inf)).max(initial=0.0))


def _remarks(config: Config, task: Task, solution: Solution, facts: Facts) -> Iterator[str]:
    """Sentences on a Hessian that is not the one asked for, or not the backend's, and on what was not compiled."""
    asked, lacking = getattr(config.solver_options, "hessian", "auto"), missing_curvature(task.ocp)
    if lacking is not None and facts.hessian == "exact":
        yield f"second derivatives come from the source of the dynamics, not from the backend: {lacking}"
    elif lacking is not None and asked == "auto":
        yield f"{config.solver_name} ran with hessian {facts.hessian}: {lacking}"
    yield from solution.meta.get("not_compiled", ())


def markdown(runs: Sequence[Run]) -> str:
    """A Markdown table, and under it the notes on its rows."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(map(_cell, run.row().values())) + " |" for run in runs]
    rows: dict[str, list[int]] = {}
    for run in runs:
        for note in run.notes:
            rows.setdefault(note, []).append(run.number)
    notes = [f"- row{'s' if len(of) > 1 else ''} {', '.join(map(str, of))}: {note}" for note, of in rows.items()]
    return "\n".join([*lines, *(["", *notes] if notes else [])]) + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.6g}"
    return str(value)


def write_csv(path: Path, runs: Sequence[Run]) -> Path:
    """All digits, one row for each run, with its notes in the last column."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, (*COLUMNS, NOTES))
        writer.writeheader()
        writer.writerows(run.row() | {NOTES: "; ".join(run.notes)} for run in runs)
    return path
