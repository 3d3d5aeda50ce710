"""Kernels that serve many robots, to be built once, with the installation: sweeps by their sizes, iterations, loops of dynamics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from dynamics_backends.compiled.interface.libraries import load, loop_builds
from dynamics_backends.compiled.interface.sources import step_builds
from trajopt.lq import compiled_lq
from trajopt.solvers.window import interior_slot, newton_slot, shooting_slot

ARMS = range(2, 8)
"""Joints of arms, each driven."""
SIZES = ((4, 1), *((2 * n, n) for n in ARMS), (36, 12))
"""States and controls: a cart-pole, arms, quadrupeds."""


def steps() -> Iterator[Callable[[], object]]:
    """What there is to build, in parts that may be done side by side; each raises CompilerError."""
    yield from loop_builds()
    yield from step_builds()
    yield partial(load, shooting_slot.source())
    yield partial(load, newton_slot.source())
    for sizes in SIZES:
        for source in (compiled_lq.source, interior_slot.source):
            yield partial(load, source(*sizes))
