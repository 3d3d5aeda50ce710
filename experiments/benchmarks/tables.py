"""Reports of benchmarks: Markdown tables, CSV files, and a description of the machine."""

from __future__ import annotations

import csv
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dynamics_backends.machine.library import chosen_instructions, lanes

STATUS_HEADS = ("converged", "acceptable", "other status")
"""Column heads of :func:`status_counts`."""


def status_counts(codes: Iterable[str]) -> list[str]:
    """Return the table cells with the number of solves by status code."""
    found = Counter(codes)
    others = ", ".join(f"{count} {code}" for code, count in found.most_common() if code not in STATUS_HEADS)
    return [str(found["converged"]), str(found["acceptable"]), others or "none"]


def markdown(header: Iterable[str], rows: Iterable[Iterable[str]], file: Path | None = None) -> str:
    """Format a Markdown table.

    file: CSV file to write the table to, for docs/benchmarks/data. Its first lines, which begin with #, name command (without
    --out), date, machine and versions; the documentation shows them as the caption.
    """
    lines = [list(header), *(list(row) for row in rows)]
    if file is not None:
        _write_table(file, lines)
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(map(_line, lines))


def print_table(header: Iterable[str], rows: Iterable[Iterable[str]], file: Path | None = None) -> None:
    """Print a Markdown table row by row, for slow benchmarks. file: see :func:`markdown`; it is written after the last row."""
    lines = [list(header)]
    print(f"{_line(lines[0])}\n{_line(['---'] * len(lines[0]))}", flush=True)
    for row in rows:
        lines.append(list(row))
        print(_line(lines[-1]), flush=True)
    if file is not None:
        _write_table(file, lines)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _write_table(file: Path, lines: list[list[str]]) -> None:
    """Write lines to a CSV file with its caption; see :func:`markdown`."""
    arguments = sys.argv[1:]
    if "--out" in arguments:
        at = arguments.index("--out")
        del arguments[at : at + 2]
    command = " ".join([f"python -m experiments.{Path(sys.argv[0]).stem}", *arguments])
    versions = ", ".join(f"{name} {version(name)}" for name in ("urdf-trajopt", "numpy", "casadi"))
    caption = (f"`{command}`.", f"{date.today()}.", f"{machine()}.", f"Python {platform.python_version()}, {versions}.")
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as stream:
        stream.writelines(f"# {line}\n" for line in caption)
        csv.writer(stream, lineterminator="\n").writerows(lines)


def write_csv(path: Path, entries: list[Any]) -> None:
    """Write named tuples to a CSV file, with a header."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(entries[0]._fields)
        writer.writerows(entries)


def machine() -> str:
    """Describe processor, cores, and the instruction set and SIMD lanes of the C library."""
    instructions = chosen_instructions() or platform.machine()
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {instructions}, {lanes()} lanes"


def write_report(folder: Path, text: str, **tables: list[Any]) -> None:
    """Write the text to report.md and each table to a CSV file of its name, and print the text."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, entries in tables.items():
        write_csv(folder / f"{name}.csv", entries)
    (folder / "report.md").write_text(text, encoding="utf-8")
    print(f"\n{text}\nWritten to {folder}")
