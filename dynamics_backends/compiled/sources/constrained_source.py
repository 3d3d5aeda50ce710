"""C source of the derivatives of constrained motion: straight-line code for the robot, loops for the solution in all directions.

Traced as a whole, four contacts of a quadruped take 100,000 operations, two thirds of which multiply sparse matrices with the
columns of dense ones (:mod:`~dynamics_backends.systems.constraints.constrained_derivatives`).  Here the traced part ends with the
right-hand sides and the entries of those matrices; templates/constrained/constrained.h does the rest, with tables of the positions
of entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dynamics_backends.compiled.loops.kernel import template
from dynamics_backends.compiled.loops.loops import LoopKernel
from dynamics_backends.compiled.sources.traced_source import TracedDynamics, by_rows
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.scalar import Scalar
from dynamics_backends.symbols import ca
from dynamics_backends.systems.constraints.constrained_derivatives import (
    ConstrainedDerivatives,
    DerivativeEquations,
    curvature,
)
from dynamics_backends.systems.constraints.constraint_kinds import is_shifted
from dynamics_backends.systems.constraints.holonomic import Holonomic

Entries = Sequence[Mapping[int, Scalar]]
"""Sparse matrix: for each row its entries by column."""
_KERNEL = """
/* The arguments are contiguous: p holds all parameters. */
static void map_derivatives(const int* const* ti, const double* const* td, {head}, V* w)
{{
    (void)ti, (void)td;
    {call}((ctx_t){{.w = w}}, {given});
    velocity_rows({skipped}, {n}, {nu}, x + {at_v}, f, fx, fu);
}}
"""


def forces_given(map: Any, sizes: Mapping[str, int]) -> int:
    """Number of constraint forces that the map's functions return, 0 for none.

    Maps with run-time parameters return none, because cost terms of forces do not support parameters.
    """
    with_forces = isinstance(map, Holonomic) and not sizes and not reports_shifted_forces(map)
    return map.constraints.rows if with_forces else 0


def reports_shifted_forces(map: Holonomic) -> bool:
    """True if a constraint force is reported at another point than the one it is computed at."""
    return any(is_shifted(c) for c in map.constraints.bound)


def value_source(traced: TracedDynamics) -> tuple[str, str]:
    """C source of dynamics_value, with constraint forces if available, and its workspace in vectors as C text."""
    rows = forces_given(traced.map, traced.sizes)
    if not rows:
        return traced.value()
    s = traced.symbols
    motion = traced.attempt(lambda: traced.map.motion(s.x, s.u, s.p))  # type: ignore[attr-defined]
    code, room = traced.function("value_and_forces", {"f": motion.a, "y": ca.vertcat(*motion.forces)}, {})
    return "\n".join([f"#define VALUE_FORCES {rows}", code, template("constrained/constrained_value.h")]), room


def analytic_source(traced: TracedDynamics) -> tuple[str, str]:
    """C source of dynamics_partials by the map's analytic derivatives, and its workspace in vectors as C text."""
    if not isinstance(traced.map, ConstrainedDerivatives):
        return traced.analytic()
    parts = traced.attempt(lambda: unsolved_equations(traced))
    first, forces = _first(traced, parts), ca.vertcat(ca.SX(0, 1), *parts.f)
    sides = {name: first.pop(name) for name in ("top", "bottom")}
    outputs = {**first, "y": ca.densify(forces), **sides, "entries": factor_entries(parts)}
    code, room = traced.function("first_unsolved", outputs, {})
    numbers = sum(outputs[name].numel() for name in ("entries", "top", "bottom"))
    text = [_solution(traced, parts), code, template("constrained/constrained_partials.h")]
    return "\n".join(text), f"{room} + {numbers}"


