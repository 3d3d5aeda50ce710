"""Model-predictive control for user-defined control loops: each step plans from the measured state and returns a control.

    mpc = to.MPC(ocp, period=0.01)
    while running:
        mpc.set("goal", where_the_goal_is)
        u = mpc.step(x, t)

The caller provides time, plant and measurements; :class:`~trajopt.replanning.loop.ReplanningLoop` includes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from typing import Any, NamedTuple, NoReturn

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.names import unknown_name
from dynamics_backends.protocol import Array
from trajopt.problem.constraints import Constraint
from trajopt.problem.ocp import OCP
from trajopt.problem.terms import Values, quaternion_error
from trajopt.replanning.arguments import delay_seconds, positive_seconds, real_numbers, seconds, unmasked
from trajopt.replanning.converged_planner import ConvergedPlanner
from trajopt.replanning.measurements import Measurement
from trajopt.replanning.plan import (
    Following,
    Horizon,
    Plan,
    RecedingHorizon,
    fault_of,
    not_finite,
    require_same_names,
    warm_start,
)
from trajopt.replanning.planning import Control, Planner, Planning, require_planner, require_whole_steps
from trajopt.replanning.real_time import RealTimeSLQ
from trajopt.replanning.real_time_sqp import RealTimeSQP
from trajopt.replanning.run_log import EventKind, RunRecorder, statistics_of
from trajopt.replanning.simulator import Model
from trajopt.replanning.workers import RECENT, SAME_TIME, ImmediateWorker, Timing, Worker
from trajopt.results.solution import Solution, uninterrupted
from trajopt.solvers.registry import chosen_options, solver_names
from trajopt.solvers.solve import require_problem, solve

REAL_TIME = "real_time"
"""Solver name for one iteration per step."""
UNIT_WITHIN = 0.1
"""Largest deviation of the norm of a measured quaternion from 1; sensors with few digits stay far below."""


class MPC:
    """Model-predictive controller of a plant.

    ocp: the problem at each time, with its first knot at the start of each plan; the first plan starts from its x0.
    solver: "real_time", one iteration per step (:class:`RealTimeSLQ`, or :class:`RealTimeSQP` for constraints other than bounds on
    controls); the name of a solver, which runs until its options stop it; or a :class:`~trajopt.Planner`. options: of the solver,
    see :func:`planner_of`.
    horizon: function from a time [s] to the problem, in place of a constant ``ocp``, such as a :class:`~trajopt.ShrinkingHorizon`
    or :class:`~trajopt.RecedingHorizon`; ``ocp`` then gives x0, the sizes and the problem of the first solve. Its method
    ``observe(t, x)``, if it has one, gets the estimated state (nx,) at each step.
    period [s]: between plans. tick [s]: between steps, default the period.
    delay [s]: from a measurement until its control acts; the state is predicted over this time.
    deadline [s]: plans that take longer are dropped, and the last plan is tracked with its feedback; default: none are dropped. It
    does not end a solve, for which :meth:`step` waits without a worker: the option ``time_limit`` of a solver does.
    worker: runs the planner, by default within each step; a :class:`~trajopt.ThreadWorker` plans in parallel. With a worker, plans
    start one period after the start of their solve.
    initial_plan: plan or solution that is tracked first; default: the solution from x0.

    The constructor solves once, unless ``initial_plan`` is given, runs the planner once and predicts one step, so that missing code
    is compiled before the first step. Raises ValueError if that solve finds no plan, for an initial plan with NaN or infinity, or
    of a robot, states or controls with other names, for invalid times, for a tick that is not the time step of discrete dynamics,
    and for a period longer than ``ocp`` without ``horizon``, TypeError for a solver that is neither a name nor a planner, and for
    other arguments of a wrong type, UnknownName for an unknown solver or option, and the errors of :func:`trajopt.solve` for an
    invalid problem.

    >>> import trajopt as to
    >>> cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    >>> dynamics = to.SampledSystem(to.make_backend(cart, "forward_ad"), "semi_implicit_euler")
    >>> goal = to.state_cost(cart.manifold, [1.0, 0.0], 10.0, "goal")
    >>> ocp = to.OCP.single_phase(dynamics, [0.0, 0.0], 20, 0.05, [to.control_cost(1, weight=0.01), goal], [goal])
    >>> mpc, plant, x = to.MPC(ocp, period=0.05), to.Simulator(dynamics), ocp.x0
    >>> for k in range(200):
    ...     x = plant.advance(x, mpc.step(x, 0.05 * k)[None], 0.05)
    >>> round(float(x[0]), 2), mpc.statistics()["failed"]
    (1.0, 0)
    """

    def __init__(
        self,
        ocp: OCP,
        solver: str | Planner = REAL_TIME,
        *,
        options: Any = None,
        horizon: Horizon | None = None,
        period: float = 0.01,
        tick: float | None = None,
        delay: float = 0.0,
        deadline: float | None = None,
        worker: Worker | None = None,
        initial_plan: Plan | Solution | None = None,
    ) -> None:
        require_problem(ocp)
        delay, period = delay_seconds("delay", delay), positive_seconds("period", period)
        tick = period if tick is None else positive_seconds("tick", tick)
        if deadline is not None and deadline != np.inf:
            deadline = positive_seconds("deadline", deadline)
        if isinstance(worker, (str, type)):
            raise TypeError(f"worker = {worker!r}; expected an object such as trajopt.ThreadWorker()")
        if horizon is not None and (isinstance(horizon, type) or not callable(horizon)):
            raise TypeError(
                f"horizon = {horizon!r}; expected a function of time, such as trajopt.ShrinkingHorizon(ocp)"
            )
        if horizon is None and not ocp.in_scaled_time and period > ocp.times[-1] * (1.0 + SAME_TIME):
            raise ValueError(f"period = {period} s is longer than a plan, {ocp.times[-1]:.6g} s: replan more often")
        lead = 0.0 if worker is None else period
        self._timing = Timing(tick=tick, period=period, lead=lead, deadline=deadline, drop_late=deadline is not None)
        require_whole_steps(ocp, self._timing, delay)
        self._ocp, self._horizon, self._delay = ocp, horizon or RecedingHorizon(ocp), delay
        self._worker = ImmediateWorker(self._timing.tick, deadline, RECENT) if worker is None else worker
        self._planner, self._recorder = planner_of(ocp, solver, options), RunRecorder(RECENT)
        self._values: dict[str, dict[str, tuple[Array, OCP]]] = {}  # values, and the problem at the time of the change
        self._valued: tuple[OCP, OCP] | None = None
        if initial_plan is not None:
            if not hasattr(initial_plan, "K"):
                found = type(initial_plan).__name__
                raise TypeError(
                    f"initial_plan is a {found}; expected a plan or a solution, which to.solve gives for a guess"
                )
            require_same_names(initial_plan, ocp)
        self._first_plan = (
            initial_plan
            if isinstance(initial_plan, Plan)
            else Plan.from_solution(initial_plan or self._first_solution(solver, options), 0.0, self._ocp)
        )
        wrong = not_finite(self._first_plan)
        if wrong is not None:
            raise ValueError(f"initial_plan: {wrong} is not finite; leave it out, or pass a plan that was solved")
        self._planner.prepare(ocp, warm_start(self._first_plan, ocp, self._first_plan.start))
        self._planner.respond(ocp.x0)
        if horizon is None:
            self._horizon(0.0)
        Model(ocp).step(ocp.x0, self._first_plan.us[0], 0.0, self._timing.tick)
        self._origin: float | None = None  # time of the first step
        self._latest = self._measured = -np.inf  # times of the last step and of the last measurement
        self._missing = False  # True in a gap without measurements

    def __reduce__(self) -> NoReturn:
        """Raise TypeError, with the remedy: planners hold memory of compiled solvers, and threads."""
        raise TypeError("to.MPC cannot be copied or pickled: pass the problem, and create to.MPC where it is used")

    def _first_solution(self, solver: str | Planner, options: Any) -> Solution:
        """Solution of ``ocp`` from x0, by the named solver without its time limit, which is meant for compiled functions.

        By the default solver and options for "real_time" and a planner. Raises ValueError if it cannot be executed.
        """
        if isinstance(solver, str) and solver != REAL_TIME:
            _, chosen = chosen_options(solver, options)
            result = uninterrupted(solve(self._ocp, solver=solver, options=replace(chosen, time_limit=None)))
        else:
            result = uninterrupted(solve(self._ocp))
        fault = fault_of(result)
        if fault is not None:
            raise ValueError(f"no first plan from x0: {fault}; pass initial_plan, or change the problem")
        return result

    # -- steps --------------------------------------------------------------------------------------------------------
    def step(self, x: Array | None, t: float | None = None) -> Array:
        """Control (nu,) for the state x (nx,) measured at t [s], to be applied from ``delay`` later until that of the next step.

        x: None without a measurement; the model then predicts the state, as for one with NaN, infinity, a masked entry, or a
        quaternion that is not of unit length (UNIT_WITHIN). Stop the robot once :attr:`measurement_age` is more than the model
        predicts well. t: default one tick after the last step, at first 0. Raises ValueError for a state of another shape or
        without numbers, for a time that is not a finite number, and for one before the last step; then nothing has changed. Raises
        KeyboardInterrupt after Ctrl-C.
        """
        x = None if x is None else _state(x, self._ocp.manifold.nx)
        t = self._time(t)
        fault = None if x is None else _fault(x, self._ocp.manifold)
        now = t - self._started(x if fault is None else None, t) + self._delay
        if fault is not None:
            self._recorder.event(now, EventKind.BAD_MEASUREMENT, f"{fault}; using the model prediction")
        elif x is not None:
            self._control.observer.correct(Measurement(now - self._delay, x))
            self._measured = t
        elif not self._missing:  # one event for each gap
            self._recorder.event(now, EventKind.NO_MEASUREMENT, "no measured state; using the model prediction")
        self._missing = x is None
        return self._control.at(round(now / self._timing.tick), now)[1].copy()

    def _time(self, t: float | None) -> float:
        """Time of a step [s], which is stored: t, or by default one tick after the last step, 0 at first.

        Raises ValueError for a time that is not a finite number, and for one before the last step.
        """
        if t is None:
            t = 0.0 if self._origin is None else self._latest + self._timing.tick
        t = seconds("t", t)
        if not t >= self._latest - SAME_TIME:
            raise ValueError(f"t = {t} s is before the last step, at {self._latest} s")
        self._latest = t
        return t

    def _started(self, x: Array | None, t: float) -> float:
        """Time of the first step, the origin of internal times; at the first call, it is t, and the control is created.

        x: measured state at t, from which the control starts; x0 of the problem for None.
        """
        if self._origin is None:
            self._origin = t
            first = replace(self._first_plan, start=self._delay)
            horizon = self._horizon
            problem = _Observed(self._problem, horizon, t) if isinstance(horizon, Following) else self._problem
            arguments = (problem, self._planner, self._worker, self._timing, first, (), self._recorder)
            start = self._ocp.x0 if x is None else x
            self._control = Control(Planning(*arguments), start, self._recorder)
        return self._origin

    # -- values -------------------------------------------------------------------------------------------------------
    def set(self, name: str, values: Values | None = None, **changes: Values) -> None:
        """Change values of the cost terms and constraints with this name, or of the dynamics, from the next solve on.

        name: "dynamics" for the parameters of the dynamics, such as a payload. values: of their only parameter, such as a goal.
        changes: parameters by name, ``weight`` of a term, ``lower`` and ``upper`` of a constraint. Each is one row (n,), or rows
        (N, n) by knot, or (N + 1, n) with the final knot. Plans begin ``delay`` after their step: after a step at t, the rows
        belong to the times t + delay + ocp.times. A later problem gets the rows at its own times. Raises ValueError for an unknown
        name or parameter, a missing value, a wrong shape, numbers that are not finite, except infinite bounds, and bounds
        that no value satisfies.

            mpc.set("goal", [0.4, 0.1, 0.5])
            mpc.set("velocity", weight=0.2)
            mpc.set("dynamics", inertia=to.inertial_parameters(loaded))  # to.InertialBody
        """
        problem = self._horizon(0.0 if self._origin is None else self._latest + self._delay) or self._ocp
        if values is None and not changes:
            problem.parts_named(name)  # raises for an unknown name
            raise ValueError(f"{name!r}: no value is given; pass one, such as set({name!r}, [...])")
        if values is not None:
            changes = {_only_parameter(problem, name): values, **changes}
        numbers = {key: _as_numbers(name, key, value) for key, value in changes.items()}
        for key, value in numbers.items():
            if not (np.isfinite(value).all() or (key in ("lower", "upper") and not np.isnan(value).any())):
                raise ValueError(f"{name!r}: {key} is not finite")
            problem.require_rows(name, key, value)
        valued = self._with_values(problem).updated(name, **numbers)  # raises for invalid values
        for part in valued.parts_named(name):
            if isinstance(part, Constraint) and (part.lower > part.upper).any():
                raise ValueError(f"{name!r}: a lower bound is above the upper one; set both in one call")
            if isinstance(part, Constraint) and ((part.lower == np.inf) | (part.upper == -np.inf)).any():
                raise ValueError(f"{name!r}: a lower bound of inf, or an upper one of -inf, excludes every value")
        self._values.setdefault(name, {}).update({key: (value, problem) for key, value in numbers.items()})
        self._valued = problem, valued

    def _problem(self, t: float) -> OCP | None:
        """Problem of the horizon at t [s] after the first step, with the values set by the user; None after the end."""
        problem = self._horizon(t + (self._origin or 0.0))
        return None if problem is None else self._with_values(problem)

    def _with_values(self, problem: OCP) -> OCP:
        """Problem with the values set by the user; caches the latest one."""
        if self._valued is None or self._valued[0] is not problem:
            valued = problem
            for name, values in self._values.items():
                valued = valued.updated(name, **{key: _rows(*given, problem) for key, given in values.items()})
            self._valued = problem, valued
        return self._valued[1]

    # -- results ------------------------------------------------------------------------------------------------------
    @property
    def plan(self) -> Plan:
        """Current plan, with its start in the time of the caller; before the first step, the initial plan as it was given."""
        if self._origin is None:
            return self._first_plan
        plan = self._control.planning.plan
        return replace(plan, start=plan.start + self._origin)

    @property
    def measurement_age(self) -> float:
        """Time [s] from the last measured state to the last step; infinite before the first one."""
        return self._latest - self._measured if np.isfinite(self._measured) else np.inf

    def statistics(self) -> Mapping[str, Any]:
        """Statistics of at most RECENT latest solves and events, see :func:`~trajopt.replanning.run_log.statistics_of`.

        Also "latest events": the message of the latest event of each kind, such as the reason of the last failed solve.
        """
        recorder = self._recorder
        found = statistics_of(recorder.solves, self._worker.spells(), recorder.events)
        return found | {"latest events": {str(event.kind): event.message for event in recorder.events}}


class _Observed(NamedTuple):
    """Horizon of a controller whose first step was at ``origin`` [s]: its problems, and the states for the user's horizon."""

    problem: Callable[[float], OCP | None]
    horizon: Following
    origin: float

    def __call__(self, t: float) -> OCP | None:
        """Problem at t [s] after the first step."""
        return self.problem(t)

    def observe(self, t: float, x: Array) -> None:
        """Pass on the estimated state x (nx,) at t [s] after the first step."""
        self.horizon.observe(t + self.origin, x)


