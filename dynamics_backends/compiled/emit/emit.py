"""Emission of C from a trace, and traces of functions of vectors (:class:`TracedFunction`).

A value is a vector V over lanes, or a double if it is equal in all lanes. The code has one of two forms: one static function
(:func:`step_function`), or straight-line code cut into functions of about CHUNK operations (:func:`chunked_function`). These pass
values through a buffer, so that compile time grows linearly with the number of operations. Calls of functions are for tapes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dynamics_backends.trace import Operand, Operation, Trace

CHUNK = 500
"""Number of operations in one C function of straight-line code."""

_INFIX = {"ADD": "{0} + {1}", "SUB": "{0} - {1}", "MUL": "{0} * {1}", "DIV": "{0} / {1}", "NEG": "-{0}"}
_INFIX |= {"SQ": "{0} * {0}", "TWICE": "{0} + {0}", "INV": "1.0 / {0}"}
_CALLS = {"SIN", "COS", "TAN", "EXP", "LOG", "SQRT", "TANH", "ATAN2", "ATAN", "FABS", "FMIN", "FMAX", "POW", "CONSTPOW"}
_CALLS |= {"LT", "LE", "EQ", "NE", "NOT", "AND", "OR", "IF_ELSE_ZERO", "SIGN", "SINH", "COSH", "ASIN", "ACOS", "FLOOR"}
_CALLS |= {"EXPM1", "LOG1P"}


@dataclass(frozen=True)
class Argument:
    """Pointer argument of an emitted function. size: number of components; vector: True for vectors over lanes, else doubles."""

    name: str
    size: int
    vector: bool = True


def step_function(
    name: str, t: Trace, inputs: Sequence[Argument], outputs: Sequence[str], *, inline: bool = False
) -> str:
    """Source of a static C function ``name(inputs..., outputs...)`` for one trace, inlined or never inlined."""
    body = _Body(inputs)
    lines = [body.statement(op) for op in t.operations]
    for output, operands in zip(outputs, t.outputs, strict=True):
        lines += [f"{output}[{i}] = {body.vector(x)};" for i, x in enumerate(operands)]
    arguments = [f"const {'V' if a.vector else 'double'}* restrict {a.name}" for a in inputs]
    arguments += [f"V* restrict {o}" for o in outputs]
    attribute = "ALWAYS_INLINE" if inline else "NOINLINE"
    return f"{attribute} void {name}({', '.join(arguments)})\n{{\n" + "\n".join(lines) + "\n}\n"


class _Body:
    """Writer of operands and statements as C text; records which values are vectors."""

    def __init__(self, inputs: Sequence[Argument]) -> None:
        self.inputs = inputs
        self.is_vector: dict[int, bool] = {}

    def operand(self, x: Operand) -> str:
        """C text of an operand: the name of a value, an entry of an input, or a constant."""
        if type(x) is int:
            return f"s{x}"
        return f"{self.inputs[x[0]].name}[{x[1]}]" if isinstance(x, tuple) else constant(x)

    def vectorial(self, x: Operand) -> bool:
        """True if an operand is a vector over lanes, False for a double."""
        if type(x) is int:
            return self.is_vector[x]
        return isinstance(x, tuple) and self.inputs[x[0]].vector

    def vector(self, x: Operand) -> str:
        """C text of an operand as a vector; a double is copied to all lanes."""
        return self.operand(x) if self.vectorial(x) else f"splat({self.operand(x)})"

    def expression(self, op: Operation) -> tuple[str, bool]:
        """C text of the right-hand side of an operation, and True if it is a vector, False for a double.

        Raises ValueError for an operation that C code does not support.
        """
        if op.name in _INFIX:
            vector = any(self.vectorial(x) for x in op.operands)
            return _INFIX[op.name].format(*[self.operand(x) for x in op.operands]), vector
        if op.name not in _CALLS:
            raise ValueError(f"the compiled engine has no operation {op.name}; use engine = 'numpy' for this function")
        return f"v_{op.name.lower()}({', '.join(self.vector(x) for x in op.operands)})", True

    def statement(self, op: Operation) -> str:
        """C statement of an operation; records if its value is a vector."""
        text, vector = self.expression(op)
        self.is_vector[op.index] = vector
        return f"const {'V' if vector else 'double'} s{op.index} = {text};"


def constant(x: float) -> str:
    """C literal of a double that reads back exactly; HUGE_VAL and NAN for infinities and NaN."""
    if x != x or x in (float("inf"), float("-inf")):
        return {"inf": "HUGE_VAL", "-inf": "(-HUGE_VAL)"}.get(repr(x), "NAN")
    return repr(x) if x >= 0 and not repr(x).startswith("-") else f"({x!r})"


def chunked_function(name: str, t: Trace, inputs: Sequence[Argument], outputs: Sequence[str]) -> tuple[str, int]:
    """Straight-line code as ``name(inputs..., outputs..., V* w)``; returns the source and the length of the buffer w in vectors.

    The code is cut into functions of CHUNK operations, which pass values through w. Outputs are cleared first.
    """
    chunks = _Chunks.of(t)
    stores = _stores(chunks, outputs, t.outputs)
    arguments = [f"const {'V' if a.vector else 'double'}* restrict {a.name}" for a in inputs]
    arguments += [f"V* restrict {o}" for o in outputs] + ["V* restrict w"]
    head, body, source = ", ".join(arguments), _Body(inputs), []
    for c, local in enumerate(stores):
        text = "\n".join(_chunk_lines(chunks, c, local, body))
        source.append(f"NOINLINE void {name}_{c}({head})\n{{\n{text}\n}}\n")
    zeros = [f"memset({o}, 0, sizeof(V) * {len(x)});" for o, x in zip(outputs, t.outputs, strict=True)]
    names = ", ".join([*(a.name for a in inputs), *outputs, "w"])
    calls = "\n".join([*zeros, *(f"{name}_{c}({names});" for c in range(len(stores)))])
    source.append(f"static void {name}({head})\n{{\n{calls}\n}}\n")
    return "\n".join(source), chunks.workspace


@dataclass(frozen=True)
class _Chunks:
    """Operations of a trace cut into functions, and the buffer for values that several functions use.

    home: function of each operation, by its index.  slots: buffer position of each value used outside its home function.
    workspace: length of the buffer.
    """

    operations: list[list[Operation]]
    home: dict[int, int]
    slots: dict[int, int]
    workspace: int

    @classmethod
    def of(cls, t: Trace) -> _Chunks:
        """Cut a trace, and assign buffer positions to values that several functions use."""
        starts = range(0, max(len(t.operations), 1), CHUNK)
        operations = [t.operations[start : start + CHUNK] for start in starts]
        home = {op.index: c for c, local in enumerate(operations) for op in local}
        return cls(operations, home, *_buffer_slots(operations, home))


Store = tuple[str, int, Operand]
"""Output, index of the entry, and its operand."""


def _stores(chunks: _Chunks, outputs: Sequence[str], values: Sequence[Sequence[Operand]]) -> list[list[Store]]:
    """Output entries that each function writes: those computed in it, and in the first one constants and inputs.

    Structural zeros are not written.
    """
    stores: list[list[Store]] = [[] for _ in chunks.operations]
    for output, operands in zip(outputs, values, strict=True):
        for i, x in enumerate(operands):
            if not (isinstance(x, float) and x == 0.0):
                stores[chunks.home[x] if isinstance(x, int) else 0].append((output, i, x))
    return stores


def _chunk_lines(chunks: _Chunks, c: int, stores: Sequence[Store], body: _Body) -> list[str]:
    """Statements of function c: loads of values of earlier functions before first use, operations, stores of values that other
    functions use, and stores of outputs. From then on, ``body`` treats the stored values as vectors.
    """
    lines: list[str] = []
    loaded: set[int] = set()
    local, slots = chunks.operations[c], chunks.slots
    for op in local:
        for x in op.operands:
            if isinstance(x, int) and chunks.home[x] != c and x not in loaded:
                lines.append(f"const V s{x} = w[{slots[x]}];")
                loaded.add(x)
        lines.append(body.statement(op))
        if op.index in slots:
            lines.append(f"w[{slots[op.index]}] = {body.vector(op.index)};")
    lines += [f"{o}[{i}] = {body.vector(x)};" for o, i, x in stores]
    for op in local:  # other functions read the value from the buffer, as a vector
        body.is_vector[op.index] = op.index in slots or body.is_vector[op.index]
    return lines


def _buffer_slots(chunks: Sequence[Sequence[Operation]], home: dict[int, int]) -> tuple[dict[int, int], int]:
    """Buffer position of each value used outside its home function, and the buffer length; positions are reused after the last
    use.
    """
    last: dict[int, int] = {}
    for c, operations in enumerate(chunks):
        for op in operations:
            for x in op.operands:
                if isinstance(x, int) and home[x] != c:
                    last[x] = c
    slots: dict[int, int] = {}
    free: list[int] = []
    expiring: dict[int, list[int]] = {}
    size = 0
    for c, operations in enumerate(chunks):
        free += expiring.pop(c - 1, [])
        for op in operations:
            if op.index in last:
                if not free:
                    free.append(size)
                    size += 1
                slots[op.index] = free.pop()
                expiring.setdefault(last[op.index], []).append(slots[op.index])
    return slots, size


@dataclass(frozen=True, eq=False)
class TracedFunction:
    """Trace with the names and sizes of its arguments, and the names of its results."""

    name: str
    trace: Trace
    arguments: Sequence[Argument]
    outputs: Sequence[str]

    @property
    def sizes(self) -> list[int]:
        """Numbers of components of the arguments."""
        return [a.size for a in self.arguments]

    @property
    def operations(self) -> int:
        """Number of operations, without those of called functions."""
        return len(self.trace.operations)

    def source(self) -> tuple[str, int]:
        """Source of the C function ``name(arguments..., outputs..., V* w)``, cut into pieces, and the length of w in vectors."""
        return chunked_function(self.name, self.trace, self.arguments, self.outputs)
