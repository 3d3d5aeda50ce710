"""Files of killed processes are removed from the cache after a day; files in use and files of other users remain."""

import os
import time

import pytest

from dynamics_backends.compiled.runtime.file_locks import file_lock
from dynamics_backends.compiled.runtime.stale_files import COMPILING, STALE_AGE, remove_stale_files
from dynamics_backends.compiled.runtime.toolchain import find_toolchain

NAME = "0123456789abcdef" * 2


def aged(path, age=STALE_AGE + 60.0):
    """A file, and the folder it is in, as written so long ago [s]."""
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def test_old_leftovers_go(tmp_path):
    lost = [
        tmp_path / f"{NAME}.turn",
        tmp_path / f"{NAME}.known.abcd12_x.tmp",
        tmp_path / f"{NAME}.o.sha256.abcd12_x.tmp",
    ]
    for path in lost:
        path.write_text("")
        aged(path)
    folder = tmp_path / f"{COMPILING}abc12_xy"
    folder.mkdir()
    (folder / "kernel.c").write_text("int x;")
    aged(folder / "kernel.c")
    aged(folder)
    remove_stale_files(tmp_path)
    assert not list(tmp_path.iterdir())


def test_fresh_ones_kernels_and_foreign_files_stay(tmp_path):
    fresh = [tmp_path / f"{NAME}.turn", tmp_path / f"{NAME}.known.abcd12_x.tmp"]
    old = [tmp_path / f"{NAME}.so", tmp_path / "notes.turn", tmp_path / "letter.tmp", tmp_path / "tmpabcdefgh"]
    at_work = tmp_path / f"{COMPILING}def12_xy"  # a folder is as old as what was last written in it
    at_work.mkdir()
    (at_work / "kernel.c").write_text("int x;")
    notes, thesis = tmp_path / f"{COMPILING}notes", tmp_path / f"{COMPILING}chapter1"
    for folder in (notes, thesis):
        folder.mkdir()
    (thesis / "one.tex").write_text("")
    for path in (*fresh, *old):
        path.write_text("")
    for path in (*old, at_work, thesis / "one.tex", notes, thesis):
        aged(path)
    remove_stale_files(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([*fresh, *old, at_work, notes, thesis])


def test_a_turn_that_somebody_is_in_stays(tmp_path):
    pytest.importorskip("fcntl")
    file = tmp_path / f"{NAME}.turn"
    with file_lock(file):
        aged(file)
        remove_stale_files(tmp_path)
        assert file.exists()
    file.write_text("")
    aged(file)
    remove_stale_files(tmp_path)
    assert not file.exists()


def test_a_folder_that_is_not_there_is_no_error(tmp_path):
    remove_stale_files(tmp_path / "nowhere")


@pytest.mark.needs_compiler
def test_whoever_compiles_tidies_up(tmp_path):
    lost = tmp_path / f"{NAME}.turn"
    lost.write_text("")
    aged(lost)
    find_toolchain().compile("int one(void) { return 1; }", tmp_path / f"{NAME}.so")
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME}.so"]
