"""Encoding of traces as tapes: code for the interpreter, with the instructions of machine/include/tape.h.

values        equal operations are merged, and operations that nothing reads are dropped; divisions by a shared divisor become
              products with its inverse, sums of values masked by a flag and by its negation become selections
sums          nested additions, subtractions and negations, and the products among their operands, become one instruction of at
              most TERMS terms, if nothing else reads them.  Its terms are added in the order of the trace: if both operands of an
              addition are sums, the one with fewer terms, or else the second, stays an instruction
registers     each value takes a free register, which the last instruction that reads the value frees, also for its own results
subroutines   a called function is encoded once; its arguments, values and results have registers that no other function uses
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np

from dynamics_backends.machine.library import enumerators
from dynamics_backends.trace import RESULT, Kernel, Operand, Trace

TERMS = 24
"""Maximum number of terms in one sum: their operands occupy registers until the sum is evaluated."""
DEPTH = 16
"""Maximum depth of nested calls, as in the interpreter."""
_CONST, _INPUT = "CONST", "INPUT"
_COMMUTATIVE = frozenset({"ADD", "MUL", "AND", "OR", "EQ", "NE"})
_WITH_CONSTANT = {("ADD", 0): "ADD_K", ("ADD", 1): "ADD_K", ("MUL", 0): "MUL_K", ("MUL", 1): "MUL_K"}
_WITH_CONSTANT |= {("SUB", 0): "K_SUB", ("DIV", 0): "K_DIV", ("DIV", 1): "DIV_K"}
"""Instruction for an operation with one constant operand, by the position of the constant."""
_SHORT_SUMS: dict[tuple[str, ...], tuple[str, tuple[int, ...]]] = {
    ("MINUS",): ("NEG", (0,)),
    ("PLUS", "PLUS"): ("ADD", (0, 1)),
    ("PLUS", "MINUS"): ("SUB", (0, 1)),
    ("MINUS", "PLUS"): ("SUB", (1, 0)),
    ("PLUS", "PLUS_CONSTANT"): ("ADD_K", (0, 1)),
    ("PLUS_CONSTANT", "PLUS"): ("ADD_K", (1, 0)),
    ("MINUS", "PLUS_CONSTANT"): ("K_SUB", (0, 1)),
    ("PLUS_CONSTANT", "MINUS"): ("K_SUB", (1, 0)),
    ("PLUS_PRODUCT", "PLUS_PRODUCT"): ("PRODUCTS_ADD", (0, 1, 2, 3)),
    ("PLUS_PRODUCT", "MINUS_PRODUCT"): ("PRODUCTS_SUB", (0, 1, 2, 3)),
    ("MINUS_PRODUCT", "PLUS_PRODUCT"): ("PRODUCTS_SUB", (2, 3, 0, 1)),
    ("PLUS_PRODUCT", "PLUS"): ("PRODUCT_ADD", (0, 1, 2)),
    ("PLUS", "PLUS_PRODUCT"): ("PRODUCT_ADD", (1, 2, 0)),
    ("PLUS_PRODUCT", "MINUS"): ("PRODUCT_SUB", (0, 1, 2)),
    ("MINUS", "PLUS_PRODUCT"): ("PRODUCT_SUB", (1, 2, 0)),
    ("PLUS", "MINUS_PRODUCT"): ("SUB_PRODUCT", (1, 2, 0)),
    ("MINUS_PRODUCT", "PLUS"): ("SUB_PRODUCT", (0, 1, 2)),
    ("PLUS_SCALED", "PLUS"): ("SCALED_ADD", (0, 2, 1)),
    ("PLUS", "PLUS_SCALED"): ("SCALED_ADD", (1, 0, 2)),
}
"""Instruction for a sum with terms of these kinds, and its operands by their indices among the operands of all terms.

