#!/usr/bin/env python3
"""Write constraints.txt: the newest version of each dependency that the tests have passed with, as an upper bound.

Run it in the environment that the whole test suite has just passed in. Dependencies that are not installed there keep their line.
"""

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "constraints.txt"
HEAD = """\
# The newest versions that the tests have passed with, for pip install -c constraints.txt.
# Upper bounds, so that an older Python gets the versions made for it. Written by tools/tested_versions.py.
"""
PINNED = "bench-crocoddyl"
"""The extra whose versions pyproject.toml names exactly."""


def dependencies() -> list[str]:
    """The names of all packages that pyproject.toml asks for, normalized, in alphabetical order."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [of for name, of in project["optional-dependencies"].items() if name != PINNED]
    asked = [requirement for group in (project["dependencies"], *extras) for requirement in group]
    names = {re.split(r"[\[<>=!~; ]", requirement)[0].lower().replace("_", "-") for requirement in asked}
    return sorted(names - {project["name"]})


def constraints() -> str:
    """The text of constraints.txt."""
    known = dict(line.split("<=") for line in FILE.read_text().splitlines() if "<=" in line) if FILE.exists() else {}
    bounds = {name: _installed(name) or known.get(name) for name in dependencies()}
    return HEAD + "".join(f"{name}<={bound}\n" for name, bound in bounds.items() if bound)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    FILE.write_text(constraints(), encoding="utf-8")
    print(f"{FILE.relative_to(ROOT)} says what is installed in {sys.prefix}")
