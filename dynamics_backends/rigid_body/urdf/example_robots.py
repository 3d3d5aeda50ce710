"""Location of the robots and meshes of the package example-robot-data."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

ERD_PACKAGE = "example-robot-data"


@cache
def example_robots_folder() -> Path | None:
    """Return share/example-robot-data/robots of a wheel, or of the prefix (conda), or None; cached for the process."""
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
