"""Write plain values as TOML; the standard library can only read TOML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def to_toml(values: Mapping[str, Any]) -> str:
    """Format plain values (tables, strings, numbers, booleans, lists) as TOML."""
    return "\n".join(_toml_lines(values, ())).strip() + "\n"


def _toml_lines(values: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    lines = [f"{_toml_key(k)} = {_toml_value(v)}" for k, v in values.items() if not isinstance(v, Mapping)]
    if lines and path:
        lines = [f"[{'.'.join(map(_toml_key, path))}]", *lines]
    for key, table in values.items():
        if isinstance(table, Mapping):
            lines += ["", *_toml_lines(table, (*path, key))]
    return lines


def _toml_key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_toml_key(k)} = {_toml_value(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    return repr(value)
