"""Backends by name: the one line of a config file that chooses how derivatives are computed."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial
from typing import Any

from dynamics_backends.methods.analytic import Analytic
from dynamics_backends.methods.complex_step import ComplexStep
from dynamics_backends.methods.finite_difference import FiniteDifference
from dynamics_backends.methods.forward_ad import ForwardAD, StructuredAD
from dynamics_backends.protocol import DynamicsBackend, Map

METHODS: dict[str, Callable[..., DynamicsBackend]] = {
    "analytic": Analytic,
    "forward_ad": ForwardAD,
    "structured_ad": StructuredAD,
    "complex_step": ComplexStep,
    "central_difference": partial(FiniteDifference, scheme="central"),
    "forward_difference": partial(FiniteDifference, scheme="forward"),
}
ENGINES = ("numpy",)


def backend_names() -> tuple[str, ...]:
    """The names accepted by :func:`make_backend`."""
    return tuple(METHODS)


def make_backend(map: Map, method: str = "analytic", *, engine: str = "numpy", **options: Any) -> DynamicsBackend:
    """The backend ``method`` for a map; ``options`` go to the method (for example ``step`` of the finite differences).

    Raises ValueError for an unknown name, with the nearest known one; TypeError where the map lacks what the method needs.
    """
    if method not in METHODS:
        raise ValueError(f"unknown backend {method!r}{_hint(method, METHODS)}; known: {', '.join(METHODS)}")
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}{_hint(engine, ENGINES)}; known: {', '.join(ENGINES)}")
    return METHODS[method](map, **options)


def _hint(name: str, known) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
