"""Compare backends, solvers and Hessians on one problem: a table, a CSV file, and a convergence plot.

A row reports the Hessian, integrator and engine that ran, which may differ from those requested. A combination that cannot run is
a row with the reason.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from dynamics_backends.extensions import Registry
from dynamics_backends.methods.symbolic_map import TraceError
from dynamics_backends.names import UnknownName
from dynamics_backends.registry import METHODS, engine_in_use
from trajopt.comparison.check_derivatives import REFERENCE, derivative_error
from trajopt.guesses.guesses import constant_guess
from trajopt.problem.guess import Guess, Motion, as_guess
from trajopt.problem.ocp import OCP
from trajopt.results.records import OTHER, PHASES
from trajopt.results.solution import Solution
from trajopt.results.status import StatusCode
from trajopt.solvers.options import accepts
from trajopt.solvers.prepare import prepare
from trajopt.solvers.registry import chosen_options, solver_options
from trajopt.solvers.solve import solve
from trajopt.stage.evaluators import evaluator_for
from trajopt.step.other_backend import BackendChoice, with_backend
from trajopt.step.sensitivities import missing_curvature
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
    "iterations",
    "final_cost",
    "gradient",
    "violation",
    "derivative_error",
    "time_total",
    *(f"time_{phase}" for phase in (*PHASES, OTHER)),
)
NOTES = "notes"
"""Name of the last column of the CSV file; in Markdown, the notes are sentences under the table."""
IMPOSSIBLE, DEFECT = "not possible", "error"
"""Statuses of rows without a solution: the combination cannot run (IMPOSSIBLE), or an unexpected exception was raised."""
CANNOT_RUN = (ValueError, OSError, ImportError, TraceError)
"""Exceptions that, raised while a problem is built or solved, mean that the combination cannot run."""
PLOTS: Registry[Any] = Registry("plot", "plots")
"""Registered plots, from packages above this one. "comparison": function of a path, histories by :attr:`Run.key`, and a title,
which writes the plot and returns its path."""


class PosedProblem(Protocol):
    """A problem with its initial guess."""

    @property
    def ocp(self) -> OCP: ...
    @property
    def guess(self) -> Guess: ...


class _Posed(NamedTuple):
    """A problem of a script with its initial guess."""

    ocp: OCP
    guess: Guess


@dataclass(frozen=True)
class Variant:
    """A combination to run. problem: name of the problem. backend, engine, solver: names. options: options of the solver.

    posed: returns the problem with this variant's backend and its initial guess, and raises the errors of its construction.
    solved: returns the solution of such a problem; functions are traced before the timed solve. reference: returns
    the problem with derivatives by complex step in NumPy, the reference for errors of derivatives. hessian: requested Hessian, ""
    for that of the options. reason: why the combination cannot run, or "".
    """

    problem: str
    backend: str
    engine: str
    solver: str
    options: Any
    posed: Callable[[], PosedProblem]
    solved: Callable[[Any], Solution]
    reference: Callable[[], OCP]
    hessian: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Components:
    """Engine, integrator, solver and Hessian that a combination ran with, and the error of its derivatives.

    engine: "numpy" if all backends request it, else "compiled", or "compiled in part" if a phase or a part of it ran in NumPy.
    integrator: scheme, substeps and control hold. hessian: see :class:`~trajopt.results.solution.Solution`. solver: name, with
    the methods that ``auto`` ran. derivative_error: see :func:`~trajopt.comparison.check_derivatives.derivative_error`; NaN
    without a reference.
    """

    engine: str
    integrator: str
    solver: str
    hessian: str
    derivative_error: float


@dataclass(frozen=True)
class Run:
    """One row. number: starts at 1. solution, facts: None if the combination did not run or an exception was raised; facts are
    None also after an interrupt. error: an unexpected exception."""

    number: int
    variant: Variant
    solution: Solution | None = None
    facts: Components | None = None
    notes: tuple[str, ...] = ()
    error: Exception | None = field(default=None, compare=False)

    @property
    def key(self) -> tuple[str, str]:
        """Solver with its Hessian, and backend: names of a row in plots."""
        row = self.row()
        return f"{row['solver']} {row['hessian']}".strip(), row["backend"]

    def row(self) -> dict[str, Any]:
        """Return the values of :data:`COLUMNS` by name.

        Times are in seconds. gradient (of the Lagrangian) and violation (the larger one of defects and constraints) are those of
        the last record of the history, NaN without one. Without facts the row has the requested solver, engine and Hessian, the
        status IMPOSSIBLE or DEFECT, no integrator (""), and NaN for all numbers.
        """
        variant, s, facts = self.variant, self.solution, self.facts
        row: dict[str, Any] = dict.fromkeys(COLUMNS, float("nan"))
        row |= {"row": self.number, "problem": variant.problem, "backend": variant.backend}
        if s is None or facts is None:
            asked = variant.hessian or getattr(variant.options, "hessian", "")
            status = IMPOSSIBLE if self.error is None else DEFECT
            engine = engine_in_use(variant.engine)
            names = {"engine": engine, "integrator": "", "solver": variant.solver, "hessian": asked}
            return row | names | {"status": status}
        last = s.history[-1] if s.history else None
        if last is not None:
            row |= {"gradient": last.gradient, "violation": max(last.defect, last.constraint_violation)}
        row |= {"status": str(s.status.code), "iterations": s.iterations, "final_cost": s.cost}
        row["time_total"] = s.meta["solve_time"]
        return row | asdict(facts) | {f"time_{phase}": seconds for phase, seconds in s.time_total.items()}


def variants_of(
    ocp: OCP,
    guess: Guess,
    backends: Sequence[BackendChoice],
    solvers: Sequence[str],
    hessians: Sequence[str],
    options: Mapping[str, Mapping[str, Any]],
) -> list[Variant]:
    """Return the combinations of every solver with every Hessian and every backend for an OCP, in this order of nesting.

    No backends: those of the OCP; no solvers: the default one; no Hessians: those of the solvers. A Hessian that a solver lacks
    gives a variant with the reason. options: by solver; those of solvers that are not compared are ignored. Raises as
    :func:`compare`.
    """
    samplings = [s for s in (phase.dynamics.sampling for phase in ocp.phases) if s is not None]
    own = " + ".join(dict.fromkeys(s.backend.name for s in samplings)) or type(ocp.phases[0].dynamics).__name__
    engine = samplings[0].backend.engine if samplings else "numpy"
    names = solvers or [chosen_options(None, None)[0]]
    given = with_hessians([(name, solver_options(name, **options.get(name, {}))) for name in names], hessians)
    found: list[Variant] = []
    for solver, chosen, hessian, reason in given:
        choices: Sequence[BackendChoice | None] = backends or [None]
        for choice in choices:
            table = {"name": choice} if isinstance(choice, str) else dict(choice or {"name": own})
            if "name" not in table:
                raise ValueError(f"a backend has no name: {table}; give a name, or a mapping with the key 'name'")
            if choice is not None:
                METHODS[table["name"]]  # raises UnknownName
            names = ocp.name, table["name"], table.get("engine", engine), solver, chosen
            posed, solved = partial(_posed, ocp, guess, choice), partial(_solved, solver, chosen)
            exact = partial(with_backend, ocp, {"name": REFERENCE, "engine": "numpy"})
            found.append(Variant(*names, posed, solved, exact, hessian, reason))
    return found


def _posed(ocp: OCP, guess: Guess, choice: BackendChoice | None) -> _Posed:
    """Return the problem under the chosen backend (None: those of the problem) with its guess."""
    return _Posed(ocp if choice is None else with_backend(ocp, choice), guess)


def _solved(solver: str, options: Any, posed: PosedProblem) -> Solution:
    """Trace the functions that the solver calls, then solve the problem; returns the solution."""
    prepare(posed.ocp, posed.guess, options, solver)
    return solve(posed.ocp, posed.guess, options, solver=solver)


def with_hessians(chosen: Sequence[tuple[str, Any]], hessians: Sequence[str]) -> list[tuple[str, Any, str, str]]:
    """Combine solvers and their options with Hessians: solver, options, Hessian, and the reason why it lacks this Hessian, or "".

    No Hessians: the options as they are. Raises UnknownName for a Hessian that no solver has.
    """
    found = []
    for solver, options in chosen:
        for hessian in hessians or [""]:
            has = not hessian or has_hessian(type(options), hessian)
            own = replace(options, hessian=hessian) if hessian and has else options
            found.append((solver, own, hessian, "" if has else f"solver = {solver!r} has no hessian = {hessian!r}"))
    for hessian in hessians:
        if all(reason for _, _, asked, reason in found if asked == hessian):
            names = ", ".join(dict.fromkeys(solver for solver, _ in chosen))
            raise UnknownName(f"none of the solvers ({names}) has hessian = {hessian!r}")
    return found


def has_hessian(kind: Any, hessian: str) -> bool:
    """True if an options class has an option ``hessian`` that accepts this value."""
    return "hessian" in {f.name for f in fields(kind)} and accepts(kind, "hessian", hessian)


def run_all(variants: Sequence[Variant]) -> Iterator[Run]:
    """Run the combinations one after the other and yield a row for each.

    Ctrl-C ends the comparison without the interrupted row. An exception in one combination becomes a row with its message.
    """
    comparison = _Comparison()
    for number, variant in enumerate(variants, 1):
        try:
            run = comparison.run(number, variant)
        except KeyboardInterrupt:  # while building the problem
            return
        if run.solution is not None and run.solution.status.code == StatusCode.INTERRUPTED:
            return
        yield run


class _Comparison:
    """State of a comparison. exact: problem with reference derivatives, None until it is built."""

    def __init__(self) -> None:
        self.exact: OCP | None = None

    def run(self, number: int, variant: Variant) -> Run:
        """Solve one variant (problem, backend and solver) and return its row of the table; number: that of the row.

        A variant that cannot run (CANNOT_RUN), or raises another exception, gives a row with the reason; the other exception is
        stored in the row's ``error``. An interrupted solve gives a row without facts. Raises KeyboardInterrupt outside of a
        solve.
        """
        if variant.reason:
            return Run(number, variant, notes=(variant.reason,))
        try:
            try:
                posed = variant.posed()
                solution = variant.solved(posed)
            except CANNOT_RUN as error:
                return Run(number, variant, notes=(_reason(error),))
            if solution.status.code == StatusCode.INTERRUPTED:
                return Run(number, variant, solution)
            facts = self._components(variant, posed, solution)
        except Exception as error:  # unexpected; raised after the finished rows are written
            return Run(number, variant, notes=(f"{type(error).__name__}: {error}",), error=error)
        return Run(number, variant, solution, facts, tuple(_remarks(variant, posed.ocp, solution, facts)))

    def _components(self, variant: Variant, posed: PosedProblem, solution: Solution) -> Components:
        """Return the engine, integrator, solver and Hessian that ran, and the error of the backend's derivatives."""
        ocp = posed.ocp
        stages = getattr(evaluator_for(ocp), "stages", [])
        steps = [s for s in (phase.dynamics.sampling for phase in ocp.phases) if s is not None]
        whole = all(stage.compiled for stage in stages[:-1]) and not solution.meta.get("not_compiled")
        numpy = all(step.backend.engine == "numpy" for step in steps)
        engine = "numpy" if numpy else "compiled" if whole else "compiled in part"
        methods = [attempt["solver"] for attempt in solution.meta.get("attempts", ())]
        solver = f"{variant.solver} ({', '.join(methods)})" if methods else variant.solver
        hessian = str(solution.meta.get("hessian", ""))
        return Components(
            engine, integrator_of(ocp, variant.options), solver, hessian, self._error(variant, posed, solution)
        )

    def _error(self, variant: Variant, posed: PosedProblem, solution: Solution) -> float:
        """Return the derivative error along the solution; NaN if the problem with reference derivatives cannot be built.

        Along the guess if the solution is not finite or has another horizon, as in refined problems.
        """
        if self.exact is None:
            try:
                self.exact = variant.reference()
            except CANNOT_RUN:
                return float("nan")
        finite = np.isfinite(solution.xs).all() and np.isfinite(solution.us).all()
        xs, us = (solution.xs, solution.us) if finite and len(solution.us) == posed.ocp.horizon else posed.guess
        return derivative_error(evaluator_for(posed.ocp), self.exact, np.asarray(xs), np.asarray(us))


