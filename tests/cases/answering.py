"""Base class of the NumPy answers to methods, as the reference of slots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Answering:
    """Stores the iterates of a problem, and answers each type of request of a method with a function."""

    _answers: dict[type, Callable[[Any], Any]]

    def answer(self, request: Any) -> Any:
        """Call the function for this type of request; return its answer."""
        return self._answers[type(request)](request)

    def note_times(self, journal: Any) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
