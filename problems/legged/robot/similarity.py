"""Numbers found for one robot, as another one needs them: dynamic similarity.

Two robots whose masses are in the ratio mu, and whose leg lengths in lambda, under the same gravity move alike when times are in
the ratio tau = sqrt(lambda): with equal Froude numbers v^2 / (g L), and forces in equal shares of the weight (R. McN. Alexander,
A. Jayes, J. Zool. 201, 1983).  A number of unit kg^a m^b s^c is then that of the other robot times mu^a lambda^b tau^c.  Weights
carry over in the unit in which the cost has none: of a residual in unit U, 1/U^2 at the end, and 1/(U^2 s) on the way.

For a robot that is a smaller copy of the other one, this is the same problem in other units.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
"""The damping of a joint [N m s]."""
Units = Unit | tuple[Unit, ...]
"""The unit of a setting; of a list of numbers in several units, one for each."""


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

    def scaled(self, value: Any, unit: Units) -> Any:
        """A number, or a tuple of some, for the other robot."""
        if isinstance(value, tuple):
            return tuple(self.scaled(v, u) for v, u in zip(value, each(unit, len(value)), strict=True))
        return value * self.factor(unit)  # type: ignore[arg-type]

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


class Change(NamedTuple):
    """A setting that was carried over to another robot. key: dotted, within the problem. why: the reason, in words."""

    key: str
    before: Any
    after: Any
    why: str

    def sentence(self) -> str:
        """One line for a reader."""
        return f"problem.{self.key}: {_shown(self.before)} -> {_shown(self.after)} ({self.why})"


def each(unit: Units, count: int) -> tuple[Unit, ...]:
    """The units of ``count`` numbers."""
    return unit if isinstance(unit[0], tuple) else (unit,) * count


def scaled_values(settings: Any, scale: Scale, units: Mapping[str, Units], given: Collection[str] = ()) -> list[Change]:
    """The changes of the settings (a dataclass) at the dotted keys of ``units``, but for the keys in ``given``.

    Values that scaling leaves as they are (None, 0, infinity) are no changes.
    """
    changes = []
    for key, unit in units.items():
        before = value_at(settings, key)
        if key in given or before is None:
            continue
        after = scale.scaled(before, unit)
        if after != before:
            of_each = dict.fromkeys(each(unit, 1))
            why = ", ".join(f"x {scale.factor(one):.4g}, in {unit_name(one)}" for one in of_each)
            changes.append(Change(key, before, after, why))
    return changes


def value_at(settings: Any, key: str) -> Any:
    """The value at a dotted key of nested dataclasses and mappings."""
    for part in key.split("."):
        settings = settings[part] if isinstance(settings, Mapping) else getattr(settings, part)
    return settings


def with_values(settings: Any, values: Mapping[str, Any]) -> Any:
    """The settings, nested dataclasses and mappings, with other values at dotted keys; each dataclass is checked once."""
    here: dict[str, Any] = {}
    within: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        head, _, rest = key.partition(".")
        if rest:
            within.setdefault(head, {})[rest] = value
        else:
            here[head] = value
    here |= {head: with_values(value_at(settings, head), inner) for head, inner in within.items()}
    return {**settings, **here} if isinstance(settings, Mapping) else replace(settings, **here)


def prefixed(prefix: str, units: Mapping[str, Unit]) -> dict[str, Unit]:
    """Units of the keys of a table within the settings."""
    return {f"{prefix}.{key}": unit for key, unit in units.items()}


def unit_name(unit: Unit) -> str:
    """The unit as a text, such as "kg m^2 s^-2"; "1" for none."""
    powers = [(name, e) for name, e in zip(("kg", "m", "s"), unit, strict=True) if e]
    return " ".join(name if e == 1 else f"{name}^{e:g}" for name, e in powers) or "1"


ROUNDING = 1e-12
"""Smaller numbers are shown as 0."""


def _shown(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_shown, value))}]"
    return f"{value if abs(value) > ROUNDING else 0.0:.4g}" if isinstance(value, float) else str(value)
