"""NumPy interface of scalars: user functions receive arrays of entries, so that NumPy functions work on every number type.

An :class:`Entry` holds one scalar of any kind (:mod:`dynamics_backends.scalar`) with its whole batch; :class:`Entries` is an
array of entries. x (nx, N) becomes Entries of the shape (nx,), the state at one knot: ``np.sum(x)``, ``np.linalg.norm(x[:3])``,
``A @ x``, ``x @ P @ x``, ``a, b = x``, ``np.where(x > 0, ...)``, indexing, stacking and reshaping have the same meaning as for an
array of numbers.  ``__array_ufunc__`` and ``__array_function__`` redirect elementwise functions to
:mod:`~dynamics_backends.scalars.functions`, and functions that branch on values or call LAPACK to
:mod:`~dynamics_backends.scalars.entry_functions`; NumPy itself does matrix products and indexing, on arrays of objects.

Operations that need a known number (``if x[0] > 0``, ``math.sin(x[0])``, ``float(x[0])``, an index) raise :class:`NoNumber`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce, wraps
from typing import Any, NoReturn

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.scalars.functions import FUNCTIONS, LOGIC, TRUTHS, choose, is_number

Array = np.ndarray


class NoNumber(TypeError):
    """A user's function needs the value of an entry, which represents many values, or calls a function without a rule."""


def _refuse(what: str) -> Callable[..., NoReturn]:
    """Return a method that raises NoNumber; ``what`` begins its message."""

    def method(self: Any, *_: Any) -> NoReturn:
        """Raise NoNumber."""
        raise NoNumber(f"{what} needs a single value, but the argument represents many values")

    return method


class Entry:
    """One ``scalar``; ``is_truth``: True for the result of a comparison, 1.0 or 0.0."""

    __slots__ = ("is_truth", "scalar")
    shape: tuple[int, ...] = ()
    ndim, size = 0, 1
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, scalar: Scalar, is_truth: bool = False) -> None:
        self.scalar, self.is_truth = scalar, is_truth

    def __repr__(self) -> str:
        return f"Entry({type(self.scalar).__name__})"

    __bool__ = _refuse(
        "a Python condition (if, while, and, or, not, min, max; use np.where, np.minimum, ...), or NumPy's maximum, minimum, max "
        "or min of a list (write np.array([...], like=x) for the list),"
    )
    __float__ = _refuse(
        "a function that takes floats only (math.sin and its like; use np.sin), or a place in an array of floats,"
    )
    __complex__ = _refuse("a function that takes complex numbers only")
    __int__ = __index__ = __round__ = __trunc__ = _refuse("an integer or an index")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return apply(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: tuple, kwargs: dict) -> Any:
        return call(function, args, kwargs)

    # -- interface of the scalar module -----------------------------------------------------------------------------------
    @staticmethod
    def stack(components: Sequence[Any]) -> Entries:
        """Array (Entries) of a list of entries and numbers."""
        return entries(list(components))

    @staticmethod
    def concatenate(parts: Sequence[Any]) -> Entries:
        """Entries of all components of the parts, in their order."""
        return entries([component for part in parts for component in part])

    @staticmethod
    def select_by(decider: Any, where_positive: Any, otherwise: Any) -> Any:
        """``where_positive`` where the real part of ``decider`` is > 0, else ``otherwise``; both are evaluated."""
        return _each(_on_entries(sm.select), (decider, where_positive, otherwise))

    @staticmethod
    def atan2(y: Any, x: Any) -> Any:
        """Angle of the point (x, y), element by element."""
        return _each(_on_entries(sm.atan2), (y, x))

    @property
    def T(self) -> Entry:
        """The entry itself, as a scalar has no axes."""
        return self

    @property
    def real(self) -> Entry:
        """The entry itself: entries count as real, so that complex steps pass through."""
        return self

    def item(self) -> Entry:
        """The entry itself, also as its conjugate (``conjugate``, ``conj``)."""
        return self

    def copy(self) -> Entry:
        """The entry itself, which is immutable."""
        return self

    conjugate = conj = item


