"""First-order derivatives: accuracy of all methods, and time of the analytic method, on robots of example-robot-data.

    python -m experiments.benchmark_first_order [--quick] [--out DIR]

Accuracy: values and analytic derivatives are compared with Pinocchio, all other methods with the analytic derivatives.
An error is the largest deviation relative to the largest entry of the block (derivatives in q, v, or the input), in the
worst sample. Velocities, accelerations and forces have unit variance; configurations are within the joint limits. Time:
one call for a batch, compared with a Python loop over Pinocchio's C++ functions in the same process.
"""

from __future__ import annotations

import argparse
import platform
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Jacobians
from dynamics_backends.registry import backend_names, make_backend
from dynamics_backends.rigid_body import batched
from dynamics_backends.rigid_body.model.state import PinocchioConverter
from dynamics_backends.rigid_body.urdf.loader import URDFWarning
from dynamics_backends.systems.bodies.rigid_body_map import ForwardDynamics, InverseDynamics
from experiments.analysis.timing import SEED, samples
from experiments.benchmarks.generic import PEERS
from experiments.benchmarks.tables import markdown, write_report
from experiments.benchmarks.timing import import_time, median_time
from problems.robots import load_robot, robot_path

Array = np.ndarray
ROBOTS = {
    "ur5": "fixed",
    "panda": "fixed",
    "kinova": "fixed",
    "hyq": "floating",
    "anymal": "floating",
    "talos": "floating",
}
TIMED = ("ur5", "hyq", "talos")
BATCHES = (1, 10, 100, 1000)
DIFFERENCES = {"central_difference": 1e-7, "forward_difference": 1e-5}
EXACT = {"ID": 1e-12, "FD": 1e-10}
VALUES = {"ID": 1e-12, "M": 1e-12, "FD": 1e-10}
SKIPPED = {("talos", "casadi_ad")}  # tracing alone takes 12 s
IMPORTS = {"import trajopt": 0.5, "from trajopt import *": None}


class Robot(NamedTuple):
    """A robot in this library and in Pinocchio."""

    name: str
    model: Any
    pin_model: Any
    converter: PinocchioConverter


class Accuracy(NamedTuple):
    """One entry of the error table; figure: largest allowed error."""

    robot: str
    quantity: str
    method: str
    reference: str
    error: float
    figure: float

    @property
    def holds(self) -> bool:
        """True if the error is at most its figure."""
        return self.error <= self.figure


class Timing(NamedTuple):
    """Times of analytic derivatives of forward dynamics [us per knot]."""

    robot: str
    batch: int
    numpy_us: float
    pinocchio_us: float
    ratio: float


def load(name: str) -> Robot:
    """Load a robot by its short name, with the base of ROBOTS."""
    import pinocchio as pin

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", URDFWarning)
        model = load_robot(f"erd:{name}", base=ROBOTS[name])
    root = (pin.JointModelFreeFlyer(),) if model.floating_base else ()
    pin_model = pin.buildModelFromUrdf(str(robot_path(f"erd:{name}")), *root)
    return Robot(name, model, pin_model, PinocchioConverter(model, pin_model))


def worst_error(actual: Array, expected: Array) -> float:
    """Return the largest error relative to the largest entry of each sample, for the worst sample."""
    axes = tuple(range(1, expected.ndim))
    return float(np.max(np.abs(actual - expected).max(axis=axes) / np.abs(expected).max(axis=axes)))


# -- accuracy ---------------------------------------------------------------------------------------------------------


