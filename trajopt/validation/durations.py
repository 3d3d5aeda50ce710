"""Warnings about free durations at a bound, which may limit the motion."""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array, unwrapped
from dynamics_backends.stretched_map import Durations
from trajopt.problem.ocp import OCP

AT_BOUND = 1e-3
"""Relative distance from a bound below which a duration counts as being at it."""


def durations_at_bounds(ocp: OCP, xs: Array) -> list[str]:
    """Return warnings about free durations at their bounds in states xs (N + 1, nx); fixed durations are ignored."""
    sampling = ocp.phases[0].dynamics.sampling
    chooses = sampling is not None and isinstance(unwrapped(sampling.backend.map), Durations)
    if not chooses or ocp.control_bounds is None or not np.isfinite(xs[-1]).all():
        return []
    count, (lower, upper) = ocp.phases[0].dynamics.nu, ocp.control_bounds
    names, values = ocp.manifold.tangent_names[-count:], xs[-1, -count:]
    found = []
    for name, T, *bounds in zip(names, values, lower[0, :count], upper[0, :count], strict=True):
        for which, remedy, bound in zip(("shortest", "longest"), ("lower", "raise"), bounds, strict=True):
            if bounds[0] < bounds[1] and abs(T - bound) <= AT_BOUND * bound:
                found.append(
                    f"the {name} is {T:.4g} s, the {which} allowed duration: it may limit the motion; {remedy} this "
                    f"bound (free_time, problem.durations)"
                )
    return found
