#!/usr/bin/env python3
"""Write constraints.txt: upper bounds of the dependencies' versions that passed the tests.

Run the script in an environment in which the whole test suite has passed. Dependencies that are not installed there
keep their line.
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
"""Extra whose versions pyproject.toml pins."""


def dependencies() -> list[str]:
    """Return the normalized names of all dependencies of pyproject.toml, sorted."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [group for name, group in project["optional-dependencies"].items() if name != PINNED]
    requirements = [requirement for group in (project["dependencies"], *extras) for requirement in group]
    names = {re.split(r"[\[<>=!~; ]", requirement)[0].lower().replace("_", "-") for requirement in requirements}
    return sorted(names - {project["name"]})


def constraints() -> str:
    """Return the text of constraints.txt."""
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
    print(f"{FILE.relative_to(ROOT)}: versions installed in {sys.prefix}")
