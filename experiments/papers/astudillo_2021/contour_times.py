"""Contour following by NMPC: OCP-FD and OCP-ID with AD and with closed derivatives (Astudillo et al. 2021, fig. 2).

The Kinova Gen3 follows a curve within 1 cm, 16 steps of RK4; controls are torques (OCP-FD) or accelerations with torques bounded
through inverse dynamics (OCP-ID). SQP with the Hessian of convex-over-nonlinear functions (SCQP), cold start, compiled engine on
one thread, the same QPs for all methods. AD: CasADi's AD of forward or inverse dynamics, evaluated by this library's tapes; the
paper has C code. In OCP-ID, inverse dynamics are a constraint, whose derivatives do not depend on the backend: the experiment gives
it the closed form. QP solvers: QRQP, CasADi's active-set method, which the paper uses; and the interior point of this library,
where SQP first tries the active set of the last QP by Newton's method. The report has the number of QPs that QRQP solved.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import problems
from dynamics_backends.registry import make_backend
from dynamics_backends.systems.bodies.rigid_body_map import InverseDynamics
from experiments.analysis.environment import with_variable
from experiments.analysis.timing import medians
from experiments.papers.method import Method, ran
from experiments.papers.study import ASTUDILLO, Claim, Comparison, Outcome
from trajopt import OCP, Solution
from trajopt.config.build import build_task, make_ready, solve_task
from trajopt.config.config import load_config
from trajopt.config.task import Task
from trajopt.results.solution import uninterrupted
from trajopt.solvers.qp.casadi_qp import ActiveSet
from trajopt.solvers.qp.qp import QP, QPSolution, QPStatus

SOURCE = f"{ASTUDILLO}, fig. 2"
CONFIGS = Path(problems.__file__).parent / "configs"
FORMS = {"OCP-FD": "gen3_contour_fd", "OCP-ID": "gen3_contour_id"}
DERIVATIVES = {"AD": "casadi_ad", "analytic": "analytic"}
QP_SOLVERS = ("qrqp", "interior_point")
DEFINITION = ["problem.horizon=16", "problem.dt=0.05", "problem.substeps=1"]
QUICK = ["problem.horizon=2", "solver.max_iterations=2"]
PUBLISHED = {"OCP-FD": 1.29, "OCP-ID": 1.09}
"""Published ratio: time with AD / time with closed forms."""
REPEATS, STAGES = 15, 4
TORQUES = "torque limits"
"""Name of the constraint of OCP-ID on the torques."""
SAME = 1e-6
"""Relative cost difference up to which two optima count as equal."""


def method(derivatives: str, qp_solver: str) -> Method:
    """SCQP with the given derivatives and QP solver."""
    options = {
        "qp_solver": qp_solver,
        "max_iterations": 200,
        "gradient_tolerance": 1e-8,
        "constraint_tolerance": 1e-9,
        "kkt_tolerance": 1e-8,
    }
    return Method("sqp", "scqp", "rk4", DERIVATIVES[derivatives], options)


def run(quick: bool) -> Outcome:
    """Run all solves. Quick runs: two iterations on two time steps, NumPy engine."""
    with with_variable("TRAJOPT_THREADS", 1):
        rows = [_row(form, d, qp, quick) for form in FORMS for qp in QP_SOLVERS for d in DERIVATIVES]
    lines = [_comparison(rows, form, qp) for form in FORMS for qp in QP_SOLVERS]
    return Outcome(rows, lines, partial(_draw, rows))


@contextmanager
def qps_by_active_sets() -> Iterator[list[QPStatus]]:
    """Record the status of each QP that reaches the active-set solver."""
    found: list[QPStatus] = []
    solve = ActiveSet.solve

    def noted(self: ActiveSet, qp: QP, start: QPSolution | None = None) -> QPSolution:
        solution = solve(self, qp, start)
        found.append(solution.status)
        return solution

    ActiveSet.solve = noted  # type: ignore[method-assign, assignment]
    try:
        yield found
    finally:
        ActiveSet.solve = solve  # type: ignore[method-assign]


def _row(form: str, derivatives: str, qp_solver: str, quick: bool) -> dict[str, Any]:
    own = method(derivatives, qp_solver)
    overrides = [*own.overrides(), *DEFINITION, *(QUICK if quick else [])]
    config = load_config(CONFIGS / f"{FORMS[form]}.toml", overrides)
    config = config.with_engine("numpy") if quick else config
    task = with_inverse_dynamics(build_task(config), derivatives)
    if not quick:
        make_ready(config, task)
    seconds = []
    for _ in range(1 if quick else REPEATS):
        began = time.process_time()
        solution = own.require(uninterrupted(solve_task(config, task, check=False)))
        seconds.append(time.process_time() - began)
    with qps_by_active_sets() as results:
        own.require(uninterrupted(solve_task(config, task, check=False)))
    return {
        "form": form,
        "QP solver": solution.meta["options"]["qp_solver"],
        "method": derivatives,
        "milliseconds": 1e3 * median(seconds),
        "dynamics [us]": 1e6 * _dynamics(task.ocp, solution, derivatives, 1 if quick else REPEATS),
        "iterations": solution.iterations,
        "QPs by active sets": sum(status is QPStatus.SOLVED for status in results),
        "cost": solution.cost,
        "solved": solution.status.success,
        **ran(solution),
    }


def with_inverse_dynamics(task: Task, derivatives: str) -> Task:
    """Return the task with torque limits whose residual has closed-form derivatives, for the method "analytic" and OCP-ID.

    The residual of the task is differentiated by AD.
    """
    if derivatives != "analytic" or not any(c.name == TORQUES for c in task.ocp.constraints()):
        return task
    assert task.ocp.model is not None
    closed = InverseDynamics(task.ocp.model)
    phases = tuple(
        replace(p, constraints=tuple(replace(c, residual=closed) if c.name == TORQUES else c for c in p.constraints))
        for p in task.ocp.phases
    )
    return replace(task, ocp=replace(task.ocp, phases=phases))


def _dynamics(ocp: OCP, solution: Solution, derivatives: str, turns: int) -> float:
    """Processor time [s] of the derivatives of forward or inverse dynamics in an iteration.

    OCP-FD: at the four stages of RK4 in all time steps. OCP-ID: at all knots.
    """
    sampling = ocp.phases[0].dynamics.sampling
    assert sampling is not None and ocp.model is not None  # both forms sample a system of a robot
    xs, us, backend = solution.xs[:-1], solution.us, sampling.backend
    if any(c.name == TORQUES for c in ocp.constraints()):
        n = ocp.model.nv
        backend = make_backend(InverseDynamics(ocp.model), DERIVATIVES[derivatives], engine=backend.engine)
        xs, us = xs[:, : 2 * n], us[:, :n]
    else:
        xs, us = np.repeat(xs, STAGES, axis=0), np.repeat(us, STAGES, axis=0)
    return medians([partial(backend.jacobians, xs, us)], turns)[0]


def _comparison(rows: list[dict[str, Any]], form: str, qp_solver: str) -> Comparison:
    own = {r["method"]: r for r in rows if (r["form"], r["QP solver"]) == (form, qp_solver)}
    ad, analytic = (own[d] for d in DERIVATIVES)
    ratio = ad["milliseconds"] / analytic["milliseconds"]
    apart = abs(ad["cost"] - analytic["cost"]) / abs(analytic["cost"])
    why = (
        f"{ad['milliseconds']:.1f} and {analytic['milliseconds']:.1f} ms, {ad['iterations']} and {analytic['iterations']}"
        f" iterations, costs {apart:.0e} apart; derivatives of the dynamics take {ad['dynamics [us]']:.0f} and"
        f" {analytic['dynamics [us]']:.0f} us an iteration, the rest is common to both"
    )
    claims = [
        Claim(f"at least {PUBLISHED[form]} x", ratio >= PUBLISHED[form]),
        Claim("both are solved", ad["solved"] and analytic["solved"]),
        Claim("both end in the same optimum", apart <= SAME),
    ]
    if qp_solver == "qrqp":
        solved = all(r["QPs by active sets"] >= r["iterations"] for r in (ad, analytic))
        claims.append(Claim("QRQP solves the QPs", solved, only_differs=True))
        counts = " and ".join(str(r["QPs by active sets"]) for r in (ad, analytic))
        why += f"; QRQP solved {counts} of the QPs, the interior point the others"
    what = f"{form}: time with AD / time with closed forms, QPs by {qp_solver}"
    return Comparison(what, f"{PUBLISHED[form]} x", f"{ratio:.2f} x", claims, why)


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, figure

    with figure(path, 1, 1, 8.0, 3.6, "Contour following: time of a solve [ms]") as axes:
        names = [f"{r['form']}\n{r['method']}\n{r['QP solver'].replace('_', ' ')}" for r in rows]
        colors = [COLORS[list(DERIVATIVES).index(r["method"])] for r in rows]
        axes[0, 0].bar(range(len(rows)), [r["milliseconds"] for r in rows], color=colors)
        axes[0, 0].set_xticks(range(len(rows)), names, fontsize=7)
