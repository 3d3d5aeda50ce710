"""The reference of configuration files: a page for each table of a file, from the dataclasses that check it."""

from __future__ import annotations

import re
from typing import Any

from trajopt.config.explanations import paragraphs
from trajopt.config.keys import Table, chapters, keys

HEAD = """# Configuration files

A TOML file has the tables `[problem]`, `[solver]`, `[output]`, `[replan]` for replanning, and `[sweep]` for studies;
`backend = "NAME"` and `engine = "NAME"` at the top choose the derivatives, or a table `[backend]` with more keys. Every key is
checked, and a wrong one is answered with the nearest known key. `--set table.key=value` overrides a key. A relative path of a
robot in a file starts at the file. A file chooses among the terms that its problem has; terms of your own take a script
([how](../../tutorials/03_cost_terms)). The pages below are made from the classes that check the files.

"""


def pages() -> dict[str, str]:
    """File name -> Markdown of each page, the index among them."""
    found = chapters()
    toctree = "\n".join(["```{toctree}", ":maxdepth: 1", "", *found, "```", ""])
    return {"index.md": HEAD + toctree} | {f"{file}.md": page(title, tables) for file, (title, tables) in found.items()}


def page(title: str, tables: list[Table]) -> str:
    """One chapter."""
    parts, first = [f"# {title}\n"], dict[Any, str]()
    for table in tables:
        parts.append(f"## `[{table.path}]`\n")
        if table.kind in first:
            parts.append(f"The keys are those of `[{first[table.kind]}]`.\n")
            continue
        first[table.kind] = table.path
        said = paragraphs(table.kind.__doc__ or "")
        if said and not said[0].startswith(table.kind.__name__ + "("):
            parts.append(_prose(said[0].split(". ")[0].split("\n\n")[0].rstrip(".") + ".") + "\n")
        rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
        rows += [
            f"| `{k.name}` | {_cell(k.type)} | {_code(k.default)} | {_cell(k.meaning)} |" for k in keys(table.kind)
        ]
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def _prose(text: str) -> str:
    """Markdown of a docstring's sentence: roles become code, marks mean themselves."""
    text = re.sub(r":[a-z:]+:`~?([^`]+)`", lambda m: f"`{m[1].split('.')[-1]}`", " ".join(text.split()))
    text = text.replace("``", "`")
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(p if i % 2 else re.sub(r"([*_<>|\[\]$])", r"\\\1", p) for i, p in enumerate(parts))


def _cell(text: str) -> str:
    return _prose(text).replace("\n", " ")


def _code(text: str) -> str:
    return f"`{text}`" if text not in ("none", "needed", "see below") else text