def pinocchio_results(r: Robot, q: Array, v: Array, inputs: dict[str, Array]) -> dict[str, list[Array]]:
    """Return value and derivatives in q, v and the input of each quantity, batch first, in our order."""
    import pinocchio as pin

    data, c, model = r.pin_model.createData(), r.converter, r.pin_model
    calls = {"ID": (pin.rnea, pin.computeRNEADerivatives), "FD": (pin.aba, pin.computeABADerivatives)}
    results: dict[str, list[list[Array]]] = {name: [[], [], [], []] for name in calls}
    for name, (value, derivatives) in calls.items():
        for point in zip(c.q_to_pin(q), c.v_to_pin(v), c.v_to_pin(inputs[name]), strict=True):
            arrays = [np.array(value(model, data, *point)), *map(np.array, derivatives(model, data, *point))]
            arrays[3] = np.triu(arrays[3]) + np.triu(arrays[3], 1).T
            converted = [c.v_from_pin(arrays[0]), *(c.v_from_pin(c.v_from_pin(m).T).T for m in arrays[1:])]
            for store, part in zip(results[name], converted, strict=True):
                store.append(part)
    return {name: [np.array(part) for part in parts] for name, parts in results.items()}


def blocks(j: Jacobians) -> list[Array]:
    """Split Jacobians into derivatives in q, v and the input."""
    nv = j.fu.shape[2]
    return [j.fx[:, :, :nv], j.fx[:, :, nv:], j.fu]


def accuracy(r: Robot, n: int) -> Iterator[Accuracy]:
    """Measure all errors of one robot.

    Forward dynamics is sampled at the forces of unit accelerations, since unit forces accelerate a light wrist by 4000 rad/s^2.
    """
    q, v, a = samples(r.model, n)
    tau = batched.inverse_dynamics(r.model, q, v, a)
    theirs = pinocchio_results(r, q, v, {"ID": a, "FD": tau})
    ours = {
        "ID": tau,
        "M": batched.mass_matrix(r.model, q),
        "FD": batched.forward_dynamics(r.model, q, v, tau),
    }
    expected = {"ID": theirs["ID"][0], "M": theirs["ID"][3], "FD": theirs["FD"][0]}
    for quantity, figure in VALUES.items():
        yield Accuracy(r.name, quantity, "value", "Pinocchio", worst_error(ours[quantity], expected[quantity]), figure)
    x = np.concatenate([q, v], axis=1)
    for quantity, map, u in (("ID", InverseDynamics(r.model), a), ("FD", ForwardDynamics(r.model), tau)):
        yield from derivative_accuracy(r.name, quantity, map, x, u, theirs[quantity][1:])


def derivative_accuracy(
    robot: str, quantity: str, map: Any, x: Array, u: Array, theirs: list[Array]
) -> Iterator[Accuracy]:
    """Measure the errors of all methods on one map; the analytic method is compared with Pinocchio."""
    analytic = blocks(make_backend(map, "analytic", engine="numpy").jacobians(x, u))

    def against(method: str, reference: str, actual: list[Array], expected: list[Array]) -> Accuracy:
        error = max(worst_error(*pair) for pair in zip(actual, expected, strict=True))
        figure = DIFFERENCES.get(method, EXACT[quantity])
        return Accuracy(robot, f"d {quantity}", method, reference, error, figure)

    yield against("analytic", "Pinocchio", analytic, theirs)
    for method in backend_names():
        if method != "analytic" and (robot, method) not in SKIPPED:
            yield against(
                method, "analytic", blocks(make_backend(map, method, engine="numpy").jacobians(x, u)), analytic
            )


# -- time -------------------------------------------------------------------------------------------------------------


def timings(r: Robot, batches: Iterable[int], repetitions: int) -> Iterator[Timing]:
    """Time analytic derivatives of forward dynamics for batches of knots, and the loop over Pinocchio."""
    import pinocchio as pin

    data, backend = r.pin_model.createData(), make_backend(ForwardDynamics(r.model), "analytic", engine="numpy")
    for n in batches:
        q, v, tau = samples(r.model, n)
        x, c = np.concatenate([q, v], axis=1), r.converter
        points = list(zip(c.q_to_pin(q), c.v_to_pin(v), c.v_to_pin(tau), strict=True))

        def loop(points: list = points) -> None:
            for point in points:
                pin.computeABADerivatives(r.pin_model, data, *point)

        ours = median_time(partial(backend.jacobians, x, tau), repetitions) / n * 1e6
        theirs = median_time(loop, repetitions) / n * 1e6
        yield Timing(r.name, n, ours, theirs, ours / theirs)


