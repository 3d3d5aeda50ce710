"""A small problem to replan: a mass on a line that goes to a goal, and a plant that refuses what is not finite."""

import numpy as np
from textbook_systems import double_integrator

import trajopt as to
from dynamics_backends.manifold import Manifold
from dynamics_backends.registry import make_backend
from trajopt.replanning.loop import ReplanningLoop, Timing
from trajopt.replanning.measurements import MovingObject, Sensor
from trajopt.replanning.plan import Plan, Receding
from trajopt.replanning.planners.real_time_slq import RealTimeSLQ
from trajopt.replanning.plants.sampled_plant import SampledPlant
from trajopt.replanning.workers import SimulatedWorker

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


class WatchedPlant(SampledPlant):
    """Keeps the controls it was given."""

    def __init__(self, x0=(0.0, 0.0), **options):
        super().__init__(mass(), np.array(x0), 0.002, **options)
        self.given = []

    def step(self, u, dt):
        self.given.append(np.array(u))
        super().step(u, dt)


def goal_object(truth=lambda t: [1.0], **sensor):
    """The goal as something that moves."""
    return MovingObject("goal", "goal", truth, Sensor(LINE, PERIOD, **sensor))


def loop(planner=None, plant=None, *, horizon=None, charge=0.0, timing=None, ocp=None, **options):
    """A run of the problem in simulated time; charge [s] of each response."""
    ocp = ocp or problem()
    first = Plan.of(to.solve(ocp), 0.0)
    timing = timing or Timing(tick=TICK, period=PERIOD)
    options.setdefault("worker", SimulatedWorker(TICK, lambda respond, prepare: (charge, 0.0)))
    planner, plant = planner or RealTimeSLQ(), plant or WatchedPlant()
    return ReplanningLoop(horizon or Receding(ocp), planner, plant, first, timing, **options)