class Entries(np.ndarray):
    """Array of objects: entries and plain numbers."""

    stack, concatenate, select_by, atan2 = Entry.stack, Entry.concatenate, Entry.select_by, Entry.atan2

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply a universal function of NumPy by :func:`apply`."""
        return apply(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Call another function of NumPy by :func:`call`."""
        return call(function, args, kwargs)


def entries(values: Any) -> Entries:
    """Entries from nested sequences of entries and numbers; an entry is one element."""
    return np.array(values, dtype=object).view(Entries)


def _on_entries(rule: Callable[..., Scalar], truth: bool = False) -> Callable[..., Any]:
    """Make a function of scalars one of :class:`Entry` objects and plain numbers that returns an Entry.

    truth: the result is a truth value, such as that of a comparison.
    """

    def function(*inputs: Any) -> Entry:
        """Entry with the rule's value; a truth value if ``truth``."""
        return Entry(rule(*map(unboxed, inputs)), truth)

    return function


def _on_truth_values(rule: Callable[..., Scalar]) -> Callable[..., Entry]:
    """Lift a logical function of 1.0 and 0.0 to entries and plain numbers."""
    return lambda *inputs: Entry(rule(*map(_truth, inputs)), True)


def _truth(x: Any) -> Scalar:
    """Truth value as 1.0 or 0.0: a number is true if it is not zero."""
    if isinstance(x, Entry):
        return x.scalar if x.is_truth else TRUTHS["not_equal"](x.scalar, 0.0)
    return 1.0 if x else 0.0


def _chosen(condition: Any, a: Any, b: Any) -> Any:
    """a where the condition is true, else b; an entry if the condition is one."""
    if not isinstance(condition, Entry):
        return a if condition else b
    return Entry(choose(_truth(condition), unboxed(a), unboxed(b)), _is_boolean(a) and _is_boolean(b))


def _is_boolean(x: Any) -> bool:
    """True for a result of a comparison or a plain bool."""
    return x.is_truth if isinstance(x, Entry) else isinstance(x, (bool, np.bool_))


HANDLED: dict[Any, Callable[..., Any]] = {}
"""Implementations of NumPy functions for entries, registered by :mod:`~dynamics_backends.scalars.entry_functions`."""
RULES: dict[str, Callable[..., Any]] = {
    **{name: _on_entries(rule) for name, rule in FUNCTIONS.items()},
    **{name: _on_entries(rule, True) for name, rule in TRUTHS.items()},
    **{name: _on_truth_values(rule) for name, rule in LOGIC.items()},
}
"""Elementwise functions of entries and numbers, by NumPy's names."""


# -- NumPy's protocols ----------------------------------------------------------------------------------------------------


