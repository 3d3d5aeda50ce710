"""Small problems for studies; a row takes milliseconds. Workers import this module."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import numpy as np
from batch_cases import swing

import trajopt as to

VARY = {"goal": "uniform(-1, 1)", "weight": "log_uniform(1e-3, 1)", "start": "uniform([0, 0], [1, 1])"}


def cart(goal: float, weight: float = 1.0, start: object = (0.0, 0.0), knots: int = 5) -> to.OCP:
    """A mass on a line, from a state to rest at a goal."""
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    step = to.SampledSystem(to.make_backend(system, "forward_ad", engine="numpy"), "semi_implicit_euler")
    terminal = [to.state_cost(system.manifold, [goal, 0.0], 1e3)]
    return to.OCP.single_phase(step, np.asarray(start), knots, 0.1, [to.control_cost(1, weight=weight)], terminal)


def swinging(q: float, engine: str = "numpy") -> to.OCP:
    """A pendulum from an angle to rest below."""
    system = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - 9.81 * np.sin(x[0])], 2, 1, second_order=True)
    step = to.SampledSystem(to.make_backend(system, "forward_ad", engine=engine), "semi_implicit_euler")
    terminal = [to.state_cost(system.manifold, [0.0, 0.0], 1e3)]
    return to.OCP.single_phase(step, np.array([q, 0.0]), 8, 0.1, [to.control_cost(1)], terminal)


def refusing(goal: float, **others: object) -> to.OCP:
    """Factory of the problems above that raises an error for goals on the left."""
    if goal < 0:
        raise ValueError(f"{goal} is on the left")
    return cart(goal, **others)  # type: ignore[arg-type]


def lasting(goal: float, knots: int) -> to.OCP:
    """Factory of problems of several lengths that raises an error for a negative length."""
    if knots < 0:
        raise ValueError("no knots")
    return cart(goal, knots=knots)


def far_off(xs: np.ndarray, times: np.ndarray) -> list[str]:
    """The sentences about a missed goal, for motions that end on the left."""
    end = xs[-1, 0]
    return [f"ends at {end:.3f}", "on the left"] if end < 0 else []


def judged(goal: float) -> to.OCP:
    """Row that succeeds if its motion ends on the right."""
    return replace(cart(goal), goals=[to.Goal("on the right", far_off)])


def deadly(goal: int) -> to.OCP:
    """Row whose process crashes at the goal 3, like an error in C code."""
    if goal == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return cart(float(goal))


def limited(angle, speed):
    """Double pendulum that moves to a posture with a speed limit."""
    ocp = swing(constrained=True, engine="compiled")
    slow = ocp.phases[0].constraints[0].updated(upper=[speed, speed])
    phase = replace(ocp.phases[0], constraints=(slow, *ocp.phases[0].constraints[1:]))
    return replace(ocp, phases=(phase,), x0=np.array([angle, 0.0, 0.0, 0.0]))
