"""The default call of ten problems: `to.solve` with all checks, and without them; `backend.jacobians` and the kernel in it.

    python -m experiments.benchmark_calls [--repeats 30] [--environment DIR] [--without-crocoddyl]

A call is what a script writes, `to.solve(ocp, guess, solver=...)`, on warm caches: validation, solve, measures, replay, goals.
Times are those of the processor, medians of the repeats; the calls take turns. Crocoddyl's solve of the same problem, where it
can state it, ends at its own tolerance (see benchmark_crocoddyl). Loops that the installation builds are to be there.
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
import platformdirs

import trajopt as to
from dynamics_backends.registry import shared_driver
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from experiments.benchmarks.solvers.crocoddyl_peer import environment, theirs
from experiments.benchmarks.solvers.crocoddyl_problems import PROBLEMS, Data, own_problem
from experiments.benchmarks.tables import markdown

KNOTS = 128


class Case(NamedTuple):
    """A problem with its guess, solver and options; peer: its name in benchmark_crocoddyl."""

    name: str
    solver: str
    ocp: to.OCP
    guess: to.Guess
    peer: str = ""
    options: Any = None


def readme_reach() -> to.OCP:
    """The script of the README."""
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
    """The ten calls."""
    reach = readme_reach()
    found = [Case("README's UR5 reach", solver, reach, to.constant_guess(reach)) for solver in ("slq", "auto", "ipm")]
    for name, solver in (("unicycle", "ddp"), ("unicycle", "fddp"), ("kinova reach", "fddp"), ("kinova reach", "auto")):
        p = PROBLEMS[name]()
        ocp = own_problem(p)
        found.append(Case(name, solver, ocp, to.constant_guess(ocp, _holding(p)), name))
    for name in ("ur5_obstacle", "cart_pole_swing_up", "hyq_stand"):
        loaded = to.load_problem(name)
        found.append(Case(name, loaded.solver, loaded.ocp, loaded.guess, options=loaded.options))
    return found


def _holding(p: Data) -> np.ndarray | float:
    """The torques that hold an arm at the start of a problem; zero for others."""
    if p["kind"] != "arm":
        return 0.0
    model = to.load_robot(f"erd:{p['robot']}")
    still = np.zeros(model.nv)
    return to.inverse_dynamics(model, np.array(p["x0"][: model.nq]), still, still)


def median_ms(calls: Sequence[Callable[[], Any]], repeats: int) -> list[float]:
    """Median milliseconds of the processor of each call; they take turns, after one turn that is not counted."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(repeats + 1):
        for own, call in zip(times, calls, strict=True):
            began = time.process_time()
            call()
            if turn:
                own.append(1e3 * (time.process_time() - began))
    return [statistics.median(own) for own in times]


def measured(case: Case, repeats: int) -> list[str]:
    """A row without Crocoddyl's column."""
    call = partial(to.solve, case.ocp, case.guess, case.options, solver=case.solver)
    code = str(call().status.code)
    whole, alone = median_ms([call, partial(call, check=False)], repeats)
    return [case.name, case.solver, code, f"{whole:.2f}", f"{alone:.2f}", f"{whole - alone:.2f}"]


def crocoddyl_ms(python: Path, name: str, repeats: int) -> str:
    """Median milliseconds of Crocoddyl's solve of its problem of a name."""
    told, _ = theirs(python, PROBLEMS[name](), repeats)
    return f"{statistics.median(told['ms']):.2f}"


def jacobians(name: str, repeats: int) -> list[str]:
    """Microseconds a knot of backend.jacobians of a robot, and of the kernel in it."""
    model = to.load_robot(name)
    system = to.FreeBody(model)
    backend, driver = to.make_backend(system, "analytic"), shared_driver()
    rng = np.random.default_rng(0)
    q = np.stack([model.random_configuration(rng) for _ in range(KNOTS)])
    v, tau = rng.standard_normal((2, KNOTS, model.nv))
    x, u = np.hstack([q, v]), rng.standard_normal((KNOTS, system.nu))
    backend.jacobians(x, u)
    kernel = driver._kernel(FDSVA, model, "real", KNOTS)
    whole, alone = median_ms([lambda: backend.jacobians(x, u), lambda: kernel(q, v, tau)], 10 * repeats)
    return [name, *(f"{1e3 * ms / KNOTS:.2f}" for ms in (whole, alone)), f"{whole / alone:.1f}"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--environment", type=Path, default=platformdirs.user_cache_path("trajopt") / "crocoddyl")
    parser.add_argument("--without-crocoddyl", action="store_true")
    given = parser.parse_args(arguments)
    python = None if given.without_crocoddyl else environment(given.environment)
    rows, known = [], dict[str, str]()
    for case in cases():
        if python is not None and case.peer and case.peer not in known:
            known[case.peer] = crocoddyl_ms(python, case.peer, given.repeats)
        rows.append([*measured(case, given.repeats), known.get(case.peer, "")])
        print(", ".join(rows[-1]), flush=True)
    heads = ["problem", "solver", "code", "call", "without checks", "difference", "Crocoddyl"]
    print(f"\nMilliseconds.\n\n{markdown(heads, rows)}")
    rows = [jacobians(name, given.repeats) for name in ("erd:ur5", "hyq")]
    print(
        f"\nMicroseconds a knot, {KNOTS} knots.\n\n{markdown(['robot', 'backend.jacobians', 'kernel', 'ratio'], rows)}"
    )


if __name__ == "__main__":
    main()
