"""Holonomic constraints that x0 or a motion does not meet, and redundant ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import trajopt as to
from problems.robots.loading import load_floating_base
from problems.robots.textbook import four_bar, four_bar_angles
from trajopt.validation.holonomic_constraints import open_constraints, redundancy_notes, repeated_at_end

BALL = """<robot name="ball"><link name="base"><inertial><mass value="2"/>
<inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial></link></robot>"""


def coupled(x0, gains=(0.0, 0.0), stiffness=0.0):
    """Return a problem of two rods whose joints, with springs, turn by equal angles."""
    model = to.load_robot("double_pendulum")
    model = model.replace(stiffness=np.full(2, stiffness))
    first, second = model.q_names
    system = to.Holonomic(model, [to.JointRelation(second, first, gains=gains)])
    dynamics = to.SampledSystem(to.make_backend(system, "analytic"), "rk4")
    return to.OCP.single_phase(dynamics, x0, 20, 0.02, [to.control_cost(2)], [], model=model)


def about(ocp):
    """Return the findings about constraints of the dynamics: of validation, and of a solve with its status."""
    solution = to.solve(ocp, solver="slq")
    named = "constraint "
    return [f.message for f in to.validate(ocp) if named in f.message], solution


def test_a_state_that_meets_the_constraints():
    found, solution = about(coupled([0.3, 0.3, 0.5, 0.5]))
    assert found == [] and solution.status.success
    assert not [f for f in solution.meta["findings"] if "constraint " in f]


@pytest.mark.parametrize(("error", "code"), [(0.005, "converged"), (0.05, "does_not_hold")])
def test_positions_that_do_not_meet_a_relation(error, code):
    """Without gains the error stays: it is reported, and a large one means that no such motion exists."""
    (warning,), solution = about(coupled([0.3, 0.3 + error, 0.0, 0.0]))
    assert f"its error is {error:g}" in warning and "to.closed_state" in warning
    assert solution.status.code == code
    assert any(f"its error is {error:.3g}" in f for f in solution.meta["findings"])


def test_velocities_against_a_relation():
    """The relative velocity of 0.2 rad/s stays, and opens the relation by 0.08 rad in 0.4 s."""
    (warning,), solution = about(coupled([0.3, 0.3, 0.0, 0.2]))
    assert "moves against constraint" in warning and "0.2 m/s or rad/s" in warning
    assert solution.status.code == "does_not_hold"
    assert "its error is 0.08 m or rad at t = 0.4 s, knot 20" in solution.status.message


def test_gains_close_a_relation():
    _, solution = about(coupled([0.3, 0.305, 0.0, 0.0], gains=(400.0, 40.0)))
    assert np.abs(solution.xs[-1, 1] - solution.xs[-1, 0]) < 1e-3


@pytest.mark.parametrize("free", [True, False])
def test_the_error_at_which_a_later_constraint_begins_counts_if_it_is_large(free):
    """A relation that begins in the second phase may have a small error there; one of the first phase may not grow one."""
    ocp = coupled([0.3, 0.3, 0.0, 0.0])
    (held,) = ocp.phases
    rods = to.SampledSystem(to.make_backend(to.FreeBody(ocp.model), "analytic"), "rk4")
    ocp = to.OCP((to.Phase(rods if free else held.dynamics, np.full(10, 0.02)), held), ocp.x0, (), model=ocp.model)

    def errors(first, last):
        """Return the sentences about an error [rad] at the begin of the second phase, which changes to another."""
        xs = np.tile(ocp.x0, (31, 1))
        xs[10:, 1] += np.linspace(first, last, 21)
        return list(open_constraints(ocp, xs))

    assert len(errors(0.008, 0.0)) == (not free)
    assert len(errors(0.002, 0.008)) == 1
    assert len(errors(0.02, 0.0)) == 1


@pytest.mark.parametrize("damping", [1e-14, 1e-3])
def test_redundant_rows_are_named_unless_they_yield(damping, tmp_path):
    (tmp_path / "ball.urdf").write_text(BALL)
    ball = load_floating_base(str(tmp_path / "ball.urdf"))
    held = [to.PointContact("base"), to.PointContact("base", name="again")]
    dynamics = to.SampledSystem(to.make_backend(to.Holonomic(ball, held, damping_ratio=damping)), "rk4")
    x0 = np.r_[np.zeros(6), 1.0, np.zeros(6)]
    ocp = to.OCP.single_phase(dynamics, x0, 2, 0.1, [], [], model=ball)
    notes = list(redundancy_notes(ocp))
    assert len(notes) == (damping < 1e-6)
    assert all("again.x, again.y, again.z" in note and "damping_ratio" in note for note in notes)


ANGLES = four_bar_angles(0.3, 0.1, 0.25, 0.25, 1.0)


@pytest.mark.parametrize(
    ("bounded", "repeated"),
    [
        (["v[crank_hinge]"], []),
        (["q[crank_hinge]", "v[rocker_hinge]"], []),
        (["v[crank_hinge]", "v[coupler_hinge]", "v[rocker_hinge]"], ["v[coupler_hinge]", "v[rocker_hinge]"]),
        (["q[crank_hinge]", "q[rocker_hinge]", "v[crank_hinge]"], ["q[rocker_hinge]"]),
    ],
)
def test_terminal_constraints_that_repeat_a_loop_are_named(bounded, repeated):
    """A linkage has one degree of freedom: a joint that rests at the end is enough."""
    model = four_bar(0.3, 0.1, 0.25, 0.25)
    system = to.Holonomic(model, [to.PointLoop("coupler_end", "rocker_end")], actuated=["crank_hinge"])
    x0 = np.r_[ANGLES, 0.0, 0.0, 0.0]
    weight = np.isin(system.manifold.tangent_names, bounded).astype(float)
    assert weight.sum() == len(bounded)
    goal = to.bounded(to.state_cost(system.manifold, x0, weight), name="rest")
    dynamics = to.SampledSystem(to.make_backend(system, engine="numpy"), "rk4")
    ocp = to.OCP.single_phase(dynamics, x0, 2, 0.1, [], [], model=model, terminal_constraints=[goal])
    found = [f for f in repeated_at_end(ocp) if all(f"{name} of 'rest'" in f for name in repeated)]
    assert len(found) == bool(repeated) and sum(f.count(" of 'rest'") for f in found) == len(repeated)
    assert [f.message for f in to.validate(ocp) if "repeat" in f.message] == found


def test_relations_of_joints_may_be_repeated():
    """They do not drift, so that all joints may rest at the end."""
    ocp = coupled([0.3, 0.3, 0.0, 0.0])
    goal = to.bounded(to.state_cost(ocp.manifold, np.zeros(4), np.ones(4)), name="rest")
    assert not list(repeated_at_end(replace(ocp, terminal_constraints=(goal,))))


def test_gains_that_are_too_stiff_for_the_time_step():
    """Gains of a rate of 200 1/s need steps of less than 2.79 / 200 s with rk4; a stiff spring is none of the gains."""
    stiff = coupled([0.3, 0.3, 0.0, 0.0], gains=(200.0**2, 400.0))
    for ocp in (stiff, to.free_time(stiff, (0.5, 2.0), 1.0).ocp):
        (warning,) = (f.message for f in to.validate(ocp))
        assert "too long for the gains (kp, kd) of constraint 'elbow~shoulder', whose rate is 200 1/s" in warning
        assert "stable for steps up to 14 ms" in warning and warning.endswith("or smaller gains")
    (warning,) = (f.message for f in to.validate(coupled([0.3, 0.3, 0.0, 0.0], gains=(100.0, 20.0), stiffness=1e5)))
    assert "too long for the motion of v[" in warning and "gains" not in warning
