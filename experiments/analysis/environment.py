"""Temporary environment variables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def with_variable(name: str, value: object) -> Iterator[None]:
    """Set an environment variable inside the context; restore its previous value, or unset it, afterwards."""
    before = os.environ.get(name)
    os.environ[name] = str(value)
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
