"""Backends by name: the two lines of a config file that choose how derivatives are computed, and by what.

A method says how a map is differentiated, an engine what evaluates it: ``numpy``, or ``compiled`` code, which a robot's
map uses for the recursions inside it and every other map as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from dynamics_backends.extensions import Registry
from dynamics_backends.methods.analytic import Analytic, without_partials
from dynamics_backends.methods.base import Method
from dynamics_backends.methods.complex_step import ComplexStep
from dynamics_backends.methods.exact_method import ExactMethod
from dynamics_backends.methods.finite_difference import (
    LARGEST_STEP as LARGEST_STEP,
    CentralDifference,
    FiniteDifference,
)
from dynamics_backends.methods.forward_ad import ForwardAD, StructuredAD
from dynamics_backends.names import unknown_name
from dynamics_backends.own_backend import OwnBackend, is_own, own_backend
from dynamics_backends.protocol import (
    DynamicsBackend,
    HasDriver,
    HasPartials,
    HasRecursions,
    HoldsBackend,
    Map,
    MissingCapability,
    NeedsScheme,
    unwrapped,
)
from dynamics_backends.rigid_body.passes.drivers import Driver, run

ENGINES = ("compiled", "numpy", "auto")
_READY = "ready"
"""What :func:`at_once` evaluates with."""
DEFAULT_ENGINE = "auto"
"""Compiled wherever this machine has a C compiler."""
_LOG = logging.getLogger(__name__)


def _numeric(method: Callable[..., DynamicsBackend], map: Map, engine: str, **options: Any) -> DynamicsBackend:
    """A method that evaluates the map on numbers."""
    return method(on_engine(map, engine), **options)


def _exact(method: Callable[..., ExactMethod], map: Map, engine: str, **options: Any) -> DynamicsBackend:
    """A numeric method with exact second derivatives, which are compiled where the map is compiled as a whole."""
    backend = method(on_engine(map, engine), **options)
    if engine == "compiled" and not isinstance(map, HasDriver):
        from dynamics_backends.compiled.sources.traced_hessian import TracedHessian

        backend.compiled_hessian = TracedHessian(map)
    return backend


def _analytic(map: Map, engine: str, **options: Any) -> DynamicsBackend:
    """The closed form is the map's own; the engine serves the recursions inside, or a map without them as a whole."""
    if engine == "compiled" and isinstance(map, NeedsScheme):
        from dynamics_backends.compiled.sources.stepped_analytic import SteppedAnalytic

        return SteppedAnalytic(map, **options)  # type: ignore[arg-type]
    if engine != "compiled" or isinstance(map, HasDriver) or not isinstance(map, HasPartials):
        return Analytic.of(on_engine(map, engine), **options)
    from dynamics_backends.compiled.sources.traced_analytic import TracedAnalytic

    return TracedAnalytic.of(map, **options)


def _casadi_ad(map: Map, engine: str, **options: Any) -> DynamicsBackend:
    if engine != "compiled":
        from dynamics_backends.methods.casadi_ad import CasadiAD

        return CasadiAD(map, **options)
    from dynamics_backends.compiled.sources.casadi_kernel import CompiledCasadiAD

    return CompiledCasadiAD(on_engine(map, engine), **options)


def _registered(name: str, factory: Any) -> Callable[..., DynamicsBackend]:
    """A user's factory as the registry calls it. Raises TypeError for what cannot be called."""
    if not callable(factory):
        raise TypeError(f"backend {name!r}: expected a factory of (system, **options), got a {type(factory).__name__}")
    if isinstance(factory, type) and issubclass(factory, Method):
        return partial(_numeric, factory)

    def made(map: Map, engine: str, **options: Any) -> DynamicsBackend:
        found = factory(map, **options)
        return found if isinstance(found, Method) else own_backend(found, map, name, options)

    return made


METHODS: Registry[Callable[..., DynamicsBackend]] = Registry(
    "backend",
    "backends",
    {
        "analytic": _analytic,
        "forward_ad": partial(_exact, ForwardAD),
        "structured_ad": partial(_exact, StructuredAD),
        "complex_step": partial(_exact, ComplexStep),
        "casadi_ad": _casadi_ad,
        "central_difference": partial(_numeric, CentralDifference),
        "forward_difference": partial(_numeric, partial(FiniteDifference, scheme="forward")),
    },
    _registered,
)
"""Each is called with a map, the name of an engine and the method's own options."""


def register_backend(name: str, factory: Callable[..., Any]) -> None:
    """Register a backend under a name, for :func:`make_backend`, configurations, comparisons and the command line.

    factory: called with a system, and with the options of :func:`make_backend` by keyword. It returns an object with
    ``f(x, u, t, p)``, the value (N, n_out), and ``jacobians(x, u, t, p)``, a tuple (value, fx, fu) with fx (N, n_out, ndx) and fu
    (N, n_out, nu), in the tangent space of the state. Arguments are x (N, nx), u (N, nu), t (N,) [s] and p, name -> (N, n), all
    float64. DDP and exact Hessians need ``hessian_contraction(x, u, t, p, lam)`` too, which returns the tuple of ``jacobians`` and
    the second derivatives (xx, ux, uu) of lam' f for lam (N, n_out): (N, ndx, ndx), (N, nu, ndx), (N, nu, nu). A class of methods
    (:class:`~dynamics_backends.methods.base.Method`) is a factory, too. A package registers its backends by entry points of the
    group ``trajopt.backends``. A backend that was registered before is replaced.

    Raises ValueError for the name of a built-in backend, TypeError for a factory that cannot be called.
    """
    METHODS.register(name, factory)


def backend_names() -> tuple[str, ...]:
    """The names accepted by :func:`make_backend`."""
    return tuple(METHODS)


