"""Direction of imports: dynamics_backends <- trajopt <- problems <- experiments, and between their folders.

In every folder, the imports between its modules and subfolders have no cycles.

The sources are parsed, not imported. All imports count, also in functions, under TYPE_CHECKING, or as
importlib.import_module("name"). The exception is casadi, which must not be loaded when a module is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("dynamics_backends", "trajopt", "problems", "experiments")  # each imports only those before it

TRAJOPT_MAY_IMPORT = tuple(
    f"dynamics_backends.{module}"
    for module in (
        "chained_map",
        "composed_map",
        "stretched_map",
        "deferred",
        "derivative_check",
        "environment",
        "symbols",
        "trace",
        "user_input",
        "protocol",
        "registry",
        "extensions",
        "names",
        "scalar",
        "manifold",
        "manifold_curvature",
        "rigid_body.algorithms.kinematics",
        "rigid_body.algorithms.seen_poses",
        "rigid_body.batched",
        "rigid_body.geometry",
        "rigid_body.robots",
        "rigid_body.mjcf.source",
        "rigid_body.urdf.xml_source",
        "rigid_body.spatial.rotations",
        "rigid_body.model.model",
        "rigid_body.model.model_data",
        "rigid_body.mjcf.mujoco_states",
        "rigid_body.model.state",
        "compiled.emit",
        "compiled.loops.kernel",
        "compiled.runtime",
        "compiled.sources",
        "machine.library",
        "methods.symbolic_map",
        "tape.tape",
        "tape.traced_dynamics",
    )
)
FACE = "trajopt/__init__.py"  # re-exports the public names, including those of dynamics_backends
RIGID_BODY_MUST_NOT_IMPORT = tuple(f"dynamics_backends.{module}" for module in ("systems", "methods", "registry"))
PLOTTING_PACKAGES = ("matplotlib", "mpl_toolkits", "pylab")
MAY_LOAD_CASADI = (
    *(f"dynamics_backends/methods/{name}.py" for name in ("casadi_ad", "symbolic_map")),
    "dynamics_backends/trace.py",
    "dynamics_backends/compiled/emit/directions.py",
    "dynamics_backends/compiled/loops/unrolled.py",
    *(f"dynamics_backends/compiled/sources/{name}_source.py" for name in ("traced", "manifold")),
    "trajopt/stage/source/term_source.py",
)
FILES = sorted(path.relative_to(ROOT).as_posix() for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


class Import(NamedTuple):
    """One imported name, absolute ("a.b.c" for `from a.b import c`), its line, whether loading runs it."""

    name: str
    line: int
    at_load: bool


def imports(source: str, path: PurePosixPath) -> Iterator[Import]:
    """Yield the imports of the module at `path` (relative to the root of the repository)."""
    package = path.parent.parts

    def visit(node: ast.AST, at_load: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, at_load)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            for alias in node.names:
                yield Import(".".join((*above, *filter(None, (node.module, alias.name)))), node.lineno, at_load)
        elif isinstance(node, ast.Call) and _is_dynamic_import(node):
            yield Import(node.args[0].value, node.lineno, at_load)  # type: ignore[attr-defined]
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            at_load = False
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for statement in node.body:
                yield from visit(statement, False)
            for statement in node.orelse:
                yield from visit(statement, at_load)
            return
        for child in ast.iter_child_nodes(node):
            yield from visit(child, at_load)

    yield from visit(ast.parse(source), True)


def _is_dynamic_import(call: ast.Call) -> bool:
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    literal = bool(call.args) and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str)
    return function in ("import_module", "__import__") and literal


def inside(name: str, modules: tuple[str, ...]) -> bool:
    """True if the dotted name is one of the modules, or lies in one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def violations(source: str, file: str) -> list[str]:
    """Return one message for each import in the source of `file` (from the root) that breaks a rule."""
    path = PurePosixPath(file)
    layer = path.parts[0]
    messages = []

    def report(found: Import, rule: str) -> None:
        messages.append(f"{file}:{found.line}: imports {found.name}, but {rule}")

    for found in imports(source, path):
        above = LAYERS[LAYERS.index(layer) + 1 :]
        if inside(found.name, above):
            report(found, f"{layer} lies below {found.name.split('.')[0]}: {' <- '.join(LAYERS)}")
        below = layer == "trajopt" and file != FACE and inside(found.name, LAYERS[:1])
        if below and not inside(found.name, TRAJOPT_MAY_IMPORT):
            report(found, f"trajopt uses of dynamics_backends only {', '.join(TRAJOPT_MAY_IMPORT)}")
        if path.parts[:2] == ("dynamics_backends", "rigid_body") and inside(found.name, RIGID_BODY_MUST_NOT_IMPORT):
            report(found, "rigid_body knows no systems, derivative methods or registry")
        if inside(found.name, PLOTTING_PACKAGES) and path.parts[:2] != ("experiments", "plots"):
            report(found, "only experiments/plots draws")
        lazy_casadi = layer in ("dynamics_backends", "trajopt") and file not in MAY_LOAD_CASADI
        if lazy_casadi and found.at_load and inside(found.name, ("casadi",)):
            report(found, "casadi is slow to load: import it inside the function that needs it")
    return messages


def module_of(file: str) -> str:
    """The dotted name of a file, of a package for its __init__.py."""
    return ".".join(PurePosixPath(file).with_suffix("").parts).removesuffix(".__init__")


def arrows(sources: Mapping[str, str]) -> set[tuple[str, str]]:
    """Return the import graph of modules given as file -> source; imports of a package's __init__ from within are ignored."""
    modules = {module_of(file): file for file in sources}

    def target(name: str) -> str | None:
        return next((place for place in (name, name.rpartition(".")[0]) if place in modules), None)

    found = set()
    for module, file in modules.items():
        for imported in imports(sources[file], PurePosixPath(file)):
            to = target(imported.name)
            if to and to != module and not to.startswith(f"{module}."):
                found.add((module, to))
    return found


