"""Functions of cost terms and their quadratic expansions, from residuals traced with symbols.

Derivatives are CasADi's, or the analytic partials of a residual that has them if the Hessian is Gauss-Newton; for an exact
Hessian, the analytic ones of a residual with recursions (HasRecursions) that has both orders. Functions of contact forces are
expanded in the forces first (:mod:`~trajopt.stage.source.step_forces`). A vector theta per knot concatenates the weights and
parameters of all terms of a stage, so a changed reference, weight or goal is a changed input.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.compiled.emit.emit import Argument, TracedFunction
from dynamics_backends.compiled.sources.traced_source import by_rows, require_short_hessian, short_enough
from dynamics_backends.manifold import Manifold
from dynamics_backends.methods.symbolic_map import description, symbolic_value
from dynamics_backends.protocol import Array, HasContraction, HasPartials, HasRecursions, Map
from dynamics_backends.rigid_body.algorithms.seen_poses import watching
from dynamics_backends.symbols import ca
from dynamics_backends.tape.traced_dynamics import kernel_driver
from dynamics_backends.trace import trace_expressions
from trajopt.problem.constraints import Constraint
from trajopt.problem.terms import CostTerm
from trajopt.stage.source.step_forces import StepForces


class TermSource(NamedTuple):
    """Traced functions of terms or constraints. forces: contact forces of the time step that cost terms read, None for none."""

    functions: Sequence[TracedFunction]
    forces: StepForces | None = None


class TermShape(NamedTuple):
    """Compiled structure of a term or constraint: residual, names and sizes of parameters, and whether its cost is a square.

    Hashable by the identity of the residual.
    """

    residual: Map
    parameters: tuple[tuple[str, int], ...]
    squared: bool = True

    @classmethod
    def of(cls, term: CostTerm | Constraint) -> TermShape:
        """Return the structure of a cost term or constraint; a constraint counts as squared."""
        sizes = tuple([(name, value.shape[-1]) for name, value in term.parameters.items()])
        return cls(term.residual, sizes, isinstance(term, Constraint) or term.squared)

    @property
    def theta(self) -> int:
        """Number of entries of theta per knot of a cost term: one weight for each output of the residual, and the parameters."""
        return self.residual.n_out + sum(size for _, size in self.parameters)

    def named(self, theta: Any, first: int) -> dict[str, Any]:
        """Return the parameters by name, as slices of the symbolic vector theta from entry ``first`` on."""
        result = {}
        for name, size in self.parameters:
            result[name], first = theta[first : first + size], first + size
        return result


class StageShape(NamedTuple):
    """Terms, constraints and scheme of a phase.

    scheme: integration scheme, or JUMP. parameters: names and sizes of the dynamics parameters. nu: controls of the problem.
    running, terminal: cost terms. path, final: constraints. hessian: Hessian of the cost, "gauss_newton" or "exact". second: second
    derivatives of dynamics and constraints are evaluated too.
    """

    scheme: str
    parameters: tuple[tuple[str, int], ...]
    nu: int
    running: tuple[TermShape, ...] = ()
    terminal: tuple[TermShape, ...] = ()
    path: tuple[TermShape, ...] = ()
    final: tuple[TermShape, ...] = ()
    hessian: str = "gauss_newton"
    second: bool = False


def theta_of(terms: Sequence[CostTerm], knots: int) -> Array:
    """Return vectors theta (knots, size) of terms: the weight of each term, then its parameters in order."""
    return by_knot([v for term in terms for v in (term.weight, *term.parameters.values())], knots)


def by_knot(values: Iterable[Array], knots: int) -> Array:
    """Concatenate values (n,), repeated at each knot, or (knots, n) into (knots, sum of n)."""
    parts, first = list(values), 0
    result = np.empty((knots, sum(v.shape[-1] for v in parts)))
    for v in parts:
        result[:, first : first + v.shape[-1]] = v
        first += v.shape[-1]
    return result


def term_source(
    name: str,
    terms: Sequence[TermShape],
    manifold: Manifold,
    nu: int,
    *,
    running: bool,
    hessian: str,
    moving: Map | None = None,
    curved: bool = False,
    kernels: bool = True,
) -> TermSource:
    """Return traced functions of a sum of cost terms: its value, and its value with gradient and Hessian.

    name: prefix of the functions' names. nu: controls of the problem. hessian: of squared terms, "gauss_newton" or "exact"; that
    of other terms is always exact. running: scale terms by dt, and let them read controls. moving: system whose time step
    provides its contact forces to running terms. curved: second derivatives of that step are evaluated too. kernels: recursions
    of contact forces are calls of the package's kernels, for tapes. Raises TooLong for functions with too many operations,
    TraceError for a residual that cannot be traced.
    """
    x, u, t, dt = ca.SX.sym("x", manifold.nx), ca.SX.sym("u", nu), ca.SX.sym("t"), ca.SX.sym("dt")
    theta = ca.SX.sym("theta", sum(term.theta for term in terms))
    scale = dt if running else ca.SX(1)
    squared = [term.residual for term in terms if term.squared] if running else []
    forces = StepForces.of(squared, moving, exact=hessian == "exact", curved=curved)
    if kernels:
        served = [forces is not None and forces.serve(term.residual) for term in terms]
        terms = [
            t if own else t._replace(residual=_with_kernels(t.residual)) for t, own in zip(terms, served, strict=True)
        ]
    total, gradient, curvature = _sum_of(terms, manifold, x, u, t, theta, scale, hessian, forces)
    n = manifold.ndx
    inputs = {"x": x, "u": u, "t": t, "dt": dt, "theta": theta} if running else {"x": x, "t": t, "theta": theta}
    inputs |= {"forces": ca.SX.sym("forces", 0) if forces is None else forces.y} if running else {}
    arguments = [Argument(label, s.numel()) for label, s in inputs.items()]
    expansion = [total, gradient[:n], gradient[n:], curvature[:n, :n], curvature[n:, :n], curvature[n:, n:]]
    outputs = ["l", "lx", "lu", "lxx", "lux", "luu"]
    if not running:
        expansion, outputs = [expansion[i] for i in (0, 1, 3)], ["l", "lx", "lxx"]
    if forces is not None:
        expansion, outputs = [*expansion, forces.gradient, forces.hessian], [*outputs, "g", "h"]
    columns = [ca.reshape(ca.densify(e).T, -1, 1) for e in expansion]  # matrices by rows
    symbols = list(inputs.values())
    traces = [short_enough(f"the {name} cost", trace_expressions(symbols, e)) for e in ([total], columns)]
    functions = [
        TracedFunction(f"{name}_value", traces[0], arguments, ["l"]),
        TracedFunction(f"{name}_expand", traces[1], arguments, outputs),
    ]
    return TermSource(functions, forces)


def _with_kernels(residual: Map) -> Map:
    """Return a residual whose recursions (of contact forces) are calls of kernels, if it has analytic partials, else itself.

    CasADi does not differentiate such calls.
    """
    if isinstance(residual, HasRecursions) and isinstance(residual, HasPartials):
        return residual.with_recursions(kernel_driver)
    return residual


def _sum_of(terms, manifold, x, u, t, theta, scale, hessian, forces):
    """Return value, gradient and Hessian of the sum of terms at x (+) dx, u + du, in w = (dx, du) at 0.

    theta: symbols of weights and parameters (:func:`theta_of`); scale: factor on all weights. Squared terms of contact forces
    that ``forces`` serves contribute to the value alone; their derivatives in the forces are added to ``forces``, None without
    such terms.
    """
    dx = x if manifold.is_flat else ca.SX.sym("dx", manifold.ndx)
    moved = x if manifold.is_flat else manifold.integrate(x, dx)
    w = ca.vertcat(dx, u)
    n = w.numel()
    total, gradient, curvature = ca.SX(0), ca.SX(n, 1), ca.SX(n, n)
    at = 0
    for term in terms:
        residual = term.residual
        weight, p = theta[at : at + residual.n_out], term.named(theta, at + residual.n_out)
        at += term.theta
        if term.squared and forces is not None and forces.serve(residual):
            total += forces.add(residual, p, scale * weight)
            continue
        exact = hessian == "exact" or not term.squared
        r, J, H = _derivatives(term, scale * weight, (x, moved, u, t, p), w, manifold, exact=exact)
        total += _term_value(term, scale * weight, r)
        gradient += ca.mtimes(J.T, _residual_gradient(term, scale * weight, r))
        curvature += H if exact else ca.mtimes(J.T * ca.repmat((scale * weight).T, n, 1), J)
    curvature = ca.triu2symm(ca.triu(curvature))  # only one triangle is computed
    sums = [total, gradient, curvature]
    if manifold.is_flat:
        return sums
    return ca.substitute(sums, [dx], [ca.SX.zeros(manifold.ndx)])


def _term_value(term, weight, r):
    """Return the symbolic value of a cost term at the value r of its residual: weight' 1/2 r^2, or weight' r if not squared."""
    return ca.dot(weight, 0.5 * r * r if term.squared else r)


def _residual_gradient(term, weight, r):
    """Return the gradient in r of a cost term with residual value r: weight r, or weight if it is not squared."""
    return weight * r if term.squared else weight


def _derivatives(term, weight, at, w, manifold, *, exact):
    """Return the residual of a term at (x, moved, u, t, p), its Jacobian in w, and the Hessian of the term, None unless ``exact``.

    moved: x (+) dx. Analytic derivatives: without ``exact`` of a residual with partials, with it of one that also has recursions
    and second derivatives; else CasADi's. On vector spaces, body poses that the residual reads are intermediate variables
    (seen_poses.py), which saves operations.
    """
    residual, (x, moved, u, t, p) = term.residual, at
    closed = isinstance(residual, HasRecursions) and isinstance(residual, HasContraction)
    if isinstance(residual, HasPartials) and (closed or not exact):
        r, J = analytic_partials(residual, x, u, t, p, manifold.ndx)
        return r, J, _closed_hessian(term, weight, (x, u, t, p), r, J, manifold.ndx) if exact else None
    with watching(x if manifold.is_flat else ca.SX(0, 1)) as seen:
        r = symbolic_value(residual, moved[: residual.manifold.nx], u[: residual.nu], t, p)
    if not seen.poses:
        return r, ca.jacobian(r, w), _hessian(residual, _term_value(term, weight, r), w) if exact else None
    n, xi = w.numel(), seen.xi
    both = ca.vertcat(w, xi)
    first = ca.jacobian(r, both)
    through = ca.vertcat(ca.SX.eye(n), seen.jacobian(n))
    result = [r, ca.mtimes(first, through)]
    if exact:
        own = _hessian(residual, _term_value(term, weight, r), both)
        slope = ca.mtimes(first[:, n:].T, _residual_gradient(term, weight, r))
        result.append(ca.mtimes(through.T, ca.mtimes(own, through)) + seen.curvature(slope, n))
    r, J, *H = seen.at_q(result)
    return r, J, H[0] if exact else None


def _closed_hessian(term, weight, at, r, J, ndx):
    """Return the Hessian of a term in w = (dx, du) from analytic second derivatives; r, J: value and Jacobian of its residual."""
    x, u, t, p = at
    residual, n = term.residual, J.shape[1]
    _, second = residual.contracted(
        x[: residual.manifold.nx], u[: residual.nu], t, p, _residual_gradient(term, weight, r)
    )
    H = ca.mtimes(J.T * ca.repmat(weight.T, n, 1), J) if term.squared else ca.SX(n, n)
    return H + embed_hessian(second, residual, n, ndx)


def embed_hessian(second, residual, n, ndx):
    """Return the second derivatives of a residual as one symmetric matrix (n, n) in (dx, du) of the problem.

    second: blocks (xx, ux, uu) in the leading states and controls, which the residual reads; other rows and columns are zero. ndx:
    size of dx in the problem.
    """
    k, m = residual.manifold.ndx, residual.nu
    xx, ux, uu = (_matrix(M, *shape) for M, shape in zip(second, ((k, k), (m, k), (m, m)), strict=True))
    H = ca.SX(n, n)
    H[:k, :k] = xx
    H[ndx : ndx + m, :k] = ux
    H[:k, ndx : ndx + m] = ux.T
    H[ndx : ndx + m, ndx : ndx + m] = uu
    return H


def _matrix(M, rows: int, columns: int):
    """Return the sparse CasADi matrix (rows, columns) of a nested list of its rows; entries that are zero are dropped."""
    return ca.sparsify(ca.reshape(by_rows(M), columns, rows).T) if rows and columns else ca.SX(rows, columns)


def _hessian(residual, value, w):
    """Return CasADi's Hessian of ``value`` in w.

    Raises TooLong as :func:`require_short_hessian`. residual: named in the error.
    """
    require_short_hessian(f"the exact Hessian of {description(residual)}", value, w)
    return ca.hessian(value, w)[0]


def analytic_partials(residual, x, u, t, p, ndx):
    """Return the value (n_out) of a residual at x, and its analytic Jacobian (n_out, ndx + nu) in (dx, du), structurally sparse.

    ndx, nu: sizes of dx and u of the problem, of which the residual may read the leading ones.
    """
    m = residual.manifold
    value, fx, fu = residual.partials(x[: m.nx], u[: residual.nu], t, p)
    J = ca.SX(residual.n_out, ndx + u.numel())
    J[:, : m.ndx] = ca.reshape(by_rows(fx), m.ndx, residual.n_out).T
    if residual.nu:
        J[:, ndx : ndx + residual.nu] = ca.reshape(by_rows(fu), residual.nu, residual.n_out).T
    return (ca.vertcat(*value) if isinstance(value, list) else value), ca.sparsify(J)
