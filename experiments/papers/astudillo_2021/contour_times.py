"""Contour following by NMPC: OCP-FD and OCP-ID with AD and with closed derivatives (Astudillo et al. 2021, fig. 2).

The Kinova Gen3 follows a curve within 1 cm, 16 steps of RK4; controls are torques (OCP-FD) or accelerations with torques bounded
through inverse dynamics (OCP-ID).  SQP with the Hessian of convex-over-nonlinear functions (SCQP), cold start, compiled code, the
same QPs for all.  AD: CasADi's, of the whole map.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import problems
from experiments.config.build import build_task, make_ready, solve_task, uncut
from experiments.config.config import load_config
from experiments.papers.study import ASTUDILLO, Comparison, Outcome, times

SOURCE = f"{ASTUDILLO}, fig. 2"
CONFIGS = Path(problems.__file__).parent / "configs"
FORMS = {"OCP-FD": "gen3_contour_fd", "OCP-ID": "gen3_contour_id"}
METHODS = {"AD": "casadi_ad", "analytic": "analytic"}
PUBLISHED = {"OCP-FD": 1.29, "OCP-ID": 1.09}
"""Time with AD by that with closed forms."""


def run(quick: bool) -> Outcome:
    """All solves; a quick one stops after two iterations of OCP-ID, without compiled code."""
    rows = [_row(form, method, quick) for form in (["OCP-ID"] if quick else FORMS) for method in METHODS]
    return Outcome(
        rows, [_comparison(rows, form) for form in dict.fromkeys(r["form"] for r in rows)], partial(_draw, rows)
    )


def _row(form: str, method: str, quick: bool) -> dict[str, Any]:
    overrides = [f"backend.name='{METHODS[method]}'", "solver={name='sqp', hessian='scqp'}"]
    overrides += ["solver.max_iterations=2"] if quick else []
    config = load_config(CONFIGS / f"{FORMS[form]}.toml", overrides)
    config = config.with_engine("numpy") if quick else config
    task = build_task(config)
    if not quick:
        make_ready(config, task)
    seconds = []
    for _ in range(1 if quick else 15):
        began = time.process_time()
        solution = uncut(solve_task(config, task))
        seconds.append(time.process_time() - began)
    phases = {f"{phase} [ms]": 1e3 * t for phase, t in solution.time_total.items()}
    return {
        "form": form,
        "derivatives": method,
        "milliseconds": 1e3 * median(seconds),
        "iterations": solution.iterations,
        "cost": solution.cost,
        "solved": solution.status.success,
        **phases,
    }


def _comparison(rows: list[dict[str, Any]], form: str) -> Comparison:
    ad, analytic = (next(r for r in rows if (r["form"], r["derivatives"]) == (form, m)) for m in METHODS)
    ratio = ad["milliseconds"] / analytic["milliseconds"]
    why = (
        f"{ad['milliseconds']:.1f} and {analytic['milliseconds']:.1f} ms,"
        f" {ad['iterations']} and {analytic['iterations']} iterations,"
        f" costs {abs(ad['cost'] - analytic['cost']) / abs(analytic['cost']):.0e} apart"
    )
    return Comparison(
        f"{form}: time with AD by that with closed forms",
        times(PUBLISHED[form]),
        times(ratio),
        ratio < PUBLISHED[form],
        why,
    )


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, figure

    with figure(path, 1, 1, 5.0, 3.4, "Contour following: time of a solve [ms]") as axes:
        names = [f"{r['form']}\n{r['derivatives']}" for r in rows]
        axes[0, 0].bar(range(len(rows)), [r["milliseconds"] for r in rows], color=COLORS[: len(rows)])
        axes[0, 0].set_xticks(range(len(rows)), names)
