"""Checks of a gait against the robot's legs: reach of the steps, duration of the swings, and order of the feet."""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array
from ..robot.stance import Stance
from .gait import Gait

USUAL_STEP = 0.2
"""Length of a usual step [leg lengths]."""
LONG_SWING = 20.0
"""Duration of a swing above which it is unusual, relative to sqrt(L / g), about that of a usual swing."""
ORDER = ("left front", "right front", "left hind", "right hind")
"""Order of the feet of a quadruped."""


def require_reach(stance: Stance, gait: Gait, footholds: Array) -> None:
    """Raise ValueError if a step takes a foot farther from its hip than the leg is long, or lifts it higher.

    footholds (F, 3) [m]: initial positions of the feet. The hips move with the reference of the base.
    """
    lengths = np.array([leg.length for leg in stance.legs])
    if gait.step_height > lengths.min():
        raise ValueError(
            f"step_height: steps of {gait.step_height:.3g} m are higher than the leg is long, {lengths.min():.3g} m: "
            "reduce step_height"
        )
    ends = np.cumsum([0.0, *(phase.duration for phase in gait.phases)])
    references = gait.references(ends, footholds)
    hips = references.base[:, None, 0] + [leg.hip[0] for leg in stance.legs]
    away = np.abs(references.position[:, :, 0] - hips).max(axis=0)
    worst = int(np.argmax(away / lengths))
    if away[worst] > lengths[worst]:
        raise ValueError(
            f"step_length: steps of {gait.step_length:.3g} m take {gait.feet[worst]} {away[worst]:.3g} m away from its hip, and "
            f"its leg is {lengths[worst]:.3g} m long: reduce step_length or distance, or increase cycles; "
            f"{USUAL_STEP * stance.leg_length:.2g} m is a usual step of this robot"
        )


def swing_warnings(stance: Stance, swing: float) -> tuple[str, ...]:
    """Return a warning about a duration of swings [s] that is unusually long, else none."""
    usual = float(np.sqrt(stance.leg_length / np.linalg.norm(stance.model.gravity)))
    if swing <= LONG_SWING * usual:
        return ()
    return (
        f"problem.swing = {swing:g} s is long for legs of {stance.leg_length:.3g} m: usual swings take {usual:.2g} s",
    )


def order_warnings(feet: tuple[str, ...], footholds: Array) -> tuple[str, ...]:
    """Return a warning if four feet at footholds (4, 3) [m] of a robot that faces along x are not in ORDER, else none."""
    if len(feet) != 4:
        return ()
    front_first = np.argsort(-footholds[:, 0], kind="stable")
    order = [i for pair in (front_first[:2], front_first[2:]) for i in sorted(pair, key=lambda i: -footholds[i, 1])]
    given = footholds[:, :2]
    in_order = (given[[0, 1], 0] > given[[2, 3], 0]).all() and (given[[0, 2], 1] > given[[1, 3], 1]).all()
    if in_order or order == [0, 1, 2, 3]:
        return ()
    listed = ", ".join(f'"{feet[i]}"' for i in order)
    return (
        f"the feet are not in the order {', '.join(ORDER)}, so that other feet than those of the named gait swing together: set "
        f"problem.feet = [{listed}]",
    )
