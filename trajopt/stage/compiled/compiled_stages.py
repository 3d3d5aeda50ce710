"""Stages of a phase in the package's C library: see :mod:`trajopt.stage.stages`. Results equal those of NumPy to rounding.

Time steps must use a backend that :mod:`~dynamics_backends.compiled.sources.dynamics_source` can compile. Numbers that change
between solves (dt, weights, references, parameters, bounds) are inputs, so functions are traced once for the structure of a
phase. If the library has second derivatives of the whole stage, first derivatives store the substeps of the integrator. Second
derivatives at the same point reuse them and need only the backward sweep through the substeps.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from copy import copy
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from dynamics_backends.compiled.runtime.memory import KNOTS_PER_THREAD, Workspaces, address, aligned, over_threads
from dynamics_backends.protocol import Array, Hessians
from trajopt.lq.lq_solver import CurvaturePart
from trajopt.problem.ocp import OCP, Phase
from trajopt.stage.compiled.compiled_end import shapes_of
from trajopt.stage.compiled.library import (
    FirstData,
    Library,
    PartsData,
    PointData,
    SecondData,
    StagesData,
    SweepData,
    TrialsData,
)
from trajopt.stage.numpy_stages import NumpyStages
from trajopt.stage.source.constraint_source import constraint_theta
from trajopt.stage.source.term_source import by_knot, theta_of
from trajopt.stage.stages import Knots, StageDerivatives, StageValues, Trials, workspace_for

_LONG = np.dtype(ctypes.c_long)


class CompiledStages:
    """Compiled evaluation of the K knots of a phase, see :class:`~trajopt.stage.stages.Stages`.

    library: library of the phase's structure. index: of the phase in ``ocp``. plain: NumPy stages with the library's terms and
    constraints, for second derivatives that the library lacks. curved: returns the library of second derivatives of the time step
    alone, or None, and is called if ``library`` has none. report: called when NumPy evaluates second derivatives.
    """

    compiled = True

    def __init__(
        self,
        library: Library,
        ocp: OCP,
        index: int,
        plain: NumpyStages,
        curved: Callable[[], Library | None] = lambda: None,
        report: Callable[[], None] = lambda: None,
    ) -> None:
        phase, n = ocp.phases[index], ocp.manifold.ndx
        sampling: Any = phase.dynamics.sampling
        self._structure = _structure(plain, phase)
        self.library, self.plain, self._curved_alone, self._report = library, plain, curved, report
        self._n_substeps, self._first_knot = sampling.substeps, plain.start
        self._sizes = (ocp.manifold.nx, n, n, ocp.nu, sum(c.residual.n_out for c in plain.constraints))
        self._values = [np.array(v) for v in _values_of(phase, plain)]
        self._data: dict[Library, ctypes.Structure] = {}
        self.data = self._data_for(self.library)
        self._stored_at = b""
        self._last: tuple[bytes, StageDerivatives | None] = b"", None

    def matches(self, plain: NumpyStages, phase: Phase) -> bool:
        """True if ``phase``, with NumPy stages ``plain``, has the same structure, so that its values can be loaded.

        Structure: dynamics with their integration, number of knots, parameter sizes, and shapes of terms and constraints.
        """
        return self._structure == _structure(plain, phase)

    def load_values(self, plain: NumpyStages, phase: Phase) -> None:
        """Load times, weights and parameters of another phase of the same structure, in place; cached derivatives are dropped.

        ``plain`` replaces the NumPy stages.
        """
        self.plain, self._stored_at, self._last = plain, b"", (b"", None)
        for own, values in zip(self._values, _values_of(phase, plain), strict=True):
            own[:] = values

    def _data_for(self, library: Library) -> ctypes.Structure:
        """Return the struct stages_t of the phase for a library; cached."""
        if library not in self._data:
            self._data[library] = StagesData(library.structure, self._n_substeps, *map(address, self._values))
        return self._data[library]

    # -- values and first order -----------------------------------------------------------------------------------------
    def values(self, at: Knots) -> StageValues:
        """Return next states, defects, weighted costs and constraints at the knots."""
        nx, n, _, _, ng = self._sizes
        K, inputs = len(at.x), _contiguous(at)
        out = StageValues(np.empty((K, nx)), np.empty((K, n)), np.empty(K), np.empty((K, ng)))
        self._evaluate(self.library, self.library.first, inputs, FirstData(*map(address, out)))
        return out

    def first(self, at: Knots, *, quadratic: bool = True, out: StageDerivatives | None = None) -> StageDerivatives:
        """Return values and first derivatives, in ``out`` if given, with Q, S, R of the cost if ``quadratic``.

        The substeps, or the Q, S, R of a library without second derivatives, are cached for :meth:`second` at the same point.
        """
        over, inputs = out or workspace_for(len(at.x), self._sizes, quadratic), _contiguous(at)
        v, substeps = over.values, self._stored_substeps
        cost = map(address, (over.Q, over.S, over.R)) if quadratic else (None, None, None)
        arrays = [*v, over.A, over.B, over.lx, over.lu, over.gx, over.gu]
        results = FirstData(*map(address, arrays), *cost, None if substeps is None else address(substeps))
        self._stored_at = b""
        self._evaluate(self.library, self.library.first, inputs, results)
        point = _bytes_of(inputs)
        if substeps is not None:
            self._stored_at = point
        if quadratic and not self.library.shape.second:
            self._last = point, over
        return over

    def _evaluate(
        self,
        library: Library,
        function: Any,
        at: Knots,
        results: ctypes.Structure,
        workspaces: Workspaces | None = None,
    ) -> None:
        """Evaluate all knots, contiguous arrays, by a function of a library, on threads; workspaces: None for its usual ones."""
        data, point = self._data_for(library), PointData(*map(address, at))
        head, out = (ctypes.byref(data), ctypes.byref(point)), ctypes.byref(results)

        def part(first: int, last: int, workspace: Array) -> None:
            """Evaluate the knots ``first`` to ``last`` - 1."""
            function(*head, first, last, out, address(workspace))

        over_threads(part, len(at.x), library.lanes, workspaces or library.workspaces)

    @cached_property
    def _stored_substeps(self) -> Array | None:
        """Memory for the integrator substeps of all knots; None for a library without second derivatives."""
        if not self.library.shape.second:
            return None
        blocks = -(-len(self._values[0]) // self.library.lanes)
        return aligned(blocks * self.library.stored_size * self._n_substeps * self.library.lanes)

    # -- second order ---------------------------------------------------------------------------------------------------
    def second(
        self, at: Knots, sigma: float, lam: Array | None = None, y: Array | None = None, out: Hessians | None = None
    ) -> Hessians:
        """Return the Hessian blocks of sigma l + lam'(x_next (-) node) + y'g, in ``out`` if given; lam, y: None omits a part.

        If the library has no second derivatives, lam alone (sigma 0, y None) uses the library of the time step, if that exists;
        a Gauss-Newton cost alone (lam, y None) gives sigma times Q, S, R of first derivatives, in new arrays; NumPy evaluates
        all else, with a report. A library with second derivatives reuses the substeps that :meth:`first` stored at the same
        point, or computes them.
        """
        alone = not sigma and y is None
        library = self.curved if alone else self.library if self.library.shape.second else None
        if library is None:
            if lam is None and y is None and self.plain.hessian == "gauss_newton":
                return self._gauss_newton(at, sigma)
            self._report()
            return self.plain.second(at, sigma, lam, y, out)
        _, n, _, m, _ = self._sizes
        K, inputs = len(at.x), _contiguous(at)
        out = out or Hessians(np.empty((K, n, n)), np.empty((K, m, n)), np.empty((K, m, m)))
        multipliers = [None if a is None else np.ascontiguousarray(a, float) for a in (lam, y)]
        substeps = None
        if library is self.library and lam is not None:
            if self._stored_at != _bytes_of(inputs):
                self.first(at, quadratic=False)
            substeps = self._stored_substeps
        addresses = [None if a is None else address(a) for a in (*multipliers, substeps)]
        results = SecondData(sigma, *addresses, *map(address, out))
        self._evaluate(library, library.second, inputs, results, library.second_workspaces(self._n_substeps))
        return out

    @property
    def second_orders(self) -> tuple[bool, bool]:
        """Two flags: the library has second derivatives of the whole stage; there is a library with those of the time step."""
        return self.library.shape.second, self.curved is not None

    def _gauss_newton(self, at: Knots, sigma: float) -> Hessians:
        """Return the Hessian of sigma l from the Q, S, R of first derivatives, which are reused at the same point."""
        known = self._last[0] == _bytes_of(_contiguous(at))
        result = (self._last[1] if known else None) or self.first(at)
        return Hessians(sigma * result.Q, sigma * result.S, sigma * result.R)

    @property
    def curved(self) -> Library | None:
        """Library with second derivatives of the time step: that of the stage if it has them, else one of the step alone.

        None if neither is compiled.
        """
        return self.library if self.library.shape.second else self._curved_alone()

    @property
    def curved_data(self) -> ctypes.Structure | None:
        """Struct stages_t for the library ``curved``; None if there is none."""
        library = self.curved
        return None if library is None else self._data_for(library)

    def sweep_part(self, at: Knots) -> tuple[CurvaturePart, Any] | None:
        """Return the CurvaturePart by which a C sweep evaluates second derivatives of the time steps, and its memory.

        The sweep evaluates those of lam' (x_next (-) node) knot by knot, with its lam, as long as the returned objects are alive.
        Returns None if no second derivatives are compiled.
        """
        library = self.curved
        if library is None:
            return None
        inputs = _contiguous(at)
        point = PointData(*map(address, inputs))
        stages, workspace = self._data_for(library), library.second_workspaces(self._n_substeps)[0]
        sweep = SweepData(ctypes.addressof(stages), ctypes.addressof(point), address(workspace))
        part = CurvaturePart(
            self._first_knot, self._first_knot + len(at.x), library.knot_second, ctypes.addressof(sweep)
        )
        return part, (sweep, stages, point, inputs, workspace)

    # -- rollout --------------------------------------------------------------------------------------------------------
    def finer(self, pieces: int) -> CompiledStages:
        """Return a copy with ``pieces`` times as many substeps in each time step, for rollouts."""
        result = self._view()
        result._n_substeps *= pieces
        result.data = result._data_for(self.library)
        return result

    def shortened(self, share: float) -> CompiledStages:
        """Return a copy with the time steps multiplied by ``share``, and so the running costs, which dt weights."""
        result = self._view()
        t, weight, *others = self._values
        result._values = [t, share * weight, *others]
        result.data = result._data_for(self.library)
        return result

    def _view(self) -> CompiledStages:
        """Return a copy of these stages without cached results, which shares values and library."""
        result = copy(self)
        result._data, result._stored_at, result._last = {}, b"", (b"", None)
        result.__dict__.pop("_stored_substeps", None)
        return result

    def rollout(self, trials: Trials) -> Array:
        """Write the trajectories of ``trials`` over these knots, in place; returns their costs (L,).

        Each lane rolls out one segment with one step length. With linear gaps, shooting nodes begin new segments; with nonlinear
        gaps there is one segment.
        """
        N, count, first = len(trials.us), len(trials.alphas), self._first_knot
        last = first + len(self._values[0])
        start, stop, trial = _tasks(trials.shooting, first, last, count)
        cost, node = np.empty(len(start)), node_flags(trials.shooting.nodes, N)
        *straight, parabola = trials.direction
        inputs = [np.ascontiguousarray(a, float) for a in (trials.xs, trials.us, *straight)]
        terms = [np.ascontiguousarray(a, float) for a in parabola or ()]
        limits = [] if trials.bounds is None else [np.ascontiguousarray(b, float) for b in trials.bounds]
        alphas = np.ascontiguousarray(trials.alphas, float)
        arrays = [
            *map(address, inputs),
            *(map(address, limits) if limits else (None, None)),
            address(alphas),
            address(node),
        ]
        filled = map(address, (trials.X, trials.U, trials.D))
        all_of = TrialsData(N, trials.shooting.gaps == "nonlinear", *arrays, *filled, *map(address, terms))
        parts = PartsData(first, *map(address, (start, stop, trial, cost)))
        head = [ctypes.byref(s) for s in (self.data, all_of, parts)]

        def part(begin: int, end: int, workspace: Array) -> None:
            """Roll out the tasks ``begin`` to ``end`` - 1."""
            self.library.rollout(*head, begin, end, address(workspace))

        knots = max((last - first) * count // len(cost), 1)
        over_threads(part, len(cost), self.library.lanes, self.library.workspaces, least=-(-KNOTS_PER_THREAD // knots))
        return cost.reshape(-1, count).sum(axis=0)


def _values_of(phase: Phase, plain: NumpyStages) -> tuple[Array, ...]:
    """Return the values of a phase at its K knots: t (K,), weights (K,) of the running cost, and three arrays (K, size).

    These contain the parameters of the dynamics, the weights and parameters of all cost terms, and the parameters of all
    constraints, concatenated.
    """
    K = phase.knots
    p, path = by_knot(phase.parameters.values(), K), constraint_theta(plain.constraints, K)
    # a stage without duration uses dt only as the weight of its cost
    return plain.t, phase.weights, p, theta_of(plain.terms, K), path


def _structure(plain: NumpyStages, phase: Phase) -> tuple[Any, ...]:
    """Return the structure of a phase, for comparison: dynamics, integration, knots, parameter sizes, terms and constraints."""
    sizes = [(name, value.shape[-1]) for name, value in phase.parameters.items()]
    return phase.dynamics, phase.dynamics.sampling, phase.knots, sizes, *shapes_of(plain)


def _contiguous(at: Knots) -> Knots:
    """Return the knots with contiguous arrays, as kernels read them."""
    return Knots(*(np.ascontiguousarray(a, float) for a in at))


def _bytes_of(at: Knots) -> bytes:
    """Return the contents of all arrays, by which a point is recognized."""
    return b"".join(a.tobytes() for a in at)


@lru_cache(maxsize=32)
def node_flags(nodes: tuple[int, ...], N: int) -> Array:
    """Return int8 flags (N + 1,), 1 at the knots ``nodes`` and 0 elsewhere; cached, so do not change them."""
    flags = np.zeros(N + 1, np.int8)
    flags[list(nodes)] = 1
    return flags


@lru_cache(maxsize=64)
def _tasks(shooting: Any, first: int, last: int, trials: int) -> tuple[Array, Array, Array]:
    """Return the first knot, end knot and trial index of each rollout task of a phase: one for each segment and trial; cached.

    Trials of a segment are adjacent. shooting: a Shooting. first, last: knots of the horizon where the phase begins and ends.
    trials: number of step lengths.
    """
    starts, stops = (np.array(part, _LONG) for part in shooting.parts(first, last))
    return np.repeat(starts, trials), np.repeat(stops, trials), np.tile(np.arange(trials, dtype=_LONG), len(starts))
