"""Robots in contact, states near the ground, and the oracle of second derivatives that the contact tests share."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from rigid_body_cases import tree

from dynamics_backends.protocol import Jacobians
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.algorithms import kinematics
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.state import configuration_manifold
from dynamics_backends.systems.bodies.free_body import FreeBody
from dynamics_backends.systems.constraints.constraint_kinds import PointContact
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.impact import Impact
from dynamics_backends.systems.contact.soft_contact import SoftContact
from problems.legged.contact.friction_cone import friction_cost
from problems.robots import load_robot, robot_path
from trajopt import OCP, ImpactStage, Phase, SampledSystem, control_cost, state_cost

FOOT = "body1"
STEP = 1e-30
EXACT = ("complex_step", "forward_ad", "structured_ad", "casadi_ad")
QUICK = EXACT[:2]
FEET = ("lf_foot", "rf_foot", "lh_foot", "rh_foot")
LENGTHS, MASSES = 0.4, 0.05
"""Lengths and masses of a smaller copy of HyQ, relative to HyQ's."""


def hyq() -> Model:
    """HyQ with a floating base."""
    return load_robot("hyq")


STANCE = np.array([-0.2, 0.723, -1.458] * 2 + [-0.2, -0.723, 1.458] * 2)
"""HyQ's joint positions in stance."""


def standing_states(model: Model, frames, seed: int, N: int) -> np.ndarray:
    """States (N, nx) with random velocities and the frames within about a centimeter of the ground.

    HyQ is in stance. Other robots have random configurations; floating bases are lifted until the frames' mean height is zero.
    """
    rng = np.random.default_rng(seed)
    q, v = model.random_configuration(rng, N), rng.standard_normal((N, model.nv))
    if model.name == "hyq":
        q[:] = model.neutral()
        q[:, 7:] = STANCE
        q = configuration_manifold(model).integrate(q.T, 0.01 * rng.standard_normal((model.nv, N))).T
    if model.floating_base:
        q[:, 2] -= np.mean([kinematics.frame_position(model, q.T, model.frame_id(f))[2] for f in frames], axis=0)
    return np.concatenate([q, v], axis=1)


