"""Second derivatives of dynamics by all methods, and their errors (Singh, Russell, Wensing 2023, sec. VI-C).

Methods: closed forms, the chain rule in hyper-dual numbers, central differences of values (FD-1) and of first derivatives (FD-2).
The reference is bicomplex numbers. Relative errors use entries above 1e-12 of the largest.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.algorithms.rnea import rnea
from dynamics_backends.rigid_body.derivatives.fd_derivatives import fd_derivatives
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import rnea_derivatives
from dynamics_backends.rigid_body.model.model import Model
from experiments.analysis.timing import samples
from experiments.baselines import second_order_references as references
from experiments.baselines.fd_tensors import fd_tensors
from experiments.baselines.rnea_tensors import rnea_tensors

LARGEST_CHAIN_RULE = 15
METRICS = ("MAE", "RMSAE", "MRE", "RMSRE")
"""Largest and root-mean-square absolute error, largest and root-mean-square relative error."""


def measures(actual: references.SecondDerivatives, expected: references.SecondDerivatives) -> dict[str, float]:
    """Compute METRICS over all entries of all tensors."""
    a, b = (np.concatenate([np.ravel(x) for x in tensors]) for tensors in (actual, expected))
    absolute = np.abs(a - b)
    some = np.abs(b) > 1e-12 * np.abs(b).max()
    relative = absolute[some] / np.abs(b[some])
    values = [f(e) for e in (absolute, relative) for f in (np.max, lambda e: np.sqrt(np.mean(e**2)))]
    return dict(zip(METRICS, map(float, values), strict=True))


def tensors(model: Model) -> Iterator[tuple[str, str, references.SecondDerivatives, references.SecondDerivatives]]:
    """Yield (function, method, tensors, reference tensors by bicomplex numbers)."""
    q, v, x = (rows.T for rows in samples(model, 1))
    point = q, v, x
    for kind, value, first, closed in (
        ("ID", rnea, rnea_derivatives, _inverse),
        ("FD", aba, fd_derivatives, _forward),
    ):
        f = partial(value, model)
        expected = references.bicomplex(model, f, *point)
        yield kind, "closed form", closed(model, point), expected
        if model.nv <= LARGEST_CHAIN_RULE:
            yield kind, "chain rule", references.chain_rule(model, f, *point), expected
        yield kind, "FD-1", references.differences_of_values(model, f, *point), expected
        slopes = partial(_slopes, first, model)
        yield kind, "FD-2", references.differences_of_first_order(model, slopes, *point), expected


def _inverse(model: Model, point: tuple[Any, ...]) -> references.SecondDerivatives:
    qq, vv, qv, M_q = rnea_tensors(model, *point)
    return references.SecondDerivatives(qq, vv, qv, np.swapaxes(M_q, 1, 2))


def _forward(model: Model, point: tuple[Any, ...]) -> references.SecondDerivatives:
    return references.SecondDerivatives(*map(np.asarray, fd_tensors(model, *point)[4:]))


def _slopes(first: Any, model: Model, *point: Any) -> Any:
    return first(model, *point)[1:4]
