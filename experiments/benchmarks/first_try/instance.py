"""Type of the instances of the first-try benchmark."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import trajopt as to


@dataclass(frozen=True)
class Instance:
    """A problem and a typical initial guess.

    name     "acrobot 3"
    group    "optimum", "minimum time", "complementarity" or "units"
    family   class of the problem, a row of the table ("cart-pole with friction")
    build    function that returns problem and guess; called in the solving process
    data     function that returns the problem as data of crocoddyl_side.py; None if Crocoddyl cannot state it
    """

    name: str
    group: str
    family: str
    build: Callable[[], tuple[to.OCP, to.Guess]]
    data: Callable[[], dict[str, Any]] | None = None
