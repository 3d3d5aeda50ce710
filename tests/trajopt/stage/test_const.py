"""No C that is written casts const away, or drops it: what a kernel is given to read, it only reads."""

import subprocess

import contact_cases
import pytest
import stage_cases

from dynamics_backends.compiled.interface.libraries import find_toolchain
from trajopt import kernel_sources
from trajopt.stage.compiled.library import source_of
from trajopt.stage.evaluation import StageEvaluator

pytestmark = pytest.mark.needs_compiler
FLAGS = ("-fsyntax-only", "-std=gnu11", "-march=native", "-Wcast-qual", "-Wdiscarded-qualifiers")


def dropped(source, folder):
    """The lines where the compiler sees const dropped."""
    toolchain, file = find_toolchain(), folder / "text.c"
    file.write_text(toolchain.definitions + source)
    found = subprocess.run([*toolchain.command, *FLAGS, str(file)], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return [line for line in found.stderr.splitlines() if "-Wcast-qual" in line or "-Wdiscarded-qualifiers" in line]


def stage_texts(ocp, hessian):
    """The texts of the libraries of its phases."""
    phases = zip(ocp.phases, StageEvaluator(ocp, hessian, "compiled").stages, strict=False)
    return [source_of(phase.dynamics.backend, stages.library.shape) for phase, stages in phases]


TEXTS = {
    "a robot, exact": lambda: stage_texts(stage_cases.problem(), "exact"),
    "contacts": lambda: stage_texts(contact_cases.hop("compiled"), "gauss_newton")[:1],
    "soft contacts": lambda: stage_texts(contact_cases.soft_hop("compiled"), "gauss_newton"),
    "the library": lambda: list(kernel_sources.sources().values()),
}


@pytest.mark.parametrize("name", TEXTS)
def test_const_is_kept(name, tmp_path):
    texts = TEXTS[name]()
    assert texts
    assert [line for text in texts for line in dropped(text, tmp_path)] == []


@pytest.mark.parametrize("body", ["return (double *)x;", "double *y = x; return y;"])
def test_const_that_is_dropped_is_seen(body, tmp_path):
    assert len(dropped(f"double *f(const double *x) {{ {body} }}", tmp_path)) == 1
