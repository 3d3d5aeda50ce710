"""Contact laws by name: the line of a configuration that chooses how the ground answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from dynamics_backends.names import unknown_name
from dynamics_backends.systems.contact.contact_law import ContactLaw, StepLaw
from dynamics_backends.systems.contact.exponential_law import SoftContactLaw
from dynamics_backends.systems.contact.hunt_crossley import HuntCrossley
from dynamics_backends.systems.contact.relaxed_cone import RelaxedCone

SOFT_LAWS: dict[str, Callable[..., ContactLaw]] = {
    "exponential": SoftContactLaw,
    "hunt_crossley": HuntCrossley,
}
"""Laws of soft ground: name -> a dataclass whose fields are the law's keys."""
STEP_LAWS: dict[str, Callable[..., StepLaw]] = {
    "relaxed_cone": RelaxedCone,
}
"""For long time steps, likewise."""
CONTACT_LAWS: dict[str, Callable[..., ContactLaw | StepLaw]] = {**SOFT_LAWS, **STEP_LAWS}


def contact_law(name: str, **values: float) -> ContactLaw | StepLaw:
    """The law of a name with these values. Raises UnknownName for a name or a key, ValueError for a value out of range."""
    if name not in CONTACT_LAWS:
        raise unknown_name("contact law", name, CONTACT_LAWS)
    for key in values:
        if key not in law_keys(name):
            raise unknown_name(f"key of the contact law {name!r}", key, law_keys(name))
    return CONTACT_LAWS[name](**values)


def law_keys(name: str) -> tuple[str, ...]:
    """The keys of the law of a name."""
    kind: Any = CONTACT_LAWS[name]
    return tuple(f.name for f in fields(kind))


def law_units(name: str) -> dict[str, tuple[float, float, float]]:
    """The keys of the law of a name, each with the exponents of kg, m, s of its unit."""
    kind: Any = CONTACT_LAWS[name]
    return {f.name: f.metadata["unit"] for f in fields(kind)}
