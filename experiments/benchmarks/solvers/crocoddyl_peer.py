"""Interface to Crocoddyl: its environment, its solves of a problem, and the options of the command line."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

from experiments.benchmarks.solvers.crocoddyl_problems import Data

ROOT = Path(__file__).parents[3]
FOLDER = platformdirs.user_cache_path("trajopt") / "crocoddyl"
"""Default folder of the environment with Crocoddyl."""


def environment(folder: Path) -> Path:
    """Return the Python of an environment with Crocoddyl; install it if missing. Raises CalledProcessError if this fails."""
    python = folder / "bin" / "python"
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"][
        "bench-crocoddyl"
    ]
    if not python.exists():
        venv.create(folder, with_pip=True)
    found = subprocess.run([python, "-c", "import crocoddyl"], capture_output=True)
    if found.returncode:
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True, stdout=sys.stderr)
    return python


def crocoddyl_solve(python: Path, p: Data, repeats: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Solve a problem with Crocoddyl; return its results and arrays."""
    with tempfile.TemporaryDirectory() as folder:
        arrays = Path(folder) / "found.npz"
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
        script = Path(__file__).with_name("crocoddyl_side.py")
        done = subprocess.run(
            [python, script, arrays],
            input=json.dumps(p | {"repeats": repeats}),
            check=True,
            capture_output=True,
            text=True,
            env=variables,
        )
        with np.load(arrays) as found:
            return json.loads(done.stdout.splitlines()[-1]), dict(found)


def parser(description: str | None, kind: str, names: Iterable[str]) -> argparse.ArgumentParser:
    """Create the argument parser of a comparison with Crocoddyl: names of problems, the environment, and the output folder."""
    argument_parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    argument_parser.add_argument(
        "names", nargs="*", metavar=kind.upper(), help=f"out of {', '.join(names)}; default: all"
    )
    argument_parser.add_argument("--environment", type=Path, default=FOLDER)
    argument_parser.add_argument("--out", type=Path, help="folder of table.csv")
    return argument_parser


def read(
    argument_parser: argparse.ArgumentParser, kind: str, names: Iterable[str]
) -> tuple[argparse.Namespace, Path | None]:
    """Return the options (all names by default) and Crocoddyl's Python, or None with a message if it cannot be installed.

    Both libraries then use one thread.
    """
    names = tuple(names)
    arguments = argument_parser.parse_args()
    unknown = [name for name in arguments.names if name not in names]
    if unknown:
        argument_parser.error(f"unknown {kind} {unknown[0]!r}; expected some of {', '.join(names)}")
    arguments.names = arguments.names or list(names)
    os.environ["TRAJOPT_THREADS"] = "1"
    try:
        return arguments, environment(arguments.environment)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"skipped: Crocoddyl cannot be installed here ({error})")
        return arguments, None
