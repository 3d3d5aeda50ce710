"""An iteration of a shooting method in C: kernels/iteration.h, which batches run for each of their problems.

It serves problems whose phases are all compiled. The C knows no sizes, so one library serves all problems.
"""

from __future__ import annotations

import ctypes
import math
from functools import lru_cache
from importlib.resources import files
from typing import Any, cast

import numpy as np

from dynamics_backends.compiled.interface.libraries import address, code_of
from dynamics_backends.protocol import Array
from trajopt.lq import bounded_lq
from trajopt.lq.compiled_lq import CompiledLQ
from trajopt.problem.ocp import OCP
from trajopt.solvers.batch.abreast.iteration_memory import (
    NONE,
    FinalData,
    GlobalizationData,
    OptionsData,
    PhaseData,
    Sizes,
    SolveData,
    SweepsData,
    layout,
    pointers,
)
from trajopt.solvers.options import SLQOptions
from trajopt.solvers.rules import line_search
from trajopt.solvers.rules.line_search import DOUBLINGS, POLISHED
from trajopt.solvers.rules.regularization import Regularization
from trajopt.solvers.shooting import iterate
from trajopt.solvers.window.memory import common_source, shelf
from trajopt.stage.compiled.compiled_end import CompiledEnd
from trajopt.stage.compiled.compiled_stages import CompiledStages, node_flags
from trajopt.stage.evaluation import Shooting, StageEvaluator

_CONSTANTS = {
    "MAX_SWEEPS": bounded_lq.MAX_SWEEPS,
    "ENOUGH": bounded_lq.ENOUGH,
    "LENGTHS": len(bounded_lq.STEP_LENGTHS),
    "GAP_ROUNDING": iterate.GAP_ROUNDING,
    "FALLEN": iterate.FALLEN,
    "HOLDING": iterate.HOLDING,
    "POLISHED": POLISHED,
    "STRETCHED": DOUBLINGS + 1,
    **{
        name: getattr(line_search, name)
        for name in (
            "PENALTY_MARGIN",
            "MAX_CORRECTIONS",
            "TOO_MUCH",
            "ROUNDING",
            "NEAR_ROUNDING",
            "LOWER_AT",
            "LOWER_RATIO",
            "MAX_IDLE",
            "DRIFTING",
            "ADRIFT",
            "CLOSING",
            "PROGRESS",
        )
    },
}
"""Constants that the C text takes from Python."""


def source() -> str:
    """The C text of an iteration."""
    folders = (("window", ("bounded_lq.h",)), ("batch", ("decisions.h", "iterate.h", "step_search.h", "iteration.h")))
    texts = [
        (files(f"trajopt.solvers.{folder}") / "kernels" / name).read_text()
        for folder, names in folders
        for name in names
    ]
    return "\n".join([common_source(), *(f"#define {name} {value}" for name, value in _CONSTANTS.items()), *texts])


