"""Rigid-body programs, unrolled for a model, on tapes."""

from functools import cache

from dynamics_backends.compiled.loops.kernel_data import arrays_of, named, shapes_of
from dynamics_backends.compiled.loops.unrolled import argument_sizes, unrolled_trace
from dynamics_backends.symbols import tracing
from dynamics_backends.tape.tape import Tape


@cache
def program_tape(program, model):
    """Tape of a program, unrolled for a model."""
    with tracing:
        return Tape.of(unrolled_trace(program, model), argument_sizes(program, model), shapes_of(program, model))


def on_tape(program, model, arguments):
    """Driver that evaluates all programs by tapes."""
    arrays = arrays_of([arguments[name] for name in program.arguments])
    return named(program, model, program_tape(program, model).rows(*arrays))
