"""Write docs/benchmarks/results.md from the reports of full runs: published figures and ours.

    python tools/results_page.py FOLDER      folder of `trajopt experiment NAME --out FOLDER`

An experiment without a full run in FOLDER keeps its section of the page. Figures that the section lacks are n/a, with
the command that runs the experiment.
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

Full runs of the paper experiments: published figures and ours, or n/a with the reason. `python tools/results_page.py`
generates this page from the reports of `trajopt experiment NAME`.

The machine is a virtual machine of two cores shared with other programs. Times are medians over rounds of one run;
published times are from other processors. Each report has its date, its processor and the load. With more running
processes than cores, wall-clock times (plans of the arm) are several times as long as on an idle machine; processor
times and ratios within a run are less affected.

A row is **worse** or **different** if one of its published statements does not hold in our run; the row names the statement.
Different: the result differs, but is not worse. Rows without a statement are not counted.
"""


def page(folder: Path, so_far: str) -> str:
    """Return the page; ``so_far`` is its present text."""
    parts, old_sections = [HEAD], _sections(so_far)
    for paper, named in PAPERS.items():
        parts.append(f"## {TITLES[paper]}\n")
        parts += [section(name, folder / name, old_sections.get(name, "")) for name in named]
        parts.append(_without(paper))
    return "\n".join(part for part in parts if part)


def section(name: str, folder: Path, old_sections: str) -> str:
    """Return the report of an experiment without its picture, or its present section if there is no full run."""
    title = STUDIES[name].partition(" (")[0]
    title = f"### {title[0].upper()}{title[1:]}"
    if is_done(folder, quick=False):
        lines = (folder / REPORT).read_text(encoding="utf-8").splitlines()[1:]
        text = "\n".join(line for line in lines if not line.startswith("![")).strip().replace("\n\n\n", "\n\n")
        return f"{title}\n\n`trajopt experiment {name}`\n\n{text}\n"
    why = f"not run in full here: `trajopt experiment {name}`"
    missing = [
        Comparison(f.what, f.figure, "n/a", (), why)
        for f in FIGURES
        if f.experiment == name and f"| {f.what}" not in old_sections
    ]
    parts = [old_sections.strip() or title, *([table(missing)] if missing else [])]
    return "\n\n".join(parts) + "\n"


def _sections(text: str) -> dict[str, str]:
    """Split a page into sections by experiment."""
    parts = ("### " + part.split("\n## ")[0] for part in text.split("\n### ")[1:])
    return {name: part for part in parts for name in STUDIES if f"`trajopt experiment {name}`" in part}


def _without(paper: str) -> str:
    """Return the section of the figures without an experiment."""
    author, _, year = paper.partition("_")
    figures = [f for f in FIGURES if f.experiment is None and f.paper == f"{author.capitalize()} {year}"]
    if not figures:
        return ""
    return f"### Without an experiment\n\n{table(Comparison(f.what, f.figure, 'n/a', (), f.why) for f in figures)}\n"


def main() -> None:
    """Write the page to docs/benchmarks/results.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    PAGE.write_text(page(parser.parse_args().folder, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"written to {PAGE}")


if __name__ == "__main__":
    main()
