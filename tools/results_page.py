"""Writes docs/benchmarks/results.md from the reports of full runs: ours beside every published figure.

    python tools/results_page.py FOLDER      the folder of `trajopt experiment NAME --out FOLDER`

An experiment without a full run there keeps its section of the page; figures that the section lacks are n/a, with the command
that runs it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments.papers.published import FIGURES  # noqa: E402
from experiments.papers.registry import PAPERS, STUDIES  # noqa: E402
from experiments.papers.report import REPORT, is_done, table  # noqa: E402
from experiments.papers.study import Comparison  # noqa: E402

PAGE = ROOT / "docs" / "benchmarks" / "results.md"
TITLES = {
    "kudruss_2019": "Kudruss, Manns, Kirches 2019",
    "singh_2023": "Singh, Russell, Wensing 2023",
    "astudillo_2021": "Astudillo et al. 2021",
    "giftthaler_2017": "Giftthaler et al. 2017",
    "beyond": "Beyond the papers",
}
HEAD = """# Results

The experiments of the papers, run in full: published figures, and ours beside them or n/a with the reason. Made by
`python tools/results_page.py` from the reports of `trajopt experiment NAME`, on a virtual machine of two cores that other
programs shared: times are medians of turns within one run, and published ones are of other processors. Each report says the
date and the processor. About twenty other processes ran beside those of 2026-11-26: what is measured by the wall clock (iterations
of SLQ, plans of the arm) took several times as long as on an idle machine; processor times and ratios within a run suffer less.

A row is **worse** or **different** where one of its published statements does not hold here; the statement is named in the row.
Different: the result is another one, not one to our disadvantage. Rows without such a statement are in no verdict.
"""


def page(folder: Path, so_far: str) -> str:
    """The text of the page."""
    parts, kept = [HEAD], _sections(so_far)
    for paper, named in PAPERS.items():
        parts.append(f"## {TITLES[paper]}\n")
        parts += [section(name, folder / name, kept.get(name, "")) for name in named]
        parts.append(_without(paper))
    return "\n".join(part for part in parts if part)


def section(name: str, folder: Path, kept: str) -> str:
    """The report of an experiment, its picture left out; of one that was not run in full, its section of the page so far."""
    title = STUDIES[name].partition(" (")[0]
    title = f"### {title[0].upper()}{title[1:]}"
    if is_done(folder, quick=False):
        lines = (folder / REPORT).read_text(encoding="utf-8").splitlines()[1:]
        text = "\n".join(line for line in lines if not line.startswith("![")).strip().replace("\n\n\n", "\n\n")
        return f"{title}\n\n`trajopt experiment {name}`\n\n{text}\n"
    why = f"not run in full here: `trajopt experiment {name}`"
    left = [
        Comparison(f.what, f.figure, "n/a", (), why)
        for f in FIGURES
        if f.experiment == name and f"| {f.what}" not in kept
    ]
    parts = [kept.strip() or title, *([table(left)] if left else [])]
    return "\n\n".join(parts) + "\n"


def _sections(text: str) -> dict[str, str]:
    """The sections of the page by their experiments."""
    parts = ("### " + part.split("\n## ")[0] for part in text.split("\n### ")[1:])
    return {name: part for part in parts for name in STUDIES if f"`trajopt experiment {name}`" in part}


def _without(paper: str) -> str:
    """The figures that no experiment is about."""
    author, _, year = paper.partition("_")
    own = [f for f in FIGURES if f.experiment is None and f.paper == f"{author.capitalize()} {year}"]
    if not own:
        return ""
    return f"### Without an experiment\n\n{table(Comparison(f.what, f.figure, 'n/a', (), f.why) for f in own)}\n"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    PAGE.write_text(page(parser.parse_args().folder, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"written to {PAGE}")


if __name__ == "__main__":
    main()
