"""Conversion of executed pages to downloadable notebooks: code cells, and Markdown between them."""

from __future__ import annotations

import json
import re
from typing import Any

HEADER = "---\nfile_format: mystnb"
_CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```\n?", re.S | re.M)
_FENCED_MATH = re.compile(r"^```\{math\}\n(.*?)^```", re.S | re.M)
_LINK = re.compile(r"\[\]\(([^)]+)\)")


def is_notebook(text: str) -> bool:
    """True if a page is marked as executed."""
    return text.startswith(HEADER)


def code_cells(text: str) -> list[str]:
    """Return the sources of a page's code cells without their options."""
    return [_without_options(match[1]) for match in _CELL.finditer(text)]


def notebook(text: str) -> str:
    """Return a page as the JSON text of a notebook."""
    body = text.split("---\n", 2)[2]
    cells: list[dict[str, Any]] = []
    end = 0
    for match in _CELL.finditer(body):
        _add_markdown(cells, body[end : match.start()])
        cells.append(
            {
                "cell_type": "code",
                "metadata": {},
                "source": _without_options(match[1]).rstrip(),
                "outputs": [],
                "execution_count": None,
            }
        )
        end = match.end()
    _add_markdown(cells, body[end:])
    for i, cell in enumerate(cells):
        cell["id"] = f"cell-{i}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _without_options(source: str) -> str:
    return "\n".join(line for line in source.splitlines() if not re.match(r":[\w-]+:", line)).strip("\n") + "\n"


def _add_markdown(cells: list[dict[str, Any]], text: str) -> None:
    text = _FENCED_MATH.sub(r"$$\n\1$$", text).replace("\n+++\n", "\n")
    text = _LINK.sub(lambda m: f"*{m[1].rsplit('/', 1)[-1]}*", text).strip()
    if text:
        cells.append({"cell_type": "markdown", "metadata": {}, "source": text})
