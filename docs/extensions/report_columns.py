"""The page about the table that a solve prints, from the columns of the table itself."""

from __future__ import annotations

HEAD = """# The table of a solve

`to.ConsoleTable(verbosity=...)`, or `--verbosity` of the command, prints one line for each iteration. 1 shows the short table, 2
adds what tells why a step was taken, 3 the second derivatives that were used and the time of each phase.

| column | field of `IterationRecord` | meaning | from verbosity |
|---|---|---|---|
"""


def page() -> str:
    """The page in Markdown."""
    from trajopt.results import report

    rows = []
    for title, attribute, _, _, meaning in report._COLUMNS:
        least = 1 if attribute in report._SHORT else 3 if attribute in report._LONG else 2
        words = meaning.replace("|", "\\|").replace("*", "\\*")
        rows.append(f"| `{title}` | `{attribute}` | {words} | {least} |".replace("`|grad|`", "`\\|grad\\|`"))
    return HEAD + "\n".join(rows) + "\n"