The operands are in the order of the instruction, with constants last.
"""
_WITHOUT_INSTRUCTION = (_CONST, _INPUT, RESULT)
_OPERANDS = {"PLUS_PRODUCT": 2, "MINUS_PRODUCT": 2, "PLUS_SCALED": 2, "PLUS": 1, "MINUS": 1, "PLUS_CONSTANT": 1}
"""Number of operands of a term by its kind."""
_SIGNS = {"ADD": (True, True), "SUB": (True, False), "NEG": (False,)}
"""Operations that are sums, and which of their operands are positive."""
_OPPOSITE = {"PLUS": "MINUS", "MINUS": "PLUS", "PLUS_PRODUCT": "MINUS_PRODUCT", "MINUS_PRODUCT": "PLUS_PRODUCT"}
"""Kind of the negated term, for kinds without a constant."""


class UnknownOperation(ValueError):
    """A trace has an operation, or calls nested more deeply than DEPTH, that tapes do not support."""


class Encoded(NamedTuple):
    """Code (int32), constants (float64), number of registers without those of kernels, and the called kernels of a tape."""

    code: np.ndarray
    constants: np.ndarray
    registers: int
    kernels: tuple[Kernel, ...]


def encode(t: Trace) -> Encoded:
    """Encode a trace as code for the interpreter of tapes. Raises UnknownOperation for unsupported operations or call depths."""
    program = _Program()
    parts = [_written(t, program, main=True), *program.subroutines.values()]
    starts = np.cumsum([0, *(len(part.code) for part in parts)])
    offsets = {id(part): int(start) for part, start in zip(parts, starts, strict=False)}
    for part in parts:
        for place, callee in part.calls:
            part.code[place] = offsets[id(callee)]
    code = np.concatenate([np.array(part.code, dtype=np.int32) for part in parts])
    return Encoded(code, np.array(program.constants, dtype=float), program.registers, tuple(program.kernels))


@lru_cache(maxsize=1)
def _numbers() -> dict[str, int]:
    """Numbers of instructions and of kinds of terms, the C enums tape_op and tape_term, by name without TAPE_."""
    numbers = enumerators("tape_op") | enumerators("tape_term")
    return {name.removeprefix("TAPE_"): number for name, number in numbers.items()}


# -- values ---------------------------------------------------------------------------------------------------------------


class _Values:
    """Distinct values of a trace, as indices into ``names`` and ``operands``; constants and inputs are values too.

    operands: other values, but (input, component) of an input and (call, component) of a RESULT. numbers: the constants by value
    index. outputs: value of each component of each output.
    """

    def __init__(self, t: Trace) -> None:
        self.names: list[str] = []
        self.operands: list[tuple[int, ...]] = []
        self.numbers: dict[int, float] = {}
        self._known: dict[tuple, int] = {}
        self._shared = _shared_divisors(t)
        places: list[int] = []
        for op in t.operations:
            operands = [self._placed(x, places) for x in op.operands[: 1 if op.name == RESULT else None]]
            if op.name == RESULT:
                operands.append(int(op.operands[1]))  # type: ignore[arg-type]
            divisor = op.operands[-1] if op.name in ("DIV", "INV") else 1.0
            shared = not isinstance(divisor, float) and divisor in self._shared
            places.append(self._quotient(op.name, operands) if shared else self._operation(op.name, operands))
        self.outputs = [[self._placed(x, places) for x in output] for output in t.outputs]

    def _placed(self, x: Operand, places: Sequence[int]) -> int:
        """Value of an operand of the trace; places: values of its operations."""
        if isinstance(x, tuple):
            return self._added(_INPUT, x)
        return self.constant(x) if isinstance(x, float) else places[x]

    def constant(self, x: float) -> int:
        """Value of a constant, which is added if it is new; zeros of different sign are different constants."""
        at = self._known.setdefault((_CONST, x.hex()), len(self.names))
        if at == len(self.names):
            self.names.append(_CONST)
            self.operands.append(())
            self.numbers[at] = x
        return at

    def _added(self, name: str, operands: tuple[int, ...]) -> int:
        """Value of an operation on values, which is added unless an equal one exists.

        Operations of the same name are equal if their operands are, in any order if the operation is commutative.
        """
        key = (name, *(sorted(operands) if name in _COMMUTATIVE else operands))
        at = self._known.setdefault(key, len(self.names))
        if at == len(self.names):
            self.names.append(name)
            self.operands.append(operands)
        return at

    def _quotient(self, name: str, operands: list[int]) -> int:
        """Value of a quotient by a shared divisor: a product with the inverse, or the inverse itself."""
        inverse = self._added("INV", (operands[-1],))
        return inverse if name == "INV" else self._operation("MUL", [operands[0], inverse])

    def _operation(self, name: str, operands: list[int]) -> int:
        """Value of an operation of the trace, in terms of the instructions of tapes.

        Squares, doubles, quotients 1 / x, subtractions of a constant, and sums that are selections (:meth:`_selection`) are
        replaced by equal operations.
        """
        numbers = self.numbers
        if name == "SQ":
            return self._added("MUL", (operands[0], operands[0]))
        if name == "TWICE":
            return self._added("MUL", (operands[0], self.constant(2.0)))
        if name == "DIV" and numbers.get(operands[0]) == 1.0:
            return self._added("INV", (operands[1],))
        if name == "SUB" and operands[1] in numbers:
            return self._added("ADD", (operands[0], self.constant(-numbers[operands[1]])))
        if name == "ADD":
            selection = self._selection(*operands)
            return self._added("ADD", tuple(operands)) if selection is None else selection
        return self._added(name, tuple(operands))

    def _selection(self, x: int, y: int) -> int | None:
        """Selection that equals the sum x + y of two values, one masked by a flag and one by its negation; None for other sums.

        It is SELECT_LT if the flag is a comparison <, else SELECT.
        """
        if self.names[x] != "IF_ELSE_ZERO" or self.names[y] != "IF_ELSE_ZERO":
            return None
        for (flag, a), (other, b) in (self.operands[x], self.operands[y]), (self.operands[y], self.operands[x]):
            if self.names[other] == "NOT" and self.operands[other] == (flag,):
                if self.names[flag] == "LT":
                    return self._added("SELECT_LT", (*self.operands[flag], a, b))
                return self._added("SELECT", (flag, a, b))
        return None

    def read(self, v: int) -> tuple[int, ...]:
        """Operands of a value that are values: none for an input or a constant; for a result of a call, the call."""
        name = self.names[v]
        if name == _INPUT:
            return ()
        return self.operands[v][:1] if name == RESULT else self.operands[v]

    def uses(self) -> list[int]:
        """Number of readers of each value: components of outputs, and operands of values that have readers themselves."""
        uses = [0] * len(self.names)
        for output in self.outputs:
            for v in output:
                uses[v] += 1
        for v in range(len(uses) - 1, -1, -1):
            if uses[v]:
                for x in self.read(v):
                    uses[x] += 1
        return uses


def _shared_divisors(t: Trace) -> set[Operand]:
    """Operations (by index) and components of inputs that are the divisor of several operations DIV or INV.

    A division takes as long as twenty products.
    """
    counts = Counter(
        op.operands[-1] for op in t.operations if op.name in ("DIV", "INV") and type(op.operands[-1]) is not float
    )
    return {x for x, count in counts.items() if count > 1}


# -- sums of products -----------------------------------------------------------------------------------------------------

_Term = tuple[str, tuple[int, ...]]
"""Kind of a term and its operands, which are values: two for products, a factor and a constant for PLUS_SCALED, else one."""


class _Sums:
    """Terms of each sum that becomes an instruction (``terms``), and the values that are part of such a sum (``absorbed``).

    The latter are sums and products with one reader, and get no instruction. uses: number of readers of each value.
    """

    def __init__(self, values: _Values, uses: Sequence[int]) -> None:
        self.values, self.uses = values, uses
        self.terms: dict[int, list[_Term]] = {}
        self.absorbed: set[int] = set()
        for v in range(len(uses)):  # constants are added behind these
            if uses[v] and values.names[v] in _SIGNS:
                self.terms[v] = self._terms_of_sum(values.operands[v], _SIGNS[values.names[v]])

    def _terms_of_sum(self, operands: Sequence[int], positive: Sequence[bool]) -> list[_Term]:
        """Terms of a sum: those of its longest operand among sums, which is absorbed, then the other operand as one term.

        positive: signs of the operands. Only operands that are sums with one reader and fewer than TERMS terms are absorbed as
        sums; without any, each operand is one term (:meth:`_term`).
        """
        inner = [self._inner(x) for x in operands]
        base = 1 if len(inner) > 1 and len(inner[1]) > len(inner[0]) else 0
        if not inner[base]:
            return [self._term(x, sign) for x, sign in zip(operands, positive, strict=True)]
        self.absorbed.add(operands[base])
        terms = self.terms.pop(operands[base])
        if not positive[base]:
            terms = [self._negated(term) for term in terms]
        return [*terms, *(self._term(x, positive[i]) for i, x in enumerate(operands) if i != base)]

    def _inner(self, x: int) -> list[_Term]:
        """Terms of a value that is a sum, has one reader and fewer than TERMS terms; [] for other values."""
        found = self.terms.get(x, []) if self.uses[x] == 1 else []
        return found if len(found) < TERMS else []

    def _term(self, x: int, positive: bool) -> _Term:
        """Term of a value with this sign: a constant, a product with one reader (which is absorbed), else the value itself."""
        values = self.values
        if x in values.numbers:
            return "PLUS_CONSTANT", (x if positive else values.constant(-values.numbers[x]),)
        if values.names[x] != "MUL" or self.uses[x] > 1:
            return "PLUS" if positive else "MINUS", (x,)
        self.absorbed.add(x)
        a, b = values.operands[x]
        if a in values.numbers:
            a, b = b, a
        if a in values.numbers or b not in values.numbers:
            return "PLUS_PRODUCT" if positive else "MINUS_PRODUCT", (a, b)
        return "PLUS_SCALED", (a, b if positive else values.constant(-values.numbers[b]))

    def _negated(self, term: _Term) -> _Term:
        """Term with the opposite sign."""
        kind, operands = term
        if kind in _OPPOSITE:
            return _OPPOSITE[kind], operands
        return kind, (*operands[:-1], self.values.constant(-self.values.numbers[operands[-1]]))


# -- code -----------------------------------------------------------------------------------------------------------------


class _Instruction(NamedTuple):
    """Instruction on values: those that it writes and reads, other operands (``more``), and the called function of a CALL."""

    name: str
    written: tuple[int, ...]
    read: tuple[int, ...]
    more: tuple
    callee: _Part | None = None


@dataclass(eq=False)
class _Part:
    """Code of one function. calls: places in the code of the offsets of called functions, and these functions.

    arguments, results: registers of a subroutine's arguments that are read, by index, and of its results; empty for the main
    function. depth: depth of nested calls, 0 without calls. loads: True if the last instruction of the code is LOAD.
    """

    code: list[int] = field(default_factory=list)
    calls: list[tuple[int, _Part]] = field(default_factory=list)
    arguments: dict[int, int] = field(default_factory=dict)
    results: list[int] = field(default_factory=list)
    depth: int = 0
    loads: bool = False


@dataclass
class _Program:
    """Constants, number of registers, kernels and subroutines of all functions of a tape.

    Subroutines are stored by the identity of their traces.
    """

    constants: list[float] = field(default_factory=list)
    registers: int = 0
    kernels: list[Kernel] = field(default_factory=list)
    subroutines: dict[int, _Part] = field(default_factory=dict)
    _places: dict[bytes, int] = field(default_factory=dict)

    def constant(self, x: float) -> int:
        """Index of a constant, which is added if it is new."""
        at = self._places.setdefault(struct.pack("d", x), len(self.constants))
        if at == len(self.constants):
            self.constants.append(x)
        return at

    def kernel(self, called: Kernel) -> int:
        """Index of a kernel, which is added if it is new."""
        if called not in self.kernels:
            self.kernels.append(called)
        return self.kernels.index(called)

    def subroutine(self, t: Trace) -> _Part:
        """Code of a called function, which is written when first requested. Raises the errors of :func:`_written`."""
        if id(t) not in self.subroutines:
            self.subroutines[id(t)] = _written(t, self, main=False)
        return self.subroutines[id(t)]


def _written(t: Trace, program: _Program, *, main: bool) -> _Part:
    """Write and return the code of a function; called functions are written before it.

    main: True for the function of the tape, which loads inputs and stores outputs; subroutines have them in registers. Raises
    UnknownOperation for an unsupported operation, or calls nested more deeply than DEPTH.
    """
    writer = _Writer(t, program, main)
    writer.write()
    part = writer.allocated()
    if part.depth > DEPTH:
        raise UnknownOperation(f"calls are nested {part.depth} deep; tapes support {DEPTH}")
    return part


def _write_code(part: _Part, one: _Instruction, written: list[int], read: list[int]) -> None:
    """Append the code of an instruction to the code of ``part``; written, read: registers that the instruction writes and reads.

    The offset of a called function is 0 until :func:`encode` sets it. Raises UnknownOperation if tapes have no such instruction.
    """
    numbers, code = _numbers(), part.code
    if one.name not in numbers:
        raise UnknownOperation(f"tapes have no operation {one.name}; use engine = 'numpy' for this function")
    if one.callee is not None:
        moves = [(to, read[j]) for j, to in one.callee.arguments.items()]
        code += [numbers["MOVE"], len(moves), *(x for move in moves for x in move), numbers["CALL"], 0]
        part.calls.append((len(code) - 1, one.callee))
        code += [numbers["MOVE"], len(written)]
        code += [x for to, j in zip(written, one.more, strict=True) for x in (to, one.callee.results[j])]
    elif one.name == "SUM":
        code += [numbers["SUM"], *written, len(one.more)]
        registers = iter(read)
        for kind, operands in one.more:
            code.append(8 * (len(operands) // _OPERANDS[kind]) + numbers[kind])
            code += [next(registers) if x is None else x for x in operands]
    elif one.name == "KERNEL":
        kernel, components, stored = one.more
        places = [*((j, -1, to) for j, to in zip(components, written, strict=True)), *stored]
        code += [numbers["KERNEL"], kernel, len(read), *read, 0]
        count = len(code) - 1
        for place in places:
            if not code[count] or not _continued(code, place):
                code += [*place, 1]
                code[count] += 1
    elif one.name == "STORE":
        code += [numbers["STORE"], *one.more, *read]
    elif one.name == "LOAD":
        i, j = one.more
        if not part.loads or not _continued(code, (written[0], i, j)):
            code += [numbers["LOAD"], written[0], i, j, 1]
    else:
        code += [numbers[one.name], *written, *read, *one.more]
    part.loads = one.name == "LOAD"


def _continued(code: list[int], place: tuple[int, int, int]) -> bool:
    """Lengthen the run (a, b, c, n) at the end of the code by one if ``place`` is (a + n, b, c + n); True if it is."""
    a, b, c, n = code[-4:]
    continues = place == (a + n, b, c + n)
    code[-1] += continues
    return continues


class _Writer:
    """Writer of one function: :meth:`write` makes instructions on values, :meth:`allocated` assigns registers and makes code.

    The functions that it calls are written at creation.
    """

    def __init__(self, t: Trace, program: _Program, main: bool) -> None:
        self.program, self.main = program, main
        self.values = _Values(t)
        self.uses = self.values.uses()
        self.callees = {name: program.subroutine(f) for name, f in t.called.items() if isinstance(f, Trace)}
        self.kernels = {name: program.kernel(f) for name, f in t.called.items() if isinstance(f, Kernel)}
        self.instructions: list[_Instruction] = []
        self._ready: set[int] = set()
        self._stores: dict[int, list[tuple[int, int]]] = {}
        self._results: dict[int, list[int]] = {}

    # -- instructions -----------------------------------------------------------------------------------------------------
    def write(self) -> None:
        """Append all instructions on values to ``instructions``, but none for absorbed values and values without readers."""
        names, operands, uses = self.values.names, self.values.operands, self.uses
        sums = _Sums(self.values, uses)
        for v, name in enumerate(names[: len(uses)]):
            if name == RESULT and uses[v]:
                self._results.setdefault(operands[v][0], []).append(v)
        if self.main:
            self._plan_stores()
        for v, name in enumerate(names[: len(uses)]):
            if not uses[v] or v in sums.absorbed or name in _WITHOUT_INSTRUCTION:
                continue
            if v in sums.terms:
                self._write_sum(v, sums.terms[v])
            elif name in self.callees or name in self.kernels:
                self._write_call(v)
            else:
                self._write_operation(v)
            self._store(v)
        for v in self._stores if self.main else self.values.outputs[0]:
            self._in_register(v)

    def _plan_stores(self) -> None:
        """Collect in _stores the places (output, component) of each value in outputs; write instructions that fill constants."""
        numbers = self.values.numbers
        for o, output in enumerate(self.values.outputs):
            first = 0
            for constant, run in groupby(output, lambda v: v if v in numbers else None):
                members = list(run)
                if constant is None:
                    for j, v in enumerate(members, first):
                        self._stores.setdefault(v, []).append((o, j))
                else:
                    self._add("FILL", (), (), (o, first, len(members), self.program.constant(numbers[constant])))
                first += len(members)

    def _store(self, v: int) -> None:
        """Write instructions that store a value in its output components, if any."""
        for place in self._stores.get(v, ()):
            self._add("STORE", (), (v,), place)

    def _add(self, name: str, written: tuple[int, ...], read: tuple[int, ...], more: tuple = ()) -> None:
        """Append an instruction on values; more: its other operands."""
        self.instructions.append(_Instruction(name, written, read, more))

    def _in_register(self, v: int) -> int:
        """Return the value v, after writing an instruction that loads it if it is a constant or an input not yet loaded.

        Only the main function loads inputs; a loaded input is stored in its output components, if any.
        """
        name = self.values.names[v]
        if name == _CONST and v not in self._ready:
            self._ready.add(v)
            self._add("CONST", (v,), (), (self.program.constant(self.values.numbers[v]),))
        if name == _INPUT and self.main and v not in self._ready:
            self._ready.add(v)
            self._add("LOAD", (v,), (), self.values.operands[v])
            self._store(v)
        return v

    def _write_operation(self, v: int) -> None:
        """Write the instruction of an operation: one with a constant operand in the code where it exists, SQ for x x."""
        values, name, operands = self.values, self.values.names[v], self.values.operands[v]
        constant = [i for i, x in enumerate(operands) if x in values.numbers]
        if len(constant) == 1 and (name, constant[0]) in _WITH_CONSTANT:
            k, x = values.numbers[operands[constant[0]]], operands[1 - constant[0]]
            more = (self.program.constant(k),)
            self._add(_WITH_CONSTANT[name, constant[0]], (v,), (self._in_register(x),), more)
        elif name == "MUL" and operands[0] == operands[1]:
            self._add("SQ", (v,), (self._in_register(operands[0]),))
        else:
            self._add(name, (v,), tuple([self._in_register(x) for x in operands]))

    def _write_call(self, v: int) -> None:
        """Write the call of a subroutine or a kernel, and instructions that store its results in output components, if any.

        A kernel itself stores results that have no other readers.
        """
        read = tuple([self._in_register(x) for x in self.values.operands[v]])
        results = self._results.get(v, [])
        component = {w: self.values.operands[w][1] for w in results}
        name = self.values.names[v]
        if name in self.kernels:
            stored = [(component[w], *place) for w in results if self._only_stored(w) for place in self._stores[w]]
            results = [w for w in results if not self._only_stored(w)]
            components = tuple([component[w] for w in results])
            self._add("KERNEL", tuple(results), read, (self.kernels[name], components, stored))
        else:
            self.instructions.append(
                _Instruction("CALL", tuple(results), read, tuple(component.values()), self.callees[name])
            )
        for w in results:
            self._store(w)

    def _only_stored(self, v: int) -> bool:
        """True if a value has no readers except output components."""
        return self.uses[v] == len(self._stores.get(v, ()))

    def _write_sum(self, v: int, terms: Sequence[_Term]) -> None:
        """Write a sum as a short instruction if one exists, else as SUM."""
        numbers, kinds = self.values.numbers, tuple([kind for kind, _ in terms])
        if kinds in _SHORT_SUMS:
            name, order = _SHORT_SUMS[kinds]
            flat = [x for _, term in terms for x in term]
            operands = [flat[i] for i in order]
            with_constant = kinds.count("PLUS_SCALED") + kinds.count("PLUS_CONSTANT")
            more = tuple([self.program.constant(numbers[operands.pop()]) for _ in range(with_constant)])
            self._add(name, (v,), tuple([self._in_register(x) for x in operands]), more)
        else:
            read: list[int] = []
            runs: list[tuple[str, list[int | None]]] = []
            for kind, term in terms:
                if not runs or runs[-1][0] != kind:
                    runs.append((kind, []))
                for x in term:
                    constant = x in numbers and kind in ("PLUS_CONSTANT", "PLUS_SCALED")
                    runs[-1][1].append(self.program.constant(numbers[x]) if constant else None)
                    if not constant:
                        read.append(self._in_register(x))
            self._add("SUM", (v,), tuple(read), tuple(runs))

    # -- registers --------------------------------------------------------------------------------------------------------
    def allocated(self) -> _Part:
        """Return the function's code, with a register for each value while it is in use; adds to the program's registers."""
        last: dict[int, int] = {}
        for i, instruction in enumerate(self.instructions):
            for v in instruction.read:
                last[v] = i
        end = len(self.instructions)
        if not self.main:
            last |= dict.fromkeys(self.values.outputs[0], end)
        place: dict[int, int] = {}
        free: list[int] = []
        part = _Part(depth=1 + max((c.depth for c in self.callees.values()), default=-1))
        count = self.program.registers

        def register(v: int) -> int:
            """Assign a free register, or a new one, to a value, and return it."""
            nonlocal count
            if free:
                place[v] = free.pop()
            else:
                place[v] = count
                count += 1
            return place[v]

        if not self.main:
            inputs = {self.values.operands[v][1]: v for v in last if self.values.names[v] == _INPUT}
            part.arguments = {j: register(v) for j, v in inputs.items()}
        for i, one in enumerate(self.instructions):
            read = [place[v] for v in one.read]
            free += [place[v] for v in set(one.read) if last[v] == i]
            written = [register(v) for v in one.written]
            free += [place[v] for v in one.written if v not in last]
            _write_code(part, one, written, read)
        part.code.append(_numbers()["RETURN"])
        if not self.main:
            part.results = [place[v] for v in self.values.outputs[0]]
        self.program.registers = count
        return part
