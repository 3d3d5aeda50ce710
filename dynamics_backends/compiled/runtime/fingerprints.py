"""Structural hash of everything that a trace depends on: computed in milliseconds, where tracing takes seconds.

Everything that can change a trace is written in one canonical form and hashed, recursively: values by type and content,
functions by their byte code with constants, defaults, closures and the globals that they read, objects by their class and state.
Every item carries its kind and the number and lengths of its parts, so that different structures have different forms.  Classes
and functions of the toolkit are written by name, since its sources are part of :func:`digest`; so are those of NumPy, CasADi and
the pure modules of the standard library.

Objects without an accessible content (a random generator, an open file, compiled code) have no hash: :class:`Unknown` names the
object and the reason, and code that depends on it is traced in each process.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import hashlib
import inspect
import itertools
import struct
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

TOOLKIT = ("dynamics_backends", "trajopt")
"""Packages whose sources are part of every hash."""


@lru_cache(maxsize=1)
def toolkit_sources() -> bytes:
    """Hash of the toolkit's Python and C sources and of the format of byte code, the same on all machines."""
    content = hashlib.sha256(str(sys.implementation.cache_tag).encode())
    for package in TOOLKIT:
        for file in _sources(package):
            content.update(f"{package} {file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return content.digest()


@lru_cache(maxsize=1)
def installed_versions() -> bytes:
    """Hash of the interpreter and of the versions of the libraries that take part in tracing, NumPy and CasADi."""
    content = f"{sys.version}\nnumpy {np.__version__}\n".encode() + _installed("casadi")
    return hashlib.sha256(content).digest()


def _installed(package: str) -> bytes:
    """Paths, sizes and times of those entries of a package's own folder whose names contain that of the package.

    b"" if the package is not installed.

    They identify the installed version without importing it.
    """
    spec = find_spec(package)
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    files = [] if folder is None else sorted(file for file in folder.iterdir() if package in file.name)
    return "".join(f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}\n" for file in files).encode()


def _sources(package: str) -> list[Path]:
    """Python and C files of a package, sorted."""
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    folder = Path(next(iter(spec.submodule_search_locations)))
    return sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".h", ".c") and "__pycache__" not in p.parts)


LIBRARIES: tuple[str, ...] = ("numpy", "casadi", "math", "cmath", "operator", "_operator", "functools", "itertools")
LIBRARIES += (
    "collections",
    "_collections",
    "_functools",
    "typing",
    "dataclasses",
    "abc",
    "enum",
    "types",
    "builtins",
    "__future__",
)
"""Modules whose functions depend on their arguments alone, except those in _IMPURE."""
_IMPURE = ("random", "load", "loadtxt", "fromfile", "genfromtxt", "memmap", "open", "external", "importer")
"""Names in these modules whose results depend on more than their arguments."""
_BUILTINS = frozenset(
    """
    abs all any bool bytes callable complex dict divmod enumerate filter float frozenset getattr hasattr hash int isinstance
    issubclass iter len list map max min next object pow print property range repr reversed round set setattr slice sorted
    staticmethod str sum super tuple type zip classmethod format ord chr NotImplemented Ellipsis __build_class__ __debug__
    """.split()  # noqa: SIM905
)
_NOT_CONTENT = frozenset(
    """
    __dict__ __weakref__ __doc__ __module__ __annotations__ __firstlineno__ __static_attributes__ __abstractmethods__ _abc_impl
    __repr__ __dataclass_fields__ __dataclass_params__ __orig_bases__ __parameters__ __annotate__ __qualname__ __classcell__
    _is_protocol _is_runtime_protocol __protocol_attrs__ __non_callable_proto_members__ __subclasshook__
    """.split()  # noqa: SIM905
)
_STORES, _ATTRIBUTES = ("STORE_GLOBAL", "DELETE_GLOBAL"), ("LOAD_ATTR", "LOAD_METHOD")
_TUPLE_GETTER = type(NamedTuple("_Example", [("field", int)]).field)  # type: ignore[attr-defined]
_HEAP_TYPE = 1 << 9
"""Flag of classes that a class statement created."""


class Unknown(TypeError):
    """An object has no structural hash; the message names the object and the reason."""


def digest(*values: Any) -> str:
    """Hash of the canonical form of values and of :func:`toolkit_sources`, 32 hexadecimal digits.

    Raises Unknown for objects without a structural hash.
    """
    return hashlib.sha256(toolkit_sources() + _Writer().written(values)).hexdigest()[:32]


