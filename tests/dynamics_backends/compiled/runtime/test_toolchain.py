"""The instruction set of compiled code: this processor's, or the one that TRAJOPT_MARCH names."""

import platform

import pytest

from dynamics_backends.compiled.runtime.toolchain import MARCH, CompilerError, find_toolchain

pytestmark = pytest.mark.needs_compiler


def test_code_is_for_this_processor_unless_a_variable_says_otherwise(monkeypatch):
    monkeypatch.delenv(MARCH, raising=False)
    native = find_toolchain()
    assert native.march == "native" and "-march=native" in native.flags and "-march=native" in native.hurried.flags
    monkeypatch.setenv(MARCH, "")
    assert find_toolchain() == native


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="another kind of processor")
def test_code_for_any_processor_has_narrow_vectors_and_other_cache_keys(monkeypatch, tmp_path):
    monkeypatch.delenv(MARCH, raising=False)
    native = find_toolchain()
    monkeypatch.setenv(MARCH, "x86-64")
    for _ in range(2):  # examined, then remembered
        generic = find_toolchain()
        assert (generic.march, generic.lanes) == ("x86-64", 2)
        assert "-march=x86-64" in generic.flags and "-march=native" not in generic.flags
    assert generic.fingerprint != native.fingerprint
    generic.compile(f"{generic.definitions}int lanes(void) {{ return LANES; }}\n", tmp_path / "kernel.so")
    assert (tmp_path / "kernel.so").exists()


def test_an_instruction_set_that_the_compiler_does_not_know_is_named(monkeypatch):
    monkeypatch.setenv(MARCH, "pdp-11")
    with pytest.raises(CompilerError, match="correct or unset TRAJOPT_MARCH = 'pdp-11'"):
        find_toolchain()
