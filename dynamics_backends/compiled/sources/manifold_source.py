"""C functions of Lie groups on blocks of lanes, from the generic code of :mod:`dynamics_backends.manifold`; factors of manifolds.

The functions are built with the package, one table ``group_t`` a group (templates/lanes/groups.h). Second derivatives are
contracted with l; their blocks are those of :mod:`dynamics_backends.manifold_curvature`. A factor of a manifold is a struct
factor_t (the same header).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from dynamics_backends import scalar as sm
from dynamics_backends.compiled.emit.emit import Argument, chunked_function, step_function
from dynamics_backends.compiled.loops.kernel import prelude, template
from dynamics_backends.compiled.runtime.memory import structs_in
from dynamics_backends.machine import library as machine
from dynamics_backends.manifold import SE2, SE3, SO3, LieGroup, Manifold
from dynamics_backends.manifold_curvature import derivatives, linear_map
from dynamics_backends.symbols import ca
from dynamics_backends.trace import trace_expressions

LONG = 2_000
"""Number of operations above which a function is written in pieces."""
GROUPS = SO3, SE2, SE3
"""Groups in which x (+) d is not a sum."""
_MEMBERS = (
    *("integrate", "difference", "transport", "dexp", "dexp_inv", "d_dexp_inv"),
    *("integrate_hessian", "dexp_inv_hessian", "difference_hessian"),
)
_LOOKUP = """
EXPORT const group_t *group_named(const char *name)
{{
    static const group_t *const all[] = {{ {all} }};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i]->name, name)) return all[i];
    return NULL;
}}
"""


def library_source() -> str:
    """C source of all groups, and of group_named, which returns the table of a group by its name."""
    tables = ", ".join(f"&{group_table(g)}" for g in GROUPS)
    return "\n".join([prelude(), *(groups_source(GROUPS)), _LOOKUP.format(all=tables)])


def groups_source(groups: Iterable[LieGroup]) -> list[str]:
    """C source of groups: their functions and a table group_NAME for each."""
    texts = [template("lanes/groups.h")]
    for g in groups:
        tag = _tag(g)
        members = ", ".join(f"{tag}_{name}" for name in _MEMBERS)
        texts += [
            *group_source(g),
            f'static const group_t {group_table(g)} = {{"{g.name}", {members}}};',
        ]
    return texts


def group_table(group: LieGroup) -> str:
    """Name of the table of a group in C."""
    return f"group_{_tag(group)}"


def _tag(group: LieGroup) -> str:
    """Name of a group in C, such as "se3"."""
    return group.name.lower().replace("(", "").replace(")", "")


def group_source(group: LieGroup) -> list[str]:
    """C functions of one group: integrate, difference, the matrices transport, dexp, dexp_inv, and
    :func:`~dynamics_backends.manifold_curvature.derivatives`; matrices by rows.
    """
    q, q1, d = (ca.SX.sym(name, n) for name, n in (("q", group.nq), ("q1", group.nq), ("d", group.nv)))
    texts = {
        "integrate": ((q, d), [ca.vertcat(*group.integrate(sm.rows_of(q), sm.rows_of(d)))]),
        "difference": ((q, q1), [ca.vertcat(*group.difference(sm.rows_of(q), sm.rows_of(q1)))]),
        **{name: ((d,), [linear_map(group, name, d)]) for name in ("transport", "dexp", "dexp_inv")},
        **derivatives(group),
    }
    return [
        _group_function(group, name, inputs, [_by_rows(M) for M in values]) for name, (inputs, values) in texts.items()
    ]


def _by_rows(M: Any) -> Any:
    """Dense entries of a matrix as one column, row after row."""
    return ca.vec(ca.densify(M).T)


def _group_function(group: LieGroup, name: str, inputs: Sequence[Any], values: Sequence[Any]) -> str:
    """C function GROUP_NAME (inputs..., values...) of CasADi expressions.

    One of more than LONG operations is cut into pieces, to compile faster.
    """
    function, traced = f"{_tag(group)}_{name}", trace_expressions(inputs, values)
    arguments = [Argument(f"a{i}", s.numel()) for i, s in enumerate(inputs)]
    results = [f"r{i}" for i in range(len(values))]
    if len(traced.operations) <= LONG:
        return step_function(function, traced, arguments, results)
    pieces, workspace = chunked_function(f"{function}_code", traced, arguments, results)
    head = ", ".join([*(f"const V* {a.name}" for a in arguments), *(f"V* {r}" for r in results)])
    call = f"{function}_code({', '.join([*(a.name for a in arguments), *results, 'w'])});"
    return f"{pieces}\n{_function(function, head, [f'V w[{workspace + 1}];', call])}"


def _function(name: str, arguments: str, lines: list[str]) -> str:
    """Source of a static inline C function with this body."""
    return "\n".join([f"static inline void {name}({arguments})", "{", *lines, "}"])


(_Data,) = structs_in(template("lanes/groups.h"), "factor_t")


class Factor(NamedTuple):
    """Factor of a manifold: positions in a state (q) and in a tangent vector (v), and its sizes nq and nv there.

    block: position of its matrix (nv x nv) among those of the curved factors, by rows.
    """

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
    """Factors of a manifold; the matrices of curved ones follow each other, those of others have no entries."""
    found, block = [], 0
    for group, q, v in manifold._blocks():
        found.append(Factor(group, q.start, v.start, group.nq, group.nv, block))
        block += group.nv**2 if found[-1].is_curved else 0
    return found


def factor_array(factors: Sequence[Factor]) -> Any:
    """C array of factors, with the groups of the package's library."""
    named = machine.kernels().group_named
    named.argtypes, named.restype = [ctypes.c_char_p], ctypes.c_void_p
    rows = [_Data(named(f.group.name.encode()) if f.is_curved else None, *f[1:]) for f in factors]
    return (_Data * len(rows))(*rows)


def factors_in_c(name: str, factors: Sequence[Factor]) -> str:
    """C source of an array of factors, which follows the groups."""
    rows = [
        f"{{{', '.join(['&' + group_table(f.group) if f.is_curved else 'NULL', *map(str, f[1:])])}}}" for f in factors
    ]
    return f"static const factor_t {name}[] = {{{', '.join(rows) or '{NULL}'}}};"
