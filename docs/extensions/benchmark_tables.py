"""Directive ``benchmark``: a table from a CSV file of a benchmark.

The file is docs/benchmarks/data/NAME.csv. Its first lines, which begin with #, are the caption: command, date, processor, versions.
"""

from __future__ import annotations

import csv
from itertools import takewhile
from pathlib import Path
from typing import Any

from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

DATA = Path(__file__).resolve().parents[1] / "benchmarks" / "data"


class BenchmarkTable(SphinxDirective):
    """Directive ``{benchmark} NAME``."""

    required_arguments = 1

    def run(self) -> list[Any]:
        path = DATA / f"{self.arguments[0]}.csv"
        self.env.note_dependency(str(path))
        table = StringList(markdown_table(path.read_text(encoding="utf-8")).splitlines(), source=str(path))
        return self.parse_text_to_nodes(table)


def markdown_table(text: str) -> str:
    """Return a CSV file with a caption as a MyST table.

    Raises ValueError for a file without a caption, and for rows of another length than the header.
    """
    lines = text.splitlines()
    caption = [line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines)]
    header, *rows = csv.reader(lines[len(caption) :])
    if not caption or any(len(row) != len(header) for row in rows):
        raise ValueError(f"a benchmark table needs a caption and rows of {len(header)} cells: {lines[0]}")
    cells = [header, ["---"] * len(header), *rows]
    body = ("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in cells)
    return "\n".join([f":::{{table}} {' '.join(caption)}", "", *body, "", ":::"])


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("benchmark", BenchmarkTable)
    return {"parallel_read_safe": True}
