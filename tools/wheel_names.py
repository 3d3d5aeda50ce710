"""Names of packages in a wheel, which puts no generic names such as `problems` into a user's environment.

A checkout and an editable install import the folders under their own names. So modules of these packages import each other
relatively, and `experiments` imports nothing from `problems`, which it reaches through entry points.
"""

from __future__ import annotations

NAMES = {"problems": "trajopt_problems", "experiments": "trajopt_experiments"}
"""Package in the repository -> package in a wheel."""


def wheel_name(dotted: str) -> str:
    """Return the name in a wheel of a package, module or object: "problems.arms" -> "trajopt_problems.arms"."""
    top, dot, rest = dotted.partition(".")
    return NAMES.get(top, top) + dot + rest
