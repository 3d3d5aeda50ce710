"""Solver, Hessian, integrator and derivatives of an experiment's solves, fixed by the experiment itself.

Configs change their solver over time. An experiment states its own, sets every key of it, and compares them with those
that ran: a report cannot name another solver than the one that it measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trajopt import Solution

JUMP = "jump"
"""Scheme of stages without duration, such as impacts: they integrate nothing."""


class AnotherMethod(RuntimeError):
    """A solve ran with another solver, Hessian, integrator or derivative method than the experiment names."""


@dataclass(frozen=True)
class Method:
    """The settings that an experiment names. options: of the solver, beside its Hessian."""

    solver: str
    hessian: str
    integrator: str
    derivatives: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def overrides(self) -> list[str]:
        """Settings for :func:`load_config`; they replace the solver table of the config."""
        table = {"name": self.solver, "hessian": self.hessian, **self.options}
        solver = ", ".join(f"{key}={_toml(value)}" for key, value in table.items())
        return [
            f"solver={{{solver}}}",
            f"backend={{name='{self.derivatives}'}}",
            f"problem.integrator='{self.integrator}'",
        ]

    def require(self, solution: Solution) -> Solution:
        """The solution, if this method found it. Raises AnotherMethod."""
        named = {"hessian": self.hessian, "integrator": self.integrator, "derivatives": self.derivatives}
        return require(solution, solver=self.solver, **named)

    def __str__(self) -> str:
        chosen = ", ".join(f"{key} {value}" for key, value in self.options.items())
        return f"{self.solver} ({self.hessian} Hessian; {chosen}), {self.integrator}"


def require(solution: Solution, **named: str) -> Solution:
    """The solution, if what ran is what is named, by the keys of :func:`ran`. Raises AnotherMethod."""
    found = ran(solution)
    if wrong := [key for key in named if found[key] != named[key]]:
        names, others = (", ".join(f"{key} {which[key]}" for key in wrong) for which in (named, found))
        raise AnotherMethod(f"the experiment names {names}; {others} ran")
    return solution


def ran(solution: Solution) -> dict[str, str]:
    """Solver, Hessian, integrator, derivative method and engine of a solution, as its records and metadata hold them."""
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