def contracted_source(traced: TracedDynamics, mode: str = "auto") -> tuple[str, str]:
    """C source of dynamics_contracted, which may follow :func:`analytic_source` of the same map, and its workspace as C text.

    It uses the map's analytic second derivatives, or CasADi's AD in this mode.
    """
    if not isinstance(traced.map, ConstrainedDerivatives):
        return traced.contracted(mode)
    map, n = traced.map, traced.map.model.nv
    lam, phi = ca.SX.sym("lam", map.n_out), ca.SX.sym("phi", forces_given(map, traced.sizes))
    parts = traced.attempt(
        lambda: bent_equations(traced, phi, lam[n:]) if phi.numel() else unsolved_equations(traced, lam)
    )
    slopes, outputs = slopes_of(parts), _first(traced, parts)
    outputs["xx"] = still_curvature(traced, parts)
    outputs |= {"entries": factor_entries(parts), "slopes": entries(slopes)}
    code, room = traced.function("second_unsolved", outputs, {"lam": lam, "phi": phi})
    numbers = sum(outputs[name].numel() for name in ("entries", "slopes", "top", "bottom"))
    texts = [template("constrained/constrained_second.h"), code, template("constrained/constrained_contracted.h")]
    text = [_solution(traced, parts), *tables(slopes), *texts]
    return "\n".join(text), f"{room} + {numbers + n * parts.top[0].shape[0]}"


def derivatives_kernel(traced: TracedDynamics, *, second: bool, source: tuple[str, str] | None = None) -> LoopKernel:
    """Block function of a map's value and first derivatives, and second derivatives if ``second``.

    source: C source of dynamics_partials and its workspace, default :func:`analytic_source`.
    """
    map, n = traced.map, traced.map.manifold.ndx
    text, room = source or (contracted_source(traced) if second else analytic_source(traced))
    names, sizes = traced.symbols.names, [s.numel() for s in traced.symbols]
    outputs = {"f": map.n_out, "fx": map.n_out * n, "fu": map.n_out * map.nu}
    p = next(iter(names[3:]), "x")
    if second:
        outputs |= {"xx": n * n, "ux": map.nu * n, "uu": map.nu**2}
        names, sizes = [*names, "lam"], [*sizes, map.n_out]
    skipped, widths = map.n_out - traced.rows, {"f": 1, "fx": n, "fu": map.nu}
    shifted = [f"{name} + {skipped * widths.get(name, 0)}" for name in outputs]
    results = f"(contraction_t){{{', '.join(shifted)}}}" if second else ", ".join(shifted)
    body = _KERNEL.format(
        head=", ".join([*(f"const V* {name}" for name in names), *(f"V* {name}" for name in outputs)]),
        call="dynamics_contracted" if second else "dynamics_partials",
        given=", ".join(["x", "u", "*t", p, *(["lam"] if second else []), results]),
        skipped=skipped,
        n=n,
        nu=map.nu,
        at_v=map.manifold.nx - n // 2,
    )
    numbers = [str(size) for size in outputs.values()]
    code = "\n".join([template("lanes/context.h"), template("constrained/constrained_kernel.h"), text, body])
    return LoopKernel("map_derivatives", code, names, list(outputs), [str(size) for size in sizes], numbers, room)


def _solution(traced: TracedDynamics, parts: DerivativeEquations) -> str:
    """Text of templates/constrained/constrained.h with its definitions, guarded against a second inclusion."""
    above = f"#define CABOVE {traced.rows - len(parts.top)}"
    return "\n".join(["#ifndef CD", above, *solution_text(parts), "#endif"])


def solution_text(parts: DerivativeEquations) -> list[str]:
    """Text of templates/constrained/constrained.h, preceded by the sizes and tables that it uses."""
    sizes = {"CD": len(parts.top), "CR": len(parts.bottom), "CC": parts.top[0].shape[0]}
    defines = [f"#define {name} {size}" for name, size in sizes.items()]
    return [*defines, *tables(_factor(parts)), template("constrained/constrained.h")]


# -- traced ---------------------------------------------------------------------------------------------------------------


def bent_equations(traced: TracedDynamics, phi: Any, lam: Any) -> DerivativeEquations:
    """Symbolic equations of the derivatives, with second derivatives of lam' a + phi' f, where f are the constraint forces."""
    s, map = traced.symbols, traced.map
    assert isinstance(map, Holonomic)
    return map.derivative_equations(s.x, s.u, s.t, s.p, lam, [phi[i] for i in range(phi.numel())])


