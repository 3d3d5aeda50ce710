"""The C text of the kernels that serve every problem, for the library of the package (tools/build_kernels.py)."""

from trajopt.collisions import library as collisions
from trajopt.lq import compiled_lq
from trajopt.solvers.interior import library
from trajopt.solvers.window import interior_slot, newton_slot, shooting_slot
from trajopt.stage.compiled import library as stages


def sources() -> dict[str, str]:
    """The C text of each object of the library, by name."""
    return {
        "collisions": collisions.source(),
        "lq": compiled_lq.source(compiled_lq.SIZES),
        **{"lq_{}_{}".format(*size): compiled_lq.sized_source(*size) for size in compiled_lq.SIZES},
        "lq_in_lanes": compiled_lq.lanes_source(),
        "interior": interior_slot.source(before=library.source()),
        "newton": newton_slot.source(),
        "stages": stages.source(),
        "shooting": shooting_slot.source("shooting_window.h"),
    }
