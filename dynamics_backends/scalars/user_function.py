"""User functions of one knot, called with every kind of number, and messages about functions that fail or cannot be traced.

``function(x, u, t, p)`` is written for one state, as for CasADi, JAX or autograd; it is called with batches, derivatives and
symbols.  The first of three evaluation modes that agrees with the function at single knots is used:

    rows      with the numbers themselves, x (nx, N): arithmetic, indexing, the functions of :mod:`dynamics_backends.scalar`
    entries   with :class:`~dynamics_backends.scalars.entries.Entries` in the shape (nx,): NumPy functions with a derivative
    points    knot by knot with arrays of floats (nx,): any code; derivatives by central differences, no symbols

Three knots are evaluated as a batch and one by one, to detect functions such as ``np.sum(x)`` that would add up the batch.
Evaluation by points is logged once, with the reason in ``why``.  A message names the function, the line in its source, and the
remedy.
"""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import nullcontext
from inspect import signature
from pathlib import Path
from traceback import extract_tb
from typing import Any

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.scalars import entry_functions as entry_functions
from dynamics_backends.scalars.entries import Entries, Entry, NoNumber, count, from_rows, unboxed
from dynamics_backends.scalars.functions import has_power
from dynamics_backends.scalars.points import evaluated_at, on_numbers
from dynamics_backends.symbols import ca, numpy_by_methods

PACKAGES = ("dynamics_backends", "trajopt")
"""Packages whose functions accept rows of any number type; their lines are not reported as user code."""
_ROOT = Path(__file__).parents[2]
_LIBRARIES = (*(f"{_ROOT / name}/" for name in PACKAGES), f"{Path(np.__file__).parent}/")
_OTHERS = ("/casadi/", "<frozen ")


def described(function: Any) -> str:
    """Name of a function with its file and line, or the class of a callable object."""
    function = _whole(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return type(function).__name__
    return f"function {function.__qualname__} ({code.co_filename}:{code.co_firstlineno})"


LONGEST_LINE = 80
"""Number of characters of a line of code in messages."""


def user_code_line(error: Exception, function: Any) -> str:
    """Line of user code that raised an error, " in line 3, `...`", with the file if it differs; "" for library code.

    function: whose file is known to readers of the message; None for none.
    """
    frames = [f for f in extract_tb(error.__traceback__) if not _in_a_library(f.filename)]
    if not frames:
        return ""
    code, last = getattr(_whole(function), "__code__", None), frames[-1]
    file = "" if code is not None and code.co_filename == last.filename else f" of {last.filename}"
    text = last.line or ""
    text = text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]} ..."
    return f" in line {last.lineno}{file}, `{text}`"


def _takes_four(function: Any) -> bool:
    """True if a function can be called with four arguments, or its signature is unknown."""
    try:
        signature(function).bind(None, None, None, None)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def mistake(function: Any, error: Exception, sizes: Mapping[str, int], parameters: Mapping[str, Any]) -> str:
    """Sentence about an error that a user's function always raises: cause, line, and a remedy for common mistakes.

    sizes: lengths of x and u, by these names. parameters: by name. An error whose message begins with the function's name is
    returned as it is.
    """
    message = (str(error).strip() or "no message").splitlines()[-1].rstrip(".")
    if message.startswith(described(function)):
        return message
    what = f"{type(error).__name__}: {message}"
    if type(error) is KeyError and error.args[0] not in parameters:
        name, known = error.args[0], ", ".join(parameters) or "none"
        what = f"there is no parameter {name!r} (given: {known}); give it, parameters={{{name!r}: ...}}"
    elif writes(error):
        what = "it writes into its argument, which is the solver's: work on a copy, `x = x.copy()`, or make a new list"
    elif not sizes["u"] and (
        (isinstance(error, IndexError) and "size 0" in message)
        or (isinstance(error, ValueError) and "got 0)" in message)
    ):
        what = (
            f"{message}: it is called without controls; if it reads them, give their number, nu=..."
            " (a terminal term has none)"
        )
    elif isinstance(error, TypeError) and not _takes_four(function):
        what = "it is called with the four arguments (x, u, t, p), in this order"
    elif isinstance(error, IndexError):
        what = f"{message}; {' and '.join(f'{name} has {n} numbers' for name, n in sizes.items())}"
    return f"{described(function)} fails{user_code_line(error, function)}: {what}"


