"""Preparation of a solve: tracing of the functions that it calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.solvers.direct.program_parts import evaluated_stages
from trajopt.solvers.options import AutoOptions
from trajopt.solvers.solve import solve


def prepare(ocp: OCP, guess: Guess, options: Any, solver: str | None = None) -> None:
    """Trace the functions of a solve by one iteration of it; of ``auto`` those of its first attempt.

    Later solves find them in memory and on disk. The problem is not validated; errors of such a solve are raised.
    """
    alone = {"fallback": False, "starts": 1} if isinstance(options, AutoOptions) else {}
    solve(ocp, guess, replace(options, max_iterations=1, **alone), solver=solver, check=False)
    evaluated_stages(ocp)  # of the checks