def source_digest(*values: Any) -> str:
    """Hash of values in which functions count by their source text, without the globals that they read, 64 hexadecimal digits.

    It is the same for all versions of the toolkit and of Python, if the source of each function is accessible and none is a lambda:
    others count by their byte code. Raises Unknown for objects without a structural hash.
    """
    return hashlib.sha256(_Writer(by_source=True).written(values)).hexdigest()


class Likeness:
    """Equality of two objects by their content, as far as generated code depends on it; a callable of both.

    An object without a structural hash equals only itself.  Hashes are cached between calls, so that objects must not change
    between them.
    """

    def __init__(self) -> None:
        self._writer = _Writer()

    def __call__(self, one: Any, other: Any) -> bool:
        """True if both are one object, or have the same structural hash."""
        if one is other:
            return True
        content = self._content(one)
        return content is not None and content == self._content(other)

    def _content(self, thing: Any) -> bytes | None:
        """Canonical bytes of an object, equal for equal content, from which its hash is made; None if it has no structural hash."""
        try:
            return self._writer.written(thing)
        except Unknown:
            return None


def _within(module: str | None, packages: tuple[str, ...]) -> bool:
    """True if a module, by its name, belongs to one of the packages."""
    return module is not None and module.partition(".")[0] in packages


def _by_name(value: Any) -> bool:
    """True if a class or function is written by name: its code belongs to the toolkit or a library, and is no lambda or local."""
    name = getattr(value, "__qualname__", "")
    return _within(getattr(value, "__module__", None), TOOLKIT + LIBRARIES) and "<" not in name


def _item(kind: str, *parts: bytes) -> bytes:
    """Concatenate parts, each with its length, under the name of a kind."""
    return b"".join([_part(kind.encode()), struct.pack("<q", len(parts)), *map(_part, parts)])


def _part(content: bytes) -> bytes:
    """Bytes behind their length."""
    return struct.pack("<q", len(content)) + content


