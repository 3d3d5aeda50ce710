"""Contents of a wheel, and protection against user folders with the same names.

The tests copy the packages and data files of pyproject.toml to a folder under their names in a wheel, like setup.py.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dynamics_backends.machine import library

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
sys.path.insert(0, str(ROOT / "tools"))
from wheel_names import NAMES, wheel_name  # noqa: E402

SHADOWS = (*NAMES, "tests")
LOADED_LATE = ("casadi", "matplotlib", "scipy", "cyipopt", "pydantic", "osqp", "mujoco", "rich", "click", "loky")


LIBRARIES = [library.PROCESSOR, *map(library.library_file, library.instruction_sets())]


def packaged() -> list[str]:
    """The folders of the packages, as setuptools finds them."""
    setuptools = PROJECT["tool"]["setuptools"]
    assert setuptools["packages"]["find"]["namespaces"] is False
    include = setuptools["packages"]["find"]["include"]
    found: list[str] = []
    for init in sorted(ROOT.glob("[a-z]*/**/__init__.py"), key=lambda init: init.parts):
        package = init.parent.relative_to(ROOT)
        has_parent = package.parent == Path() or package.parent.as_posix() in found
        if has_parent and any(fnmatchcase(".".join(package.parts), pattern) for pattern in include):
            found.append(package.as_posix())
    return found


def place(path: PurePosixPath) -> PurePosixPath:
    """Place of a file of the repository in a wheel."""
    return PurePosixPath(wheel_name(path.parts[0]), *path.parts[1:])


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder into which a wheel is unpacked."""
    site = tmp_path_factory.mktemp("site")
    data = PROJECT["tool"]["setuptools"]["package-data"]
    files = [path for package in packaged() for path in (ROOT / package).glob("*.py")]
    files += [path for package, globs in data.items() for pattern in globs for path in (ROOT / package).glob(pattern)]
    files += [path for path in LIBRARIES if path.is_file()]  # setup.py builds them into the wheel
    for path in files:
        target = site / place(path.relative_to(ROOT))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    info = site / "urdf_trajopt-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: urdf-trajopt\nVersion: 0\n")
    groups = PROJECT["project"]["entry-points"].items()
    texts = [f"[{group}]\n" + "".join(f"{k} = {wheel_name(v)}\n" for k, v in each.items()) for group, each in groups]
    (info / "entry_points.txt").write_text("".join(texts))
    return site


@pytest.fixture
def beside(tmp_path) -> Path:
    """User folder with packages of the names in the repository, which raise errors on import."""
    for name in SHADOWS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the wrong package is imported')\n")
    return tmp_path


