"""Replanning runs from a configuration, and replays of saved runs."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from trajopt import OCP, Solution, solve
from trajopt.config.build import backend_factory, build_task, over_easier
from trajopt.config.config import Config, ConfigError, load_config
from trajopt.config.scenario import (
    Settings,
    clearances_of,
    contour_error,
    horizon_of,
    objects_of,
    path_of,
    planned,
    sensor_of,
)
from trajopt.config.task import Task
from trajopt.replanning.converged_planner import ConvergedPlanner
from trajopt.replanning.loop import Now, Plant, ReplanningLoop
from trajopt.replanning.plan import Plan
from trajopt.replanning.planning import Planner
from trajopt.replanning.real_time import RealTimeSLQ
from trajopt.replanning.real_time_sqp import RealTimeSQP
from trajopt.replanning.run_log import EventKind, RunLog
from trajopt.replanning.workers import (
    ScriptedWorker,
    SimulatedClock,
    SimulatedWorker,
    Spell,
    ThreadWorker,
    WallClock,
    Worker,
)
from trajopt.results.solution import uninterrupted
from trajopt.results.status import StatusCode
from trajopt.solvers.options import COST_HESSIANS
from .faults import Failing, Slowed
from .plants import plants_of

CONFIG_FILE, FIRST_PLAN_FILE = "config.toml", "first_plan.npz"
INSTEAD_OF = "instead_of"
SWITCH_INTERVAL = 1e-4
"""Thread switch interval [s] in wall-clock runs; Python's default would last several ticks."""
WARM_UP = 3
"""Length of the warm-up run, in ticks or leads (the longer of the two)."""


class Setup(NamedTuple):
    """A configuration with its task and first plan: everything that does not depend on timing."""

    config: Config
    task: Task
    first_plan: Solution


def require_table(config: Config) -> Config:
    """Return the configuration. Raises ConfigError if the table [replan] is missing."""
    if config.replan is None:
        remedy = (
            "add a table [replan], for example with duration = 5.0; `trajopt keys replan` lists its keys, and tutorial 9 "
            "shows one"
        )
        raise ConfigError(config.source, [f"replan: missing; {remedy}"])
    return config


def setup(config: Config, first_plan: Solution | None = None) -> Setup:
    """Build the task, and compute the first plan unless ``first_plan`` is given.

    Raises ValueError for constraints that the planner does not support.
    """
    task = build_task(config)
    _require_known(config, task)
    return Setup(config, task, _first_plan(config, task) if first_plan is None else first_plan)


def _first_plan(config: Config, task: Task) -> Solution:
    """Solve with the configured solver, after the relaxed problems of the task; fall back to the solver auto.

    A solution by the fallback has the failed solver and its status in ``meta["instead_of"]``. Raises KeyboardInterrupt after
    Ctrl-C, since a robot should not follow an unfinished plan.
    """
    *easier, ocp = (_with_objects(ocp, config.replan) for ocp in (*task.easier, task.ocp))
    last = partial(solve, ocp, options=config.solver_options, solver=config.solver_name)
    found = uninterrupted(over_easier(config, easier, task.guess, last))
    if not _failed(config, found):
        return found
    other = uninterrupted(solve(ocp, task.guess))
    failed = {"solver": config.solver_name, "status": str(found.status)}
    return replace(other, meta={**other.meta, INSTEAD_OF: failed}) if is_plan(other) else found


def is_plan(found: Solution) -> bool:
    """True if a run can start with this plan; the plan need not reach the goal within its horizon."""
    return found.status.acceptable or found.status.code in (
        StatusCode.VIOLATED_BETWEEN_KNOTS,
        StatusCode.GOAL_MISSED,
        StatusCode.DOES_NOT_HOLD,
    )


def _failed(config: Config, found: Solution) -> bool:
    """True if a solver other than auto failed for a reason other than a configured limit."""
    if is_plan(found) or config.solver_name == "auto":
        return False
    options, code = config.solver_options, found.status.code
    fewer = options.max_iterations < type(options)().max_iterations
    return not (code is StatusCode.TIME_LIMIT or (code is StatusCode.MAX_ITERATIONS and fewer))


def _with_objects(ocp: OCP, settings: Settings) -> OCP:
    """Return the problem with moving objects at their predicted positions."""
    for item in objects_of(settings):
        ocp = ocp.updated(item.name, **{item.parameter: item.prediction().at(ocp.times)})
    return ocp


def _require_known(config: Config, task: Task) -> None:
    """Raise ValueError for constraints that a real-time iteration would ignore."""
    names = ", ".join(dict.fromkeys(repr(c.name) for c in task.ocp.constraints()))
    if names and config.replan.mode != "converge" and config.solver_name != "sqp":
        remedy = "choose the solver sqp, or replan.mode = 'converge', or remove them"
        limits = "joint limits: problem.position_limits = false and problem.velocity_limits = false"
        raise ValueError(
            f"the real-time iteration of {config.solver_name} does not support constraints, and the problem has {names}: "
            f"{remedy} ({limits})"
        )


def simulate(
    start: Setup,
    on_tick: Callable[[float], None] | None = None,
    script: list[Spell] | None = None,
    realtime: bool = False,
    watch: Callable[[Now], None] | None = None,
) -> RunLog:
    """Run in simulated time, with the recorded timing ``script`` of an earlier run, or in wall-clock time.

    watch: see ReplanningLoop. A short warm-up run compiles all kernels beforehand.
    """
    log = _run(start, on_tick, script, realtime, watch)
    obstacles = {name: p for name, p in log.objects.items() if name == start.config.replan.obstacle.term}
    return replace(log, clearances=clearances_of(start.task, log.xs, obstacles))