class _Writer:
    """Writer of canonical forms; caches finished objects and tracks the enclosing ones, to detect cycles.

    by_source: see :func:`source_digest`.
    """

    def __init__(self, by_source: bool = False) -> None:
        self._by_source = by_source
        self._inside: dict[int, int] = {}
        self._finished: dict[int, tuple[Any, bytes]] = {}
        self._reaches = sys.maxsize

    def written(self, value: Any) -> bytes:
        """Canonical form of a value, equal for equal structures only. Raises Unknown for objects without a structural hash."""
        plain = _PLAIN.get(type(value))
        return plain(value) if plain is not None else self._shared(value)

    def _all(self, *values: Any) -> list[bytes]:
        """Canonical forms of values."""
        return [self.written(v) for v in values]

    def _shared(self, value: Any) -> bytes:
        """Form of an object: its hash, cached unless it refers to an enclosing object.

        An object that encloses this place, as in a cycle, is written as the number of levels above.
        """
        key = id(value)
        if key in self._finished:
            return self._finished[key][1]
        if key in self._inside:
            self._reaches = min(self._reaches, self._inside[key])
            return _item("outer", str(len(self._inside) - self._inside[key]).encode())
        around, self._reaches = self._reaches, sys.maxsize
        self._inside[key] = depth = len(self._inside)
        try:
            content = _item("hash", hashlib.sha256(self._content(value)).digest())
        finally:
            del self._inside[key]
        if self._reaches >= depth:  # no inner reference to the enclosing structure
            self._finished[key] = (value, content)
            self._reaches = around
        else:
            self._reaches = min(around, self._reaches)
        return content

    def _content(self, value: Any) -> bytes:
        """Form of an object by the writer of its kind, else as an instance of a Python class."""
        for kind, write in _KINDS:
            if isinstance(value, kind):
                return write(self, value)
        return self._instance(value)

    # -- containers and arrays ----------------------------------------------------------------------------------------
    def _sequence(self, value: Any) -> bytes:
        """Form of a tuple or list: its items, and for a derived class also the class and its state."""
        if type(value) not in (tuple, list):
            return _item("items", self.written(type(value)), self._state(value), *self._all(*value))
        return _item(type(value).__name__, *self._all(*value))

    def _slice(self, value: slice) -> bytes:
        """Form of a slice: start, stop and step."""
        return _item("slice", *self._all(value.start, value.stop, value.step))

    def _set(self, value: Any) -> bytes:
        """Form of a set: the sorted forms of its items."""
        return _item("set", *sorted(self._all(*value)))

    def _mapping(self, value: Any) -> bytes:
        """Form of a dict: keys and values in their order. Raises Unknown for derived classes."""
        if type(value) not in (dict, types.MappingProxyType):
            raise Unknown(f"a {type(value).__qualname__}: its content may be incomplete")
        return _item("dict", *[part for pair in value.items() for part in self._all(*pair)])

    def _array(self, value: np.ndarray) -> bytes:
        """Form of an array: type, shape and content. Raises Unknown for arrays of objects and derived classes."""
        if value.dtype.hasobject or type(value) is not np.ndarray:
            raise Unknown(f"an array of {value.dtype} ({type(value).__qualname__})")
        return _item(
            "array", value.dtype.str.encode(), repr(value.shape).encode(), np.ascontiguousarray(value).tobytes()
        )

    def _number(self, value: np.generic) -> bytes:
        """Form of a NumPy number: its type and content."""
        return _item("number", value.dtype.str.encode(), value.tobytes())

    # -- code ---------------------------------------------------------------------------------------------------------
    def _function(self, f: types.FunctionType) -> bytes:
        """Form of a function: its name if it belongs to the toolkit or a library and has no closure, else its whole content.

        The content is its code, defaults, attributes, closure and the globals that it reads. A name that belongs to another object
        is followed by the code. Raises Unknown for impure functions of these packages.
        """
        if _by_name(f) and f.__closure__ is None:
            if f.__name__ in _IMPURE:
                raise Unknown(f"{f.__module__}.{f.__qualname__} may return a different value each time")
            return _item(
                "named", f"{f.__module__}.{f.__qualname__}".encode(), self.written(_resolved(f) is f or f.__code__)
            )
        cells = [self._cell(f, c) for c in f.__closure__ or ()]
        parts = self._all(f.__defaults__, f.__kwdefaults__, f.__dict__)
        return _item("function", *self._all(f.__code__), *parts, *cells, *self._globals(f, f.__code__))

    def _cell(self, f: types.FunctionType, cell: Any) -> bytes:
        """Form of the content of a closure cell, which may be empty."""
        try:
            return self.written(cell.cell_contents)
        except ValueError:
            return _item("empty")

    def _code(self, code: types.CodeType) -> bytes:
        """Form of a code object: its source text if functions count by it, it is accessible and no lambda, else its byte code.

        Byte code is written with its names and constants.
        """
        with suppress(OSError):
            if self._by_source and code.co_name != "<lambda>":  # a line may contain several lambdas
                return _item("source", inspect.getsource(code).encode())
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return _item("code", code.co_code, code.co_exceptiontable, *self._all(counts, names, code.co_consts))

    def _globals(self, f: types.FunctionType, code: types.CodeType) -> Iterator[bytes]:
        """Yield the forms of the globals that a code object and its inner ones read, by name, in the order of reading.

        Yields nothing if functions count by their source. Raises Unknown if the globals are not known or impure.
        """
        if self._by_source:
            return
        read, complaint = _reads(code)
        if complaint:
            raise Unknown(f"{_named(f)} {complaint}")
        for name, attributes in read:
            yield _item("global", name.encode(), self._global(f, name, attributes))
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                yield from self._globals(f, constant)

    def _global(self, f: types.FunctionType, name: str, attributes: tuple[str, ...]) -> bytes:
        """Form of a global that a function reads, through modules and attributes.

        Raises Unknown for impure ones, and for a module outside the toolkit and the libraries that is used as a whole.
        """
        if name not in f.__globals__:
            if hasattr(builtins, name) and not _pure_builtin(name):
                raise Unknown(f"{_named(f)} calls {name}(), which may return a different value each time")
            return _item("builtin", name.encode())
        value, chain = f.__globals__[name], iter(attributes)
        while isinstance(value, types.ModuleType):
            if set(value.__name__.split(".")) & set(_IMPURE):
                raise Unknown(f"{_named(f)} uses {value.__name__}, which may return a different value each time")
            if _within(value.__name__, TOOLKIT + LIBRARIES):
                return _item("module", value.__name__.encode())
            attribute = next(chain, None)
            if attribute is None or not hasattr(value, attribute):
                raise Unknown(f"{_named(f)} uses the module {value.__name__} as a whole")
            value = getattr(value, attribute)
        return self.written(value)

    def _builtin(self, f: Any) -> bytes:
        """Form of a function that is not written in Python: its name, and for a method also its object.

        Raises Unknown for functions, except methods, that are impure or not of LIBRARIES.
        """
        owner = getattr(f, "__self__", None)
        name = getattr(f, "__qualname__", f.__name__)
        if owner is not None and not isinstance(owner, types.ModuleType):
            return _item("method", name.encode(), self.written(owner))
        module = getattr(f, "__module__", None) or ""  # a ufunc made by another package has none
        impure = f.__name__ in _IMPURE or (module == "builtins" and not _pure_builtin(f.__name__))
        if impure or not _within(module, LIBRARIES):
            raise Unknown(f"{f'{module}.{name}'.lstrip('.')}: code that is not Python")
        return _item("named", f"{module}.{name}".encode())

    def _partial(self, f: functools.partial) -> bytes:
        """Form of a partial function: function, arguments and attributes."""
        return _item("partial", *self._all(f.func, f.args, f.keywords, f.__dict__))

    def _wrapper(self, f: Any) -> bytes:
        """Form of a static method, class method or lru_cache: its kind and the wrapped function."""
        return _item(type(f).__name__, self.written(f.__func__ if hasattr(f, "__func__") else f.__wrapped__))

    def _method(self, f: types.MethodType) -> bytes:
        """Form of a bound method: its function and object."""
        return _item("bound", *self._all(f.__func__, f.__self__))

    def _property(self, f: property) -> bytes:
        """Form of a property: its three functions."""
        return _item("property", *self._all(f.fget, f.fset, f.fdel))

    # -- classes and their objects --------------------------------------------------------------------------------------
    def _class(self, cls: type) -> bytes:
        """Form of a class: its name, and unless it belongs to the toolkit or a library also its bases and attributes.

        Raises Unknown for other classes that are not written in Python or have a user-defined metaclass.
        """
        name = f"{cls.__module__}.{cls.__qualname__}".encode()
        if _by_name(cls) and _resolved(cls) is cls:
            return _item("named", name)
        if not cls.__flags__ & _HEAP_TYPE:  # not made by a class statement: its code is not Python
            raise Unknown(f"the class {cls.__module__}.{cls.__qualname__}: code that is not Python")
        if type(cls).__module__ not in ("builtins", "abc", "enum", "typing"):
            raise Unknown(f"the class {cls.__qualname__} has a user-defined metaclass")
        entries = [part for k, v in cls.__dict__.items() if k not in _NOT_CONTENT for part in self._all(k, v)]
        return _item("class", name, *self._all(*cls.__bases__), *entries)

    def _instance(self, value: Any) -> bytes:
        """Form of an object: its class and the result of its method __structure__, or its state if it has none.

        Raises Unknown for objects whose content is not accessible: of classes not written in Python, or of most LIBRARIES.
        """
        cls = type(value)
        own = getattr(cls, "__structure__", None)
        if own is not None:
            return _item("object", *self._all(cls, own(value)))
        library = _within(cls.__module__, LIBRARIES) and not _within(cls.__module__, ("dataclasses", "types", "typing"))
        if library or not cls.__flags__ & _HEAP_TYPE:
            raise Unknown(f"an object of {cls.__module__}.{cls.__qualname__}, whose content is not accessible")
        return _item("object", self.written(cls), self._state(value))

    def _state(self, value: Any) -> bytes:
        """Form of the state of a Python object: its attributes and slots, without cached properties."""
        held = dict(getattr(value, "__dict__", {}))
        for cls in type(value).__mro__:
            for name in _slots(cls):
                if hasattr(value, name):
                    held[name] = getattr(value, name)
        known = [k for k in held if isinstance(getattr(type(value), k, None), cached_property)]
        return _item("state", *[part for k, v in held.items() if k not in known for part in self._all(k, v)])

    def _namespace(self, value: types.SimpleNamespace) -> bytes:
        """Form of a SimpleNamespace: its class by name, and its attributes."""
        return _item("namespace", *self._all(type(value).__qualname__, vars(value)))

    def _enum(self, value: enum.Enum) -> bytes:
        """Form of a member of an enumeration: its class by name, its name and value."""
        return _item("member", *self._all(type(value).__module__, type(value).__qualname__, value.name, value.value))

    def _slot(self, value: Any) -> bytes:
        """Form of a descriptor that is not written in Python: its kind and name."""
        return _item("slot", type(value).__name__.encode(), value.__name__.encode())

    def _getter(self, value: Any) -> bytes:
        """Form of a NamedTuple's field: its index."""
        return _item("getter", self.written(value.__reduce__()[1][0]))

    def _cached(self, value: cached_property) -> bytes:
        """Form of a cached property: the form of its function, marked "cached"."""
        return _item("cached", self.written(value.func))


