"""First tries: problems and guesses as a user writes them, by the default solver and by IPOPT, and how good their optima are.

    python -m experiments.benchmark_first_try [GROUP ...] [--count N] [--seed 0] [--solvers auto,dms] [--processes 1]
                                              [--time-limit 120] [--out DIR] [--anew] [--best STARTS]

Groups: "optimum" (arms and other systems with several optima), "minimum time" and "complementarity"; default all.  Each instance is
solved by ``to.solve(ocp, guess)`` (auto) and by IPOPT through multiple shooting (dms) from the same guess, with default options.
Times are those of the second call in a process, so that compiling does not count.  The replay error is the largest deviation of
the motion on finely integrated dynamics from the plan; "between knots" is the largest violation of an inequality there.

Objectives are compared with the best known ones in best_known.csv beside this file.  --best STARTS improves that file: every
solver of this toolkit from the instance's guess, and IPOPT from STARTS random guesses; nothing is reported then.

DIR gets rows.csv (a row a solve, written as solves end), report.md and profiles.png.  Rows that an earlier run has written are not
solved again, unless --anew is given.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from experiments.benchmarks.first_try.best_known import from_rows, improved, read_best, searched, write_best
from experiments.benchmarks.first_try.report import failures, panels, table, worse
from experiments.benchmarks.first_try.runs import GROUPS, Job, Row, jobs_of, read_rows, run_all
from experiments.benchmarks.tables import machine, write_csv, write_report
from experiments.plots.performance_profiles import draw_profiles

ROWS = "rows.csv"


def run(jobs: list[Job], processes: int, out: Path, *, anew: bool) -> list[Row]:
    """The rows of all jobs, those of earlier runs included; rows that are done are kept on an interrupt."""
    asked = {job[:4] for job in jobs}
    earlier = [] if anew else read_rows(out / ROWS)
    rows = {row.key: row for row in earlier}
    left = [job for job in jobs if job[:4] not in rows]
    try:
        for number, row in enumerate(run_all(left, processes), 1):
            rows[row.key] = row
            write_csv(out / ROWS, list(rows.values()))
            print(
                f"{number}/{len(left)} {row.instance} by {row.solver}: {row.status}, {row.objective:.6g}, "
                f"{row.iterations} iterations, {row.seconds:.2f} s",
                flush=True,
            )
    except KeyboardInterrupt:
        print(f"interrupted; {ROWS} has {len(rows)} rows")
    order = {job[:4]: i for i, job in enumerate(jobs)}
    return sorted((row for key, row in rows.items() if key in asked), key=lambda row: order[row.key])


def improve(jobs: list[Job], starts: int, processes: int) -> None:
    """Store better objectives in best_known.csv as they are found."""
    jobs = list({job[:3]: job for job in jobs}.values())
    best = read_best()
    os.environ["TRAJOPT_THREADS"] = "1"
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for number, done in enumerate(as_completed([pool.submit(searched, job, starts) for job in jobs]), 1):
            found = done.result()
            best = improved(best, found)
            write_best(best)
            if found:
                print(f"{number}/{len(jobs)} {best[found[0].key]}", flush=True)


def report(rows: list[Row], out: Path) -> None:
    """Write report.md and profiles.png."""
    best = {key: b.objective for key, b in improved(read_best(), from_rows(rows)).items()}
    draw_profiles(panels(rows, best), out / "profiles.png")
    text = "\n\n".join(
        [
            f"Machine: {machine()}. Times: second call in the process.",
            table(rows, best),
            "## Ended above 1 % of the best known (auto)",
            worse(rows, best),
            "## Not converged",
            failures(rows),
        ]
    )
    write_report(out, text + "\n", rows=rows)


def main() -> None:
    """Solve, and write tables and profiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; default all")
    parser.add_argument("--count", type=int, help="the first so many instances of each group; default all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--solvers", default="auto,dms", help="names, with commas between")
    parser.add_argument("--processes", type=int, default=1, help="solves that run at a time")
    parser.add_argument("--time-limit", type=float, default=120.0, metavar="S", help="of a solve")
    parser.add_argument("--out", type=Path, default=Path("out/benchmark_first_try"), help="folder of the results")
    parser.add_argument("--anew", action="store_true", help="repeat solves that an earlier run has written")
    parser.add_argument("--best", type=int, metavar="STARTS", help="improve the best known objectives instead")
    a = parser.parse_args()
    unknown = [group for group in a.groups if group not in GROUPS]
    if unknown:
        parser.error(f"no group {unknown[0]!r}; there are: {', '.join(GROUPS)}")
    solvers = [name.strip() for name in a.solvers.split(",") if name.strip()]
    jobs = jobs_of(a.groups or list(GROUPS), a.seed, a.count, solvers, a.time_limit)
    if a.best is not None:
        improve(jobs, a.best, a.processes)
        return
    a.out.mkdir(parents=True, exist_ok=True)
    rows = run(jobs, a.processes, a.out, anew=a.anew)
    if rows:
        report(rows, a.out)


if __name__ == "__main__":
    main()
