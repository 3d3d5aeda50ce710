"""Checks of mechanical identities, integrator orders, and one solve with every backend.

    python -m experiments.benchmark_foundation [--quick] [--out DIR]

Identities: random trees of mixed joints, every second one floating, every third one with rotors; rates by complex step.
Orders: slope of the global error over the step, relative to scipy's DOP853 at 1e-13. Solves: the UR5 reach of
problems/configs/ur5_reach.toml; the table has the final gradient by each backend, and the analytic gradient at the same
point. Times are those of one solve; on the compiled engine they include the preparation of kernels.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import solve_ivp

import problems
from dynamics_backends.registry import backend_names, make_backend
from dynamics_backends.rigid_body import batched
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.model_builder import JointSpec, ModelBuilder
from dynamics_backends.rigid_body.model.sample_models import random_tree
from dynamics_backends.systems.bodies.free_body import FreeBody
from experiments.benchmarks.tables import markdown, write_report
from trajopt import Guess, SampledSystem, Solution, solve
from trajopt.config.build import build_task
from trajopt.config.config import Config, load_config
from trajopt.config.task import Task

Array = np.ndarray
CONFIG = Path(problems.__file__).parent / "configs" / "ur5_reach.toml"
STEP = 1e-30  # complex step
SCALES = {
    "ID(FD(tau)) = tau": "the largest entry",
    "v'(dM/dt - 2 C) v = 0": "largest entry of dM/dt times v'v",
    "power = dE/dt": "rates of kinetic and potential energy",
    "M = M'": "the largest entry",
    "momentum conserved without gravity": "momentum due to accelerations alone",
}
SMALLEST_EIGENVALUE = "M > 0: smallest eigenvalue"
IDENTITY = 1e-10
ORDERS = {"euler": 1, "semi_implicit_euler": 1, "rk4": 4}
SLOPE_TOLERANCE = 0.1
HORIZON = 1.0  # [s] horizon of the integrators
STEPS = {1: (128, 256, 512, 1024), 4: (16, 32, 64, 128)}
GRADIENT, COST = 1e-6, 1e-8


class Measurement(NamedTuple):
    """Error of an identity in its worst tree, or fitted order of an integrator. basis: scale of the error, or the system."""

    what: str
    basis: str
    value: float
    figure: str
    holds: bool


class Solve(NamedTuple):
    """One solve. analytic_gradient: by the analytic backend at the solution; difference: of the cost to the first solve."""

    backend: str
    engine: str
    status: str
    iterations: int
    gradient: float
    analytic_gradient: float
    cost: float
    difference: float
    seconds: float
    holds: bool


def tree(seed: int) -> Model:
    """Return a random tree of 5 to 8 bodies; every second one floats, every third one has rotors."""
    rng = np.random.default_rng(seed)
    model = random_tree(rng, 5 + seed % 4, floating_base=seed % 2 == 1)
    rotors = rng.uniform(0.01, 0.2, model.nv) * (seed % 3 == 0)
    return model.replace(armature=np.where(model.actuated, rotors, 0.0))


def point(model: Model, seed: int) -> tuple[Array, Array, Array]:
    """Draw q (nq,), and v, tau (nv,) of unit variance."""
    rng = np.random.default_rng(seed)
    return model.random_configuration(rng, 1)[0], rng.standard_normal(model.nv), rng.standard_normal(model.nv)


def complex_step(model: Model, q: Array, v: Array, a: Array) -> tuple[Array, Array]:
    """Return the state after an imaginary time step."""
    x, tangent = np.concatenate([q, v]), np.concatenate([v, a])
    later = FreeBody(model).manifold.integrate(x[:, None].astype(complex), 1j * STEP * tangent[:, None])
    return np.asarray(later)[: model.nq, 0], np.asarray(later)[model.nq :, 0]


def tree_errors(seed: int) -> dict[str, float]:
    """Return the relative errors on one tree, and the smallest eigenvalue of its mass matrix."""
    model = tree(seed)
    q, v, tau = point(model, seed)
    a = batched.forward_dynamics(model, q, v, tau)
    q_later, v_later = complex_step(model, q, v, a)
    M, rate = batched.mass_matrix(model, q), batched.mass_matrix(model, q_later).imag / STEP
    coriolis = batched.nonlinear_effects(model.with_gravity((0.0, 0.0, 0.0)), q, v)
    rates = [float(e.imag) / STEP for e in batched.energy(model, q_later, v_later)]
    errors = (
        np.abs(batched.inverse_dynamics(model, q, v, a) - tau).max() / np.abs(tau).max(),
        abs(v @ rate @ v - 2.0 * v @ coriolis) / (np.abs(rate).max() * (v @ v)),
        abs(sum(rates) - tau @ v) / sum(map(abs, rates)),
        np.abs(M - M.T).max() / np.abs(M).max(),
        momentum_error(seed),
    )
    return {**dict(zip(SCALES, map(float, errors), strict=True)), SMALLEST_EIGENVALUE: np.linalg.eigvalsh(M)[0]}


def momentum_error(seed: int) -> float:
    """Return the relative momentum error of a floating tree without rotors or external forces."""
    model = random_tree(seed, 5 + seed % 4, floating_base=True).with_gravity((0.0, 0.0, 0.0))
    q, v, tau = point(model, seed)
    a = batched.forward_dynamics(model, q, v, np.where(model.actuated, tau, 0.0))
    rate = batched.spatial_momentum(model, *complex_step(model, q, v, a)).imag / STEP
    return np.abs(rate).max() / np.abs(batched.spatial_momentum(model, q, a)).max()


def identities(trees: int) -> Iterator[Measurement]:
    """Check all identities; each has the error of its worst tree."""
    found = [tree_errors(seed) for seed in range(trees)]
    for name, scale in SCALES.items():
        worst = float(np.max([errors[name] for errors in found]))
        yield Measurement(name, scale, worst, f"<= {IDENTITY:.0e}", worst <= IDENTITY)
    smallest = float(np.min([errors[SMALLEST_EIGENVALUE] for errors in found]))
    yield Measurement(SMALLEST_EIGENVALUE, "", smallest, "> 0", smallest > 0)


def one_body(joint: str) -> tuple[FreeBody, Array, Array]:
    """Return a fully actuated body, its state x (nx,), and its constant control u (nu,)."""
    builder, rng = ModelBuilder(joint), np.random.default_rng(0)
    builder.add_body(
        "body", None, JointSpec(joint, axis=(0, 1, 0)), mass=2, com=(0.1, 0, -0.3), inertia=np.diag([0.3, 0.4, 0.6])
    )
    system = FreeBody(model := builder.build(), actuated=model.dof_names)
    tangent = rng.uniform(-1.0, 1.0, (system.manifold.ndx, 1))
    x = np.asarray(system.manifold.integrate(system.manifold.identity()[:, None], tangent))[:, 0]
    return system, x, rng.uniform(-2.0, 2.0, system.nu)


def exact_state(system: FreeBody, x: Array, u: Array) -> Array:
    """Return the final state, integrated in coordinates of the ambient space; their rates are the derivative of x (+) dx."""

    def rate(t: float, x: Array) -> Array:
        tangent = np.asarray(system(x[:, None], u[:, None], np.array([t]), {}))
        return np.imag(system.manifold.integrate(x[:, None].astype(complex), 1j * STEP * tangent))[:, 0] / STEP

    return solve_ivp(rate, (0.0, HORIZON), x, method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1]


def global_error(sampled: SampledSystem, x: Array, u: Array, exact: Array, n: int) -> float:
    """Return the error in the tangent space after n steps."""
    state = x[None]
    for i in range(n):
        state = sampled.step(state, u[None], i * HORIZON / n, HORIZON / n)
    return float(np.linalg.norm(sampled.manifold.difference(exact[:, None], state.T)))


def orders() -> Iterator[Measurement]:
    """Measure the order of each integrator on each system."""
    for name, joint in (("SE(3) free flyer", "floating"), ("pendulum", "revolute")):
        system, x, u = one_body(joint)
        exact = exact_state(system, x, u)
        for scheme, order in ORDERS.items():
            sampled = SampledSystem(make_backend(system, "analytic", engine="numpy"), scheme)
            errors = [global_error(sampled, x, u, exact, n) for n in STEPS[order]]
            slope = -float(np.polyfit(np.log(STEPS[order]), np.log(errors), 1)[0])
            held = abs(slope - order) <= SLOPE_TOLERANCE
            yield Measurement(f"order of {scheme}", name, slope, f"{order} to {SLOPE_TOLERANCE:g}", held)


def gradient_at(config: Config, task: Task, solution: Solution) -> float:
    """Return the gradient norm of a task at a solution."""
    options = replace(config.solver_options, max_iterations=1)
    return solve(task.ocp, Guess(solution.xs, solution.us), options, None, config.solver_name).history[0].gradient


def solves(engines: Iterable[str]) -> Iterator[Solve]:
    """Solve with every backend on the given engines."""
    config = load_config(CONFIG).with_engine("numpy")
    analytic, first = build_task(config), None
    for engine in engines:
        for backend in backend_names():
            task = build_task(config.with_backend(backend).with_engine(engine))
            s = solve(task.ocp, task.guess, config.solver_options, None, config.solver_name)
            first = first or s.cost
            gradients = s.history[-1].gradient, gradient_at(config, analytic, s)
            code, difference = str(s.status.code), abs(s.cost - first) / abs(first)
            holds = code == "converged" and bool(np.max(gradients) <= GRADIENT) and difference <= COST
            numbers = s.iterations, *gradients, s.cost, difference, s.meta["solve_time"]
            yield Solve(backend, engine, code, *numbers, holds)


FORMATS = {"value": ".4g", "cost": ".12f", "seconds": ".3f"}


def cell(field: str, value: Any) -> str:
    """Format a table cell."""
    if field == "holds":
        return "yes" if value else "NO"
    return format(value, FORMATS.get(field, ".2e")) if isinstance(value, float) else str(value)


def section(title: str, entries: list[Any], file: Path) -> str:
    """Return a heading with the number of failed checks, and a table of all fields; file: CSV file to write the table to."""
    header = [f.replace("holds", "held").replace("_", " ") for f in entries[0]._fields]
    rows = [[cell(*pair) for pair in e._asdict().items()] for e in entries]
    missed = sum(not e.holds for e in entries)
    conclusion = f"{missed} of {len(entries)} NOT held" if missed else f"all {len(entries)} held"
    return f"## {title}: {conclusion}\n\n{markdown(header, rows, file)}"


def report(results: dict[str, list[Any]], trees: int, out: Path) -> str:
    """Return the report as Markdown, and write its tables to CSV files."""
    figures = f"gradients <= {GRADIENT:.0e}, cost to {COST:.0e}"
    titles = f"Identities, {trees} random trees", "Orders of the integrators", f"SLQ, UR5 go-to, {figures}"
    machine = f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}."
    files = [out / f"{name}.csv" for name in results]
    return "\n\n".join(["# Foundation", machine, *map(section, titles, results.values(), files)]) + "\n"


def main() -> None:
    """Run, print the report, and write it with the CSV files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer trees, engine numpy only")
    parser.add_argument("--out", type=Path, default=Path("out/benchmark_foundation"), help="folder of the results")
    options = parser.parse_args()
    trees = 10 if options.quick else 50
    engines = ("numpy",) if options.quick else ("numpy", "compiled")
    parts = {"identities": identities(trees), "orders": orders(), "solves": solves(engines)}
    results: dict[str, list[Any]] = {name: list(part) for name, part in parts.items()}
    write_report(options.out, report(results, trees, options.out))


if __name__ == "__main__":
    main()
