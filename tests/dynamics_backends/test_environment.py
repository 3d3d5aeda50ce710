"""The choice of the C compiler, and errors that name the remedy."""

import pytest

from dynamics_backends.environment import CompilerError, compiler_command


def program(folder, name):
    """An executable file."""
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return str(folder / name)


def test_the_first_compiler_on_the_path(tmp_path, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompilerError, match="none of cc, gcc, clang is on the PATH; install one .*CC"):
        compiler_command()
    for name in ("clang", "gcc", "cc"):
        made = program(tmp_path, name)
        assert compiler_command() == [made]


def test_cc_with_options(tmp_path, monkeypatch):
    wrapper = program(tmp_path, "ccache")
    monkeypatch.setenv("CC", f"{wrapper} gcc '-D X=1'")
    assert compiler_command() == [wrapper, "gcc", "-D X=1"]
    monkeypatch.setenv("CC", "/nowhere/cc -O2")
    with pytest.raises(CompilerError, match="CC names /nowhere/cc, which was not found; correct or unset CC"):
        compiler_command()
