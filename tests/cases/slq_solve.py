"""``solve`` with SLQ as default solver, for tests of the shooting loop."""

from functools import partial

import trajopt

solve = partial(trajopt.solve, solver="slq")
