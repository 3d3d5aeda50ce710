"""Variations of a study: the varied keys and their distributions.

The value of a key in row i depends on its variation, (seed, key, i) and K alone: each draw has its own generator,

    rng = default_rng([seed, crc32(key), d]),    d = i // K,

independent of other draws and of the worker. K is the number of combinations of the keys that are crossed (``each``), 1 without
such keys. Rows K d, ..., K d + K - 1 share the values of all other keys, so that solvers, for example, are compared on the same
problems.

Text form of a variation, in command lines and files:

| text | value |
|---|---|
| uniform(low, high) | between numbers, or entry by entry between lists |
| log_uniform(low, high) | as uniform, in the logarithm |
| normal(mean, deviation) | normally distributed, entry by entry |
| integers(low, high) | an integer from low to high, both included, entry by entry |
| choices(a, b, ...), or a, b, ... | one of these, all equally likely |
| each(a, b, ...) | each of these in turn, crossed with the other keys |
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from dynamics_backends.names import unknown_name
from dynamics_backends.user_input import parse_value

_Draw = Callable[[np.random.Generator, Any, Any], Any]
_RANGES: dict[str, _Draw] = {
    "uniform": lambda rng, low, high: rng.uniform(low, high),
    "log_uniform": lambda rng, low, high: np.exp(rng.uniform(np.log(low), np.log(high))),
    "normal": lambda rng, mean, deviation: rng.normal(mean, deviation),
    "integers": lambda rng, low, high: rng.integers(low, high, endpoint=True),
}
LISTS = ("choices", "each")
"""Kinds of variations whose arguments are the possible values."""


@dataclass(frozen=True)
class Variation:
    """Distribution of one value: its kind, see the table of this module, and its arguments as plain values.

    >>> Variation.parse("uniform([0, 1], [1, 2])")
    Variation(kind='uniform', arguments=([0, 1], [1, 2]))
    >>> str(Variation.parse("slq, ddp"))
    'choices("slq", "ddp")'

    Raises UnknownName for another kind, ValueError for arguments that do not fit it.
    """

    kind: str
    arguments: tuple[Any, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", tuple(map(_plain, self.arguments)))
        if self.kind not in (*_RANGES, *LISTS):
            raise unknown_name("variation", self.kind, (*_RANGES, *LISTS))
        if self.kind in _RANGES:
            self._check_range()
        elif not self.arguments:
            raise ValueError(f"{self.kind}() has no choices; give some values")

    def _check_range(self) -> None:
        """Raise ValueError unless the arguments are two ends, or mean and deviation, that fit the kind."""
        names = "mean and a deviation" if self.kind == "normal" else "low and a high end"
        if len(self.arguments) != 2:
            raise ValueError(f"{self}: expected 2 arguments, a {names}; got {len(self.arguments)}")
        try:
            low, high = np.broadcast_arrays(*(np.asarray(a, dtype=float) for a in self.arguments))
        except ValueError as error:
            raise ValueError(f"{self}: give a {names}, numbers or lists of one length") from error
        ends = {
            "normal": (high >= 0, "a deviation of at least 0"),
            "log_uniform": ((low > 0) & (low <= high), "positive ends, the lower one first"),
        }
        good, expected = ends.get(self.kind, (low <= high, "the lower end first"))
        if not (np.isfinite(low) & np.isfinite(high) & good).all():
            raise ValueError(f"{self}: expected finite numbers, {expected}")
        if self.kind == "integers" and not ((low % 1 == 0) & (high % 1 == 0)).all():
            raise ValueError(f"{self}: expected integers")

    @classmethod
    def parse(cls, text: str) -> Variation:
        """Parse a variation from text; without a kind, the text is a list of choices.

        Raises UnknownName for an unknown kind, ValueError for arguments that do not fit it or an open bracket.
        """
        call = re.fullmatch(r"\s*([A-Za-z_]+)\s*\((.*)\)\s*", text, re.S)
        begun = re.match(r"\s*([A-Za-z_]+)\s*\(", text)
        if not call and begun and begun[1] in (*_RANGES, *LISTS) and text.count("(") > text.count(")"):
            raise ValueError(f"{text.strip()}: the bracket is not closed; write {text.strip()})")
        kind, items = (call[1], call[2]) if call else ("choices", text)
        return cls(kind, tuple(map(parse_value, _split(items))))

    @classmethod
    def from_value(cls, given: Variation | str | Sequence[Any]) -> Variation:
        """Convert to a variation: a text is parsed, a list becomes choices, a variation is returned unchanged.

        Raises the errors of :meth:`parse` and of the constructor.
        """
        if isinstance(given, str):
            return cls.parse(given)
        return given if isinstance(given, Variation) else cls("choices", tuple(given))

    def sample(self, rng: np.random.Generator) -> Any:
        """Draw a value: a number, or a list of them, of a distribution; one of the arguments of ``choices`` and ``each``."""
        if self.kind in LISTS:
            return self.arguments[int(rng.integers(len(self.arguments)))]
        dtype = np.int64 if self.kind == "integers" else float
        return _plain(_RANGES[self.kind](rng, *(np.asarray(a).astype(dtype) for a in self.arguments)))

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(_text, self.arguments))})"


class Variations:
    """Variations of a study, by key, with their random seed. Raises ValueError for a negative seed, and the errors of Variation.

    by_key: all variations. crossed: arguments of those of kind ``each``; combinations: the product of their numbers.
    """

    def __init__(self, vary: Mapping[str, Variation | str | Sequence[Any]], seed: int = 0) -> None:
        if seed < 0:
            raise ValueError(f"seed = {seed}: expected an integer of at least 0")
        self.by_key = {key: Variation.from_value(given) for key, given in vary.items()}
        self.seed = seed
        self.crossed = {key: v.arguments for key, v in self.by_key.items() if v.kind == "each"}
        self.combinations = prod(map(len, self.crossed.values()))

    def values(self, row: int) -> dict[str, Any]:
        """Return the value of each key in a row, which the row, the variations and the seed determine (see the module)."""
        draw, number = divmod(row, self.combinations)
        values = {}
        for key, variation in self.by_key.items():
            if key in self.crossed:
                number, k = divmod(number, len(self.crossed[key]))
                values[key] = self.crossed[key][k]
            else:
                values[key] = variation.sample(np.random.default_rng([self.seed, zlib.crc32(key.encode()), draw]))
        return values

    def described(self) -> dict[str, str]:
        """Return the variations as texts, by key."""
        return {key: str(variation) for key, variation in self.by_key.items()}


def _plain(value: Any) -> Any:
    """Convert NumPy arrays and numbers to Python values, and tuples to lists."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _split(text: str) -> list[str]:
    """Split a text at the commas outside brackets and quotes; parts are stripped, and empty ones dropped."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        depth += (character in "[{(") - (character in "]})") if not quote else 0
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in map(str.strip, parts) if part]


def _text(value: Any) -> str:
    """Format a value as in a text that :func:`parse_value` parses."""
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (str, bool)) else repr(value)
