"""Base classes of maps of a robot: state (q, v), names, and splitting of the state into rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Self

from dynamics_backends import scalar as sm
from dynamics_backends.protocol import Contraction, Matrix, Partials
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.state import state_manifold
from dynamics_backends.rigid_body.passes.drivers import Driver, run
from dynamics_backends.scalar import Rows, Scalar


class DriverMixin:
    """Mixin for maps with costly recursions that a driver evaluates; that of the package's library runs them as loops in C."""

    driver: Driver = staticmethod(run)

    def with_driver(self, driver: Driver) -> Self:
        """See :class:`~dynamics_backends.protocol.HasDriver`."""
        other = copy(self)
        other.driver = driver
        return other


class WholeMap:
    """Mixin for maps that are traced as a whole; a driver may evaluate their recursions, or make them calls of kernels."""

    driver: Driver = staticmethod(run)

    def with_recursions(self, driver: Driver) -> Self:
        """See :class:`~dynamics_backends.protocol.HasRecursions`."""
        other = copy(self)
        other.driver = driver
        return other


class RigidBodyMap:
    """Base class of maps of a model's state (q, v) and a control."""

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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model.name!r})"

    def split(self, x: Rows) -> tuple[Rows, Rows]:
        """Configuration q (nq, N) and velocity v (nv, N) of a state."""
        return x[: self.model.nq], x[self.model.nq :]

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows (n_out, N) of the map's value."""
        raise TypeError(f"{type(self).__name__} is not a complete map")


class MechanicalSystem(RigidBodyMap):
    """System xdot = (v, a(q, v, u)) of a robot; subclasses compute a and the blocks of its derivatives."""

    second_order = True

    def __init__(self, model: Model, control_names: tuple[str, ...]) -> None:
        super().__init__(model, control_names, dof_names("v", model) + dof_names("vdot", model))

    def first(self, v: Rows, u: Rows, a: Rows, dq: Matrix, dv: Matrix, du: Matrix) -> Partials:
        """Derivatives of xdot from those of a (nv, N) in q, v and u, each a list of nv rows."""
        n = self.model.nv
        below = in_state(a, dq, dv, du)
        return Partials(
            sm.concatenate([v, a]), [*sm.identity_rows(2 * n, v)[n:], *below.fx], [*[0.0 * u] * n, *below.fu]
        )

    def second(self, u: Rows, qq: Matrix, qv: Matrix, vv: Matrix, qu: Matrix) -> Contraction:
        """Second derivatives of lam' xdot from the blocks of those of lam' a, each a list of rows.

        qq may hold Lie derivatives, whose symmetric part is used; a is affine in u.
        """
        n = self.model.nv
        symmetric = [sm.stack([0.5 * (qq[i][j] + qq[j][i]) for j in range(n)]) for i in range(n)]
        above = [sm.concatenate([a, b]) for a, b in zip(symmetric, qv, strict=True)]
        below = [sm.concatenate([a, b]) for a, b in zip(transposed(qv), vv, strict=True)]
        ux = [sm.concatenate([row, 0.0 * row]) for row in transposed(qu)]
        return Contraction([*above, *below], ux, [0.0 * u] * self.nu)


def transposed(M: Matrix) -> list[Rows]:
    """Rows of M'."""
    return [sm.stack([row[j] for row in M]) for j in range(len(M[0]) if isinstance(M[0], list) else M[0].shape[0])]


def dof_names(kind: str, model: Model) -> tuple[str, ...]:
    """Names such as 'tau[elbow]' for all degrees of freedom."""
    return tuple(f"{kind}[{n}]" for n in model.dof_names)


def in_state(value: Rows, dq: Matrix, dv: Matrix, du: Matrix) -> Partials:
    """Partial derivatives from blocks in q, v and u."""
    return Partials(value, [sm.concatenate([a, b]) for a, b in zip(dq, dv, strict=True)], du)


def columns(M: Matrix, selected: Sequence[int]) -> list[Rows]:
    """Selected columns of a matrix."""
    return [row[list(selected)] for row in M]
