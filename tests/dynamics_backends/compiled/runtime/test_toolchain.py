"""The C compiler: the instruction set of its code, and interrupted compilations."""

import os
import platform
import signal
import sys
import threading
import time

import pytest

from dynamics_backends.compiled.runtime.toolchain import MARCH, CompilerError, Toolchain, find_toolchain

pytestmark = pytest.mark.needs_compiler


def test_code_is_for_this_processor_unless_a_variable_says_otherwise(monkeypatch):
    monkeypatch.delenv(MARCH, raising=False)
    native = find_toolchain()
    assert native.march == "native" and "-march=native" in native.flags
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


@pytest.mark.skipif(sys.platform == "win32", reason="signals of a thread are POSIX's")
def test_an_interrupted_compilation_leaves_no_process(tmp_path):
    started, compiler = tmp_path / "pid", tmp_path / "cc"
    compiler.write_text(f"#!/bin/sh\necho $$ > {started}.tmp; mv {started}.tmp {started}; exec sleep 60\n")
    compiler.chmod(0o755)
    main = threading.main_thread().ident

    def interrupt():
        while not started.exists():
            time.sleep(1e-3)
        signal.pthread_kill(main, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        Toolchain((str(compiler),), "none", 2)._run([])
    interrupting.join()
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)  # a zombie would still take signals
