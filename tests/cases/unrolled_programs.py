"""Rigid-body programs, unrolled for a model, on tapes."""

from dynamics_backends.compiled.loops.kernel_data import arrays_of, named
from experiments.analysis.timing import program_tape


def on_tape(program, model, arguments):
    """Driver that evaluates all programs by tapes."""
    arrays = arrays_of([arguments[name] for name in program.arguments])
    return named(program, model, program_tape(program, model).rows(*arrays))
