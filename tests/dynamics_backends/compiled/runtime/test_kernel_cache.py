"""The cache of compiled kernels and the search for a compiler, where things go well and where they do not."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import threading

import pytest

from dynamics_backends.compiled.runtime import cache, toolchain
from dynamics_backends.compiled.runtime.cache import CacheWarning, cache_folder, load
from dynamics_backends.compiled.runtime.toolchain import CompilerError, Toolchain, find_toolchain, has_compiler

needs_compiler = pytest.mark.needs_compiler


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache, and a separate folder for files that cannot be in it."""
    place = tmp_path / "deep" / "kernels"
    monkeypatch.setattr(cache, "_fallback_folder", lambda: tmp_path / "fallback")
    monkeypatch.setenv("TRAJOPT_CACHE_DIR", str(place))
    return place


@pytest.fixture
def compiled(monkeypatch):
    """The sources handed to the compiler, which works as always."""
    sources, compile_ = [], Toolchain.compile

    def counted(self, source, target):
        sources.append(source)
        compile_(self, source, target)

    monkeypatch.setattr(Toolchain, "compile", counted)
    return sources


def source(number):
    return f"double answer(void) {{ return {number}; }}\n"


def answer(library):
    library.answer.restype = ctypes.c_double
    return library.answer()


def files(folder):
    return sorted(
        path.suffix for path in folder.iterdir() if path.suffix != ".known"
    )  # the cached description of the compiler


def entry(folder):
    """The only library of a cache, and its checksum."""
    [library] = folder.glob("*.so")
    return library, library.with_suffix(".sha256")


def fresh_copy(library, tmp_path):
    """A library under a new name: the loader returns the one it has for a path seen before."""
    return ctypes.CDLL(shutil.copy(library, tmp_path / "copy.so"))


# -- the cache ----------------------------------------------------------------------------------------------------------


@needs_compiler
def test_the_second_load_compiles_nothing(folder, compiled):
    assert answer(load(source(1.5))) == 1.5
    assert (len(compiled), files(folder)) == (1, [".sha256", ".so"])
    assert answer(load(source(1.5))) == 1.5
    assert len(compiled) == 1
    assert answer(load(source(2.5))) == 2.5
    assert len(compiled) == 2


@needs_compiler
def test_names_and_checksums(folder):
    load(source(3.5))
    library, checksum = entry(folder)
    assert len(library.stem) == 32 and set(library.stem) <= set("0123456789abcdef")
    assert checksum.read_text() == hashlib.sha256(library.read_bytes()).hexdigest()


@needs_compiler
def test_another_compiler_or_processor_has_its_own_entry(folder, compiled, monkeypatch):
    load(source(4.5))
    monkeypatch.setattr(toolchain, "cpu_features", lambda: "another processor")
    load(source(4.5))
    assert len(list(folder.glob("*.so"))) == len(compiled) == 2


