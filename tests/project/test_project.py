"""The whole project: modules loaded by its import, required documents, and the example of CONTRIBUTING.md."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import trajopt
from dynamics_backends.environment import compiler_command
from trajopt import erd_names

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("dynamics_backends", "trajopt", "problems", "experiments")
LOADED_LATE = ("casadi", "matplotlib", "pydantic", "rich", "pinocchio")
FILES = sorted(path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
HEADERS = sorted(path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.h"))


def is_public(file: str) -> bool:
    """True if no part of the path is private; `__init__.py` stands for its package."""
    return not any(part.startswith("_") and part != "__init__.py" for part in Path(file).parts)


def test_import_of_trajopt_loads_no_heavy_package() -> None:
    code = f"import sys, trajopt; print([name for name in {LOADED_LATE!r} if name in sys.modules])"
    command = [sys.executable, "-W", "error", "-c", code]
    result = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"


def test_dir_lists_public_names_alone() -> None:
    import trajopt

    for module in (trajopt, trajopt.kinematics):
        assert [name for name in dir(module) if not name.startswith("__")] == sorted(module.__all__)
        assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("file", [file for file in FILES if is_public(file)])
def test_every_public_module_has_a_docstring(file: str) -> None:
    docstring = ast.get_docstring(ast.parse((ROOT / file).read_text(encoding="utf-8")))
    assert docstring, f"{file} needs a docstring that states its problem and notation"


@pytest.mark.parametrize("header", HEADERS)
def test_comments_of_headers_name_python_code_that_exists(header: str) -> None:
    """Paths start at the root; a file that a comment cites by `see NAME of FILE` defines the name."""
    text = re.sub(r"\s+", " ", (ROOT / header).read_text(encoding="utf-8"))
    cited = {name: ROOT / name for name in re.findall(r"[\w/]+\.py\b", text)}
    assert [name for name, file in cited.items() if not file.is_file()] == []
    for name, file in re.findall(r"(?:see|as|version: |versions: |, |\(|/\*) ?(\w+) of ([\w/]+\.py)\b", text):
        code = cited[file].read_text(encoding="utf-8")
        assert re.search(rf"^ *(?:def |class )?{name}\b", code, re.MULTILINE), f"{header}: {file} defines no {name}"


@pytest.mark.skipif("ur5" not in erd_names(), reason="the script loads a robot of example-robot-data")
def test_the_script_of_the_readme_runs(tmp_path) -> None:
    """A single import is sufficient."""
    (script,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    imported = [line for line in script.splitlines() if line.startswith(("import ", "from "))]
    assert imported == ["import numpy as np", "import trajopt as to"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "ur5.npz").exists() and "\nconverged: " in result.stdout


def test_the_version_is_the_newest_one_of_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[(\S+)\] - \d{4}-\d\d-\d\d$", changelog, re.MULTILINE)
    assert released[0] == trajopt.__version__
    command = [sys.executable, "-c", "from experiments.cli.main import main; main()", "--version"]
    result = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == f"trajopt {trajopt.__version__}"


@pytest.mark.parametrize("document", ["README.md", "CHANGELOG.md", "LICENSE"])
def test_document_exists(document: str) -> None:
    assert (ROOT / document).read_text(encoding="utf-8").strip()


TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_its_example_runs():
    [example] = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    assert "assert" in example
    exec(compile(example, "CONTRIBUTING.md", "exec"), {})


def test_its_command_for_one_test_selects_tests():
    [(file, word)] = re.findall(r"pytest -n 0 (\S+\.py) -k (\w+)", TEXT)
    assert re.search(rf"^def test_\w*{word}", (ROOT / file).read_text(encoding="utf-8"), re.M)


def test_every_kernel_header_compiles_on_its_own(monkeypatch) -> None:
    """Headers include what they use, as editors with compile_flags.txt expect."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import build_kernels

    build_kernels.write_generated_headers()
    headers = [h for package in PACKAGES for h in (ROOT / package).rglob("*.h") if "export" not in h.parts]
    assert len(headers) > 50
    command = [*compiler_command(), *(ROOT / "compile_flags.txt").read_text().split(), "-fsyntax-only", "-w"]
    for header in headers:
        done = subprocess.run([*command, str(header)], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{header.relative_to(ROOT)}: {done.stderr[:500]}"
