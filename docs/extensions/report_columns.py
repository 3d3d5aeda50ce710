"""The page about the table that a solve prints, from the legend of the table itself."""

from __future__ import annotations

VERBOSITIES = (1, 2, 3)
HEAD = """# The table of a solve

`to.ConsoleTable(verbosity=...)`, or `--verbosity` of the command, prints one line for each iteration. 1 shows the short table, 2
adds what tells why a step was taken, 3 the second derivatives that were used and the time of each phase.

| column | meaning | from verbosity |
|---|---|---|
"""


def page() -> str:
    """The page in Markdown."""
    from trajopt import ConsoleTable

    shown = {
        v: dict(line.split(maxsplit=1) for line in ConsoleTable(verbosity=v).legend().splitlines()) for v in VERBOSITIES
    }
    rows = []
    for title, meaning in shown[VERBOSITIES[-1]].items():
        least = next(v for v in VERBOSITIES if title in shown[v])
        column = title.replace("|", r"\|")
        words = meaning.replace("|", r"\|").replace("*", r"\*")
        rows.append(f"| `{column}` | {words} | {least} |")
    return HEAD + "\n".join(rows) + "\n"
