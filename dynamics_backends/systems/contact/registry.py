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
    """Return ``law`` unchanged if it is a dataclass type that looks like a ContactLaw or a StepLaw; else raise TypeError.

    It needs ``force``, and either ``slopes`` and ``second_derivatives`` or its own ``slower``. name: used in the message.
    """
    soft = hasattr(law, "slopes") and hasattr(law, "second_derivatives")
    stepped = hasattr(law, "slower") and law.slower is not StepLaw.slower
    if not (isinstance(law, type) and is_dataclass(law) and hasattr(law, "force") and (soft or stepped)):
        raise TypeError(
            f"contact law {name!r}: expected a frozen dataclass that extends trajopt.ContactLaw and defines force, or "
            f"trajopt.StepLaw and defines force and slower, got {law!r}"
        )
    return cast(LawFactory, law)


CONTACT_LAWS: Registry[LawFactory] = Registry(
    "contact law",
    "contact_laws",
    {"exponential": SoftContactLaw, "hunt_crossley": HuntCrossley, "relaxed_cone": RelaxedCone},
    _law,
)
"""Contact laws: name -> dataclass whose fields are the keys of ``contact_parameters``."""


def register_contact_law(name: str, law: type[Any]) -> None:
    """Register a contact law under a name, for the key ``contact_law`` of configurations and :func:`contact_law`.

    law: a dataclass (frozen, which is not checked) with the methods of a :class:`ContactLaw` or a :class:`StepLaw`; its fields
    are the keys of ``contact_parameters``. A field made by :func:`~dynamics_backends.systems.contact.contact_law.in_unit` is
    scaled when a gait is transferred to another robot. A package registers its laws by entry points of the group
    ``trajopt.contact_laws``. An earlier registered law of the same name is replaced.

    Raises ValueError for the name of a built-in law or a name that is empty or no text, TypeError for an object that is not a
    law.
    """
    CONTACT_LAWS.register(name, law)


def is_step_law(name: str) -> bool:
    """True if the law of this name is a StepLaw, for long time steps, evaluated at the velocity at the end of the step.

    Raises UnknownName for an unknown name, ExtensionError for an entry point that cannot be used.
    """
    return hasattr(CONTACT_LAWS[name], "slower")


def step_laws() -> list[str]:
    """Names of the StepLaws among the built-in and registered laws and the entry points that have been used."""
    return [name for name, law in CONTACT_LAWS.loaded().items() if hasattr(law, "slower")]


def contact_law(name: str, **values: float) -> ContactLaw | StepLaw:
    """Create the law of this name with these values of its fields; the other fields have their defaults.

    Raises UnknownName for an unknown name or key, ExtensionError for an entry point that cannot be used, and the errors of the
    law, such as ValueError for a value out of range.
    """
    law = CONTACT_LAWS[name]
    for key in values:
        if key not in law_keys(name):
            raise unknown_name(f"key of the contact law {name!r}", key, law_keys(name))
    return law(**values)


def law_keys(name: str) -> tuple[str, ...]:
    """Names of the fields of the law of this name, in order; they are the keys of ``contact_parameters``."""
    kind: Any = CONTACT_LAWS[name]
    return tuple(f.name for f in fields(kind))


def law_units(name: str) -> dict[str, tuple[float, float, float]]:
    """Exponents of kg, m, s in the unit of each key of a law, (0, 0, 0) if dimensionless; fields not made by ``in_unit`` are
    omitted.
    """
    kind: Any = CONTACT_LAWS[name]
    return {f.name: f.metadata["unit"] for f in fields(kind) if "unit" in f.metadata}
