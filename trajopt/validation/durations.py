"""Free durations that end at a bound: the motion may be as long as it is because no other duration was allowed."""

from __future__ import annotations

import numpy as np

from dynamics_backends.protocol import Array, unwrapped
from dynamics_backends.time_scaled import Durations
from trajopt.problem.ocp import OCP

AT_BOUND = 1e-3
"""A duration is at a bound that it is as near to as this fraction of the bound."""


def durations_at_bounds(ocp: OCP, xs: Array) -> list[str]:
    """Sentences about free durations in states xs (N + 1, nx) that are at their bounds; none about durations that are fixed."""
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
                    f"the {name} ends at {T:.4g} s, the {which} that is allowed: the motion may be bounded by it; {remedy} this "
                    f"bound where the durations are given (free_time, problem.durations)"
                )
    return found
