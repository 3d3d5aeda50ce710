"""Problems of Crocoddyl's examples, as plain data for both libraries and as problems of this toolkit.

kind          "unicycle", "arm" or "trot", with its x0, dt, horizon and weights (of 1/2 w |r|^2; running weights times dt)
still         True: the guess is x0 with holding torques; False: zeros
tight         tolerance of the optimum: Crocoddyl's th_stop, on the expected cost decrease
tolerance     tolerance of the timed solves

The Kinova reach, the unicycle and the trot are those of the examples of Crocoddyl 3.2 (C. Mastalli et al., ICRA 2020), the trot
with HyQ instead of ANYmal and without the penalty on joint limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

import trajopt as to
from dynamics_backends import scalar as sm
from dynamics_backends.composed_map import composed
from dynamics_backends.protocol import Array, FunctionMap
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.algorithms import kinematics
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.constraints.constraint_kinds import PointContact
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.contact_forces import ConstraintForces
from dynamics_backends.systems.contact.impact import Impact
from experiments.benchmarks.solvers.crocoddyl_gaits import COMMON, Data, gait
from problems.legged.contact.feet_terms import feet_cost
from problems.robots import load_robot
from trajopt.problem.impact_stage import ImpactStage

KINOVA_UP = (1.5707, 2.618, -1.5707, 3.1415, 2.618, 0.0)
"""Posture "arm_up" of the robot's SRDF [rad]."""


# -- as data -----------------------------------------------------------------------------------------------------------


def unicycle() -> Data:
    """Unicycle that drives to the origin in 20 steps."""
    return COMMON | {"kind": "unicycle", "x0": [-1.0, -1.0, 1.0], "dt": 0.1, "horizon": 20, "weights": [10.0, 1.0]}


def kinova() -> Data:
    """Kinova arm that reaches a placement in one second."""
    model = load_robot("erd:kinova")
    return COMMON | {
        "kind": "arm",
        "robot": "kinova",
        "joints": list(model.dof_names),
        "frame": "j2s6s200_end_effector",
        "goal": [0.6, 0.2, 0.5],
        "x0": [*KINOVA_UP, *np.zeros(6)],
        "dt": 0.01,
        "horizon": 100,
        "weights": {"goal": 1.0, "state": 0.1, "control": 0.1, "terminal": 1e3},
        "still": True,
    }


PROBLEMS: dict[str, Callable[[], Data]] = {
    "unicycle": unicycle,
    "kinova reach": kinova,
    "hyq trot": partial(gait, "hyq", "trot"),
}


# -- as problems of this toolkit ---------------------------------------------------------------------------------------


def our_problem(p: Data) -> to.OCP:
    """Build the problem from its data."""
    return {"unicycle": _unicycle, "arm": _arm, "trot": _trot}[p["kind"]](p)


def our_guess(p: Data, ocp: to.OCP, held: Array) -> to.Guess:
    """Build the guess from the data. held: holding torques computed by Crocoddyl."""
    guess = to.constant_guess(ocp)
    if p["still"]:
        return to.Guess(guess.xs, held)
    return to.Guess(np.tile(ocp.manifold.identity(), (ocp.horizon + 1, 1)), np.zeros_like(guess.us))


def _unicycle(p: Data) -> to.OCP:
    def motion(x: Rows, u: Rows, t: Scalar, parameters: Any) -> list[Scalar]:
        return [sm.cos(x[2]) * u[0], sm.sin(x[2]) * u[0], u[1]]

    manifold = to.Manifold.vector(3, ("x", "y", "heading"))
    dynamics = to.SampledSystem(make_backend(FunctionMap(motion, manifold, 2), "forward_ad"), "euler")
    at_origin, effort = (w * w for w in p["weights"])
    return to.OCP.single_phase(
        dynamics,
        p["x0"],
        p["horizon"],
        p["dt"],
        [to.state_cost(manifold, np.zeros(3), at_origin / p["dt"]), to.control_cost(2, weight=effort / p["dt"])],
        [to.state_cost(manifold, np.zeros(3), at_origin)],
    )


def _arm(p: Data) -> to.OCP:
    model = load_robot(f"erd:{p['robot']}")
    system, w = FreeBody(model, damping=False), p["weights"]
    residual = partial(_placement_log, model, model.frame_id(p["frame"]))

    def goal(weight: float, name: str) -> to.CostTerm:
        return to.residual_cost(name, residual, system.manifold, 6, weight, parameters={"goal": p["goal"]})

    return to.OCP.single_phase(
        to.SampledSystem(make_backend(system, "analytic"), "semi_implicit_euler"),
        p["x0"],
        p["horizon"],
        p["dt"],
        [
            goal(w["goal"], "goal"),
            to.state_cost(system.manifold, p["x0"], w["state"]),
            to.control_cost(model.nv, weight=w["control"]),
        ],
        [goal(w["terminal"], "final goal")],
    )


