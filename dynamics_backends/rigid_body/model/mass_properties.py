"""Mass, center of mass and inertia of rigid bodies: change of frame, composition, physical plausibility.

An inertia tensor is (3, 3), about the center of mass, in the axes of the given frame; its off-diagonal entries are minus the
products of inertia, as in a URDF.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

PSD_TOLERANCE = 1e-9  # relative: tensors in files are rounded to a few digits, sums of them to double precision
TRIANGLE_TOLERANCE = 1e-3  # relative excess of one principal moment over the sum of the two others


class MassProperties(NamedTuple):
    """Rigid-body mass properties: mass [kg], com (3,) [m], inertia (3, 3) about the center of mass [kg m^2]."""

    mass: float
    com: np.ndarray
    inertia: np.ndarray

    def moved(self, R: np.ndarray, p: np.ndarray) -> MassProperties:
        """Return the mass properties in a frame in which the present frame has the placement R, p."""
        inertia = R @ self.inertia @ R.T
        return MassProperties(self.mass, R @ self.com + p, (inertia + inertia.T) / 2)

    @property
    def empty(self) -> bool:
        """True if mass and inertia are zero."""
        return self.mass == 0 and not self.inertia.any()


def point_inertia(mass: float, r: np.ndarray) -> np.ndarray:
    """Return the inertia (3, 3) about the origin of a point mass at r (3,): m (r'r 1 - r r')."""
    return mass * (r @ r * np.eye(3) - np.outer(r, r))


def inertias_about_origin(mass: np.ndarray, com: np.ndarray, inertia: np.ndarray) -> np.ndarray:
    """Return (n, 3, 3) about the origins of bodies of mass (n,), com (n, 3) and inertia (n, 3, 3) about the com."""
    return inertia + np.stack([point_inertia(m, c) for m, c in zip(mass, com, strict=True)])


def composite(parts: Sequence[MassProperties]) -> MassProperties:
    """Return the rigid union of parts in one frame; zero without parts. A single nonempty part is returned unchanged.

    Raises ValueError if the masses sum to zero but their moments do not, so that there is no center of mass.
    """
    parts = [part for part in parts if not part.empty]
    if not parts:
        return MassProperties(0.0, np.zeros(3), np.zeros((3, 3)))
    if len(parts) == 1:
        return parts[0]
    mass = sum(part.mass for part in parts)
    moment = np.sum([part.mass * part.com for part in parts], axis=0)
    if mass == 0 and np.any(moment):
        raise ValueError("the masses of rigidly joined links cancel to zero: correct their <mass> values")
    com = moment / mass if mass else np.zeros(3)
    shifted = [part.inertia + point_inertia(part.mass, part.com - com) for part in parts]
    return MassProperties(mass, com, np.sum(shifted, axis=0))


def positive_semidefinite(inertia: np.ndarray) -> bool:
    """True if a tensor (3, 3) has no negative eigenvalue, up to PSD_TOLERANCE of the largest one."""
    moments = np.linalg.eigvalsh(inertia)
    return bool(moments[0] >= -PSD_TOLERANCE * np.abs(moments).max())


def satisfies_triangle(inertia: np.ndarray) -> bool:
    """True if the largest principal moment is at most the sum of the others, as for any real mass distribution.

    A relative excess of TRIANGLE_TOLERANCE is accepted.
    """
    moments = np.linalg.eigvalsh(inertia)
    return bool(moments[2] <= (1 + TRIANGLE_TOLERANCE) * (moments[0] + moments[1]))
