"""CasADi function of robots that touch the ground in long time steps: CasADi's virtual machine runs Newton's iterations.

An expression cannot contain an iteration, but its parts are expressions. CasADi functions can call each other conditionally, which
skips the steps after convergence. NumPy version: :func:`~dynamics_backends.systems.contact.implicit_step.solved`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dynamics_backends.methods.symbolic_map import Symbols
from dynamics_backends.protocol import IMPLICIT_STEP
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.spatial.spatial import Vec, leaves
from dynamics_backends.symbols import ca
from dynamics_backends.systems.contact import implicit_step
from dynamics_backends.systems.contact.implicit_step import Arrival, ContactProblem, Direction
from dynamics_backends.systems.contact.stepped_contact import SteppedContact


class _Parts(NamedTuple):
    """Symbolic contact problem of one step, and all its symbols as one column."""

    problem: ContactProblem
    column: Any


def stepped_function(map: SteppedContact, symbols: Symbols) -> Any:
    """CasADi function xdot (ndx) of x (nx), u (nu), t and the parameters, among them the step length."""
    n, arguments = map.model.nv, list(symbols)
    start = map.start(symbols.x, symbols.u, symbols.p).problem
    v = [symbols.x[map.model.nq + i] for i in range(n)]
    limit = implicit_step.ACCURACY**2 * implicit_step.energy(start, v)
    parts = _parts(map, start, symbols.p)
    values = ca.Function("parts", arguments, [ca.cse(ca.densify(ca.vertcat(*_numbers(map, start, symbols.p)))), limit])
    iterate = _iteration(map, parts)

    inputs = [ca.MX.sym(f"i{i}", s.numel()) for i, s in enumerate(arguments)]
    column, limit = values(*inputs)
    state = ca.vertcat(ca.MX.zeros(n), _speeds(map, column), 0)
    for _ in range(implicit_step.STEPS):
        state = iterate(state[-1], state, column, limit)
    velocity, h = inputs[0][map.model.nq :], inputs[3 + list(symbols.p).index(IMPLICIT_STEP)]
    return ca.Function("xdot", inputs, [ca.vertcat(velocity, state[:n] / h)])


def _iteration(map: SteppedContact, parts: _Parts) -> Any:
    """CasADi function of a Newton step of the state (delta, velocities of the points, converged); a converged state is returned
    as is.
    """
    n, m = map.model.nv, parts.problem
    delta, speeds, limit = ca.SX.sym("delta", n), ca.SX.sym("w", 3 * len(m.arrivals)), ca.SX.sym("limit")
    w = _vectors(speeds)
    found = [m.law.slopes(c.gap, c.normal, at, m.p) for c, at in zip(m.arrivals, w, strict=True)]
    step = implicit_step.direction(m, [delta[i] for i in range(n)], [f for f, _ in found], [d.w for _, d in found])
    along = ca.vertcat(*[x for a in step.along for x in leaves(a)])
    known = ca.densify(ca.vertcat(*step.inertial, step.decrement, along, *step.d))
    direction = ca.Function("direction", [delta, speeds, parts.column], [ca.cse(known)])

    state, column, limit = (
        ca.MX.sym("state", n + speeds.numel() + 1),
        ca.MX.sym("c", parts.column.numel()),
        ca.MX.sym("l"),
    )
    at, points = state[:n], state[n:-1]
    both = direction(at, points, column)
    length = _length(map, parts, points, both, column)
    moved, d = both[3 : 3 + speeds.numel()], both[3 + speeds.numel() :]
    arrived = ca.logic_not(both[2] > limit)
    after = ca.vertcat(at + length * d, points + length * moved, arrived)
    step_on = ca.Function("iteration", [state, column, limit], [after])
    stay = ca.Function("arrived", [state, column, limit], [state])
    return ca.Function.if_else("unless_arrived", stay, step_on)


def _length(map: SteppedContact, parts: _Parts, points: Any, both: Any, column: Any) -> Any:
    """Step length of a line search; trials after the last needed one are skipped."""
    m, count = parts.problem, points.numel()
    speeds, known = ca.SX.sym("w", count), ca.SX.sym("known", 3 + count)
    state = ca.SX.sym("state", 4)  # length, lower, upper, settled
    first = ca.SX.sym("first")
    length, lower, upper = state[0], state[1], state[2]
    step = Direction([], _vectors(known[3:]), known[2], (known[0], known[1]))
    slope, bend = implicit_step._slope(m, _vectors(speeds), step, length)
    flat = ca.logic_not(ca.fabs(slope) > implicit_step.FLAT * step.decrement)
    settled = ca.logic_or(flat, ca.logic_and(first, slope <= 0.0))
    low, high = ca.if_else(slope < 0.0, length, lower), ca.if_else(slope < 0.0, upper, length)
    newton, middle = length - slope / bend, 0.5 * (low + high)
    inside = ca.logic_and(newton > low, newton < high)
    tried = ca.if_else(settled, length, ca.if_else(inside, newton, middle))
    inputs = [state, first, speeds, known, parts.column]
    trial = ca.Function("trial", inputs, [ca.cse(ca.vertcat(tried, low, high, settled))])
    settle = ca.Function("settled", inputs, [state])
    unless = ca.Function.if_else("unless_settled", settle, trial)
    at = ca.vertcat(ca.MX([1.0, 0.0, 1.0, 0.0]))
    for i in range(implicit_step.TRIALS):
        at = unless(at[3], at, 1.0 if i == 0 else 0.0, points, both[: 3 + count], column)
    return at[0]


def _numbers(map: SteppedContact, m: ContactProblem, p: Any) -> list[Any]:
    """Numbers of a contact problem and of its law's parameters, in the order in which :func:`_parts` reads them."""
    numbers = [c for arrival in m.arrivals for c in leaves(arrival.velocity)]
    numbers += [m.M[i][j] for i, above in enumerate(ltl.ancestor_lists(map.parents)) for j in (i, *above)]
    numbers += [m.drive[i] for i in range(map.model.nv)]
    for arrival in m.arrivals:
        numbers += [arrival.gap, *leaves(arrival.normal), *(x for J in arrival.J.values() for x in leaves(J))]
    return [*numbers, *(p[name][i] for name in p for i in range(p[name].numel()))]


def _speeds(map: SteppedContact, column: Any) -> Any:
    return column[: 3 * len(map.points)]


def _parts(map: SteppedContact, m: ContactProblem, p: Any) -> _Parts:
    """Symbolic contact problem with the structure of m."""
    column = ca.SX.sym("parts", len(_numbers(map, m, p)))
    rest = iter(column[i] for i in range(column.numel()))

    def vector() -> Vec:
        return Vec(next(rest), next(rest), next(rest))

    speeds = [vector() for _ in m.arrivals]
    M = [{j: next(rest) for j in (i, *above)} for i, above in enumerate(ltl.ancestor_lists(map.parents))]
    drive = [next(rest) for _ in range(map.model.nv)]
    arrivals = []
    for own, speed in zip(m.arrivals, speeds, strict=True):
        gap, normal = next(rest), vector()
        arrivals.append(Arrival({j: vector() for j in own.J}, gap, normal, speed))
    given = {name: [next(rest) for _ in range(p[name].numel())] for name in p}
    return _Parts(ContactProblem(M, drive, arrivals, given[IMPLICIT_STEP][0], map.parents, m.law, given), column)


def _vectors(column: Any) -> list[Vec]:
    return [Vec(*(column[3 * i + k] for k in range(3))) for i in range(column.numel() // 3)]
