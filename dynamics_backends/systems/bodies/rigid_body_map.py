"""What the maps of a robot have in common: state (q, v), names, and its split into rows."""

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


class Driven:
    """What a driver evaluates where it is costly; the compiled engine has one of its own, and takes other maps as a whole."""

    driver: Driver = staticmethod(run)

    def with_driver(self, driver: Driver) -> Self:
        """See :class:`~dynamics_backends.protocol.HasDriver`."""
        other = copy(self)
        other.driver = driver
        return other


class TakenWhole:
    """What the compiled engine takes as a whole; until that is compiled, a driver may evaluate what is costly in it."""

    driver: Driver = staticmethod(run)

    def until_compiled(self, driver: Driver) -> Self:
        """See :class:`~dynamics_backends.protocol.HasRecursions`."""
        other = copy(self)
        other.driver = driver
        return other


class RigidBodyMap:
    """A map of the state (q, v) of a model and a control; subclasses say which."""

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
        """q (nq, N) and v (nv, N)."""
        return x[: self.model.nq], x[self.model.nq :]

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows (n_out, N)."""
        raise TypeError(f"{type(self).__name__} is not a complete map")


class MechanicalSystem(RigidBodyMap):
    """A system xdot = (v, a(q, v, u)) of a robot; subclasses find a and the blocks of its derivatives."""

    second_order = True

    def __init__(self, model: Model, control_names: tuple[str, ...]) -> None:
        super().__init__(model, control_names, dof_names("v", model) + dof_names("vdot", model))

    def first(self, v: Rows, u: Rows, a: Rows, dq: Matrix, dv: Matrix, du: Matrix) -> Partials:
        """The derivatives of xdot, from those of a (nv, N) in q, v and u, each a list of nv rows."""
        n = self.model.nv
        below = in_state(a, dq, dv, du)
        return Partials(
            sm.concatenate([v, a]), [*sm.identity_rows(2 * n, v)[n:], *below.fx], [*[0.0 * u] * n, *below.fu]
        )

    def second(self, u: Rows, qq: Matrix, qv: Matrix, vv: Matrix, qu: Matrix) -> Contraction:
        """The second derivatives of lam' xdot, from the blocks of those of lam' a, each a list of rows.

        qq may hold Lie derivatives, of which the symmetric part counts; a is affine in u.
        """
        n = self.model.nv
        symmetric = [sm.stack([0.5 * (qq[i][j] + qq[j][i]) for j in range(n)]) for i in range(n)]
        above = [sm.concatenate([a, b]) for a, b in zip(symmetric, qv, strict=True)]
        below = [sm.concatenate([a, b]) for a, b in zip(transposed(qv), vv, strict=True)]
        ux = [sm.concatenate([row, 0.0 * row]) for row in transposed(qu)]
        return Contraction([*above, *below], ux, [0.0 * u] * self.nu)


def transposed(M: Matrix) -> list[Rows]:
    """M' by its rows."""
    return [sm.stack([row[j] for row in M]) for j in range(len(M[0]) if isinstance(M[0], list) else M[0].shape[0])]


def dof_names(kind: str, model: Model) -> tuple[str, ...]:
    """Names such as 'tau[elbow]' for all degrees of freedom."""
    return tuple(f"{kind}[{n}]" for n in model.dof_names)


def in_state(value: Rows, dq: Matrix, dv: Matrix, du: Matrix) -> Partials:
    """Partial derivatives from blocks in q, v and u."""
    return Partials(value, [sm.concatenate([a, b]) for a, b in zip(dq, dv, strict=True)], du)


def columns(M: Matrix, chosen: Sequence[int]) -> list[Rows]:
    """The chosen columns of a matrix."""
    return [row[list(chosen)] for row in M]
