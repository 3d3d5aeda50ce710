"""The C text of the kernels that serve every problem, for the library of the package (tools/build_kernels.py)."""

from trajopt.collisions import library as collisions
from trajopt.lq import lq
from trajopt.solvers.interior import library
from trajopt.solvers.window import interior_slot, newton_slot, shooting_slot
from trajopt.stage.compiled import library as stages


def sources() -> dict[str, str]:
    """The C text of each object of the library, by name."""
    return {
        "collisions": collisions.source(),
        "lq": lq.source(lq.SIZES),
        **{"lq_{}_{}".format(*size): lq.sized_source(*size) for size in lq.SIZES},
        "lq_in_lanes": lq.lanes_source(),
        "interior": interior_slot.source(before=library.source()),
        "newton": newton_slot.source(),
        "stages": stages.source(),
        "shooting": shooting_slot.source("shooting_window.h"),
    }