def apply(ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """Apply a universal function of NumPy, by its method such as "__call__" or "reduce", to entries (NEP 13).

    options: keyword arguments; a result for ``out`` is written to its first array. Raises NoNumber for a function or method
    without a rule, and for ``where`` in a call.
    """
    out = options.pop("out", None)
    name = ufunc.__name__
    if ufunc.signature is not None:  # matmul and similar functions
        result = wrapped(ufunc(*map(_objects, inputs), **options))
    elif name not in RULES:
        raise NoNumber(f"np.{name} has no rule for numbers that are differentiated or traced")
    elif method == "__call__":
        where = options.get("where", True)
        if where is not True:
            raise NoNumber(f"np.{name}(..., where=...) is not supported; use np.where")
        result = _each(_rule(ufunc), inputs)
    elif method == "reduce":
        result = _reduced(_rule(ufunc), ufunc, *inputs, **options)
    elif method == "outer":
        a, b = map(_objects, inputs)
        result = _each(_rule(ufunc), (a.reshape(a.shape + (1,) * b.ndim), b))
    elif name in ("add", "multiply"):
        result = wrapped(getattr(ufunc, method)(*map(_objects, inputs), **options))
    else:
        raise NoNumber(f"np.{name}.{method} is not supported")
    if out is None:
        return result
    out[0][...] = result
    return out[0]


def _rule(ufunc: np.ufunc) -> Callable[..., Any]:
    """Rule for entries; NumPy's function if all inputs are numbers."""
    rule = RULES[ufunc.__name__]
    return lambda *inputs: rule(*inputs) if any(isinstance(x, Entry) for x in inputs) else ufunc(*inputs)


def _each(rule: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    """Apply a rule to every element, with NumPy's broadcasting."""
    if all(isinstance(x, Entry) or is_number(x) for x in inputs):
        return rule(*inputs)
    return wrapped(np.frompyfunc(rule, len(inputs), 1)(*map(_objects, inputs)))


def _reduced(
    rule: Callable[..., Any],
    ufunc: np.ufunc,
    x: Any,
    axis: Any = 0,
    dtype: Any = None,
    keepdims: bool = False,
    **options: Any,
) -> Any:
    """Reduce an array of entries over axes by a rule, as ufunc.reduce; dtype and other options but ``initial`` are ignored.

    Raises NoNumber for a mask (where=).
    """
    if options.get("where", True) is not True:
        raise NoNumber(f"np.{ufunc.__name__}.reduce(..., where=...) is not supported; use np.where")
    x = _objects(x)
    axes = tuple(range(x.ndim)) if axis is None else tuple(a % x.ndim for a in np.atleast_1d(axis))
    remaining = [a for a in range(x.ndim) if a not in axes]
    rows = x.transpose(*axes, *remaining).reshape(-1, *(x.shape[a] for a in remaining))
    start = options.get("initial")
    parts = [*([] if start is None or start is np._NoValue else [start]), *rows]
    if not parts:
        return wrapped(ufunc.reduce(np.zeros((0, *rows.shape[1:])), axis=0))
    total = reduce(lambda a, b: _each(rule, (a, b)), parts)
    if keepdims:
        total = _objects(total).reshape([1 if a in axes else n for a, n in enumerate(x.shape)])
    return wrapped(total)


def call(function: Any, args: tuple, kwargs: dict) -> Any:
    """Call a NumPy function on entries (NEP 18): its rule in HANDLED, or NumPy's function on arrays of objects."""
    implementation = HANDLED.get(function)
    if implementation is not None:
        return implementation(*args, **kwargs)
    plain = [_replaced(a) for a in args]
    return wrapped(function(*plain, **{k: _replaced(v) for k, v in kwargs.items()}))


def _replaced(x: Any, nested: bool = False) -> Any:
    """Argument as plain arrays of objects, for NumPy's functions; a list with entries within a list becomes an array."""
    if isinstance(x, (Entry, Entries)):
        return _objects(x)
    if type(x) not in (list, tuple):
        return x
    if nested and any(isinstance(e, Entry) for e in x):
        return np.array(x, dtype=object)
    return type(x)(_replaced(e, nested=True) for e in x)


def _objects(x: Any) -> Array:
    """Array of objects; an entry as an array without axes."""
    if isinstance(x, np.ndarray):
        return x.view(np.ndarray) if x.dtype == object else x.astype(object)
    if isinstance(x, Entry):
        boxed = np.empty((), dtype=object)
        boxed[()] = x
        return boxed
    return np.array(x, dtype=object)


def wrapped(result: Any) -> Any:
    """Convert arrays of objects, also in lists and tuples, to Entries, or without axes to their element; others unchanged."""
    if isinstance(result, np.ndarray) and result.dtype == object:
        return result[()] if result.ndim == 0 else result.view(Entries)
    return type(result)(map(wrapped, result)) if type(result) in (list, tuple) else result


# -- Python's operators ---------------------------------------------------------------------------------------------------


def _operator(name: str, reflected: bool = False) -> Callable[[Entry, Any], Any]:
    """Method of Entry for a binary operator, by NumPy's name of the rule."""
    rule = RULES[name]

    def method(self: Entry, other: Any) -> Any:
        """Apply the rule to entries and numbers; NotImplemented for arrays, which apply it element by element."""
        if not (isinstance(other, Entry) or is_number(other)):
            return NotImplemented  # an array handles it element by element
        return rule(other, self) if reflected else rule(self, other)

    return method


_OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "pow": "power",
    "mod": "remainder",
}
_OPERATORS |= {"floordiv": "floor_divide", "and": "logical_and", "or": "logical_or", "xor": "logical_xor"}
_COMPARISONS = {
    "gt": "greater",
    "ge": "greater_equal",
    "lt": "less",
    "le": "less_equal",
    "eq": "equal",
    "ne": "not_equal",
}
_UNARY = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "logical_not"}
for _key, _name in _OPERATORS.items():
    setattr(Entry, f"__{_key}__", _operator(_name))
    setattr(Entry, f"__r{_key}__", _operator(_name, reflected=True))
