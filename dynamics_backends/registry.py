"""Registry of derivative backends by name: the method and the engine that a configuration selects.

A method differentiates a map; an engine evaluates it: ``numpy``, or ``compiled``, the C library of the package, which traces a map
and evaluates its tape (:mod:`dynamics_backends.tape`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dynamics_backends.extensions import Registry
from dynamics_backends.methods.analytic import Analytic, without_partials
from dynamics_backends.methods.base import Method
from dynamics_backends.methods.exact_methods import ComplexStep, ForwardAD, StructuredAD
from dynamics_backends.methods.finite_difference import (
    LARGEST_STEP as LARGEST_STEP,
    CentralDifference,
    FiniteDifference,
)
from dynamics_backends.names import unknown_name
from dynamics_backends.protocol import (
    DynamicsBackend,
    HasPartials,
    HoldsBackend,
    Map,
    MissingCapability,
    NeedsScheme,
    unwrapped,
)
from dynamics_backends.rigid_body.passes.drivers import Driver
from dynamics_backends.user_backend import UserBackend, is_user_backend, wrap_user_backend

ENGINES = ("compiled", "numpy", "auto")
DEFAULT_ENGINE = "auto"
"""Default engine: compiled."""


def _numeric(method: Callable[..., DynamicsBackend], map: Map, engine: str, **options: Any) -> DynamicsBackend:
    """Backend of a method that evaluates the map on numbers, by an engine ("numpy" or "compiled")."""
    return method(on_engine(map, engine), **options)


def _built_in(method: Callable[..., Method], map: Map, engine: str, **options: Any) -> Method:
    """Backend of a method of this package; compiled code evaluates its derivatives if the engine traces the map.

    Raises TypeError for a map without one of the attributes of :class:`~dynamics_backends.protocol.Map`.
    """
    if missing := [name for name in Map.__annotations__ if not hasattr(map, name)]:
        raise TypeError(
            f"{type(map).__name__} is no system: it has no {', '.join(missing)}; extend trajopt.FunctionMap"
        )
    backend = method(on_engine(map, engine), **options)
    if _is_traced(map, engine):
        from dynamics_backends.tape.compiled_derivatives import CompiledDerivatives

        backend.compiled = CompiledDerivatives()
    return backend


def _casadi_ad(map: Map, **options: Any) -> Method:
    """Backend of CasADi's derivatives."""
    from dynamics_backends.methods.casadi_ad import CasadiAD

    return CasadiAD(map, **options)


def _registered(name: str, factory: Any) -> Callable[..., DynamicsBackend]:
    """Adapt a user's factory to the registry's signature (map, engine, options). Raises TypeError if it is not callable.

    A subclass of Method gets the map evaluated by the engine. Other factories get the map itself; a result that is no Method is
    wrapped as a user-defined backend.
    """
    if not callable(factory):
        raise TypeError(f"backend {name!r}: expected a factory of (system, **options), got a {type(factory).__name__}")
    if isinstance(factory, type) and issubclass(factory, Method):
        return partial(_numeric, factory)

    def made(map: Map, engine: str, **options: Any) -> DynamicsBackend:
        """Backend by the user's factory, which ignores the engine; a result that is no Method is wrapped."""
        found = factory(map, **options)
        return found if isinstance(found, Method) else wrap_user_backend(found, map, name, options)

    return made


METHODS: Registry[Callable[..., DynamicsBackend]] = Registry(
    "backend",
    "backends",
    {
        "analytic": partial(_built_in, Analytic.of),
        "forward_ad": partial(_built_in, ForwardAD),
        "structured_ad": partial(_built_in, StructuredAD),
        "complex_step": partial(_built_in, ComplexStep),
        "casadi_ad": partial(_built_in, _casadi_ad),
        "central_difference": partial(_built_in, CentralDifference),
        "forward_difference": partial(_built_in, partial(FiniteDifference, scheme="forward")),
    },
    _registered,
)
"""Backends by name; each is called with a map, the name of an engine and the method's options."""


def register_backend(name: str, factory: Callable[..., Any]) -> None:
    """Register a backend under a name, for :func:`make_backend`, configurations, comparisons and the command line.

    factory: called with a system, and with the options of :func:`make_backend` by keyword. It returns an object with
    ``f(x, u, t, p)``, the value (N, n_out), and ``jacobians(x, u, t, p)``, a tuple (value, fx, fu) with fx (N, n_out, ndx) and fu
    (N, n_out, nu), in the tangent space of the state. Arguments are x (N, nx), u (N, nu), t (N,) [s] and p, name -> (N, n), all
    float64. DDP and exact Hessians need ``hessian_contraction(x, u, t, p, lam)`` too, which returns the tuple of ``jacobians`` and
    the second derivatives (xx, ux, uu) of lam' f for lam (N, n_out): (N, ndx, ndx), (N, nu, ndx), (N, nu, nu). A class of methods
    (:class:`~dynamics_backends.methods.base.Method`) is a factory, too. A package registers its backends by entry points of the
    group ``trajopt.backends``. An earlier backend of the same name is replaced.

    Raises ValueError for the name of a built-in backend or an empty name, TypeError for a factory that cannot be called.
    """
    METHODS.register(name, factory)


