"""Every figure of docs/benchmarks/speed.md in one run, each by its own benchmark with the peers beside it, one after the other.

    python -m experiments.benchmark_speed [--only gaits,dms] [--quick] [--out DIR]

Each report is written to DIR/NAME.txt as it comes, and all of them to DIR/speed.md; a benchmark that fails is told and stops no
other.  Times are worth what the machine is: nothing else should run.  Peers that are not installed are told by the benchmarks.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple


class Figure(NamedTuple):
    """Rows of the page: what they are about, the benchmark's arguments, those of a quick run, and whether on one thread."""

    about: str
    arguments: tuple[str, ...]
    quick: tuple[str, ...]
    one_thread: bool = True


FIGURES = {
    "compiled": Figure("first derivatives beside Pinocchio and CasADi, compilation", (), ("--quick",)),
    "second_order": Figure("second-order tensors and contractions beside published times", (), ()),
    "crocoddyl": Figure("the reach, the trot and the unicycle beside Crocoddyl", (), ("--repeats", "3")),
    "ddp": Figure("UR5's reach: an iteration of SLQ and of both kinds of DDP", ("--quick",), ("--quick",), False),
    "gaits": Figure(
        "HyQ on soft ground and with rigid contacts", ("--methods", "analytic"), ("--methods", "analytic"), False
    ),
    "dms": Figure(
        "UR5 around a sphere beside CasADi's code",
        ("--peer", "ur5_obstacle"),
        ("--peer", "--repeats", "3", "ur5_obstacle"),
    ),
    "replanning": Figure(
        "the IRB 4600 around a wandering sphere",
        ("--planners", "dms", "--methods", "analytic"),
        ("--planners", "dms", "--methods", "analytic", "--seeds", "2"),
    ),
    "startup": Figure(
        "from a command to its first solution, with and without a cache", (), ("--only", "ur5_reach"), False
    ),
}
OWN_FOLDER = ("compiled", "second_order", "ddp", "replanning")
"""Benchmarks that write more than their report: they get a folder beside it."""


def command(name: str, out: Path, quick: bool) -> list[str]:
    """The benchmark as a user would run it."""
    figure = FIGURES[name]
    folder = ["--out", str(out / name)] if name in OWN_FOLDER else []
    return [
        sys.executable,
        "-m",
        f"experiments.benchmark_{name}",
        *(figure.quick if quick else figure.arguments),
        *folder,
    ]


def measured(name: str, out: Path, quick: bool) -> tuple[bool, float]:
    """True if a benchmark succeeded, and its duration [s]; its report is printed and written to NAME.txt."""
    one = {"TRAJOPT_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment = os.environ | (one if FIGURES[name].one_thread else {})
    start = time.perf_counter()
    with (out / f"{name}.txt").open("w", encoding="utf-8") as report:
        process = subprocess.Popen(
            command(name, out, quick), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            report.write(line)
    return process.wait() == 0, time.perf_counter() - start


def main() -> None:
    """Run the benchmarks and join their reports."""
    parser = argparse.ArgumentParser(description="All figures of docs/benchmarks/speed.md.")
    parser.add_argument("--only", default=",".join(FIGURES), help=f"of {', '.join(FIGURES)}; default all")
    parser.add_argument("--quick", action="store_true", help="fewer turns and seeds: whether all runs, not how fast")
    parser.add_argument("--out", type=Path, default=Path("out/benchmark_speed"), help="folder of the reports")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := [name for name in names if name not in FIGURES]:
        parser.error(f"--only: {', '.join(unknown)}; expected some of {', '.join(FIGURES)}")
    options.out.mkdir(parents=True, exist_ok=True)
    parts, failed = [f"{platform.processor() or platform.machine()}, {os.cpu_count()} processors"], []
    for name in names:
        print(f"== {name}: {FIGURES[name].about}", flush=True)
        good, seconds = measured(name, options.out, options.quick)
        text = (options.out / f"{name}.txt").read_text(encoding="utf-8").strip()
        parts.append(f"# {name}: {FIGURES[name].about}\n\n{text}\n\n{'done' if good else 'FAILED'} in {seconds:.0f} s")
        failed += [] if good else [name]
        (options.out / "speed.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(f"The reports are in {options.out / 'speed.md'}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
