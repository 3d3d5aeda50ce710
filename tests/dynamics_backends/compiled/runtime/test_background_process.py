"""Work in another process, and turns among processes: whoever is killed holds up nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from dynamics_backends.compiled.runtime import cache, progress
from dynamics_backends.compiled.runtime.background_process import in_background
from dynamics_backends.compiled.runtime.file_locks import file_lock
from dynamics_backends.compiled.runtime.toolchain import Toolchain

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks for Linux")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("TRAJOPT_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def until(condition):
    """True if something comes true within a minute."""
    end = time.monotonic() + 60.0
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def test_work_leaves_files(tmp_path):
    made = tmp_path / "made"
    local = "a function of this one"
    work = in_background(lambda: made.write_text(f"{local} in {os.getpid()}"))
    assert work is not None and until(lambda: work.finished)
    assert made.read_text().startswith(local) and not made.read_text().endswith(str(os.getpid()))
    assert work.complaint == ""


def test_a_failure_is_told():
    def fails():
        raise ValueError("no such thing")

    work = in_background(fails)
    assert work is not None and until(lambda: work.finished)
    assert work.complaint == "ValueError: no such thing"


@pytest.mark.needs_compiler
def test_a_full_disk_is_a_failure_and_leaves_nothing_in_the_temporary_folder(folder, tmp_path, monkeypatch):
    def full(self, source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Toolchain, "compile", full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    work = in_background(lambda: cache.load("int one(void) { return 1; }"))
    assert work is not None and until(lambda: work.finished)
    assert work.complaint.startswith(f"the kernel cache {folder} cannot be used: No space left on device")
    assert until(lambda: not list((tmp_path / "temporary").iterdir()))


def test_there_is_none_where_the_cache_is_refused(folder):
    folder.mkdir()
    folder.chmod(0o707)
    assert in_background(lambda: None) is None


def test_a_killed_one_has_ended(folder):
    work = in_background(lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert work is not None and until(lambda: work.finished)
    assert work.complaint == ""
    [left] = folder.glob("*.turn")
    with file_lock(left):  # and is free
        pass


def test_its_turn_is_seen_while_it_works(folder, tmp_path):
    go_on = tmp_path / "go on"
    work = in_background(lambda: until(go_on.exists))
    assert work is not None and until(lambda: any(folder.glob("*.turn"))) and not work.finished
    go_on.touch()
    assert until(lambda: work.finished) and not any(folder.glob("*.turn"))


def test_it_goes_on_and_holds_no_file_of_a_process_that_has_ended(tmp_path):
    made = tmp_path / "made"
    text = f"""
from pathlib import Path
import time
from dynamics_backends.compiled.runtime.background_process import in_background
def work():
    while not Path({str(tmp_path / "go on")!r}).exists():
        time.sleep(0.005)
    Path({str(made)!r}).touch()
in_background(work)
"""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, timeout=60, check=True
    )  # until its pipes end
    assert done.stdout == done.stderr == b"" and not made.exists()
    (tmp_path / "go on").touch()
    assert until(made.exists)


def test_turns_are_one_at_a_time(tmp_path):
    inside, most = [0], [0]

    def work():
        for _ in range(20):
            with file_lock(tmp_path / "a.turn"):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.0005)
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] and not (tmp_path / "a.turn").exists()


def test_turns_are_one_at_a_time_among_processes(tmp_path):
    log, go_on = tmp_path / "log", tmp_path / "go on"

    def work():
        with file_lock(tmp_path / "a.turn"):
            log.write_text("in")
            until(go_on.exists)
            log.write_text("out")

    other = in_background(work)
    assert other is not None and until(log.exists)
    threading.Timer(0.05, go_on.touch).start()
    with file_lock(tmp_path / "a.turn"):
        assert log.read_text() == "out"


def test_a_folder_that_cannot_be_written_gives_turns_at_once(tmp_path):
    (tmp_path / "file").touch()
    with file_lock(tmp_path / "file" / "a.turn"):
        pass


def test_how_far_another_process_is_is_told_while_it_works(tmp_path, folder, monkeypatch):
    """Three pieces, one finished: a line reports the count and the cache; no line after the end of the process."""
    for name in ("WORTH_A_LINE", "AGAIN_AFTER", "NOTED_AFTER"):
        monkeypatch.setattr(progress, name, 0.01)
    go_on, lines = tmp_path / "go on", []

    def compiles():
        with progress.counted(3) as done:
            done()
            until(go_on.exists)

    with progress.told_beside(lines.append):
        work = in_background(compiles)
        assert work is not None and until(lambda: any("1 parts done, 2 to go" in line for line in lines))
        go_on.touch()
        assert until(lambda: work.finished)
    assert all("cached for later runs" in line for line in lines)
    after = []
    with progress.told_beside(after.append):
        time.sleep(0.05)
    assert after == [] and not list(folder.glob("*.turn"))


def test_a_killed_process_is_not_told_of(tmp_path, monkeypatch):
    note = tmp_path / "killed.turn"
    note.write_text("3 4")
    monkeypatch.setattr(progress, "_beside", [note])
    assert progress._read(note) == (3, 4)
    os.utime(note, (0.0, 0.0))
    assert progress._read(note) is None
