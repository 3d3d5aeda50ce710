"""The memory of an iteration in one call: the structs of kernels/iterate.h, and where the arrays of a solve stand.

All arrays of a solve stand in one piece of memory, taken from a shelf and put back.
"""

from __future__ import annotations

import ctypes
import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dynamics_backends.compiled.interface.libraries import struct_of
from dynamics_backends.protocol import Array

NONE, SLOTS = -1, 3
_LINE = 8
"""Doubles in a line of the cache, where arrays begin."""
_LATER = tuple(f"{slot}.{name}" for slot in range(1, SLOTS) for name in ("A", "B", "Q", "q", "S", "R", "r"))
"""Blocks that are the first slot's where the slots share them."""

PhaseData = struct_of("phase_t", "first:l last:l read:l expand roll stages room")
FinalData = struct_of("final_t", "expand values end room")
SweepsData = struct_of("sweeps_t", "n:l m:l riccati adjoint stationarity finite rollout")
OptionsData = struct_of(
    "options_t",
    "gradient_tolerance:d defect_tolerance:d cost_tolerance:d accept_ratio:d factor:d smallest:d largest:d on_state:l "
    "max_backtracks:l",
)
_Slot = struct_of("iterate_t", "xs us x_next costs lambda g A B d Q q S R r cost:d gradient:d defect:d gap:d stop:d")
_Policy = struct_of("lq_policy", "K k Vx Vxx")
_Step = struct_of("lq_step", "dx du")
GlobalizationData = struct_of("globalization_t", "penalty:d mu:d delta:d drift_gap:d idle:l drift:l")


class _Bounded(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("R", "q", "r", "zero", "lower", "upper", "k", "lambda", "g")),
        ("about", _Policy),
        ("move", _Step),
        ("state", 37 * ctypes.c_long),
    ]


_NUMBERS = "cost expected alpha kkt kkt_new change"


class _Record(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_double) for name in _NUMBERS.split()),
        ("seconds", 3 * ctypes.c_double),
        ("failed_at", ctypes.c_long),
    ]


_Direction = struct_of(
    "lq_direction",
    "on_state:d on_control:d closed:l found:l d lambda g costs K k dx du held_lambda held_g under "
    "change:d slope:d defect:d kkt:d kkt_under:d",
)


class _Ahead(ctypes.Structure):
    _fields_ = [
        *(("look", ctypes.c_void_p), ("to", _Direction), ("of", ctypes.c_void_p)),
        *(("mu", ctypes.c_double), ("nearly", ctypes.c_double)),
    ]


class SolveData(ctypes.Structure):
    """shooting_t of iterate.h."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("N", "nx", "count", "nonlinear", "nodes", "abreast", "shared", "holder")),
        ("phases", ctypes.c_void_p),
        ("end", FinalData),
        ("sweeps", SweepsData),
        ("options", OptionsData),
        *((name, ctypes.c_void_p) for name in ("node", "lower", "upper", "alphas")),
        ("slots", SLOTS * _Slot),
        ("policy", _Policy),
        ("step", _Step),
        ("current", _Step),
        ("extra", _Step),
        *((name, ctypes.c_void_p) for name in ("lower_du", "upper_du", "masked", "size")),
        ("bounded", _Bounded),
        *((name, ctypes.c_void_p) for name in ("X", "U", "D", "cost", "part_cost", "start", "stop", "trial")),
        ("state", GlobalizationData),
        *((name, ctypes.c_long) for name in ("at", "fresh", "best")),
        ("record", _Record),
        ("ahead", _Ahead),
    ]


class Sizes(NamedTuple):
    """What arrays depend on: N, nx, n, m, trajectories that are tried at once, whether controls are bounded, and whether iterates
    share the memory of their blocks.
    """

    N: int
    nx: int
    n: int
    m: int
    trials: int
    bounded: bool
    shared: bool


@lru_cache(maxsize=64)
def layout(s: Sizes) -> tuple[dict[str, tuple[int, tuple[int, ...]]], int]:
    """name -> (where an array begins, its shape), and the length of all together, in doubles."""
    N, nx, n, m, L, bounded, shared = s
    slot = {
        "xs": (N + 1, nx), "us": (N, m), "x_next": (N, nx), "costs": (N + 1,), "lambda": (N + 1, n), "g": (N, m),
        "A": (N, n, n), "B": (N, n, m), "d": (N, n), "Q": (N + 1, n, n), "q": (N + 1, n), "S": (N, m, n), "R": (N, m, m),
        "r": (N, m),
    }  # fmt: skip
    policy = {"K": (N, m, n), "k": (N, m), "Vx": (N + 1, n), "Vxx": (N + 1, n, n)}
    step = {"dx": (N + 1, n), "du": (N, m)}
    shapes: dict[str, tuple[int, ...]] = {f"{i}.{k}": shape for i in range(SLOTS) for k, shape in slot.items()}
    shapes |= {f"policy.{k}": shape for k, shape in policy.items()}
    shapes |= {f"{of}.{k}": shape for of in ("step", "current", "extra") for k, shape in step.items()}
    if shared:
        shapes |= {f"ahead.{k}": shape for k, shape in ({"K": policy["K"], "k": policy["k"]} | step).items()}
    shapes |= {"X": (L, N + 1, nx), "U": (L, N, m), "D": (L, N, n), "cost": (L,), "part_cost": (L * N + L,)}
    shapes |= dict.fromkeys(("start", "stop", "trial"), (L * N,))
    shapes |= {"size": (m,), "bounded.k": (N, m), "bounded.lambda": (N + 1, n), "bounded.g": (N, m)}
    if bounded:
        shapes |= dict.fromkeys(("lower_du", "upper_du", "bounded.lower", "bounded.upper", "bounded.r"), (N, m))
        shapes |= {"masked": (N, m, n), "bounded.R": (N, m, m), "bounded.q": (N + 1, n), "bounded.zero": (N, n)}
        shapes |= {f"about.{k}": shape for k, shape in policy.items()} | {f"move.{k}": v for k, v in step.items()}
    places: dict[str, tuple[int, tuple[int, ...]]] = {}
    at = 0
    for name, shape in shapes.items():
        if shared and name in _LATER:
            places[name] = places[f"0{name[1:]}"]
            continue
        places[name] = at, shape
        at += -(-math.prod(shape) // _LINE) * _LINE
    return places, at


@lru_cache(maxsize=64)
def pointers(s: Sizes) -> tuple[Array, Array]:
    """Which fields of shooting_t, in words of eight bytes, point to arrays, and how many bytes these are from the first one."""
    places, _ = layout(s)
    inside = {str(i): (SolveData.slots.offset + i * ctypes.sizeof(_Slot), _Slot) for i in range(SLOTS)}
    inside |= {"policy": (SolveData.policy.offset, _Policy), "bounded": (SolveData.bounded.offset, _Bounded)}
    inside |= {name: (getattr(SolveData, name).offset, _Step) for name in ("step", "current", "extra")}
    inside |= {"ahead": (SolveData.ahead.offset + _Ahead.to.offset, _Direction)}
    inside |= {"about": (SolveData.bounded.offset + _Bounded.about.offset, _Policy)}
    inside |= {"move": (SolveData.bounded.offset + _Bounded.move.offset, _Step), "": (0, SolveData)}
    fields, offsets = [], []
    for name, (at, _) in places.items():
        of, _, field = name.rpartition(".")
        begin, struct = inside[of]
        fields.append((begin + getattr(struct, field).offset) // 8)
        offsets.append(8 * at)
    return np.array(fields), np.array(offsets)
