"""Factors of manifolds in C: struct factor_t (templates/lanes/groups.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

from dynamics_backends.compiled.loops.kernel import template
from dynamics_backends.compiled.runtime.structs import structs_in
from dynamics_backends.compiled.sources.manifold_source import group_table
from dynamics_backends.machine import library as machine
from dynamics_backends.manifold import LieGroup, Manifold

(_Data,) = structs_in(template("lanes/groups.h"), "factor_t")


class Factor(NamedTuple):
    """Factor of a manifold: positions in a state (q) and in a tangent vector (v), its sizes there, and the place of its matrix."""

    group: LieGroup
    q: int
    v: int
    nq: int
    nv: int
    block: int

    @property
    def is_curved(self) -> bool:
        """True for groups in which x (+) d is not a sum."""
        return self.group.to_se3 is not None


def factors_of(manifold: Manifold) -> list[Factor]:
    """Factors of a manifold; the matrices of curved ones follow each other."""
    found, block = [], 0
    for group, q, v in manifold._blocks():
        found.append(Factor(group, q.start, v.start, group.nq, group.nv, block))
        block += group.nv**2 if found[-1].is_curved else 0
    return found


def factor_array(factors: Sequence[Factor], lanes: int | None) -> Any:
    """C array of factors, with the groups of the package's library for this number of SIMD lanes."""
    named = machine.kernels(lanes).group_named
    named.argtypes, named.restype = [ctypes.c_char_p], ctypes.c_void_p
    rows = [_Data(named(f.group.name.encode()) if f.is_curved else None, *f[1:]) for f in factors]
    return (_Data * len(rows))(*rows)


def factors_in_c(name: str, factors: Sequence[Factor]) -> str:
    """C source of an array of factors, which follows the groups."""
    rows = [
        f"{{{', '.join(['&' + group_table(f.group) if f.is_curved else 'NULL', *map(str, f[1:])])}}}" for f in factors
    ]
    return f"static const factor_t {name}[] = {{{', '.join(rows) or '{NULL}'}}};"
