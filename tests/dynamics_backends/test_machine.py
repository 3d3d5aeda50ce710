"""The C library: the same numbers by every instruction set, clear errors, headers that include what they use."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import dynamics_backends
from dynamics_backends.machine import library
from dynamics_backends.machine.library import X86_64, library_file
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.model.sample_models import chain
from dynamics_backends.rigid_body.passes import drivers
from dynamics_backends.tape.driver import by_library
from dynamics_backends.user_input import InputError

FOLDER = Path(dynamics_backends.__file__).parent
HEADERS = [
    *(f"compiled/templates/lanes/{name}.h" for name in ("vectors", "vector_math", "prelude", "rows")),
    *(f"compiled/templates/linear_algebra/{name}.h" for name in ("ltl", "tensors")),
    *(f"machine/include/{name}.h" for name in ("library", "loops", "processor", "tape")),
    *(f"tape/kernels/{name}.h" for name in ("interpreter", "tape")),
]


@pytest.mark.parametrize("name", X86_64)
def test_every_instruction_set_gives_the_numbers_of_rows(name, monkeypatch):
    if not library_file(name).is_file():
        pytest.skip("not built: `make kernels` builds all")
    monkeypatch.setenv("TRAJOPT_MARCH", name)
    try:
        assert library.chosen_instructions() == name and library.lanes() == 2 ** (1 + X86_64.index(name))
    except InputError:
        pytest.skip("this processor lacks the instructions")
    model, rng = chain(7, rng=3), np.random.default_rng(1)
    given = {key: rng.normal(size=(7, 13)) for key in ("q", "v", "tau")}
    found, known = by_library(FDSVA, model, given), drivers.run(FDSVA, model, given)
    for output in FDSVA.outputs:
        np.testing.assert_allclose(found[output], known[output], rtol=1e-9, atol=1e-9)


def test_an_instruction_set_that_the_processor_lacks_is_an_error(monkeypatch):
    monkeypatch.setattr(library, "instruction_sets", lambda: ("x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v9"))
    monkeypatch.setenv("TRAJOPT_MARCH", "x86-64-v9")
    library._chosen.cache_clear()
    with pytest.raises(InputError, match="TRAJOPT_MARCH is x86-64-v9.* does not support.*unset it"):
        library.chosen_instructions()
    library._chosen.cache_clear()


def test_a_missing_library_names_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "library_file", lambda name: tmp_path / f"kernels-{name}.so")
    with pytest.raises(library.LibraryMissing, match=r"is missing: .*pip install -e \.`"):
        library.library()


def test_missing_declarations_name_the_remedy(monkeypatch):
    monkeypatch.setattr(library, "ffi", None)
    with pytest.raises(library.LibraryMissing, match="was not built"):
        library.enumerators("tape_op")


def test_a_damaged_library_names_the_remedy(monkeypatch, tmp_path):
    (tmp_path / "kernels.so").write_text("nothing")
    monkeypatch.setattr(library, "library_file", lambda name: tmp_path / "kernels.so")
    with pytest.raises(library.LibraryMissing, match="cannot be loaded"):
        library.library()


def test_files_of_a_set_without_a_name():
    assert library_file("").stem == "kernels" and library.instruction_sets()


@pytest.mark.needs_compiler
@pytest.mark.parametrize("header", HEADERS)
def test_headers_compile_alone(header):
    compiler = next(path for path in map(shutil.which, ("cc", "gcc", "clang")) if path)
    command = [compiler, "-xc", "-std=gnu11", "-fsyntax-only", "-Wno-psabi", str(FOLDER / header)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