def writes(error: Exception | None) -> bool:
    """True for the error of an assignment to a read-only array."""
    return isinstance(error, ValueError) and "read-only" in str(error)


def _whole(function: Any) -> Any:
    """Function inside of functools.partial wrappers."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _in_a_library(file: str) -> bool:
    """True for source files of this project's packages, NumPy, CasADi and Python's frozen modules."""
    return file.startswith(_LIBRARIES) or any(part in file for part in _OTHERS)


Array = np.ndarray
Function = Callable[[Any, Any, Any, Mapping[str, Any]], Any]
KNOTS, SPREAD, AGREES = 3, 1e-2, 1e-9
"""Number of test knots, their spread, and the tolerance of the comparison between modes."""
_LOG = logging.getLogger(__name__)
_REMEDY = "use arithmetic and NumPy functions (np.where for if) for exact derivatives and compiled code"
_UNLIKE = (
    "plain numbers and numbers with derivatives give different results (does it test types, modify its arguments, or store "
    "state between calls?)"
)
_ARRAY = "`np.array(..., like=x)` instead of `np.array(...)` keeps the elements of the array traceable"


class NoResult(ValueError):
    """A user's function returns None, complex numbers for real arguments, or an object without numbers."""


def locked(rows: Any) -> Any:
    """Read-only view of an array or a dual number; others unchanged."""
    if isinstance(rows, np.ndarray):
        view = rows.view()
        view.flags.writeable = False
        return view
    return rows.locked() if hasattr(rows, "locked") else rows


