"""Values found without computing them: known questions, damaged files, killed processes, several at once."""

import logging
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from dynamics_backends.compiled.runtime import trace_cache
from dynamics_backends.compiled.runtime.trace_cache import cached_value, read_value, write_value


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("TRAJOPT_CACHE_DIR", str(tmp_path / "traces"))
    monkeypatch.setattr(trace_cache, "_logged", set())
    return tmp_path / "traces"


class Answer:
    """A value that counts how often it is computed."""

    def __init__(self, value):
        self.value, self.asked = value, 0

    def __call__(self):
        self.asked += 1
        return self.value


def test_a_known_question_is_not_asked_again(folder):
    answer = Answer([7, "seven"])
    assert [cached_value(answer, "seven", 7) for _ in range(3)] == [[7, "seven"]] * 3
    assert answer.asked == 1
    assert cached_value(Answer(8), "seven", 8) == 8
    assert trace_cache.cache_folder() == folder and {path.suffix for path in folder.iterdir()} == {".known"}


@pytest.mark.parametrize("damage", ["missing", "empty", "half", "flipped", "another's"])
def test_damage_costs_time_at_most(damage, folder):
    assert cached_value(Answer(7), "seven") == 7
    [own] = folder.iterdir()
    assert cached_value(Answer(8), "eight") == 8
    [other] = set(folder.iterdir()) - {own}
    content = own.read_bytes()
    own.unlink()
    if damage != "missing":
        flipped = bytes([*content[:-1], content[-1] ^ 1])
        kinds = {
            "empty": b"",
            "half": content[: len(content) // 2],
            "flipped": flipped,
            "another's": other.read_bytes(),
        }
        own.write_bytes(kinds[damage])
    again = Answer(7)
    assert [cached_value(again, "seven") for _ in range(2)] == [7, 7] and again.asked == 1


@pytest.fixture
def packaged(folder, tmp_path, monkeypatch):
    """The package's folder, with the answer 7 to "seven"; the user's cache is empty."""
    place = tmp_path / "package"
    monkeypatch.setattr(trace_cache, "PACKAGED", place)
    with monkeypatch.context() as build:
        build.setattr(trace_cache, "cache_folder", lambda: place)
        assert cached_value(Answer(7), "seven") == 7
    return place


def test_traces_of_the_package_serve_all_versions_of_the_libraries(folder, packaged, monkeypatch):
    refused = Answer(8)
    assert cached_value(refused, "seven") == 7 and not folder.exists()
    assert cached_value(refused, "eight") == 8 and refused.asked == 1
    monkeypatch.setattr(trace_cache, "installed_versions", lambda: b"others")
    assert cached_value(refused, "seven") == 7 and refused.asked == 1
    assert cached_value(refused, "eight") == 8 and refused.asked == 2


def test_a_damaged_trace_of_the_package_is_ignored(folder, packaged):
    [file] = packaged.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    answer = Answer(7)
    assert [cached_value(answer, "seven") for _ in range(2)] == [7, 7] and answer.asked == 1
    assert len(list(folder.iterdir())) == 1


def test_unknown_dependencies_are_logged_and_computed_each_time(folder, caplog):
    answer = Answer(7)
    with caplog.at_level(logging.WARNING):
        assert [cached_value(answer, np.random.default_rng(0)) for _ in range(2)] == [7, 7]
    assert answer.asked == 2
    assert len(caplog.records) == 1 and "dependencies are unknown" in caplog.text


def test_a_full_disk_is_logged_once_and_breaks_nothing(folder, monkeypatch, caplog):
    def full(file, content):
        raise OSError(28, "No space left on device", str(file))

    monkeypatch.setattr(trace_cache, "write_value", full)
    answer = Answer(7)
    with caplog.at_level(logging.WARNING):
        assert [cached_value(answer, "seven") for _ in range(2)] == [7, 7]
    assert answer.asked == 2
    (message,) = caplog.messages
    assert f"{folder} cannot be used (No space left on device)" in message and "TRAJOPT_CACHE_DIR" in message


def test_a_file_in_the_place_of_the_folder(folder, caplog):
    folder.write_text("in the way")
    with caplog.at_level(logging.WARNING):
        assert cached_value(Answer(7), "seven") == 7
    assert len(caplog.messages) == 1 and folder.read_text() == "in the way"


def test_values_are_whole_or_missing(tmp_path):
    file = tmp_path / "one.known"
    value = [1, "a", [2.5, None]]
    write_value(file, value)
    assert read_value(file) == value
    content = file.read_bytes()
    for cut in range(0, len(content), 7):
        file.write_bytes(content[:cut])
        assert read_value(file) is None
    other = tmp_path / "other.known"
    other.write_bytes(content)
    assert read_value(other) is None  # under another name


_WORKER = """
import sys
from dynamics_backends.compiled.runtime.trace_cache import cached_value
for n in range(int(sys.argv[1]), int(sys.argv[2])):
    assert cached_value(lambda: n, "number", n) == n
    print(n, flush=True)
"""


def worker(first, last):
    return subprocess.Popen([sys.executable, "-c", _WORKER, str(first), str(last)], stdout=subprocess.PIPE, text=True)


def test_two_processes_at_once(folder):
    both = [worker(0, 30), worker(0, 30)]
    assert [process.communicate()[0].split() for process in both] == [[str(n) for n in range(30)]] * 2
    assert all(process.returncode == 0 for process in both)


def test_a_process_killed_at_any_moment_leaves_nothing_wrong(folder):
    rng = np.random.default_rng(0)
    for _ in range(3):
        process = worker(0, 1000)
        process.stdout.readline()
        time.sleep(float(rng.uniform(0.0, 0.1)))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    after = worker(0, 12)
    assert after.communicate()[0].split() == [str(n) for n in range(12)] and after.returncode == 0
