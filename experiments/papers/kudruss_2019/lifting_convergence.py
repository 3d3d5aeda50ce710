"""SQP on the lifting problem with exact and finite-difference derivatives (Kudruss, Manns, Kirches 2019, fig. 3).

A human bends to a box and lifts it, with loads of 0, 5 and 15 kg. The plot shows the distance of each iterate from the last,
|x_k - x*|_2 over states and controls of all knots. AD: forward mode; FD: forward differences, both for first derivatives. Second
derivatives of the Lagrangian are the closed form in both. Iterate k is the start of iteration k. The paper's text names neither the
loads, the Hessian nor the tolerances of its SQP method. Its human model is not public; ours merges published body segments. Quick
runs: a short motion with few knots and few iterations.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

import problems
from experiments.papers.method import Method, ran
from experiments.papers.study import KUDRUSS, Claim, Comparison, Outcome
from trajopt import Solution
from trajopt.config.build import build_task, make_ready, solve_task
from trajopt.config.config import load_config
from trajopt.results.records import IterationRecord
from trajopt.results.solution import uninterrupted

SOURCE = f"{KUDRUSS}, fig. 3"
Array = np.ndarray
MAX_PLOTTED = 30
"""Maximum number of plotted iterations."""
CONFIGS = Path(problems.__file__).parent / "configs"
LOADS, QUICK_LOADS = (0.0, 5.0, 15.0), (5.0,)
DERIVATIVES = {"AD": "forward_ad", "FD": "forward_difference"}
TOLERANCES = (1e-6, 1e-8)
"""Tolerances of gradient, constraints and scaled KKT error; finite differences stagnate above the second one."""
DEFINITION = ["problem.knots=25", "problem.substeps=6", "problem.bending=[0.5, 1.5]", "problem.lifting=[0.5, 1.5]"]
QUICK = [
    "problem.knots=2",
    "problem.substeps=1",
    "problem.bending=[0.1, 0.2]",
    "problem.lifting=[0.1, 0.2]",
    "solver.max_iterations=1",
]


def method(derivatives: str, tolerance: float) -> Method:
    """SQP with the exact Hessian, and with the given derivatives and tolerance."""
    keys = ("gradient_tolerance", "constraint_tolerance", "kkt_tolerance")
    return Method(
        "sqp", "exact", "rk4", DERIVATIVES[derivatives], {"max_iterations": 200, **dict.fromkeys(keys, tolerance)}
    )


class Run(NamedTuple):
    """A solution, and the distance of each iterate from the last."""

    solution: Solution
    distances: list[float]

    @property
    def iterations(self) -> int:
        """Number of iterations."""
        return len(self.distances) - 1

    @property
    def reached(self) -> bool:
        """True if the solve reached its own tolerance. ``status.success`` uses the default tolerance."""
        return self.solution.status.success and self.solution.history[-1].stop <= 1.0

    @property
    def full_steps_from(self) -> float:
        """First iteration from which all steps are full; inf if the last step is not full."""
        shortened = [r.iteration for r in self.solution.history[: self.iterations] if r.step_length < 1.0]
        first = max(shortened, default=-1) + 1
        return first if first < self.iterations else float("inf")


def run(quick: bool) -> Outcome:
    """Run all solves."""
    runs = {
        (load, tolerance, name): converged(load, method(name, tolerance), quick)
        for load in (QUICK_LOADS if quick else LOADS)
        for tolerance in TOLERANCES[: 1 if quick else None]
        for name in DERIVATIVES
    }
    rows = [
        {
            "load": load,
            "tolerance": tolerance,
            "method": name,
            "iteration": k,
            "distance": d,
            "tolerance reached": r.reached,
            "cost": r.solution.cost,
            **ran(r.solution),
        }
        for (load, tolerance, name), r in runs.items()
        for k, d in enumerate(r.distances)
    ]
    cases = dict.fromkeys((load, tolerance) for load, tolerance, _ in runs)
    remarks = [
        f"AD and FD: {method('AD', TOLERANCES[0])}, and tolerances of {TOLERANCES[1]:g}.",
        "The exact Hessian has the closed form of second derivatives with both methods: they differ in first derivatives.",
        f"The plot ends at iteration {MAX_PLOTTED}. The paper's text does not name the loads of its three plots.",
    ]
    return Outcome(rows, [_comparison(runs, *case) for case in cases], partial(_draw, runs), remarks)


def converged(load: float, method: Method, quick: bool) -> Run:
    """Solve for one load, and record the distances of the iterates."""
    overrides = [f"problem.load={load}", *method.overrides(), *DEFINITION, *(QUICK if quick else [])]
    config = load_config(CONFIGS / "lifting.toml", overrides)
    config = config.with_engine("numpy") if quick else config
    task = build_task(config)
    if not quick:
        make_ready(config, task)
    iterates: list[tuple[Array, Array]] = []

    def record_iterate(record: IterationRecord) -> None:
        if record.iterate is not None:
            iterates.append(record.iterate())

    last = method.require(uninterrupted(solve_task(config, task, record_iterate)))
    begun = iterates[: last.iterations]  # starts of the iterations; the last record may be the final iterate
    distances = [float(np.sqrt(((xs - last.xs) ** 2).sum() + ((us - last.us) ** 2).sum())) for xs, us in begun]
    return Run(last, [*distances, 0.0])


def _comparison(runs: dict[tuple[float, float, str], Run], load: float, tolerance: float) -> Comparison:
    ad, fd = (runs[load, tolerance, name] for name in DERIVATIVES)
    named = dict(zip(DERIVATIVES, (ad, fd), strict=True))
    shown = [
        f"{r.iterations} of {name}" + ("" if r.reached else " (tolerance not reached)") for name, r in named.items()
    ]
    apart = abs(ad.solution.cost - fd.solution.cost) / abs(ad.solution.cost)
    begins = [
        f"no phase of full steps ({name})" if np.isinf(k) else f"full steps from iteration {k:.0f} ({name})"
        for name, k in ((name, r.full_steps_from) for name, r in named.items())
    ]
    why = f"{', '.join(begins)}; costs at the end {apart:.0e} apart, relative"
    same = ad.iterations == fd.iterations
    claims = [
        Claim("SQP with AD reaches the tolerance", ad.reached),
        Claim("AD takes fewer iterations than FD", ad.iterations < fd.iterations, only_differs=same),
        Claim("AD enters the phase of full steps no later than FD", ad.full_steps_from <= fd.full_steps_from),
    ]
    what = f"iterations with {load:g} kg" + ("" if tolerance == TOLERANCES[0] else f", to {tolerance:g}")
    return Comparison(what, "AD up to 10 % fewer", ", ".join(shown), claims, why)


def _draw(runs: dict[tuple[float, float, str], Run], path: Path) -> None:
    from experiments.plots.canvas import BLUE, LINES, ORANGE, figure, legend

    loads = list(dict.fromkeys(load for load, _, _ in runs))
    with figure(path, 1, len(loads), 2.0 + 3.0 * len(loads), 3.2, "Distance from the solution, lifting by SQP") as axes:
        for axis, load in zip(axes.flat, loads, strict=True):
            for tolerance, line in zip(TOLERANCES, LINES, strict=False):
                for name, color in zip(DERIVATIVES, (BLUE, ORANGE), strict=True):
                    if (load, tolerance, name) in runs:
                        distances = runs[load, tolerance, name].distances[:-1]
                        label = f"{name}, to {tolerance:g}"
                        axis.semilogy(distances, line, marker="o", color=color, label=label, markersize=2)
            axis.set_title(f"{load:g} kg")
            axis.set_xlabel("iteration")
            axis.set_xlim(-0.5, MAX_PLOTTED + 0.5)
            axis.xaxis.get_major_locator().set_params(integer=True)
        axes.flat[0].set_ylabel("|x - x*|")
        legend(axes)
