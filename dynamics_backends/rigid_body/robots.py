"""Robots by name or file: bundled robots, robots of the package example-robot-data (prefix "erd:"), URDF and MJCF files.

"erd:NAME" takes a short name (ur5, panda, talos, ...), the name of a URDF file without its suffix, or its
path below the package's folder of robots.

The bundled files are in problems/robots beside this package, in an installed wheel in trajopt_problems/robots. The module locates
them by path instead of an import, so that another folder named ``problems`` on Python's path cannot hide them.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import dynamics_backends
from dynamics_backends.names import unknown_name
from dynamics_backends.rigid_body.mjcf.loader import load_mjcf, mjcf_postures
from dynamics_backends.rigid_body.mjcf.source import MJCFWarning, is_mjcf
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.urdf.loader import URDFWarning, load_urdf
from dynamics_backends.rigid_body.urdf.srdf import reference_posture

ERD_PACKAGE = "example-robot-data"


@cache
def example_robots_folder() -> Path | None:
    """Return the folder share/example-robot-data/robots of an installed wheel, or of sys.prefix (conda); None if neither has it.

    Cached for the process.
    """
    from importlib import metadata  # slow to import, and rarely needed

    marker = f"share/{ERD_PACKAGE}/robots"
    with suppress(metadata.PackageNotFoundError):
        package = metadata.distribution(ERD_PACKAGE)
        installed = package.read_text("RECORD") or ""  # metadata.files would take 60 ms
        for line in installed.splitlines():
            if f"{marker}/" in line:
                path = Path(str(package.locate_file(line.partition(f"{marker}/")[0]))) / marker
                return Path(os.path.normpath(path))
    folder = Path(sys.prefix) / marker
    return folder if folder.is_dir() else None


_PACKAGES = Path(dynamics_backends.__path__[0]).resolve().parent
_IN_WHEEL = _PACKAGES / "trajopt_problems" / "robots"
FOLDER = _IN_WHEEL if _IN_WHEEL.is_dir() else _PACKAGES / "problems" / "robots"
ERD_PREFIX = "erd:"
ROBOT_WARNINGS = (URDFWarning, MJCFWarning)
"""Categories of the warnings about robot files."""
FILES = (".urdf", ".xml", ".mjcf", ".xacro", ".sdf")
"""Endings of the paths of robots; reading a .xacro or .sdf file is an error that says what to do."""
_FLOATING = ("hyq",)  # bundled legged robots: they have a floating base by default
_ERD_SHORT = {  # the names in the package's loaders; other names are file names
    "anymal": "anymal_b_simple_description/robots/anymal.urdf",
    "anymal_c": "anymal_c_simple_description/urdf/anymal.urdf",
    "g1": "g1_description/urdf/g1_29dof_rev_1_0.urdf",
    "hyq": "hyq_description/robots/hyq_no_sensors.urdf",
    "talos": "talos_data/robots/talos_reduced.urdf",
    "talos_arm": "talos_data/robots/talos_left_arm.urdf",
    "talos_full": "talos_data/robots/talos_full_v2.urdf",
    "ur3": "ur_description/urdf/ur3_robot.urdf",
    "ur5": "ur_description/urdf/ur5_robot.urdf",
    "ur10": "ur_description/urdf/ur10_robot.urdf",
}


def robot_names() -> tuple[str, ...]:
    """Return the names of the bundled robots, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.urdf")))


def robot_path(name: str) -> Path:
    """Return the URDF file of a bundled robot, or of "erd:NAME".

    Raises UnknownName with the nearest names; ModuleNotFoundError for an "erd:" name if the package is not installed.
    """
    if name.startswith(ERD_PREFIX):
        return _erd_path(name.removeprefix(ERD_PREFIX))
    if name not in robot_names():
        raise unknown_name(
            "bundled robot", name, [*robot_names(), *(ERD_PREFIX + e for e in (*_ERD_SHORT, *erd_names()))]
        )
    return FOLDER / f"{name}.urdf"


def load_robot(name: str | os.PathLike, **options: Any) -> Model:
    """Return the model of a bundled robot, of "erd:NAME", or of the path of a URDF or MJCF file.

    The options are those of `load_urdf`, or of `load_mjcf` for MJCF files, whose first element is <mujoco>. The default of `base`
    is floating for the bundled HyQ, the base in the file for an MJCF, and fixed for all others.

    Raises UnknownName for an unknown name, ModuleNotFoundError for a missing package, FileNotFoundError for a path without a
    file, URDFError or MJCFError for a wrong file, and ValueError for the option package_dirs with an MJCF file.
    """
    if is_path(name):
        path = Path(name).expanduser()
        if not path.is_file():
            kind = "MJCF or URDF" if path.suffix in (".xml", ".mjcf") else "URDF"
            raise FileNotFoundError(f"there is no {kind} file {str(path)!r}")
        if not is_mjcf(path):
            return load_urdf(path, **options)
        if options.pop("package_dirs", ()):
            raise ValueError(
                f"package_dirs is for URDF files; {str(path)!r} is an MJCF, which names the folders of its meshes"
            )
        return load_mjcf(path, **options)
    if name in _FLOATING:
        options.setdefault("base", "floating")
    return load_urdf(robot_path(str(name)), **options)


def is_path(robot: str | os.PathLike) -> bool:
    """True for a PathLike, and a text that ends in one of FILES, or contains "/" without the prefix "erd:"."""
    if not isinstance(robot, str):
        return True
    return robot.endswith(FILES) or ("/" in robot and not robot.startswith(ERD_PREFIX))


def named_posture(model: Model, name: str) -> np.ndarray:
    """The configuration (nq,) of a keyframe of the robot's MJCF, or of a reference posture of the SRDF of its URDF.

    Raises UnknownName for an unknown posture, FileNotFoundError for a model without a source file or SRDF, and the errors of
    reading the file.
    """
    if model.source and is_mjcf(model.source):
        return mjcf_postures(model.source).posture(model, name)
    return reference_posture(model, name)


def erd_names() -> tuple[str, ...]:
    """Return the valid names after "erd:", sorted; none if the package is not installed."""
    return tuple(sorted(_erd_table(_erd_files())))


def _erd_path(name: str) -> Path:
    """File of "erd:NAME". Raises ModuleNotFoundError if the package is not installed, UnknownName for an unknown NAME."""
    files = _erd_files()
    if not files:
        raise ModuleNotFoundError(
            f"{ERD_PREFIX}{name} needs the package {ERD_PACKAGE}: pip install {ERD_PACKAGE}", name=ERD_PACKAGE
        )
    table = _erd_table(files) | files
    if name not in table:
        raise unknown_name(f"robot of {ERD_PACKAGE}", name, list(_erd_table(files)))
    return table[name]


def _erd_table(files: dict[str, Path]) -> dict[str, Path]:
    """Return name -> file, for short names and for file names without suffix that occur in one folder only."""
    stems = [path.stem for path in files.values()]
    table = {path.stem: path for path in files.values() if stems.count(path.stem) == 1}
    return table | {short: files[relative] for short, relative in _ERD_SHORT.items() if relative in files}


def _erd_files() -> dict[str, Path]:
    """Return path below the robots' folder -> file, for all URDFs of the installed package; empty without the package."""
    folder = example_robots_folder()
    return {} if folder is None else _urdfs(folder)


@cache
def _urdfs(folder: Path) -> dict[str, Path]:
    """Return the URDFs of a folder; cached, because an installed package does not change."""
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.urdf"))}
