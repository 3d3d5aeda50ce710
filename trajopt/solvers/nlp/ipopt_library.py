"""The module cyipopt, without its interface to SciPy's optimizers.

cyipopt imports that interface, and with it all of scipy.optimize, which takes longer than many solves do. Here an empty module
stands in its place while cyipopt is imported; what of it anybody asks for later is imported then.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

PACKAGE, INTERFACE = "cyipopt", "cyipopt.scipy_interface"


def ipopt_library() -> Any:
    """The module cyipopt. Raises ImportError where it is not installed."""
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
    """Attribute of cyipopt's SciPy interface, imported at first use. Raises AttributeError."""
    if name.startswith("__"):
        raise AttributeError(name)
    found = getattr(importlib.import_module(INTERFACE), name, None)
    if found is None:
        raise AttributeError(f"module {PACKAGE!r} has no attribute {name!r}")
    return found
