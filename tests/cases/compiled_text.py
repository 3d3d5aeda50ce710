"""Test functions in C, compiled for the instruction set of the library, or another one."""

import ctypes
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from dynamics_backends.environment import CompilerError, compiler_command
from dynamics_backends.machine.library import chosen_instructions
from experiments.analysis.compiled_program import CompiledProgram, program_text

FLAGS = ("-O1", "-fno-math-errno", "-fPIC", "-shared", "-std=gnu11", "-w")


@lru_cache(maxsize=32)
def compiled_text(text, instructions=None):
    """Loaded library of a C text. Raises CompilerError."""
    chosen = chosen_instructions() if instructions is None else instructions
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder) / "text.c", Path(folder) / "text.so"
        source.write_text(text)
        march = [f"-march={chosen}"] if chosen else []
        command = [*compiler_command(), *FLAGS, *march, str(source), "-o", str(built), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompilerError(done.stderr)
        return ctypes.CDLL(str(built))


def compiled_kernel(kernel, model, sizes, shapes, zeros):
    """Block function of a generated source as a compiled program for one model."""
    return CompiledProgram(compiled_text(program_text(kernel)), model, sizes, shapes, zeros)