def _reason(error: Exception) -> str:
    """Return the message of an error in one line; for an invalid problem, the messages of its findings."""
    findings = [f.message for f in error.findings] if isinstance(error, InvalidProblem) else [str(error)]
    return "; ".join(" ".join(message.split()) for message in findings)


def integrator_of(ocp: OCP, options: Any) -> str:
    """Return the different schemes of a problem's phases, with their substeps if several, joined by " + ".

    A user-defined time step is named by its class. ", first-order hold" follows if the solver options select it.
    """
    names: dict[str, None] = {}
    for phase in ocp.phases:
        sampling, substeps = phase.dynamics.sampling, getattr(phase.dynamics, "substeps", 1)
        scheme = type(phase.dynamics).__name__ if sampling is None else sampling.scheme
        names[f"{substeps} x {scheme}" if substeps > 1 else scheme] = None
    held = getattr(options, "hold", "zero_order") == "zero_order"
    return " + ".join(names) + ("" if held else ", first-order hold")


def _remarks(variant: Variant, ocp: OCP, solution: Solution, facts: Components) -> Iterator[str]:
    """Yield notes about time steps without second derivatives, and about parts that ran in NumPy although not requested.

    If a time step has no second derivatives: a note where those of an exact Hessian came from, or for the option hessian = "auto"
    which other Hessian the solver used, with the reason.
    """
    asked, lacking = getattr(variant.options, "hessian", "auto"), missing_curvature(ocp)
    if lacking is not None and facts.hessian == "exact":
        yield f"second derivatives come from the source of the dynamics, not from the backend: {lacking}"
    elif lacking is not None and asked == "auto":
        yield f"{variant.solver} ran with hessian {facts.hessian}: {lacking}"
    yield from solution.meta.get("not_compiled", ())


