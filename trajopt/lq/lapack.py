"""LAPACK's Cholesky factorization, loaded late and alone: scipy.linalg takes longer to import than all of this package."""

from __future__ import annotations

from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

from dynamics_backends.protocol import Array


@lru_cache(maxsize=1)
def lapack() -> Any:
    """SciPy's module; asked for ahead of a solve, so that loading it takes no time of the solve.

    Of scipy.linalg only the extension that holds LAPACK is loaded, under a name of its own; all of it where that is not found.
    """
    package = find_spec("scipy.linalg")
    found = PathFinder.find_spec("_flapack", package.submodule_search_locations) if package is not None else None
    if found is None or found.loader is None:
        from scipy.linalg import lapack as whole

        return whole
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


def cholesky(M: Array) -> tuple[Array, int]:
    """The factor L (n, n) of M = L L' from the lower half of M, zero above the diagonal; 0, or the order of the first minor
    that is not positive.
    """
    return lapack().dpotrf(M, lower=1, clean=1)


def cholesky_solve(L: Array, b: Array) -> Array:
    """M^-1 b for b (n,) or (n, k)."""
    return lapack().dpotrs(L, b, lower=1)[0]
