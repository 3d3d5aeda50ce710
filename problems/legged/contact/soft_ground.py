"""Soft ground of legged robots: settings of the contact law, and the robot's dynamics on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from dynamics_backends.names import nearest_names
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.contact.contact_law import ContactLaw, StepLaw
from dynamics_backends.systems.contact.ground_contact import force_at_rest
from dynamics_backends.systems.contact.registry import (
    CONTACT_LAWS,
    contact_law,
    is_step_law,
    law_keys,
    law_units,
)
from dynamics_backends.systems.contact.soft_contact import SoftContact
from dynamics_backends.systems.contact.stepped_contact import SteppedContact
from trajopt.config.task import Checks, Integrator
from ..robot.similarity import Units, prefixed
from ..robot.walker import LeggedRobot

HALVINGS = 60
DEEPEST = 1.0
"""Bound on the penetration and distance of feet at rest [m]."""


@dataclass(frozen=True, kw_only=True)
class SoftGround(LeggedRobot):
    """Settings of soft ground.

    contact_law: name of a law in :mod:`dynamics_backends.systems.contact.registry`; relaxed_cone, for long time steps,
    requires the integrator semi_implicit_euler. contact_parameters: parameters of the law that override its defaults.
    integrator: integration scheme.
    """

    contact_law: str = "exponential"
    contact_parameters: Mapping[str, float] = field(default_factory=dict)
    integrator: Integrator = "semi_implicit_euler"

    def checks(self) -> Checks:
        laws = ", ".join(CONTACT_LAWS)
        if self.contact_law not in CONTACT_LAWS:
            return super().checks() | {"contact_law": (False, f"one of {laws}")}
        keys = law_keys(self.contact_law)
        unknown = [key for key in self.contact_parameters if key not in keys]
        near = [name for key in unknown for name in nearest_names(key, keys)]
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        whole = not is_step_law(self.contact_law) or self.integrator == SteppedContact.scheme
        return super().checks() | {
            "contact_parameters": (not unknown, f"numbers for the keys {', '.join(keys)}{hint}"),
            "integrator": (
                whole,
                f"{SteppedContact.scheme}, required by contact_law = {self.contact_law!r}",
            ),
        }

    def units(self) -> dict[str, Units]:
        """Return the units of the law's parameters, by settings key."""
        numbers = {key: unit for key, unit in law_units(self.contact_law).items() if key in self.contact_parameters}
        return super().units() | prefixed("contact_parameters", numbers)

    def completed(self) -> Self:
        """Return these settings with all parameters of the law, including defaults."""
        numbers = {key: value for key, value in vars(self.law()).items() if value is not None}
        return replace(super().completed(), contact_parameters=numbers)

    def law(self) -> ContactLaw | StepLaw:
        """Return the contact law. Raises ValueError for invalid parameters."""
        return contact_law(self.contact_law, **{**self.law_defaults(), **self.contact_parameters})

    def law_defaults(self) -> Mapping[str, float]:
        """Return the problem's defaults of contact parameters, which override those of the law."""
        return {}

    def resting_gap(self, load: float) -> float:
        """Return the height [m] above the ground at which a foot at rest carries a force ``load`` [N]."""
        law = self.law()
        return bisect_root(lambda gap: load - force_at_rest(law, gap, {}), -DEEPEST, DEEPEST)

    def contact_dynamics(self, model: Model, feet: Sequence[str]) -> SoftContact | SteppedContact:
        """Return the dynamics of the robot on this ground.

        Raises UnknownName for an unknown foot, ValueError for invalid contact parameters.
        """
        law = self.law()
        if is_step_law(self.contact_law):
            return SteppedContact(model, feet, law=law)  # type: ignore[arg-type]
        return SoftContact(model, feet, law=law)  # type: ignore[arg-type]


def bisect_root(f: Callable[[float], float], lower: float, upper: float) -> float:
    """Return the root of a function that is negative at ``lower`` and positive at ``upper``, by bisection."""
    for _ in range(HALVINGS):
        middle = 0.5 * (lower + upper)
        lower, upper = (middle, upper) if f(middle) < 0 else (lower, middle)
    return 0.5 * (lower + upper)
