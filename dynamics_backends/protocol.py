"""Interfaces of systems and derivative backends.

Systems and derivative methods are independent.  A :class:`Map` (mostly a :class:`System`, ``xdot = f(x, u, t, p)``) defines only
what is computed: it is a pure function of *rows* (component first, the batch last), generic in the scalar.  A *method* turns a map
into a :class:`DynamicsBackend`: values and Jacobians of a whole batch, batch first, in float64.

Shapes.  Rows: x (nx, N), u (nu, N), t (N,), p name -> (n, N).  Batch first: x (N, nx), u (N, nu), t (N,) or a number, p name -> (N,
n) or (n,).  All derivatives are with respect to the tangent of the state, x (+) dx.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from dynamics_backends import scalar as sm
from dynamics_backends.manifold import AnyManifold, Manifold, as_manifold
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.scalars.user_function import UserFunction, zero_of

Array = np.ndarray
Parameters = Mapping[str, Array]
"""Run-time parameters by name: values that may change between solves without another trace."""


class Map(Protocol):
    """Function of state, control, time and parameters, written once for every scalar type.

    ``manifold`` is that of x, ``nu`` the number of controls, ``n_out`` the number of outputs; ``output_names`` and
    ``control_names`` hold a name for each output and control.
    """

    manifold: Manifold
    nu: int
    n_out: int
    output_names: tuple[str, ...]
    control_names: tuple[str, ...]

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows (n_out, N) of the map's value."""


@runtime_checkable
class System(Map, Protocol):
    """Map whose output is the time derivative of the state in its tangent space: n_out = manifold.ndx.

    Most systems are :class:`FunctionMap`, which sets the attributes. A method ``partials`` (:class:`Partials`) adds analytic
    derivatives.
    """

    second_order: bool
    """True if the state is (q, v) with qdot = v in the tangent space, as semi-implicit Euler requires."""


def is_second_order(map: Map) -> bool:
    """True for a System that declares its state as (q, v) with qdot = v (attribute ``second_order``); False for other maps."""
    return isinstance(map, System) and map.second_order


def unwrapped(map: Any) -> Any:
    """Original map, with the same values, of a map that an engine has wrapped (attribute ``wrapped``); other maps unchanged."""
    return getattr(map, "wrapped", map)


def innermost(map: Any) -> Any:
    """Original map under all wrappers of engines (attribute ``wrapped``) and changes of arguments (attribute ``map``)."""
    own = unwrapped(map)
    while not isinstance(own, FunctionMap) and hasattr(own, "map"):
        own = unwrapped(own.map)
    return own


def is_generic(map: Map) -> bool:
    """True unless the map has values at float64 only (user-defined backends): then it cannot be traced, or
    differentiated except by finite differences.
    """
    return getattr(unwrapped(map), "generic", True)


@runtime_checkable
class HasRecursions(Protocol):
    """Map that is traced as a whole; a driver may evaluate its costly recursions, or make them calls of kernels."""

    def with_recursions(self, driver: Any) -> Map:
        """Copy of this map whose recursions are evaluated by a driver, when the map is traced as a whole."""


@runtime_checkable
class HasActuators(Protocol):
    """Robot whose first controls are joint forces."""

    actuated: tuple[int, ...]
    """Driven degree of freedom of each of these controls."""


