"""Trajectory optimization for robots: all that a script needs, by one import.

    import trajopt as to

    robot = to.FreeBody(to.load_urdf("my_robot.urdf"))                                # what the dynamics are
    dynamics = to.SampledSystem(to.make_backend(robot, "analytic"), "rk4")            # how they are differentiated
    ocp = to.OCP.single_phase(dynamics, x0, horizon, dt, running, terminal)
    solution = to.solve(ocp, solver="fddp", callback=to.ConsoleTable())

Names stand one by one in the stub beside this file (__init__.pyi), so that editors and type checkers see them. Each is loaded
when it is first asked for: a solve uses a third of them. What is slow to load (SciPy, CasADi, IPOPT) is loaded by the functions
that need it.
"""

from pathlib import Path as _Path
from typing import Any as _Any

from dynamics_backends.deferred import exported as _exported, places as _places
from trajopt.view.view import view as view  # the folder of this name would be found first

__version__ = "0.2.0"
"""The version of the distribution; pyproject.toml reads it from here."""
_PLACES = _places(_Path(__file__).with_suffix(".pyi"))
__all__ = list(_PLACES)


def __getattr__(name: str) -> _Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = _exported(_PLACES[name], name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *_PLACES])
