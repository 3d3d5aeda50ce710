"""Algorithmic differentiation by CasADi: the Jacobian of f(x (+) dx, u, t, p) in (dx, u) at dx = 0, as an expression graph.

    forward   ndx + nu sweeps, one for each direction        reverse   n_out sweeps, one for each output
    auto      CasADi's choice by coloring of the sparsity pattern

Second derivatives, contracted with lam, are the Jacobian by that mode of the gradient of lam' f, which is a reverse sweep: forward
over reverse, reverse over reverse, or by coloring of the symmetric pattern.

A graph is generated once for each set of parameter sizes and order, and CasADi's virtual machine evaluates it knot by knot; on the
engine "compiled", a tape evaluates it for blocks of knots.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from dynamics_backends.methods.base import SecondOrderMethod
from dynamics_backends.methods.finite_difference import CentralDifference
from dynamics_backends.methods.symbolic_map import Symbols, TraceError, description, symbolic_value
from dynamics_backends.protocol import Array, Batch, Hessians, Jacobians, Map
from dynamics_backends.symbols import Evaluate, ca, interpreted

LARGE_GRAPH = 250_000
"""Estimated number of operations above which CasADi takes long to generate a graph, so that a warning is logged."""
_LOG = logging.getLogger(__name__)

MODES: dict[str, Callable[[Any, Any], Any]] = {
    "forward": lambda y, z: ca.jtimes(y, z, ca.SX.eye(z.numel())),
    "reverse": lambda y, z: ca.jtimes(y, z, ca.SX.eye(y.numel()), True).T,
    "auto": ca.jacobian,
}


class CasadiAD(SecondOrderMethod):
    """CasADi's derivatives of any map, evaluated by its virtual machine; ``mode`` forward, reverse or auto.

    A map whose function does not work on symbols is differentiated by central differences, which is logged once. Raises ValueError
    for another mode.
    """

    name = "casadi_ad"

    def __init__(self, map: Map, *, mode: str = "auto") -> None:
        super().__init__(map)
        if mode not in MODES:
            raise ValueError(f"mode = {mode!r}; known: {', '.join(MODES)}")
        self.mode = mode
        self._evaluators: dict[tuple[tuple[tuple[str, int], ...], bool], Evaluate | CentralDifference] = {}

    def __getstate__(self) -> dict[str, Any]:
        """State for pickling, without cached evaluators."""
        return self.__dict__ | {"_evaluators": {}}  # they belong to a process

    @property
    def settings(self) -> tuple[str]:
        """Settings that the derivatives depend on: the mode."""
        return (self.mode,)

    def _contraction(self, b: Batch, lam: Array) -> tuple[Jacobians, Hessians]:
        """First derivatives, and the second derivatives of lam' f for lam (N, n_out)."""
        evaluate = self._evaluator(b, second=True)
        if isinstance(evaluate, CentralDifference):
            return evaluate._contraction(b, lam)
        value, both, H = evaluate([*b.arrays(), lam])
        n = self.map.manifold.ndx
        return self._split(value, both), Hessians(H[:, :n, :n], H[:, n:, :n], H[:, n:, n:])

    def _jacobians(self, b: Batch) -> Jacobians:
        """Value and partial derivatives by CasADi; by central differences if the map cannot be traced."""
        evaluate = self._evaluator(b, second=False)
        if isinstance(evaluate, CentralDifference):
            return evaluate._jacobians(b)
        return self._split(*evaluate(b.arrays()))

    def _split(self, value: Array, both: Array) -> Jacobians:
        """Jacobians from the value (N, n_out, 1) and the derivatives (N, n_out, ndx + nu) in dx and then u."""
        ndx = self.map.manifold.ndx
        return Jacobians(value[:, :, 0], both[:, :, :ndx], both[:, :, ndx:])

    def _evaluator(self, b: Batch, second: bool) -> Evaluate | CentralDifference:
        """Cached evaluator for these parameter sizes; central differences, with a logged warning, if the map cannot be traced."""
        sizes = tuple((name, len(rows)) for name, rows in b.p.items())
        if (sizes, second) not in self._evaluators:
            symbols = Symbols.of(self.map, dict(sizes))
            found: Evaluate | CentralDifference
            try:
                found = self._built_second(symbols) if second else self._built(symbols)
            except TraceError as reason:
                if not reason.logged:
                    _LOG.warning("central differences replace casadi_ad: %s", reason)
                found = CentralDifference(self.map)
            self._evaluators[sizes, second] = found
        return self._evaluators[sizes, second]

    def expressions(self, symbols: Symbols) -> tuple[Any, Any]:
        """Value (n_out) and Jacobian (n_out, ndx + nu) in (dx, u) at dx = 0 as SX, by AD in ``mode``.

        Raises TraceError if the map f cannot be evaluated with symbols.
        """
        moved, dx = self._moved(symbols)
        return self._at_zero(dx, moved, MODES[self.mode](moved, ca.vertcat(dx, symbols.u)))

    def second_expressions(self, symbols: Symbols, lam: Any) -> tuple[Any, Any, Any]:
        """Value, Jacobian and the Hessian (ndx + nu, ndx + nu) of lam' f in (dx, u) at dx = 0 as SX, lam (n_out) symbols.

        Raises TraceError if the map f cannot be evaluated with symbols.
        """
        moved, dx = self._moved(symbols)
        z = ca.vertcat(dx, symbols.u)
        gradient = ca.gradient(ca.dot(lam, moved), z)
        hessian = ca.hessian(ca.dot(lam, moved), z)[0] if self.mode == "auto" else MODES[self.mode](gradient, z)
        return self._at_zero(dx, moved, MODES[self.mode](moved, z), hessian)

    def _moved(self, symbols: Symbols) -> tuple[Any, Any]:
        """Expression f(x (+) dx, u, t, p), and dx."""
        manifold = self.map.manifold
        dx = ca.SX.sym("dx", manifold.ndx)
        return symbolic_value(self.map, manifold.integrate(symbols.x, dx), symbols.u, symbols.t, symbols.p), dx

    @staticmethod
    def _at_zero(dx: Any, *expressions: Any) -> Any:
        """Dense expressions at dx = 0, with common subexpressions shared."""
        dense = [ca.densify(e) for e in expressions]
        return ca.cse(ca.substitute(dense, [dx], [ca.SX.zeros(dx.numel())]))

    def _built(self, symbols: Symbols) -> Evaluate:
        """Evaluator of value and Jacobian. Raises TraceError if the map cannot be evaluated with symbols."""
        return interpreted("map_casadi_ad", list(symbols), self.expressions(symbols))

    def _built_second(self, symbols: Symbols) -> Evaluate:
        """Evaluator of value, Jacobian and Hessian of lam' f; logs a warning before a large graph.

        Raises TraceError if the map cannot be evaluated with symbols.
        """
        lam = ca.SX.sym("lam", self.map.n_out)
        self._announce(symbols)
        return interpreted("map_casadi_ad_second", [*symbols, lam], self.second_expressions(symbols, lam))

    def _announce(self, symbols: Symbols) -> None:
        """Log a warning if the value's operations times the directions exceed LARGE_GRAPH, which can take minutes."""
        moved, dx = self._moved(symbols)
        value = ca.Function("value", [*symbols, dx], [moved]).n_instructions()
        size = value * (dx.numel() + self.map.nu)
        if size > LARGE_GRAPH:
            _LOG.warning(
                "second derivatives of %s have about %d operations, which CasADi needs up to minutes to generate; "
                "backend = 'analytic' has them in closed form",
                description(self.map),
                size,
            )