def planner_of(ocp: OCP, solver: str | Planner, options: Any = None) -> Planner:
    """Planner for a solver name, see :class:`MPC`; a planner is returned unchanged.

    "real_time" gives a :class:`RealTimeSQP` for a problem with constraints other than bounds on controls, else a
    :class:`RealTimeSLQ`; other names give a :class:`ConvergedPlanner`. options: SQPOptions or a mapping of the first, a mapping of
    keyword arguments of the second, options of the solver of the third; not used for a planner. Raises TypeError for another
    object, UnknownName for an unknown name, and the errors of the planners for invalid options.
    """
    if not isinstance(solver, str):
        require_planner(solver)
        return solver
    known = (REAL_TIME, *solver_names())
    if solver not in known:
        raise unknown_name("solver", solver, known)
    if solver != REAL_TIME:
        return ConvergedPlanner(solver, options)
    if ocp.constraints():
        return RealTimeSQP(options)
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"options is a {type(options).__name__}; RealTimeSLQ, for no constraints, takes a mapping")
    own = signature(RealTimeSLQ).parameters
    for key in options or {}:
        if key not in own:
            raise unknown_name("option of RealTimeSLQ", key, own)
    return RealTimeSLQ(**(options or {}))


def _rows(value: Array, given: OCP, problem: OCP) -> Array:
    """Value for a problem: unchanged if it is one row, or if the problem has the knots of the one that it was ``given`` for.

    Else the rows (N + 1, n) that are valid at the times of the problem's knots.
    """
    if value.ndim < 2 or np.array_equal(given.times, problem.times):
        return value
    starts = given.start + given.times[: len(value)]
    at = np.searchsorted(starts, problem.start + problem.times + SAME_TIME, side="right") - 1
    return value[np.maximum(at, 0)]


