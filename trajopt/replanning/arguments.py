"""Conversion of the numbers that users pass to replanning loops; errors name the argument and what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynamics_backends.protocol import Array


def seconds(key: str, value: Any) -> float:
    """Time [s] as a float. Raises ValueError, which names ``key``, unless it is one finite number."""
    return _number(key, value, "a finite number of seconds")


def positive_seconds(key: str, value: Any) -> float:
    """Duration [s] as a float. Raises ValueError, which names ``key``, unless it is one positive, finite number."""
    return _number(key, value, "a positive number of seconds", above=0.0)


def delay_seconds(key: str, value: Any) -> float:
    """Duration [s] as a float. Raises ValueError, which names ``key``, unless it is one finite number of at least 0."""
    return _number(key, value, "a number of seconds of at least 0", least=0.0)


def _number(key: str, value: Any, expected: str, *, above: float = -np.inf, least: float = -np.inf) -> float:
    """Value as a float. Raises ValueError unless it is one finite number above ``above`` and of at least ``least``."""
    numbers = real_numbers(value)
    if (
        numbers is None
        or numbers.size != 1
        or not (np.isfinite(numbers) & (numbers > above) & (numbers >= least)).all()
    ):
        raise ValueError(f"{key} = {value!r}; expected {expected}")
    return float(numbers.item())


def vector(key: str, value: Any, shape: tuple[int, ...], name: str) -> Array:
    """Array of floats of a shape. Raises ValueError, which names ``key`` and the shape ``name``, for another one or no numbers."""
    numbers = real_numbers(value)
    if numbers is None or numbers.shape != shape:
        found = f"= {value!r}" if numbers is None else f"has shape {numbers.shape}"
        raise ValueError(f"{key} {found}; expected {name} = {shape} numbers")
    return numbers


def real_numbers(value: Any) -> Array | None:
    """Value as an array of floats, NaN for masked entries; None for a ragged list, and for entries that are not real numbers."""
    try:
        values = np.asarray(unmasked(value))
    except ValueError:
        return None
    return values.astype(float) if values.dtype.kind in "biuf" else None


def unmasked(value: Any) -> Any:
    """Masked array as an array of floats with NaN for masked entries; other values are unchanged."""
    return np.ma.filled(value.astype(float), np.nan) if isinstance(value, np.ma.MaskedArray) else value