def arguments(map, frames, seed: int = 0, N: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw x (N, nx), u (N, nu) and weights (N, n_out)."""
    rng = np.random.default_rng(seed + 1)
    x = standing_states(map.model, frames, seed, N)
    return x, rng.standard_normal((N, map.nu)), rng.standard_normal((N, map.n_out))


def relative(actual, expected) -> float:
    """Largest deviation over a block, relative to its largest entry."""
    return float(
        np.abs(np.asarray(actual) - expected).max(initial=0.0) / max(np.abs(expected).max(initial=0.0), 1e-300)
    )


def deviation(one: Jacobians, other: Jacobians) -> float:
    """The largest deviation of value, fx and fu."""
    return max(relative(a, b) for a, b in zip(one, other, strict=True) if b.size)


def methods_agree(map, x, u, p=None, methods=EXACT) -> float:
    """The largest deviation of the exact methods from the analytic one."""
    own = make_backend(map, "analytic").jacobians(x, u, 0.0, p)
    return max(deviation(make_backend(map, m).jacobians(x, u, 0.0, p), own) for m in methods)


def second_orders_agree(map, x, u, lam, method: str = "forward_ad") -> float:
    """The largest deviation of a method's second derivatives from the analytic ones."""
    backends = [make_backend(map, m) for m in ("analytic", method)]
    own, other = (b.hessian_contraction(x, u, 0.0, None, lam)[1] for b in backends)
    return max(relative(a, e) for a, e in zip(other, own, strict=True) if np.any(e))


def contraction_error(map, x, u, lam, p=None, engine="numpy") -> float:
    """The error of the analytic contraction against complex step of lam' J: the largest over the blocks of q, v and u."""
    first, second = make_backend(map, "analytic", engine=engine).hessian_contraction(x, u, 0.0, p, lam)
    assert deviation(first, make_backend(map, "analytic").jacobians(x, u, 0.0, p)) < 1e-12
    ndx, n = map.manifold.ndx, len(x)
    rows = {k: np.broadcast_to(np.atleast_1d(v)[:, None], (np.size(v), n)) for k, v in (p or {}).items()}
    slopes = np.empty((n, ndx + map.nu, ndx + map.nu))
    for k, step in enumerate(1j * STEP * np.eye(ndx + map.nu)[:, :, None]):
        moved = map.manifold.integrate(x.T, np.broadcast_to(step[:ndx], (ndx, n)))
        partials = map.partials(moved, u.T + step[ndx:], np.zeros(n), rows)
        gradient = [sum(row * w for row, w in zip(M, lam.T, strict=True)) for M in (partials.fx, partials.fu)]
        slopes[:, :, k] = np.concatenate(gradient).imag.T / STEP
    xx, ux = slopes[:, :ndx, :ndx], slopes[:, ndx:, :ndx]
    xx, half = 0.5 * (xx + xx.transpose(0, 2, 1)), ndx // 2
    parts = [(s, t) for s in (slice(half), slice(half, None)) for t in (slice(half), slice(half, None))]
    blocks = [(second.xx[:, s, t], xx[:, s, t]) for s, t in parts] + [(second.ux, ux)]
    least = 1e-8 * np.abs(slopes).max()  # a block below this is rounding
    assert not second.uu.any()
    return max(np.abs(a - e).max() / max(np.abs(e).max(), least) for a, e in blocks if e.size)


@cache
def hop(engine="numpy"):
    """Hop of a base with one leg: stance, flight, landing, stance; 13 knots, the fifth an impact without duration."""
    model = tree("floating2", 2)
    joints = model.dof_names[6:]
    contacts = [PointContact(FOOT, offset=(0.1, 0.2, -0.1), gains=(0.0, 20.0))]
    stance = Holonomic(model, contacts, actuated=joints)

    def sampled(system):
        return SampledSystem(make_backend(system, "analytic", engine=engine), "semi_implicit_euler")

    standing, manifold = sampled(stance), stance.manifold
    flying = sampled(FreeBody(model, actuated=joints))
    landing = ImpactStage(make_backend(Impact(model, contacts, restitution=0.2), "analytic", engine=engine))
    rng = np.random.default_rng(0)
    x0 = manifold.integrate(manifold.identity()[:, None], 0.3 * rng.standard_normal((manifold.ndx, 1)))[:, 0]
    terms = (control_cost(1, reference=0.1, weight=0.5), state_cost(manifold, x0, rng.uniform(0.1, 1.0, manifold.ndx)))
    cone = friction_cost(stance, [FOOT], 0.3, 2.0, min_force=0.5, feet=1)
    parts = (
        Phase(standing, np.full(2, 0.02), (*terms, cone)),
        Phase(flying, np.full(2, 0.01), terms),
        Phase(landing, np.zeros(1), (state_cost(manifold, x0, 0.7, "at landing"),)),
        Phase(standing, np.full(8, 0.02), (*terms, cone)),
    )
    return OCP(parts, x0, (state_cost(manifold, manifold.identity(), 3.0),))


def soft_hop(engine="numpy", substeps=2):
    """Leg above soft ground, 12 knots."""
    model = tree("floating2", 2)
    system = SoftContact(model, [FOOT])
    dynamics = SampledSystem(make_backend(system, "analytic", engine=engine), "semi_implicit_euler", substeps)
    manifold, rng = system.manifold, np.random.default_rng(0)
    x0 = manifold.integrate(manifold.identity()[:, None], 0.1 * rng.standard_normal((manifold.ndx, 1)))[:, 0]
    x0[2] -= float(kinematics.frame_position(model, x0[: model.nq, None], model.frame_id(FOOT))[2][0]) - 0.002
    terms = [
        control_cost(system.nu, reference=0.1, weight=0.5),
        state_cost(manifold, x0, rng.uniform(0.1, 1.0, manifold.ndx)),
    ]
    return OCP.single_phase(dynamics, x0, 12, 0.01, terms, [state_cost(manifold, manifold.identity(), 3.0)])


def small_hyq_file(path: Path) -> str:
    """Write HyQ with lengths and masses in the ratios LENGTHS and MASSES; no joint of the file has damping or friction."""
    tree = ElementTree.parse(robot_path("hyq"))
    for origin in tree.iter("origin"):
        if "xyz" in origin.attrib:
            origin.set("xyz", " ".join(repr(LENGTHS * float(a)) for a in origin.get("xyz").split()))
    for mass in tree.iter("mass"):
        mass.set("value", repr(MASSES * float(mass.get("value"))))
    for inertia in tree.iter("inertia"):
        for key, value in inertia.attrib.items():
            inertia.set(key, repr(MASSES * LENGTHS**2 * float(value)))
    tree.write(path)
    return str(path)
