"""Direct multiple shooting with IPOPT: time per iteration, compared with CasADi's compiled derivatives on the same program.

    python -m experiments.benchmark_dms [--quick] [--peer] [--repeats 20] [--out DIR] [CONFIG ...]

One thread. Complete solves from the configuration's guess are timed; the fastest repeat counts. ``--peer`` also builds
the first program with CasADi: articulated-body algorithm and constraints as SX functions, RK4 and shots as MX,
derivatives by CasADi's AD, as C code compiled with -O1 and -O3. It is solved by the same IPOPT, and by the fatrop of
CasADi's wheel (variables and rows by stage, fixed variables as equations). By default, CasADi computes derivatives in
up to 64 directions per function; functions of 10^5 statements then take minutes to compile, so the number is limited to
DIRECTIONS. CasADi's C code and ours are compiled for the local processor; the last column has our time with generic
code.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.environment import compiler_command
from experiments.benchmarks.generic import COLUMN, GenericProcess, build_notes
from experiments.benchmarks.tables import print_table
from trajopt.config.build import build_task
from trajopt.config.config import load_config
from trajopt.problem.ocp import OCP
from trajopt.solvers.direct.dms import transcribed
from trajopt.solvers.direct.transcription import Transcription
from trajopt.solvers.nlp.ipopt import MUMPS, solve_ipopt
from trajopt.solvers.options import DMSOptions

CONFIGS = Path(__file__).parents[3] / "problems" / "configs"
DEFAULT = ("ur5_obstacle", "irb4600_dms", "irb4600_obstacle")
PATIENCE, QUICK_PATIENCE = 240.0, 120.0  # [s] time limits of a compiler
DIRECTIONS = 6  # largest number of directions of a derivative function
COLUMNS = ("program", "solver", "iterations", "cost", "ms/iteration", "derivatives", "values", "IPOPT", COLUMN)


class Row(NamedTuple):
    """One table row: time per iteration [ms], and its parts derivatives, values, IPOPT. generic: total, with generic code."""

    program: str
    method: str
    iterations: int
    cost: float
    total: float
    derivatives: float
    values: float
    ipopt: float
    generic: float = float("nan")


def load_program(path: Path) -> tuple[str, Transcription, np.ndarray, Any]:
    """Return name, program, guess and options of a configuration."""
    config = load_config(path)
    task, adaptive = build_task(config), DMSOptions(barrier_strategy="adaptive")
    options = config.solver_options if config.solver_name == "dms" else adaptive
    program = transcribed(task.ocp, task.guess, options)
    return path.stem, program, program.variables(*task.guess), options


def our_time(path: Path, repeats: int) -> float:
    """Return the time per iteration [ms] of our fastest solve."""
    return our_row(*load_program(path), repeats).total


def our_row(name: str, program: Transcription, w: np.ndarray, options: Any, repeats: int) -> Row:
    """Measure our fastest solve."""
    best: tuple[float, Any] = (np.inf, None)
    for _ in range(repeats):
        began = time.perf_counter()
        found = solve_ipopt(program, w, options)
        best = min(best, (time.perf_counter() - began, found), key=lambda pair: pair[0])
    seconds, found = best
    assert found.status.success, found.status
    fraction = {
        key: sum(r.times.get(key, 0.0) for r in found.history) for key in ("derivatives", "rollout", "backward")
    }
    each = [1e3 * value / found.iterations for value in (seconds, *fraction.values())]
    return Row(name, f"trajopt, {options.hessian}", found.iterations, found.objective, *each)


# -- the peer ---------------------------------------------------------------------------------------------------------


def casadi_rows(
    name: str, program: Transcription, w: np.ndarray, options: Any, repeats: int, patience: float
) -> Iterator[Row]:
    """Measure the program in CasADi, for each optimization level at which its code compiles in time."""
    import casadi as ca

    variables, objective, rows = _casadi_program(ca, program)
    own, theirs = program.evaluate(w), ca.Function("check", [variables], [objective, rows])(w)
    np.testing.assert_allclose(own[0], float(theirs[0]), rtol=1e-9)
    np.testing.assert_allclose(own[1], np.asarray(theirs[1])[:, 0], atol=1e-9)
    bounds = {"lbx": program.x_lower, "ubx": program.x_upper, "lbg": program.g_lower, "ubg": program.g_upper}
    with tempfile.TemporaryDirectory() as folder:
        source = _write_code(ca, {"x": variables, "f": objective, "g": rows}, "ipopt", _settings(options), Path(folder))
        for level in ("-O1", "-O3"):
            library = _compile(source, level, patience)
            if library is None:
                print(f"{name}: CasADi's code does not compile at {level} in {patience:g} s", file=sys.stderr)
                continue
            solver = ca.nlpsol("solver", "ipopt", str(library), _settings(options))
            yield _casadi_row(f"CasADi, exact, {level}", name, solver, {"x0": w, **bounds}, repeats)
    yield from _fatrop_rows(ca, name, program, w, options, repeats, patience)


def _fatrop_rows(
    ca: Any, name: str, program: Transcription, w: np.ndarray, options: Any, repeats: int, patience: float
) -> Iterator[Row]:
    """Measure fatrop, an interior-point method with stage structure."""
    variables, objective, rows = _casadi_program(ca, program)
    order, fixed = _stage_order(program)
    n_gaps = program.N * program.n
    rows = ca.vertcat(-rows[:n_gaps], rows[n_gaps:])  # fatrop expects dynamics as x_next - F
    all_rows = ca.vertcat(rows, variables[fixed.tolist()])[order.tolist()]
    lower = np.r_[program.g_lower, program.x_lower[fixed]][order]
    upper = np.r_[program.g_upper, program.x_upper[fixed]][order]
    x_lower, x_upper = program.x_lower.copy(), program.x_upper.copy()
    x_lower[fixed], x_upper[fixed] = -np.inf, np.inf
    bounds = {"lbx": x_lower, "ubx": x_upper, "lbg": lower, "ubg": upper}
    own = {"tolerance": options.gradient_tolerance, "mu_init": options.barrier, "max_iter": options.max_iterations}
    settings = {
        "structure_detection": "auto",
        "equality": (lower == upper).tolist(),
        "print_time": False,
        "fatrop": {**own, "print_level": 0},
    }
    nlp = {"x": variables, "f": objective, "g": all_rows}
    with tempfile.TemporaryDirectory() as folder:
        source = _write_code(ca, nlp, "fatrop", settings, Path(folder))
        for level in ("-O1", "-O3"):
            library = _compile(source, level, patience)
            if library is not None:
                solver = ca.nlpsol("solver", "fatrop", str(library), settings)
                yield _casadi_row(f"CasADi and fatrop, exact, {level}", name, solver, {"x0": w, **bounds}, repeats)


def _stage_order(program: Transcription) -> tuple[np.ndarray, np.ndarray]:
    """Return the order of rows and fixed variables by stage, and the fixed variables."""
    fixed = np.flatnonzero(program.x_lower == program.x_upper)
    own: list[list[int]] = [[] for _ in range(program.N + 1)]
    stage_of = fixed // (program.n + program.m)
    gaps = np.arange(program.N * program.n).reshape(program.N, program.n)
    for k in range(program.N + 1):
        own[k] += gaps[k].tolist() if k < program.N else []
        own[k] += (program.rows + np.flatnonzero(stage_of == k)).tolist()
    for part in program.parts:
        for k, row in enumerate(part.rows):
            own[part.knots.start + k] += row[row >= 0].tolist()
    return np.array(list(chain(*own))), fixed


def _casadi_row(method: str, name: str, solver: Any, given: dict[str, Any], repeats: int) -> Row:
    """Measure the fastest solve of CasADi."""
    best: tuple[float, Any, float] = (np.inf, None, 0.0)
    for _ in range(repeats):
        began = time.perf_counter()
        found = solver(**given)
        best = min(best, (time.perf_counter() - began, solver.stats(), float(found["f"])), key=lambda b: b[0])
    seconds, stats, cost = best
    assert stats["success"], stats["return_status"]
    derivatives = sum(stats[f"t_wall_nlp_{key}"] for key in ("grad_f", "jac_g", "hess_l"))
    values = sum(stats[f"t_wall_nlp_{key}"] for key in ("f", "g"))
    count = stats["iter_count"]
    each = [1e3 * v / count for v in (seconds, derivatives, values, seconds - derivatives - values)]
    return Row(name, method, count, cost, *each)


def _casadi_program(ca: Any, program: Transcription) -> tuple[Any, Any, Any]:
    """Return variables, objective and rows in the order of the transcription, as MX."""
    ocp, N = program.original, program.N
    phase, w = ocp.phases[0], ca.MX.sym("w", program.size)
    shot, cost, final_cost = _shot(ca, ocp), _sum_of(ca, phase.terms, ocp, ocp.nu), _sum_of(ca, ocp.terminal, ocp, 0)
    path, final = (_constraints(ca, part.constraints, ocp) for part in program.parts)
    X = [w[program.ix[k].tolist()] for k in range(N + 1)]
    U = [w[program.iu[k].tolist()] for k in range(N)]
    objective = sum(float(phase.dt[k]) * cost(X[k], U[k]) for k in range(N)) + final_cost(X[N], ca.MX(0, 1))
    gaps = [shot(X[k], U[k]) - X[k + 1] for k in range(N)]
    along = [path(X[k]) for k in range(1, N)]
    return w, objective, ca.vertcat(*gaps, *along, final(X[N]))


def _shot(ca: Any, ocp: OCP) -> Any:
    """Return the final state of a shot: RK4 steps with a constant control."""
    sampled: Any = ocp.phases[0].dynamics
    n, m, h = ocp.manifold.nx, ocp.nu, float(ocp.dt[0]) / sampled.substeps
    direction_limit = {"max_num_dir": DIRECTIONS}
    x, u = ca.SX.sym("x", n), ca.SX.sym("u", m)
    f = ca.Function("f", [x, u], [sampled.system(x, u, 0.0, {})], direction_limit)
    x, u = ca.MX.sym("x", n), ca.MX.sym("u", m)
    k1 = f(x, u)
    k2 = f(x + 0.5 * h * k1, u)
    k3 = f(x + 0.5 * h * k2, u)
    k4 = f(x + h * k3, u)
    step = ca.Function("rk4_step", [x, u], [x + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)], direction_limit)
    end = x
    for _ in range(sampled.substeps):
        end = step(end, u)
    return ca.Function("shot", [x, u], [end], direction_limit)


def _sum_of(ca: Any, terms: Sequence[Any], ocp: OCP, nu: int) -> Any:
    """Return 1/2 sum w r^2 of terms with constant weights and parameters."""
    x, u = ca.SX.sym("x", ocp.manifold.nx), ca.SX.sym("u", nu)
    total = ca.SX(0)
    for term in terms:
        r = _residual(ca, term, x, u)
        total += 0.5 * ca.dot(ca.DM(term.weight), r * r)
    return ca.Function("cost", [x, u], [total])


def _constraints(ca: Any, constraints: Sequence[Any], ocp: OCP) -> Any:
    x = ca.SX.sym("x", ocp.manifold.nx)
    return ca.Function("g", [x], [ca.vertcat(ca.SX(0, 1), *(_residual(ca, c, x, ca.SX(0, 1)) for c in constraints))])


def _residual(ca: Any, part: Any, x: Any, u: Any) -> Any:
    p = {key: ca.SX(ca.DM(value)) for key, value in part.parameters.items()}
    r = part.residual(x[: part.residual.manifold.nx], u[: part.residual.nu], 0.0, p)
    return ca.vertcat(*r) if isinstance(r, list) else r


def _settings(options: Any) -> dict[str, Any]:
    """Return the solver options by CasADi's names."""
    ipopt = {
        "print_level": 0,
        "sb": "yes",
        "tol": options.gradient_tolerance,
        "constr_viol_tol": options.constraint_tolerance,
        "mu_init": options.barrier,
        "mu_strategy": options.barrier_strategy,
        "bound_relax_factor": 0.0,
        "max_iter": options.max_iterations,
        **MUMPS,
    }
    return {"ipopt": ipopt, "print_time": False}


