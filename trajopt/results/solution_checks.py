"""Checks of the arrays and metadata of a solution file: consistent sizes, and values of the right type.

Each check raises ValueError with a message that names the array or key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.user_input import quoted
from trajopt.results.archive import Header
from trajopt.results.status import Status, StatusCode

MULTIPLIER = "multiplier: "
"""Prefix of the names of multipliers in a file."""
ARRAYS = ("xs", "us", "K", "k", "times")


def check_headers(headers: Mapping[str, Header]) -> None:
    """Check the shapes and types of all arrays before their content is read. Raises ValueError."""
    missing = [name for name in (*ARRAYS, "cost", "history", "metadata") if name not in headers]
    if missing:
        raise ValueError(f"it has no array {missing[0]!r}")
    shapes = {name: header.shape for name, header in headers.items()}
    for name, header in headers.items():
        of_numbers = name in (*ARRAYS, "cost", "history") or name.startswith(MULTIPLIER)
        if of_numbers and header.dtype.kind not in "fiu":
            raise ValueError(f"the array {quoted(name)} is of type {header.dtype}, not of numbers")
    if headers["metadata"].dtype.kind != "U" or shapes["metadata"]:
        raise ValueError("its metadata are not a single text")
    if len(shapes["us"]) != 2 or shapes["us"][0] < 1:
        raise ValueError(f"us has shape {shapes['us']}; expected (N, nu), N at least 1")
    N, nu = shapes["us"]
    nx, ndx = shapes["xs"][-1] if shapes["xs"] else 0, shapes["K"][-1] if shapes["K"] else 0
    expected = {"xs": (N + 1, nx), "k": (N, nu), "K": (N, nu, ndx), "times": (N + 1,), "cost": ()}
    for name, shape in expected.items():
        if shapes[name] != shape:
            raise ValueError(
                f"{name} has shape {quoted(shapes[name])}; expected {shape}, since us has shape {shapes['us']}"
            )
    if nx < 1:
        raise ValueError(f"xs has shape {shapes['xs']}: states without entries")
    if len(shapes["history"]) != 2:
        raise ValueError(f"history has shape {quoted(shapes['history'])}; expected two axes")


def check_times(times: Array) -> None:
    """Check that the times (N + 1,) [s] of knots are finite and do not decrease. Raises ValueError."""
    if not np.isfinite(times).all() or (np.diff(times) < 0.0).any():
        raise ValueError("its times decrease or are not finite")


Check = Callable[[Any], bool]


def is_number(value: Any) -> bool:
    """True for int and float, not for bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    """True for an integer of at least 0 and below 2^53."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def is_text(value: Any) -> bool:
    """True for a string."""
    return isinstance(value, str)


def is_table(value: Any) -> bool:
    """True for a dictionary, the Python type of JSON objects."""
    return isinstance(value, dict)


def is_list_of(check: Check) -> Check:
    """Return a check for lists whose entries all pass ``check``."""
    return lambda value: isinstance(value, list) and all(map(check, value))


def optional(check: Check) -> Check:
    """Return a check that accepts None and values that pass ``check``."""
    return lambda value: value is None or check(value)


def _is_times(value: Any) -> bool:
    return is_table(value) and all(map(is_number, value.values()))


_REQUIRED: dict[str, tuple[Check, str]] = {
    "status": (is_table, "a table"),
    "iterations": (is_count, "a number of iterations"),
    "history_columns": (is_list_of(is_text), "a list of names"),
    "hessian": (is_list_of(is_text), "a list of names"),
    "phase_times": (is_list_of(_is_times), "a list of tables of seconds"),
    "meta": (is_table, "a table"),
    "robot": (optional(is_table), "a table, or null"),
}
_NUMBER, _NUMBERS = (is_number, "a number"), (is_list_of(is_number), "a list of numbers")
_TEXT, _TEXTS, _TABLE = (is_text, "a text"), (is_list_of(is_text), "a list of texts"), (is_table, "a table")
_TABLES = (is_list_of(is_table), "a list of tables")
_META: dict[str, tuple[Check, str]] = {
    "solve_time": _NUMBER,
    **dict.fromkeys(("problem", "solver", "check"), _TEXT),
    **dict.fromkeys(("backends", "schemes", "state_names", "control_names", "engines", "findings"), _TEXTS),
    **dict.fromkeys(("config", "options", "replay"), _TABLE),
    **dict.fromkeys(("easier", "attempts"), _TABLES),
    "clock": _NUMBERS,
    "model": (optional(is_table), "a table, or null"),
}
"""Keys of ``meta`` that reports and viewers read, with their checks; other keys are free."""


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Check that all required keys are present and have values of the right type. Raises ValueError."""
    for key, (check, expected) in _REQUIRED.items():
        if key != "robot" and key not in metadata:
            raise ValueError(f"its metadata have no {key!r}")
        _check(key, metadata.get(key), check, expected)
    for key, (check, expected) in _META.items():
        if key in metadata["meta"]:
            _check(f"meta.{key}", metadata["meta"][key], check, expected)


def _check(key: str, value: Any, check: Check, expected: str) -> None:
    if not check(value):
        raise ValueError(f"{key!r} in its metadata is {quoted(value)}; expected {expected}")


_KINDS: dict[Any, Check] = {
    str: is_text,
    float: is_number,
    int: is_count,
    bool: lambda value: isinstance(value, bool),
    type(None): lambda value: value is None,
    StatusCode: lambda value: value in list(StatusCode),
}


def status_from_data(values: Mapping[str, Any]) -> Status:
    """Status from the metadata of a file. Raises ValueError for a missing or unknown field, and for a value of the wrong type."""
    hints, known = get_type_hints(Status), {field.name for field in fields(Status)}
    values = {key: value for key, value in values.items() if key != "asked"}  # a field of version 0.1
    for key, value in values.items():
        if key not in known:
            raise ValueError(f"'status' in its metadata has the unknown key {quoted(key)}")
        kinds = get_args(hints[key]) or (hints[key],)
        if not any(_KINDS.get(kind, lambda _: True)(value) for kind in kinds):
            raise ValueError(f"'status.{key}' in its metadata is {quoted(value)}; expected {hints[key]}")
    try:
        return Status.from_dict(values)
    except (KeyError, TypeError) as error:
        raise ValueError(f"'status' in its metadata is not complete ({error})") from error
