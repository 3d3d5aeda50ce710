"""C functions of a state manifold on blocks of lanes, from the generic code of :mod:`dynamics_backends.manifold`.

    manifold_integrate(x, d, y)      y = x (+) d                manifold_difference(x0, x1, d)     d = x1 (-) x0

If a factor is not a vector space, also the matrices of its derivatives, block after block (LIE_ROOM vectors in all):

    manifold_transport(d, M)         d (x (+) d) / d x          manifold_dexp(d, M)                d (x (+) d) / d d
    manifold_dexp_inv(d, M)          its inverse                manifold_d_dexp_inv(d, k, M)       d (dexp^-1(d) k) / d d

The tables lie_at, lie_size, lie_offset are the positions and sizes of the LIE_GROUPS blocks in the tangent vector and in M.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynamics_backends import scalar as sm
from dynamics_backends.compiled.emit.emit import Argument, chunked_function, step_function
from dynamics_backends.compiled.emit.trace import trace_expressions
from dynamics_backends.manifold import LieGroup, Manifold
from dynamics_backends.symbols import ca

LONG = 2_000
"""Number of operations above which a function is written in pieces."""
_MATRICES = {"transport": ("d",), "dexp": ("d",), "dexp_inv": ("d",), "d_dexp_inv": ("d", "k")}
_SECOND = {  # arguments and results
    "integrate_bend": (("d", "l"), ("ye", "ee")),
    "dexp_inv_bend": (("d", "k", "l"), ("dk", "dd")),
    "difference_bend": (("d", "l"), ("M",)),
}


def manifold_source(manifold: Manifold) -> str:
    """C source of a manifold; it defines LIE if the manifold is not a vector space."""
    curved = list(dict.fromkeys(g for g in manifold.groups if g.to_se3 is not None))
    functions = [text for g in curved for text in group_source(g)]
    body = [
        _along_groups(manifold, "integrate", ("x", "d"), "y"),
        _along_groups(manifold, "difference", ("x", "y"), "d"),
    ]
    if not curved:
        return "\n".join(body)
    return "\n".join(
        ["#define LIE", _tables(manifold), *functions, *body, *(_blocks(manifold, *w) for w in _MATRICES.items())]
    )


def curvature_source(manifold: Manifold) -> str:
    """C source of second derivatives contracted with l, which must follow :func:`manifold_source`; '' for a vector space.

    The blocks are those of :mod:`dynamics_backends.manifold_curvature`:

        manifold_integrate_bend(d, l, ye, ee)       manifold_dexp_inv_bend(d, k, l, dk, dd)       manifold_difference_bend(d, l, M)
    """
    curved = list(dict.fromkeys(g for g in manifold.groups if g.to_se3 is not None))
    if not curved:
        return ""
    return "\n".join(
        [*(text for g in curved for text in _bends(g)), *(_blocks(manifold, n, *io) for n, io in _SECOND.items())]
    )


def _tag(group: LieGroup) -> str:
    return group.name.lower().replace("(", "").replace(")", "")


def group_source(group: LieGroup) -> list[str]:
    """C functions of one group: integrate and difference, and its matrices by rows."""
    q, q1, d, k = (
        ca.SX.sym(name, n) for name, n in (("q", group.nq), ("q1", group.nq), ("d", group.nv), ("k", group.nv))
    )
    texts = {
        "integrate": ((q, d), ca.vertcat(*group.integrate(sm.rows_of(q), sm.rows_of(d)))),
        "difference": ((q, q1), ca.vertcat(*group.difference(sm.rows_of(q), sm.rows_of(q1)))),
        **{name: ((d,), _by_rows(_matrix(group, name, d))) for name in ("transport", "dexp", "dexp_inv")},
        "d_dexp_inv": ((d, k), _by_rows(ca.jacobian(ca.mtimes(_matrix(group, "dexp_inv", d), k), d))),
    }
    return [_group_function(group, name, inputs, [value]) for name, (inputs, value) in texts.items()]


def _bends(group: LieGroup) -> list[str]:
    """C functions of the second derivatives of a group's integrate and difference, by rows."""
    d, k, lam = (ca.SX.sym(name, group.nv) for name in ("d", "k", "l"))
    T, E, inverse = (_matrix(group, name, d) for name in ("transport", "dexp", "dexp_inv"))

    def slope(M: Any) -> Any:
        return ca.jacobian(ca.mtimes(M.T, lam), d).T

    at_zero = ca.substitute(slope(E), d, ca.SX.zeros(group.nv))
    along = slope(inverse)
    bend = ca.hessian(ca.dot(lam, ca.mtimes(inverse, k)), d)[0]
    texts = {
        "integrate_bend": ((d, lam), [-ca.mtimes([T.T, at_zero, E]), _symmetric(slope(E))]),
        "dexp_inv_bend": ((d, k, lam), [along, bend]),
        "difference_bend": ((d, lam), [_symmetric(ca.mtimes(inverse.T, along))]),
    }
    return [
        _group_function(group, name, inputs, [_by_rows(M) for M in values]) for name, (inputs, values) in texts.items()
    ]


