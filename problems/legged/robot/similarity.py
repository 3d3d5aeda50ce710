"""Scale settings from one robot to another by dynamic similarity.

Two robots with mass ratio mu and leg-length ratio lambda under the same gravity move alike if times have the ratio
tau = sqrt(lambda): then Froude numbers v^2 / (g L) and forces relative to the weight are equal (R. McN. Alexander,
A. Jayes, J. Zool. 201, 1983).  A number with unit kg^a m^b s^c is multiplied by mu^a lambda^b tau^c.  Weights
have the unit that makes the cost dimensionless: for a residual in unit U, 1/U^2 (terminal) or 1/(U^2 s) (running).

For a robot that is a scaled copy of the other one, the result is the same problem in other units.
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
"""Unit of joint damping [N m s]."""
Units = Unit | tuple[Unit, ...]
"""Unit of a setting, or units of the entries of a list."""


class Scale(NamedTuple):
    """Mass ratio mu and length ratio lambda."""

    mass: float = 1.0
    length: float = 1.0

    @property
    def time(self) -> float:
        """Time ratio tau."""
        return float(np.sqrt(self.length))

    def factor(self, unit: Unit) -> float:
        """Return the factor of a number with this unit."""
        kg, m, s = unit
        return float(self.mass**kg * self.length**m * self.time**s)

    def scaled(self, value: Any, unit: Units) -> Any:
        """Scale a number or a tuple of numbers."""
        if isinstance(value, tuple):
            return tuple(self.scaled(v, u) for v, u in zip(value, repeated_unit(unit, len(value)), strict=True))
        return value * self.factor(unit)  # type: ignore[arg-type]

    def sentence(self) -> str:
        """Return the ratios as text."""
        return f"masses x {self.mass:.3g}, lengths x {self.length:.3g}, times x {self.time:.3g}"


def running_weight(residual: Unit) -> Unit:
    """Return the unit of a running weight."""
    kg, m, s = terminal_weight(residual)
    return (kg, m, s - 1)


def terminal_weight(residual: Unit) -> Unit:
    """Return the unit of a terminal weight."""
    return tuple(-2 * e for e in residual)  # type: ignore[return-value]


class Change(NamedTuple):
    """A setting scaled to another robot. key: dotted, within the problem. why: reason, as text."""

    key: str
    before: Any
    after: Any
    why: str

    def sentence(self) -> str:
        """Describe the change in one line."""
        return f"problem.{self.key}: {_shown(self.before)} -> {_shown(self.after)} ({self.why})"


def repeated_unit(unit: Units, count: int) -> tuple[Unit, ...]:
    """Return the units of ``count`` numbers."""
    return unit if isinstance(unit[0], tuple) else (unit,) * count


def scaled_values(settings: Any, scale: Scale, units: Mapping[str, Units], given: Collection[str] = ()) -> list[Change]:
    """Return the changes of settings (a dataclass) at the dotted keys of ``units``, except the keys in ``given``.

    Values that scaling does not change (None, 0, infinity) are omitted.
    """
    changes = []
    for key, unit in units.items():
        before = value_at(settings, key)
        if key in given or before is None:
            continue
        after = scale.scaled(before, unit)
        if after != before:
            of_each = dict.fromkeys(repeated_unit(unit, 1))
            why = ", ".join(f"x {scale.factor(one):.4g}, in {unit_name(one)}" for one in of_each)
            changes.append(Change(key, before, after, why))
    return changes


def value_at(settings: Any, key: str) -> Any:
    """Return the value at a dotted key of nested dataclasses and mappings."""
    for part in key.split("."):
        settings = settings[part] if isinstance(settings, Mapping) else getattr(settings, part)
    return settings


def with_values(settings: Any, values: Mapping[str, Any]) -> Any:
    """Return nested dataclasses and mappings with other values at dotted keys; each dataclass is checked once."""
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
    """Prefix the keys of units with a table name."""
    return {f"{prefix}.{key}": unit for key, unit in units.items()}


def unit_name(unit: Unit) -> str:
    """Format a unit, such as "kg m^2 s^-2"; "1" for dimensionless."""
    powers = [(name, e) for name, e in zip(("kg", "m", "s"), unit, strict=True) if e]
    return " ".join(name if e == 1 else f"{name}^{e:g}" for name, e in powers) or "1"


ROUNDING = 1e-12
"""Magnitude below which numbers are shown as 0."""


def _shown(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_shown, value))}]"
    return f"{value if abs(value) > ROUNDING else 0.0:.4g}" if isinstance(value, float) else str(value)
