"""User-defined dynamics solved by the default call, compared with CasADi and IPOPT.

    python -m experiments.benchmark_own_dynamics [--only quadrotor,goddard] [--repeats 9] [--batch 40] [--backend NAMES] [--peer]
                                              [--out DIR]

Times are medians of processor time [ms]. Ours: `to.solve(ocp, guess)` with default options, including all checks, with
compiled code in the cache. The last column is `to.solve_batch` with default options, for problems with different
initial states. CasADi (--peer): the same grid, RK4 steps, bounds, costs and guess as a sparse program with exact second
derivatives, solved by IPOPT with default options. Derivatives run in CasADi's virtual machine, and as C code if it
compiles in time. The duration is one variable, a quaternion four.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import trajopt as to
from dynamics_backends.environment import compiler_command
from experiments.benchmarks.generic import build_notes
from experiments.benchmarks.own_systems import SYSTEMS, UserSystem
from experiments.benchmarks.tables import machine, print_table

COLUMNS = (
    "problem",
    "states, controls, knots",
    "solver",
    "status",
    "iterations",
    "cost",
    "duration, s",
    "ms",
    "batch, ms each",
)
PATIENCE = 240.0
"""Time limit for the compilation of CasADi's code [s]."""


class Row(NamedTuple):
    """One table row: results and processor time [ms] of one solve; batch: time per problem of a batch."""

    problem: str
    size: str
    solver: str
    status: str
    iterations: int
    cost: float
    duration: float
    ms: float
    batch: str = ""


def default_row(system: UserSystem, backend: str, repeats: int, count: int) -> Row:
    """Measure the default solve, and the default batch solve."""
    ocp, guess = system.problem(backend)
    solution, ms = _median(lambda: to.solve(ocp, guess), repeats)
    engines, attempts = solution.meta["engines"], solution.meta.get("attempts", ())
    solver = f"here, {backend}: {', '.join(a['solver'] for a in attempts)} ({', '.join(engines)})"
    size = f"{ocp.manifold.nx}, {ocp.nu}, {system.knots}"
    numbers = solution.iterations, solution.cost, solution.duration, ms
    return Row(system.name, size, solver, solution.status.code, *numbers, _batch(system, ocp, guess, count))


def _batch(system: UserSystem, ocp: to.OCP, guess: to.Guess, count: int) -> str:
    if not count:
        return ""
    place, width = system.varied
    starts = np.tile(ocp.x0, (count, 1))
    starts[:, place] += width * np.linspace(0.0, 1.0, count)
    found, ms = _median(lambda: to.solve_batch(ocp, {"x0": starts}, guess), 3)
    return f"{ms / count:.2f} ({found.success.sum()} of {count}, {found.meta['how']})"


def casadi_rows(system: UserSystem, repeats: int) -> list[Row]:
    """Measure IPOPT with derivatives by CasADi's virtual machine, and by its compiled code."""
    import casadi as ca

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # NumPy functions called with symbols
        nlp, bounds_and_guess, duration = casadi_program(ca, system)
    settings: dict[str, Any] = {"print_time": False, "ipopt": {"print_level": 0, "sb": "yes"}}
    plain = ca.nlpsol("solver", "ipopt", nlp, settings)
    rows = [_casadi_row(system, "CasADi with IPOPT", plain, bounds_and_guess, duration, repeats)]
    with tempfile.TemporaryDirectory() as folder:
        library = _compiled(plain, Path(folder))
        if library is None:
            print(f"{system.name}: CasADi's code does not compile in {PATIENCE:g} s", file=sys.stderr)
            return rows
        solver = ca.nlpsol("solver", "ipopt", str(library), settings)
        rows.append(_casadi_row(system, "CasADi's C code with IPOPT", solver, bounds_and_guess, duration, repeats))
    return rows


def _casadi_row(
    system: UserSystem, method: str, solver: Any, bounds_and_guess: Any, duration: Any, repeats: int
) -> Row:
    found, ms = _median(lambda: solver(**bounds_and_guess), repeats)
    stats, size = solver.stats(), f"{system.states.nx + 1}, {system.nu}, {system.knots}"
    numbers = stats["iter_count"], float(found["f"]), float(duration(found["x"])), ms
    return Row(system.name, size, method, stats["return_status"], *numbers)


def casadi_program(ca: Any, system: UserSystem) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Return the NLP of a system, its bounds and guess by CasADi's names, and the duration as a function of the variables."""
    n, m, N = system.states.nx, system.nu, system.knots
    step, running = _step(ca, system), _half_square(ca, system.running, [n, m])
    X, U, T = ca.MX.sym("X", n, N + 1), ca.MX.sym("U", m, N), ca.MX.sym("T")
    h = ca.repmat(T / N, 1, N)
    objective = T / N * ca.sum2(running.map(N)(X[:, :-1], U)) + _half_square(ca, system.terminal, [n])(X[:, -1])
    rows = [ca.vec(step.map(N)(X[:, :-1], U, h) - X[:, 1:])]
    if system.durations is not None:
        objective += system.price * T
    if system.arrival is not None:
        x = ca.SX.sym("x", n)
        rows.append(ca.Function("arrival", [x], [ca.vertcat(*system.arrival(x))])(X[:, -1]))
    w = ca.vertcat(ca.vec(X), ca.vec(U), T)
    lower, upper = _bounds(system)
    xs, us = system.guess
    guess = np.concatenate([xs.ravel(), us.ravel(), [system.duration]])
    bounds_and_guess = {"x0": guess, "lbx": lower, "ubx": upper, "lbg": 0.0, "ubg": 0.0}
    return {"x": w, "f": objective, "g": ca.vertcat(*rows)}, bounds_and_guess, ca.Function("duration", [w], [T])


