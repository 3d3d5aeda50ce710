"""An instance of the first-try benchmark: a problem, its first guess, and the group it counts in."""

from collections.abc import Callable
from dataclasses import dataclass

import trajopt as to


@dataclass(frozen=True)
class Instance:
    """A problem and the guess that a user would start from.

    name     "acrobot 3"
    group    "optimum", "minimum time" or "complementarity"
    family   the problem's class, a row of the table ("cart-pole with friction")
    build    returns the problem and the guess; called in the process that solves
    """

    name: str
    group: str
    family: str
    build: Callable[[], tuple[to.OCP, to.Guess]]
