"""Errors in user functions, backends and time steps, parameters that no function reads, and functions that are evaluated slowly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from dynamics_backends.derivative_check import user_code_line
from dynamics_backends.protocol import (
    Array,
    DynamicsBackend,
    FunctionMap,
    InScaledTime,
    Map,
    Parameters,
    innermost,
    unwrapped,
)
from trajopt.problem.guess import Guess
from trajopt.problem.impact_stage import next_state_of
from trajopt.problem.ocp import OCP, Phase
from trajopt.problem.terms import parameters_at
from trajopt.step.sensitivities import missing_curvature
from trajopt.validation.user_derivatives import user_backends, user_steps


def function_warnings(ocp: OCP) -> Iterator[str]:
    """Yield warnings about user functions that are evaluated knot by knot with finite differences.

    These are known after a first call of each function, as in :func:`function_mistakes`.
    """
    messages = [f"{what}: {map.called.why}" for what, map, _ in _functions(ocp) if map.called.why]
    yield from dict.fromkeys(messages)


def function_mistakes(ocp: OCP, guess: Guess | None = None) -> Iterator[str]:
    """Yield errors of user functions, backends and time steps at the first knot of a guess; default: x0 and zero controls.

    Each sentence names the part of the problem. Terminal parts are evaluated there too.
    """
    x = ocp.x0 if guess is None else np.asarray(guess.xs[0], float)
    u = np.zeros(ocp.nu) if guess is None else np.asarray(guess.us[0], float)
    messages = [(what, _failure(map, x, u, p)) for what, map, p in _functions(ocp)]
    messages += [(what, _backend_failure(backend, x, u, p)) for what, backend, p in user_backends(ocp)]
    messages += [(what, _step_failure(phase, x, u, ocp.start)) for what, phase in user_steps(ocp)]
    yield from dict.fromkeys(f"{what}: {why}" for what, why in messages if why)


def hessian_warnings(ocp: OCP) -> Iterator[str]:
    """Yield one warning if some time step has no second derivatives, else one per phase with differences in NumPy.

    The latter are for phases on the compiled engine whose second derivatives are taken by finite differences.
    """
    from trajopt.stage.engine import hessian_runs_in_numpy
    from trajopt.stage.not_compiled import SECOND, by_differences, explanation

    if (reason := missing_curvature(ocp)) is not None:
        yield f"{reason}; until then auto, ipm and sqp approximate the Hessian, and ddp rejects the problem"
        return
    for i, phase in enumerate(ocp.phases):
        sampling = phase.dynamics.sampling
        if sampling is not None and hessian_runs_in_numpy(phase):
            yield str(explanation(ocp, i, by_differences(sampling.called), SECOND))


class _Recorded(Mapping[str, Array]):
    """Parameters (n,) of one knot that record the names of those that are read."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        self._values, self.read = values, set[str]()

    def __getitem__(self, name: str) -> Array:
        self.read.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def unread_parameters(ocp: OCP) -> Iterator[str]:
    """Yield a warning for each parameter that no user function among the dynamics of all phases reads at x0.

    None for dynamics that are no plain user functions, or raise an error for numbers at x0.
    """
    given: dict[str, None] = {}
    read = set[str]()
    for phase in ocp.phases:
        if not phase.parameters:
            continue
        map = phase.system
        map = map.map if isinstance(map, InScaledTime) and hasattr(map, "map") else map
        function = next_state_of(map) or unwrapped(map)
        if not isinstance(function, FunctionMap) or type(function).__call__ is not FunctionMap.__call__:
            return
        p = _Recorded(parameters_at(phase.parameters, 0))
        try:
            with np.errstate(all="ignore"):
                function.function(ocp.x0[: function.manifold.nx].copy(), np.zeros(function.nu), ocp.start, p)
        except Exception:  # errors of user functions are reported elsewhere
            return
        given |= dict.fromkeys(phase.parameters)
        read |= p.read
    for name in given:
        if name not in read:
            others = ", ".join(repr(other) for other in sorted(read)) or "none"
            yield f"the dynamics do not read the parameter {name!r} at x0 (they read: {others}): check its name"


