"""Trajectory optimization for robots: the public API in one import.

    import trajopt as to

    robot = to.FreeBody(to.load_urdf("my_robot.urdf"))                                # continuous dynamics
    dynamics = to.SampledSystem(to.make_backend(robot, "analytic"), "rk4")            # derivatives and integrator
    ocp = to.OCP.single_phase(dynamics, x0, horizon, dt, running, terminal)
    solution = to.solve(ocp, solver="fddp", callback=to.ConsoleTable())

The stub __init__.pyi lists all names for editors and type checkers. Each name but ``view`` is imported at its first use, since a
solve uses a third of them. Packages that are slow to import (SciPy, CasADi, IPOPT) are imported by the functions that need them.
"""

from pathlib import Path as _Path
from typing import Any as _Any

from dynamics_backends.deferred import exported as _exported, modules_by_name as _modules_by_name
from trajopt.view.view import view as view  # otherwise the subpackage of this name would shadow the function

__version__ = "0.3.0"
"""Version of the distribution, read by pyproject.toml."""
_PLACES = _modules_by_name(_Path(__file__).with_suffix(".pyi"))
__all__ = list(_PLACES)


def __getattr__(name: str) -> _Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = _exported(_PLACES[name], name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *_PLACES])
