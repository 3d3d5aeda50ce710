"""The soft ground of legged robots: which contact law, with which numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.systems.contact.registry import CONTACT_LAWS, contact_law, law_keys
from dynamics_backends.systems.contact.soft_contact import SoftContact
from problems.task import Checked, Checks


@dataclass(frozen=True, kw_only=True)
class SoftGround(Checked):
    """Settings of the ground: soft contacts.

    contact_law: a name of :mod:`dynamics_backends.systems.contact.registry`. contact_parameters: numbers by the law's keys, in
    place of its defaults."""

    contact_law: str = "exponential"
    contact_parameters: Mapping[str, float] = field(default_factory=dict)

    def checks(self) -> Checks:
        laws = ", ".join(CONTACT_LAWS)
        if self.contact_law not in CONTACT_LAWS:
            return super().checks() | {"contact_law": (False, f"one of {laws}")}
        keys = law_keys(self.contact_law)
        known = set(self.contact_parameters) <= set(keys)
        return super().checks() | {"contact_parameters": (known, f"numbers by the keys {', '.join(keys)}")}

    def standing_on(self, model: Model, feet: Sequence[str]) -> SoftContact:
        """The robot on this ground.

        Raises UnknownName for a foot that it does not have, ValueError for numbers that make no contact.
        """
        return SoftContact(model, feet, law=contact_law(self.contact_law, **self.contact_parameters))
