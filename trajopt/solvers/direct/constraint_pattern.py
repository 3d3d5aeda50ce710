"""Sparsity pattern of a residual's Jacobian, by tracing the residual with CasADi symbols."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface.libraries import remembered
from dynamics_backends.protocol import Array
from trajopt.problem.constraints import Constraint


def jacobian_pattern(constraints: Sequence[Constraint], n: int, m: int) -> Array:
    """Return the mask (ng, n + m) of the Jacobian of all constraints in the tangent vector (n) of a state and m controls.

    The mask holds in every chart.
    """
    masks = [np.zeros((0, n + m), dtype=bool)]
    for c in constraints:
        residual: Any = c.residual
        own = _structure(residual, tuple((key, value.shape[-1]) for key, value in c.parameters.items()))
        k = residual.manifold.ndx
        mask = np.zeros((len(own), n + m), dtype=bool)
        mask[:, :k], mask[:, n : n + residual.nu] = own[:, :k], own[:, k:]
        masks.append(mask)
    return np.concatenate(masks)


@lru_cache(maxsize=256)
def _structure(residual: Any, sizes: tuple[tuple[str, int], ...]) -> Array:
    """Return the mask (nr, ndx + nu) of one residual; full if the residual cannot be traced."""

    def found() -> list[list[bool]]:
        return _traced(residual, sizes).tolist()

    width = residual.manifold.ndx + residual.nu
    return np.array(remembered(found, "pattern", residual, sizes), dtype=bool).reshape(residual.n_out, width)


def _traced(residual: Any, sizes: tuple[tuple[str, int], ...]) -> Array:
    import casadi as ca

    from dynamics_backends.compiled.interface.sources import Symbols, TraceError, symbolic_value

    symbols, manifold = Symbols.of(residual, dict(sizes)), residual.manifold
    flat = manifold.is_flat
    dx = symbols.x if flat else ca.SX.sym("dx", manifold.ndx)
    try:
        x = dx if flat else manifold.integrate(symbols.x, dx)
        value = symbolic_value(residual, x, symbols.u, symbols.t, symbols.p)
    except TraceError:
        return np.ones((residual.n_out, manifold.ndx + residual.nu), dtype=bool)
    sparsity = ca.jacobian(value, ca.vertcat(dx, symbols.u)).sparsity()
    mask = np.zeros(sparsity.shape, dtype=bool)
    mask[sparsity.row(), sparsity.get_col()] = True
    return mask
