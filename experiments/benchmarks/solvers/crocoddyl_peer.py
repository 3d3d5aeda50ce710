"""Crocoddyl, the other side of a benchmark: its environment, what it tells of a problem, and the options of the command line."""

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


def environment(folder: Path) -> Path:
    """The interpreter of an environment with Crocoddyl, made if there is none. Raises CalledProcessError where it cannot be."""
    python = folder / "bin" / "python"
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["bench-crocoddyl"]
    if not python.exists():
        venv.create(folder, with_pip=True)
    found = subprocess.run([python, "-c", "import crocoddyl"], capture_output=True)
    if found.returncode:
        subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True, stdout=sys.stderr)
    return python


def theirs(python: Path, p: Data, repeats: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What Crocoddyl tells of a problem, and its controls."""
    with tempfile.TemporaryDirectory() as folder:
        arrays = Path(folder) / "found.npz"
        alone = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
        script = Path(__file__).with_name("crocoddyl_side.py")
        done = subprocess.run(
            [python, script, arrays],
            input=json.dumps(p | {"repeats": repeats}),
            check=True,
            capture_output=True,
            text=True,
            env=alone,
        )
        with np.load(arrays) as found:
            return json.loads(done.stdout.splitlines()[-1]), dict(found)


def parser(description: str | None, kind: str, names: Iterable[str]) -> argparse.ArgumentParser:
    """Options of a benchmark beside Crocoddyl: which of the named problems, and where its environment is."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("names", nargs="*", metavar=kind.upper(), help=f"of {', '.join(names)}; default all")
    made.add_argument("--environment", type=Path, default=platformdirs.user_cache_path("trajopt") / "crocoddyl")
    return made


def read(made: argparse.ArgumentParser, kind: str, names: Iterable[str]) -> tuple[argparse.Namespace, Path | None]:
    """The options, with all names where none is given, and Crocoddyl's interpreter, None (told) where it cannot be installed.

    Both sides then run on one thread.
    """
    names = tuple(names)
    arguments = made.parse_args()
    unknown = [name for name in arguments.names if name not in names]
    if unknown:
        made.error(f"no {kind} {unknown[0]!r}; there are: {', '.join(names)}")
    arguments.names = arguments.names or list(names)
    os.environ["TRAJOPT_THREADS"] = "1"
    try:
        return arguments, environment(arguments.environment)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"skipped: Crocoddyl cannot be installed here ({error})")
        return arguments, None
