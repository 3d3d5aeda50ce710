"""C source of robots that touch the ground in long time steps.

Newton's method is a loop (templates/contact/stepped.h) around straight-line code traced from
:mod:`~dynamics_backends.systems.contact.stepped_contact` and :mod:`~dynamics_backends.systems.contact.implicit_step`.  See
:mod:`~dynamics_backends.compiled.sources.dynamics_source` for the functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dynamics_backends.compiled.emit.emit import Argument, chunked_function, constant, step_function
from dynamics_backends.compiled.emit.trace import by_inverses, trace_expressions
from dynamics_backends.compiled.loops.kernel import template
from dynamics_backends.compiled.sources.constrained_source import (
    entries,
    factor_entries,
    slopes_of,
    solution_text,
    tables,
)
from dynamics_backends.compiled.sources.traced_source import TracedDynamics, by_rows
from dynamics_backends.protocol import IMPLICIT_STEP
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.contact.constrained_solve import ConstrainedFactor
from dynamics_backends.rigid_body.spatial.spatial import Mat, Vec, build, leaves
from dynamics_backends.symbols import ca
from dynamics_backends.systems.constraints.constrained_derivatives import DerivativeEquations, curvature
from dynamics_backends.systems.contact import implicit_step
from dynamics_backends.systems.contact.implicit_step import Arrival, ContactProblem
from dynamics_backends.systems.contact.stepped_contact import Linear, SteppedContact

_NUMBERS = "(long)((sizeof(stepped_t) + sizeof(constrained_factor_t)) / sizeof(V) + CD * CC)"
_NUMBERS_SECOND = "(long)(sizeof(constrained_slopes_t) / sizeof(V) + (CD + 3) * CC + SJ + 9 * SC)"
"""Workspace in addition to that of straight-line code, in vectors, and the addition for second derivatives."""


def stepped_source(traced: TracedDynamics) -> tuple[str, str]:
    """C source of dynamics_value and dynamics_partials, and their workspace in vectors as C text."""
    map = traced.map
    assert isinstance(map, SteppedContact)
    parts, rooms = zip(*(part(traced, map) for part in (_parts, _direction, _linear)), strict=True)
    room = f"{_NUMBERS} + {' + '.join(rooms)}"
    text = [*_sizes(traced, map), _law(traced, map), *parts, template("contact/stepped.h")]
    return "\n".join(text), room


def stepped_second_source(traced: TracedDynamics) -> tuple[str, str]:
    """C source of dynamics_contracted, which must follow :func:`stepped_source` of the same map, and its additional workspace."""
    map = traced.map
    assert isinstance(map, SteppedContact)
    s, n = traced.symbols, map.model.nv
    a, lam = ca.SX.sym("a", n), ca.SX.sym("lam", map.n_out)
    start = traced.attempt(lambda: map.start(s.x, s.u, s.p))
    linear = traced.attempt(lambda: map.linear(s.x, s.u, start, a, lam[n:]))
    parts = _unsolved(a, linear)
    assert parts.g is not None
    slopes, still = slopes_of(parts), [ca.SX.zeros(parts.top[0].shape[0])] * n
    outputs = {
        "top": by_rows(parts.top),
        "entries": factor_entries(parts),
        "xx": by_rows(curvature(map, s.u, parts.g, still).xx),
        "slopes": entries(slopes),
        "J": ca.vertcat(*[x for c in start.problem.arrivals for column in c.J.values() for x in leaves(column)]),
        "bend": ca.vertcat(*[x for bend in linear.bends for x in leaves(bend)]),
    }
    code, room = traced.function("stepped_curved", outputs, {"a": a, "lam": lam})
    moving = {"sj": [dict.fromkeys(c.J, 1.0) for c in start.problem.arrivals]}
    text = [
        *tables({**slopes, **moving}),
        template("constrained/constrained_second.h"),
        code,
        template("contact/stepped_second.h"),
    ]
    return "\n".join(text), f"{_NUMBERS_SECOND} + {room}"


def _sizes(traced: TracedDynamics, map: SteppedContact) -> list[str]:
    """Sizes of the robot and constants of Newton's method that the template uses."""
    above, places = ltl.ancestor_lists(map.parents), list(traced.sizes)
    sizes = {
        "SV": map.model.nv,
        "SC": len(map.points),
        "SM": sum(len(a) + 1 for a in above),
        "SJ": sum(3 * len(map.model.ancestors(point.body)) for point in map.points),
        "SSTEP": sum(traced.sizes[name] for name in places[: places.index(IMPLICIT_STEP)]),
        "SSTEPS": implicit_step.STEPS,
        "SENERGY": constant(implicit_step.ACCURACY**2),
        "SFLAT": constant(implicit_step.FLAT),
        "STRIALS": implicit_step.TRIALS,
    }
    return [f"#define {name} {size}" for name, size in sizes.items()]


