"""Toolchain: C compiler, flags and target processor, and compilation to a shared library.

The compiler is the first that works of: the environment variable CC, then cc, gcc, clang on the PATH, then the PyPI package
``ziglang``.  Flags in CC are added to FLAGS: CC="gcc -Og" compiles in a third of the time, to slower code.  Code is compiled for
this processor (-march=native); the environment variable TRAJOPT_MARCH names another instruction set, such as x86-64, that of wheels
on PyPI.
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
from dynamics_backends.compiled.runtime.file_locks import file_lock
from dynamics_backends.compiled.runtime.kept_files import cache_folder, intact, known_value, seal, write_value
from dynamics_backends.compiled.runtime.progress import counted
from dynamics_backends.compiled.runtime.stale_files import COMPILING, remove_stale_files
from dynamics_backends.compiled.runtime.units import units
from dynamics_backends.machine import library as machine
from dynamics_backends.trusted_files import FILE, trusted_folder
from dynamics_backends.user_input import InputError

NATIVE, MARCH = "native", environment.MARCH
"""This processor's instruction set, and the environment variable that names another one, as -march does."""
FLAGS = ("-O3", "-fno-math-errno", "-fPIC", "-shared", "-std=gnu11", "-w")
"""No -ffast-math: it would change what NaN and infinity do."""

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
"""Limits concurrent compilations to the number of processors."""


class CompilerError(RuntimeError):
    """Missing compiler or failed compilation; the message contains the compiler's output and the remedy."""


@dataclass(frozen=True)
class Toolchain:
    """Working compiler: its command, version and the vector lanes of the target.

    march: instruction set of the code.
    """

    command: tuple[str, ...]
    version: str
    lanes: int
    march: str = NATIVE

    @property
    def flags(self) -> tuple[str, ...]:
        """Compiler flags; flags in CC, such as -O1, come last and override FLAGS."""
        user_flags = tuple(takewhile(lambda word: word.startswith("-"), reversed(self.command[1:])))
        return (*FLAGS, f"-march={self.march}", *reversed(user_flags))

    @property
    def definitions(self) -> str:
        """Preprocessor lines that precede every source."""
        return f"#define LANES {self.lanes}\n"

    @property
    def fingerprint(self) -> str:
        """Compiler version, flags and processor features, on which a library depends besides its source."""
        in_cc = self.command[1:]  # flags that the user set
        return "\n".join([self.version, *in_cc, *self.flags, cpu_features()])

    def compile(self, source: str, target: Path) -> None:
        """Compile C source to the shared library ``target``, long sources in parallel translation units.

        Objects of units stay in the same folder, named by the hash of their text, for other sources that share a unit.
        Raises CompilerError with the compiler's message, OSError if files cannot be written.
        """
        texts = units(source)
        _remove_stale_files_once(target.parent)
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
        """Object file of a unit, from the cache or compiled; concurrent builds of the same unit wait for one of them."""
        name = hashlib.sha256((text + self.fingerprint).encode()).hexdigest()[:32]
        cached, source, built = cache / f"{name}.o", folder / f"{name}.c", folder / f"{name}.o"
        if not intact(cached):
            with file_lock(cache / f"{name}.turn"):
                if not intact(cached):
                    source.write_text(text)
                    self._run(
                        [*(flag for flag in self.flags if flag != "-shared"), "-c", str(source), "-o", str(built)]
                    )
                    built.chmod(FILE)
                    built.replace(cached)
                    seal(cached)
        done()
        return cached

    def _run(self, arguments: Sequence[str]) -> None:
        command = [*self.command, *arguments]
        try:
            with _processors:
                status, message = _run_compiler(command)
        except OSError as error:
            raise CompilerError(f"{shlex.join(self.command)} can no longer be run: {error}; {_REMEDY}") from error
        if status:
            complaint = message.strip()[:2000] or f"exit status {status}, without a message"
            for words, number in _OUT_OF_SPACE.items():
                if words in message:
                    raise OSError(number, f"{os.strerror(number)}, reported by the compiler {shlex.join(self.command)}")
            raise CompilerError(f"{shlex.join(self.command)} failed: {complaint}; {_REMEDY}")


@lru_cache(maxsize=4)
def _remove_stale_files_once(folder: Path) -> None:
    """Remove stale files of killed processes from a folder, once per process."""
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
            return _toolchain_of(command, march)
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
    return _cached_toolchain(os.environ.get("CC"), os.environ.get("PATH"), os.environ.get(MARCH) or NATIVE)


@lru_cache(maxsize=4)
def _cached_toolchain(cc: str | None, path: str | None, march: str) -> Toolchain:
    """Toolchain for these environment variables, cached because searching the PATH takes longer than a short solve."""
    return _probe(tuple(candidates()), march)


def lanes_in_use() -> int:
    """SIMD lanes of compiled code; those of the package's library if there is no compiler."""
    return find_toolchain().lanes if has_compiler() else machine.lanes()


def has_compiler() -> bool:
    """True if a C compiler works here."""
    try:
        find_toolchain()
    except CompilerError:
        return False
    return True


def _toolchain_of(command: tuple[str, ...], march: str) -> Toolchain:
    """Toolchain of a command; the result is cached on disk for compiler binaries, not for scripts, until the binary changes."""
    file = _identity(command, march)
    known = None if file is None else known_value(file.name)
    if known is not None:
        return replace(Toolchain(command, *known), march=march)
    found = _queried(command, march)
    if file is not None:
        with contextlib.suppress(OSError):
            trusted_folder(file.parent)
            write_value(file, [found.version, found.lanes])
    return found


def _identity(command: tuple[str, ...], march: str) -> Path | None:
    """Cache file of a compiler's properties, by its binary, the processor and flags; None for scripts and wrappers."""
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


def _queried(command: tuple[str, ...], march: str) -> Toolchain:
    version = next(iter(_output([*command, "--version"]).splitlines()), "")
    macros = _output([*command, f"-march={march}", "-dM", "-E", "-x", "c", "-"])
    if not version or "#define" not in macros:
        raise CompilerError("it is not a C compiler like gcc or clang")
    lanes = next(n for macro, n in _LANES if macro in macros)
    return Toolchain(command, version, lanes, march=march)


def _run_compiler(command: Sequence[str]) -> tuple[int, str]:
    """Run a compiler; return its exit status and error messages.

    An exception, such as KeyboardInterrupt, kills the compiler and waits for its exit: subprocess.run would leave a zombie.
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
    """Standard output of a command with empty standard input."""
    options: dict[str, Any] = {"capture_output": True, "text": True, "errors": "replace", "input": ""}
    return subprocess.run(command, **options, timeout=120, check=True).stdout


@lru_cache(maxsize=1)
def cpu_features() -> str:
    """Hash of the processor's feature flags, or of its name if the system does not list them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next(line for line in lines if line.lower().startswith(("flags", "features")))
    except (OSError, StopIteration):
        import platform

        flags = platform.machine() + platform.processor()
    return hashlib.sha256(flags.encode()).hexdigest()[:16]
