"""A model as plain values, for files: what comes back is the same robot, by its digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from dynamics_backends.rigid_body.model.coupling import Coupling
from dynamics_backends.rigid_body.model.model import Frame, Model


def model_to_data(model: Model) -> dict[str, Any]:
    """The model's fields as strings, numbers and lists; infinities as JSON of Python's kind knows them."""
    return _plain(model)


def model_from_data(data: Mapping[str, Any]) -> Model:
    """The model of such values. Raises ValueError, KeyError or TypeError for others."""
    values = dict(data)
    values["frames"] = tuple(Frame(**frame) for frame in values["frames"])
    values["coupling"] = None if values["coupling"] is None else Coupling(**values["coupling"])
    return Model(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, Model | Frame | Coupling):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(v) for v in value] if isinstance(value, tuple | list) else value
