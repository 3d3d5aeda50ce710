"""Tables of configuration files: read into dataclasses, and written as TOML.

pydantic finds wrong types, the dataclass checks ranges. Errors name the key with its table, the expected value and the actual
value. TOML is written here because the standard library only reads it.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from dynamics_backends.names import nearest_names
from dynamics_backends.user_input import quoted
from trajopt.config.task import SettingsError

if TYPE_CHECKING:
    from pydantic import BaseModel


NAMED = ("backend", "solver")
"""Tables that may be written as a name alone, above all tables."""
_WORDS = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}
_PLURALS = {int: "integers", float: "numbers", str: "strings"}


def read_table(kind: Any, table: Any, path: str, issues: list[str], extra_known: tuple[str, ...] = ()) -> Any:
    """Read a table into the dataclass ``kind``. Returns None after a mistake, which is appended to ``issues``.

    extra_known: keys of the table that other code reads; also suggested for misspelled keys.
    """
    if not isinstance(table, Mapping):
        issues.append(f"{path}: expected a table, got {quoted(table)}")
        return None
    found = _type_issues(kind, _as_tuples(table), path, extra_known)
    if found:
        issues.extend(found)
        return None
    return _construct(kind, _as_tuples(table), path, issues)


def _construct(kind: Any, table: Mapping[str, Any], path: str, issues: list[str]) -> Any:
    """Construct the dataclass, nested tables first; None after a mistake, which is appended to ``issues`` with the table's path."""
    before = len(issues)
    hints = {k: table_kind(t) for k, t in get_type_hints(kind).items() if k in table}
    nested = {k: t for k, t in hints.items() if t is not None}
    values = dict(table) | {k: _construct_nested(t, table[k], f"{path}.{k}", issues) for k, t in nested.items()}
    if len(issues) > before:
        return None
    try:
        return kind(**values)
    except SettingsError as error:
        issues.extend(f"{path}.{key}: {text}" for key, text in error.problems.items())
    except ValueError as error:  # dataclasses of the library start their message with the key
        issues.append(f"{path}.{error}")
    return None


def _construct_nested(kind: Any, value: Any, path: str, issues: list[str]) -> Any:
    """Construct the dataclass of a nested table, or a tuple of dataclasses for a list of tables.

    None replaces one with a mistake, which is appended to ``issues``.
    """
    if isinstance(value, tuple):
        return tuple(_construct(kind, v, f"{path}[{i}]", issues) for i, v in enumerate(value))
    return _construct(kind, value, path, issues)


def _type_issues(kind: Any, table: Mapping[str, Any], path: str, extra_known: tuple[str, ...]) -> list[str]:
    """Return sentences about keys of the wrong type, unknown and missing keys. Tables that surely fit are accepted without
    pydantic.
    """
    if fits(kind, table):
        return []  # skip pydantic: importing it takes longer than many solves
    from pydantic import ValidationError

    try:
        schema_of(kind).model_validate(table)
    except ValidationError as error:
        found = [_issue(kind, table, path, e["loc"], e["type"], extra_known) for e in error.errors()]
        heads = {issue.partition(":")[0] for issue in found}
        within = {head for head in heads if any(other.startswith((f"{head}.", f"{head}[")) for other in heads)}
        # a union reports a mistake once per member; keep the innermost location only
        return list(dict.fromkeys(issue for issue in found if issue.partition(":")[0] not in within))
    return []


