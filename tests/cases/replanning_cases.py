"""Small replanning problem: a mass on a line that moves to a goal, and a plant that rejects non-finite controls."""

from dataclasses import replace

import numpy as np
from textbook_systems import double_integrator, spinning_body

import trajopt as to
from dynamics_backends.manifold import Manifold
from dynamics_backends.registry import make_backend
from trajopt.replanning.loop import ReplanningLoop
from trajopt.replanning.measurements import MovingObject, Sensor
from trajopt.replanning.plan import Plan, RecedingHorizon, warm_start
from trajopt.replanning.real_time import RealTimeSLQ
from trajopt.replanning.sampled_plant import SampledPlant
from trajopt.replanning.workers import SimulatedWorker, Timing

TICK, PERIOD, DT, KNOTS = 0.01, 0.05, 0.05, 20
LINE = Manifold.vector(1)


def mass():
    """The dynamics."""
    return to.SampledSystem(make_backend(double_integrator(), "forward_ad"), "rk4")


def problem(goal=1.0, limit=None, knots=KNOTS):
    """From rest at 0 to rest at the goal; linear-quadratic, so that one iteration solves it."""
    dynamics = mass()

    def error(x, u, t, p):
        return [x[0] - p["goal"][0]]

    terms = [
        to.residual_cost("goal", error, dynamics.manifold, 1, 20.0, parameters={"goal": [goal]}),
        to.state_cost(dynamics.manifold, np.zeros(2), [0.0, 1.0], "speed"),
    ]
    bounds = {} if limit is None else {"u_lower": [-limit], "u_upper": [limit]}
    return to.OCP.single_phase(
        dynamics, np.zeros(2), knots, DT, [*terms, to.control_cost(1, weight=0.01)], terms, **bounds
    )


def with_jumps(kinds):
    """A problem of the mass whose phases are five steps of DT each (a step) or stages without duration (a jump)."""
    bounce = to.FunctionMap(lambda x, u, t, p: [0.0 * x[0], -1.8 * x[1]], 2, 1)
    jump = to.Phase(to.ImpactStage(make_backend(bounce, "forward_ad")), np.zeros(1))
    steps = to.Phase(mass(), np.full(5, DT), (to.control_cost(1),))
    return to.OCP([jump if kind == "jump" else steps for kind in kinds], np.array([0.0, 1.0]))


def numbered_plan(ocp, start=0.0):
    """A plan on the grid of a problem whose states, controls, gains and multipliers are the numbers of their knots."""
    knots = np.arange(ocp.horizon + 1.0)
    xs, us = np.outer(knots, np.ones(ocp.manifold.nx)), np.outer(knots[:-1], np.ones(ocp.nu))
    K = us[:, :, None] * np.ones(ocp.manifold.ndx)
    return Plan(start, ocp.times, xs, us, K, {"dynamics": xs[:-1]}, ocp)


class WatchedPlant(SampledPlant):
    """Plant that records its controls."""

    def __init__(self, x0=(0.0, 0.0), **options):
        super().__init__(mass(), np.array(x0), 0.002, **options)
        self.given = []

    def step(self, u, dt):
        self.given.append(np.array(u))
        super().step(u, dt)


def goal_object(truth=lambda t: [1.0], **sensor):
    """Moving goal."""
    return MovingObject("goal", "goal", truth, Sensor(LINE, PERIOD, **sensor))


def loop(planner=None, plant=None, *, horizon=None, charge=0.0, timing=None, ocp=None, **options):
    """Run the problem in simulated time. charge: computation time of each response [s]."""
    ocp = ocp or problem()
    first = Plan.from_solution(to.solve(ocp), 0.0)
    timing = timing or Timing(tick=TICK, period=PERIOD)
    options.setdefault("worker", SimulatedWorker(TICK, lambda respond, prepare: (charge, 0.0)))
    planner, plant = planner or RealTimeSLQ(), plant or WatchedPlant()
    return ReplanningLoop(horizon or RecedingHorizon(ocp), planner, plant, first, timing, **options)


def spin(turn, knots, dt):
    """Body that rotates by ``turn`` about its third axis, and slightly about the others, and comes to rest."""
    system = spinning_body()
    dynamics = to.SampledSystem(make_backend(system, "forward_ad"), "rk4")
    goal = system.manifold.identity()
    x0 = system.manifold.integrate(goal[:, None], np.array([0.4, -0.3, turn, 0.1, 0.2, -0.4])[:, None])[:, 0]
    running, terminal = [to.control_cost(system.nu, weight=0.1)], [to.state_cost(system.manifold, goal, 100.0)]
    return to.OCP.single_phase(dynamics, x0, knots, dt, running, terminal)


def off_the_optimum(planner, ocp, times):
    """Return the largest state difference between a plan after some iterations and the optimum, for a perturbed initial state."""
    manifold, found = ocp.manifold, to.solve(ocp)
    beside = manifold.integrate(ocp.x0[:, None], 0.02 * np.ones((6, 1)))[:, 0]
    for _ in range(times):
        planner.prepare(ocp, warm_start(Plan.from_solution(found, 0.0), ocp, 0.0))
        found = planner.respond(beside)
    exact = to.solve(replace(ocp, x0=beside))
    return np.abs(manifold.difference(exact.xs.T, found.xs.T)).max()