for _key, _name in _COMPARISONS.items():
    setattr(Entry, f"__{_key}__", _operator(_name))
for _key, _name in _UNARY.items():
    setattr(Entry, f"__{_key}__", RULES[_name])
for (
    _name
) in FUNCTIONS:  # methods by NumPy's names: NumPy calls them on arrays of objects, the scalar module on its numbers
    if not hasattr(Entry, _name):
        setattr(Entry, _name, RULES[_name])


# -- conversion -----------------------------------------------------------------------------------------------------------


def count(rows: Rows) -> int:
    """Number of scalars in rows, or in a list."""
    if isinstance(rows, (list, tuple)):
        return len(rows)
    return int(rows.numel() if hasattr(rows, "is_symbolic") else rows.shape[0])


def from_rows(rows: Rows) -> Entries:
    """Entries (n,) of rows (n, N), or of a list of scalars."""
    found = np.empty(count(rows), dtype=object)
    for i in range(len(found)):
        found[i] = rows[i] if isinstance(rows[i], Entry) else Entry(rows[i])
    return found.view(Entries)


def unboxed(x: Any) -> Scalar:
    """Scalar of an entry; a number unchanged."""
    return x.scalar if isinstance(x, Entry) else x


def to_rows(x: Entry | Entries) -> Any:
    """Scalars that entries hold, of any number type, without the entries around them.

    These are the scalar of an entry, the rows (n, N) of an array, and a list of such rows for a table (2-D array).
    """
    if isinstance(x, Entry):
        return x.scalar
    return sm.stack(list(map(unboxed, x))) if x.ndim == 1 else [to_rows(row) for row in x]


def takes_entries(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: let positional arguments of a function of rows also be entries, or arrays (n,) of the numbers of one knot.

    The function then returns entries for entries, and numbers without the batch axis for arrays (n,).
    """

    @wraps(function)
    def either(*args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(a, (Entry, Entries)) or _holds_entries(a) for a in args):
            if any(map(_is_one, args)):
                return _without_batch(function(*[a[:, None] if _is_one(a) else a for a in args], **kwargs))
            return function(*args, **kwargs)
        found = function(*map(_as_rows, args), **kwargs)
        return from_rows(found) if hasattr(found, "is_symbolic") else _as_entries(found)

    return either


def _is_one(x: Any) -> bool:
    """True for an array (n,) of the numbers of one knot."""
    return type(x) is np.ndarray and x.ndim == 1 and x.dtype.kind in "fc"


def _without_batch(x: Any) -> Any:
    """Results at the only knot of a batch."""
    if isinstance(x, (list, tuple)):
        parts = map(_without_batch, x)
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return x[..., 0] if np.ndim(x) else x


def _holds_entries(x: Any) -> bool:
    """True for a list with at least one entry."""
    return type(x) is list and any(isinstance(e, Entry) for e in x)


def _as_rows(x: Any) -> Any:
    """Rows of entries; other arguments unchanged."""
    if _holds_entries(x):
        return list(map(unboxed, x))
    return to_rows(x) if isinstance(x, (Entry, Entries)) else x


def _as_entries(x: Any) -> Any:
    """Entries of rows, also within lists and tuples."""
    if isinstance(x, (list, tuple)):
        parts = [_as_entries(e) for e in x]
        if isinstance(x, list):
            return entries(parts)
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    shape = getattr(x, "shape", ())
    if hasattr(x, "is_symbolic"):
        return Entry(x) if shape == (1, 1) else from_rows(x)
    return Entry(x) if len(shape) < 2 else from_rows(x) if len(shape) == 2 else entries([_as_entries(e) for e in x])
