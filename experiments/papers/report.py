"""Report of an experiment: data.csv, picture.png, report.md; and one HTML page of all reports."""

from __future__ import annotations

import base64
import csv
import datetime
import html
import json
import os
import platform
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from experiments.papers.published import missing
from experiments.papers.study import Comparison, Outcome, Study

DATA, PICTURE, REPORT, DONE = "data.csv", "picture.png", "report.md", "done.json"
PAGE = "report.html"
LEFT_OUT, NOT_COMPUTED = "omitted in quick runs", "not computed in this run"
SHARED = "Other programs shared the cores: compare ratios within this run, not times with other machines."
_HEAD = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; font-size: 13px; }} td, th {{ border: 1px solid #ccd; padding: 2px 8px; text-align: left; }}
img {{ max-width: 100%; }} h1 {{ font-size: 1.4rem; border-top: 2px solid #1f5fa8; padding-top: 1rem; }}
</style></head><body>
"""


def conduct(study: Study, folder: Path, quick: bool) -> Outcome:
    """Run an experiment and write its files into a folder. Quick runs use short problems and make no comparisons."""
    began = time.perf_counter()
    outcome = study.run(quick)
    seconds = time.perf_counter() - began
    why = LEFT_OUT if quick else NOT_COMPUTED
    absent = [Comparison(f.what, f.figure, "n/a", (), why) for f in missing(study.name, outcome.comparisons)]
    computed = [replace(c, claims=()) for c in outcome.comparisons] if quick else outcome.comparisons
    outcome = replace(outcome, comparisons=[*computed, *absent])
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / DATA, outcome)
    outcome.draw(folder / PICTURE)
    (folder / REPORT).write_text(markdown(study, outcome, quick, seconds), encoding="utf-8")
    (folder / DONE).write_text(json.dumps({"quick": quick, "seconds": round(seconds, 1)}), encoding="utf-8")
    return outcome


def is_done(folder: Path, quick: bool) -> bool:
    """True if the folder contains a finished report of this kind of run."""
    try:
        return json.loads((folder / DONE).read_text(encoding="utf-8"))["quick"] == quick
    except (OSError, ValueError, KeyError, TypeError):
        return False


def write_csv(path: Path, outcome: Outcome) -> None:
    """Write all rows with full precision."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(outcome.rows[0]))
        writer.writeheader()
        writer.writerows(outcome.rows)


def markdown(study: Study, outcome: Outcome, quick: bool, seconds: float) -> str:
    """Return the report as Markdown; the summary comes first."""
    kind = "quick run: fewer points, not for conclusions" if quick else "full run"
    day = datetime.date.today().isoformat()
    cores, running = os.cpu_count() or 1, load()
    load_text = "" if running is None else f" for {running:.1f} running processes on average"
    python = f"Python {platform.python_version()}"
    machine = f"{processor()}, {cores} cores{load_text}, {python}; {day}, {kind}, {seconds:.0f} s"
    parts = [
        f"# {study.title}",
        summary(outcome.comparisons, outcome.reference),
        f"{study.source} ({machine}.)",
        f"![picture]({PICTURE})",
    ]
    if outcome.comparisons:
        parts.append(table(outcome.comparisons, outcome.reference))
    remarks = [*outcome.remarks, *([SHARED] if running is not None and running > cores else [])]
    return "\n\n".join([*parts, *remarks]) + "\n"


def processor() -> str:
    """Return the processor's name, or its architecture if the system has no name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def load() -> float | None:
    """Return the mean number of runnable processes in the last 15 minutes, or None if unavailable."""
    try:
        return os.getloadavg()[2]
    except (AttributeError, OSError):
        return None


def summary(comparisons: Sequence[Comparison], reference: str = "published") -> str:
    """List the rows with failed claims, or state that all claims hold. Rows without claims are only counted."""
    compared = [c for c in comparisons if c.claims]
    left = len(comparisons) - len(compared)
    rest = f" {left} of {len(comparisons)} rows cannot be compared." if left else ""
    if not comparisons:
        return "Nothing is published to compare with."
    if not compared:
        return "No published figure was compared in this run."
    parts = [
        f"**{head}: {'; '.join(rows)}.**"
        for head, rows in (
            (f"Worse than {reference}", [c.what for c in compared if c.worse]),
            (f"Different from {reference}", [c.what for c in compared if c.different]),
        )
        if rows
    ]
    return (" ".join(parts) or f"Nothing is worse than {reference}.") + rest


def table(comparisons: Iterable[Comparison], reference: str = "published") -> str:
    """Return a Markdown table of published figures and ours; rows name their failed claims."""
    rows = [(c.what, c.published, _flag(c) + c.ours, c.why) for c in comparisons]
    return "\n".join(
        [f"| what | {reference} | ours | remark |", "|---|---|---|---|", *("| " + " | ".join(r) + " |" for r in rows)]
    )


def _flag(c: Comparison) -> str:
    if not c.failed:
        return ""
    return f"**{'worse' if c.worse else 'different'}** (failed claims: {'; '.join(f.text for f in c.failed)}): "


def page(folders: Sequence[Path], title: str) -> str:
    """Return one self-contained HTML page of the reports in these folders, with pictures."""
    from markdown_it import MarkdownIt

    render = MarkdownIt("commonmark", {"html": False}).enable("table").render
    parts = [_HEAD.format(title=html.escape(title))]
    for folder in folders:
        picture = base64.b64encode((folder / PICTURE).read_bytes()).decode()
        text = render((folder / REPORT).read_text(encoding="utf-8"))
        parts.append(text.replace(f'src="{PICTURE}"', f'src="data:image/png;base64,{picture}"'))
    return "".join([*parts, "</body></html>\n"])
