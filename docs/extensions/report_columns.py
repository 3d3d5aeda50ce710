"""Page about the table that a solve prints, generated from the table's legend."""

from __future__ import annotations

VERBOSITIES = (1, 2, 3)
HEAD = """# The table of a solve

`to.ConsoleTable(verbosity=...)`, or `--verbosity` of the command, prints one line per iteration. Verbosity 1 shows the
short table, 2 adds the data of the step selection, and 3 adds the second derivatives in use and the time of each phase.

| column | meaning | from verbosity |
|---|---|---|
"""


def page() -> str:
    """Return the page in Markdown."""
    from trajopt import ConsoleTable

    legends = {
        v: dict(line.split(maxsplit=1) for line in ConsoleTable(verbosity=v).legend().splitlines()) for v in VERBOSITIES
    }
    rows = []
    for title, meaning in legends[VERBOSITIES[-1]].items():
        lowest = next(v for v in VERBOSITIES if title in legends[v])
        column = title.replace("|", r"\|")
        words = meaning.replace("|", r"\|").replace("*", r"\*")
        rows.append(f"| `{column}` | {words} | {lowest} |")
    return HEAD + "\n".join(rows) + "\n"