class CompiledIteration:
    """The memory of one solve, and the struct that describes it.

    abreast: step lengths that are tried side by side. shared: whether iterates share the memory of their blocks.
    """

    def __init__(
        self,
        ocp: OCP,
        evaluator: StageEvaluator,
        lq_solver: CompiledLQ,
        options: SLQOptions,
        shooting: Shooting,
        abreast: int,
        shared: bool,
    ) -> None:
        self._evaluator, self._lq_solver = evaluator, lq_solver
        self._sizes = _sizes(ocp, abreast, shared)
        self._places, doubles = layout(self._sizes)
        self._memory = shelf.take(doubles)
        self._views: dict[str, Array] = {}
        self._solve = solve = SolveData()
        self._phases = self._stages(solve)
        self._arrays(solve, lq_solver)
        solve.abreast, solve.shared = abreast, shared
        self.prepare(ocp, options, shooting)

    def _stages(self, solve: SolveData) -> Any:
        """Tell what evaluates stages; what must live as long."""
        stages, slices = self._evaluator.stages, self._evaluator.slices
        parts = [_phase(s, k, read) for s, k, read in zip(stages, slices, self._evaluator.controls_read, strict=False)]
        phases = (PhaseData * len(parts))(*parts)
        end = stages[-1]
        assert isinstance(end, CompiledEnd)
        rooms = [cast(Any, s).library.rooms[0] for s in stages]
        solve.N, solve.nx, solve.count, solve.phases = *self._sizes[:2], len(parts), ctypes.addressof(phases)
        solve.end = FinalData(
            *(code_of(end.library.end_first), code_of(end.library.end_values)),
            *(ctypes.addressof(end.data), address(rooms[-1])),
        )
        return phases, rooms

    def prepare(self, ocp: OCP, o: SLQOptions, shooting: Shooting) -> None:
        """Take the bounds of a problem, options, and nodes, for a solve from its beginning."""
        solve, bounds = self._solve, ocp.control_bounds
        node = node_flags(shooting.nodes, ocp.horizon)
        limits = [] if bounds is None else [np.ascontiguousarray(b, float) for b in bounds]
        alphas = _alphas(o.max_backtracks)
        solve.nonlinear, solve.nodes = shooting.gaps == "nonlinear", len(shooting.nodes)
        solve.options = OptionsData(
            *(o.gradient_tolerance, o.defect_tolerance, o.cost_tolerance, o.accept_ratio, o.regularization_factor),
            *(o.min_regularization, o.max_regularization, o.regularize == "state", o.max_backtracks),
        )
        solve.node, solve.alphas = address(node), address(alphas)
        solve.lower, solve.upper = map(address, limits) if limits else (None, None)
        start = Regularization.of(o)
        solve.state = GlobalizationData(o.penalty, start.mu, start.delta, 0.0, 0, 0)
        solve.at, solve.fresh, solve.best = 0, NONE, NONE
        self._given: Any = node, alphas, limits

    def _arrays(self, solve: SolveData, lq_solver: CompiledLQ) -> None:
        """Tell where the arrays are."""
        fields, offsets = pointers(self._sizes)
        words: Any = np.frombuffer(solve, np.int64)  # type: ignore[call-overload]
        words[fields] = offsets + address(self._memory)
        if self._sizes.bounded:
            self._view("bounded.zero")[:] = 0.0
        solve.sweeps = SweepsData(self._sizes.n, self._sizes.m, *map(code_of, lq_solver.functions))

    def close(self) -> None:
        """Give the memory back: nothing that came from here may be used any more."""
        shelf.put_back(self._memory)

    @property
    def size(self) -> int:
        """Bytes of its memory."""
        return int(self._memory.nbytes)

    @property
    def data(self) -> Any:
        """shooting_t of iterate.h."""
        return self._solve

    def _view(self, name: str) -> Array:
        if name not in self._views:
            at, shape = self._places[name]
            self._views[name] = self._memory[at : at + math.prod(shape)].reshape(shape)
        return self._views[name]


def _sizes(ocp: OCP, abreast: int, shared: bool) -> Sizes:
    trials = max(abreast, POLISHED, DOUBLINGS + 1)
    manifold, bounded = ocp.manifold, ocp.control_bounds is not None
    return Sizes(ocp.horizon, manifold.nx, manifold.ndx, ocp.nu, trials, bounded, shared)


@lru_cache(maxsize=16)
def _alphas(max_backtracks: int) -> Array:
    """Step lengths 1, 1/2, ..., and those of steps that are stretched."""
    shorter = 0.5 ** np.arange(max(max_backtracks, POLISHED) + 1)
    return np.concatenate([shorter, 2.0 ** np.arange(DOUBLINGS + 1)])


def _phase(stages: Any, knots: slice, read: int) -> ctypes.Structure:
    assert isinstance(stages, CompiledStages)
    own = stages.library
    functions = code_of(own.first), code_of(own.rollout)
    return PhaseData(knots.start, knots.stop, read, *functions, ctypes.addressof(stages.data), address(own.rooms[0]))
