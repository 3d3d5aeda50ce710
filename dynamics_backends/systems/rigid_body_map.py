"""What the maps of a robot have in common: state (q, v), names, and its split into rows."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Self

import numpy as np

from dynamics_backends.protocol import Array, Jacobians
from dynamics_backends.rigid_body.drivers import Driver, run
from dynamics_backends.rigid_body.model import Model
from dynamics_backends.rigid_body.state import state_manifold
from dynamics_backends.scalar import Rows, Scalar


class RigidBodyMap:
    """A map of the state (q, v) of a model and a control; subclasses say which."""

    driver: Driver = staticmethod(run)
    runs_programs = True
    """Whether ``driver`` evaluates what is costly inside; where not, the compiled engine takes the map as a whole."""

    def __init__(self, model: Model, control_names: tuple[str, ...], output_names: tuple[str, ...]) -> None:
        if model.coupling is not None:
            raise ValueError(
                f"{model.name} has mimic joints that follow others; use systems.coupled_body, "
                "or load it with mimic = 'free' or 'lock'"
            )
        self.model = model
        self.manifold = state_manifold(model)
        self.control_names = control_names
        self.output_names = output_names
        self.nu = len(control_names)
        self.n_out = len(output_names)

    def with_driver(self, driver: Driver) -> Self:
        """The same map evaluated by another driver."""
        other = copy(self)
        other.driver = driver
        return other

    def split(self, x: Rows) -> tuple[Rows, Rows]:
        """q (nq, N) and v (nv, N)."""
        return x[: self.model.nq], x[self.model.nq :]

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows (n_out, N)."""
        raise TypeError(f"{type(self).__name__} is not a complete map")


def dof_names(kind: str, model: Model) -> tuple[str, ...]:
    """Names such as 'tau[elbow]' for all degrees of freedom."""
    return tuple(f"{kind}[{n}]" for n in model.dof_names)


def blocks(value: Rows, dq: Array, dv: Array, du: Array) -> Jacobians:
    """Jacobians batch first from a value (n, N) and blocks by [i][j], each convertible to (n, m, N)."""
    parts = [np.moveaxis(np.asarray(b), -1, 0) for b in (dq, dv, du)]
    return Jacobians(np.ascontiguousarray(np.asarray(value).T), np.concatenate(parts[:2], axis=2), parts[2])
