"""The C compiler: which one, with which flags, for which machine; and compilation to a shared library.

A compiler is looked for in this order: the environment variable CC, then cc, gcc, clang on the PATH, then the PyPI
package ``ziglang``.  Flags in CC are added to FLAGS: CC="gcc -Og" compiles in a third of the time code that is slower.  Code is
compiled for this processor (-march=native); the environment variable TRAJOPT_MARCH names another instruction set, such as
x86-64, that of wheels on PyPI.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any

from dynamics_backends import environment
from dynamics_backends.compiled.runtime.file_locks import turn
from dynamics_backends.compiled.runtime.kept_files import cache_folder, intact, known_value, seal, write_value
from dynamics_backends.compiled.runtime.progress import counted
from dynamics_backends.compiled.runtime.stale_files import COMPILING, remove_stale_files
from dynamics_backends.compiled.runtime.units import units
from dynamics_backends.trusted_files import FILE, trusted_folder
from dynamics_backends.user_input import InputError

NATIVE, MARCH = "native", environment.MARCH
"""This processor's instruction set, and the environment variable that names another one, as -march does."""
FLAGS = ("-O3", "-fno-math-errno", "-fPIC", "-shared", "-std=gnu11", "-w")
"""No -ffast-math: it would change what NaN and infinity do."""
QUICK = "-Og"
"""What stands behind FLAGS in a first compilation: in half the time of -O1, which leaves straight-line code as long."""

_LANES = (("__AVX512F__", 8), ("__AVX2__", 4), ("", 2))
"""Doubles in a vector, by the first macro that a compiler defines."""


_OUT_OF_SPACE = {
    "No space left on device": errno.ENOSPC,
    "File size limit exceeded": errno.EFBIG,
    "File too large": errno.EFBIG,
}
"""Messages of compilers and linkers (LC_ALL=C) on a full disk, with the error number that each one means."""
_REMEDY = "set CC to another compiler; engine = 'numpy' needs none"
REMEDY_OF_CC = "correct or unset CC"
_processors = threading.BoundedSemaphore(os.cpu_count() or 1)
"""Libraries that are compiled side by side share the processors."""


class CompilerError(RuntimeError):
    """No compiler, or a compilation that failed; the message carries the compiler's words and the remedy."""


@dataclass(frozen=True)
class Toolchain:
    """A compiler that works: its command, version and the machine's vector lanes.

    quick: whether it hurries, at the price of slower code. march: the instruction set of the code.
    """

    command: tuple[str, ...]
    version: str
    lanes: int
    quick: bool = False
    march: str = NATIVE

    @property
    def hurried(self) -> Toolchain:
        """This compiler in a hurry."""
        return replace(self, quick=True)

    @property
    def flags(self) -> tuple[str, ...]:
        """The compiler's flags; those given in CC, such as -O1, come last and override FLAGS."""
        own = tuple(takewhile(lambda word: word.startswith("-"), reversed(self.command[1:])))
        return (*FLAGS, f"-march={self.march}", *reversed(own), *((QUICK,) if self.quick else ()))

    @property
    def definitions(self) -> str:
        """The lines in front of every source."""
        return f"#define LANES {self.lanes}\n"

    @property
    def fingerprint(self) -> str:
        """Everything beside the source on which a compiled library depends."""
        in_cc = self.command[1:]  # words of the user
        return "\n".join([self.version, *in_cc, *self.flags, cpu_features()])

    def compile(self, source: str, target: Path) -> None:
        """Compile C source to the shared library ``target``, long sources in units side by side.

        The objects of units stay beside it, by the hash of their text, for other sources that have a unit in common.
        Raises CompilerError with the compiler's message, OSError where files cannot be written.
        """
        texts = units(source)
        _tidied(target.parent)
        apart = tempfile.TemporaryDirectory(prefix=COMPILING, dir=target.parent)
        with counted(len(texts)) as done, apart as folder:
            library = Path(folder) / "kernel.so"
            if len(texts) == 1:
                objects = [Path(folder) / "kernel.c"]
                objects[0].write_text(source)
            else:
                with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                    objects = list(pool.map(lambda text: self._object(text, Path(folder), target.parent, done), texts))
            self._run([*self.flags, *map(str, objects), "-o", str(library), "-lm"])
            if not library.is_file():
                raise CompilerError(f"{shlex.join(self.command)} wrote no library: {REMEDY_OF_CC}")
            library.chmod(FILE)
            library.replace(target)

    def _object(self, text: str, folder: Path, cache: Path, done: Callable[[], None]) -> Path:
        """The object of a unit, from the cache or from the compiler; libraries that share it wait for one of them."""
        name = hashlib.sha256((text + self.fingerprint).encode()).hexdigest()[:32]
        kept, source, made = cache / f"{name}.o", folder / f"{name}.c", folder / f"{name}.o"
        if not intact(kept):
            with turn(cache / f"{name}.turn"):
                if not intact(kept):
                    source.write_text(text)
                    self._run([*(flag for flag in self.flags if flag != "-shared"), "-c", str(source), "-o", str(made)])
                    made.chmod(FILE)
                    made.replace(kept)
                    seal(kept)
        done()
        return kept

    def _run(self, arguments: Sequence[str]) -> None:
        command = [*self.command, *arguments]
        try:
            with _processors:
                status, message = _finished(command)
        except OSError as error:
            raise CompilerError(f"{shlex.join(self.command)} cannot be run any more: {error}; {_REMEDY}") from error
        if status:
            complaint = message.strip()[:2000] or f"exit status {status}, without a message"
            for words, number in _OUT_OF_SPACE.items():
                if words in message:
                    raise OSError(number, f"{os.strerror(number)}, says the compiler {shlex.join(self.command)}")
            raise CompilerError(f"{shlex.join(self.command)} failed: {complaint}; {_REMEDY}")


