"""Numbers found for one robot, as another one needs them: dynamic similarity.

Two robots whose masses are in the ratio mu, and whose leg lengths in lambda, under the same gravity move alike when times are in
the ratio tau = sqrt(lambda): with equal Froude numbers v^2 / (g L), and forces in equal shares of the weight (R. McN. Alexander,
A. Jayes, J. Zool. 201, 1983).  A number of unit kg^a m^b s^c is then that of the other robot times mu^a lambda^b tau^c.  Weights
carry over in the unit in which the cost has none: of a residual in unit U, 1/U^2 at the end, and 1/(U^2 s) on the way.

For a robot that is a smaller copy of the other one, this is the same problem in other units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

Unit = tuple[float, float, float]
"""Exponents of kg, m, s."""
NONE: Unit = (0, 0, 0)
LENGTH: Unit = (0, 1, 0)
TIME: Unit = (0, 0, 1)
SPEED: Unit = (0, 1, -1)
RATE: Unit = (0, 0, -1)
TORQUE: Unit = (1, 2, -2)
ENERGY: Unit = (1, 2, -2)
DAMPING: Unit = (1, 2, -1)
"""Of a joint [N m s]."""


class Scale(NamedTuple):
    """The ratios mu and lambda."""

    mass: float = 1.0
    length: float = 1.0

    @property
    def time(self) -> float:
        """tau."""
        return float(np.sqrt(self.length))

    def factor(self, unit: Unit) -> float:
        """What a number of a unit is multiplied by."""
        kg, m, s = unit
        return float(self.mass**kg * self.length**m * self.time**s)

    def scaled(self, value: Any, unit: Unit) -> Any:
        """A number, or a tuple of some, for the other robot."""
        if isinstance(value, tuple):
            return tuple(self.scaled(v, unit) for v in value)
        return value * self.factor(unit)

    def sentence(self) -> str:
        """The ratios for a reader."""
        return f"masses x {self.mass:.3g}, lengths x {self.length:.3g}, times x {self.time:.3g}"


def running_weight(residual: Unit) -> Unit:
    """The unit of a weight on the way."""
    kg, m, s = terminal_weight(residual)
    return (kg, m, s - 1)


def terminal_weight(residual: Unit) -> Unit:
    """The unit of a weight at the end."""
    return tuple(-2 * e for e in residual)  # type: ignore[return-value]


def scaled_fields(settings: Any, scale: Scale, units: Mapping[str, Unit]) -> Any:
    """Settings (a dataclass) with these fields for the other robot; None stays."""
    values = {key: getattr(settings, key) for key in units}
    return replace(settings, **{k: scale.scaled(v, units[k]) for k, v in values.items() if v is not None})