@runtime_checkable
class HasOutputs(Map, Protocol):
    """System with outputs besides its motion, such as contact forces."""

    def outputs(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> dict[str, Rows]:
        """Output rows (n, N) by name."""


@runtime_checkable
class ReportOf(Protocol):
    """Map whose value is an output of a system."""

    system: HasOutputs


@runtime_checkable
class HasWarnings(Protocol):
    """System that checks initial states and names its stiff parts, which require short time steps."""

    stiff: str
    """Name of the stiff parts in the plural: "contacts"."""

    def state_warnings(self, x: Array, p: Parameters) -> Iterator[str]:
        """Warnings about the state x (nx,), each with a remedy; p: name -> (n,)."""


@runtime_checkable
class HasConstraints(Protocol):
    """System of a robot whose accelerations satisfy constraints on its positions, with the state (q, v)."""

    def position_errors(self, xs: Array, p: Parameters) -> dict[str, Array]:
        """Largest position errors (K,) [m or rad] at states xs (K, nx), by name of the constraints that have one.

        p: name -> (n,).
        """

    def speeds(self, x: Array, p: Parameters) -> dict[str, float]:
        """Largest velocities [m/s or rad/s] of the rows at a state x (nx,), by name of the constraint; p: name -> (n,)."""

    def jacobian(self, x: Array, p: Parameters) -> Array:
        """Matrix (rows, nv) of the constraints on the velocities at a state x (nx,), zero if inactive; p: name -> (n,)."""

    def redundant_rows(self, x: Array, p: Parameters) -> list[str]:
        """Names of rows that follow from others at a state x (nx,), unless damping lets them yield; p: name -> (n,)."""


IMPLICIT_STEP = "implicit step"
"""Name of the parameter h (1) [s] of systems made by :class:`DampsImplicitly`."""


@runtime_checkable
class DampsImplicitly(Protocol):
    """System xdot = (v, a) with the mass matrix M and M a = F(q, v, u) - D v, whose damping D can be implicit in a time step.

    ``implicit`` returns the system (M + h D) a = F(q, v, u) - D (v + e), in which damping acts on the velocity v + e + h a.  The
    step length h is its parameter IMPLICIT_STEP, and its last ``offsets`` controls are e (none unless offset is True); ``damps`` is
    True if there is any damping.
    """

    damps: bool
    offsets: int | None
    """Number of the last controls that are e; None for the original system."""

    def implicit(self, *, offset: bool) -> Map:
        """System with damping that is implicit in a step h: (M + h D) a = F - D (v + e), see the class.

        offset: True if its last controls are the velocity offsets e, False for e = 0.
        """


@runtime_checkable
class HasJointFriction(Protocol):
    """Robot with dry joint friction, smoothed over ``friction_velocity``."""

    coulomb: Array | None
    """Friction (nv, 1) [N m], None without friction."""


@runtime_checkable
class NeedsScheme(Protocol):
    """System whose accelerations are means over time steps of one integrator, and invalid for other integrators."""

    scheme: str
    """Name of this integrator."""


@runtime_checkable
class MeetsInSteps(Protocol):
    """System whose contact forces depend on the length of the time step."""

    def slower(self, time: float, p: Parameters) -> tuple[Map, Parameters]:
        """System with the same forces at the same state in steps shorter by ``time`` [s], and its parameters.

        p: parameters of this system, of which those of the returned system are a changed copy or p itself.
        """


@runtime_checkable
class InScaledTime(Protocol):
    """Map in the scaled time of a phase: entry ``place`` of the state is the duration, planned as ``nominal`` [s]."""

    place: int
    nominal: float


def damping_offsets(map: Map) -> int | None:
    """Number of velocity offsets e, the last controls of a system with implicit damping; None for other maps, also for the system
    before :meth:`DampsImplicitly.implicit`.
    """
    own = unwrapped(map)
    return own.offsets if isinstance(own, DampsImplicitly) else None


Matrix = Sequence[Rows]
"""Matrix of scalars by its rows: M[i] is the i-th row (m, N), M[i][j] one scalar (N,)."""


class Partials(NamedTuple):
    """Value (n_out, N) of a map and its partial derivatives by rows: n_out rows each, fx (ndx, N) and fu (nu, N)."""

    value: Rows
    fx: Matrix
    fu: Matrix


class Contraction(NamedTuple):
    """Second derivatives of lam' f(x (+) dx, u + du) in (dx, du) at 0 by rows.

    xx: ndx rows (ndx, N), ux: nu rows (ndx, N), uu: nu rows (nu, N). xx is the Hessian along the exponential chart, thus symmetric:
    the symmetric part of Lie derivatives.
    """

    xx: Matrix
    ux: Matrix
    uu: Matrix


class MissingCapability(TypeError, ValueError):
    """A map or a time step lacks a required capability; the message names the remedy.

    Code with alternatives checks beforehand: a protocol (:class:`HasPartials`), or an attribute that is None if the capability is
    missing.
    """


@runtime_checkable
class HasPartials(Protocol):
    """Map with analytic partial derivatives, generic in the scalar, as the method ``analytic`` requires."""

    def partials(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Partials:
        """Value and partial derivatives, see :class:`Partials`."""


@runtime_checkable
class HasContraction(Protocol):
    """Map that also has analytic second derivatives, contracted with a vector."""

    def contracted(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> tuple[Partials, Contraction]:
        """First derivatives, and the second derivatives of lam' f for lam (n_out, N)."""


@runtime_checkable
class HasSecondDerivatives(Protocol):
    """Map with partials that can compute second derivatives without the first."""

    has_second_derivatives: bool
    """True if the map has second derivatives."""

    def second_derivatives(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows], lam: Rows) -> Contraction:
        """Second derivatives of lam' f for lam (n_out, N)."""


class Jacobians(NamedTuple):
    """Value (N, n_out) and partial derivatives fx (N, n_out, ndx), fu (N, n_out, nu)."""

    value: Array
    fx: Array
    fu: Array


class Hessians(NamedTuple):
    """Second derivatives of lam' f along the exponential chart: xx (N, ndx, ndx), ux (N, nu, ndx), uu (N, nu, nu)."""

    xx: Array
    ux: Array
    uu: Array


class DynamicsBackend(Protocol):
    """Values and first derivatives of one map by one method; batch first, float64.

    This is the interface inside the toolkit. A user's backend needs only ``f`` and ``jacobians``, and ``manifold`` and ``nu``
    unless it is made for a system; :mod:`dynamics_backends.user_backend` adds the rest. Arguments of the methods: x (N, nx), u (N,
    nu), t (N,) or a number [s], p: run-time parameters by name, (N, n) or (n,), None for none. Raises ValueError for other shapes.
    """

    map: Map
    name: str
    engine: str
    options: Mapping[str, Any]
    """Options of the method, to create it for another map."""

    def f(self, x: Array, u: Array, t: Array | float = 0.0, p: Parameters | None = None) -> Array:
        """Value (N, n_out) of the map."""

    def jacobians(self, x: Array, u: Array, t: Array | float = 0.0, p: Parameters | None = None) -> Jacobians:
        """Value (N, n_out) and partial derivatives fx (N, n_out, ndx), fu (N, n_out, nu)."""


@runtime_checkable
class SecondOrderBackend(Protocol):
    """Backend that also has second derivatives, contracted with a multiplier."""

    def hessian_contraction(
        self, x: Array, u: Array, t: Array | float, p: Parameters | None, lam: Array
    ) -> tuple[Jacobians, Hessians]:
        """First derivatives, and second ones of lam' f: xx (N, ndx, ndx), ux (N, nu, ndx), uu (N, nu, nu).

        lam: (N, n_out). Other arguments are those of :class:`DynamicsBackend`.
        """


@runtime_checkable
class HoldsBackend(Protocol):
    """Backend that calls another backend, the inner one, with other arguments."""

    def of_stages(self, stages: Callable[[DynamicsBackend], DynamicsBackend]) -> DynamicsBackend:
        """Copy of this backend with the inner backend replaced by ``stages(inner)``."""


class FunctionMap:
    """User-defined function as a map, or as a system if n_out is None: the function then returns the derivative of the state (ndx).

    ``function(x, u, t, p)`` is written for one state, with arithmetic, indexing and functions of NumPy or of
    :mod:`dynamics_backends.scalar`, and returns its results as a list or an array; see
    :mod:`~dynamics_backends.scalars.user_function`. Its arguments are the state x (nx), the controls u (nu), the time t [s], and
    the run-time parameters p by name, each an array (n), also of a single number: ``p["mass"][0]``.

    manifold: of the state, or its number of components. nu: number of controls. n_out: number of results of a map. second_order:
    True if the state is (q, v) with qdot = v. output_names, control_names: for reports, default f[i] and u[i]; the outputs of a
    system are "d NAME/dt" of the state's components. Raises TypeError for a manifold of another type, ValueError for another number
    of names.

    >>> import numpy as np, trajopt as to
    >>> pendulum = to.FunctionMap(lambda x, u, t, p: [x[1], u[0] - np.sin(x[0])], 2, 1)
    >>> backend = to.make_backend(pendulum, "complex_step")
    >>> backend.jacobians(np.zeros((1, 2)), np.zeros((1, 1))).fx[0]
    array([[ 0.,  1.],
           [-1.,  0.]])
    """

    def __init__(
        self,
        function: Callable[[Rows, Rows, Scalar, Mapping[str, Rows]], Rows | list[Scalar]],
        manifold: AnyManifold,
        nu: int,
        n_out: int | None = None,
        *,
        second_order: bool = False,
        output_names: tuple[str, ...] | None = None,
        control_names: tuple[str, ...] | None = None,
    ) -> None:
        self.function = function
        self.manifold = as_manifold(manifold)
        self.nu = nu
        self.n_out = self.manifold.ndx if n_out is None else n_out
        self.second_order = second_order
        derivative_names = tuple(f"d {n}/dt" for n in self.manifold.tangent_names)
        names = derivative_names if n_out is None else tuple(f"f[{i}]" for i in range(self.n_out))
        self.output_names = tuple(output_names or names)
        self.control_names = tuple(control_names or (f"u[{i}]" for i in range(nu)))
        if len(self.control_names) != nu:
            raise ValueError(f"{len(self.control_names)} control names for nu = {nu} controls")
        if len(self.output_names) != self.n_out:
            raise ValueError(f"{len(self.output_names)} output names for n_out = {self.n_out} outputs")

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"FunctionMap({name}: nx = {self.manifold.nx}, nu = {self.nu}, n_out = {self.n_out})"

    def __call__(self, x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        """Rows (n_out, N) of the function's value; plain numbers among its results are repeated over the batch."""
        result = self.called(x, u, t, p)
        if not isinstance(result, (list, tuple)):
            return result
        # Adding zero gives plain numbers among the components the batch size of the arguments.
        zero = zero_of(x, u, t)
        return sm.stack([r + zero for r in result])

    @cached_property
    def called(self) -> UserFunction:
        """User's function, wrapped to accept every kind of scalar."""
        return UserFunction(self.function, self.n_out)


class Batch(NamedTuple):
    """Arguments of a map as rows: x (nx, N), u (nu, N), t (N,), p name -> (n, N)."""

    x: Array
    u: Array
    t: Array
    p: dict[str, Array]

    @classmethod
    def of(cls, map: Map, x: Array, u: Array, t: Array | float = 0.0, p: Parameters | None = None) -> Batch:
        """Create rows from batch-first arguments; a number t and parameters (n,) are repeated over the batch.

        Raises ValueError for a shape that does not fit the map or the batch; the message names x, u or the parameter.
        """
        x, u = np.asarray(x, float), np.asarray(u, float)
        if x.ndim != 2 or x.shape[1] != map.manifold.nx:
            raise ValueError(f"x has shape {x.shape}; expected (N, nx = {map.manifold.nx})")
        n = len(x)
        if u.shape != (n, map.nu):
            raise ValueError(f"u has shape {u.shape}; expected (N = {n}, nu = {map.nu})")
        rows = {name: _parameter_rows(name, value, n) for name, value in (p or {}).items()}
        return cls(x.T, u.T, np.broadcast_to(np.asarray(t, float), (n,)), rows)

    @property
    def size(self) -> int:
        """Batch size N."""
        return self.x.shape[1]

    def arrays(self) -> list[Array]:
        """Arguments x (N, nx), u (N, nu), t (N, 1) and each parameter (N, n)."""
        return [rows.T for rows in (self.x, self.u, self.t[None], *self.p.values())]

    def part(self, elements: slice) -> Batch:
        """Slice of the batch."""
        p = {name: rows[:, elements] for name, rows in self.p.items()}
        return Batch(self.x[:, elements], self.u[:, elements], self.t[elements], p)

    def repeated(self, times: int) -> Batch:
        """Batch (nx, N * times) with every element repeated ``times`` times in succession."""

        def repeat(a: Array) -> Array:
            return np.repeat(a, times, axis=-1)

        return Batch(repeat(self.x), repeat(self.u), repeat(self.t), {k: repeat(v) for k, v in self.p.items()})


def _parameter_rows(name: str, value: Array, n: int) -> Array:
    """Rows (size, n) of a parameter (size,), repeated, or (n, size), for a batch of n; a number counts as (1,).

    Raises ValueError for another batch size.
    """
    value = np.asarray(value, float)
    if value.ndim <= 1:
        return np.broadcast_to(np.atleast_1d(value)[:, None], (value.size, n))
    if len(value) != n:
        raise ValueError(f"parameter {name!r} has shape {value.shape}; expected (n,) or (N = {n}, n)")
    return value.reshape(n, -1).T