def _placement_log(model: Model, frame: int, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> list[Scalar]:
    """Return the SE(3) logarithm (linear; angular) of a frame's placement relative to a goal with identity rotation."""
    at, R = (f(model, x[: model.nq], frame) for f in (kinematics.frame_position, kinematics.frame_rotation))
    w = kinematics.rotation_log(R)
    offset = [at[i] - p["goal"][i] for i in range(3)]
    once = _cross(w, offset)
    twice, bend = _cross(w, once), sm.logc(w[0] * w[0] + w[1] * w[1] + w[2] * w[2])
    return [*(offset[i] - 0.5 * once[i] + bend * twice[i] for i in range(3)), *w]


def _cross(a: list[Scalar], b: list[Scalar]) -> list[Scalar]:
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]


def _trot(p: Data) -> to.OCP:
    model = load_robot(f"erd:{p['robot']}", base="floating")
    phases: list[to.Phase] = []
    stances: dict[tuple[str, ...], tuple[Any, list[to.CostTerm]]] = {}
    for run in _runs(p["knots"]):
        first = run[0]
        if "lands" in first:
            contacts = [PointContact(foot) for foot in first["lands"]]
            stage = ImpactStage(make_backend(Impact(model, contacts), "analytic"))
            terms = [_feet(model, run), _posture(model, p, "impact")]
            phases.append(to.Phase(stage, np.zeros(1), tuple(terms)))  # its terms count once
            continue
        stance = tuple(first["stance"])
        if stance not in stances:
            stances[stance] = _stance_dynamics(model, p, stance)
        dynamics, contact_terms = stances[stance]
        terms = [
            _posture(model, p, "state"),
            to.control_cost(model.nv - 6, weight=p["weights"]["control"]),
            *contact_terms,
        ]
        if first["center"] is not None:
            terms += [_feet(model, run)] if first["feet"] else []
            terms += [_center(model, p, run)]
        phases.append(to.Phase(dynamics, np.full(len(run), p["dt"]), tuple(terms)))
    return to.OCP(tuple(phases), p["x0"], (_posture(model, p, "state"),), name="trot", model=model)


def _runs(knots: list[Data]) -> list[list[Data]]:
    """Group consecutive knots that differ only in their goals."""

    def kind(k: Data) -> tuple[Any, ...]:
        return tuple(k.get("lands", ())), tuple(k.get("stance", ())), k.get("center") is None

    return [list(run) for _, run in groupby(knots, kind)]


def _stance_dynamics(model: Model, p: Data, stance: tuple[str, ...]) -> tuple[to.SampledSystem, list[to.CostTerm]]:
    if not stance:
        return to.SampledSystem(make_backend(FreeBody(model, damping=False), "analytic"), "semi_implicit_euler"), []
    system = Holonomic(model, [PointContact(foot, gains=(0.0, p["gain"])) for foot in stance], damping=False)
    cone = to.quadratic_barrier(_pyramid(ConstraintForces(system), stance, p["friction"]), p["weights"]["cone"])
    return to.SampledSystem(make_backend(system, "analytic"), "semi_implicit_euler"), [cone]


def _pyramid(forces: ConstraintForces, contacts: tuple[str, ...], friction: float) -> to.Constraint:
    """Friction pyramid |f_x|, |f_y| <= mu f_n and f_n >= 0 [N]: five rows per contact."""
    first = [forces.output_names.index(f"{contact}.x") for contact in contacts]

    def margins(f: Rows, p: Mapping[str, Rows]) -> list[Scalar]:
        return [margin for i in first for margin in (f[i + 2], *_sideways(friction * f[i + 2], f[i], f[i + 1]))]

    names = tuple(f"{c} {kind}" for c in contacts for kind in ("pushes", "-x", "x", "-y", "y"))
    return to.Constraint("cone", composed(forces, margins, names=names), np.asarray(0.0), np.asarray(np.inf))


def _sideways(limit: Scalar, *forces: Scalar) -> list[Scalar]:
    return [limit + sign * f for f in forces for sign in (1.0, -1.0)]


def _posture(model: Model, p: Data, weights: str) -> to.CostTerm:
    manifold = FreeBody(model).manifold
    return to.state_cost(manifold, p["x0"], p["weights"][weights], "posture")


def _feet(model: Model, run: list[Data]) -> to.CostTerm:
    feet = tuple(run[0]["feet"])
    goals = np.array([np.concatenate([k["feet"][foot] for foot in feet]) for k in run])
    return feet_cost(model, FreeBody(model).manifold, feet, goals, run[0]["foot_weight"])


def _center(model: Model, p: Data, run: list[Data]) -> to.CostTerm:
    goal = np.array([k["center"] for k in run])
    return to.center_of_mass_cost(model, FreeBody(model).manifold, goal, p["weights"]["center"])
