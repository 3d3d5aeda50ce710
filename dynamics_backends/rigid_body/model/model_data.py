"""Conversion of a model to plain values for files, and back to a model with the same digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from dynamics_backends.rigid_body.model.coupling import Coupling
from dynamics_backends.rigid_body.model.model import Frame, Model
from dynamics_backends.user_input import quoted


def model_to_data(model: Model) -> dict[str, Any]:
    """Fields of the model by name, as strings, numbers, lists, dicts and None.

    Infinite limits stay infinite floats, which Python's JSON writes as Infinity.
    """
    return _plain(model)


def model_from_data(data: Mapping[str, Any]) -> Model:
    """Create a model from the values of :func:`model_to_data`. Raises ValueError for missing or invalid values."""
    try:
        values = dict(data)
        values["frames"] = tuple(Frame(**frame) for frame in values["frames"])
        values["coupling"] = None if values["coupling"] is None else Coupling(**values["coupling"])
        _check_texts(values)
        return Model(**values)
    except KeyError as error:
        raise ValueError(f"{error} is missing") from error
    except (TypeError, OverflowError, AttributeError) as error:
        raise ValueError(str(error)) from error


def _check_texts(values: Mapping[str, Any]) -> None:
    """Raise ValueError for names, joint types, notes or a source that are not strings."""
    texts = {key: [values[key]] for key in ("name", "source") if key in values}
    texts |= {
        key: values[key] for key in ("body_names", "joint_names", "joint_types", "notes", "circular") if key in values
    }
    texts["frames"] = [frame.name for frame in values["frames"]]
    for key, strings in texts.items():
        if not isinstance(strings, list) or not all(isinstance(text, str) for text in strings):
            raise ValueError(f"{key!r} of the robot is {quoted(strings)}; expected texts")


def _plain(value: Any) -> Any:
    """Plain value of a field: records as dicts, arrays and tuples as lists, each recursively; others unchanged."""
    if isinstance(value, Model | Frame | Coupling):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(v) for v in value] if isinstance(value, tuple | list) else value