def circles(sources: Mapping[str, str]) -> list[str]:
    """Return one message per folder whose modules and subfolders import each other in a cycle."""
    beside: dict[str, dict[str, set[str]]] = {}
    for pair in arrows(sources):
        parts = [name.split(".") for name in pair]
        depth = next(i for i, (a, b) in enumerate(zip_longest(*parts)) if a != b)
        if depth < min(map(len, parts)):
            a, b = (part[depth] for part in parts)
            beside.setdefault(".".join(parts[0][:depth]), {}).setdefault(a, set()).add(b)
    messages = []
    for folder, graph in sorted(beside.items()):
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            messages.append(f"in {folder or 'the root'}: {' <- '.join(error.args[1])}")
    return messages


def test_no_circle_between_folders_or_modules() -> None:
    assert circles({file: (ROOT / file).read_text(encoding="utf-8") for file in FILES}) == []


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ({"a/x.py": "import a.y", "a/y.py": "from a import x"}, 1),
        ({"a/b/x.py": "from a.c import y", "a/c/y.py": "", "a/c/z.py": "import a.b.x"}, 1),
        ({"a/b/x.py": "from a.c.y import f", "a/c/y.py": "", "a/d.py": "import a.b.x"}, 0),
        ({"a/__init__.py": "from a.x import f", "a/x.py": ""}, 0),
    ],
)
def test_the_search_for_circles_finds(sources: dict[str, str], expected: int) -> None:
    assert len(circles(sources)) == expected


def test_every_layer_has_modules() -> None:
    assert {file.split("/")[0] for file in FILES} == set(LAYERS)


@pytest.mark.parametrize("file", FILES)
def test_imports_point_one_way(file: str) -> None:
    found = violations((ROOT / file).read_text(encoding="utf-8"), file)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("file", "source", "message"),
    [
        ("dynamics_backends/scalars/dual.py", "import trajopt", "lies below trajopt"),
        ("dynamics_backends/scalars/dual.py", "from ... import trajopt", "lies below trajopt"),
        ("dynamics_backends/methods/base.py", "from ...trajopt.ocp import OCP", "lies below trajopt"),
        ("dynamics_backends/scalars/dual.py", "def f():\n    import problems.arm as a", ":2: imports problems.arm"),
        ("trajopt/problem/ocp.py", "from experiments import cli", "lies below experiments"),
        ("trajopt/problem/ocp.py", "import importlib\nimportlib.import_module('problems')", "lies below problems"),
        ("problems/arm.py", "if TYPE_CHECKING:\n    import experiments.cli.main", "lies below experiments"),
        ("trajopt/problem/ocp.py", "import dynamics_backends", "trajopt uses"),
        (
            "trajopt/problem/ocp.py",
            "from dynamics_backends.rigid_body.algorithms import aba",
            "imports dynamics_backends.rigid_body.algorithms.aba",
        ),
        ("trajopt/problem/ocp.py", "from dynamics_backends.systems.bodies.free_body import FreeBody", "trajopt uses"),
        ("trajopt/problem/ocp.py", "from dynamics_backends.methods.exact_methods import ForwardAD", "trajopt uses"),
        ("trajopt/problem/ocp.py", "from dynamics_backends.tape.encode import encode", "trajopt uses"),
        ("trajopt/problem/__init__.py", "from dynamics_backends.systems.bodies.free_body import F", "trajopt uses"),
        ("trajopt/__init__.py", "from problems.robots import load_robot", "lies below problems"),
        ("dynamics_backends/rigid_body/algorithms/aba.py", "from ...systems import free_body", "rigid_body knows no"),
        ("dynamics_backends/rigid_body/algorithms/aba.py", "from ... import registry", "rigid_body knows no"),
        ("trajopt/results/report.py", "def f():\n    from matplotlib import pyplot", "only experiments/plots"),
        ("trajopt/plotting.py", "import matplotlib", "only experiments/plots"),
        ("dynamics_backends/scalar.py", "import numpy, casadi", "casadi is slow"),
        (
            "trajopt/problem/ocp.py",
            "try:\n    from casadi import SX\nexcept ImportError:\n    SX = None",
            "casadi is slow",
        ),
    ],
)
def test_the_checker_finds(file: str, source: str, message: str) -> None:
    found = violations(source, file)
    assert len(found) == 1
    assert message in found[0]


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("trajopt/problem/ocp.py", "from dynamics_backends import protocol"),
        ("trajopt/lq/x.py", "from dynamics_backends.compiled.runtime.memory import bound"),
        ("trajopt/__init__.py", "from dynamics_backends.systems.bodies.free_body import FreeBody as FreeBody"),
        ("trajopt/problem/ocp.py", "from dynamics_backends.rigid_body.model.model import Model"),
        ("trajopt/ddp/sweep.py", "from ..lq import solve\nfrom . import step"),
        ("trajopt/problem/terms.py", "def f():\n    import casadi"),
        ("trajopt/problem/terms.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import casadi"),
        ("dynamics_backends/trace.py", "import casadi"),
        ("dynamics_backends/systems/bodies/free_body.py", "from ..rigid_body import aba"),
        ("dynamics_backends/scalars/dual.py", "import trajopt_of_another_name"),
        ("experiments/plots/plotting.py", "import matplotlib.pyplot as plt"),
        ("experiments/cli/main.py", "import problems, trajopt, dynamics_backends.systems"),
    ],
)
def test_the_checker_accepts(file: str, source: str) -> None:
    assert violations(source, file) == []
