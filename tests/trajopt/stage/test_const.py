"""No C that is written casts const away, or drops it: what a kernel is given to read, it only reads."""

import subprocess

import pytest
from kernel_library import solver_sources

from dynamics_backends.environment import compiler_command

pytestmark = pytest.mark.needs_compiler
FLAGS = ("-fsyntax-only", "-std=gnu11", "-march=native", "-Wcast-qual", "-Wdiscarded-qualifiers")


def dropped(source, folder):
    """The lines where the compiler sees const dropped."""
    file = folder / "text.c"
    file.write_text(source)
    found = subprocess.run([*compiler_command(), *FLAGS, str(file)], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return [line for line in found.stderr.splitlines() if "-Wcast-qual" in line or "-Wdiscarded-qualifiers" in line]


def test_const_qualifiers_remain(tmp_path):
    texts = solver_sources().values()
    assert texts
    assert [line for text in texts for line in dropped(text, tmp_path)] == []


@pytest.mark.parametrize("body", ["return (double *)x;", "double *y = x; return y;"])
def test_const_that_is_dropped_is_seen(body, tmp_path):
    assert len(dropped(f"double *f(const double *x) {{ {body} }}", tmp_path)) == 1