@lru_cache(maxsize=4096)
def _reads(code: types.CodeType) -> tuple[tuple[tuple[str, tuple[str, ...]], ...], str]:
    """Global names that a code object reads, with the attributes read of each, and ''; or () and a reason if they are unknown."""
    found: list[tuple[str, tuple[str, ...]]] = []
    steps = [s for s in dis.get_instructions(code) if s.opname not in ("CACHE", "PRECALL", "PUSH_NULL")]
    for i, step in enumerate(steps):
        name = step.argval
        if step.opname in _STORES or (step.opname == "STORE_DEREF" and name in code.co_freevars):
            return (), f"changes {name!r}, which it does not own"
        if step.opname == "IMPORT_NAME" and not _within(name or None, TOOLKIT + LIBRARIES):
            return (), f"imports {name!r} when called; import it at the top of its module"
        if step.opname in (*_ATTRIBUTES, "IMPORT_FROM") and name in _IMPURE:
            return (), f"uses {name!r}, which may return a different value each time"
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            after = itertools.takewhile(lambda s: s.opname in _ATTRIBUTES, steps[i + 1 :])
            found.append((name, tuple(s.argval for s in after)))
    return tuple(found), ""


def _pure_builtin(name: str) -> bool:
    """True if a builtin's result depends on its arguments alone: one in _BUILTINS, or an exception."""
    found = getattr(builtins, name)
    return name in _BUILTINS or (isinstance(found, type) and issubclass(found, BaseException))


