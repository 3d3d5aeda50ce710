"""Kernels that serve many problems, to be built once, with the installation: sweeps by their sizes, answers of slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from dynamics_backends.compiled.interface.libraries import load
from trajopt.lq import compiled_lq
from trajopt.solvers.window import interior_slot, newton_slot, shooting_slot

ARMS = range(2, 8)
"""Joints of arms, each driven."""
SIZES = ((4, 1), *((2 * n, n) for n in ARMS), (36, 12))
"""States and controls: a cart-pole, arms, quadrupeds."""


def steps() -> Iterator[Callable[[], object]]:
    """What there is to build, in parts that may be done side by side; each raises CompilerError."""
    yield partial(load, shooting_slot.source())
    yield partial(load, newton_slot.source())
    for sizes in SIZES:
        for source in (compiled_lq.source, interior_slot.source):
            yield partial(load, source(*sizes))
