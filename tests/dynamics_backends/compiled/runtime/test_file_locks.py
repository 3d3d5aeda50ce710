"""Locks between threads and processes that share a cache."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from dynamics_backends.compiled.runtime.file_locks import file_lock

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks for Linux")


def until(condition):
    """True if something comes true within a minute."""
    end = time.monotonic() + 60.0
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def test_threads_hold_a_lock_one_at_a_time(tmp_path):
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


def test_processes_hold_a_lock_one_at_a_time(tmp_path):
    log, go_on = tmp_path / "log", tmp_path / "go on"
    text = f"""
import time
from pathlib import Path
from dynamics_backends.compiled.runtime.file_locks import file_lock
with file_lock(Path({str(tmp_path / "a.turn")!r})):
    Path({str(log)!r}).write_text("in")
    while not Path({str(go_on)!r}).exists():
        time.sleep(0.005)
    Path({str(log)!r}).write_text("out")
"""
    other = subprocess.Popen([sys.executable, "-c", text])
    assert until(log.exists)
    threading.Timer(0.05, go_on.touch).start()
    with file_lock(tmp_path / "a.turn"):
        assert log.read_text() == "out"
    assert other.wait(60) == 0


def test_a_lock_of_a_killed_process_is_free(tmp_path):
    text = f"""
import time
from pathlib import Path
from dynamics_backends.compiled.runtime.file_locks import file_lock
with file_lock(Path({str(tmp_path / "a.turn")!r})):
    Path({str(tmp_path / "log")!r}).touch()
    time.sleep(600)
"""
    other = subprocess.Popen([sys.executable, "-c", text])
    assert until((tmp_path / "log").exists)
    other.kill()
    with file_lock(tmp_path / "a.turn"):
        other.wait(60)


def test_a_folder_that_cannot_be_written_has_no_lock(tmp_path):
    (tmp_path / "file").touch()
    with file_lock(tmp_path / "file" / "a.turn"):
        pass
