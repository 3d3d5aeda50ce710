"""Times of ten calls of `to.solve`, with and without checks; times of `backend.jacobians` and of its kernel.

    python -m experiments.benchmark_calls [--repeats 30] [--environment DIR] [--without-crocoddyl] [--out DIR]

A call is `to.solve(ocp, guess, solver=...)` with warm caches: validation, solve, optimality checks, replay, goals.
Times are medians of processor time over alternating calls. Crocoddyl solves the same problems, if it supports them,
with its default tolerance (see benchmark_crocoddyl).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import trajopt as to
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.tape.driver import kernel_tape
from experiments.benchmarks.solvers.crocoddyl_peer import FOLDER, crocoddyl_solve, environment
from experiments.benchmarks.solvers.crocoddyl_problems import PROBLEMS, Data, our_problem
from experiments.benchmarks.tables import markdown

KNOTS = 128


class Case(NamedTuple):
    """A problem with guess, solver and options. peer: its name in benchmark_crocoddyl."""

    name: str
    solver: str
    ocp: to.OCP
    guess: to.Guess
    peer: str = ""
    options: Any = None


def readme_reach() -> to.OCP:
    """Build the problem of the README."""
    model = to.load_robot("erd:ur5")
    robot = to.FreeBody(model)
    dynamics = to.SampledSystem(to.make_backend(robot, "analytic"), "semi_implicit_euler")
    x0 = np.concatenate([[0.0, -1.2, 1.6, -1.9, -1.57, 0.0], np.zeros(model.nv)])
    speed = np.concatenate([np.zeros(model.nv), np.ones(model.nv)])
    running = [to.control_cost(model.nv, weight=1e-3), to.state_cost(robot.manifold, x0, 0.1 * speed, "velocity")]
    terminal = [
        to.frame_position_cost(model, robot.manifold, "tool0", [0.4, 0.4, 0.4], 1e3, "goal"),
        to.state_cost(robot.manifold, x0, 10.0 * speed, "final velocity"),
    ]
    return to.OCP.single_phase(dynamics, x0, 100, 0.01, running, terminal, model=model)


def cases() -> list[Case]:
    """Return the ten calls."""
    reach = readme_reach()
    found = [Case("README's UR5 reach", solver, reach, to.constant_guess(reach)) for solver in ("slq", "auto", "ipm")]
    for name, solver in (("unicycle", "ddp"), ("unicycle", "fddp"), ("kinova reach", "fddp"), ("kinova reach", "auto")):
        p = PROBLEMS[name]()
        ocp = our_problem(p)
        found.append(Case(name, solver, ocp, to.constant_guess(ocp, _holding(p)), name))
    for name in ("ur5_obstacle", "cart_pole_swing_up", "hyq_stand"):
        loaded = to.load_problem(name)
        found.append(Case(name, loaded.solver, loaded.ocp, loaded.guess, options=loaded.options))
    return found


def _holding(p: Data) -> np.ndarray | float:
    """Return the torques that hold an arm at the initial state; 0 for other systems."""
    if p["kind"] != "arm":
        return 0.0
    model = to.load_robot(f"erd:{p['robot']}")
    rest = np.zeros(model.nv)
    return to.inverse_dynamics(model, np.array(p["x0"][: model.nq]), rest, rest)


def median_ms(calls: Sequence[Callable[[], Any]], repeats: int) -> list[float]:
    """Return the median processor time [ms] of each call, over alternating calls after a warm-up round."""
    times: list[list[float]] = [[] for _ in calls]
    for round_number in range(repeats + 1):
        for call_times, call in zip(times, calls, strict=True):
            began = time.process_time()
            call()
            if round_number:
                call_times.append(1e3 * (time.process_time() - began))
    return [statistics.median(call_times) for call_times in times]


def call_row(case: Case, repeats: int) -> list[str]:
    """Measure the cells of a row, without Crocoddyl."""
    call = partial(to.solve, case.ocp, case.guess, case.options, solver=case.solver)
    code = str(call().status.code)
    checked, unchecked = median_ms([call, partial(call, check=False)], repeats)
    return [case.name, case.solver, code, f"{checked:.2f}", f"{unchecked:.2f}", f"{checked - unchecked:.2f}"]


def crocoddyl_ms(python: Path, name: str, repeats: int) -> str:
    """Return the median time of Crocoddyl's solve of a problem [ms]."""
    results, _ = crocoddyl_solve(python, PROBLEMS[name](), repeats)
    return f"{statistics.median(results['ms']):.2f}"


def jacobians(name: str, repeats: int) -> list[str]:
    """Measure the time per knot [us] of backend.jacobians of a robot, and of its kernel."""
    model = to.load_robot(name)
    system = to.FreeBody(model)
    backend, kernel = to.make_backend(system, "analytic"), kernel_tape(FDSVA, model).rows
    rng = np.random.default_rng(0)
    q = np.stack([model.random_configuration(rng) for _ in range(KNOTS)])
    v, tau = rng.standard_normal((2, KNOTS, model.nv))
    x, u = np.hstack([q, v]), rng.standard_normal((KNOTS, system.nu))
    backend.jacobians(x, u)
    checked, unchecked = median_ms([lambda: backend.jacobians(x, u), lambda: kernel(q, v, tau)], 10 * repeats)
    return [name, *(f"{1e3 * ms / KNOTS:.2f}" for ms in (checked, unchecked)), f"{checked / unchecked:.1f}"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--environment", type=Path, default=FOLDER)
    parser.add_argument("--without-crocoddyl", action="store_true")
    parser.add_argument("--out", type=Path, help="folder of table.csv and jacobians.csv")
    given = parser.parse_args(arguments)
    python = None if given.without_crocoddyl else environment(given.environment)
    rows, known = [], dict[str, str]()
    for case in cases():
        if python is not None and case.peer and case.peer not in known:
            known[case.peer] = crocoddyl_ms(python, case.peer, given.repeats)
        rows.append([*call_row(case, given.repeats), known.get(case.peer, "")])
        print(", ".join(rows[-1]), flush=True)
    heads = ["problem", "solver", "code", "call", "without checks", "difference", "Crocoddyl"]
    print(f"\nMilliseconds.\n\n{markdown(heads, rows, given.out and given.out / 'table.csv')}")
    rows, heads = (
        [jacobians(name, given.repeats) for name in ("erd:ur5", "hyq")],
        ["robot", "backend.jacobians", "kernel", "ratio"],
    )
    table = markdown(heads, rows, given.out and given.out / "jacobians.csv")
    print(f"\nMicroseconds per knot, {KNOTS} knots.\n\n{table}")


if __name__ == "__main__":
    main()
