"""Solver, Hessian, integrator and derivative method of an experiment.

Bundled configurations change their solver over time. An experiment therefore sets its own method and checks that the solve used it:
a report always names the solver that it measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trajopt import Solution

JUMP = "jump"
"""Name of the integrator of stages without duration, such as impacts."""


class WrongMethod(RuntimeError):
    """A solve used another solver, Hessian, integrator or derivative method than the experiment names."""


@dataclass(frozen=True)
class Method:
    """Solver settings of an experiment. options: further solver options."""

    solver: str
    hessian: str
    integrator: str
    derivatives: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def overrides(self) -> list[str]:
        """Return overrides for :func:`load_config` that replace the solver table of the configuration."""
        table = {"name": self.solver, "hessian": self.hessian, **self.options}
        solver = ", ".join(f"{key}={_toml(value)}" for key, value in table.items())
        return [
            f"solver={{{solver}}}",
            f"backend={{name='{self.derivatives}'}}",
            f"problem.integrator='{self.integrator}'",
        ]

    def require(self, solution: Solution) -> Solution:
        """Return the solution. Raises WrongMethod if another method computed it."""
        named = {"hessian": self.hessian, "integrator": self.integrator, "derivatives": self.derivatives}
        return require(solution, solver=self.solver, **named)

    def __str__(self) -> str:
        chosen = ", ".join(f"{key} {value}" for key, value in self.options.items())
        return f"{self.solver} ({self.hessian} Hessian; {chosen}), {self.integrator}"


def require(solution: Solution, **named: str) -> Solution:
    """Return the solution. Raises WrongMethod if an entry of :func:`ran` differs from the named one."""
    found = ran(solution)
    if wrong := [key for key in named if found[key] != named[key]]:
        names, others = (", ".join(f"{key} {which[key]}" for key in wrong) for which in (named, found))
        raise WrongMethod(f"the experiment names {names}; {others} ran")
    return solution


def ran(solution: Solution) -> dict[str, str]:
    """Return solver, Hessian, integrator, derivative method and engine of a solution, from its history and metadata."""
    meta = solution.meta
    hessians = dict.fromkeys(r.hessian for r in solution.history)
    return {
        "solver": meta["solver"] if "instead_of" not in meta else f"{meta['solver']} instead of {meta['instead_of']}",
        "hessian": " and ".join(hessians) or str(meta["options"].get("hessian")),
        "integrator": " and ".join(s for s in meta["schemes"] if s != JUMP),
        "derivatives": " and ".join(meta["backends"]),
        "engine": " and ".join(meta["engines"]),
    }


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
