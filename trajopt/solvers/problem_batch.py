"""Batch of problems with one structure and different values, and comparison of structures.

Problems may differ in run-time values: x0, bounds on controls and of constraints, weights, references, goals and other parameters
of cost terms, constraints and dynamics. Lists of problems (:meth:`Batch.from_problems`) may also differ in time steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dynamics_backends.compiled.runtime.fingerprints import Likeness
from dynamics_backends.names import unknown_name
from dynamics_backends.protocol import Array
from trajopt.problem.constraints import Constraint
from trajopt.problem.ocp import DYNAMICS, OCP, Phase
from trajopt.problem.terms import CostTerm
from trajopt.stage.source.constraint_source import constraint_theta
from trajopt.stage.source.term_source import by_knot, theta_of
from trajopt.validation.validation import structure_errors


def require_alike(ocps: Sequence[OCP]) -> None:
    """Raise ValueError if a problem differs in structure from the first one, or if its arrays have wrong shapes.

    Structure: all but values, see :func:`differences`. Repeated objects are checked once.
    """
    first, alike, seen = ocps[0], Likeness(), set[int]()
    for i, ocp in enumerate(ocps):
        if id(ocp) in seen:
            continue
        seen.add(id(ocp))
        difference = None if ocp is first else next(differences(first, ocp, alike), None)
        if difference is not None:
            raise ValueError(
                f"problem {i} of the batch differs in structure from problem 0: {difference}; "
                "solve problems of another structure in a separate batch"
            )
        if errors := structure_errors(ocp):
            raise ValueError(f"problem {i} of the batch is invalid: {'; '.join(errors)}")


def differences(a: OCP, b: OCP, alike: Likeness | None = None) -> Iterator[str]:
    """Yield sentences on the differences in structure of problem b from problem a; none if only values differ.

    Structure: states, controls, phases with their numbers of knots, presence of control bounds, dynamics, integrators, engines,
    and names, functions and parameter sizes of terms and constraints. alike: cache of comparisons with a.
    """
    alike = alike or Likeness()
    yield from _unequal("states", a.manifold.tangent_names, b.manifold.tangent_names)
    yield from _unequal("controls", a.nu, b.nu)
    yield from _unequal("phases", len(a.phases), len(b.phases))
    yield from _unequal("bounds on the controls", _has_bounds(a), _has_bounds(b))
    for i, (p, q) in enumerate(zip(a.phases, b.phases, strict=False)):
        yield from (f"in phase {i}, {difference}" for difference in _phase_differences(p, q, alike))
    yield from _part_differences("terminal cost terms", a.terminal, b.terminal, alike)
    yield from _part_differences("terminal constraints", a.terminal_constraints, b.terminal_constraints, alike)


def _phase_differences(p: Phase, q: Phase, alike: Likeness) -> Iterator[str]:
    """Yield sentences on differences in knots, dynamics, integration, cost terms and constraints of phase q from phase p."""
    yield from _unequal("knots", p.knots, q.knots)
    yield from _unequal("parameters of the dynamics", _sizes(p.parameters), _sizes(q.parameters))
    if p.dynamics is not q.dynamics:
        own, other = p.dynamics.sampling, q.dynamics.sampling
        if own is None or other is None:
            yield "the dynamics are user-defined functions; use the same object in all problems"
        else:
            yield from _unequal("scheme of integration", own.scheme, other.scheme)
            yield from _unequal("substeps", own.substeps, other.substeps)
            yield from _unequal("derivatives", own.called.name, other.called.name)
            yield from _unequal("engine", own.called.engine, other.called.engine)
            if not alike(own.called.map, other.called.map):
                yield "the dynamics differ (to vary the inertias of one robot, make them parameters, see InertialBody)"
    yield from _part_differences("cost terms", p.terms, q.terms, alike)
    yield from _part_differences("constraints", p.constraints, q.constraints, alike)


def _part_differences(kind: str, a: Sequence[Any], b: Sequence[Any], alike: Likeness) -> Iterator[str]:
    """Yield sentences on differences in names, parameter sizes, squaring and residuals of cost terms or constraints b from a.

    kind: name of the group.
    """
    yield from _unequal(kind, [part.name for part in a], [part.name for part in b])
    for p, q in zip(a, b, strict=False):
        yield from _unequal(f"parameters of {p.name!r}", _sizes(p.parameters), _sizes(q.parameters))
        if isinstance(p, CostTerm):
            yield from _unequal(f"squared of {p.name!r}", p.squared, q.squared)
        if p.residual is not q.residual and not alike(p.residual, q.residual):
            yield f"the residual of {p.name!r} is another function"


def _has_bounds(ocp: OCP) -> bool:
    """True if a problem has lower or upper control bounds."""
    return ocp.u_lower is not None or ocp.u_upper is not None


def _sizes(parameters: Any) -> list[tuple[str, int]]:
    """Return names of parameters, each with the length of its last axis."""
    return [(name, np.shape(value)[-1]) for name, value in parameters.items()]


def _unequal(name: str, a: Any, b: Any) -> Iterator[str]:
    """Yield the sentence "name: b instead of a" if the two values differ, else nothing."""
    if a != b:
        yield f"{name}: {b} instead of {a}"


FIELDS = ("x0", "u_lower", "u_upper")


class Batch:
    """n problems of one structure; ``batch[i]`` returns problem i as an OCP. Constructed from values, or by :meth:`from_problems`.

    ocp: the problem whose values change. values: arrays by name, with the problems along the first axis:

    x0, u_lower, u_upper        of the problem
    "term.parameter"            of cost terms and constraints of this name, as in :meth:`~trajopt.problem.ocp.OCP.updated`:
                                (n, size), (n, knots, size), or (n,) if the size is one; includes "term.weight", and "lower" and
                                "upper" of constraints, where one number applies to all components
    "dynamics.parameter"        of the dynamics of all phases that have it
    "parameter"                 of all terms, constraints and dynamics with a parameter of this name

    Attributes: members: the problems passed to :meth:`from_problems`, else None. fields: given arrays of x0, u_lower and u_upper
    by name. values: given arrays of terms, constraints and dynamics by (owner, key).

    Raises UnknownName for an unknown name, ValueError for no values, values of a wrong shape or with different numbers of
    problems, and weights that are negative or not finite. Numbers of knots are tested when the values are read.

    >>> import numpy as np, trajopt as to
    >>> cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1)
    >>> step = to.SampledSystem(to.make_backend(cart, "forward_ad"), "euler")
    >>> goal = to.state_cost(cart.manifold, [1.0, 0.0], 1e4, name="goal")
    >>> ocp = to.OCP.single_phase(step, [0.0, 0.0], 20, 0.1, [to.control_cost(1)], [goal])
    >>> batch = to.Batch(ocp, {"x0": np.zeros((3, 2)), "goal.reference": [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]})
    >>> len(batch), batch[2].terminal[0].parameters["reference"]
    (3, array([3., 0.]))
    """

    def __init__(self, ocp: OCP, values: Mapping[str, Any]) -> None:
        self.ocp = ocp
        self.members: Sequence[OCP] | None = None
        self.fields: dict[str, Array] = {}
        self.values: dict[tuple[str, str], Array] = {}
        if not values:
            raise ValueError(
                "no values given; name the values that differ between the problems: x0, or parameters of terms"
            )
        for name, given in values.items():
            try:
                rows = np.array(given, dtype=float)
            except (TypeError, ValueError):
                raise ValueError(f"{name} = {given!r}; expected an array of numbers, by problem") from None
            if rows.ndim == 0:
                raise ValueError(f"{name} is a single number; the first axis of a value must be the problem index")
            if name in FIELDS:
                self.fields[name] = rows
                continue
            for owner, key, size in _owners(ocp, name):
                self.values[owner, key] = _fitted(f"{owner}.{key}", rows, size)
                if key == "weight":
                    _check_weights(owner, self.values[owner, key])
        counts = {name: len(np.asarray(given)) for name, given in values.items()}
        if len(set(counts.values())) > 1:
            numbers = ", ".join(f"{name}: {count}" for name, count in counts.items())
            raise ValueError(f"the values have different numbers of problems ({numbers})")
        self._count = next(iter(counts.values()))
        if not self._count:
            raise ValueError(f"the values ({', '.join(counts)}) have no problems; a batch needs at least one")
        self._check_fields()

    def _check_fields(self) -> None:
        """Raise ValueError for wrong shapes of x0 and of bounds on controls."""
        ocp, n = self.ocp, self._count
        limits: list[tuple[int, ...]] = [(ocp.nu,), (ocp.horizon, ocp.nu)]
        shapes: dict[str, list[tuple[int, ...]]] = {"x0": [(ocp.manifold.nx,)], "u_lower": limits, "u_upper": limits}
        for name, rows in self.fields.items():
            if rows.shape[1:] not in shapes[name]:
                expected = " or ".join(str((n, *shape)) for shape in shapes[name])
                raise ValueError(f"{name} has shape {rows.shape}; expected {expected}")

    @classmethod
    def from_problems(cls, ocps: Sequence[OCP]) -> Batch:
        """Create a batch from problems.

        Raises ValueError without problems, and if one differs in structure from the first, with the difference, or has wrong
        shapes.
        """
        members = list(ocps)
        if not members:
            raise ValueError("a batch needs at least one problem")
        require_alike(members)
        self = cls.__new__(cls)
        self.ocp, self.members, self.fields, self.values = members[0], members, {}, {}
        self._count = len(members)
        return self

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: int) -> OCP:
        if self.members is not None:
            return self.members[i]
        if not -self._count <= i < self._count:
            raise IndexError(f"problem {i} of a batch of {self._count}")
        ocp = replace(self.ocp, **{name: rows[i] for name, rows in self.fields.items()})
        for (owner, key), rows in self.values.items():
            ocp = ocp.updated(owner, **{key: rows[i]})
        return ocp

    def subset(self, indices: Sequence[int]) -> Batch:
        """Return a batch of the problems with these indices, in their order."""
        chosen = list(indices)
        self_ = Batch.__new__(Batch)
        self_.ocp, self_._count = self.ocp, len(chosen)
        self_.members = None if self.members is None else [self.members[i] for i in chosen]
        self_.fields = {name: rows[chosen] for name, rows in self.fields.items()}
        self_.values = {name: rows[chosen] for name, rows in self.values.items()}
        return self_

    @property
    def bounds_differ(self) -> bool:
        """True if bounds of constraints may differ between problems: a batch from problems, or one with values of bounds."""
        return self.members is not None or any(key in ("lower", "upper") for _, key in self.values)

    def unconstrained(self) -> Batch:
        """Return a batch without constraints and their values, but with the bounds on controls."""
        other = self.subset(range(len(self)))
        names = {c.name for c in self.ocp.constraints()}
        other.ocp = self.ocp.unconstrained()
        other.members = None if self.members is None else [m.unconstrained() for m in self.members]
        other.values = {(owner, key): rows for (owner, key), rows in self.values.items() if owner not in names}
        return other

    # -- values as arrays, with n rows, or one row if all are equal -----------------------------------------------------------
    def x0(self) -> Array:
        """Return the initial states (n or 1, nx)."""
        return self._each(lambda ocp: ocp.x0, "x0")

    def bounds(self) -> tuple[Array, Array] | None:
        """Return lower and upper bounds on the controls, both (n, N, nu) or both (1, N, nu); None if the problems have none.

        An absent side is infinite.
        """
        ocp, shape = self.ocp, (self.ocp.horizon, self.ocp.nu)
        if self.members is None and not self.fields.keys() & set(FIELDS[1:]):
            return None if ocp.control_bounds is None else (ocp.control_bounds[0][None], ocp.control_bounds[1][None])
        if self.members is None:
            found = []
            for name, absent in ((FIELDS[1], -np.inf), (FIELDS[2], np.inf)):
                own = getattr(ocp, name)
                rows = self.fields.get(name, np.full((1, ocp.nu), absent) if own is None else own[None])
                rows = rows[:, None] if rows.ndim == 2 else rows
                found.append(np.broadcast_to(rows, (len(rows), *shape)))
            count = max(map(len, found))
            lower, upper = (np.broadcast_to(rows, (count, *shape)) for rows in found)
            return lower, upper
        if ocp.control_bounds is None:
            return None
        both = [np.array(m.control_bounds) for m in self.members]
        lower, upper = np.moveaxis(_stacked(both), 1, 0)
        return lower, upper

    def times(self) -> Array:
        """Return the times of the knots (n or 1, N + 1) [s], which begin at 0."""
        return self._each(lambda ocp: ocp.times)

    def steps(self, i: int) -> Array:
        """Return the time steps (n or 1, K) [s] of phase i."""
        return self._each(lambda ocp: ocp.phases[i].dt)

    def t(self) -> Array:
        """Return the times (n or 1, N + 1) [s] that residuals and dynamics read, which begin at the ``start`` of a problem."""
        return self._each(lambda ocp: ocp.t)

    def weights(self, i: int) -> Array:
        """Return the weights (n or 1, K) of the running costs of phase i: dt, or 1 for a phase without duration."""
        return self._each(lambda ocp: ocp.phases[i].weights)

    def parameters(self, i: int) -> Array:
        """Return the parameters (n or 1, K, size) of the dynamics of phase i."""
        own, K = self.ocp.phases[i].parameters, self.ocp.phases[i].knots
        parts = [(DYNAMICS, key, np.shape(v)[-1]) for key, v in own.items()]
        return self._by_knot(lambda ocp: by_knot(ocp.phases[i].parameters.values(), K), parts)

    def theta(self, terms: Callable[[OCP], Sequence[CostTerm]], K: int) -> Array:
        """Return weights and parameters (n or 1, K, size) of the cost terms that ``terms`` selects from a problem, on K knots.

        Columns: for each term its weight, then its parameters in order.
        """
        named = ((t.name, {"weight": t.weight, **t.parameters}) for t in terms(self.ocp))
        parts = [(name, key, np.shape(v)[-1]) for name, values in named for key, v in values.items()]
        return self._by_knot(lambda ocp: theta_of(terms(ocp), K), parts)

    def path(self, constraints: Callable[[OCP], Sequence[Constraint]], K: int) -> Array:
        """Return parameters (n or 1, K, size) of the constraints that a function selects from a problem, on K knots."""
        parts = [(c.name, key, np.shape(v)[-1]) for c in constraints(self.ocp) for key, v in c.parameters.items()]
        return self._by_knot(lambda ocp: constraint_theta(constraints(ocp), K), parts)

    def limits(self, constraint_of: Callable[[OCP], Constraint], K: int) -> tuple[Array, Array]:
        """Return lower and upper bounds, each (n or 1, K, nr), of the constraint that a function selects from a problem."""
        own = constraint_of(self.ocp)
        name, size = own.name, own.residual.n_out
        lower = self._by_knot(lambda ocp: constraint_of(ocp).bounds(K)[0], [(name, "lower", size)])
        return lower, self._by_knot(lambda ocp: constraint_of(ocp).bounds(K)[1], [(name, "upper", size)])

    def _by_knot(self, read: Callable[[OCP], Array], parts: Sequence[tuple[str, str, int]]) -> Array:
        """Return values by knot, (n, K, size), or (1, K, size) if none vary: what ``read`` returns for each problem.

        Without members, those of the common problem, with the columns that the batch varies replaced. parts: (owner, parameter,
        number of columns) of the columns in order. Raises ValueError for values on another number of knots.
        """
        if self.members is not None:
            return _stacked([read(m) for m in self.members])
        base = read(self.ocp)
        if not any(part[:2] in self.values for part in parts):
            return base[None]
        found, at = np.tile(base, (self._count, 1, 1)), 0
        for owner, key, size in parts:
            rows = self.values.get((owner, key))
            if rows is not None:
                if rows.ndim == 3 and rows.shape[1] != len(base):
                    raise ValueError(f"{owner}.{key} has values for {rows.shape[1]} knots; there are {len(base)}")
                found[:, :, at : at + size] = rows if rows.ndim == 3 else rows[:, None]
            at += size
        return found

    def _each(self, read: Callable[[OCP], Array], name: str = "") -> Array:
        """Return an array (n or 1, ...): what ``read`` returns, stacked over the members.

        Without members, the batch's field ``name``, or if it has none, what ``read`` returns for the common problem.
        """
        if self.members is not None:
            return _stacked([read(m) for m in self.members])
        return self.fields.get(name, read(self.ocp)[None])


def _stacked(rows: list[Array]) -> Array:
    """Stack arrays of problems, or return the first one, with a leading axis of 1, if all are the same object."""
    return np.array(rows) if any(row is not rows[0] for row in rows) else np.array(rows[:1])


def named_values(ocp: OCP) -> Iterator[tuple[str, str, Any]]:
    """Yield owner, name and array of all values of cost terms, constraints and dynamics in which problems of a batch may differ."""
    for term in ocp.terms():
        yield from ((term.name, key, value) for key, value in {"weight": term.weight, **term.parameters}.items())
    for c in ocp.constraints():
        yield from ((c.name, key, value) for key, value in {"lower": c.lower, "upper": c.upper, **c.parameters}.items())
    for phase in ocp.phases:
        yield from ((DYNAMICS, key, value) for key, value in phase.parameters.items())


def _owners(ocp: OCP, name: str) -> list[tuple[str, str, int]]:
    """Return (owner, key, size) of all values that a name of a batch refers to, such as "goal.reference" or a bare parameter name.

    Raises UnknownName for a name that refers to nothing, such as a bare "weight".
    """
    known = {(owner, key): np.shape(value)[-1] for owner, key, value in named_values(ocp)}
    owner, _, key = name.rpartition(".")
    if owner:
        found = [(*pair, size) for pair, size in known.items() if pair == (owner, key)]
    else:
        found = [(*pair, size) for pair, size in known.items() if pair[1] == name and name != "weight"]
    if not found:
        raise unknown_name("value of a batch", name, [*FIELDS, *(f"{a}.{b}" for a, b in known)])
    return found


def _check_weights(term: str, weights: Array) -> None:
    """Raise ValueError for negative or non-finite weights (n, ...) of a cost term."""
    bad = ~(np.isfinite(weights) & (weights >= 0)).reshape(len(weights), -1).all(axis=1)
    if bad.any():
        raise ValueError(
            f"term {term!r}: weights must be finite and at least zero; those of problem {np.argmax(bad)} are not"
        )


BROADCAST = ("weight", "lower", "upper")
"""Values of which one number may apply to all components."""


def _fitted(name: str, rows: Array, size: int) -> Array:
    """Return values (n, size) or (n, knots, size); a number per problem is repeated for all components of weights and bounds.

    Raises ValueError for other shapes.
    """
    alone = size == 1 or name.rpartition(".")[2] in BROADCAST
    if rows.ndim == 1 and alone:
        return np.repeat(rows[:, None], size, axis=1)
    if not 1 < rows.ndim <= 3 or rows.shape[-1] != size:
        n = len(rows)
        shapes = [*([f"({n},)"] if alone else []), f"({n}, {size})"]
        raise ValueError(f"{name} has shape {rows.shape}; expected {', '.join(shapes)} or ({n}, knots, {size})")
    return rows