def _truncated(library, checksum):
    content = library.read_bytes()
    library.unlink()  # the loader may have the old file mapped
    library.write_bytes(content[: len(content) // 2])


def _foreign(library, checksum):
    library.unlink()
    library.write_bytes(b"no library at all")


def _removed(library, checksum):
    library.unlink()


def _unsigned(library, checksum):
    checksum.unlink()


def _wrongly_signed(library, checksum):
    checksum.write_text("0" * 64)


def _signed_in_binary(library, checksum):
    checksum.write_bytes(bytes(range(256)))


DAMAGES = [_truncated, _foreign, _removed, _unsigned, _wrongly_signed, _signed_in_binary]


@needs_compiler
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__.strip("_"))
def test_a_damaged_entry_is_compiled_again(damage, folder, compiled, tmp_path):
    number = 10.0 + DAMAGES.index(damage)
    load(source(number))
    damage(*entry(folder))
    assert answer(load(source(number))) == number
    assert len(compiled) == 2
    library, checksum = entry(folder)
    assert checksum.read_text() == hashlib.sha256(library.read_bytes()).hexdigest()
    assert answer(fresh_copy(library, tmp_path)) == number
    load(source(number))
    assert len(compiled) == 2


@needs_compiler
def test_a_folder_that_cannot_be_made_is_replaced_with_a_warning(folder):
    folder.parent.write_text("in the way")
    with pytest.warns(CacheWarning, match="Not a directory.*Set TRAJOPT_CACHE_DIR to a folder"):
        assert answer(load(source(20.5))) == 20.5


@needs_compiler
def test_a_read_only_folder_is_replaced_with_a_warning(folder):
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write anywhere")
    with pytest.warns(CacheWarning, match="cannot be used"):
        assert answer(load(source(21.5))) == 21.5


@needs_compiler
def test_a_read_only_folder_serves_what_it_holds(folder, compiled):
    load(source(22.5))
    folder.chmod(0o500)
    assert answer(load(source(22.5))) == 22.5
    assert len(compiled) == 1
    folder.chmod(0o700)


@needs_compiler
def test_a_full_disk_is_told(folder, monkeypatch):
    def full(self, source, target):
        if target.parent == folder:
            raise OSError(28, "No space left on device")
        original(self, source, target)

    original = Toolchain.compile
    monkeypatch.setattr(Toolchain, "compile", full)
    with pytest.warns(CacheWarning, match="No space left on device"):
        assert answer(load(source(23.5))) == 23.5


def _compiler(tmp_path, script):
    """A compiler that is a shell script."""
    command = tmp_path / "compiler"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return Toolchain((str(command),), "0", 2)


on_posix = pytest.mark.skipif(os.name != "posix", reason="compilers here are shell scripts")


@on_posix
def test_a_compiler_without_space_anywhere_is_an_error_with_the_remedy(folder, tmp_path):
    full = _compiler(tmp_path, "echo 'ld: final link failed: No space left on device' >&2; exit 1")
    match = (
        f"no kernel can be written: neither to the cache {folder} .No space.*Make space there, or set TRAJOPT_CACHE_DIR"
    )
    with pytest.warns(CacheWarning, match="No space left on device"), pytest.raises(CompilerError, match=match):
        load(source(26.5), full)
    assert not list(folder.iterdir())


@on_posix
@pytest.mark.parametrize(("script", "words"), [("kill -9 $$", "exit status -9"), ("echo boom >&2; exit 1", "boom")])
def test_a_compiler_that_fails_or_is_killed_is_an_error_with_the_remedy(folder, tmp_path, script, words):
    with pytest.raises(
        CompilerError, match=f"compiler failed: {words}.*; set CC to another compiler; engine = 'numpy'"
    ):
        load(source(27.5), _compiler(tmp_path, script))
    assert not list(folder.iterdir())


@needs_compiler
def test_a_process_warns_once_of_its_cache(folder, recwarn):
    folder.parent.write_text("in the way")
    load(source(28.5))
    load(source(29.5))
    assert [w.category for w in recwarn] == [CacheWarning]


@needs_compiler
def test_two_processes_compile_the_same_kernel(folder):
    code = f"from dynamics_backends.compiled.runtime.cache import load; assert load({source(24.5)!r}).answer"
    command = [sys.executable, "-W", "error", "-c", code]
    runs = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for run in runs:
        _, errors = run.communicate(timeout=120)
        assert run.returncode == 0, errors
    assert files(folder) == [".sha256", ".so"]


@needs_compiler
def test_two_threads_compile_the_same_kernel(folder, monkeypatch):
    """Both compile, then both sign."""
    together, compile_, answers = threading.Barrier(2, timeout=60), Toolchain.compile, []

    def at_once(self, source, target):
        compile_(self, source, target)
        together.wait()

    monkeypatch.setattr(Toolchain, "compile", at_once)
    threads = [threading.Thread(target=lambda: answers.append(answer(load(source(25.5))))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [25.5, 25.5]
    assert files(folder) == [".sha256", ".so"]


def test_the_folder_is_the_users_without_the_variable(monkeypatch):
    import platformdirs

    monkeypatch.delenv("TRAJOPT_CACHE_DIR")
    assert cache_folder().is_relative_to(platformdirs.user_cache_dir("trajopt"))


# -- the compiler -------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_compiler(monkeypatch):
    """Nothing on the PATH, no CC, no ziglang."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(toolchain, "find_spec", lambda name: None)


REMEDIES = ("gcc", "clang", "pip install ziglang", "set CC", "engine = 'numpy'")


def test_a_missing_compiler_names_the_remedies(no_compiler, folder):
    assert not has_compiler()
    with pytest.raises(CompilerError) as caught:
        load(source(30.5))
    assert all(remedy in str(caught.value) for remedy in REMEDIES)


@pytest.mark.parametrize("command", ["/nonexistent/cc", sys.executable])
def test_a_compiler_that_does_not_work_is_named(command, monkeypatch):
    """One that is not there, and a program that is no compiler."""
    monkeypatch.setenv("CC", command)
    assert not has_compiler()
    with pytest.raises(CompilerError, match=command) as caught:
        find_toolchain()
    assert "correct or unset CC" in str(caught.value) and "engine = 'numpy'" in str(caught.value)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (" ", "variable CC is ' ', which names no compiler: correct or unset it; engine = 'numpy' needs none"),
        ("'gcc", r"variable CC is .* \(No closing quotation\): correct or unset it; engine = 'numpy' needs none"),
    ],
)
def test_a_cc_that_is_no_command_is_named(monkeypatch, command, message):
    monkeypatch.setenv("CC", command)
    assert not has_compiler()
    with pytest.raises(CompilerError, match=message):
        find_toolchain()


def test_cc_may_have_options(monkeypatch):
    monkeypatch.setenv("CC", "ccache gcc -m64")
    assert toolchain.candidates() == [("ccache", "gcc", "-m64")]


@needs_compiler
def test_options_of_cc_win_over_the_usual_ones(monkeypatch):
    name = find_toolchain().command[0]
    monkeypatch.setenv("CC", f"{name} -O1 -g")
    found = find_toolchain()
    assert found.command == (name, "-O1", "-g") and found.flags[-2:] == ("-O1", "-g") and found.flags[0] == "-O3"


@needs_compiler
def test_a_compile_error_shows_the_compilers_words(folder):
    with pytest.raises(CompilerError, match="undeclared_name"):
        load("int f(void) { return undeclared_name; }\n")
    assert files(folder) == []


@needs_compiler
def test_a_toolchain_knows_its_vectors():
    found = find_toolchain()
    assert found.lanes in (2, 4, 8)
    assert found.version and found.command
    assert f"#define LANES {found.lanes}\n" in found.definitions