def _slots(cls: type) -> tuple[str, ...]:
    """Names of the slots that a class itself defines."""
    slots = cls.__dict__.get("__slots__", ())
    slots = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(s for s in slots if s not in ("__dict__", "__weakref__"))


def _resolved(value: Any) -> Any:
    """Object that the module of a class or function has under its qualified name; None if there is none."""
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found


def _named(f: types.FunctionType) -> str:
    """Name of a function with its file and line, for messages."""
    return f"function {f.__qualname__} ({f.__code__.co_filename}:{f.__code__.co_firstlineno})"


def _float(value: float) -> bytes:
    """Form of a float: its eight bytes, so that 0.0 and -0.0 differ."""
    return _item("float", struct.pack("<d", value))


_PLAIN: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: _item("none"),
    type(Ellipsis): lambda _: _item("ellipsis"),
    type(NotImplemented): lambda _: _item("not implemented"),
    bool: lambda v: _item("bool", b"1" if v else b"0"),
    int: lambda v: _item("int", str(v).encode()),
    float: _float,
    complex: lambda v: _item("complex", struct.pack("<dd", v.real, v.imag)),
    str: lambda v: _item("str", v.encode("utf-8", "surrogatepass")),
    bytes: lambda v: _item("bytes", v),
    range: lambda v: _item("range", repr(v).encode()),
}
_KINDS: tuple[tuple[Any, Callable[[_Writer, Any], bytes]], ...] = (
    (np.ndarray, _Writer._array),
    (np.generic, _Writer._number),
    (enum.Enum, _Writer._enum),
    (types.SimpleNamespace, _Writer._namespace),
    ((tuple, list), _Writer._sequence),
    (slice, _Writer._slice),
    ((set, frozenset), _Writer._set),
    ((dict, types.MappingProxyType), _Writer._mapping),
    (types.FunctionType, _Writer._function),
    (types.CodeType, _Writer._code),
    (types.MethodType, _Writer._method),
    ((staticmethod, classmethod, functools._lru_cache_wrapper), _Writer._wrapper),
    (property, _Writer._property),
    (cached_property, _Writer._cached),
    (functools.partial, _Writer._partial),
    ((types.BuiltinFunctionType, types.MethodWrapperType, np.ufunc), _Writer._builtin),
    ((types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType), _Writer._slot),
    (_TUPLE_GETTER, _Writer._getter),
    (type, _Writer._class),
)
