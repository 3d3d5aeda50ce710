"""Identity of a function that makes problems, so that two different studies are never confused.

The identity is the attribute ``identity``, or else name, source and carried values: closure variables, argument defaults,
arguments of a ``functools.partial``, and the state of a callable object. Global variables are ignored.
"""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cached_property, partial
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np


def identity(make: Callable[..., Any]) -> Any:
    """Return the identity of a function as plain values. Raises ValueError if it carries a value of unknown content."""
    given = getattr(make, "identity", None)
    if given is not None:
        return given
    if isinstance(make, partial):
        return {"function": identity(make.func), "carries": _content_hash(make, (make.args, make.keywords))}
    kind = make if isinstance(make, (FunctionType, MethodType, type, BuiltinFunctionType)) else type(make)
    carried = list(_carried(make))
    found = {
        "function": kind.__qualname__,
        "source": _source(kind),
        "carries": _content_hash(make, carried) if carried else None,
    }
    return {key: value for key, value in found.items() if value is not None}


def _carried(make: Any) -> Iterator[Any]:
    """Yield the values, other than its source, that a function depends on."""
    if isinstance(make, MethodType):
        yield make.__self__
        make = make.__func__
    if isinstance(make, FunctionType):
        if make.__closure__:
            yield dict(zip(make.__code__.co_freevars, make.__closure__, strict=True))
        if make.__defaults__ or make.__kwdefaults__:
            yield make.__defaults__, make.__kwdefaults__
    elif not isinstance(make, (type, BuiltinFunctionType)):
        yield make


def _source(kind: Any) -> str | None:
    """Return a hash of the source, or of the compiled code without source; None if neither exists.

    For lambdas, both are hashed: the source line may contain several lambdas.
    """
    code = getattr(kind, "__code__", None)
    source = ""
    if code is not None or (isinstance(kind, type) and hasattr(sys.modules.get(kind.__module__), "__file__")):
        with suppress(OSError):
            source = inspect.getsource(kind)
    if code is not None and (not source or kind.__name__ == "<lambda>"):
        source += repr(_code(code))
    return hashlib.sha256(source.encode()).hexdigest() if source else None


def _code(code: CodeType) -> Any:
    return code.co_code, code.co_names, [_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]


def _content_hash(make: Any, carried: Any) -> str:
    found = hashlib.sha256()
    try:
        for part in _content(carried, []):
            found.update(len(part).to_bytes(8, "little") + part)
    except (pickle.PicklingError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"a study cannot identify the function {make!r} ({error}): give it an attribute `identity`, a plain "
            "value (numbers, strings, lists, dictionaries) that determines its problems"
        ) from error
    return found.hexdigest()


def _content(value: Any, above: list[int]) -> Iterator[bytes]:
    """Yield the content of a value in parts that are equal in every process. above: ids of the objects that contain it."""
    kind = type(value)
    yield f"{kind.__module__}.{kind.__qualname__}".encode()
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, PurePath)):
        yield repr(value).encode()
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield f"{value.dtype.str}{value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, (type, ModuleType, BuiltinFunctionType)):
        yield f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}".encode()
    elif isinstance(value, ctypes.CDLL):
        yield str(value._name).encode()
    elif id(value) in above:
        yield str(above.index(id(value))).encode()  # a value that contains itself
    else:
        for part in _parts(value):
            if isinstance(part, bytes):
                yield part
            else:
                yield from _content(part, [*above, id(value)])


def _parts(value: Any) -> Iterator[Any]:
    """Yield the parts of a value."""
    given = getattr(value, "identity", None)
    if given is not None and not callable(given):
        yield given
    elif isinstance(value, Mapping):
        yield str(len(value)).encode()
        yield from (part for item in value.items() for part in item)
    elif isinstance(value, (list, tuple)):
        yield str(len(value)).encode()
        yield from value
    elif isinstance(value, (set, frozenset)):
        yield from sorted(b"".join(_content(item, [])) for item in value)
    elif isinstance(value, np.ndarray):
        yield value.tolist()
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, (FunctionType, MethodType)):
        yield f"{value.__qualname__} {_source(value)}".encode()
        yield from _carried(value)
    elif type(value).__name__ == "cell":
        yield value.cell_contents
    else:
        yield str(_source(type(value))).encode()
        yield _state(value)


def _state(value: Any) -> Any:
    """Return the state of an object: its fields, its attributes without cached properties, or its pickle."""
    if is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in fields(value)}
    if hasattr(value, "__dict__"):
        kind = type(value)
        slots = [name for base in kind.__mro__ for name in _slots(base) if hasattr(value, name)]
        own = {name: v for name, v in vars(value).items() if not isinstance(getattr(kind, name, None), cached_property)}
        return own | {name: getattr(value, name) for name in slots}
    return pickle.dumps(value, protocol=4)


def _slots(kind: type) -> tuple[str, ...]:
    named = vars(kind).get("__slots__", ())
    names = (named,) if isinstance(named, str) else tuple(named)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))
