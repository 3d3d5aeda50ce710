"""Contact dynamics: drift of constraints over five seconds, and the cost of their derivatives.

    python -m experiments.benchmark_contact [--quick] [--out DIR]

Drift: largest position error [m] of a four-bar loop that turns under gravity, and of the four feet of HyQ, which sways
under joint PD control; stabilization kp = 100, kd = 20, RK4 at 1 ms. Cost: closed-form first derivatives compared with
forward differences (2 nv + nu + 1 evaluations) on the NumPy engine, in time and in arithmetic operations of
straight-line code; and processor time on the compiled engine with one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.algorithms import kinematics
from dynamics_backends.rigid_body.model.sample_models import four_bar
from dynamics_backends.systems.bodies.actuated_body import ActuatedBody
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.constraints.consistency import closed_state, errors_at
from dynamics_backends.systems.constraints.constraint_kinds import PointContact, PointLoop
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.soft_contact import SoftContact
from dynamics_backends.systems.contact.stepped_contact import SteppedContact
from experiments.benchmarks.tables import markdown
from experiments.benchmarks.timing import median_time
from problems.robots import load_robot
from trajopt.step.sensitivities import SampledSystem

Array = np.ndarray
GAINS = (100.0, 20.0)
STEP = 1e-3
DURATION = 5.0
LARGEST_DRIFT = 1e-6
LARGEST_RATIO = 0.25
FEET = ("lf_foot", "rf_foot", "lh_foot", "rh_foot")
STANCE = np.array([-0.2, 0.723, -1.458] * 2 + [-0.2, -0.723, 1.458] * 2)
PD = (600.0, 6.0)
SWAY = 0.05
BATCH = 100
LARGEST_KNOT, LARGEST_STEP = 20.0, 6.0  # [us] compiled; the second one for an implicit step
MANY, REPEATS = 64, 50  # MANY: number of knots, few enough for one thread


class Result(NamedTuple):
    """One table row; figure: largest allowed value, or None."""

    quantity: str
    value: float
    figure: float | None

    @property
    def holds(self) -> bool:
        """True if the value is at most its figure, or has none."""
        return self.figure is None or bool(self.value <= self.figure)


def four_bar_loop() -> tuple[Holonomic, Array, Callable[[float, Array], Array]]:
    """Return the closed four-bar linkage, turning at 6 rad/s without control."""
    system = Holonomic(four_bar(), [PointLoop("coupler_tip", "rocker_tip", gains=GAINS)], actuated=[])
    x = closed_state(system.constraints, np.array([0.3, 1.2, -0.2, 6.0, 0.0, 0.0]))
    return system, x, lambda t, x: np.zeros(0)


def swaying_hyq() -> tuple[Holonomic, Array, Callable[[float, Array], Array]]:
    """Return HyQ on four point contacts, with joint PD control that makes it sway at 1 Hz."""
    model = load_robot("hyq")
    q = model.neutral()
    q[7:] = STANCE
    places = [tuple(kinematics.frame_position(model, q[:, None], model.frame_id(f))[:, 0].tolist()) for f in FEET]
    contacts = [PointContact(f, reference=place, gains=GAINS) for f, place in zip(FEET, places, strict=True)]

    def control(t: float, x: Array) -> Array:
        target = STANCE + SWAY * np.sin(2.0 * np.pi * t) * np.tile([1.0, 0.5, -0.5], 4)
        return PD[0] * (target - x[7:19]) - PD[1] * x[25:]

    return Holonomic(model, contacts), np.concatenate([q, np.zeros(model.nv)]), control


def drift(system: Holonomic, x: Array, control: Callable[[float, Array], Array], duration: float, engine: str) -> float:
    """Return the largest position error along a simulation."""
    stage = SampledSystem(make_backend(system, "forward_difference", engine=engine), "rk4")
    worst = 0.0
    for k in range(round(duration / STEP)):
        t = k * STEP
        x = stage.step(x[None], control(t, x)[None], t, STEP)[0]
        if k % 10 == 9:
            worst = float(
                np.maximum(worst, np.abs(errors_at(system.constraints, x)).max())
            )  # np.maximum propagates NaN
    return worst


def operations(system: ActuatedBody) -> tuple[int, int]:
    """Count the operations of a value and of its partial derivatives, in straight-line code."""
    import casadi as ca

    from dynamics_backends.trace import trace_expressions

    x, u = ca.SX.sym("x", system.manifold.nx), ca.SX.sym("u", system.nu)
    first = system.partials(x, u, 0.0, {})  # type: ignore[attr-defined]
    entries = [ca.vec(ca.SX(row)) for matrix in (first.fx, first.fu) for row in matrix]
    counts = (trace_expressions([x, u], [e]) for e in (ca.SX(system(x, u, 0.0, {})), ca.vertcat(*entries)))
    value, derivatives = (len(t.operations) for t in counts)
    return value, derivatives


def costs(batch: int = BATCH) -> Iterator[Result]:
    """Compare the closed form with forward differences for HyQ."""
    model = load_robot("hyq")
    rng = np.random.default_rng(0)
    systems: dict[str, ActuatedBody] = {
        "free": FreeBody(model),
        "4 soft points": SoftContact(model, FEET),
        "2 points": Holonomic(model, [PointContact(f) for f in FEET[::3]]),
        "4 points of a long step": SteppedContact(model, FEET),
        "4 points": Holonomic(model, [PointContact(f) for f in FEET]),
    }
    for name, system in systems.items():
        q = np.tile(np.concatenate([[0.0, 0.0, 0.58, 0.0, 0.0, 0.0, 1.0], STANCE]), (batch, 1))
        q[:, 7:] += 0.1 * rng.standard_normal((batch, 12))
        x = np.concatenate([q, rng.standard_normal((batch, model.nv))], axis=1)
        u = rng.standard_normal((batch, system.nu))
        closed, differences = (_time(system, method, x, u) for method in ("analytic", "forward_difference"))
        promised = LARGEST_RATIO if name.endswith("points") else None
        yield Result(f"HyQ, {name}: numpy, closed form [us per knot]", 1e6 * closed / batch, None)
        most = LARGEST_STEP if isinstance(system, SteppedContact) else LARGEST_KNOT
        yield Result(f"HyQ, {name}: compiled, closed form [us per knot]", compiled_time(system, x, u), most)
        yield Result(f"HyQ, {name}: time, closed form / forward differences", closed / differences, promised)
        if isinstance(system, SteppedContact):  # its loop has no fixed number of operations
            continue
        value, derivatives = operations(system)
        by_differences = value * (1 + system.manifold.ndx + system.nu)
        yield Result(f"HyQ, {name}: operations of a value", value, None)
        yield Result(f"HyQ, {name}: operations of the derivatives", derivatives, None)
        yield Result(
            f"HyQ, {name}: operations, closed form / forward differences", derivatives / by_differences, promised
        )


def _time(system: ActuatedBody, method: str, x: Array, u: Array) -> float:
    """Return the time of the Jacobians of a batch [s]. Inputs alternate, so that a system cannot reuse its last solution."""
    backend, batches = make_backend(system, method, engine="numpy"), cycle([(x, u), (x, 1.001 * u)])
    return median_time(lambda: backend.jacobians(*next(batches)), 3)


def compiled_time(system: ActuatedBody, x: Array, u: Array) -> float:
    """Return the minimum processor time per knot [us] of values and Jacobians, compiled, including packing."""
    backend = make_backend(system, "analytic", engine="compiled")
    x, u = x[:MANY], u[:MANY]
    backend.jacobians(x, u)
    spent = []
    for _ in range(REPEATS):
        began = time.process_time()
        backend.jacobians(x, u)
        spent.append(time.process_time() - began)
    return 1e6 * min(spent) / len(x)


def drifts(duration: float, engine: str) -> Iterator[Result]:
    """Measure the constraint drift of each system."""
    for name, case in (("four-bar loop", four_bar_loop), ("standing HyQ", swaying_hyq)):
        yield Result(f"{name}: drift over {duration:g} s [m]", drift(*case(), duration, engine), LARGEST_DRIFT)


def main() -> None:
    """Print and write the table; exit with 1 if a value exceeds its figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="simulate half a second of drift")
    parser.add_argument("--engine", default="auto", help="engine of the drift simulation: compiled, numpy or auto")
    parser.add_argument("--out", type=Path, default=Path("out/benchmark_contact"))
    options = parser.parse_args()
    results = [*drifts(0.5 if options.quick else DURATION, options.engine), *costs()]
    print(
        markdown(["quantity", "measured", "largest allowed", "held"], map(_cells, results), options.out / "table.csv")
    )
    raise SystemExit(0 if all(r.holds for r in results) else 1)


def _cells(result: Result) -> list[str]:
    limit = ["", ""] if result.figure is None else [f"{result.figure:g}", "yes" if result.holds else "NO"]
    return [result.quantity, f"{result.value:.4g}", *limit]


if __name__ == "__main__":
    main()
