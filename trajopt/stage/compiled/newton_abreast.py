"""Libraries for Newton's loop with a problem in each lane: kernels/newton_abreast.h."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynamics_backends.compiled.interface.sources import TooLong, TraceError
from trajopt.problem.ocp import OCP
from trajopt.stage.compiled.compiled_stages import CompiledStages
from trajopt.stage.compiled.library import Library, library_of


def newton_libraries(ocp: OCP, stages: Sequence[CompiledStages]) -> list[Library] | None:
    """Library of each phase, with the cost Hessian of these stages; None if a function has no tape."""
    try:
        return [library_of(_backend(ocp, i), s.library.shape._replace(second=True)) for i, s in enumerate(stages)]
    except (TooLong, TraceError):
        return None


def _backend(ocp: OCP, i: int) -> Any:
    sampling: Any = ocp.phases[i].dynamics.sampling
    return sampling.called
