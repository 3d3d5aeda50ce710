"""SQP on the lifting problem by exact and by differenced derivatives (Kudruss, Manns, Kirches 2019, fig. 3).

A human bends to a box and lifts it, with loads of 0, 5 and 15 kg.  Distance of each iterate from the last, |x_k - x*|_2 over
states and controls of all knots; AD by dual numbers, FD by forward differences.  The iterate k is where iteration k begins.
The paper's human is not public; ours is collapsed from published segments.  A quick run balances the
cart-pendulum instead, with carts as heavy as the loads, and ends after ten iterations.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

import problems
from experiments.config.build import build_task, make_ready, solve_task, uncut
from experiments.config.config import load_config
from experiments.papers.study import KUDRUSS, Comparison, Outcome
from trajopt.results.records import IterationRecord

SOURCE = f"{KUDRUSS}, fig. 3"
Array = np.ndarray
CONFIGS = Path(problems.__file__).parent / "configs"
LOADS, QUICK_LOADS = (0.0, 5.0, 15.0), (5.0,)
QUICK = [
    "problem.horizon=10",
    "problem.dt=0.05",
    "problem.q0=[0.0, 0.3]",
    "solver={name='sqp', hessian='gauss_newton', max_iterations=10}",
]
METHODS = {"AD": "forward_ad", "FD": "forward_difference"}
SAVED = 0.10
"""Share of iterations that AD saves in the paper, at most."""


class Run(NamedTuple):
    """How a solve went: whether it ended at a solution, the distance of each iterate from the last, its cost."""

    success: bool
    distances: list[float]
    cost: float

    @property
    def iterations(self) -> int:
        """How many it took."""
        return len(self.distances) - 1


def run(quick: bool) -> Outcome:
    """All solves."""
    runs = {
        (load, name): converged(load, method, quick)
        for load in (QUICK_LOADS if quick else LOADS)
        for name, method in METHODS.items()
    }
    rows = [
        {"load": load, "method": name, "iteration": k, "distance": d, "solved": r.success, "cost": r.cost}
        for (load, name), r in runs.items()
        for k, d in enumerate(r.distances)
    ]
    return Outcome(
        rows, [_comparison(runs, load) for load in dict.fromkeys(load for load, _ in runs)], partial(_draw, runs)
    )


def converged(load: float, method: str, quick: bool) -> Run:
    """The way of one solve."""
    name, mass = ("cart_pendulum", "cart_mass") if quick else ("lifting", "load")
    overrides = [f"problem.{mass}={load}", f"backend.name='{method}'", *(QUICK if quick else [])]
    config = load_config(CONFIGS / f"{name}.toml", overrides)
    if quick:
        config = config.with_engine("numpy")
    task = build_task(config)
    make_ready(config, task)
    iterates: list[tuple[Array, Array]] = []

    def remember(record: IterationRecord) -> None:
        if record.iterate is not None:
            iterates.append(record.iterate())

    last = uncut(solve_task(config, task, remember))
    begun = iterates[: last.iterations]  # where each iteration began; the last record may tell of the end alone
    distances = [float(np.sqrt(((xs - last.xs) ** 2).sum() + ((us - last.us) ** 2).sum())) for xs, us in begun]
    return Run(last.status.success, [*distances, 0.0], last.cost)


def _comparison(runs: dict[tuple[float, str], Run], load: float) -> Comparison:
    ad, fd = (runs[load, name] for name in METHODS)
    ours = f"{ad.iterations} of AD, {fd.iterations} of FD" + ("" if ad.success and fd.success else ", not all solved")
    apart = abs(ad.cost - fd.cost) / abs(ad.cost)
    why = f"costs at the end {apart:.0e} apart, relative"
    return Comparison(f"iterations with {load:g} kg", "AD up to 10 % fewer", ours, ad.iterations > fd.iterations, why)


def _draw(runs: dict[tuple[float, str], Run], path: Path) -> None:
    from experiments.plots.canvas import BLUE, ORANGE, figure, legend

    loads = list(dict.fromkeys(load for load, _ in runs))
    with figure(path, 1, len(loads), 2.0 + 3.0 * len(loads), 3.2, "Distance from the solution, lifting by SQP") as axes:
        for axis, load in zip(axes.flat, loads, strict=True):
            for (name, _), color in zip(METHODS.items(), (BLUE, ORANGE), strict=True):
                axis.semilogy(runs[load, name].distances[:-1], "o-", color=color, label=name, markersize=3)
            axis.set_title(f"{load:g} kg")
            axis.set_xlabel("iteration")
            axis.xaxis.get_major_locator().set_params(integer=True)
        axes.flat[0].set_ylabel("|x - x*|")
        legend(axes)
