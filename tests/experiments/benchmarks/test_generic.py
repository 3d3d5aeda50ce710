"""Comparisons with other libraries: notes about builds, and the column of generic code. Tables of benchmarks."""

import platform

import numpy as np
import pytest

from dynamics_backends.machine import library
from experiments.benchmarks.derivatives import benchmark_compiled
from experiments.benchmarks.generic import COLUMN, GENERIC, GenericProcess, build_notes
from experiments.benchmarks.solvers import benchmark_batch, benchmark_crocoddyl, benchmark_dms
from experiments.benchmarks.solvers.crocoddyl_problems import PROBLEMS, our_problem
from experiments.benchmarks.tables import markdown, print_table
from trajopt import solve


class Here:
    """Replacement of GenericProcess that calls functions in this process."""

    def call(self, function, *arguments):
        return function(*arguments)


def instruction_set():
    """Instruction set and lanes of the process that calls it."""
    return library.chosen_instructions(), library.lanes()


@pytest.mark.skipif(not library.library_file(GENERIC).is_file(), reason="not built: `make kernels` builds all")
def test_the_other_process_uses_the_library_for_any_processor():
    own = instruction_set()
    with GenericProcess() as process:
        instructions, lanes = process.call(instruction_set)
        with pytest.raises(ZeroDivisionError):
            process.call(divmod, 1, 0)
    assert instructions == GENERIC and lanes <= own[1]
    assert instruction_set() == own


def test_reports_name_the_compilation_of_each_library():
    lines = build_notes("Crocoddyl", "CasADi").splitlines()
    assert len(lines) == 3
    assert "numbers per vector" in lines[0] and f"'{COLUMN}': {GENERIC or platform.machine()}" in lines[0]
    assert (
        lines[1].startswith("- Crocoddyl: its wheel on PyPI")
        and "compiled on this machine with -march=native" in lines[2]
    )


def test_crocoddyl_rows_have_a_time_of_code_for_any_processor(monkeypatch):
    p = PROBLEMS["unicycle"]()
    best = solve(our_problem(p), solver="fddp", options={"gradient_tolerance": 1e-8})
    summary = {"optimum": best.cost, "cost": best.cost, "iterations": 3, "ms": [1.0, 2.0]}
    monkeypatch.setattr(
        benchmark_crocoddyl, "crocoddyl_solve", lambda *_: (summary, {"guess": np.zeros((0, 0)), "us": best.us})
    )
    row = benchmark_crocoddyl.compare("unicycle", "python", 2, Here())
    assert row.difference < 1e-9 and row.crocoddyl_ms == 1.5
    assert row.our_ms > 0.0 and row.generic > 0.0


def test_lines_of_the_compiled_engine_have_the_ratio_of_code_for_any_processor():
    ours, theirs = benchmark_compiled.Times(2.0, 1.0), benchmark_compiled.Times(8.0, 8.0)
    plain = benchmark_compiled.entry("dFD", "us/knot", ours, "Pinocchio", theirs, min_ratio=3.0)
    found = benchmark_compiled.with_generic(plain, 4.0)
    assert (found.ratio, found.generic, found.ratio_of_generic, found.holds) == (4.0, 4.0, 2.0, True)
    assert (
        len(benchmark_compiled.cells(found)) == len(benchmark_compiled.cells(plain)) == len(benchmark_compiled.HEADER)
    )
    assert COLUMN in benchmark_compiled.HEADER


def test_batch_rows_have_as_many_cells_as_the_head():
    runs = [
        benchmark_batch.Run("solve_batch, ddp", np.ones(4), 9.0, 2.0, 1.0, "note", generic=0.5),
        benchmark_batch.Run("Crocoddyl", np.ones(2), 9.0, 2.0, 1.0),
    ]
    own, peer = benchmark_batch.table_rows("reaches", runs)
    at = benchmark_batch.COLUMNS.index(f"solutions per second, {COLUMN}")
    assert len(own) == len(peer) == len(benchmark_batch.COLUMNS)
    assert (own[at], peer[at]) == ("0.5", "")


def test_dms_rows_have_as_many_cells_as_the_head():
    assert len(benchmark_dms.Row._fields) == len(benchmark_dms.COLUMNS)
    assert benchmark_dms.COLUMNS[-1] == COLUMN


def test_a_table_is_written_with_its_command_and_versions(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/folder/benchmark_arms.py", "--out", "out", "--goals", "2"])
    shown = markdown(["arm", "mm, 50 %"], [["UR5", "1.2"]], tmp_path / "out" / "table.csv")
    assert shown == "| arm | mm, 50 % |\n| --- | --- |\n| UR5 | 1.2 |"
    lines = (tmp_path / "out" / "table.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# `python -m experiments.benchmark_arms --goals 2`."
    assert all(line.startswith("# ") for line in lines[:4]) and f"numpy {np.__version__}" in lines[3]
    assert lines[4:] == ['arm,"mm, 50 %"', "UR5,1.2"]


def test_a_table_printed_by_rows_equals_one_printed_at_once(tmp_path, capsys):
    header, rows = ["arm", "mm"], [["UR5", "1.2"], ["Gen3", "3.4"]]
    shown = markdown(header, rows, tmp_path / "at_once.csv")
    print_table(header, iter(rows), tmp_path / "by_rows.csv")
    assert capsys.readouterr().out == shown + "\n"
    assert (tmp_path / "by_rows.csv").read_bytes() == (tmp_path / "at_once.csv").read_bytes()
