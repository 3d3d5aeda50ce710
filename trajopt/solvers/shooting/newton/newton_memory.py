"""The memory of a solve by Newton's loop in C: the structs of kernels/newton_point.h, and where the arrays stand."""

from __future__ import annotations

import ctypes
import itertools
import math
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

import numpy as np

from dynamics_backends.compiled.interface.libraries import struct_of
from dynamics_backends.protocol import Array

MOST_SHARES = 3
"""MOST_SHARES of lq_types.h."""
TRIALS, BLOCKS = 8, 4
"""Step lengths that are tried side by side behind the full one: at most so many, and as few as fill so many blocks of lanes."""
_LINE = 8
"""Doubles in a line of the cache, where arrays begin."""
_POINT = (
    "xs us x_next costs A B d Q q S R r lambda g cost:d gradient:d scaled:d defect:d theta:d kkt:d costate:d plain:l"
)
_FOUND = "K k dx du xs us slope:d delta:d alpha:d theta:d phi:d longest:d share:l"
_PHASE = "first:l last:l read:l expand roll stages room"
TOLD = [
    "cost",
    "merit",
    "stop",
    "gradient",
    "delta",
    "step_norm",
    "defect",
    "expected",
    "actual",
    "alpha",
    "kkt",
    "derivatives",
    "backward",
    "rollout",
]
"""The numbers of a record; the last three are the seconds of its phases."""


def _prefixed(prefix: str, fields: str) -> str:
    return " ".join(f"{prefix}_{field}" for field in fields.split())


def _numbered(prefix: str, count: int, fields: str) -> str:
    return " ".join(_prefixed(f"{prefix}_{i}", fields) for i in range(count))


NewtonPhase = struct_of("newton_phase_t", f"{_prefixed('exact', _PHASE)} {_prefixed('plain', _PHASE)} curve curve_room")
NewtonMember = struct_of(
    "newton_member_t",
    "exact plain curved end plain_end x0 xs us lower upper to_xs to_us to_K to_k result max_iterations:l",
)
NewtonData = struct_of(
    "newton_t",
    " ".join(
        (
            "phases end_expand end_values end_end end_room plain_expand plain_values plain_end plain_room",
            "n:l m:l riccati adjoint stationarity finite rollout N:l nx:l count:l alike:l widest:l trials:l",
            _numbered("point", 2, _POINT),
            _numbered("found", 3, _FOUND),
            "Vx Vxx cQ cS cR oQ oS oR mQ mS mR mr z move bend push pull own_alphas size pairs X U D cost part_cost",
            "start stop_at trial alphas every none",
            "lengths:l most_pairs:l",
            "gradient_tolerance:d defect_tolerance:d kkt_tolerance:d cost_tolerance:d time_limit:d",
            "members total:l next done stop abreast",
            _prefixed("ahead", "delta:d asked:l under bend pull push K_0 K_1 K_2 k_0 k_1 k_2 dx du"),
            _prefixed("ahead", "k_by_0 k_by_1 k_by_2 dx_by du_by finite:l convex:l share:l"),
            _prefixed("ahead", "cost:d defect:d theta:d costate:d gradient:d scaled:d slope:d slope_1:d slope_2:d of"),
            "member at fresh best rival last lower upper own_z mu:d controls:l",
            "began:d scale:d last_delta:d least:d change:d",
            "bounded:l paired:l has_policy:l other_known:l iteration:l restored:l idle:l short_steps:l plain:l",
            *(f"told_{name}:d" for name in TOLD),
            "told_share:l",
        )
    ),
)
"""newton_t: what it is made of stands behind prefixes, the record at the end."""
RESULT = np.dtype(
    [("code", np.int64), ("iterations", np.int64)]
    + [(name, float) for name in ("cost", "gradient", "defect", "kkt", "change", "seconds")]
)
"""newton_result_t."""
SIZES = [*map(ctypes.sizeof, (NewtonData, NewtonPhase)), RESULT.itemsize, ctypes.sizeof(NewtonMember)]
POINT_SIZE = NewtonData.point_1_xs.offset - NewtonData.point_0_xs.offset
NUMBERS = Struct(f"{len(TOLD)}d")
"""The numbers of a record, where that begins."""


