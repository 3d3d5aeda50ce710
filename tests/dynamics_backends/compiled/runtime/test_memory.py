"""Structs that are read from C text: names, offsets and sizes, those of a compiler."""

import ctypes
import subprocess

import pytest
from kernel_library import solver_sources

from dynamics_backends.compiled.runtime.memory import structs_in
from dynamics_backends.environment import compiler_command
from trajopt.solvers.window import newton_slot, shooting_slot

TEXT = """
#define COUNT 3
/* A struct { that a comment; } names. */
typedef struct {
    const double *x; /* (n,) */
    long n;
} inner_t;

typedef struct {
    double first, *second[2], third[COUNT];
    inner_t own, pair[2];
    const signed char *flags;
    const double *const *rows;
    void (*call)(void *at, long i, void (*other)(const inner_t *of));
    int last;
} outer_t;
"""


def test_members_have_the_names_and_kinds_of_their_declarations():
    outer, inner = structs_in(TEXT, "outer_t", "inner_t")
    pointer, number = ctypes.c_void_p, ctypes.c_double
    assert inner._fields_ == [("x", pointer), ("n", ctypes.c_long)]
    expected = [("first", number), ("second_0", pointer), ("second_1", pointer)]
    expected += [(f"third_{i}", number) for i in range(3)]
    for name in ("own", "pair_0", "pair_1"):
        expected += [(f"{name}_x", pointer), (f"{name}_n", ctypes.c_long)]
    expected += [(name, pointer) for name in ("flags", "rows", "call")] + [("last", ctypes.c_int)]
    assert outer._fields_ == expected
    with pytest.raises(AttributeError, match="firts"):
        outer().firts = 1.0
    with pytest.raises(KeyError, match="float"):
        list(structs_in("typedef struct {\n    float x;\n} other_t;", "other_t"))


@pytest.mark.needs_compiler
@pytest.mark.parametrize(
    ("text", "names"),
    [
        (newton_slot.source(), ("newton_t", "newton_phase_t", "newton_problem_t")),
        (shooting_slot.source(), ("shooting_t", "phase_t", "shooting_problem_t")),
        (
            solver_sources()["interior"],
            ("interior_t", "part_t", "interior_problem_t", "ipm_system", "ipm_step"),
        ),
    ],
    ids=["newton", "shooting", "interior"],
)
def test_sizes_are_those_of_the_compiler(text, names, tmp_path):
    sizes = zip(names, map(ctypes.sizeof, structs_in(text, *names)), strict=True)
    asserted = [f'_Static_assert(sizeof({name}) == {size}, "{name}");' for name, size in sizes]
    (tmp_path / "text.c").write_text("\n".join([text, *asserted]))
    command = [*compiler_command(), "-fsyntax-only", "-std=gnu11", "-w", str(tmp_path / "text.c")]
    assert not subprocess.run(command, capture_output=True, text=True, check=False).stderr
