"""Writes docs/benchmarks/results.md from the reports of full runs: ours beside every published figure.

    python tools/results_page.py FOLDER      the folder of `trajopt experiment NAME --out FOLDER`

Figures whose experiment has no full run there stay n/a, with the command that runs it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments.papers.published import FIGURES  # noqa: E402
from experiments.papers.registry import PAPERS, STUDIES  # noqa: E402
from experiments.papers.report import DONE, REPORT, is_done, table  # noqa: E402
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
programs shared: times are medians of turns within one run, and published ones are of other processors.
"""


def page(folder: Path) -> str:
    """The text of the page."""
    parts = [HEAD]
    for paper, named in PAPERS.items():
        parts.append(f"## {TITLES[paper]}\n")
        parts += [section(name, folder / name) for name in named]
        parts.append(_without(paper))
    return "\n".join(part for part in parts if part)


def section(name: str, folder: Path) -> str:
    """The report of an experiment, its picture left out; of one that was not run in full, its figures."""
    title = STUDIES[name].partition(" (")[0]
    title = f"### {title[0].upper()}{title[1:]}"
    if is_done(folder, quick=False):
        done = folder / DONE
        day = datetime.date.fromtimestamp(done.stat().st_mtime).isoformat()
        seconds = json.loads(done.read_text(encoding="utf-8"))["seconds"]
        lines = (folder / REPORT).read_text(encoding="utf-8").splitlines()[1:]
        kept = [line for line in lines if not line.startswith("![")]
        text = "\n".join(kept).strip().replace("\n\n\n", "\n\n")
        return f"{title}\n\n`trajopt experiment {name}`, {day}, {seconds:.0f} s.\n\n{text}\n"
    why = f"not run in full here: `trajopt experiment {name}`"
    left = [Comparison(f.what, f.figure, "n/a", False, why) for f in FIGURES if f.experiment == name]
    body = table(left) if left else f"n/a: {why}."
    return f"{title}\n\n{body}\n"


def _without(paper: str) -> str:
    """The figures that no experiment is about."""
    author, _, year = paper.partition("_")
    own = [f for f in FIGURES if f.experiment is None and f.paper == f"{author.capitalize()} {year}"]
    if not own:
        return ""
    return f"### Without an experiment\n\n{table(Comparison(f.what, f.figure, 'n/a', False, f.why) for f in own)}\n"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    PAGE.write_text(page(parser.parse_args().folder), encoding="utf-8")
    print(f"written to {PAGE}")


if __name__ == "__main__":
    main()