class UserFunction:
    """User ``function`` with ``n_out`` results; ``why``: reason for evaluation by points, "" for the other modes."""

    def __init__(self, function: Function, n_out: int) -> None:
        self.function, self.n_out, self.why = function, n_out, ""
        self._modes: dict[str, str] = {}
        self._undefined = False
        self._is_library = _is_library_function(function)

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Any:
        """Results of the function in the mode for the number type of its arguments, chosen at the first call with it.

        They are Entries (n_out,) if arguments are entries, and rows (n_out, N) in the modes entries and points; in the mode rows,
        and for functions of this library, they are what the function returns for rows, such as a list of n_out rows.

        Raises NoNumber for symbols if the function needs numbers, ValueError for another number of results (in the modes entries
        and points), and the function's exception if all modes fail, with a note on the line and the remedy.
        """
        kind = "own" if self._is_library else _kind((x, u, t, *p.values()))
        if kind == "own":
            return self.function(x, u, t, p)
        if kind == "entries":
            return Entry.stack(_components(self.function(x, u, t, p)))
        given = (locked(x), locked(u), locked(t), {name: locked(rows) for name, rows in p.items()})
        try:
            if "float" not in self._modes:
                self._decide(*_numbers(*given))
            with numpy_by_methods() if kind == "symbols" else nullcontext():
                if kind in self._modes:
                    return self._call_in_mode(self._modes[kind], given)
                return self._first_that_works(kind, given)
        except NoNumber:  # its message is complete
            raise
        except Exception as error:
            if not getattr(error, "__notes__", ()):
                error.add_note(mistake(self.function, error, {"x": count(x), "u": count(u)}, p))
            raise

    def _first_that_works(self, kind: str, given: tuple) -> Any:
        """Result in the first mode that works for this kind of number; the mode is stored.

        Raises the last mode's error if all fail, and a KeyError at once. If symbols and numbers give different results, floats
        use points from now on, and NoNumber is raised. Logs evaluation by points.
        """
        complaints: list[Exception] = []
        for mode in self._candidates(kind):
            try:
                with warnings.catch_warnings():
                    if kind == "symbols":  # CasADi warns about NumPy functions that it does not support
                        warnings.simplefilter("error", FutureWarning)
                    found = self._call_in_mode(mode, given)
            except KeyError:  # a missing parameter fails in every mode
                raise
            except Exception as error:
                complaints.append(error)
                continue
            if kind == "symbols" and not self._agrees_on_symbols(mode, given):
                self._modes.clear()
                self._modes["float"] = "points"
                self._warn(NoNumber(_UNLIKE))
                raise NoNumber(self.why)
            self._modes[kind] = mode
            if kind == "symbols" and mode == "rows" and has_power(found):
                return self._prefer_entries(found, given)
            if mode == "points" and not self.why:
                self._warn(complaints[-1])
            return found
        raise complaints[-1]

    def _prefer_entries(self, found: Any, given: tuple) -> Any:
        """Result by entries, whose powers are differentiable at zero; ``found``, the result by rows, if entries fail."""
        try:
            by_entries = self._by_entries(given)
        except Exception:
            return found
        self._modes["symbols"] = "entries"
        return by_entries

    def _candidates(self, kind: str) -> list[str]:
        """Modes to try for a kind of number, best first. Raises NoNumber for symbols if only points work."""
        best = self._modes.get("float", "rows")
        if kind == "symbols":
            if best == "points":
                raise NoNumber(self.why)
            return ["entries"] if best == "entries" else ["rows", "entries"]
        if kind == "complex":  # no rows: NumPy's abs, sign and others are not analytic, and would lose derivatives
            return ["points"] if best == "points" else ["entries", "points"]
        return {"rows": ["rows", "entries", "points"], "entries": ["entries", "points"], "points": ["points"]}[best]

    def _call_in_mode(self, mode: str, given: tuple) -> Any:
        """Result of the function in a mode: rows, entries or points."""
        if mode == "rows":
            return self._returned(self.function(*given))
        return self._by_entries(given) if mode == "entries" else on_numbers(self._at_points, self.n_out, given)

    def _by_entries(self, given: tuple) -> Rows:
        """Rows of the function's results for arguments as entries."""
        x, u, t, p = given
        known = {name: from_rows(rows) for name, rows in p.items()}
        given = (
            locked(from_rows(x)),
            locked(from_rows(u)),
            Entry(t),
            {name: locked(rows) for name, rows in known.items()},
        )
        results = self.counted(_components(self._returned(self.function(*given))))
        zero = zero_of(x, u, t)
        return sm.stack([unboxed(e) + zero for e in results])

    def _at_points(self, x: Array, u: Array, t: Array, p: Mapping[str, Array]) -> Array:
        """Values (n_out, N) of the function called knot by knot with floats.

        Once this is the mode, ArithmeticError and ValueError count as NaN, as of math.sqrt outside its domain.
        """
        decided = self._modes.get("float") == "points"

        def call(*given: Any) -> Any:
            """Return the function's result, or NaN where it is undefined; the first such error is logged."""
            try:
                return self.function(*given)
            except (ArithmeticError, ValueError) as error:
                if not decided:
                    raise
                if not self._undefined:
                    _LOG.warning("%s fails and counts as NaN there: %s", described(self.function), error)
                self._undefined = True
                return [float("nan")] * self.n_out

        def numbers(result: Any) -> list[Any]:
            """Return the result as a list of n_out real numbers."""
            return self._real(self.counted(_components(self._returned(result))))

        return evaluated_at(call, numbers, x, u, t, p)

    def _returned(self, result: Any) -> Any:
        """Return the result, an array of objects as a list. Raises NoResult for None and objects that are no sequence."""
        if result is None or isinstance(result, (Mapping, Iterator, Set, str)):
            what = "None" if result is None else f"a {type(result).__name__}"
            raise NoResult(
                f"{described(self.function)} returns {what}: end it with `return [...]`, a list of n_out = {self.n_out} numbers"
            )
        if isinstance(result, np.ndarray) and result.dtype == object:
            return [np.array(row.tolist()) if isinstance(row, np.ndarray) else row for row in result]
        return result

    def _real(self, results: list[Any]) -> list[Any]:
        """Return the results of real arguments. Raises NoResult if one is complex."""
        if any(np.iscomplexobj(c) for c in results):
            raise NoResult(f"{described(self.function)} returns complex numbers for real arguments: use real functions")
        return results

    def counted(self, results: list[Any]) -> list[Any]:
        """Return the results. Raises ValueError unless there are n_out."""
        if len(results) != self.n_out:
            raise ValueError(f"{described(self.function)} returned {len(results)} rows; expected n_out = {self.n_out}")
        return results

    # -- choice of the mode -----------------------------------------------------------------------------------------------
    def _decide(self, x: Array, u: Array, t: Array, p: Mapping[str, Array]) -> None:
        """Choose and store the mode for floats from the function's values at test knots; none if the function fails there.

        Rows if a batch agrees with single knots, else entries if they agree with single knots or single knots fail, else points,
        which is logged. Raises KeyError for a missing parameter, NoResult, and the error of writing into an argument.
        """
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                if self._agrees_in_batches(x, u, t, p):
                    self._modes["float"] = "rows"
                    return
            except KeyError:
                raise
            except Exception:  # a limitation of rows, not an error of the function
                pass
            found, complaint = _attempted(lambda: self._by_entries((x, u, t, p)))
            alone, failure = _attempted(lambda: self._at_points(x, u, t, p))
        for error in (complaint, failure):
            if error is not None and (isinstance(error, NoResult) or writes(error)):
                raise error
        if found is not None and (alone is None or _agree(found, alone)):
            self._modes["float"] = "entries"
        elif failure is None:
            self._modes["float"] = "points"
            self._warn(complaint or NoNumber(_UNLIKE))

    def _agrees_in_batches(self, x: Array, u: Array, t: Array, p: Mapping[str, Array]) -> bool:
        """True if a batch of test knots has the same values as its knots one by one."""

        def value(part: slice) -> Array:
            """Function's rows (n_out, knots) for a slice of the test knots, with read-only copies of the arguments."""
            known = {k: locked(v[:, part].copy()) for k, v in p.items()}
            rows = self.function(locked(x[:, part].copy()), locked(u[:, part].copy()), locked(t[part].copy()), known)
            return np.stack([r + 0.0 * t[part] for r in self._real(list(rows))])

        together = value(slice(None))
        alone = [value(slice(i, i + 1)) for i in range(KNOTS)]
        return all(a.shape == (len(together), 1) for a in alone) and _agree(together, np.concatenate(alone, axis=1))

    def _agrees_on_symbols(self, mode: str, given: tuple) -> bool:
        """True if the function has equal values by symbols and by numbers, or if comparing both at test numbers fails."""
        x, u, t, p = numbers = _numbers(*given)
        symbols = [
            ca.SX.sym("x", len(x)),
            ca.SX.sym("u", len(u)),
            ca.SX.sym("t"),
            *(ca.SX.sym("p", len(v)) for v in p.values()),
        ]
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                result = self._call_in_mode(mode, (*symbols[:3], dict(zip(p, symbols[3:], strict=True))))
                rows = ca.vertcat(*result) if isinstance(result, (list, tuple)) else ca.SX(result)
                function = ca.Function("traced", symbols, [ca.densify(rows)])
                traced = np.asarray(function.map(KNOTS)(x, u, t[None], *p.values()))
                return _agree(traced, self._at_points(*numbers))
        except Exception:  # no evidence against symbols
            return True

    def _warn(self, complaint: Exception) -> None:
        """Store (in ``why``) and log the reason for evaluation by points, with the line and the remedy."""
        what = (str(complaint).strip() or type(complaint).__name__).splitlines()[-1].rstrip(".")
        how = "is evaluated knot by knot in Python with finite differences, which may take minutes"
        remedy = _ARRAY if "dtype('O')" in what else _REMEDY  # LAPACK rejects arrays of objects
        self.why = f"{described(self.function)} {how}: {what}{user_code_line(complaint, self.function)}; {remedy}"
        _LOG.warning("%s", self.why)


