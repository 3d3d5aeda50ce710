"""Values that another user could have written are not read, and links are not followed."""

import logging
import os
import stat

import pytest

from dynamics_backends.compiled.runtime import trace_cache
from dynamics_backends.compiled.runtime.trace_cache import read_value, write_value
from dynamics_backends.trusted_files import UntrustedFolder, content_of, problem_of, replace, trusted_folder

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no modes and owners of files as on POSIX")
as_root = pytest.mark.skipif(getattr(os, "geteuid", int)() != 0, reason="only root gives files to other users")
STRANGER = 54321


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("TRAJOPT_CACHE_DIR", str(tmp_path / "traces"))
    return trusted_folder(tmp_path / "traces")


# -- folders ------------------------------------------------------------------------------------------------------------


def test_a_new_cache_is_its_owners_alone(tmp_path):
    made = trusted_folder(tmp_path / "a" / "b")
    assert [stat.S_IMODE(f.stat().st_mode) for f in (made, made.parent)] == [0o700, 0o700]
    assert problem_of(made) == ""


@pytest.mark.parametrize("mode", [0o707, 0o770, 0o777])
def test_a_folder_that_others_can_write_to_is_named_with_the_remedy(tmp_path, mode):
    folder = trusted_folder(tmp_path / "shared folder")
    folder.chmod(mode)
    assert problem_of(folder) == f"{folder} can be written by others (remedy: chmod go-w '{folder}')"
    with pytest.raises(UntrustedFolder, match="chmod go-w"):
        trusted_folder(folder)
    folder.chmod(0o700)
    assert problem_of(folder) == ""


def test_the_target_of_a_link_counts(tmp_path):
    folder = trusted_folder(tmp_path / "open")
    folder.chmod(0o707)
    link = tmp_path / "traces"
    link.symlink_to(folder)
    assert problem_of(link).startswith(f"{link} can be written by others")
    folder.chmod(0o700)
    assert problem_of(link) == ""


@as_root
def test_a_folder_of_another_user_is_refused_even_by_root(tmp_path):
    folder = trusted_folder(tmp_path / "traces")
    os.chown(folder, STRANGER, -1)
    assert problem_of(folder).startswith(f"{folder} belongs to user {STRANGER} (remedy: chown -R ")


def test_without_modes_of_files_all_is_trusted(tmp_path, monkeypatch):
    folder = trusted_folder(tmp_path / "traces")
    folder.chmod(0o777)
    write_value(folder / "x.known", 1)
    monkeypatch.delattr(os, "geteuid")
    assert problem_of(folder) == "" and read_value(folder / "x.known") == 1


# -- files --------------------------------------------------------------------------------------------------------------


def _linked(file):
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("elsewhere"))


def _writable(file):
    file.chmod(0o646)


def _device(file):
    file.unlink()
    file.symlink_to("/dev/null")


def _given_away(file):
    os.chown(file, STRANGER, -1)


DOUBTFUL = [_linked, _writable, _device, pytest.param(_given_away, marks=as_root)]


@pytest.mark.parametrize("change", DOUBTFUL)
def test_files_that_others_could_have_written_are_not_read(folder, change):
    file = folder / "x.known"
    write_value(file, [1, 2])
    assert read_value(file) == [1, 2]
    change(file)
    assert read_value(file) is None
    write_value(file, [3])
    assert read_value(file) == [3]


def test_a_named_pipe_is_no_cache_file_and_is_replaced(folder):
    os.mkfifo(folder / "x.known", 0o600)
    assert read_value(folder / "x.known") is None
    write_value(folder / "x.known", [3])
    assert read_value(folder / "x.known") == [3]


def test_writing_replaces_a_link_and_not_what_it_points_to(folder, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (folder / "x.known").symlink_to(precious)
    replace(folder / "x.known", b"new")
    assert precious.read_text() == "mine"
    assert content_of(folder / "x.known") == b"new"
    assert [path.name for path in folder.iterdir()] == ["x.known"]


# -- what becomes of a refused folder -----------------------------------------------------------------------------------


def test_no_value_of_a_refused_cache_is_read_or_written(folder, caplog):
    """The value is computed each time; the log names the folder and the remedy, once."""
    asked = []

    def answer():
        asked.append(len(asked))
        return asked[-1]

    assert [trace_cache.cached_value(answer, "question") for _ in range(2)] == [0, 0]
    before = {file: file.read_bytes() for file in folder.iterdir()}
    folder.chmod(0o707)
    with caplog.at_level(logging.WARNING):
        assert [trace_cache.cached_value(answer, question) for question in ("question", "other")] == [1, 2]
    assert {file: file.read_bytes() for file in folder.iterdir()} == before
    (message,) = caplog.messages
    assert f"can be written by others (remedy: chmod go-w {folder})" in message and "TRAJOPT_CACHE_DIR" in message


# -- the place of the cache ---------------------------------------------------------------------------------------------


def _unknown(*_, **__):
    raise RuntimeError("could not determine the home directory")


@pytest.mark.parametrize("answer", [_unknown, lambda *_, **__: "~/.cache/trajopt"])
def test_a_user_without_a_home_has_a_cache_in_the_temporary_folder(answer, monkeypatch, tmp_path):
    """The answer of platformdirs for a user who is not in the list of users, without HOME."""
    monkeypatch.delenv("TRAJOPT_CACHE_DIR", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", answer)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert trace_cache.cache_folder() == tmp_path / f"trajopt-{os.geteuid()}" / "traces"