def _matrix(group: LieGroup, name: str, d: Any) -> Any:
    unit = ca.SX.eye(group.nv)
    columns = [ca.vertcat(*getattr(group, name)(sm.rows_of(d), sm.rows_of(unit[:, j]))) for j in range(group.nv)]
    return ca.horzcat(*columns)


def _symmetric(M: Any) -> Any:
    return 0.5 * (M + M.T)


def _by_rows(M: Any) -> Any:
    return ca.vec(ca.densify(M).T)


def _group_function(group: LieGroup, name: str, inputs: Sequence[Any], values: Sequence[Any]) -> str:
    """C function of a group; a long one is cut into pieces for separate units, since one function compiles several times slower."""
    function, traced = f"{_tag(group)}_{name}", trace_expressions(inputs, values)
    arguments = [Argument(f"a{i}", s.numel()) for i, s in enumerate(inputs)]
    results = [f"r{i}" for i in range(len(values))]
    if len(traced.operations) <= LONG:
        return step_function(function, traced, arguments, results)
    pieces, room = chunked_function(f"{function}_code", traced, arguments, results)
    head = ", ".join([*(f"const V* {a.name}" for a in arguments), *(f"V* {r}" for r in results)])
    call = f"{function}_code({', '.join([*(a.name for a in arguments), *results, 'w'])});"
    return f"{pieces}\n{_function(function, head, [f'V w[{room + 1}];', call])}"


def _along_groups(manifold: Manifold, name: str, inputs: tuple[str, str], output: str) -> str:
    """C function integrate or difference, group by group; vector spaces are written inline."""
    sign = "+" if name == "integrate" else "-"
    first, second = ("x", "d") if name == "integrate" else ("y", "x")
    lines = []
    for g, iq, iv in manifold._blocks():
        at = {"x": iq.start, "y": iq.start, "d": iv.start}
        if g.to_se3 is not None:
            arguments = ", ".join(f"{a} + {at[a]}" for a in (*inputs, output))
            lines.append(f"{_tag(g)}_{name}({arguments});")
            continue
        terms = (f"{output}[{at[output]} + i]", f"{first}[{at[first]} + i]", f"{second}[{at[second]} + i]")
        lines.append(f"for (int i = 0; i < {g.nv}; i++) {terms[0]} = {terms[1]} {sign} {terms[2]};")
    arguments = ", ".join([*(f"const V* {a}" for a in inputs), f"V* {output}"])
    return _function(f"manifold_{name}", arguments, lines)


def _blocks(manifold: Manifold, name: str, inputs: Sequence[str], outputs: Sequence[str] = ("M",)) -> str:
    """C function that computes the matrices of every group that is not a vector space."""
    lines, offset = [], 0
    for g, _, iv in manifold._blocks():
        if g.to_se3 is not None:
            pointers = [f"{a} + {iv.start}" for a in inputs] + [f"{o} + {offset}" for o in outputs]
            lines.append(f"{_tag(g)}_{name}({', '.join(pointers)});")
            offset += g.nv * g.nv
    return _function(
        f"manifold_{name}", ", ".join([*(f"const V* {a}" for a in inputs), *(f"V* {o}" for o in outputs)]), lines
    )


def _function(name: str, arguments: str, lines: list[str]) -> str:
    return "\n".join([f"static inline void {name}({arguments})", "{", *lines, "}"])


def _tables(manifold: Manifold) -> str:
    blocks = [(iv.start, g.nv) for g, _, iv in manifold._blocks() if g.to_se3 is not None]
    offsets = [sum(n * n for _, n in blocks[:i]) for i in range(len(blocks) + 1)]
    head = f"enum {{ LIE_GROUPS = {len(blocks)}, LIE_ROOM = {offsets[-1]} }};"
    tables = {"at": [at for at, _ in blocks], "size": [n for _, n in blocks], "offset": offsets[:-1]}
    return "\n".join(
        [head, *(f"static const int lie_{k}[] = {{ {', '.join(map(str, v))} }};" for k, v in tables.items())]
    )