def _step(ca: Any, system: UserSystem) -> Any:
    """Return one RK4 step of length h."""
    x, u, h = ca.SX.sym("x", system.states.nx), ca.SX.sym("u", system.nu), ca.SX.sym("h")

    def f(x: Any) -> Any:
        rates = list(system.f(x, u))
        if system.states.nx > system.states.ndx:  # the state starts with a quaternion (x, y, z, w)
            (a, b, c), (q1, q2, q3, q4) = rates[:3], (x[i] for i in range(4))
            quaternion_rate = [
                q4 * a + q2 * c - q3 * b,
                q4 * b + q3 * a - q1 * c,
                q4 * c + q1 * b - q2 * a,
                -q1 * a - q2 * b - q3 * c,
            ]
            rates = [*(0.5 * rate for rate in quaternion_rate), *rates[3:]]
        return ca.vertcat(*rates)

    k1 = f(x)
    k2 = f(x + 0.5 * h * k1)
    k3 = f(x + 0.5 * h * k2)
    k4 = f(x + h * k3)
    return ca.Function("step", [x, u, h], [x + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)])


def _half_square(ca: Any, residual: Any, sizes: list[int]) -> Any:
    """Return 1/2 |r|^2 of a residual, or zero if there is none."""
    arguments = [ca.SX.sym(f"a{i}", size) for i, size in enumerate(sizes)]
    r = ca.vertcat(*residual(*arguments)) if residual is not None else ca.SX(1, 1)
    return ca.Function("cost", arguments, [0.5 * ca.sumsqr(r)])


def _bounds(system: UserSystem) -> tuple[np.ndarray, np.ndarray]:
    """Return lower and upper bounds on states, controls and the duration."""
    n, m, N = system.states.nx, system.nu, system.knots
    build_notes = []
    for i, sign in enumerate((-1.0, 1.0)):
        along = (system.lower, system.upper)[i]
        states = np.tile(np.full(n, sign * np.inf) if along is None else along, (N + 1, 1))
        states[0] = system.start
        if system.final is not None:
            states[-1] = system.final[i]
        duration = system.duration if system.durations is None else system.durations[i]
        controls = np.full(N * m, (system.u_lower, system.u_upper)[i])
        build_notes.append(np.concatenate([states.ravel(), controls, [duration]]))
    return build_notes[0], build_notes[1]


def _compiled(solver: Any, folder: Path) -> Path | None:
    """Compile the functions of a solver; return the library, or None after the time limit."""
    here, library = Path.cwd(), folder / "program.so"
    os.chdir(folder)  # CasADi writes to the working directory only
    try:
        solver.generate_dependencies("program.c")
    finally:
        os.chdir(here)
    command = [*compiler_command(), "-O3", "-march=native", "-fPIC", "-shared", "-w"]
    try:
        subprocess.run([*command, str(folder / "program.c"), "-o", str(library), "-lm"], check=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return None
    return library


def _median(call: Callable[[], Any], repeats: int) -> tuple[Any, float]:
    """Return the last result and the median processor time [ms], after one warm-up call."""
    found, times = call(), []
    for _ in range(repeats):
        began = time.process_time()
        found = call()
        times.append(1e3 * (time.process_time() - began))
    return found, statistics.median(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(SYSTEMS), help="comma-separated names")
    parser.add_argument("--backend", default="forward_ad", help="comma-separated derivative methods")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--batch", type=int, default=40, help="number of problems in a batch; 0: no batch")
    parser.add_argument("--peer", action="store_true", help="also measure CasADi with IPOPT")
    parser.add_argument("--out", type=Path, help="folder of table.csv")
    arguments = parser.parse_args()
    print(f"{machine()}\n{build_notes('CasADi', 'IPOPT')}\n")
    print_table(COLUMNS, map(_cells, _rows(arguments)), arguments.out and arguments.out / "table.csv")


def _rows(arguments: argparse.Namespace) -> Iterator[Row]:
    for name in arguments.only.split(","):
        system = SYSTEMS[name]()
        for method in arguments.backend.split(","):
            yield default_row(system, method, arguments.repeats, arguments.batch)
        if arguments.peer:
            yield from casadi_rows(system, arguments.repeats)


def _cells(row: Row) -> list[str]:
    numbers = f"{row.cost:.7g}", f"{row.duration:.4f}", f"{row.ms:.1f}"
    return [row.problem, row.size, row.solver, row.status, str(row.iterations), *numbers, row.batch]


if __name__ == "__main__":
    main()
