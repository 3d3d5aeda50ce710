"""Factorizations by LAPACK, imported lazily, and products without BLAS threads.

Importing scipy.linalg takes longer than importing this package.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from dynamics_backends.protocol import Array


@lru_cache(maxsize=1)
def lapack() -> Any:
    """Return SciPy's LAPACK module, cached; call it before a solve to keep its import out of the solve time.

    Loads only the extension module of scipy.linalg with LAPACK, or scipy.linalg itself if the extension is not found.
    """
    package = find_spec("scipy.linalg")
    result = PathFinder.find_spec("_flapack", package.submodule_search_locations) if package is not None else None
    if result is None or result.loader is None:
        from scipy.linalg import lapack as whole

        return whole
    module = module_from_spec(result)
    result.loader.exec_module(module)
    return module


def cholesky(M: Array) -> tuple[Array, int]:
    """Return the Cholesky factor L (n, n) of M = L L', zero above the diagonal, from the lower half of M, and LAPACK's info.

    info is 0, or the order of the first minor that is not positive; L is then incomplete.
    """
    return lapack().dpotrf(M, lower=1, clean=1)


def cholesky_solve(L: Array, b: Array) -> Array:
    """Return the solution y of M y = b for b (n,) or (n, k), from the Cholesky factor L of M = L L'."""
    return lapack().dpotrs(L, b, lower=1)[0]


def symmetric_eigen(M: Array) -> tuple[Array, Array]:
    """Return the eigenvalues (n,) and eigenvectors (columns, (n, n)) of a symmetric M (n, n). Raises LinAlgError if there are none.

    By the QR iteration (dsyev), which starts no BLAS threads: with those of np.linalg.eigh (dsyevd), 26 small matrices took up to
    1 s while other programs used the processors.
    """
    values, vectors, info = lapack().dsyev(M)
    if info:
        raise LinAlgError("the eigenvalues of a matrix did not converge")
    return values, vectors


def inner_product(a: Array, b: Array) -> float:
    """Return a'b of two vectors (n,) without BLAS, whose threads took 17 ms for n = 16,000 while other programs ran.

    >>> inner_product(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    11.0
    """
    return float(np.einsum("i,i->", a, b))