GO_ON = -1
"""What an iteration says that does not end its solve: NONE of iterate.h."""


class NewtonSizes(NamedTuple):
    """What arrays depend on: N, nx, n, m, step lengths that are tried, pairs that a filter may keep, whether the problem sits
    beside others: expansions are not kept then; and whether controls may have bounds."""

    N: int
    nx: int
    n: int
    m: int
    lengths: int
    pairs: int
    seated: bool = False
    bounded: bool = False


def trials_abreast(knots: int, lanes: int) -> int:
    """How many step lengths are tried side by side, where each has so many knots: more would often be found in vain."""
    return min(TRIALS, -(-BLOCKS * lanes // max(knots, 1)))


@lru_cache(maxsize=64)
def newton_layout(s: NewtonSizes) -> tuple[dict[str, tuple[int, tuple[int, ...]]], int]:
    """name -> (where an array begins, its shape), and the length of all together, in doubles."""
    N, nx, n, m, lengths, pairs, seated, bounded = s
    trials = 1 if seated else TRIALS
    blocks = {"Q": (N + 1, n, n), "S": (N, m, n), "R": (N, m, m)}
    point = {
        "xs": (N + 1, nx), "us": (N, m), "x_next": (N, nx), "costs": (N + 1,), "A": (N, n, n), "B": (N, n, m), "d": (N, n),
        "q": (N + 1, n), "r": (N, m), "lambda": (N + 1, n), "g": (N, m), **blocks,
    }  # fmt: skip
    taken = {"K": (N, m, n), "k": (N, m), "dx": (N + 1, n), "du": (N, m)}
    step = taken | {"xs": (N + 1, nx), "us": (N, m)}
    shapes: dict[str, tuple[int, ...]] = {}
    if seated:
        point = {"xs": (N + 1, nx), "us": (N, m)}
    for prefix, count, arrays in (("point", 2, point), ("found", 3, step)):
        shapes |= {f"{prefix}_{i}_{name}": shape for i in range(count) for name, shape in arrays.items()}
    if seated:
        shapes |= {f"ahead_{name}": taken[name] for name in ("dx", "du")}
        shapes |= {f"ahead_{name}_{i}": taken[name] for name in ("K", "k") for i in range(MOST_SHARES)}
        if bounded:
            shapes |= {f"ahead_{name}_by": taken[name] for name in ("dx", "du")}
            shapes |= {f"ahead_k_by_{i}": taken["k"] for i in range(MOST_SHARES)}
            shapes |= dict.fromkeys(("bend", "push", "pull"), (N, m))
    else:
        shapes |= {f"{of}{name}": shape for of in "com" for name, shape in blocks.items()}
        shapes |= {
            "Vx": (N + 1, n),
            "Vxx": (N + 1, n, n),
            "mr": (N, m),
            "size": (m,),
        }
    if bounded:
        shapes |= dict.fromkeys(("z", "move"), (2, N, m))
    shapes |= dict.fromkeys(("alphas", "own_alphas"), (lengths,)) | dict.fromkeys(("every", "none"), (N // 8 + 1,))
    shapes |= dict.fromkeys(("part_cost", "start", "stop_at", "trial"), (trials * N + trials,))
    shapes |= {
        "X": (trials, N + 1, nx),
        "U": (trials, N, m),
        "D": (trials, N, n),
        "cost": (trials,),
        "pairs": (pairs, 2),
    }
    sizes = [-(-math.prod(shape) // _LINE) * _LINE for shape in shapes.values()]
    starts = [0, *itertools.accumulate(sizes)]
    return dict(zip(shapes, zip(starts, shapes.values(), strict=False), strict=True)), starts[-1]


@lru_cache(maxsize=64)
def newton_pointers(s: NewtonSizes) -> tuple[Array, Array]:
    """Which words of newton_t point to arrays, and how many bytes these are from the first one."""
    places, _ = newton_layout(s)
    fields = [getattr(NewtonData, name).offset // 8 for name in places]
    return np.array(fields), np.array([8 * at for at, _ in places.values()])
