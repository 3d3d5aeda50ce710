"""The C text of the kernels that serve every problem, for the library of the package (tools/build_kernels.py)."""

from trajopt.collisions import library as collisions
from trajopt.lq import lq_solver
from trajopt.solvers.interior import library
from trajopt.solvers.window import interior_slot, newton_slot, shooting_slot
from trajopt.stage.compiled import library as stages


def generated_headers() -> dict[str, str]:
    """C text of the headers that the kernels of this package include and Python generates, by file name."""
    return {
        "distances.h": collisions.distances(),
        "interior_constants.h": library.CONSTANTS,
        "interior_slot_constants.h": interior_slot.CONSTANTS,
        "lq_constants.h": lq_solver.CONSTANTS,
        "newton_constants.h": newton_slot.CONSTANTS,
        "shooting_constants.h": shooting_slot.CONSTANTS,
    }


def sources() -> dict[str, str]:
    """C source of each object file that this package contributes to the kernel library, by the object's name."""
    return {
        "collisions": collisions.source(),
        "lq": lq_solver.source(lq_solver.SIZES),
        **{"lq_{}_{}".format(*size): lq_solver.sized_source(*size) for size in lq_solver.SIZES},
        "lq_in_lanes": lq_solver.lanes_source(),
        "interior": interior_slot.source(before=library.source()),
        "newton": newton_slot.source(),
        "stages": stages.source(),
        "shooting": shooting_slot.source("shooting_window.h"),
    }
