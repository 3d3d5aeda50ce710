"""Reference pages of configuration files, one page per table, generated from the dataclasses that check the files."""

from __future__ import annotations

import re
from typing import Any

from trajopt.config.keys import Table, chapters, keys, paragraphs

HEAD = """# Configuration files

A TOML file has the tables `[problem]`, `[solver]`, `[output]`, `[replan]` for replanning, and `[sweep]` for studies;
`backend = "NAME"` and `engine = "NAME"` at the top choose the derivatives, or a table `[backend]` with more keys. Every
key is checked; the error message for an unknown key names the nearest known key. `--set table.key=value` overrides a
key. Relative robot paths start at the folder of the file. A file sets the weights of the terms that its problem has;
user-defined terms need a script ([tutorial](../../tutorials/03_cost_terms)). The pages below are generated from the
classes that check the files.

"""


def pages() -> dict[str, str]:
    """Return the Markdown of all pages by file name, with the index."""
    found = chapters()
    toctree = "\n".join(["```{toctree}", ":maxdepth: 1", "", *found, "```", ""])
    return {"index.md": HEAD + toctree} | {f"{file}.md": page(title, tables) for file, (title, tables) in found.items()}


def page(title: str, tables: list[Table]) -> str:
    """Return one page of tables."""
    parts, first_paths = [f"# {title}\n"], dict[Any, str]()
    for table in tables:
        parts.append(f"## `[{table.path}]`\n")
        if table.kind in first_paths:
            parts.append(f"The keys are those of `[{first_paths[table.kind]}]`.\n")
            continue
        first_paths[table.kind] = table.path
        description = paragraphs(table.kind.__doc__ or "")
        if description and not description[0].startswith(table.kind.__name__ + "("):
            parts.append(_prose(description[0].split(". ")[0].split("\n\n")[0].rstrip(".") + ".") + "\n")
        rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
        rows += [
            f"| `{k.name}` | {_cell(k.type)} | {_code(k.default)} | {_cell(k.meaning)} |" for k in keys(table.kind)
        ]
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def _prose(text: str) -> str:
    """Convert a docstring sentence to Markdown: roles become code, special characters are escaped."""
    text = re.sub(r":[a-z:]+:`~?([^`]+)`", lambda m: f"`{m[1].split('.')[-1]}`", " ".join(text.split()))
    text = text.replace("``", "`")
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(p if i % 2 else re.sub(r"([*_<>|\[\]$])", r"\\\1", p) for i, p in enumerate(parts))


def _cell(text: str) -> str:
    return _prose(text).replace("\n", " ")


def _code(text: str) -> str:
    return f"`{text}`" if text not in ("none", "needed", "see below") else text
