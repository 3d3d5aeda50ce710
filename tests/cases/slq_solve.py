"""solve as tests of the shooting loop mean it: by SLQ unless another solver is named."""

from functools import partial

import trajopt

solve = partial(trajopt.solve, solver="slq")