def fits(hint: Any, value: Any) -> bool:
    """True if a value certainly has a type, strictly as in :func:`schema_of`; False in doubt."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        hints: Mapping[str, Any] = get_type_hints(hint)
        if not isinstance(value, Mapping) or not all(key in hints and fits(hints[key], v) for key, v in value.items()):
            return False
        return all(f.name in value or _default(f) is not ... for f in fields(hint))
    if origin in (Union, types.UnionType):
        return any(fits(a, value) for a in arguments)
    if origin is Literal:
        return any(type(value) is type(a) and value == a for a in arguments)
    if origin is tuple and type(value) is tuple:
        each = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        return len(each) == len(value) and all(map(fits, each, value))
    if hint is float:
        return type(value) in (int, float)
    return hint in (bool, int, str, type(None)) and type(value) is hint


def _issue(kind: Any, table: Any, path: str, loc: tuple, error: str, extra_known: tuple[str, ...]) -> str:
    """Return the sentence for one pydantic error at the location ``loc`` in a table: unknown key, missing key or wrong type.

    The sentence for an unknown key has the most similar known one, or else all known ones, or where it belongs (NAMED); that for
    an unknown table in which a key is similar to a known one advises to move its keys.
    """
    key, hints = str(loc[0]), get_type_hints(kind)
    if key not in hints:
        near = nearest_names(key, [*hints, *extra_known], 1)
        if (
            not near
            and isinstance(table[key], Mapping)
            and any(nearest_names(own, list(hints), 1) for own in table[key])
        ):
            return f"{path}.{key}: unknown table; move its keys into [{path}]"
        misplaced = f"; write {key} = ... above all tables" if key in NAMED else f"; known: {', '.join(hints)}"
        if (path, key) == ("problem", "robot"):
            misplaced = "; this problem has a robot of its own, and any other needs a script (to.load_robot)"
        return f"{path}.{key}: unknown key" + (f"; did you mean {near[0]}?" if near else misplaced)
    if key not in table:
        return f"{path}.{key}: missing; expected {describe(hints[key])}"
    inner = table_kind(hints[key])
    deeper = tuple(part for part in loc[1:] if not _is_member(part, inner))
    if inner is not None and deeper and isinstance(table[key], Mapping):
        return _issue(inner, table[key], f"{path}.{key}", deeper, error, ())
    if inner is not None and isinstance(table[key], tuple) and deeper and isinstance(deeper[0], int):
        entry = table[key][deeper[0]]
        if isinstance(entry, Mapping) and len(deeper) > 1:
            return _issue(inner, entry, f"{path}.{key}[{deeper[0]}]", deeper[1:], error, ())
    return f"{path}.{key}: expected {describe(hints[key])}, got {quoted(plain_values(table[key]))}"


def _is_member(part: Any, inner: Any) -> bool:
    """True if a part of an error location names a member of a union of the dataclass ``inner``; False if ``inner`` is None."""
    return inner is not None and isinstance(part, str) and (part == inner.__name__ or part.startswith("tuple["))


def table_kind(hint: Any) -> Any:
    """Return a type hint that is a dataclass, or the first dataclass of a union; else None, also for a tuple of a dataclass
    alone.
    """
    if get_origin(hint) in (Union, types.UnionType):
        found = [a for a in get_args(hint) if is_dataclass(a)]
        return found[0] if found else None
    return hint if is_dataclass(hint) else None


def _takes_lists(hint: Any, inner: Any) -> bool:
    """True if a type hint also accepts tuples of its dataclass ``inner``, that is, lists of tables."""
    return any(get_origin(a) is tuple and inner in get_args(a) for a in get_args(hint))


@cache
def schema_of(kind: Any) -> type[BaseModel]:
    """Return the pydantic model of a dataclass, with strict types and no extra keys."""
    from pydantic import ConfigDict, create_model

    hints = get_type_hints(kind)
    entries = {f.name: (_field_type(hints[f.name]), _default(f)) for f in fields(kind)}
    config = ConfigDict(extra="forbid", strict=True)
    return create_model(kind.__name__, __config__=config, **entries)  # type: ignore[call-overload]


def _field_type(hint: Any) -> Any:
    """Return the type hint of a field for pydantic, with a dataclass replaced by its pydantic model.

    A union with a dataclass becomes: the model or None, or a tuple of the model if the union has one of the dataclass.
    """
    inner = table_kind(hint)
    if inner is None:
        return hint
    if _takes_lists(hint, inner):
        return schema_of(inner) | tuple[schema_of(inner), ...] | None  # type: ignore[misc]
    return schema_of(inner) if inner is hint else schema_of(inner) | None


def _default(f: Any) -> Any:
    """Return pydantic's mark for a field without default (...), else None: the dataclass sets its own default."""
    return ... if f.default is MISSING and f.default_factory is MISSING else None


def describe(hint: Any) -> str:
    """Describe a type in words, singular: "an integer", "a list of 3 numbers"; None in a union is omitted."""
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return "a table"
    if origin in (Union, types.UnionType):
        return " or ".join(describe(a) for a in arguments if a is not types.NoneType)
    if origin is Literal:
        return " or ".join(repr(a) for a in arguments)
    if origin is tuple and is_dataclass(arguments[0]):
        return "a list of tables"
    if origin is tuple:
        count = "" if arguments[-1] is Ellipsis else f"{len(arguments)} "
        return f"a list of {count}{_describe_plural(arguments[0])}"
    if origin is not None:
        return f"a table of {_describe_plural(arguments[-1])} by name"
    return _WORDS.get(hint, str(hint))


def _describe_plural(hint: Any) -> str:
    """Describe the values of a type in words, plural: "numbers", "lists of integers"; "values" for an unknown type."""
    lists = get_origin(hint) is tuple
    return f"lists of {_describe_plural(get_args(hint)[0])}" if lists else _PLURALS.get(hint, "values")


def _as_tuples(value: Any) -> Any:
    """Value with lists, also those in lists and tables, converted to tuples; existing tuples stay unchanged."""
    if isinstance(value, Mapping):
        return {k: _as_tuples(v) for k, v in value.items()}
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def plain_values(value: Any) -> Any:
    """Convert to plain values: drop table entries that are None, turn tuples into lists."""
    if isinstance(value, Mapping):
        return {k: plain_values(v) for k, v in value.items() if v is not None}
    return list(map(plain_values, value)) if isinstance(value, (list, tuple)) else value


def to_toml(values: Mapping[str, Any]) -> str:
    """Format plain values (tables, strings, numbers, booleans, lists) as TOML."""
    return "\n".join(_toml_lines(values, ())).strip() + "\n"


def _toml_lines(values: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    """Return the lines of a table at a path: its header if it has values of its own, its values, then its nested tables."""
    lines = [f"{_toml_key(k)} = {_toml_value(v)}" for k, v in values.items() if not isinstance(v, Mapping)]
    if lines and path:
        lines = [f"[{'.'.join(map(_toml_key, path))}]", *lines]
    for key, table in values.items():
        if isinstance(table, Mapping):
            lines += ["", *_toml_lines(table, (*path, key))]
    return lines


def _toml_key(key: str) -> str:
    """Key as in TOML, quoted unless it has only ASCII letters, digits, "_" and "-"."""
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)


def _toml_value(value: Any) -> str:
    """Value on one line of TOML; a mapping becomes an inline table."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_toml_key(k)} = {_toml_value(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    return repr(value)