def backend_names() -> tuple[str, ...]:
    """Names accepted by :func:`make_backend`."""
    return tuple(METHODS)


def make_backend(map: Map, method: str = "analytic", *, engine: str | None = None, **options: Any) -> DynamicsBackend:
    """Create the backend ``method`` for a map; ``options`` are passed to the method (such as ``step`` of finite differences).

    ``engine``: compiled (the package's C library), numpy, or auto (the default), which is compiled. Raises UnknownName with the
    nearest known name for an unknown one; MissingCapability if the map lacks a capability that the method needs.

    >>> import trajopt as to
    >>> to.make_backend(to.FreeBody(to.chain(3)), "forward_ad").name
    'forward_ad'
    >>> to.make_backend(to.FreeBody(to.chain(3)), "finite_difference")
    Traceback (most recent call last):
    dynamics_backends.names.UnknownName: no backend is named 'finite_difference'; ...
    """
    engine = DEFAULT_ENGINE if engine is None else engine
    make = METHODS[method]
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    resolved = engine_in_use(engine)
    backend = make(map, resolved, **options)
    if isinstance(backend, UserBackend):
        return backend
    backend.engine, backend.options = resolved, options
    return backend


def engine_in_use(engine: str) -> str:
    """Name of the engine; "auto" is replaced by the engine that it selects."""
    return "compiled" if engine == "auto" else engine


def missing_capability(map: Map, method: str) -> str | None:
    """Reason why a method cannot differentiate a map, or None: "analytic" needs partial derivatives, others need nothing.

    It does not test if the map can be traced: if not, traced methods use NumPy or finite differences later, or raise TraceError.
    """
    return without_partials(map) if method == "analytic" and not isinstance(map, HasPartials) else None


def as_backend(given: DynamicsBackend | Map) -> DynamicsBackend:
    """Convert a system or a user-defined backend to a backend for solvers; a backend is returned unchanged.

    A system gets the method ``analytic`` if it has closed-form derivatives, else ``forward_ad``. Raises TypeError for other types.
    """
    if isinstance(given, (Method, UserBackend, HoldsBackend)):
        return given
    if is_user_backend(given):
        return wrap_user_backend(given)
    if not (callable(given) and hasattr(given, "manifold") and hasattr(given, "n_out")):
        raise TypeError(
            f"expected a system or a backend of one, got {type(given).__name__}; a robot's model becomes a system by"
            " trajopt.FreeBody(model), a function by trajopt.FunctionMap(function, nx, nu)"
        )
    return make_backend(given, "analytic" if isinstance(given, HasPartials) else "forward_ad")


def source_of(backend: DynamicsBackend) -> Map | None:
    """System of a backend that other backends can differentiate; None for a user-defined backend without a system."""
    return backend.system if isinstance(backend, UserBackend) else unwrapped(backend.map)


def same_method(backend: DynamicsBackend, map: Map) -> DynamicsBackend:
    """Create a backend of another map by the same method with the same options, on the same engine.

    Raises MissingCapability for a backend with derivatives of one map only.
    """
    if isinstance(backend, UserBackend):
        raise MissingCapability(
            f"the backend {backend.name} cannot differentiate {type(map).__name__}, only the dynamics it was made for; choose a "
            "built-in backend for features that change the dynamics (free durations)"
        )
    return make_backend(map, backend.name, engine=backend.engine, **backend.options)


def on_engine(map: Map, engine: str) -> Map:
    """Map evaluated by an engine: unchanged if the engine does not trace it, else as a tape of the library."""
    if not _is_traced(map, engine):
        return map
    from dynamics_backends.tape.traced_map import TracedMap

    return TracedMap(map)


def _is_traced(map: Map, engine: str) -> bool:
    """True if an engine traces a map: any engine but numpy, except a map of whole time steps (NeedsScheme), which iterates."""
    return engine != "numpy" and not isinstance(map, NeedsScheme)


def library_driver() -> Driver:
    """Driver of the package's library for recursions on real arrays."""
    from dynamics_backends.tape.driver import by_library

    return by_library


def kinematics_of(model: Any, frame: int) -> Callable[[Any], Any]:
    """Return the function q (nq, N) -> placement and Jacobian of a robot's frame, traced once to straight-line code and cached."""
    from dynamics_backends.methods.symbolic_map import traced_kinematics

    return traced_kinematics(model, frame)