# -- tables -----------------------------------------------------------------------------------------------------------


def accuracy_table(entries: list[Accuracy], file: Path) -> str:
    """Format errors, one row per quantity and method, one column per robot; a star marks errors above the figure.

    file: CSV file to write the table to.
    """

    def cell(e: Accuracy | None) -> str:
        return "skipped" if e is None else f"{e.error:.1e}{'' if e.holds else ' *'}"

    robots = list(dict.fromkeys(e.robot for e in entries))
    lines: dict[tuple[str, ...], dict[str, Accuracy]] = {}
    for e in entries:
        lines.setdefault((e.quantity, e.method, e.reference, f"{e.figure:.0e}"), {})[e.robot] = e
    rows = [[*key, *(cell(e.get(r)) for r in robots)] for key, e in lines.items()]
    return markdown(["quantity", "method", "against", "figure", *robots], rows, file)


def timing_table(entries: list[Timing], file: Path) -> str:
    """Format times, one row per robot and batch; file: CSV file to write them to."""
    rows = [
        [
            t.robot,
            str(t.batch),
            f"{t.numpy_us:.1f}",
            f"{t.numpy_us * t.batch / 1e3:.2f}",
            f"{t.pinocchio_us:.1f}",
            f"{t.ratio:.1f}",
        ]
        for t in entries
    ]
    return markdown(
        ["robot", "batch", "numpy [us/knot]", "numpy [ms/batch]", "Pinocchio [us/knot]", "ratio"], rows, file
    )


def import_table(repetitions: int, file: Path) -> str:
    """Measure import times in fresh interpreters; file: CSV file to write them to."""
    rows = [
        [f"`{statement}`", f"{import_time(statement, repetitions):.3f}", "" if figure is None else f"{figure:g}"]
        for statement, figure in IMPORTS.items()
    ]
    return markdown(["import", "time [s]", "figure [s]"], rows, file)


def report(accuracies: list[Accuracy], times: list[Timing], imports: str, n: int, out: Path) -> str:
    """Return the report as Markdown, and write its tables to CSV files."""
    missed = sum(not e.holds for e in accuracies)
    conclusion = (
        f"{missed} of {len(accuracies)} errors exceed the figure (starred)"
        if missed
        else "all errors are within their figures"
    )
    return "\n\n".join(
        [
            "# First-order derivatives",
            f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}, seed {SEED}.",
            f"## Accuracy, {n} samples a robot: {conclusion}",
            accuracy_table(accuracies, out / "table.csv"),
            "## Analytic derivatives of forward dynamics, engine numpy; Pinocchio called from Python, "
            f"{PEERS['Pinocchio']}",
            timing_table(times, out / "times.csv"),
            "## Import",
            imports + "\n",
        ]
    )


def main() -> None:
    """Run, print the report, and write it with the CSV files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer samples, robots and repetitions")
    parser.add_argument("--out", type=Path, default=Path("out/benchmark_first_order"), help="folder of the results")
    options = parser.parse_args()
    n, repetitions = (3, 3) if options.quick else (20, 7)
    names = TIMED if options.quick else tuple(ROBOTS)
    robots = {name: load(name) for name in names}
    accuracies = [e for r in robots.values() for e in accuracy(r, n)]
    batches = BATCHES[:3] if options.quick else BATCHES
    times = [t for name in TIMED for t in timings(robots[name], batches, repetitions)]
    imports = import_table(repetitions, options.out / "imports.csv")
    text = report(accuracies, times, imports, n, options.out)
    write_report(options.out, text, accuracy=accuracies, timing=times)


if __name__ == "__main__":
    main()