def make_backend(map: Map, method: str = "analytic", *, engine: str | None = None, **options: Any) -> DynamicsBackend:
    """The backend ``method`` for a map; ``options`` go to the method (for example ``step`` of the finite differences).

    ``engine``: compiled, numpy, or auto (the default) for the first of them that this machine can run. Raises UnknownName for a
    name that is not known, with the nearest known one; MissingCapability where the map lacks what the method needs; later, at
    the first evaluation by compiled code, CompilerError without a C compiler and TraceError for a function that cannot be traced.

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
    if isinstance(backend, OwnBackend):
        return backend
    backend.engine, backend.options = resolved, options
    return backend


def engine_in_use(engine: str) -> str:
    """The engine's name, "auto" replaced by the engine that it selects on this machine."""
    return _available() if engine == "auto" else engine


def missing_capability(map: Map, method: str) -> str | None:
    """The reason why a method cannot differentiate a map, None if it can; that a function cannot be traced shows later
    (TraceError)."""
    return without_partials(map) if method == "analytic" and not isinstance(map, HasPartials) else None


def as_backend(given: DynamicsBackend | Map) -> DynamicsBackend:
    """A backend as solvers call it; for a system alone its default: ``analytic`` where it has closed-form derivatives, else
    ``forward_ad``.

    Raises TypeError for anything else.
    """
    if isinstance(given, (Method, OwnBackend, HoldsBackend)):
        return given
    if is_own(given):
        return own_backend(given)
    if not (callable(given) and hasattr(given, "manifold") and hasattr(given, "n_out")):
        raise TypeError(
            f"expected a system or a backend of one, got {type(given).__name__}; a robot's model becomes a system by"
            " trajopt.FreeBody(model), a function by trajopt.FunctionMap(function, nx, nu)"
        )
    return make_backend(given, "analytic" if isinstance(given, HasPartials) else "forward_ad")


def source_of(backend: DynamicsBackend) -> Map | None:
    """The system of a backend that others can differentiate; None where a user's backend was made for none."""
    return backend.system if isinstance(backend, OwnBackend) else unwrapped(backend.map)


def same_method(backend: DynamicsBackend, map: Map) -> DynamicsBackend:
    """A backend of another map by the same method with the same options, on the same engine.

    Raises MissingCapability for a backend that has values and derivatives of its own map alone.
    """
    if isinstance(backend, OwnBackend):
        raise MissingCapability(
            f"the backend {backend.name} has derivatives of its own dynamics alone, not of {type(map).__name__}; choose a built-in "
            "backend for what changes the dynamics (free durations)"
        )
    found = make_backend(map, backend.name, engine=backend.engine, **backend.options)
    return at_once(found) if getattr(backend, "ready", False) else found


def at_once(backend: DynamicsBackend) -> DynamicsBackend:
    """A backend of this map by this method without a compiler: NumPy, and the kernels of the library."""
    found = METHODS[backend.name](unwrapped(backend.map), _READY, **backend.options)
    found.engine, found.options = "numpy", backend.options
    if isinstance(found, Method):
        found.ready = True
    return found


def until_compiled(map: Map) -> Map:
    """The map evaluated without a compiler: by the kernels of the library, where it has a driver."""
    if isinstance(map, HasRecursions):
        return map.until_compiled(ready_driver())
    return map.with_driver(ready_driver()) if isinstance(map, HasDriver) else map


def steps_at_once(backend: DynamicsBackend, method: Any, substeps: int, *, semi_implicit: bool) -> Any:
    """The time steps of a backend of :func:`at_once` by loops that are there, without run-time parameters; None where none serve.

    See :func:`dynamics_backends.compiled.sources.ready_steps.steps_at_once`.
    """
    if not getattr(backend, "ready", False):
        return None
    from dynamics_backends.compiled.sources.ready_steps import steps_at_once

    return steps_at_once(unwrapped(backend.map), method, substeps, semi_implicit=semi_implicit)


def on_engine(map: Map, engine: str) -> Map:
    """The map evaluated by an engine: for numpy itself, for what serves at once with the loops that are there."""
    if engine == _READY:
        return until_compiled(map)
    if engine != "compiled":
        return map.with_driver(run) if isinstance(map, HasDriver) else map
    if isinstance(map, HasDriver):
        return map.with_driver(shared_driver())
    from dynamics_backends.compiled.sources.traced_map import TracedMap

    return TracedMap(map)


@lru_cache
def shared_driver(tier: str = "auto") -> Any:
    """The process's compiled driver of this tier: kernels are compiled and loaded once for all backends."""
    from dynamics_backends.compiled.loops.driver import CompiledDriver

    return CompiledDriver(tier)


def fastest_driver() -> Driver:
    """The fastest driver for recursions on batches: kernels of the library, and compiled ones where there is a C compiler."""
    return shared_driver() if _available() == "compiled" else ready_driver()


@lru_cache(maxsize=1)
def ready_driver() -> Driver:
    """The driver for recursions at few configurations: the kernels of the library, else NumPy; nothing is compiled."""
    from dynamics_backends.compiled.loops.ready import ReadyLoops

    return ReadyLoops()


def kinematics_of(model: Any, frame: int) -> Callable[[Any], Any]:
    """What evaluates the placement and the Jacobian of a frame of a robot at batches of configurations (nq, N), see
    :mod:`~dynamics_backends.methods.traced_kinematics`."""
    from dynamics_backends.methods.traced_kinematics import traced_kinematics

    return traced_kinematics(model, frame)


@lru_cache(maxsize=1)
def _available() -> str:
    from dynamics_backends.compiled.runtime.toolchain import CompilerError, find_toolchain

    try:
        find_toolchain()
    except CompilerError as error:
        _LOG.warning("engine = numpy: %s", error)
        return "numpy"
    return "compiled"
