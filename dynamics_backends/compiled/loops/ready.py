"""Loops that are there already: a driver that never waits for a compiler.

One kernel of a program serves all robots made of the usual joints.  Those of PROGRAMS are built with the installation, or when
:func:`loop_builds` are done; programs and numbers without a kernel run on rows of NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any
from weakref import WeakKeyDictionary

from dynamics_backends.compiled.loops.fields import algebra_of, arrays_of, named, shapes_of
from dynamics_backends.compiled.loops.kernel import CompiledKernel, text_of
from dynamics_backends.compiled.loops.loops import USUAL_JOINTS, LoopKernel, loop_kernel
from dynamics_backends.compiled.loops.sparsity import sparse_outputs
from dynamics_backends.compiled.runtime.cache import existing, key_of, load
from dynamics_backends.compiled.runtime.remembered import answered, remembered
from dynamics_backends.compiled.runtime.toolchain import CompilerError, find_toolchain
from dynamics_backends.rigid_body.algorithms.aba import ABA, ABA_EXTERNAL
from dynamics_backends.rigid_body.algorithms.kinematics import MOTION, PLACEMENT
from dynamics_backends.rigid_body.algorithms.rnea import RNEA
from dynamics_backends.rigid_body.contact.contact_dynamics import (
    CONSTRAINED_FINISH,
    CONSTRAINED_SECOND,
    CONTACT_FINISH,
    CONTACT_MOTION,
    CONTACT_SECOND,
    CONTACT_START,
    RATES_AT,
)
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.derivatives.fd_second_order import FD_SECOND_ORDER
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes import drivers
from dynamics_backends.rigid_body.passes.passes import Program
from dynamics_backends.symbols import tracing

_OF_ROTORS = (ABA, FDSVA, FD_SECOND_ORDER, ABA_EXTERNAL, CONTACT_START)
_PARTS = (
    PLACEMENT,
    MOTION,
    CONTACT_MOTION,
    RATES_AT,
    CONTACT_FINISH,
    CONTACT_SECOND,
    CONSTRAINED_FINISH,
    CONSTRAINED_SECOND,
)
PROGRAMS = (RNEA, *(variant for p in _OF_ROTORS for variant in (p, p.given("armature"))), *_PARTS)
"""Inverse dynamics; forward dynamics with first and second derivatives, free and in contact; what reads rotor inertias, of the
model's and of those that implicit damping adds to."""
_NAMES = frozenset(p.name for p in PROGRAMS)


def loop_builds() -> list[Callable[[], object]]:
    """What has the kernels of PROGRAMS in the cache, in parts that may be done side by side; each raises CompilerError."""
    return [partial(remembered, partial(_described, program), *_question(program)) for program in PROGRAMS]


def _question(program: Program) -> tuple[Any, ...]:
    """What the answer depends on: a folder may be shared by machines whose compilers or processors differ."""
    toolchain = find_toolchain()
    return "loops", program.name, USUAL_JOINTS, toolchain.definitions, toolchain.fingerprint


def _described(program: Program) -> list[Any]:
    """The name of the program's library, once that is there, and what a caller must know of the kernel."""
    with tracing:
        kernel = loop_kernel(program, sorted(USUAL_JOINTS))
    text = text_of(kernel)
    load(text)
    sizes = [kernel.input_sizes, kernel.output_sizes, kernel.workspace]
    return [key_of(text), kernel.name, kernel.inputs, kernel.outputs, *sizes]


@lru_cache(maxsize=len(PROGRAMS))
def _known(program: Program) -> tuple[Any, LoopKernel] | None:
    """The library and its kernel; None where they were not built, and without a C compiler, on which their names depend."""
    try:
        found = answered(*_question(program))
    except CompilerError:
        return None
    library = None if found is None else existing(found[0])
    if found is None or library is None:
        return None
    _, name, inputs, outputs, sizes_in, sizes_out, room = found
    return library, LoopKernel(name, "", inputs, outputs, sizes_in, sizes_out, room, sparse_outputs(program))


def ready_kernel(program: Program, model: Model) -> CompiledKernel | None:
    """The kernel of a program for a model, where it is there; nothing is written or compiled."""
    serves = program.name in _NAMES and set(model.joint_types) <= set(USUAL_JOINTS)
    known = _known(program) if serves else None
    return known and CompiledKernel(known[1], model, shapes_of(program, model), known[0])


class ReadyLoops:
    """A driver: kernels for float64 where they are there, rows otherwise."""

    def __init__(self) -> None:
        self._kernels: WeakKeyDictionary[Model, dict[str, CompiledKernel | None]] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return ReadyLoops, ()  # kernels belong to a process

    def __structure__(self) -> tuple[()]:
        return ()  # what a map computes does not depend on what evaluates it

    def __call__(self, program: Program, model: Model, arguments: Mapping[str, Any]) -> dict[str, Any]:
        values = [arguments[name] for name in program.arguments]
        kernel = self._kernel(program, model) if algebra_of(program, values) == "real" else None
        return (
            drivers.run(program, model, arguments)
            if kernel is None
            else named(program, model, kernel(*arrays_of(values)))
        )

    def _kernel(self, program: Program, model: Model) -> CompiledKernel | None:
        kernels = self._kernels.setdefault(model, {})
        if program.name not in kernels:
            kernels[program.name] = ready_kernel(program, model)
        return kernels[program.name]
