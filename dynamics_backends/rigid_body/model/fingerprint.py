"""Content hash of nested records, sequences, arrays and plain values, equal in any process."""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass

import numpy as np


def fingerprint(value) -> str:
    """Return the SHA-256 of the content in hexadecimal.

    Dataclasses are hashed by their fields, except those with metadata digest = False; -0.0 equals 0.0.
    """
    content = hashlib.sha256()
    _feed(content, value)
    return content.hexdigest()


def _feed(content, value):
    """Add `value` with its kind and length, so that no two different values produce the same bytes."""
    if is_dataclass(value):
        _feed(content, [getattr(value, field.name) for field in fields(value) if field.metadata.get("digest", True)])
    elif isinstance(value, np.ndarray):
        kind = "<i8" if value.dtype.kind in "iu" else "<f8"
        content.update(f"array{kind}{value.shape}".encode())
        content.update((value + 0).astype(kind).tobytes())  # + 0 turns -0.0 into 0.0
    elif isinstance(value, tuple | list):
        content.update(f"list{len(value)}".encode())
        for item in value:
            _feed(content, item)
    else:
        text = repr(value)
        content.update(f"text{len(text)}:{text}".encode())
