"""First tries: typical user problems and guesses, solved by the default solver and by IPOPT; quality of the optima.

    python -m experiments.benchmark_first_try [GROUP ...] [--count N] [--seed 0] [--solvers auto,dms] [--processes 1]
                                              [--time-limit 120] [--out DIR] [--rerun]
                                              [--best STARTS] [--environment DIR]

Groups: "optimum" (systems with several optima), "minimum time", "complementarity" and "units"; default: all. Each is solved by
``to.solve(ocp, guess)`` (auto) and by IPOPT with multiple shooting (dms), from the same guess and with default options. Times are
those of the second call in a process, without tracing. The replay error is the largest deviation of a finely integrated motion
from the plan; "between knots" is the largest violation of an inequality between knots.

Objectives are compared with the best known ones in best_known.csv in this folder. --best STARTS improves that file and writes no
report: it runs all solvers of this toolkit from the instance's guess, and ddp, ipm and IPOPT from STARTS random guesses. Crocoddyl
solves reaches of arms without constraints but torque limits from all these guesses, in an environment of its own, which is
installed if it is missing.

DIR receives rows.csv (one row per solve, written after each solve), report.md and profiles.png. Rows of an earlier run
are not solved again, except with --rerun.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from experiments.benchmarks.first_try.best_known import from_rows, merge_best, read_best, search, write_best
from experiments.benchmarks.first_try.report import failures, panels, table, worse_solves
from experiments.benchmarks.first_try.runs import GROUPS, Job, Row, jobs_of, read_rows, run_all
from experiments.benchmarks.solvers.crocoddyl_peer import FOLDER, environment
from experiments.benchmarks.tables import machine, write_csv, write_report
from experiments.plots.performance_profiles import draw_profiles

ROWS = "rows.csv"


def run(jobs: list[Job], processes: int, out: Path, *, rerun: bool) -> list[Row]:
    """Return the rows of all jobs, including earlier runs. An interrupt keeps the finished rows."""
    requested = {job[:4] for job in jobs}
    earlier = [] if rerun else read_rows(out / ROWS)
    rows = {row.key: row for row in earlier}
    remaining = [job for job in jobs if job[:4] not in rows]
    try:
        for number, row in enumerate(run_all(remaining, processes), 1):
            rows[row.key] = row
            write_csv(out / ROWS, list(rows.values()))
            print(
                f"{number}/{len(remaining)} {row.instance} by {row.solver}: {row.status}, {row.objective:.6g}, "
                f"{row.iterations} iterations, {row.seconds:.2f} s",
                flush=True,
            )
    except KeyboardInterrupt:
        print(f"interrupted; {ROWS} has {len(rows)} rows")
    order = {job[:4]: i for i, job in enumerate(jobs)}
    return sorted((row for key, row in rows.items() if key in requested), key=lambda row: order[row.key])


def improve(jobs: list[Job], starts: int, processes: int, folder: Path) -> None:
    """Search for better objectives, and store them in best_known.csv. folder: environment of Crocoddyl."""
    jobs = list({job[:3]: job for job in jobs}.values())
    best = read_best()
    try:
        crocoddyl = environment(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        crocoddyl = None
        print(f"Crocoddyl is left out: it cannot be installed here ({error})")
    os.environ["TRAJOPT_THREADS"] = "1"
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for number, done in enumerate(as_completed([pool.submit(search, job, starts, crocoddyl) for job in jobs]), 1):
            found = done.result()
            best = merge_best(best, found)
            write_best(best)
            if found:
                print(f"{number}/{len(jobs)} {best[found[0].key]}", flush=True)


def report(rows: list[Row], out: Path) -> None:
    """Write report.md, table.csv and profiles.png."""
    best = {key: b.objective for key, b in merge_best(read_best(), from_rows(rows)).items()}
    draw_profiles(panels(rows, best), out / "profiles.png")
    text = "\n\n".join(
        [
            f"Machine: {machine()}. Times: second call in the process.",
            table(rows, best, out / "table.csv"),
            "## More than 1 % above the best known objective (auto)",
            worse_solves(rows, best),
            "## Not converged",
            failures(rows),
        ]
    )
    write_report(out, text + "\n", rows=rows)


def main() -> None:
    """Solve, and write the report and profiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"out of {', '.join(GROUPS)}; default: all")
    parser.add_argument("--count", type=int, help="number of instances of each group; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--solvers", default="auto,dms", help="comma-separated names")
    parser.add_argument("--processes", type=int, default=1, help="number of parallel solves")
    parser.add_argument("--time-limit", type=float, default=120.0, metavar="S", help="time limit of a solve [s]")
    parser.add_argument("--out", type=Path, default=Path("out/benchmark_first_try"), help="folder of the results")
    parser.add_argument("--rerun", action="store_true", help="repeat solves that an earlier run has written")
    parser.add_argument("--best", type=int, metavar="STARTS", help="improve the best known objectives instead")
    parser.add_argument(
        "--environment", type=Path, default=FOLDER, metavar="DIR", help="of Crocoddyl; default: %(default)s"
    )
    a = parser.parse_args()
    unknown = [group for group in a.groups if group not in GROUPS]
    if unknown:
        parser.error(f"unknown group {unknown[0]!r}; expected some of {', '.join(GROUPS)}")
    solvers = [name.strip() for name in a.solvers.split(",") if name.strip()]
    jobs = jobs_of(a.groups or list(GROUPS), a.seed, a.count, solvers, a.time_limit)
    if a.best is not None:
        improve(jobs, a.best, a.processes, a.environment)
        return
    a.out.mkdir(parents=True, exist_ok=True)
    rows = run(jobs, a.processes, a.out, rerun=a.rerun)
    if rows:
        report(rows, a.out)


if __name__ == "__main__":
    main()