def require_uninterrupted(log: RunLog) -> RunLog:
    """Return the log of a complete run. Raises KeyboardInterrupt if Ctrl-C interrupted the run."""
    if log.count(EventKind.INTERRUPTED):
        raise KeyboardInterrupt
    return log


def _run(
    start: Setup,
    on_tick: Callable[[float], None] | None,
    script: list[Spell] | None,
    realtime: bool,
    watch: Callable[[Now], None] | None,
) -> RunLog:
    config, s = start.config, start.config.replan
    robot = getattr(config.problem, "robot", config.problem_name)
    plants = plants_of(start.task, s, backend_factory(config.backend), robot)
    if script is None:
        require_uninterrupted(_loop(start, plants(), SimulatedWorker(s.tick)).run(WARM_UP * max(s.tick, s.lead)))
    if not realtime:
        worker: Worker = SimulatedWorker(s.tick, _charged_times(s)) if script is None else ScriptedWorker(script)
        with _freeze_garbage_collector():
            return _loop(start, plants(), worker, on_tick, watch).run(s.duration)
    threaded = ThreadWorker()
    try:
        with _freeze_garbage_collector(), _short_switch_interval():
            return _loop(start, plants(), threaded, on_tick, watch, realtime=True).run(s.duration)
    finally:
        threaded.close()


def _loop(
    start: Setup,
    plant: Plant,
    worker: Worker,
    on_tick: Callable[[float], None] | None = None,
    watch: Callable[[Now], None] | None = None,
    *,
    realtime: bool = False,
) -> ReplanningLoop:
    task, s = start.task, start.config.replan
    ocp = planned(task, s)
    return ReplanningLoop(
        horizon_of(task, s),
        _planner(start, realtime),
        plant,
        Plan.from_solution(start.first_plan, 0.0),
        s.timing,
        estimator=sensor_of(ocp, s),
        objects=objects_of(s),
        worker=worker,
        clock=WallClock() if realtime else SimulatedClock(),
        on_tick=on_tick,
        watch=watch,
    )


def _planner(start: Setup, realtime: bool) -> Planner:
    config = start.config
    s, options = config.replan, config.solver_options
    planner: Planner
    if s.mode == "converge":
        planner = ConvergedPlanner(config.solver_name, options, follow=s.follow)
    elif config.solver_name == "sqp":
        planner = RealTimeSQP(options)
    else:
        hessian = getattr(options, "hessian", "gauss_newton")
        hessian = hessian if hessian in COST_HESSIANS else "gauss_newton"
        curved = INSTEAD_OF in start.first_plan.meta
        planner = RealTimeSLQ(hessian, s.regularization, search=s.search, curved=curved)
    if s.faults.fail_every:
        planner = Failing(planner, s.faults.fail_every)
    return Slowed(planner, s.faults.slow_factor) if realtime and s.faults.slow_factor > 1.0 else planner


def _charged_times(s: Any) -> Callable[[float, float], tuple[float, float]]:
    """Return a function from measured to charged times [s] of a response and a preparation."""
    slow = s.faults.slow_factor
    if s.charge is None:
        return lambda respond, prepare: (slow * respond, prepare)
    return lambda respond, prepare: (slow * s.charge, 0.0)


@contextmanager
def _freeze_garbage_collector() -> Iterator[None]:
    """Exclude existing objects from garbage collection; collecting them would cost milliseconds per tick."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _short_switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def distances(start: Setup, log: RunLog) -> dict[str, Array]:
    """Distance (M,) [m] between the task's frame and each object over time."""
    path = path_of(start.task, log.xs)
    if path is None:
        return {}
    positions = {name: p for name, p in log.objects.items() if p.shape[1] == 3}
    return {f"distance to the {name} [m]": np.linalg.norm(path - p, axis=1) for name, p in positions.items()}


def statistics(start: Setup, log: RunLog) -> dict[str, Any]:
    """Return the statistics of a run, by name."""
    numbers, error = log.statistics(distances=distances(start, log)), contour_error(start.task, log.xs)
    if error is None or start.task.contour is None:
        return numbers
    contour = {
        "rms": np.sqrt(np.mean(error**2)),
        "largest": error.max(),
        "fraction within the tube": np.mean(error <= start.task.contour.tube),
    }
    return {**numbers, "distance from the contour [m]": {key: float(value) for key, value in contour.items()}}


class Replay(NamedTuple):
    """A repeated run, the saved run, and the largest difference between their true states."""

    setup: Setup
    log: RunLog
    saved: RunLog
    difference: float


def replay(folder: Path, on_tick: Callable[[float], None] | None = None) -> Replay:
    """Repeat the saved run of a folder. Raises ValueError or OSError if its files are missing or wrong."""
    saved = RunLog.load(folder)
    config = load_config(folder / CONFIG_FILE)
    start = setup(config, Solution.load(folder / FIRST_PLAN_FILE))
    ticks = len(saved.times)
    shorter = replace(start.config.replan, duration=ticks * start.config.replan.tick)
    log = simulate(start._replace(config=replace(config, replan=shorter)), on_tick, list(saved.spells))
    same = log.xs.shape == saved.xs.shape
    return Replay(start, log, saved, float(np.abs(log.xs - saved.xs).max()) if same else np.inf)
