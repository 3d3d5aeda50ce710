"""Build the C library of the package for every instruction set.

dynamics_backends generates the C code of the recursions from the Python algorithms; trajopt adds the kernels of its solvers.
Objects are cached in build/kernels by the hash of their source, so that a build compiles only changed code. CC names the compiler
(default: cc, gcc or clang).

Usage: python tools/build_kernels.py [--here]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cffi import FFI

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dynamics_backends.compiled.loops.kernel import (  # noqa: E402
    header,
    kernel_text,
    prelude,
    template,
    templates,
    text_of,
)
from dynamics_backends.compiled.loops.loops import loop_kernel  # noqa: E402
from dynamics_backends.compiled.sources import differences, manifold_source  # noqa: E402
from dynamics_backends.environment import CompilerError, compiler_command  # noqa: E402
from dynamics_backends.machine.library import (  # noqa: E402
    FOLDER,
    PROCESSOR,
    X86_64,
    instruction_sets,
    library_file,
)
from dynamics_backends.rigid_body.algorithms import aba, crba, forward_dynamics, kinematics, rnea  # noqa: E402
from dynamics_backends.rigid_body.contact import contact_dynamics  # noqa: E402
from dynamics_backends.rigid_body.derivatives import (  # noqa: E402
    fd_derivatives,
    fd_second_order,
    rnea_derivatives,
    rnea_second_order,
)
from dynamics_backends.rigid_body.passes.passes import Program  # noqa: E402
from dynamics_backends.rigid_body.spatial.joints import JOINTS  # noqa: E402
from dynamics_backends.systems.bodies import rigid_body_map  # noqa: E402
from trajopt.collisions import library as collisions  # noqa: E402
from trajopt.lq import lq_solver  # noqa: E402
from trajopt.solvers.interior import library as interior  # noqa: E402
from trajopt.solvers.window import interior_slot, newton_slot, shooting_slot  # noqa: E402
from trajopt.stage.compiled import library as stages  # noqa: E402

MODULES = (
    *(aba, crba, forward_dynamics, kinematics, rnea, contact_dynamics),
    *(fd_derivatives, fd_second_order, rnea_derivatives, rnea_second_order, rigid_body_map),
)
"""Modules whose programs are built."""
WITH_ROTORS = {"aba", "aba_external", "forward_dynamics", "fdsva", "fd_second_order", "contact_start"}
"""Programs that are also built with rotor inertias as an argument; implicit damping adds to these."""
HEADERS = ("loops.h", "tape.h", "library.h", "processor.h")
OBJECTS, INCLUDE = ROOT / "build" / "kernels", ROOT / "build" / "include"
"""Folders of objects, and of the generated headers, which editors and checks of single headers need (compile_flags.txt)."""
VECTORS = '#include "../../dynamics_backends/compiled/templates/linear_algebra/tensors.h"\n'
"""Include of the generated headers for vectors over lanes, which precede them in the sources of the library."""
FLAGS = ("-O3", "-fno-math-errno", "-fPIC", "-fvisibility=hidden", "-std=gnu11", "-w")
PROCESSOR_TEXT = """
EXPORT int best_instruction_set(void)
{
#if defined __x86_64__ || defined _M_X64
    __builtin_cpu_init();
    const int v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    const int v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
    return v3 + v4;
#else
    return 0;
#endif
}
"""
EXPORT = '#define EXPORT __attribute__((visibility("default")))\n'
LOOP = 'const loop_t loop_{0} = {{"{0}", {0}_workspace, {0}_run}};'
TABLE = """
#include <string.h>
{declared}
static const loop_t *const all[] = {{{loops}}};
EXPORT const loop_t *loop_named(const char *name)
{{
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i]->name, name)) return all[i];
    return 0;
}}
"""


def programs() -> Iterator[Program]:
    """Yield all programs of the modules, each once."""
    found = {p.name: p for module in MODULES for p in vars(module).values() if isinstance(p, Program)}
    for program in found.values():
        yield program
        if program.name in WITH_ROTORS:
            yield program.with_argument("armature")


def sources() -> dict[str, str]:
    """Return the C code of each object of a library by name."""
    found = {}
    for program in programs():
        kernel = loop_kernel(program, sorted(JOINTS))
        found[f"loop_{kernel.name}"] = "\n".join([header("loops.h"), text_of(kernel), LOOP.format(kernel.name)])
    found |= kernels_of_tapes()
    found["tape"] = "\n".join(
        [
            prelude(),
            header("loops.h"),
            header("tape.h"),
            kernel_text("dynamics_backends.tape", "tape.h", "interpreter.h"),
        ]
    )
    lanes = "\n".join([header("library.h"), prelude(), "EXPORT long lanes(void) { return LANES; }"])
    return {
        **found,
        **solver_sources(),
        "groups": manifold_source.library_source(),
        "differences": differences.differences_source(),
        "library": "\n".join([lanes, header("loops.h"), _loop_table(found)]),
    }


def solver_sources() -> dict[str, str]:
    """Return the C code of the solvers' objects by name."""
    return {
        "collisions": collisions.source(),
        "lq": lq_solver.source(lq_solver.SIZES),
        **{"lq_{}_{}".format(*size): lq_solver.sized_source(*size) for size in lq_solver.SIZES},
        "lq_in_lanes": lq_solver.lanes_source(),
        "interior": interior_slot.source(before=interior.source()),
        "newton": newton_slot.source(),
        "stages": stages.source(),
        "shooting": shooting_slot.source("shooting_window.h"),
    }


