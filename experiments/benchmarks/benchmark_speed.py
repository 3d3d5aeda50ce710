"""Run all benchmarks of docs/benchmarks/speed.md one after the other, with comparisons to other libraries (peers).

    python -m experiments.benchmark_speed [--only gaits,dms] [--quick] [--out DIR]

Each report is written to DIR/NAME.txt, its tables to CSV files in DIR/NAME, and all reports to DIR/speed.md. DIR/NAME/table.csv is
the table of the page, docs/benchmarks/data/speed_NAME.csv. A failed benchmark is reported and does not stop the others. No other
program should run during the measurement. The benchmarks report peers that are not installed.
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
    """One benchmark of the page: title, arguments, arguments of quick runs. one_thread: True if it runs on one thread."""

    about: str
    arguments: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    one_thread: bool = True


REPLANNING = ("--planners", "ipm", "--methods", "analytic", "--rerun")
FIGURES = {
    "compiled": Figure("first derivatives compared with Pinocchio and CasADi", quick=("--quick",)),
    "second_order": Figure("second-order tensors and contractions compared with published times"),
    "clearance": Figure("distances from obstacles", ("--repeat", "200")),
    "crocoddyl": Figure("reach, trot and unicycle compared with Crocoddyl", quick=("--repeats", "3")),
    "crocoddyl_gaits": Figure(
        "Crocoddyl's ten gaits",
        ("--solvers", "fddp,slq,ddp,ilqr"),
        ("--solvers", "fddp", "hyq trot"),
    ),
    "ipm": Figure("interior point compared with IPOPT and SQP", quick=("--quick",)),
    "dms": Figure(
        "UR5 around a sphere, compared with CasADi's code",
        ("--peer", "ur5_obstacle"),
        ("--peer", "--repeats", "3", "ur5_obstacle"),
    ),
    "ddp": Figure("one iteration of SLQ and of both kinds of DDP", quick=("--quick",), one_thread=False),
    "calls": Figure("calls of to.solve with and without checks", quick=("--repeats", "3"), one_thread=False),
    "replanning": Figure("IRB 4600 around a moving sphere", REPLANNING, (*REPLANNING, "--seeds", "2")),
    "batch": Figure(
        "batches compared with single solves, Crocoddyl and CasADi",
        ("--n", "500", "--loop", "32", "--peers", "32"),
        ("--n", "64", "--loop", "8", "--peers", "0"),
        one_thread=False,
    ),
    "startup": Figure("time from a command to its first solution", quick=("--only", "ur5_reach"), one_thread=False),
}


def command(name: str, out: Path, quick: bool) -> list[str]:
    """Return the command line of a benchmark."""
    figure = FIGURES[name]
    return [
        sys.executable,
        "-m",
        f"experiments.benchmark_{name}",
        *(figure.quick if quick else figure.arguments),
        "--out",
        str(out / name),
    ]


def run_benchmark(name: str, out: Path, quick: bool) -> tuple[bool, float]:
    """Run a benchmark; print its report and write it to NAME.txt. Return (True on success, duration [s])."""
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
    parser.add_argument(
        "--only", default=",".join(FIGURES), help=f"comma-separated names out of {', '.join(FIGURES)}; default: all"
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds and seeds: tests that all benchmarks run")
    parser.add_argument("--out", type=Path, default=Path("out/benchmark_speed"), help="folder of the reports")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := [name for name in names if name not in FIGURES]:
        parser.error(f"--only: {', '.join(unknown)}; expected some of {', '.join(FIGURES)}")
    options.out.mkdir(parents=True, exist_ok=True)
    parts, failed = [f"{platform.processor() or platform.machine()}, {os.cpu_count()} processors"], []
    for name in names:
        print(f"== {name}: {FIGURES[name].about}", flush=True)
        good, seconds = run_benchmark(name, options.out, options.quick)
        text = (options.out / f"{name}.txt").read_text(encoding="utf-8").strip()
        parts.append(f"# {name}: {FIGURES[name].about}\n\n{text}\n\n{'done' if good else 'FAILED'} in {seconds:.0f} s")
        failed += [] if good else [name]
        (options.out / "speed.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(f"The reports are in {options.out / 'speed.md'}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