def markdown(runs: Sequence[Run]) -> str:
    """Format rows as a Markdown table, followed by their notes; each different note once, with the numbers of its rows."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(map(_cell, run.row().values())) + " |" for run in runs]
    rows: dict[str, list[int]] = {}
    for run in runs:
        for note in run.notes:
            rows.setdefault(note, []).append(run.number)
    notes = [f"- row{'s' if len(of) > 1 else ''} {', '.join(map(str, of))}: {note}" for note, of in rows.items()]
    return "\n".join([*lines, *(["", *notes] if notes else [])]) + "\n"


def _cell(value: Any) -> str:
    """Format a value for a table, floats with six significant digits; NaN becomes empty."""
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.6g}"
    return str(value)


@dataclass(frozen=True)
class Comparison:
    """Rows of a comparison, also of combinations that could not run; printed as a Markdown table. title: title of the plot."""

    runs: tuple[Run, ...]
    title: str = ""

    def __str__(self) -> str:
        return markdown(self.runs)

    def _repr_markdown_(self) -> str:
        """Markdown table of the rows with their notes, for notebooks."""
        return markdown(self.runs)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Column values of each row by column name, with its notes; times in seconds."""
        return [run.row() | {NOTES: "; ".join(run.notes)} for run in self.runs]

    @property
    def solutions(self) -> list[Solution | None]:
        """Solution of each row; None if the combination did not run or an exception was raised."""
        return [run.solution for run in self.runs]

    def write_csv(self, path: str | Path) -> Path:
        """Write the rows as CSV with full precision; returns the path."""
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, (*COLUMNS, NOTES))
            writer.writeheader()
            writer.writerows(self.rows)
        return Path(path)

    def plot(self, path: str | Path) -> Path | None:
        """Write a plot of cost and gradient over iterations and time by the registered plot "comparison".

        Rows with the same solver, Hessian and backend are numbered. Returns its path, or None, without a plot, if no row has
        iterations.
        """
        shown = [(r, r.solution.history) for r in self.runs if r.solution is not None and r.solution.history]
        count = Counter(r.key for r, _ in shown)
        histories = {
            (r.key[0], f"{r.key[1]} (row {r.number})" if count[r.key] > 1 else r.key[1]): history
            for r, history in shown
        }
        return PLOTS["comparison"](Path(path), histories, self.title) if histories else None