def still_curvature(traced: TracedDynamics, parts: DerivativeEquations) -> Any:
    """Second derivatives of g with the solution held constant, by rows."""
    map = traced.map
    assert isinstance(map, ConstrainedDerivatives) and parts.g is not None
    still = [ca.SX.zeros(parts.top[0].shape[0])] * map.model.nv
    return by_rows(curvature(map, traced.symbols.u, parts.g, still).xx)


def unsolved_equations(traced: TracedDynamics, lam: Any = None) -> DerivativeEquations:
    """Symbolic equations of the derivatives; with second derivatives if lam is not None."""
    s, map = traced.symbols, traced.map
    assert isinstance(map, ConstrainedDerivatives)
    return map.derivative_equations(s.x, s.u, s.t, s.p, None if lam is None else lam[map.model.nv :])


def _first(traced: TracedDynamics, parts: DerivativeEquations) -> dict[str, Any]:
    """The map's value, its derivative rows above the solved ones, if needed, and the right-hand sides."""
    s, map, skipped = traced.symbols, traced.map, traced.map.n_out - traced.rows
    assert isinstance(map, ConstrainedDerivatives)
    still = [ca.SX.zeros(parts.top[0].shape[0])] * map.model.nv
    value, *slopes = map.in_output(s.x, s.u, parts.x, still)
    given = [M[skipped : len(still)] for M in slopes]
    fx, fu = (by_rows(M) if M else ca.SX(0, 1) for M in given)
    return {"f": value[skipped:], "fx": fx, "fu": fu, "top": by_rows(parts.top), "bottom": by_rows(parts.bottom)}


# -- sparse matrices ------------------------------------------------------------------------------------------------------


def _factor(parts: DerivativeEquations) -> dict[str, Entries]:
    """Sparse factors of K, in the order of constrained_factor_t."""
    k = parts.factor
    W = [_nonzero(row) for row in k.W]
    both = {"along": [_scaled(row, -1.0) for row in W], "across": _transposed(W, len(k.mass.L))}
    return {**_triangular("", k.mass), **both, **_triangular("force_", k.delassus)}


def factor_entries(parts: DerivativeEquations) -> Any:
    """Numbers of constrained_factor_t."""
    k = parts.factor
    return ca.vertcat(entries(_factor(parts)), *k.mass.D_inverse, *k.delassus.D_inverse)


def _triangular(prefix: str, f: ltl.Factor) -> dict[str, Entries]:
    """Strictly triangular parts -L' and -L."""
    L = [_scaled(row, -1.0) for row in f.L]
    return {f"{prefix}up": _transposed(L, len(L)), f"{prefix}down": L}


def slopes_of(parts: DerivativeEquations) -> dict[str, Entries]:
    """Derivative g_qy by its columns (x, -f), in the order of constrained_slopes_t."""
    assert parts.g is not None
    qa, q_force = ([_nonzero(dict(enumerate(row))) for row in M] for M in (parts.g.qa, parts.g.q_force))
    return {"qa": qa, "qf": [_scaled(row, -1.0) for row in q_force]}


def _nonzero(row: Mapping[int, Scalar]) -> dict[int, Scalar]:
    return {j: x for j, x in sorted(row.items()) if not ca.SX(x).is_zero()}


def _scaled(row: Mapping[int, Scalar], by: float) -> dict[int, Scalar]:
    return {j: by * x for j, x in _nonzero(row).items()}


def _transposed(M: Entries, columns: int) -> list[dict[int, Scalar]]:
    return [{i: row[j] for i, row in enumerate(M) if j in row} for j in range(columns)]


def entries(matrices: Mapping[str, Entries]) -> Any:
    """Entries of all matrices, concatenated; an empty matrix contributes one zero."""
    return ca.vertcat(*[x for M in matrices.values() for x in [x for row in M for x in row.values()] or [0.0]])


def tables(matrices: Mapping[str, Entries]) -> list[str]:
    """C tables of the positions of entries, and their number."""
    lines = []
    for name, M in matrices.items():
        at, start = [j for row in M for j in row], [0]
        for row in M:
            start.append(start[-1] + len(row))
        lines.append(f"#define C{name.upper()}_SIZE {max(len(at), 1)}")
        lines += [
            f"static const int c{name}_{what}[] = {{{', '.join(map(str, x))}}};"
            for what, x in (("start", start), ("at", at or [0]))
        ]
    return lines
