"""Build and run an exported example, to check it before the export is reported as successful."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dynamics_backends.compiled.interface.libraries import CompilerError, compiler_command

FLAGS = ("-std=c99", "-O1", "-w")
"""Flags that minimize compilation plus run time: HyQ on soft ground takes 7 s + 17 s; with -O0, 5 s + 75 s."""


def run_example(files: Mapping[str, str]) -> list[float] | None:
    """Return the cost after each SLQ step of an exported example, or None without a C compiler.

    files: texts by file name, from :func:`~trajopt.export.controller.controller_files`. Raises ValueError if the example
    diverges, CompilerError if it does not compile.
    """
    try:
        command = compiler_command()
    except CompilerError:
        return None
    with tempfile.TemporaryDirectory(prefix="trajopt.export.") as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        sources = [name for name in files if name.endswith(".c")]
        built = _call([*command, *FLAGS, *sources, "-o", "example", "-lm"], folder)
        if built.returncode:
            raise CompilerError(f"the exported C does not compile: {built.stderr.strip()[:2000]}")
        done = _call([str(Path(folder) / "example")], folder)
    costs = [float(line.split()[2]) for line in done.stdout.splitlines() if line.split()[1:2] == ["cost"]]
    if done.returncode or not costs:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        raise ValueError(f"nothing was written: the exported example failed: {reason}")
    return costs


def _call(command: list[str], folder: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
