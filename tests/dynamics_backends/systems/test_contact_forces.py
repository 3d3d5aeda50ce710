"""Contact forces as maps: values are those of the systems' outputs, derivatives agree across methods."""

import numpy as np
import pytest
from contact_cases import FEET, arguments, hyq, methods_agree, relative
from rigid_body_cases import tree

from dynamics_backends.registry import make_backend
from dynamics_backends.systems.constraints.constraint_kinds import (
    FrameContact,
    FrameLoop,
    JointRelation,
    PointContact,
    PointLoop,
)
from dynamics_backends.systems.constraints.holonomic import Holonomic
from dynamics_backends.systems.contact.contact_forces import ConstraintForces, SoftForces
from dynamics_backends.systems.contact.exponential_law import SoftContactLaw
from dynamics_backends.systems.contact.ground_contact import Plane
from dynamics_backends.systems.contact.soft_contact import SoftContact

GAINS = (25.0, 10.0)
POSE = (0.1, 0.2, -0.3, 0.5, -0.5, 0.5, 0.5)
CASES = {
    "soft": lambda: SoftForces(SoftContact(hyq(), FEET)),
    "soft, friction, slope": lambda: SoftForces(
        SoftContact(hyq(), FEET, ground=Plane(0.0, (0.1, -0.2, 1.0)), law=SoftContactLaw(friction=0.6))
    ),
    "points": lambda: ConstraintForces(Holonomic(hyq(), [PointContact(f) for f in FEET])),
    "frame and loop": lambda: ConstraintForces(
        Holonomic(
            hyq(), [FrameContact("lf_foot", reference=POSE, gains=GAINS), PointLoop("lh_foot", "rh_foot", gains=GAINS)]
        )
    ),
    "frame loop and relation": lambda: ConstraintForces(
        Holonomic(hyq(), [FrameLoop("lf_foot", "rf_foot"), JointRelation("lh_haa_joint", "rh_haa_joint")])
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_all_methods_agree(case):
    forces = CASES[case]()
    x, u, _ = arguments(forces, FEET)
    methods = ("complex_step", "forward_ad", *(["casadi_ad"] if case == "soft" else []))
    assert methods_agree(forces, x, u, methods=methods) < 1e-10
    values = make_backend(forces).f(x, u)
    named = forces.system.outputs(x.T, u.T, 0.0, {})
    np.testing.assert_array_equal(values, np.concatenate(list(named.values())).T)
    assert len(forces.output_names) == len(set(forces.output_names)) == values.shape[1]


def test_trees_of_all_joints():
    model = tree("floating2")
    frame = next(f.name for f in model.frames if f.body == model.nb - 1)
    law = SoftContactLaw(50.0, 20.0, 2.0, 3.0, friction=0.5)
    for forces in (
        SoftForces(SoftContact(model, [(frame, (0.1, 0.2, 0.0))], law=law)),
        ConstraintForces(Holonomic(model, [PointContact(frame, offset=(0.1, 0.2, 0.0))])),
    ):
        x, u, _ = arguments(forces, [frame])
        assert methods_agree(forces, x, u, methods=("complex_step", "forward_ad")) < 1e-10


HELD = {
    "points": [PointContact(foot, gains=GAINS, reference=(0.1, 0.2, 0.0)) for foot in FEET[:2]],
    "frame": [FrameContact("lf_foot", reference=POSE, gains=GAINS), PointContact("rh_foot", gains=(0.0, 5.0))],
}


@pytest.mark.parametrize("kind", HELD)
def test_second_derivatives_of_constraint_forces(kind):
    """Closed form against forward differentiation of the solution of the equations of motion."""
    forces = ConstraintForces(Holonomic(hyq(), HELD[kind]))
    x, u, _ = arguments(forces, FEET)
    phi = np.random.default_rng(4).standard_normal((len(x), forces.n_out))
    _, expected = make_backend(forces, "forward_ad", engine="numpy").hessian_contraction(x, u, 0.0, {}, phi)
    found = forces.second_derivatives(x.T, u.T, np.zeros(len(x)), {}, phi.T)
    for rows, block in zip(found, expected, strict=True):
        assert relative(np.moveaxis(np.array([np.asarray(r) for r in rows]), -1, 0), block) < 1e-12
