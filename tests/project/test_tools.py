"""The commands ops, doctor and cache."""

import csv
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments.analysis.operations import FUNCTIONS, HEADER, PUBLISHED, TYPES, by_type, load, operation_counts, table
from experiments.cli import doctor, trace_cache
from experiments.cli.engine_commands import cache, doctor as doctor_command, ops

ROOT = Path(__file__).resolve().parents[2]
COUNTS = {  # exact counts of this project; they change with the algorithms or the tracing
    "iiwa7": (2322, 7337, 7553, 1115, 5181, 5442),
    "gen3": (2760, 8040, 8256, 1335, 5654, 6008),
}
PUBLISHED_TOTALS = {"iiwa7": (2675, 11874, 1150, 7739), "gen3": (3424, 14565, 1492, 9426)}  # FD, J_FD, ID, J_ID


def run(command, *arguments):
    return CliRunner().invoke(command, list(arguments))


# -- ops ----------------------------------------------------------------------------------------------------------------


def test_the_published_table_adds_up():
    for robot, totals in PUBLISHED_TOTALS.items():
        assert tuple(sum(counts.values()) for counts in PUBLISHED[robot].values()) == totals


@pytest.mark.parametrize("robot", COUNTS)
def test_no_function_takes_more_operations_than_published(robot):
    """Counts without snapped rotations."""
    counts = operation_counts(load(robot), robot)
    assert [c.function for c in counts] == list(FUNCTIONS)
    for count, limit in zip(counts, COUNTS[robot], strict=True):
        assert count.total <= limit
        assert count.published is not None and count.total <= count.published
        assert count.by_type["other"] == 0


def test_snapping_saves_operations():
    as_given, snapped = (operation_counts(load("gen3", snap), "gen3") for snap in (False, True))
    assert all(s.total < 0.95 * g.total for g, s in zip(as_given, snapped, strict=True))


def test_operations_by_type():
    counts = by_type({"ADD": 1, "SUB": 2, "TWICE": 3, "SIN": 4, "ATAN2": 5, "INV": 6})
    assert counts == {**dict.fromkeys(TYPES, 0), "add/sub": 6, "sin": 4, "other": 5, "inv": 6}


def test_the_table_is_aligned():
    lines = table(operation_counts(load("double_pendulum")))
    assert len(lines) == 1 + len(FUNCTIONS)
    assert "published" not in lines[0] and "sqrt" not in lines[0]
    assert len({len(line) for line in lines}) == 1


def test_ops_prints_the_table_and_writes_it(tmp_path):
    file = tmp_path / "table.csv"
    result = run(ops, "iiwa7", "--csv", str(file))
    assert result.exit_code == 0, result.output
    assert "2675" in result.output and "J_ID (q, v, a)" in result.output
    rows = list(csv.reader(file.read_text(encoding="utf-8").splitlines()))
    assert tuple(rows[0]) == HEADER and len(rows) == 1 + len(FUNCTIONS)


def test_ops_takes_a_urdf_file():
    result = run(ops, str(ROOT / "problems" / "robots" / "cart_pole.urdf"), "--base", "fixed", "--snap")
    assert result.exit_code == 0, result.output
    assert "nv = 2, rotations snapped" in result.output


@pytest.mark.parametrize(("robot", "message"), [("iiwa8", "iiwa7"), ("nowhere/robot.urdf", "nowhere/robot.urdf")])
def test_ops_of_an_unknown_robot(robot, message):
    result = run(ops, robot)
    assert result.exit_code == 2
    assert message in result.stderr


# -- doctor -------------------------------------------------------------------------------------------------------------


def test_doctor_reports_versions():
    result = run(doctor_command)
    assert result.exit_code == 0, result.output
    for text in ("numpy", "casadi", "cache", "threads", "C compiler", trace_cache.contents().folder.name):
        assert text in result.output


def test_doctor_reports_missing_packages_with_their_install_command(monkeypatch):
    monkeypatch.setattr(doctor, "version", lambda package: doctor.NONE if package == "viser" else "1.0")
    assert [line for line in doctor.report() if "pip install 'viser>=1.1.1,<2'" in line]
    assert not [line for line in doctor.report() if "pip install 'mujoco" in line]


def test_doctor_without_a_compiler_names_the_remedy(monkeypatch):
    monkeypatch.setenv("CC", "/nonexistent/cc")
    result = run(doctor_command)
    assert result.exit_code == 0
    assert "no C compiler: CC names /nonexistent/cc" in result.output and "correct or unset CC" in result.output
    assert "solves need none" in result.output


def test_doctor_names_the_ipopt_of_cyipopt(monkeypatch):
    module = type(sys)("cyipopt")
    module.IPOPT_VERSION = (3, 14, 19)
    monkeypatch.setitem(sys.modules, "cyipopt", module)
    monkeypatch.setattr(doctor.metadata, "version", lambda package: "1.5.0")
    assert doctor.version("cyipopt") == "1.5.0 with IPOPT 3.14.19"


def test_the_commands_of_doctor_are_those_of_the_project_file():
    """Yield the packages of each extra with the version required by pyproject.toml."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for extra in doctor.EXTRAS:
        [wanted] = [r.split(";")[0].strip() for r in extras[extra.extra] if r.startswith(extra.package)]
        if extra.command.startswith("pip"):
            assert extra.command == f"pip install '{wanted}'"
        else:
            assert (ROOT / extra.command.split()[1]).is_file()


# -- cache --------------------------------------------------------------------------------------------------------------

KEY = "0123456789abcdef" * 2
OWN = (f"{KEY}.known", f"{KEY}.known.abcdefg_.tmp")
FOREIGN = ("notes.txt", "libm.so", f"{KEY}.c", f"{KEY}0.known", f"{KEY.upper()}.known", f"{KEY}.known.bak")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Cache folder with a trace and an unfinished one among unrelated files."""
    place = tmp_path / "traces"
    place.mkdir()
    for name in (*OWN, *FOREIGN):
        (place / name).write_text("x" * 100)
    (place / f"{KEY[::-1]}.known").mkdir()
    monkeypatch.setenv("TRAJOPT_CACHE_DIR", str(place))
    return place


def test_cache_shows_its_own_files(folder):
    found = trace_cache.contents()
    assert (len(found.files), found.size, found.problem) == (2, 200, "")
    result = run(cache)
    assert result.exit_code == 0
    assert result.output == f"{folder}: 2 files, 0.0 MiB, writable\n"


def test_clear_removes_cache_files_only(folder):
    result = run(cache, "--clear")
    assert result.exit_code == 0
    assert "removed 2 files" in result.output
    assert sorted(p.name for p in folder.iterdir()) == sorted([*FOREIGN, f"{KEY[::-1]}.known"])
    assert trace_cache.contents().files == []


def test_a_cache_that_is_not_there_yet(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAJOPT_CACHE_DIR", str(tmp_path / "not" / "yet"))
    assert "0 files, 0.0 MiB, writable" in run(cache).output
    assert run(cache, "--clear").exit_code == 0
    assert not (tmp_path / "not").exists()


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TRAJOPT_CACHE_DIR", str(tmp_path / "file" / "traces"))
    assert "set TRAJOPT_CACHE_DIR to a writable folder" in run(cache).output