def zero_of(x: Rows, u: Rows, t: Scalar) -> Scalar:
    """Zero with the batch and number type of the first row of x, of u if x is empty, else of t."""
    return 0.0 * next((rows[0] for rows in (x, u) if count(rows)), t)


def _is_library_function(function: Any) -> bool:
    """True for a function, also a partial one, of the packages in PACKAGES."""
    while isinstance(function, functools.partial):
        function = function.func
    return (getattr(function, "__module__", None) or "").partition(".")[0] in PACKAGES


def _attempted(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """Result of a call and None, or None and its exception; a KeyError is raised."""
    try:
        return call(), None
    except KeyError:
        raise
    except Exception as error:
        return None, error


def _agree(a: Array, b: Array) -> bool:
    """True if two arrays have one shape and equal values up to AGREES (relative plus absolute); NaN equals NaN."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    return a.shape == b.shape and np.allclose(a, b, rtol=AGREES, atol=AGREES, equal_nan=True)


def _components(result: Any) -> list[Any]:
    """Flatten a function's result to a list of scalars: nested lists, arrays and scalars, in their order."""
    if isinstance(result, (list, tuple)):
        if not any(isinstance(part, (list, tuple, np.ndarray)) for part in result):
            return list(result)
        return [c for part in result for c in _components(part)]
    if isinstance(result, np.ndarray):
        return list(result.ravel())
    return [result]


def _kind(rows: Sequence[Any]) -> str:
    """Number type of all arguments: the first of entries, symbols, other, complex that any of them has, else float."""
    kinds = {_kind_of(r) for r in rows}
    return next((k for k in ("entries", "symbols", "other", "complex") if k in kinds), "float")


def _kind_of(x: Any) -> str:
    """Number type of one argument: entries, symbols, other, complex or float."""
    x = next(iter(x), 0.0) if isinstance(x, (list, tuple)) else x
    if isinstance(x, (Entry, Entries)):
        return "entries"
    if hasattr(x, "is_symbolic"):
        return "symbols"
    if not isinstance(x, (np.ndarray, np.generic, float, int, complex)):
        return "other"
    return "complex" if np.iscomplexobj(x) else "float"


def _numbers(x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> tuple[Array, Array, Array, dict[str, Array]]:
    """KNOTS distinct test knots x, u, t, p near those of the arguments; random numbers in place of symbols."""
    rng = np.random.default_rng(0)

    def near(rows: Any) -> Array:
        """Test values (n, KNOTS) for rows."""
        parts = [rows[i] for i in range(count(rows))]
        return np.stack([_test_values(part, rng) for part in parts]) if parts else np.zeros((0, KNOTS))

    return near(x), near(u), _test_values(t, rng), {name: near(rows) for name, rows in p.items()}


def _test_values(x: Scalar, rng: np.random.Generator) -> Array:
    """KNOTS distinct test values near those of a number; random ones for a symbol."""
    noise = rng.uniform(0.1, 0.9, KNOTS)
    if hasattr(x, "is_symbolic"):
        return noise
    here = np.ravel(np.asarray(sm.real(x), float))
    here = np.resize(here, KNOTS) if len(here) else noise
    return here + SPREAD * noise * np.maximum(1.0, np.abs(here))
