"""Libraries found without their source: known questions, damaged answers, killed processes, several at once."""

import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from dynamics_backends.compiled.loops.kernel import templates
from dynamics_backends.compiled.runtime import kept_files, toolchain, trace_cache, units as units_module
from dynamics_backends.compiled.runtime.kept_files import intact, read_value, write_value
from dynamics_backends.compiled.runtime.toolchain import Toolchain, find_toolchain

pytestmark = pytest.mark.needs_compiler


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("TRAJOPT_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


class Source:
    """A text that counts its uses."""

    def __init__(self, number):
        self.number, self.asked = number, 0

    def __call__(self):
        self.asked += 1
        return f"double answer(void) {{ return {self.number}; }}\n"


def answer(library):
    library.answer.restype = ctypes.c_double
    return library.answer()


def test_a_known_question_is_not_asked_again(folder):
    source = Source(7)
    assert [answer(trace_cache.library(source, "seven", 7)) for _ in range(3)] == [7.0] * 3
    assert source.asked == 1
    assert answer(trace_cache.library(Source(8), "seven", 8)) == 8.0


@pytest.mark.parametrize("suffix", [".known", ".so", ".sha256"])
@pytest.mark.parametrize("damage", ["missing", "empty", "half", "flipped", "another's"])
def test_damage_costs_time_at_most(damage, suffix, folder):
    assert answer(trace_cache.library(Source(7), "seven")) == 7.0
    before = set(folder.iterdir())
    assert answer(trace_cache.library(Source(8), "eight")) == 8.0
    others = {path.suffix: path for path in set(folder.iterdir()) - before}
    [own] = [path for path in before if path.suffix == suffix and not _is_compilers(path)]
    content = own.read_bytes()
    own.unlink()
    if damage != "missing":
        flipped = bytes([*content[:-1], content[-1] ^ 1])
        kinds = {"empty": b"", "half": content[: len(content) // 2], "flipped": flipped}
        own.write_bytes(kinds[damage] if damage in kinds else others[suffix].read_bytes())
    assert answer(trace_cache.library(Source(7), "seven")) == 7.0


def _is_compilers(path):
    """True if a value is a cached description of the compiler."""
    return path.suffix == ".known" and len(read_value(path) or ()) == 3


def test_another_compiler_or_processor_asks_anew(folder, monkeypatch):
    source = Source(7)
    trace_cache.library(source, "seven")
    monkeypatch.setattr(toolchain, "cpu_features", lambda: "another processor")
    trace_cache.library(source, "seven")
    assert source.asked == 2
    monkeypatch.setattr(toolchain, "FLAGS", (*toolchain.FLAGS, "-g"))
    trace_cache.library(source, "seven")
    assert source.asked == 3


def test_refusals_are_remembered(folder):
    class TooMuch(ValueError):
        pass

    asked = []

    def source():
        asked.append(1)
        raise TooMuch("this is too much")

    for _ in range(2):
        with pytest.raises(TooMuch, match="this is too much"):
            trace_cache.library(source, "much", refusals=(TooMuch,))
    assert len(asked) == 1


def test_what_cannot_be_told_is_said_and_asked_each_time(folder, caplog):
    source = Source(7)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert answer(trace_cache.library(source, np.random.default_rng(0))) == 7.0
    assert source.asked == 2
    assert len(caplog.records) == 1 and "dependencies are unknown" in caplog.text


def test_a_full_disk_keeps_nothing_and_breaks_nothing(folder, monkeypatch):
    def full(file, content):
        raise OSError(28, "No space left on device", str(file))

    folder.mkdir()
    monkeypatch.setattr(trace_cache, "write_value", full)
    source = Source(7)
    assert [answer(trace_cache.library(source, "seven")) for _ in range(2)] == [7.0, 7.0]
    assert source.asked == 2


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


def long_source(value):
    """Two functions of straight-line code, in separate units."""
    text = "STRAIGHT void {0}_0(V* restrict w)\n{{\nw[0] = splat({1});\n}}\n"
    main = '__attribute__((visibility("default"))) double answer(void) { V w[1]; first_0(w); second_0(w); return w[0][0]; }\n'
    return templates() + text.format("first", 1.0) + text.format("second", value) + main


def test_an_edit_compiles_the_unit_that_it_is_in(folder, monkeypatch):
    monkeypatch.setattr(units_module, "WORTH_SPLITTING", 0)
    monkeypatch.setattr(units_module, "SMALL", 0)
    runs, run = [], Toolchain._run
    monkeypatch.setattr(Toolchain, "_run", lambda self, a: (runs.append("-c" in a), run(self, a)))
    assert answer(trace_cache.load(long_source(2.0))) == 2.0
    assert sum(runs) == 3
    runs.clear()
    assert answer(trace_cache.load(long_source(3.0))) == 3.0
    assert sum(runs) == 1


def test_a_unit_that_two_libraries_share_is_compiled_once(folder, monkeypatch):
    monkeypatch.setattr(units_module, "WORTH_SPLITTING", 0)
    monkeypatch.setattr(units_module, "SMALL", 0)
    runs, run, both = [], Toolchain._run, threading.Barrier(2)
    monkeypatch.setattr(Toolchain, "_run", lambda self, a: (runs.append("-c" in a), run(self, a)))

    def made(value):
        both.wait()
        return answer(trace_cache.load(long_source(value)))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(made, (4.0, 5.0))) == [4.0, 5.0]
    assert sum(runs) == 4


def test_a_damaged_object_is_compiled_again(folder, monkeypatch):
    monkeypatch.setattr(units_module, "WORTH_SPLITTING", 0)
    monkeypatch.setattr(units_module, "SMALL", 0)
    assert answer(trace_cache.load(long_source(2.0))) == 2.0
    for made in folder.glob("*.o"):
        made.write_bytes(made.read_bytes()[:100])
    assert answer(trace_cache.load(long_source(3.0))) == 3.0
    assert sorted(intact(made) for made in folder.glob("*.o")) == [
        False,
        True,
        True,
        True,
    ]  # the first is no part of it


_WORKER = """
import ctypes, sys
from dynamics_backends.compiled.runtime import trace_cache
for n in range(int(sys.argv[1]), int(sys.argv[2])):
    found = trace_cache.library(lambda: f"double answer(void) {{ return {n}; }}", "number", n)
    found.answer.restype = ctypes.c_double
    assert found.answer() == n
    print(n, flush=True)
"""


def worker(first, last):
    return subprocess.Popen([sys.executable, "-c", _WORKER, str(first), str(last)], stdout=subprocess.PIPE, text=True)


def test_two_processes_at_once(folder):
    both = [worker(0, 6), worker(0, 6)]
    assert [process.communicate()[0].split() for process in both] == [[str(n) for n in range(6)]] * 2
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


def test_what_is_known_of_a_compiler_is_kept_for_its_file(folder, monkeypatch):
    asked, ask = [], toolchain._queried
    monkeypatch.setattr(toolchain, "_queried", lambda *given: (asked.append(given), ask(*given))[1])
    command = find_toolchain().command
    if toolchain._identity(command, "native") is None:
        pytest.skip("the compiler is a script or a wrapper, which is asked each time")
    first, second = toolchain._toolchain_of(command, "native"), toolchain._toolchain_of(command, "native")
    assert first == second and len(asked) == 1
    monkeypatch.setattr(toolchain, "cpu_features", lambda: "another processor")
    toolchain._toolchain_of(command, "native")
    assert len(asked) == 2


def test_a_script_around_a_compiler_is_asked_each_time(folder, tmp_path):
    script = tmp_path / "gcc"
    script.write_text('#!/bin/sh\nexec gcc "$@"\n')
    script.chmod(0o755)
    assert toolchain._identity((str(script),), "native") is None
    assert toolchain._identity(("ccache", "gcc"), "native") is None


def test_the_kernel_cache_is_where_values_are_kept(folder):
    trace_cache.library(Source(7), "seven")
    assert kept_files.cache_folder() == folder
    assert {path.suffix for path in Path(folder).iterdir()} <= {".so", ".sha256", ".known"}
