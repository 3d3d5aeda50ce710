"""Run fuzz cases in separate processes with limits of time and memory, and check their results.

A case fails on a traceback, a signal, an exit code above 3, exit code 2 without an error message, messages longer than
MAX_OUTPUT, or an exceeded limit.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from experiments.attacks.cases import SHORT, SOLUTIONS, Case
from trajopt.config.registry import bundled_files

SECONDS, MEMORY, FILE = 60, 3 << 30, 1 << 30
"""Limits of a case: processor time [s], memory in addition to this process [bytes], file size [bytes]."""
WALL = 4 * SECONDS
"""Limit of the wall-clock time of a case [s]."""
MAX_OUTPUT = 50_000
"""Maximum number of characters on the error stream."""
EXIT_CODES = range(4)
TRACEBACK = 70
"""Exit code of a case that ended with a traceback."""
_ERROR = re.compile(r"(?<![\w.])[Ee]rror: ")
"""The start of an error message; keys such as ``terminal_error`` may contain the same word."""
_PLACE = re.compile(
    r"['\"<].+?['\">]|\.(urdf|xml|toml|npz)|[a-z_]+\.[a-z_]+|\bline \d+|rror: [\w.]+: |\w+ (is|=) ", re.DOTALL
)
"""Location in an error message: a file, line, element, key or name."""


@dataclass(frozen=True)
class Outcome:
    """Result of a case. code: exit code, or minus the signal; trouble: reason of the failure, or ''."""

    case: Case
    code: int
    seconds: float
    megabytes: int
    output: str
    trouble: str


def run_case(case: Case, folder: Path) -> Outcome:
    """Run a case in an empty folder and check its result."""
    for name, content in case.files.items():
        (folder / name).write_bytes(content)
    errors, output = folder / "stderr.txt", folder / "stdout.txt"
    began = time.monotonic()
    process = os.fork()
    if process == 0:  # the child never returns
        _run_child(case, folder, output, errors)
    code, usage = _wait(process, began + WALL)
    seconds = usage.ru_utime + usage.ru_stime
    text = errors.read_text(encoding="utf-8", errors="replace") if errors.exists() else ""
    trouble = _trouble(case, code, text, time.monotonic() - began)
    return Outcome(case, code, seconds, usage.ru_maxrss >> 10, text, trouble)


def _run_child(case: Case, folder: Path, output: Path, errors: Path) -> None:
    """Run the command in the forked process, then exit."""
    code = TRACEBACK
    try:
        os.setsid()
        os.chdir(folder)
        for stream, path in ((1, output), (2, errors)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(case.environment)
        _limit()
        from experiments.cli.main import main

        main.main(list(case.arguments), prog_name="trajopt")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _limit() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    limits = {
        resource.RLIMIT_CPU: SECONDS,
        resource.RLIMIT_AS: pages * resource.getpagesize() + MEMORY,
        resource.RLIMIT_FSIZE: FILE,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in limits.items():
        resource.setrlimit(kind, (value, value))


def _wait(process: int, until: float) -> tuple[int, resource.struct_rusage]:
    """Wait for a process; kill its process group at the deadline. Return exit code (or minus the signal) and resource usage."""
    while time.monotonic() < until:
        found, status, usage = os.wait4(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), usage
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    _, status, usage = os.wait4(process, 0)
    return os.waitstatus_to_exitcode(status), usage


def error_message(errors: str) -> str:
    """Return the output from the last error message on, or ''."""
    starts = [found.start() for found in _ERROR.finditer(errors)]
    return errors[starts[-1] :] if starts else ""


def _trouble(case: Case, code: int, errors: str, elapsed: float) -> str:
    if code == TRACEBACK or "Traceback (most recent call last)" in errors:
        last = errors.strip().splitlines()[-1:] or [""]
        return f"traceback: {last[0][:300]}"
    if elapsed > WALL or -code in (signal.SIGXCPU, signal.SIGKILL):
        return f"beyond its limits of time or memory, after {elapsed:.0f} s"
    if code not in EXIT_CODES:
        return f"exit code {code}"
    if len(errors) > MAX_OUTPUT:
        return f"{len(errors)} characters of messages"
    sentence = error_message(errors)
    if code == 2 and not sentence:
        return "exit code 2 without an error message"
    if code == 2 and case.kind in ("config", "robot") and not _PLACE.search(sentence):
        return f"the error message has no location: {sentence[:300]}"
    return ""


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Create a temporary folder for one case."""
    with tempfile.TemporaryDirectory(prefix="attack_", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def solutions(names: Iterable[str] = SOLUTIONS) -> dict[str, bytes]:
    """Return the solution file of each configuration after two iterations. Raises RuntimeError if a solve writes none."""
    found = {}
    for name in names:
        with scratch() as folder:
            command = ("solve", str(bundled_files()[name]), "--out", "out", *SHORT, *SOLUTIONS[name])
            outcome = run_case(Case("valid", 0, name, command), folder)
            file = folder / "out" / "solution.npz"
            if not file.exists():
                raise RuntimeError(f"{name} has no solution: {outcome.output}")
            found[name] = file.read_bytes()
    return found