class Comparable(Protocol):
    """A problem that supplies its variants, such as :class:`trajopt.LoadedProblem`."""

    @property
    def name(self) -> str: ...

    def variants(
        self,
        backends: Sequence[BackendChoice],
        solvers: Sequence[str],
        hessians: Sequence[str],
        options: Mapping[str, Mapping[str, Any]],
        guess: Guess | None,
    ) -> Sequence[Variant]:
        """Return the combinations to run, for the arguments of :func:`compare`."""


def compare(
    problem: OCP | Comparable,
    guess: Motion | tuple[Any, Any] | None = None,
    *,
    backends: Sequence[BackendChoice] = (),
    solvers: Sequence[str] = (),
    hessians: Sequence[str] = (),
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Comparison:
    """Solve a problem by every combination of backends, solvers and Hessians, one after the other.

    problem: an OCP, or a problem of :func:`trajopt.load_problem`, whose solver options are used. guess: states (N + 1, nx) and
    controls (N, nu); default: that of the problem; for an OCP, x0 at every knot. backends: names, or mappings with "name",
    "engine" and options; default: those of the problem. solvers: names; default: that of the problem; for an OCP, "auto".
    hessians: names; default: those of the solvers; a solver without this Hessian gives a row with this reason. options: further
    options by solver, such as ``{"dms": {"max_iterations": 50}}``.

    Returns the rows, printed as the table of ``trajopt compare``: components, comparability with the first finished row, status,
    iterations, cost, derivative error and times. A combination that cannot run, or raises, is a row with the reason. After Ctrl-C
    the finished rows are returned. Raises TypeError for a guess that is no trajectory. For an OCP, raises UnknownName for an
    unknown backend, solver or option, or a Hessian of no solver, and ValueError for a wrong value of an option; for a loaded
    problem, ConfigError in these cases.

    >>> import trajopt as to
    >>> cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    >>> step = to.SampledSystem(to.make_backend(cart, "forward_ad", engine="numpy"), "semi_implicit_euler")
    >>> terminal = [to.state_cost(cart.manifold, [1.0, 0.0], 1e4)]
    >>> ocp = to.OCP.single_phase(step, [0.0, 0.0], 20, 0.1, [to.control_cost(1)], terminal)
    >>> found = to.compare(ocp, backends=["forward_ad", "complex_step"], solvers=["slq", "ipm"])
    >>> [(row["solver"], row["backend"], row["status"]) for row in found.rows[:3]]
    [('slq', 'forward_ad', 'converged'), ('slq', 'complex_step', 'converged'), ('ipm', 'forward_ad', 'converged')]
    """
    start = None if guess is None else as_guess(guess)
    chosen = backends, solvers, hessians, options or {}
    if isinstance(problem, OCP):
        given: Sequence[Variant] = variants_of(problem, start or constant_guess(problem), *chosen)
    else:
        given = problem.variants(*chosen, start)
    return Comparison(tuple(run_all(given)), problem.name)
