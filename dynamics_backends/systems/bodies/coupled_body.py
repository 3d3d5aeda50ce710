"""Free rigid bodies with joints that follow others (mimic = "follow").

The independent coordinates q_r determine all others, q = expand(q_r), v = G v_r with constant G; by d'Alembert

    G' M G a_r + G' h(q, v) = G' tau,    a = G a_r.

u (nu, N) are the forces of the independent joints but those of a floating base; damping and springs act in every joint, dry
friction is ignored. With implicit damping
(:class:`~dynamics_backends.protocol.DampsImplicitly`) M becomes M + h D, and damping acts on v + G e.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, Self

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import LieGroup, Manifold, vector_space
from dynamics_backends.protocol import IMPLICIT_STEP, Contraction, Matrix, Partials
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.algorithms.crba import crba
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import rnea_derivatives
from dynamics_backends.rigid_body.derivatives.rnea_second_order import rnea_contracted_hessian
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.state import GROUPS
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.systems.bodies.actuated_body import with_diagonal
from dynamics_backends.systems.bodies.rigid_body_map import columns, second_in_state, transposed


class CoupledBody:
    """System of a robot with mimic joints, in its independent coordinates q_r, with v = G v_r for a constant matrix G.

    damping: False ignores the model's viscous damping. Raises ValueError for a model without coupling.
    """

    second_order = True

    def __init__(self, model: Model, *, damping: bool = True) -> None:
        if model.coupling is None:
            raise ValueError(f"{model.name} has no mimic joints that follow others; use to.FreeBody(model)")
        self.model = model
        self.coupling = model.coupling
        self.damping = np.asarray(model.damping) if damping else np.zeros(model.nv)
        self.independent = [int(d) for d in self.coupling.independent]
        self.column = {d: i for i, d in enumerate(self.independent)}
        names = [model.dof_names[d] for d in self.independent]
        self.manifold = Manifold(self._groups(), [f"q[{n}]" for n in names] + [f"v[{n}]" for n in names])
        self.driven = [i for i, d in enumerate(self.independent) if model.actuated[d]]
        self.actuated = tuple(self.independent[i] for i in self.driven)
        self.control_names = tuple(f"u[{names[i]}]" for i in self.driven)
        self.output_names = tuple(f"v[{n}]" for n in names) + tuple(f"vdot[{n}]" for n in names)
        self.nu, self.n_out = len(self.driven), self.manifold.ndx
        self.nq = len(self.coupling.independent_q)
        self.offsets: int | None = None

    @property
    def damps(self) -> bool:
        """True if any joint is damped."""
        return bool(np.any(self.damping))

    def implicit(self, *, offset: bool) -> Self:
        """This system with its joint damping D implicit over a time step h: inertia G' (M + h D) G, damping torques D (v + G e).

        offset: True to append the offsets e of the velocities of the independent joints to the controls, as the stages of an
        integration scheme need; False for e = 0.
        """
        result, n = copy(self), len(self.independent)
        result.offsets = n if offset else 0
        result.nu = self.nu + result.offsets
        if offset:
            result.control_names = (
                *self.control_names,
                *(f"damped v - {self.manifold.tangent_names[n + i]}" for i in range(n)),
            )
        return result

    def _groups(self) -> list[LieGroup]:
        """Lie groups of the independent joints' coordinates, one for each joint, and the vector space of their velocities."""
        followers = set(self.coupling.followers.tolist())
        independent = [b for b in range(self.model.nb) if self.model.dofs(b)[0] not in followers]
        groups = [GROUPS.get(self.model.joint_types[b], vector_space(1)) for b in independent]
        return [*groups, vector_space(len(self.independent))]

    def expand(self, x: Rows) -> tuple[Rows, Rows]:
        """Full q (nq, N) and v (nv, N) from the state rows."""
        c = self.coupling
        q: list[Scalar] = [None] * c.nq
        for i, entry in enumerate(c.independent_q):
            q[entry] = x[i]
        for d in c.followers:
            leader = q[c.coordinate[c.source[d]]]
            q[c.coordinate[d]] = float(c.multiplier[d]) * leader + float(c.offset[d])
        return sm.stack(q), self._spread([x[self.nq + i] for i in range(len(self.independent))])

    def _spread(self, reduced: Rows) -> Rows:
        """Product G v_r (nv, N): every DoF is its multiplier times the value of its independent DoF."""
        c = self.coupling
        return sm.stack([reduced[self.column[int(s)]] * float(m) for s, m in zip(c.source, c.multiplier, strict=True)])

    def _gathered(self, full: Rows) -> list[Scalar]:
        """Product G' f: for each independent DoF, the sum of the entries of f that follow it, times their multipliers."""
        c = self.coupling
        total: list[Scalar] = [0.0 * full[0] for _ in self.independent]
        for d, (s, m) in enumerate(zip(c.source, c.multiplier, strict=True)):
            total[self.column[int(s)]] = total[self.column[int(s)]] + full[d] * float(m)
        return total

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows of xdot = (v_r, a_r) in the independent coordinates."""
        v_reduced = x[self.nq :]
        return sm.concatenate([v_reduced, sm.stack(self._accelerations(x, u, p))])

    def _accelerations(self, x: Rows, u: Rows, p: Mapping[str, Rows]) -> list[Scalar]:
        """Accelerations a_r of the independent DoFs from the reduced equation of motion."""
        q, v = self.expand(x)
        bias, damped = rnea(self.model, q, v, 0.0 * v), self._damped_velocity(v, u)
        resisting = sm.stack(
            [bias[d] + float(self.damping[d]) * damped[d] + self._pull(d, q) for d in range(self.model.nv)]
        )
        force = [-h for h in self._gathered(resisting)]
        for i, d in enumerate(self.driven):
            force[d] = force[d] + u[i]
        return ltl.solve_dense(self._reduced(crba(self.model, q), self._implicit_damping(p)), force)

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Value and partial derivatives of xdot: those of inverse dynamics (IDSVA), reduced by G, times -(G' M G)^-1."""
        return self._first(x, u, p)[0]

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """Value and first derivatives, and the second derivatives of lam' xdot in closed form.

        Those of inverse dynamics with the weights G w, where G' M G w = -lam, reduced by G; see
        :mod:`~dynamics_backends.systems.constraints.constrained_derivatives`. Damping and springs are linear.
        """
        n = len(self.independent)
        first, M = self._first(x, u, p)
        q, v = self.expand(x)
        mu = self._spread(sm.stack(ltl.solve_dense(M, [-lam[n + i] for i in range(n)])))
        full = rnea_contracted_hessian(self.model, q, v, self._spread(first.value[n:]), mu)
        qq, qv, vv, qa = (self._reduced(block, np.zeros(self.model.nv)) for block in full)
        rates = [sm.concatenate([fx, fu]) for fx, fu in zip(first.fx[n:], first.fu[n:], strict=True)]
        through = [sum((rates[k] * row[k] for k in range(1, n)), rates[0] * row[0]) for row in qa]
        back = transposed([row[:n] for row in through])
        qq = [a + row[:n] + c for a, row, c in zip(qq, through, back, strict=True)]
        qv = [a + row[n : 2 * n] for a, row in zip(qv, through, strict=True)]
        return first, second_in_state(u, qq, qv, vv, [row[2 * n :] for row in through])

    def _first(self, x: Rows, u: Rows, p: Mapping[str, Rows]) -> tuple[Partials, Matrix]:
        """Value and partial derivatives of xdot, and the rows of G' M G."""
        n = len(self.independent)
        q, v = self.expand(x)
        a = sm.stack(self._accelerations(x, u, p))
        d = rnea_derivatives(self.model, q, v, self._spread(a))
        dq, dv = self._reduced(d.dq, self.model.stiffness), self._reduced(d.dv, self.damping)
        M = self._reduced(d.M, self._implicit_damping(p))
        unit = [row + 0.0 * a for row in sm.identity_rows(n, a)]
        right = [sm.concatenate([-dq[i], -dv[i], unit[i]]) for i in range(n)]
        solved = ltl.solve_dense(M, right)
        fx = [*(row + 0.0 * x[0] for row in sm.identity_rows(2 * n, a)[n:]), *(row[: 2 * n] for row in solved)]
        inverse = [row[2 * n :] for row in solved]
        own = columns(inverse, self.driven)
        fu = [*[0.0 * u] * n, *map(self._by_control, own, inverse)]
        return Partials(sm.concatenate([x[self.nq :], a]), fx, fu), M

    def _damped_velocity(self, v: Rows, u: Rows) -> Rows:
        """Velocity v + G e (nv, N) that damping acts on; v without offsets e."""
        return v + self._spread([u[len(self.driven) + i] for i in range(self.offsets)]) if self.offsets else v

    def _pull(self, d: int, q: Rows) -> Scalar:
        """Spring term K (q - q_s) of a degree of freedom on the side of the bias forces; 0.0 without a spring."""
        if not self.model.stiffness[d]:
            return 0.0
        return float(self.model.stiffness[d]) * (q[self.coupling.coordinate[d]] - float(self.model.spring_reference[d]))

    def _implicit_damping(self, p: Mapping[str, Rows]) -> list[Scalar]:
        """Entries h D (nv) that implicit damping adds to the diagonal of the mass matrix; zeros if damping is explicit."""
        h = 0.0 if self.offsets is None else p[IMPLICIT_STEP][0]
        return [h * float(D) for D in self.damping]

    def _by_control(self, own: Rows, inverse: Rows) -> Rows:
        """Row of the derivatives in u and the offsets e; ``own``: its part in u, returned unchanged without offsets.

        inverse: the same row of (G' (M + h D) G)^-1; e acts by -G' D G.
        """
        if not self.offsets:
            return own
        damping = self._gathered(self.damping * self.coupling.multiplier)
        return sm.concatenate([own, sm.stack([-float(D) * inverse[j] for j, D in enumerate(damping)])])

    def _reduced(self, M: Matrix, diagonal: Any) -> list[Rows]:
        """Rows of G' (M + diag(diagonal)) G."""
        by_column = self._gathered(with_diagonal(M, diagonal))
        return [sm.stack(self._gathered(row)) for row in by_column]
