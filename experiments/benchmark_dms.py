"""Direct multiple shooting with IPOPT: time for each iteration beside CasADi's own compiled exact Hessian, on the same program.

    python -m experiments.benchmark_dms [--peer] [--repeats 20] [CONFIG ...]

One thread. Of each repeat the whole solve from the configuration's guess is timed; the fastest counts. ``--peer`` builds the same
program with CasADi: the articulated-body algorithm, a step of RK4 and the constraints as SX functions, shots as MX, derivatives by
its AD, all as C compiled with -O3 (-O1 where that takes longer than PATIENCE), solved by the same IPOPT.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.toolchain import find_toolchain
from experiments.build import build_task
from experiments.config import load_config
from trajopt.dms import transcribed
from trajopt.ipopt import solve_ipopt
from trajopt.ocp import OCP
from trajopt.transcription import Transcription

CONFIGS = Path(__file__).parent.parent / "problems" / "configs"
DEFAULT = ("ur5_obstacle", "irb4600_dms", "irb4600_obstacle")
PATIENCE = 150.0  # [s] for a compiler
COLUMNS = ("program", "solved by", "iterations", "cost", "ms/iteration", "derivatives", "values", "IPOPT")


class Row(NamedTuple):
    """One line: milliseconds for each iteration, all included, and of it derivatives, values, IPOPT itself."""

    program: str
    by: str
    iterations: int
    cost: float
    total: float
    derivatives: float
    values: float
    ipopt: float


def own_row(name: str, program: Transcription, w: np.ndarray, options: Any, repeats: int) -> Row:
    """The fastest of some solves."""
    best: tuple[float, Any] = (np.inf, None)
    for _ in range(repeats):
        began = time.perf_counter()
        found = solve_ipopt(program, w, options)
        best = min(best, (time.perf_counter() - began, found), key=lambda pair: pair[0])
    seconds, found = best
    assert found.status.success, found.status
    share = {key: sum(r.times.get(key, 0.0) for r in found.history) for key in ("derivatives", "rollout", "backward")}
    each = [1e3 * value / found.iterations for value in (seconds, *share.values())]
    return Row(name, f"trajopt, {options.hessian}", found.iterations, found.objective, *each)


# -- the peer ---------------------------------------------------------------------------------------------------------


def casadi_row(name: str, program: Transcription, w: np.ndarray, options: Any, repeats: int) -> Row | None:
    """The same program by CasADi; None where its code does not compile in time."""
    import casadi as ca

    variables, objective, rows = _casadi_program(ca, program)
    own, theirs = program.evaluate(w), ca.Function("check", [variables], [objective, rows])(w)
    np.testing.assert_allclose(own[0], float(theirs[0]), rtol=1e-9)
    np.testing.assert_allclose(own[1], np.asarray(theirs[1])[:, 0], atol=1e-9)
    with tempfile.TemporaryDirectory() as folder:
        made = _compiled(ca, {"x": variables, "f": objective, "g": rows}, options, Path(folder))
        if made is None:
            print(f"{name}: CasADi's code does not compile in {PATIENCE:g} s")
            return None
        solver, level = made
        bounds = {"lbx": program.x_lower, "ubx": program.x_upper, "lbg": program.g_lower, "ubg": program.g_upper}
        best: tuple[float, Any, float] = (np.inf, None, 0.0)
        for _ in range(repeats):
            began = time.perf_counter()
            found = solver(x0=w, **bounds)
            best = min(best, (time.perf_counter() - began, solver.stats(), float(found["f"])), key=lambda b: b[0])
        seconds, stats, cost = best
        derivatives = sum(stats[f"t_wall_nlp_{key}"] for key in ("grad_f", "jac_g", "hess_l"))
        values = sum(stats[f"t_wall_nlp_{key}"] for key in ("f", "g"))
        count = stats["iter_count"]
        each = [1e3 * v / count for v in (seconds, derivatives, values, seconds - derivatives - values)]
        return Row(name, f"CasADi, exact, {level}", count, cost, *each)


def _casadi_program(ca: Any, program: Transcription) -> tuple[Any, Any, Any]:
    """Variables, objective and rows in the order of the transcription, as MX."""
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
    """x_next of one shot: steps of RK4 with a constant control."""
    sampled: Any = ocp.phases[0].dynamics
    n, m, h = ocp.manifold.nx, ocp.nu, float(ocp.dt[0]) / sampled.substeps
    x, u = ca.SX.sym("x", n), ca.SX.sym("u", m)

    def f(state: Any) -> Any:
        return sampled.system(state, u, 0.0, {})

    k1 = f(x)
    k2 = f(x + 0.5 * h * k1)
    k3 = f(x + 0.5 * h * k2)
    k4 = f(x + h * k3)
    step = ca.Function("rk4_step", [x, u], [x + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)])
    start, held = ca.MX.sym("x", n), ca.MX.sym("u", m)
    end = start
    for _ in range(sampled.substeps):
        end = step(end, held)
    return ca.Function("shot", [start, held], [end])


def _sum_of(ca: Any, terms: Sequence[Any], ocp: OCP, nu: int) -> Any:
    """1/2 sum w r^2 of terms whose weights and parameters are the same at all knots."""
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


def _compiled(ca: Any, nlp: dict[str, Any], options: Any, folder: Path) -> tuple[Any, str] | None:
    """CasADi's solver around a library of its own C code, and the level of optimisation."""
    ipopt = {
        "print_level": 0,
        "sb": "yes",
        "tol": options.gradient_tolerance,
        "constr_viol_tol": options.constraint_tolerance,
        "mu_init": options.barrier,
        "mu_strategy": options.barrier_strategy,
        "bound_relax_factor": 0.0,
        "max_iter": options.max_iterations,
    }
    settings = {"ipopt": ipopt, "print_time": False}
    plain = ca.nlpsol("solver", "ipopt", nlp, settings)
    source = folder / "program.c"
    here = Path.cwd()
    os.chdir(folder)  # CasADi writes beside the working directory only
    try:
        plain.generate_dependencies("program.c")
    finally:
        os.chdir(here)
    for level in ("-O3", "-O1"):
        library = folder / f"program{level}.so"
        command = [
            *find_toolchain().command,
            level,
            "-march=native",
            "-fPIC",
            "-shared",
            "-w",
            str(source),
            "-o",
            str(library),
        ]
        try:
            subprocess.run([*command, "-lm"], check=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            continue
        return ca.nlpsol("solver", "ipopt", str(library), settings), level
    return None


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configs", nargs="*", default=DEFAULT, help="names of bundled configurations, or files")
    parser.add_argument("--peer", action="store_true", help="also CasADi on the first configuration")
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    os.environ["TRAJOPT_THREADS"] = "1"
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    for i, name in enumerate(arguments.configs):
        path = Path(name) if name.endswith(".toml") else CONFIGS / f"{name}.toml"
        config = load_config(path)
        task = build_task(config)
        program = transcribed(task.ocp, task.guess, config.solver_options)
        w = program.variables(*task.guess)
        rows: list[Row | None] = [own_row(path.stem, program, w, config.solver_options, arguments.repeats)]
        if arguments.peer and i == 0:
            rows.append(casadi_row(path.stem, program, w, config.solver_options, max(2, arguments.repeats // 10)))
        for row in rows:
            if row is not None:
                numbers = " | ".join(f"{v:.2f}" for v in row[4:])
                print(f"| {row.program} | {row.by} | {row.iterations} | {row.cost:.8g} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