def _write_code(ca: Any, nlp: dict[str, Any], solver: str, settings: dict[str, Any], folder: Path) -> Path:
    """Write the C code of the functions of a solver; return its path."""
    plain = ca.nlpsol("solver", solver, nlp, settings)
    here = Path.cwd()
    os.chdir(folder)  # CasADi writes to the working directory only
    try:
        plain.generate_dependencies("program.c")
    finally:
        os.chdir(here)
    return folder / "program.c"


def _compile(source: Path, level: str, patience: float) -> Path | None:
    """Compile the code; return the library, or None after the time limit."""
    library = source.with_name(f"program{level}.so")
    command = [*compiler_command(), level, "-march=native", "-fPIC", "-shared", "-w"]
    try:
        subprocess.run([*command, str(source), "-o", str(library), "-lm"], check=True, timeout=patience)
    except subprocess.TimeoutExpired:
        return None
    return library


def main() -> None:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configs", nargs="*", default=DEFAULT, help="names of bundled configurations, or files")
    parser.add_argument("--quick", action="store_true", help="the first configuration only, with shorter time limits")
    parser.add_argument("--peer", action="store_true", help="also measure CasADi on the first configuration")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=Path, help="folder of table.csv")
    arguments = parser.parse_args()
    os.environ["TRAJOPT_THREADS"] = "1"
    repeats, patience = arguments.repeats, QUICK_PATIENCE if arguments.quick else PATIENCE
    print(build_notes("CasADi", "IPOPT"))
    names = arguments.configs[:1] if arguments.quick else arguments.configs
    with GenericProcess() as process:
        found = map(_cells, _rows(names, repeats, patience if arguments.peer else None, process))
        print_table(COLUMNS, found, arguments.out and arguments.out / "table.csv")


def _rows(names: Sequence[str], repeats: int, patience: float | None, process: GenericProcess) -> Iterator[Row]:
    """Yield our row of each configuration, and CasADi's rows of the first one; patience: None: without CasADi."""
    for i, name in enumerate(names):
        path = Path(name) if name.endswith(".toml") else CONFIGS / f"{name}.toml"
        given = load_program(path)
        yield our_row(*given, repeats)._replace(generic=process.call(our_time, path, repeats))
        if patience is not None and i == 0:
            yield from casadi_rows(*given, max(2, repeats // 10), patience)


def _cells(row: Row) -> list[str]:
    numbers = ("" if np.isnan(value) else f"{value:.2f}" for value in row[4:])
    return [row.program, row.method, str(row.iterations), f"{row.cost:.8g}", *numbers]


if __name__ == "__main__":
    main()
