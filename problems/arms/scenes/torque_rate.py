"""Limits on torque rates: the acceleration controls of a step become a state of the next step.

    x = (q, v, b, T):    q+ = q + s v + s^2 a / 2,    v+ = v + s a,    b+ = a,    s = T / N

b is the acceleration of the previous step. Torques at the midpoints of neighboring steps, s apart, are compared. At the first and
last step, the other torque is the one that holds the arm at rest:

    | tau(q, v, a) at s / 2  -  tau(q, v, b) at -s / 2 |  <=  rate s
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Contraction, Matrix, Partials
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.scalar import Rows, Scalar
from trajopt.problem.along_step import STEP_OFFSET, AlongStep
from .joint_torques import Torques


class AccelerationHistory:
    """System whose Euler steps of length 1 / N are those above. names: names of the coordinates; steps: N."""

    second_order = False

    def __init__(self, names: Sequence[str], steps: int) -> None:
        n = self.nu = len(names)
        self.steps, self.place, self.nominal = steps, 3 * n, 1.0
        all_names = (*names, *(f"v[{name}]" for name in names), *(f"last a[{name}]" for name in names), "duration")
        self.manifold = Manifold.vector(3 * n + 1, all_names)
        self.n_out = self.manifold.ndx
        self.output_names = tuple(f"d {name}/dtau" for name in all_names)
        self.control_names = tuple(f"a[{name}]" for name in names)

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        n, T, N = self.nu, x[self.place], float(self.steps)
        moved = [T * (x[n + i] + (0.5 / N) * T * u[i]) for i in range(n)]
        return sm.stack(
            [*moved, *(T * u[i] for i in range(n)), *(N * (u[i] - x[2 * n + i]) for i in range(n)), 0.0 * T]
        )

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Analytic first derivatives."""
        n, T, N, size = self.nu, x[self.place], float(self.steps), self.n_out
        zero = 0.0 * T
        fx, fu = ([[zero] * columns for _ in range(size)] for columns in (size, n))
        for i in range(n):
            fx[i][n + i], fx[i][-1] = T, x[n + i] + T * u[i] / N
            fx[n + i][-1], fx[2 * n + i][2 * n + i] = u[i] + zero, zero - N
            fu[i][i], fu[n + i][i], fu[2 * n + i][i] = (0.5 / N) * T * T, T, zero + N
        return Partials(self(x, u, t, p), [sm.stack(row) for row in fx], [sm.stack(row) for row in fu])

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """Analytic second derivatives, contracted with lam: products of T with v, a and T."""
        n, T, N, size = self.nu, x[self.place], float(self.steps), self.n_out
        zero = 0.0 * T
        xx, ux = ([[zero] * size for _ in range(rows)] for rows in (size, n))
        for i in range(n):
            xx[n + i][-1] = xx[-1][n + i] = lam[i] + zero
            xx[-1][-1] = xx[-1][-1] + lam[i] * u[i] / N
            ux[i][-1] = lam[i] * T / N + lam[n + i]
        none: Matrix = [sm.stack([zero] * n)] * n
        return self.partials(x, u, t, p), Contraction([sm.stack(r) for r in xx], [sm.stack(r) for r in ux], none)


class TorqueRate:
    """Torque rates relative to ``limits`` (nv,). end: compare the last torque with the one that holds the arm at rest."""

    def __init__(
        self, model: Model, limits: Sequence[float], system: AccelerationHistory, *, end: bool = False
    ) -> None:
        self.steps, self.end, self.place = float(system.steps), end, system.place
        self.along = AlongStep(Torques(model, limits), system.manifold, system.control_names, system.place)
        self.manifold, self.n_out, self.output_names = system.manifold, model.nv, model.dof_names
        self.nu = 0 if end else model.nv
        self.control_names = () if end else system.control_names

    def _sides(self, x: Rows, u: Rows) -> tuple[tuple, tuple]:
        """Return the arguments of the torques of this step and of the previous step."""
        n, half = self.n_out, 0.5 / self.steps
        before = (x, [x[2 * n + i] for i in range(n)], 0.0, {STEP_OFFSET: [-half]})
        if self.end:
            return (x, [0.0 * x[0]] * n, 0.0, {STEP_OFFSET: [0.0]}), before
        return (x, u, 0.0, {STEP_OFFSET: [half]}), before

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        after, before = (self.along(*side) for side in self._sides(x, u))
        per = self.steps / x[self.place]
        return sm.stack([per * (after[i] - before[i]) for i in range(self.n_out)])

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Return the partial derivatives: difference of the torque derivatives of both steps, divided by their time distance."""
        n, size = self.n_out, self.manifold.ndx
        after, before = (self.along.partials(*side) for side in self._sides(x, u))
        per = self.steps / x[self.place]
        value = [per * (after.value[i] - before.value[i]) for i in range(n)]
        fx = [[per * (after.fx[i][j] - before.fx[i][j]) for j in range(size)] for i in range(n)]
        for i in range(n):
            for j in range(n):
                fx[i][2 * n + j] = fx[i][2 * n + j] - per * before.fu[i][j]
            fx[i][self.place] = fx[i][self.place] - value[i] / x[self.place]
        fu = [] if self.end else [sm.stack([per * after.fu[i][j] for j in range(n)]) for i in range(n)]
        return Partials(sm.stack(value), [sm.stack(row) for row in fx], fu)
