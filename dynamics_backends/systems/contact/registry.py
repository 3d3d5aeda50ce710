"""Registry of contact laws by name, for configurations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, cast

from dynamics_backends.extensions import Registry
from dynamics_backends.names import unknown_name
from dynamics_backends.systems.contact.contact_law import ContactLaw, StepLaw
from dynamics_backends.systems.contact.exponential_law import SoftContactLaw
from dynamics_backends.systems.contact.hunt_crossley import HuntCrossley
from dynamics_backends.systems.contact.relaxed_cone import RelaxedCone

LawFactory = Callable[..., ContactLaw | StepLaw]


def _law(name: str, law: Any) -> LawFactory:
    """Return ``law`` unchanged if it is a dataclass with the methods of a ContactLaw or a StepLaw; else raise TypeError."""
    soft, stepped = (hasattr(law, "slopes") and hasattr(law, "second_derivatives")), hasattr(law, "slower")
    if not (isinstance(law, type) and is_dataclass(law) and hasattr(law, "force") and (soft or stepped)):
        raise TypeError(
            f"contact law {name!r}: expected a frozen dataclass with force, slopes and second_derivatives (trajopt.ContactLaw), "
            f"or a trajopt.StepLaw, got {law!r}"
        )
    return cast(LawFactory, law)


CONTACT_LAWS: Registry[LawFactory] = Registry(
    "contact law",
    "contact_laws",
    {"exponential": SoftContactLaw, "hunt_crossley": HuntCrossley, "relaxed_cone": RelaxedCone},
    _law,
)
"""Contact laws: name -> dataclass whose fields are the law's keys."""


def register_contact_law(name: str, law: type[Any]) -> None:
    """Register a contact law under a name, for the key ``contact_law`` of configurations and :func:`contact_law`.

    law: a frozen dataclass that is a :class:`ContactLaw` or a :class:`StepLaw`; its fields are the keys of ``contact_parameters``.
    A field made by :func:`~dynamics_backends.systems.contact.contact_law.in_unit` is scaled when a gait is transferred to another
    robot. A package registers its laws by entry points of the group ``trajopt.contact_laws``. An earlier law of the same name is
    replaced.

    Raises ValueError for the name of a built-in law, TypeError for an object that is not a law.
    """
    CONTACT_LAWS.register(name, law)


def is_step_law(name: str) -> bool:
    """True for a law of long time steps, evaluated at the end of the step."""
    return hasattr(CONTACT_LAWS[name], "slower")


def step_laws() -> list[str]:
    """Names of the loaded laws for long time steps."""
    return [name for name, law in CONTACT_LAWS.loaded().items() if hasattr(law, "slower")]


def contact_law(name: str, **values: float) -> ContactLaw | StepLaw:
    """Create the law of this name with these values. Raises UnknownName for a name or a key, ValueError for a value out of
    range.
    """
    law = CONTACT_LAWS[name]
    for key in values:
        if key not in law_keys(name):
            raise unknown_name(f"key of the contact law {name!r}", key, law_keys(name))
    return law(**values)


def law_keys(name: str) -> tuple[str, ...]:
    """Names of the fields of the law of this name, the keys of ``contact_parameters``."""
    kind: Any = CONTACT_LAWS[name]
    return tuple(f.name for f in fields(kind))


def law_units(name: str) -> dict[str, tuple[float, float, float]]:
    """Exponents of kg, m, s of the unit of each key of a law; keys without a unit are omitted."""
    kind: Any = CONTACT_LAWS[name]
    return {f.name: f.metadata["unit"] for f in fields(kind) if "unit" in f.metadata}
