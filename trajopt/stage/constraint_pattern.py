"""Which derivatives of a residual can differ from zero: the structure of its Jacobian, from its source on symbols."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dynamics_backends.protocol import Array
from trajopt.problem.constraints import Constraint


def jacobian_pattern(constraints: Sequence[Constraint], n: int, m: int) -> Array:
    """A mask (ng, n + m) of the rows of all constraints, in a state of n numbers and m controls."""
    masks = [np.zeros((0, n + m), dtype=bool)]
    for c in constraints:
        residual: Any = c.residual
        own = _structure(residual, tuple((key, value.shape[-1]) for key, value in c.parameters.items()))
        k = residual.manifold.nx
        mask = np.zeros((len(own), n + m), dtype=bool)
        mask[:, :k], mask[:, n : n + residual.nu] = own[:, :k], own[:, k:]
        masks.append(mask)
    return np.concatenate(masks)


@lru_cache(maxsize=256)
def _structure(residual: Any, sizes: tuple[tuple[str, int], ...]) -> Array:
    """The mask (nr, nx + nu) of one residual; full where its source does not take symbols."""
    import casadi as ca

    from dynamics_backends.compiled.interface.sources import Symbols, TraceError, symbolic_value

    symbols = Symbols.of(residual, dict(sizes))
    try:
        value = symbolic_value(residual, symbols.x, symbols.u, symbols.t, symbols.p)
    except TraceError:
        return np.ones((residual.n_out, residual.manifold.nx + residual.nu), dtype=bool)
    sparsity = ca.jacobian(value, ca.vertcat(symbols.x, symbols.u)).sparsity()
    mask = np.zeros(sparsity.shape, dtype=bool)
    mask[sparsity.row(), sparsity.get_col()] = True
    return mask