def ran(site: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_packages_are_those_of_the_four_layers_without_benchmarks():
    packages = packaged()
    assert {name.split("/")[0] for name in packages} == {"dynamics_backends", "trajopt", "problems", "experiments"}
    assert "experiments/cli" in packages and "dynamics_backends/rigid_body/urdf" in packages
    assert not [name for name in packages for part in ("benchmarks", "papers", "attacks") if part in name]


def test_a_wheel_has_no_generic_names(installed):
    names = {path.name for path in installed.iterdir() if path.suffix != ".dist-info"}
    assert names == {"dynamics_backends", "trajopt", "trajopt_problems", "trajopt_experiments"}


def test_renamed_packages_import_their_own_modules_relatively(installed):
    wrong = []
    for file in installed.glob("trajopt_*/**/*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                found = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                if not (found / "__init__.py").is_file() and not found.with_suffix(".py").is_file():
                    wrong.append((file.name, ast.unparse(node)))
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                wrong += [(file.name, ast.unparse(node)) for module in modules if module.split(".")[0] in SHADOWS]
    assert {name for name, _ in wrong} <= {"experiment_command.py"}, wrong  # it reports that a wheel has no experiments


def test_data_is_there(installed):
    for file in ("trajopt/py.typed", "dynamics_backends/py.typed", "trajopt_problems/robots/iiwa7.urdf"):
        assert (installed / file).exists()
    kernels = {path.relative_to(ROOT).as_posix() for top in packaged() for path in (ROOT / top).rglob("*.h")}
    assert kernels and all((installed / place(PurePosixPath(file))).exists() for file in kernels)


def test_a_script_beside_folders_with_our_names(installed, beside):
    script = beside / "script.py"
    script.write_text(
        "import trajopt as to\n"
        "robot = to.FreeBody(to.load_robot('iiwa7'))\n"
        "dynamics = to.SampledSystem(to.make_backend(robot, engine='numpy'), 'semi_implicit_euler')\n"
        "x0 = robot.manifold.identity()\n"
        "costs = [to.control_cost(robot.nu), to.state_cost(robot.manifold, x0, 1.0)]\n"
        "ocp = to.OCP.single_phase(dynamics, x0, 3, 0.01, costs)\n"
        "print(to.__file__, to.solve(ocp).status.success, to.robot_names())\n"
    )
    done = ran(installed, beside, str(script))
    assert done.returncode == 0, done.stderr
    file, success, *_ = done.stdout.split()
    assert Path(file).is_relative_to(installed) and success == "True" and "'hyq'" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "printed"),
    [
        (["robots"], 0, "iiwa7"),
        (["solve", "double_pendulum_swing_up", "--set", "output.plots=false", "--out", "out"], 0, "converged"),
        (["experiment", "list"], 2, "in the repository only"),
    ],
)
def test_the_command_in_such_a_folder(installed, beside, arguments, code, printed):
    """The command of pip's script; Python's path starts with the user's folder."""
    module, function = wheel_name(PROJECT["project"]["scripts"]["trajopt"]).split(":")
    done = ran(installed, beside, "-c", f"from {module} import {function}; {function}()", *arguments)
    assert done.returncode == code and printed in done.stdout + done.stderr, done.stderr


def test_a_solve_uses_the_traces_that_are_built_with_the_package(installed, tmp_path, monkeypatch):
    config = installed / "trajopt_problems" / "configs" / "cart_pole_swing_up.toml"
    done = ran(installed, tmp_path, str(ROOT / "tools" / "build_traces.py"), str(config))
    assert done.returncode == 0, done.stderr
    cache = tmp_path / "cache"
    monkeypatch.setenv("TRAJOPT_CACHE_DIR", str(cache))
    code = "import trajopt as to; print(to.load_problem('{}').solve(report=False).status.success)"
    for name, expected in (("cart_pole_swing_up", []), ("cart_pole_balance", [".known"])):
        done = ran(installed, tmp_path, "-c", code.format(name))
        assert done.stdout.strip() == "True", done.stderr
        assert sorted({path.suffix for path in cache.glob("*")}) == expected


def test_slow_imports_are_deferred(installed, tmp_path):
    code = f"import sys, trajopt; print([name for name in {LOADED_LATE!r} if name in sys.modules])"
    done = ran(installed, tmp_path, "-W", "error", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_every_module_of_trajopt_can_be_imported_first(installed, tmp_path):
    """No import cycle through the package's __init__."""
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    for loaded in [m for m in sys.modules if m.split('.')[0] in ('trajopt', 'dynamics_backends')]:\n"
        "        del sys.modules[loaded]\n"
        "    importlib.import_module(name)\n"
    )
    firsts = ["trajopt.replanning.loop", "trajopt.stage.evaluation", "trajopt.step.sensitivities", "trajopt.lq.lq"]
    firsts += ["trajopt.solvers.direct.dms", "dynamics_backends.registry", "dynamics_backends.manifold"]
    done = ran(installed, tmp_path, "-c", code, *firsts)
    assert done.returncode == 0, done.stderr


