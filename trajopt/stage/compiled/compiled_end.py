"""Final knot of a problem in the compiled library of a phase, which contains its terms and constraints."""

from __future__ import annotations

import ctypes

import numpy as np

from dynamics_backends.compiled.runtime.memory import address
from dynamics_backends.protocol import Array, Hessians
from trajopt.stage.compiled.library import EndData, EndFirstData, Library
from trajopt.stage.numpy_stages import NumpyStages
from trajopt.stage.source.constraint_source import constraint_theta
from trajopt.stage.source.term_source import TermShape, theta_of
from trajopt.stage.stages import Knots, StageDerivatives, StageValues, Trials, workspace_for


def shapes_of(plain: NumpyStages) -> tuple[list[TermShape], list[TermShape]]:
    """Return the :class:`TermShape` of each cost term and of each constraint of a stage, as two lists."""
    return [*map(TermShape.of, plain.terms)], [*map(TermShape.of, plain.constraints)]


def _end_values(plain: NumpyStages) -> tuple[Array, ...]:
    """Return the values of a final knot: its time t (1,), and rows (1, size) of concatenated numbers.

    These are the weights and parameters of the cost terms, and the parameters of the constraints.
    """
    return plain.t, theta_of(plain.terms, 1), constraint_theta(plain.constraints, 1)


class CompiledEnd:
    """Compiled evaluation of the final knot, in the library of a phase. plain: NumPy stages of the final knot."""

    compiled = True

    def __init__(self, library: Library, plain: NumpyStages) -> None:
        self.library, self.plain, self._n = library, plain, plain.manifold.ndx
        self._values = [np.array(v) for v in _end_values(plain)]
        self._structure = shapes_of(plain)
        self.data = EndData(library.structure, *map(address, self._values))
        self._ng = sum(c.residual.n_out for c in plain.constraints)

    def matches(self, plain: NumpyStages) -> bool:
        """True if terms and constraints of the final knot ``plain`` have the same shapes (:class:`TermShape`)."""
        return self._structure == shapes_of(plain)

    def load_values(self, plain: NumpyStages) -> None:
        """Load time, weights and parameters of another final knot of the same structure, in place.

        ``plain`` replaces the NumPy stages.
        """
        self.plain = plain
        for own, values in zip(self._values, _end_values(plain), strict=True):
            own[:] = values

    def values(self, at: Knots) -> StageValues:
        """Return cost and constraints at the final state x (1, nx); next states and defects have no columns.

        u and nodes are not read.
        """
        x, cost, g = np.ascontiguousarray(at.x), np.empty(1), np.empty((1, self._ng))
        self._values_of(x, 0, cost, g)
        return StageValues(np.zeros((1, 0)), np.zeros((1, 0)), cost, g)

    def _values_of(self, x: Array, stride: int, cost: Array, g: Array | None) -> None:
        """Write the costs of len(cost) final states to ``cost``, and their constraints to ``g`` unless it is None.

        stride: offset between successive states in memory, in doubles; x begins with the first.
        """
        to = (address(cost), None if g is None else address(g), address(self.library.workspaces[0]))
        self.library.end_values(ctypes.byref(self.data), address(x), stride, len(cost), *to)

    def first(self, at: Knots, *, quadratic: bool = True, out: StageDerivatives | None = None) -> StageDerivatives:
        """Return cost and constraints with their derivatives in the final state, and Q of the cost, in ``out`` if given.

        Q is always written, also without ``quadratic``, so ``out`` needs memory for it. u and nodes are not read.
        """
        x, result = np.ascontiguousarray(at.x), out or workspace_for(1, (0, self._n, 0, 0, self._ng))
        arrays = (result.values.cost, result.values.g, result.lx, result.gx, result.Q)
        results = EndFirstData(*map(address, arrays))
        self.library.end_first(
            ctypes.byref(self.data), address(x), ctypes.byref(results), address(self.library.workspaces[0])
        )
        return result

    def second(
        self, at: Knots, sigma: float, lam: Array | None = None, y: Array | None = None, out: Hessians | None = None
    ) -> Hessians:
        """Return the Hessian blocks of sigma l + y'g in the final state: xx (1, n, n), and empty ux, uu; y: None omits its part.

        If the library has no second derivatives: xx = sigma Q if y is None and the Hessian is Gauss-Newton, else computed in
        NumPy. u, nodes and lam do not matter; ``out`` is not written.
        """
        if not self.library.shape.second:
            if y is not None or self.plain.hessian == "exact":
                return self.plain.second(at, sigma, lam, y)
            result = self.first(at)
            return Hessians(sigma * result.Q, result.S, result.R)
        x, n, xx = np.ascontiguousarray(at.x), self._n, np.empty((1, self._n, self._n))
        y = None if y is None else np.ascontiguousarray(y, float)
        to = (None if y is None else address(y), address(xx), address(self.library.workspaces[0]))
        self.library.end_second(ctypes.byref(self.data), address(x), sigma, *to)
        return Hessians(xx, np.zeros((1, 0, n)), np.zeros((1, 0, 0)))

    def finer(self, pieces: int) -> CompiledEnd:
        """Return these stages unchanged; the final knot has no time step."""
        return self

    def shortened(self, share: float) -> CompiledEnd:
        """Return these stages unchanged; the final knot has no time step."""
        return self

    def rollout(self, trials: Trials) -> Array:
        """Return the costs (L,) of the final states of ``trials``; writes nothing."""
        cost, X = np.empty(len(trials.X)), trials.X
        self._values_of(X[0, -1:], X.shape[1] * X.shape[2], cost, None)
        return cost
