"""SLQ on HyQ's trot and gallop with numeric and with generated derivatives (Giftthaler et al. 2017, fig. 3).

Soft ground, the weights of the Control Toolbox; 1.5 m lead to a trot, 2 m to a gallop.  Num-Diff: forward differences; Auto-Diff:
CasADi's C code; and the closed form; all on the compiled engine, one thread as given.  Costs over iterations, and the time of the
same number of iterations, shared among derivatives, backward pass and roll-outs.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import problems
from experiments.config.build import build_task, make_ready, solve_task, uncut
from experiments.config.config import load_config
from experiments.papers.study import GIFTTHALER, Comparison, Outcome, times
from trajopt.results.records import PHASES

SOURCE = f"{GIFTTHALER}, fig. 3"
CONFIGS = Path(problems.__file__).parent / "configs"
TASKS = {"trot": "hyq_trot_published", "gallop": "hyq_gallop_published"}
METHODS = {"Num-Diff": "forward_difference", "Auto-Diff codegen": "casadi_ad", "closed form": "analytic"}
ITERATIONS = 30
QUICK = ["problem.horizon=3", "solver.max_iterations=2"]
QUICK_METHODS = ("Num-Diff", "closed form")
PUBLISHED = "up to 5 x"


def run(quick: bool) -> Outcome:
    """Every iteration of every solve; a quick run takes three knots of the trot in NumPy."""
    rows = [
        row
        for task in (("trot",) if quick else TASKS)
        for method in (QUICK_METHODS if quick else METHODS)
        for row in _rows(task, method, quick)
    ]
    return Outcome(rows, _comparisons(rows), partial(_draw, rows))


def _rows(name: str, method: str, quick: bool) -> list[dict[str, Any]]:
    overrides = [f"backend.name='{METHODS[method]}'", *(QUICK if quick else [f"solver.max_iterations={ITERATIONS}"])]
    config = load_config(CONFIGS / f"{TASKS[name]}.toml", overrides)
    config = config.with_engine("numpy") if quick else config
    task = build_task(config)
    if not quick:
        make_ready(config, task)
    history = uncut(solve_task(config, task)).history
    return [
        {
            "task": name,
            "method": method,
            "iteration": r.iteration,
            "cost": r.cost,
            "seconds": sum(r.times.values()),
            **{phase: r.times.get(phase, 0.0) for phase in PHASES},
        }
        for r in history
    ]


def _comparisons(rows: list[dict[str, Any]]) -> list[Comparison]:
    lines = []
    for task in dict.fromkeys(r["task"] for r in rows):
        seconds, last = {}, {}
        for method in dict.fromkeys(r["method"] for r in rows):
            own = [r for r in rows if (r["task"], r["method"]) == (task, method)]
            seconds[method], last[method] = sum(r["seconds"] for r in own) / len(own), own[-1]["cost"]
        numeric = seconds.pop("Num-Diff")
        apart = max(abs(c - last["closed form"]) / abs(last["closed form"]) for c in last.values())
        for method, t in seconds.items():
            ours = f"{times(numeric / t)} ({1e3 * numeric:.0f} and {1e3 * t:.0f} ms an iteration)"
            why = "differences run in lanes of the same C here, and were one call for each column there"
            lines.append(
                Comparison(f"{task}: time of an iteration, Num-Diff by {method}", PUBLISHED, ours, numeric < t, why)
            )
        same = f"costs {apart:.1e} apart after {len(rows) and max(r['iteration'] for r in rows) + 1} iterations"
        lines.append(Comparison(f"{task}: convergence", "equally fast", same, apart > 0.1))
    return lines


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, LINES, figure

    tasks = list(dict.fromkeys(r["task"] for r in rows))
    methods = list(dict.fromkeys(r["method"] for r in rows))
    with figure(path, 1, 2, 9.0, 3.8, "SLQ on HyQ with numeric and generated derivatives", bottom=1.0) as axes:
        labels: list[str] = []
        for line, task in zip(LINES, tasks, strict=False):
            for color, method in zip(COLORS, methods, strict=False):
                own = [r for r in rows if (r["task"], r["method"]) == (task, method)]
                axes[0, 0].semilogy(
                    [r["iteration"] for r in own],
                    [r["cost"] for r in own],
                    line,
                    color=color,
                    label=f"{task}, {method}",
                )
                bottom = 0.0
                for share, phase in enumerate(PHASES):
                    height = 1e3 * sum(r[phase] for r in own) / len(own)
                    axes[0, 1].bar(
                        len(labels), height, bottom=bottom, color=COLORS[4 + share], label=phase if not labels else None
                    )
                    bottom += height
                labels.append(f"{task}, {method}")
        axes[0, 0].set_title("cost")
        axes[0, 0].set_xlabel("iteration")
        axes[0, 0].legend(fontsize=6)
        axes[0, 1].set_title("ms an iteration")
        axes[0, 1].set_xticks(range(len(labels)), labels, rotation=30, ha="right", fontsize=6)
        axes[0, 1].legend(fontsize=6)
