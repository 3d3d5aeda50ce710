"""Import of cyipopt without its SciPy interface.

That interface imports scipy.optimize, which takes longer than many solves. An empty module replaces it during the import of
cyipopt; its attributes are imported at first use.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

PACKAGE, INTERFACE = "cyipopt", "cyipopt.scipy_interface"


def ipopt_library() -> Any:
    """Import and return the module cyipopt without its SciPy interface, which is imported at the first use of its attributes.

    Raises ImportError if cyipopt is not installed.
    """
    if PACKAGE in sys.modules or INTERFACE in sys.modules:
        return importlib.import_module(PACKAGE)
    sys.modules[INTERFACE] = ModuleType(INTERFACE)
    try:
        library = importlib.import_module(PACKAGE)
    finally:
        del sys.modules[INTERFACE]
    vars(library)["__getattr__"] = _from_interface
    return library


def _from_interface(name: str) -> Any:
    """Return an attribute of cyipopt's SciPy interface, imported at first use.

    Raises AttributeError for unknown or dunder names.
    """
    if name.startswith("__"):
        raise AttributeError(name)
    found = getattr(importlib.import_module(INTERFACE), name, None)
    if found is None:
        raise AttributeError(f"module {PACKAGE!r} has no attribute {name!r}")
    return found