def generated_headers() -> dict[str, str]:
    """Return the C code of the headers that Python generates, by file name."""
    return {
        "distances.h": collisions.distances(),
        "interior_constants.h": interior.CONSTANTS,
        "interior_slot_constants.h": interior_slot.CONSTANTS,
        "lq_constants.h": lq_solver.CONSTANTS,
        "newton_constants.h": newton_slot.CONSTANTS,
        "shooting_constants.h": shooting_slot.CONSTANTS,
    }


def kernels_of_tapes() -> dict[str, str]:
    """Return the C code of kernels that only tapes call, by the names of their objects."""
    tape = [header("tape.h"), kernel_text("dynamics_backends.tape", "tape.h")]
    texts = {
        "constrained_solve": [prelude(), header("loops.h"), template("constrained/constrained_solve.h")],
        "stepped_solve": [
            *(templates(), header("loops.h"), *tape),
            *map(template, ("lanes/function.h", "contact/stepped_solve.h")),
        ],
    }
    return {f"loop_{name}": "\n".join([*text, LOOP.format(name)]) for name, text in texts.items()}


def _loop_table(names: Iterable[str]) -> str:
    loops = [name for name in names if name.startswith("loop_")]
    declared = "\n".join(f"extern const loop_t {name};" for name in loops)
    return TABLE.format(declared=declared, loops=", ".join(f"&{name}" for name in loops))


def files() -> list[str]:
    """Return the names of all built files."""
    return ["_declarations.py", PROCESSOR.name, *(library_file(one).name for one in instruction_sets())]


def build(folder: Path = FOLDER, sets: Sequence[str] | None = None) -> list[Path]:
    """Build the libraries for some instruction sets (default: all) into a folder; return the files.

    Exits with a message if there is no compiler, or it fails.
    """
    try:
        command = compiler_command()
    except CompilerError as error:
        sys.exit(f"error: {error}")
    texts = sources()
    folder.mkdir(parents=True, exist_ok=True)
    write_generated_headers()
    built = [_declarations(folder)]
    OBJECTS.mkdir(parents=True, exist_ok=True)
    built.append(folder / PROCESSOR.name)
    text = EXPORT + header("processor.h") + PROCESSOR_TEXT
    _link(command, [_object(command, text, ())], built[-1])
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for instructions in instruction_sets() if sets is None else sets:
            march = (f"-march={instructions}",) if instructions else ()
            objects = list(pool.map(lambda text, march=march: _object(command, text, march), texts.values()))
            built.append(folder / library_file(instructions).name)
            _link(command, objects, built[-1])
    return built


def write_generated_headers() -> None:
    """Write the headers that Python generates into the folder INCLUDE."""
    INCLUDE.mkdir(parents=True, exist_ok=True)
    for name, text in generated_headers().items():
        temporary = INCLUDE / f"{name}.{os.getpid()}"
        temporary.write_text(f"#pragma once\n{VECTORS}{text}\n")
        temporary.replace(INCLUDE / name)


def _declarations(folder: Path) -> Path:
    """Write the module that declares the functions and structs of the headers."""
    maker = FFI()
    for name in HEADERS:
        maker.cdef(re.sub(r"^#.*\n", "", header(name), flags=re.M))
    maker.set_source("dynamics_backends.machine._declarations", None)
    target, temporary = folder / "_declarations.py", folder / f"_declarations.{os.getpid()}.py"
    maker.emit_python_code(str(temporary))
    temporary.replace(target)  # atomic, since other builds may run in parallel
    return target


def _object(command: Sequence[str], text: str, more: Sequence[str]) -> Path:
    """Return the object file of a source; compile it if it is not cached."""
    name = hashlib.sha256("\n".join([*command, *FLAGS, *more, _version(command), text]).encode()).hexdigest()[:32]
    target, temporary = OBJECTS / f"{name}.o", OBJECTS / f"{name}.{os.getpid()}.o"
    source = temporary.with_suffix(".c")
    if not target.exists():
        source.write_text(text)
        _run([*command, *FLAGS, *more, "-c", str(source), "-o", str(temporary)])
        temporary.replace(target)
        source.unlink(missing_ok=True)
    return target


def _link(command: Sequence[str], objects: Sequence[Path], target: Path) -> None:
    """Link objects unless the library is up to date. The file is replaced, since other processes may have loaded it."""
    stamp, names = OBJECTS / f"{target.name}.objects", "\n".join([str(target), *(o.name for o in objects)])
    if target.exists() and stamp.exists() and stamp.read_text() == names:
        target.touch()
        return
    temporary = target.with_suffix(f".{os.getpid()}")
    _run([*command, "-shared", *map(str, objects), "-o", str(temporary), "-lm"])
    temporary.replace(target)
    stamp.write_text(names)


_versions: dict[str, str] = {}


def _version(command: Sequence[str]) -> str:
    key = shlex.join(command)
    if key not in _versions:
        _versions[key] = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    return _versions[key]


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        sys.exit(f"error: {shlex.join(command)} failed: {done.stderr.strip()[:2000]}")


def best_sets() -> list[str]:
    """Return the best instruction set of this machine."""
    import ctypes

    build(sets=[])
    known = instruction_sets()
    return [known[ctypes.CDLL(str(PROCESSOR)).best_instruction_set()]] if known is X86_64 else list(known)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--here", action="store_true", help="only the best instruction set of this machine")
    for file in build(sets=best_sets() if parser.parse_args().here else None):
        print(file)