@lru_cache(maxsize=4)
def _tidied(folder: Path) -> None:
    """Without what killed processes left there; once is enough."""
    remove_stale_files(folder)


def candidates() -> list[tuple[str, ...]]:
    """Compiler commands that exist, in order of preference. Raises CompilerError for a wrong value of CC."""
    try:
        chosen = environment.compiler()
    except InputError as error:
        raise CompilerError(f"no working C compiler: {error}; engine = 'numpy' needs none") from error
    if chosen:
        return [chosen]
    found: list[tuple[str, ...]] = [(path,) for path in (shutil.which(name) for name in ("cc", "gcc", "clang")) if path]
    if find_spec("ziglang") is not None:
        found.append((sys.executable, "-m", "ziglang", "cc"))
    return found


@lru_cache(maxsize=4)
def _probe(commands: tuple[tuple[str, ...], ...], march: str) -> Toolchain:
    reasons = []
    for command in commands:
        try:
            return _examined(command, march)
        except FileNotFoundError:
            reasons.append(f"{shlex.join(command)}: not found")
        except (OSError, subprocess.SubprocessError, CompilerError) as error:
            reasons.append(f"{shlex.join(command)}: {error}")
    detail = "; ".join(reasons) or "none of cc, gcc, clang is on the PATH"
    remedy = (
        REMEDY_OF_CC
        if os.environ.get("CC", "").strip()
        else "install gcc or clang, or `pip install ziglang`, or set CC"
    )
    if march != NATIVE:
        remedy = f"correct or unset {MARCH} = {march!r}, or {remedy}"
    raise CompilerError(f"no working C compiler ({detail}); {remedy}; engine = 'numpy' needs none")


def find_toolchain() -> Toolchain:
    """The first compiler that works; raises CompilerError that names the remedy."""
    return _found(os.environ.get("CC"), os.environ.get("PATH"), os.environ.get(MARCH) or NATIVE)


@lru_cache(maxsize=4)
def _found(cc: str | None, path: str | None, march: str) -> Toolchain:
    """What these variables lead to; looking for commands on the PATH takes longer than a short solve."""
    return _probe(tuple(candidates()), march)


def has_compiler() -> bool:
    """True if a C compiler works here."""
    try:
        find_toolchain()
    except CompilerError:
        return False
    return True


def _examined(command: tuple[str, ...], march: str) -> Toolchain:
    """What a command is; that of a compiler proper, no script around one, is remembered for as long as its file stays the same."""
    file = _identity(command, march)
    known = None if file is None else known_value(file.name)
    if known is not None:
        return replace(Toolchain(command, *known), march=march)
    found = _asked(command, march)
    if file is not None:
        with contextlib.suppress(OSError):
            trusted_folder(file.parent)
            write_value(file, [found.version, found.lanes])
    return found


def _identity(command: tuple[str, ...], march: str) -> Path | None:
    """Where what is known of a compiler is kept: by its file, the processor and the C library; None for scripts and wrappers."""
    path = shutil.which(command[0])
    if path is None or not all(word.startswith("-O") for word in command[1:]):
        return None
    file = Path(path).resolve()
    with file.open("rb") as content:
        is_program = content.read(4) == b"\x7fELF"
    if not is_program or not re.search(r"(gcc|clang)(-[\d.]+)?$", file.name):
        return None
    stat = file.stat()
    text = repr(
        (
            command,
            march,
            str(file),
            stat.st_size,
            stat.st_mtime_ns,
            stat.st_ino,
            cpu_features(),
        )
    )
    return cache_folder() / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.known"


def _asked(command: tuple[str, ...], march: str) -> Toolchain:
    version = next(iter(_output([*command, "--version"]).splitlines()), "")
    macros = _output([*command, f"-march={march}", "-dM", "-E", "-x", "c", "-"])
    if not version or "#define" not in macros:
        raise CompilerError("it is not a C compiler like gcc or clang")
    lanes = next(n for macro, n in _LANES if macro in macros)
    return Toolchain(command, version, lanes, march=march)


def _finished(command: Sequence[str]) -> tuple[int, str]:
    """Exit status and error messages of a compiler.  An exception, such as KeyboardInterrupt, kills it and waits for its end:
    subprocess.run would leave a zombie.
    """
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    environment_of_c = os.environ | {"LC_ALL": "C"}
    with subprocess.Popen(command, **quiet, text=True, errors="replace", env=environment_of_c) as process:
        try:
            message = process.communicate()[1]
        except BaseException:
            process.kill()
            process.wait()
            raise
        return process.returncode, message


def _output(command: Sequence[str]) -> str:
    """Standard output of a command that gets an empty standard input."""
    options: dict[str, Any] = {"capture_output": True, "text": True, "errors": "replace", "input": ""}
    return subprocess.run(command, **options, timeout=120, check=True).stdout


@lru_cache(maxsize=1)
def cpu_features() -> str:
    """A hash of the processor's feature flags, where the system tells them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next(line for line in lines if line.lower().startswith(("flags", "features")))
    except (OSError, StopIteration):
        import platform

        flags = platform.machine() + platform.processor()
    return hashlib.sha256(flags.encode()).hexdigest()[:16]