def _state(x: Any, nx: int) -> Array:
    """State (nx,) as floats. Raises ValueError for another shape, and for entries that are not real numbers."""
    numbers = real_numbers(x)
    if numbers is None:
        raise ValueError(f"x = {x!r}; expected nx = {nx} real numbers, NaN for unknown ones")
    if numbers.shape != (nx,):
        raise ValueError(f"x has shape {numbers.shape}; expected (nx = {nx},)")
    return numbers


def _fault(x: Array, manifold: Manifold) -> str | None:
    """Reason why a measured state (nx,) cannot be used, as a part of a message; None if it can."""
    if not np.isfinite(x).all():
        return "a measured state is not finite"
    if (error := quaternion_error(manifold, x)) > UNIT_WITHIN:
        return f"the norm of a measured quaternion differs from 1 by {error:.1e}"
    return None


def _as_numbers(name: str, key: str, value: Any) -> Array:
    """Value of a parameter as an array of floats. Raises ValueError, which names term and parameter, for anything else."""
    try:
        return np.asarray(unmasked(value), dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{name!r}: {key} = {value!r}; expected numbers") from None


def _only_parameter(ocp: OCP, name: str) -> str:
    """Name of the only parameter of the terms, constraints or dynamics with this name. Raises ValueError for several or none."""
    names = {key for part in ocp.parts_named(name) for key in part.parameters}
    if len(names) != 1:
        known = f"has the parameters {', '.join(sorted(names))}: pass them by name" if names else "has no parameter"
        raise ValueError(f"{name!r} {known}")
    return names.pop()
