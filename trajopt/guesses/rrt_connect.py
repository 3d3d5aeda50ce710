"""Collision-free paths of configurations: RRT-Connect, then short-cuts, both of the package ompl.

J. J. Kuffner, S. M. LaValle, RRT-Connect: an efficient approach to single-query path planning, ICRA 2000: two trees, from start and
goal, grow toward each other in straight lines. A short-cut replaces the path between two of its points by a straight line if that
is collision-free.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array

STEP = 0.04
"""Largest change of a coordinate between checked configurations [rad, m]."""
RANGE = 1.0
"""Longest edge of a tree, in the Euclidean norm [rad, m]."""
SHORT_CUTS = 100
"""Number of random short-cuts that are tried."""

InCollision = Callable[[Array], bool]
"""Function that returns True if a configuration (nq,) is in collision."""
LineInCollision = Callable[[Array, Array, float], bool]
"""Function that returns True if the line between two configurations (nq,) is in collision, checked in steps of this size."""


def rrt_connect(
    touches: InCollision,
    line_touches: LineInCollision,
    start: Array,
    goal: Array,
    lower: Array,
    upper: Array,
    *,
    seed: int = 0,
    time_limit: float = 10.0,
) -> Array | None:
    """Corners (K, nq) of a short collision-free path from start to goal within bounds, or None if none was found.

    touches, line_touches: collision checks of a configuration and of a line. time_limit: processor time of this thread [s], so
    that other load does not shorten the search. Returns None immediately if start or goal is in collision, because ompl would
    wait without using processor time. Bounds that exclude start or goal are widened to include it. Coordinates without a bound
    are searched pi [rad, m] beyond start and goal. Raises ModuleNotFoundError without ompl.
    """
    try:
        from ompl import base, geometric, util
    except ModuleNotFoundError as error:
        message = "RRT-Connect needs the package ompl: pip install 'urdf-trajopt[scene]'"
        raise ModuleNotFoundError(message, name="ompl") from error
    if touches(start) or touches(goal):
        return None
    util.setLogLevel(util.LogLevel.LOG_NONE)
    util.RNG.setSeed(seed + 1)
    n = len(start)
    low = np.where(np.isfinite(lower), lower, np.minimum(start, goal) - np.pi)
    high = np.where(np.isfinite(upper), upper, np.maximum(start, goal) + np.pi)
    space = base.RealVectorStateSpace(n)
    bounds = base.RealVectorBounds(n)
    for i in range(n):
        bounds.setLow(i, float(min(low[i], start[i], goal[i])))
        bounds.setHigh(i, float(max(high[i], start[i], goal[i])))
    space.setBounds(bounds)
    setup = geometric.SimpleSetup(space)

    def configuration(state: Any) -> Array:
        """Configuration (n,) of a state of ompl."""
        return np.array([state[i] for i in range(n)])

    class Lines(base.MotionValidator):
        """Check of the edges of the trees by ``line_touches``."""

        def checkMotion(self, a: Any, b: Any, last: Any = None) -> bool:
            """True if the line between two states is collision-free."""
            return not line_touches(configuration(a), configuration(b), STEP)

    setup.setStateValidityChecker(lambda state: not touches(configuration(state)))
    information = setup.getSpaceInformation()
    information.setMotionValidator(Lines(information))
    ends = [space.allocState() for _ in range(2)]
    for state, q in zip(ends, (start, goal), strict=True):
        for i in range(n):
            state[i] = float(q[i])
    setup.setStartAndGoalStates(*ends)
    planner = geometric.RRTConnect(information)
    planner.setRange(RANGE)
    setup.setPlanner(planner)
    end = time.thread_time() + time_limit
    setup.solve(base.PlannerTerminationCondition(lambda: time.thread_time() > end))
    if not setup.haveExactSolutionPath():
        return None
    path = setup.getSolutionPath()
    geometric.PathSimplifier(information).partialShortcutPath(path, SHORT_CUTS, SHORT_CUTS)
    return np.array([configuration(state) for state in path.getStates()])
