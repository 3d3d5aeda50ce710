"""Algorithmic differentiation by CasADi: the Jacobian of f(x (+) dx, u, t, p) in (dx, u) at dx = 0, as an expression
graph.

    forward   ndx + nu sweeps, one for each direction        reverse   n_out sweeps, one for each output
    auto      CasADi's choice by colouring of the sparsity pattern

The graph is made once for each set of parameter sizes.  Engine ``numpy``: CasADi's virtual machine runs it, knot by
knot; engine ``compiled``: it is emitted as straight-line C, lanes over knots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import casadi as ca
import numpy as np

from dynamics_backends.compiled.symbolic_map import Symbols, symbolic_value
from dynamics_backends.methods.base import Method
from dynamics_backends.protocol import Array, Batch, Jacobians, Map

Evaluate = Callable[[Sequence[Array]], tuple[Array, Array]]
"""Value (N, n_out) and derivatives (N, n_out, ndx + nu) from arguments (N, n)."""

MODES: dict[str, Callable[[Any, Any], Any]] = {
    "forward": lambda y, z: ca.jtimes(y, z, ca.SX.eye(z.numel())),
    "reverse": lambda y, z: ca.jtimes(y, z, ca.SX.eye(y.numel()), True).T,
    "auto": ca.jacobian,
}


class CasadiAD(Method):
    """CasADi's derivatives of any map; ``mode`` forward, reverse or auto, ``engine`` numpy or compiled.

    Raises TraceError (when first evaluated) where the map's function does not work on symbols.
    """

    name = "casadi_ad"

    def __init__(self, map: Map, *, mode: str = "auto", engine: str = "numpy") -> None:
        super().__init__(map)
        if mode not in MODES:
            raise ValueError(f"mode = {mode!r}; known: {', '.join(MODES)}")
        self.mode = mode
        self.engine = engine
        self._evaluators: dict[tuple[tuple[str, int], ...], Evaluate] = {}

    def _jacobians(self, b: Batch) -> Jacobians:
        sizes = tuple((name, len(rows)) for name, rows in b.p.items())
        if sizes not in self._evaluators:
            self._evaluators[sizes] = self._built(Symbols.of(self.map, dict(sizes)))
        value, both = self._evaluators[sizes]([rows.T for rows in (b.x, b.u, b.t[None], *b.p.values())])
        ndx = self.map.manifold.ndx
        return Jacobians(value, both[:, :, :ndx], both[:, :, ndx:])

    def expressions(self, symbols: Symbols) -> tuple[Any, Any]:
        """Value (n_out) and Jacobian (n_out, ndx + nu) as SX."""
        manifold = self.map.manifold
        dx = ca.SX.sym("dx", manifold.ndx)
        moved = symbolic_value(self.map, manifold.integrate(symbols.x, dx), symbols.u, symbols.t, symbols.p)
        jacobian = MODES[self.mode](moved, ca.vertcat(dx, symbols.u))
        value, slope = ca.cse(ca.substitute([moved, ca.densify(jacobian)], [dx], [ca.SX.zeros(manifold.ndx)]))
        return value, slope

    def _built(self, symbols: Symbols) -> Evaluate:
        value, jacobian = self.expressions(symbols)
        by_rows = ca.vec(jacobian.T)
        return (_compiled if self.engine == "compiled" else _interpreted)(symbols, value, by_rows)


def _interpreted(symbols: Symbols, value: Any, by_rows: Any) -> Evaluate:
    function = ca.Function("derivatives", list(symbols), [value, by_rows])
    m, k = value.numel(), by_rows.numel() // max(value.numel(), 1)

    def evaluate(arguments: Sequence[Array]) -> tuple[Array, Array]:
        n = len(arguments[0])
        if n == 0:
            return np.zeros((0, m)), np.zeros((0, m, k))
        y, J = (r.full().T for r in function.map(n).call([ca.DM(a.T) for a in arguments]))
        return y, J.reshape(n, m, k)

    return evaluate


def _compiled(symbols: Symbols, value: Any, by_rows: Any) -> Evaluate:
    from dynamics_backends.compiled.kernel import CompiledKernel
    from dynamics_backends.compiled.trace import trace_expressions
    from dynamics_backends.compiled.unrolled import straight_kernel

    m, sizes = value.numel(), [s.numel() for s in symbols]
    t = trace_expressions(list(symbols), [value, by_rows])
    source = straight_kernel("map_casadi_ad", t, symbols.names, ["y", "J"], sizes)
    kernel = CompiledKernel(source, None, [(m,), (m, by_rows.numel() // max(m, 1))])

    def evaluate(arguments: Sequence[Array]) -> tuple[Array, Array]:
        y, J = kernel(*arguments)
        return y, J

    return evaluate
