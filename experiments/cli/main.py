"""The command `trajopt`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .cli_support import (
    ACCEPTABLE,
    BAD_INPUT,
    FAILED,
    after_saving,
    backend_option,
    command,
    config_argument,
    configured,
    interrupted_before_results,
    problem_of,
    results_folder,
    set_option,
    solver_option,
    urdf_option,
    warn,
)
from .console_reports import INTERRUPTED_STARTS, best_of, exit_code, print_report
from .engine_commands import COMMANDS
from .experiment_command import experiment
from .keys_command import keys
from .replan_command import replan
from .saving import CONFIG_FILE, SOLUTION_FILE, draw, drawer_for, save
from .show_command import robots, show
from .sweep_command import sweep
from .view_command import require_video, view

if TYPE_CHECKING:
    from dynamics_backends.derivative_check import DerivativeCheck
    from trajopt import Guess, IterationRecord, Solution
    from trajopt.comparison.compare import Run
    from trajopt.config.config import Config
    from trajopt.config.load import LoadedProblem
    from trajopt.config.task import Task
    from trajopt.view.watch import Watch

COMPARISON_FILES = ("comparison.md", "comparison.csv", "comparison.png")


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from trajopt import __version__

        click.echo(f"trajopt {__version__}")
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version)
def main() -> None:
    """Optimize the motions of robots.

    Exit codes: 0 converged, 3 acceptable (usable, but not optimal), 1 neither, or a failed check, 2 wrong input.
    """


# -- solve ---------------------------------------------------------------------------------------------------


@main.command()
@config_argument
@set_option
@click.option("--out", type=click.Path(file_okay=False), help="Folder of the results; default: out/NAME OF CONFIG.")
@click.option("--verbosity", type=click.IntRange(0, 3), help="0: result only; 1, 2, 3: more columns.")
@urdf_option
@backend_option
@solver_option
@click.option("--warm-start", type=click.Path(exists=True, dir_okay=False), help="Start from a saved solution.")
@click.option(
    "--starts", type=click.IntRange(1), default=1, help="Solve from this many guesses and save the best optimum."
)
@click.option("--animate", is_flag=True, help="Also write an HTML page that plays the motion.")
@click.option("--view", "viewed", is_flag=True, help="Show the iterates in a browser, then the solution.")
@click.option("--video", type=click.Path(dir_okay=False), help="Write a video (.gif, .mp4).")
@command
def solve(config: str, overrides: tuple[str, ...], **named: Any) -> None:
    """Solve the problem of CONFIG (a TOML file), save the solution and draw it."""
    own = ("urdf", "backend", "solver", "out", "verbosity")
    with interrupted_before_results("while the configuration was read"):
        settings = configured(config, overrides, **{key: named.pop(key) for key in own})
    if settings.replan is not None:
        warn([f"{config} is meant for `trajopt replan`; this solves its problem once, from the start"])
    _solve(settings, **named)


def _solve(
    settings: Config,
    warm_start: str | None,
    starts: int,
    animate: bool,
    viewed: bool,
    video: str | None,
) -> None:
    """Set up and solve the problem; save, report and draw the solution."""

    from trajopt import ConsoleTable, StatusCode
    from trajopt.config import build

    with interrupted_before_results("while the problem was set up"):
        problem = problem_of(settings)
        task = problem.task
        drawer = drawer_for(task, settings)
        guess = None
        if warm_start is not None:
            guess, warnings = build.warm_start(task, warm_start)
            warn(warnings)
        _print_findings(problem, guess)
        results_folder(settings.directory, (SOLUTION_FILE, CONFIG_FILE))
        if video is not None:
            require_video(Path(video))
        watch = _watch(settings, task, guess) if viewed else None
    with interrupted_before_results("before the solve had an iterate, or between two solves"):
        if starts > 1:
            solution = best_of(problem if guess is None else problem.starting_at(guess), starts)
        else:
            table = ConsoleTable(verbosity=settings.output.verbosity)
            printing: Any = _ignore_closed_pipe(table)
            callback = printing if watch is None else _both(printing, watch)
            solution = problem.solve(guess, callback, report=False)
            with suppress(BrokenPipeError):
                table.footer()
    written = save(solution, task, settings)
    with after_saving(settings.directory):
        print_report(solution)
        if solution.status.code == StatusCode.INTERRUPTED:
            saved = "the best iterate" if solution.iterations else "only the initial guess"
            click.echo(f"Interrupted: saved {saved}.")
        elif INTERRUPTED_STARTS in solution.meta:
            click.echo(
                f"Interrupted: {solution.meta[INTERRUPTED_STARTS]} starts unfinished; saved the best finished one."
            )
        draw(solution, task, settings, written, animate, drawer)
    if video is not None:
        from ..view.scenes import task_scene
        from .view_command import write_video

        write_video(Path(video), task_scene(solution, task, settings.as_dict()), "visual")
    if watch is not None:
        _wait(watch, solution, task, settings)
    if code := FAILED if INTERRUPTED_STARTS in solution.meta else exit_code(solution.status):
        raise click.exceptions.Exit(code)


def _watch(settings: Config, task: Task, guess: Guess | None) -> Watch:
    from ..view.scenes import watch_task

    watch = watch_task(task, task.guess if guess is None else guess, settings.as_dict())
    click.echo(f"iterates: {watch.viewer.url}")
    return watch


def _both(*callbacks: Callable[[IterationRecord], None]) -> Callable[[IterationRecord], None]:
    def call(record: IterationRecord) -> None:
        for callback in callbacks:
            callback(record)

    return call


def _ignore_closed_pipe(callback: Callable[[IterationRecord], None]) -> Callable[[IterationRecord], None]:
    """Wrap a printing callback: a closed output pipe does not stop the solve."""

    def call(record: IterationRecord) -> None:
        with suppress(BrokenPipeError):
            callback(record)

    return call


def _wait(watch: Watch, solution: Solution, task: Task, settings: Config) -> None:
    """Show the solution instead of the iterates until Ctrl-C."""
    from ..view.scenes import task_scene

    watch.finish(task_scene(solution, task, settings.as_dict()).motions[0])
    click.echo(f"solution: {watch.viewer.url} (stop with Ctrl-C)")
    watch.wait()


def _print_findings(problem: LoadedProblem, guess: Guess | None) -> None:
    """Print validation warnings before a solve. Raises InvalidProblem if there are errors."""
    from trajopt.solvers.solve import require_solvable

    given = problem.guess if guess is None else guess
    warn(f.message for f in require_solvable(problem.ocp, given, problem.solver, problem.options))


# -- validate, check -----------------------------------------------------------------------------------------


@main.command()
@config_argument
@set_option
@urdf_option
@command
def validate(config: str, overrides: tuple[str, ...], urdf: str | None) -> None:
    """Check CONFIG and its problem for mistakes without solving."""
    from trajopt import validate as findings_of
    from .console_reports import constraint_table

    problem = problem_of(configured(config, overrides, urdf=urdf))
    task, ocp = problem.task, problem.ocp
    sizes = f"nx = {ocp.manifold.nx}, ndx = {ocp.manifold.ndx}, nu = {ocp.nu}"
    duration = f"{ocp.times_of(task.start.xs)[-1]:.6g} s"
    if ocp.in_scaled_time:
        duration = f"free duration ({duration} in the guess)"
    click.echo(f"{ocp.name}: {ocp.horizon} knots, {duration}, {sizes}")
    if ocp.model is not None:
        click.echo(ocp.model.describe())
    click.echo("cost terms: " + ", ".join(dict.fromkeys(term.name for term in ocp.terms())))
    for line in constraint_table(ocp) or ["no constraints"]:
        click.echo(line)
    for note in task.notes:
        click.echo(note)
    solver = problem.solver, problem.options
    findings = [f for f in findings_of(ocp, task.start, *solver) if f.message not in task.warnings]
    for finding in findings:
        click.echo(f"{finding.severity}: {finding.message}", err=True)
    if any(f.severity == "error" for f in findings):
        raise click.exceptions.Exit(BAD_INPUT)
    warned = len(task.warnings) + len(findings)
    click.echo("no errors" + (f", {warned} warning{'s' if warned > 1 else ''}" if warned else ""))


@main.command()
@config_argument
@set_option
@urdf_option
@click.option("--points", type=click.IntRange(1), default=8, show_default=True, help="Number of random points.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--whole", is_flag=True, help="Compare everything, also on large robots.")
@command
def check(config: str, overrides: tuple[str, ...], urdf: str | None, points: int, seed: int, whole: bool) -> None:
    """Compare first and second derivatives of dynamics, costs and constraints with complex step."""
    from dynamics_backends.derivative_check import worst
    from trajopt.comparison.check_derivatives import check_derivatives

    settings = configured(config, overrides, urdf=urdf)
    task, backend = problem_of(settings.with_engine("numpy")).task, settings.backend
    click.echo(f"{'':34}{'block':<8}{'method':<20}{'error':>9}  worst entry")
    lines = []
    given: dict[str, Any] = {"method": backend.name, "engine": backend.engine}
    for line in check_derivatives(task.ocp, task.start, **given, points=points, seed=seed, whole=whole):
        click.echo(_check_line(line))
        lines.append(line)
    compared = [line for line in lines if line.error is not None]
    failed = [line for line in compared if not line.passed]
    worst_check = worst(lines)
    click.echo(f"worst: {worst_check}" if worst_check else "nothing to compare")
    if any(line.left_out for line in lines):
        click.echo("--whole also compares the omitted derivatives")
    if failed:
        click.echo(f"{len(failed)} of {len(compared)} comparisons exceed their tolerance", err=True)
        raise click.exceptions.Exit(FAILED)
    click.echo(f"all {len(compared)} comparisons are within their tolerances")


def _check_line(line: DerivativeCheck) -> str:
    head = f"{line.what[:33]:<34}{line.block:<8}{line.method:<20}"
    if line.error is None:
        return f"{head}{'-':>9}  {line.entry[:120]}"
    return f"{head}{line.error:>9.1e}  {line.entry}" + ("" if line.passed else f"   EXCEEDS {line.tolerance:.0e}")


# -- compare -------------------------------------------------------------------------------------------------


def _names(_: click.Context, __: click.Parameter, value: str | None) -> list[str]:
    return [name.strip() for name in (value or "").split(",") if name.strip()]


@main.command()
@config_argument
@set_option
@urdf_option
@click.option("--backends", callback=_names, metavar="A,B", help="Derivative methods; default: from CONFIG.")
@click.option("--solvers", callback=_names, metavar="A,B", help="Solvers; default: from CONFIG.")
@click.option(
    "--hessians",
    callback=_names,
    metavar="A,B",
    help="Hessians, for solvers with this option; default: that of the solver.",
)
@click.option("--out", type=click.Path(file_okay=False), help="Output folder.")
@command
def compare(
    config: str,
    overrides: tuple[str, ...],
    urdf: str | None,
    backends: list[str],
    solvers: list[str],
    hessians: list[str],
    out: str | None,
) -> None:
    """Solve CONFIG with several backends, solvers and Hessians; write a table, a CSV file and a convergence plot."""
    from trajopt.comparison.compare import run_all
    from trajopt.config.variants import config_variants, first_task
    from trajopt.validation.validation import require_valid

    settings = configured(config, overrides, urdf=urdf, out=out)
    given = config_variants(settings, backends, solvers, hessians)
    task = first_task(given)
    warn(task.warnings)
    warn(f.message for f in require_valid(task.ocp, task.guess))
    folder, runs = results_folder(settings.directory, COMPARISON_FILES), []
    with suppress(KeyboardInterrupt):
        for run in _with_progress(run_all(given), len(given)):
            runs.append(run)
    interrupted = len(runs) < len(given)
    if interrupted:
        click.echo(f"Interrupted: {len(runs)} of {len(given)} runs finished.")
    if not runs:
        raise click.exceptions.Exit(FAILED)
    written = _write_comparison(folder, runs, Path(config).stem)
    click.echo(f"written to {folder}: " + ", ".join(path.name for path in written))
    defect = next((run.error for run in runs if run.error is not None), None)
    if defect is not None:
        raise defect
    codes = [FAILED if run.solution is None else exit_code(run.solution.status) for run in runs]
    if interrupted or FAILED in codes:
        raise click.exceptions.Exit(FAILED)
    if ACCEPTABLE in codes:
        raise click.exceptions.Exit(ACCEPTABLE)


def _write_comparison(folder: Path, runs: Sequence[Run], title: str) -> list[Path]:
    """Print the comparison table and write table, CSV and plot; return the written paths."""
    from trajopt.comparison.compare import Comparison

    comparison = Comparison(tuple(runs), title)
    click.echo(str(comparison), nl=False)
    markdown, values, picture = (folder / name for name in COMPARISON_FILES)
    markdown.write_text(str(comparison), encoding="utf-8")
    written = [markdown, comparison.write_csv(values), comparison.plot(picture)]
    return [path for path in written if path is not None]


def _with_progress(items: Any, total: int) -> Iterator[Any]:
    """Yield the items with a progress bar on the error stream."""
    from rich.console import Console
    from rich.progress import track

    yield from track(items, "solving", total, console=Console(stderr=True), transient=True)


# -- other commands --------------------------------------------------------------------------------------------

for engine_command in COMMANDS:
    main.add_command(engine_command)
main.add_command(replan)
main.add_command(sweep)
main.add_command(experiment)
main.add_command(view)
main.add_command(robots)
main.add_command(keys)
main.add_command(show)


if __name__ == "__main__":
    main()