def _functions(ocp: OCP) -> Iterator[tuple[str, FunctionMap, Parameters]]:
    """Yield user functions (FunctionMap) with their role, such as "term 'speed'", and their parameters at the first knot."""
    for what, map, p in _maps(ocp):
        if isinstance(own := innermost(map), FunctionMap):
            yield what, own, p


def _step_failure(phase: Phase, x: Array, u: Array, t: float) -> str:
    """Return the error of a user-defined time step for a batch of two equal knots, including wrong shapes, or ""."""
    step, n, nx = phase.dynamics, phase.dynamics.manifold.ndx, len(x)
    given = np.tile(x, (2, 1)), np.tile(u[: step.nu], (2, 1)), np.full(2, t), np.full(2, phase.dt[0])
    p, before = parameters_at(phase.parameters, 0), [part.copy() for part in given]
    try:
        with np.errstate(all="ignore"):
            found = step.step(*given, p), *step.linearize(*given, p)[:3]
    except Exception as error:  # user code may raise anything
        return f"{type(error).__name__}{user_code_line(error, None)}: {error}"
    for name, part, old in zip(("x", "u", "t", "dt"), given, before, strict=True):
        if not np.array_equal(part, old, equal_nan=True):
            return f"step or linearize changes its argument {name} in place; let it change a copy"
    shapes = {"step": (2, nx), "linearize: x_next": (2, nx), "linearize: A": (2, n, n), "linearize: B": (2, n, step.nu)}
    for (name, shape), value in zip(shapes.items(), found, strict=True):
        if getattr(value, "shape", None) != shape:
            own = f"has shape {value.shape}" if isinstance(value, np.ndarray) else f"is a {type(value).__name__}"
            return f"{name} {own}; expected an array of shape {shape}"
    return ""


def _backend_failure(backend: DynamicsBackend, x: Array, u: Array, p: Parameters) -> str:
    """Return the error of a user-defined backend for a batch of two equal knots, including wrong shapes, or ""."""
    given = np.tile(x[: backend.map.manifold.nx], (2, 1)), np.tile(u[: backend.map.nu], (2, 1)), 0.0, p
    try:
        with np.errstate(all="ignore"):
            backend.f(*given)
            backend.jacobians(*given)
            second = getattr(backend, "hessian_contraction", None)
            if second is not None:
                second(*given, np.ones((2, backend.map.n_out)))
    except Exception as error:  # user code may raise anything
        own = isinstance(error, ValueError) and backend.name in str(error)
        where = user_code_line(error, None)
        return str(error) if own else f"backend {backend.name} raises {type(error).__name__}{where}: {error}"
    return ""


def _maps(ocp: OCP) -> Iterator[tuple[str, Map, Parameters]]:
    """Yield dynamics, cost terms and constraints with their role in the problem and their parameters at the first knot.

    Dynamics that are user-defined discrete maps are left out.
    """
    for i, phase in enumerate(ocp.phases):
        if (system := phase.system) is not None:
            yield f"dynamics of phase {i}", next_state_of(system) or system, parameters_at(phase.parameters, 0)
    for kind, parts in (("term", ocp.terms()), ("constraint", ocp.constraints())):
        for part in parts:
            yield f"{kind} {part.name!r}", part.residual, parameters_at(part.parameters, 0)


def _failure(map: FunctionMap, x: Array, u: Array, p: Parameters) -> str:
    """Return the error of a function, or "". The first call also determines if the function is evaluated knot by knot."""
    rows = {name: np.asarray(v, float)[:, None] for name, v in p.items()}
    try:
        with np.errstate(all="ignore"):
            map.called.counted(list(map(_column(x[: map.manifold.nx]), _column(u[: map.nu]), np.zeros(1), rows)))
    except Exception as error:
        return next(iter(getattr(error, "__notes__", ())), str(error))
    return ""


def _column(x: Array) -> Array:
    """State or control as a batch of one, (n, 1), copied."""
    return x[:, None].copy()