def _entries(map: SteppedContact) -> list[tuple[int, int]]:
    """Computed entries (row, column) of M."""
    return [(i, j) for i, above in enumerate(ltl.ancestor_lists(map.parents)) for j in (i, *above)]


def _parts(traced: TracedDynamics, map: SteppedContact) -> tuple[str, str]:
    """C function stepped_parts, and its workspace."""
    s = traced.symbols
    m = traced.attempt(lambda: map.start(s.x, s.u, s.p)).problem
    v = s.x[map.model.nq :]
    outputs = {
        "M": [m.M[i][j] for i, j in _entries(map)],
        "drive": m.drive,
        "J": [x for c in m.arrivals for column in c.J.values() for x in leaves(column)],
        "speed": [x for c in m.arrivals for x in leaves(c.velocity)],
        "gap": [c.gap for c in m.arrivals],
        "normal": [x for c in m.arrivals for x in leaves(c.normal)],
        "energy": [implicit_step.energy(m, [v[i] for i in range(map.model.nv)])],
    }
    return traced.function("stepped_parts", {name: ca.vertcat(*x) for name, x in outputs.items()}, {})


def _law(traced: TracedDynamics, map: SteppedContact) -> str:
    """C function stepped_law."""
    gap, normal, w = (ca.SX.sym(name, size) for name, size in (("gap", 1), ("normal", 3), ("w", 3)))
    p = ca.SX.sym("p", sum(traced.sizes.values()))
    force, slope = map.law.slopes(gap, Vec(*_items(normal)), Vec(*_items(w)), _by_name(p, traced.sizes))
    inputs = {"gap": gap, "normal": normal, "w": w, "p": p}
    t = trace_expressions(list(inputs.values()), [ca.vertcat(*leaves(x)) for x in (force, slope.w)])
    arguments = [Argument(name, symbol.numel()) for name, symbol in inputs.items()]
    return step_function("stepped_law", t, arguments, ["force", "slope"], inline=True)


def _direction(traced: TracedDynamics, map: SteppedContact) -> tuple[str, str]:
    """C function stepped_direction, and its workspace."""
    places, paths = _entries(map), [map.model.ancestors(point.body) for point in map.points]
    n, count = map.model.nv, len(paths)
    sizes = {"M": len(places), "drive": n, "J": 3 * sum(len(path) for path in paths), "h": 1, "delta": n}
    sizes |= {"force": 3 * count, "slope": 9 * count}
    s = {name: ca.SX.sym(name, size) for name, size in sizes.items()}
    M: list[dict[int, Any]] = [{} for _ in range(n)]
    for (i, j), entry in zip(places, _items(s["M"]), strict=True):
        M[i][j] = entry
    columns, nothing = iter(_items(s["J"])), Vec(0.0, 0.0, 0.0)
    arrivals = [Arrival({j: build(Vec, columns) for j in path}, 0.0, nothing, nothing) for path in paths]
    m = ContactProblem(M, _items(s["drive"]), arrivals, s["h"], map.parents, map.law, {})
    forces, slopes = iter(_items(s["force"])), iter(_items(s["slope"]))
    step = implicit_step.direction(
        m, _items(s["delta"]), [build(Vec, forces) for _ in paths], [build(Mat, slopes) for _ in paths]
    )
    outputs = {
        "d": step.d,
        "along": [x for along in step.along for x in leaves(along)],
        "sums": [step.decrement, *step.inertial],
    }
    t = by_inverses(trace_expressions(list(s.values()), [ca.vertcat(*x) for x in outputs.values()]))
    arguments = [Argument(name, symbol.numel()) for name, symbol in s.items()]
    code, room = chunked_function("stepped_direction", t, arguments, list(outputs))
    return code, str(room)


def _linear(traced: TracedDynamics, map: SteppedContact) -> tuple[str, str]:
    """C function stepped_linear with the text of the linear solution, and its workspace."""
    s, a = traced.symbols, ca.SX.sym("a", map.model.nv)
    linear = traced.attempt(lambda: map.linear(s.x, s.u, map.start(s.x, s.u, s.p), a))
    parts = _unsolved(a, linear)
    outputs = {"top": by_rows(linear.top), "entries": factor_entries(parts)}
    code, room = traced.function("stepped_linear", outputs, {"a": a})
    return "\n".join([*solution_text(parts), code]), room


def _unsolved(a: Any, linear: Linear) -> DerivativeEquations:
    """Equations in the form of constrained motion without constraints."""
    factor = ConstrainedFactor(linear.factor, [], [], ltl.Factor([], [], []))
    return DerivativeEquations(a, factor, linear.top, [], linear.g, [])


def _items(x: Any) -> list[Any]:
    return [x[i] for i in range(x.numel())]


def _by_name(p: Any, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Parameters by name, from their concatenation."""

    def parts() -> Iterator[tuple[str, Any]]:
        at = 0
        for name, size in sizes.items():
            yield name, p[at : at + size]
            at += size

    return dict(parts())
