"""Time steps in CasADi's virtual machine, for long sequential rollouts without a compiler.

One substep x (+) h f(x, u, t, p) is traced once, with h as an input, and repeated by ``mapaccum``. Results equal those of NumPy to
rounding. A single knot takes about a hundredth of the time in NumPy, which needs milliseconds per substep for any batch size.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dynamics_backends.compiled.interface.sources import (
    SteppedContact,
    Symbols,
    TraceError,
    stepped_function,
    symbolic_value,
)
from dynamics_backends.protocol import IMPLICIT_STEP, Array, FunctionMap, Parameters, is_generic, unwrapped
from dynamics_backends.registry import without_compiler
from dynamics_backends.scalar import Rows, Scalar
from dynamics_backends.symbols import ca, tracing
from trajopt.problem.impact_stage import ImpactStage
from trajopt.problem.ocp import OCP, DiscreteMap
from trajopt.step.integrators import semi_implicit_increment, step_rows
from trajopt.step.sensitivities import SampledSystem

_LOG = logging.getLogger(__name__)
_DURATION = "duration of the substep"
"""Additional parameter of a traced substep; no system has a parameter of this name."""
_substeps: WeakKeyDictionary[Any, dict[tuple[str, tuple[tuple[str, int], ...]], Any]] = WeakKeyDictionary()
"""Traced substeps by backend, scheme and sizes of the parameters; None for a system that cannot be traced."""


class InterpretedStep(SampledSystem):
    """Sampled system whose steps run in CasADi's virtual machine, or in NumPy if it cannot be traced.

    Derivatives are those of the sampled system in NumPy.
    """

    def __init__(self, sampled: SampledSystem) -> None:
        vars(self).update(vars(sampled))
        self.sampling = None
        self._sampled = sampled
        self._repeated = lru_cache(maxsize=8)(_repeated)

    def step(self, x: Array, u: Array, t: Array | float, dt: Array | float, p: Parameters | None = None) -> Array:
        """Return x_next (N, nx) from x (N, nx), u (N, nu); t, dt: a number or (N,) [s]."""
        parameters = {name: np.asarray(value, float) for name, value in (p or {}).items()}
        substep = _traced(self, tuple((name, value.shape[-1]) for name, value in parameters.items()))
        if substep is None:
            return self._sampled.step(x, u, t, dt, p)
        x, u = np.asarray(x, float), np.asarray(u, float)
        n, steps = len(x), self.substeps
        h = np.broadcast_to(np.asarray(dt, float), (n,)) / steps
        times = np.broadcast_to(np.asarray(t, float), (n,))[:, None] + h[:, None] * np.arange(steps)
        held = [np.broadcast_to(value, (n, value.shape[-1])) for value in parameters.values()]
        rows = [np.repeat(value.T, steps, axis=1) for value in (u, *held, h[:, None])]
        x_next = self._repeated(substep, steps, n)(x.T, rows[0], times.reshape(1, -1), *rows[1:])
        return np.ascontiguousarray(np.asarray(x_next)[:, steps - 1 :: steps].T)


def interpreted(ocp: OCP) -> OCP:
    """Problem for rollouts: the dynamics without costs and constraints, evaluated without a compiler.

    >>> import numpy as np, trajopt as to
    >>> cart = to.FunctionMap(lambda x, u, t, p: [x[1], u[0]], 2, 1, second_order=True)
    >>> step = to.SampledSystem(to.make_backend(cart, "forward_ad"), "rk4", substeps=64)
    >>> ocp = interpreted(to.OCP.single_phase(step, [0.0, 0.0], 20, 0.1))
    >>> bool(np.allclose(ocp.phases[0].dynamics.step([[0.0, 0.0]], [[2.0]], 0.0, 0.1), [[0.01, 0.2]]))
    True
    """
    phases = [replace(p, dynamics=_interpreted(p.dynamics), terms=(), constraints=()) for p in ocp.phases]
    return replace(ocp, phases=tuple(phases), terminal=(), terminal_constraints=())


def _interpreted(dynamics: DiscreteMap) -> DiscreteMap:
    if type(dynamics) is SampledSystem and is_generic(dynamics.stages.map):
        return InterpretedStep(dynamics)
    if type(dynamics) is ImpactStage and dynamics.backend.engine == "compiled":
        return dynamics.under(without_compiler(dynamics.backend))
    return dynamics


def _traced(dynamics: SampledSystem, sizes: tuple[tuple[str, int], ...]) -> Any | None:
    """CasADi function of one substep, of x, u, t, the parameters and its duration [s]; None if the system cannot be traced."""
    known, key = _substeps.setdefault(dynamics.stages, {}), (dynamics.scheme, sizes)
    if key not in known:
        known[key] = _trace(dynamics, dict(sizes))
    return known[key]


def _trace(dynamics: SampledSystem, sizes: Mapping[str, int]) -> Any | None:
    if isinstance(unwrapped(dynamics.stages.map), SteppedContact):
        return _trace_stepped(dynamics, sizes)
    system, scheme = dynamics.stages.map, dynamics.scheme

    def substep(x: Rows, u: Rows, t: Scalar, p: Mapping[str, Rows]) -> Rows:
        own = {name: value for name, value in p.items() if name != _DURATION}
        return step_rows(system, scheme, 1, x, u, t, p[_DURATION][0], own)

    with tracing:
        traced = FunctionMap(substep, dynamics.manifold, dynamics.nu, dynamics.manifold.nx)
        symbols = Symbols.of(traced, {**sizes, _DURATION: 1})
        try:
            value = symbolic_value(traced, symbols.x, symbols.u, symbols.t, symbols.p)
        except TraceError:
            return None
        return ca.Function("substep", list(symbols), [ca.cse(value)])


def _trace_stepped(dynamics: SampledSystem, sizes: Mapping[str, int]) -> Any | None:
    """CasADi function of a substep with contacts solved iteratively; None if the ground or contact law cannot be traced."""
    system, manifold = unwrapped(dynamics.stages.map), dynamics.manifold
    with tracing:
        symbols = Symbols.of(system, {**sizes, IMPLICIT_STEP: 1})
        xdot = ca.SX.sym("xdot", manifold.ndx)
        x_next = manifold.integrate(symbols.x, semi_implicit_increment(xdot, symbols.p[IMPLICIT_STEP]))
        advance = ca.Function("advance", [symbols.x, xdot, symbols.p[IMPLICIT_STEP]], [ca.vertcat(x_next)])
        inputs = [ca.MX.sym(f"i{i}", s.numel()) for i, s in enumerate(symbols)]
        try:
            rate = stepped_function(system, symbols)(*inputs)
        except LookupError:  # a missing parameter would fail in NumPy too
            raise
        except Exception as reason:  # a user-defined ground or law that does not work on symbols
            _LOG.info("time steps run in NumPy: %s", reason)
            return None
        return ca.Function("substep", inputs, [advance(inputs[0], rate, inputs[-1])])


def _repeated(substep: Any, steps: int, n: int) -> Callable[..., Any]:
    """CasADi function for the states after each of ``steps`` substeps, from n start states in columns."""
    return substep.mapaccum(steps).map(n)