def test_the_face_imports_names_one_by_one():
    """Return the names that editors and type checkers treat as exports: ``import name as name``, and the version."""
    body = ast.parse((ROOT / "trajopt/__init__.pyi").read_text(encoding="utf-8")).body
    assert isinstance(body[0], ast.Expr) and all(isinstance(node, ast.ImportFrom) for node in body[1:-1])
    assert ast.unparse(body[-1]) == "__version__: str"
    names = [alias for node in body[1:] if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert all(alias.asname == alias.name for alias in names)
    assert len({alias.name for alias in names}) == len(names)


def test_names_are_loaded_when_they_are_asked_for(installed, tmp_path):
    """All names of the stub exist, and importing one name loads only its dependencies."""
    body = ast.parse((ROOT / "trajopt/__init__.pyi").read_text(encoding="utf-8")).body
    expected = {alias.name: node.module for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}
    code = (
        "import sys, json, importlib, trajopt as to\n"
        "to.OCP; early = [m for m in sys.modules if m.startswith(('trajopt.sweeps', 'trajopt.solvers.batch'))]\n"
        "import trajopt.view.motion\n"
        "wrong = [n for n, m in json.loads(sys.argv[1]).items() if getattr(to, n) is not getattr(importlib.import_module(m), n)]\n"
        "hidden = [n for n in json.loads(sys.argv[1]) if n not in dir(to) or n not in to.__all__]\n"
        "print(early, wrong, hidden, hasattr(to, 'no_such_name'))"
    )
    done = ran(installed, tmp_path, "-c", code, json.dumps(expected))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[] [] [] False"


USE = """
import trajopt as to

model = to.load_robot("erd:ur5")
reveal_type(model)
reveal_type(to.FreeBody(to.lock_joints(model, [])))
reveal_type(to.SLQOptions(max_iterations=3).max_iterations)
to.SQPOptions(max_iteration=3)
to.no_such_name
"""


@pytest.mark.slow
def test_a_type_checker_sees_the_names(tmp_path):
    mypy = pytest.importorskip("mypy.api")
    script = tmp_path / "script.py"
    script.write_text(USE)
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--follow-imports", "silent"]
    text, _, _ = mypy.run([*options, "--cache-dir", str(tmp_path / "cache"), str(script)])
    revealed = re.findall(r'Revealed type is "(.*)"', text)
    assert [name.split(".")[-1].strip("'") for name in revealed] == ["Model", "FreeBody", "int"], text
    assert 'Unexpected keyword argument "max_iteration"' in text and 'has no attribute "no_such_name"' in text


# -- constraints.txt ----------------------------------------------------------------------------------------------------

UNTESTED = ("compiler", "docs", "bench-crocoddyl")
"""Extras that `make venv` does not install."""


def test_every_dependency_of_the_test_environment_has_an_upper_bound_above_its_lower_one():
    extras = PROJECT["project"]["optional-dependencies"]
    asked = [*PROJECT["project"]["dependencies"], *(r for name in extras if name not in UNTESTED for r in extras[name])]
    lower = {str(canonicalize_name(r.name)): r.specifier for r in map(Requirement, asked)}
    lower.pop(PROJECT["project"]["name"])
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    upper = dict(line.split("<=") for line in lines)
    assert upper.keys() == lower.keys()
    assert [name for name, bound in upper.items() if not lower[name].contains(bound)] == []


# -- make venv ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"CC": "/nonexistent/cc"},
            "error: no C compiler: CC names /nonexistent/cc, which was not found; correct or unset CC",
        ),
        ({"PATH": "tools"}, "error: no C compiler: none of cc, gcc, clang is on the PATH; install one"),
    ],
)
def test_make_stops_without_a_compiler_before_it_installs_anything(tmp_path, variables, message):
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    for name in ("Makefile", "pyproject.toml", "setup.py", "constraints.txt", "tools", "dynamics_backends"):
        (tmp_path / name).symlink_to(ROOT / name)
    environment = {name: value for name, value in os.environ.items() if name not in ("CC", "PYTHONPATH")} | variables
    environment["PYTHONSAFEPATH"] = "1"  # Python then does not import from the current folder
    command = [make, "venv", f"PYTHON={os.path.realpath(sys.executable)}"]  # outside of the environment of the tests
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert process.returncode != 0 and process.stderr.startswith(message), process.stderr
    assert not (tmp_path / ".venv").exists()
