"""A batch by Newton's loop, that of DDP: kernels/newton_solve.h, whose solves run one after the other on each thread.

Nothing of Python runs inside a solve; lanes hold the knots of a problem. A solve that ends without a verdict of its own (numbers
that are not finite, a search that fails) is solved once more by Python, which finds the words.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from dynamics_backends.compiled.interface.libraries import address, aligned, bound, load, struct_of
from dynamics_backends.protocol import Array
from trajopt.lq.compiled_lq import CompiledLQ
from trajopt.lq.equality_lq import allotted
from trajopt.problem.ocp import OCP
from trajopt.results.status import NEAR, SOLVED, Status
from trajopt.solvers.batch.batch import Batch
from trajopt.solvers.batch.solution import BatchSolution
from trajopt.solvers.batch.threads import lanes_at_work, most_pairs, prefixed, run_on_threads, with_referred
from trajopt.solvers.batch.values import NOT_BEGUN, Rows
from trajopt.solvers.options import DDPOptions
from trajopt.solvers.shooting import verdicts
from trajopt.solvers.shooting.compiled.compiled_iteration import code_of, source
from trajopt.solvers.shooting.newton import barrier, newton_loop, newton_model
from trajopt.solvers.shooting.newton.newton_point import filtered
from trajopt.solvers.shooting.search import filter as filters
from trajopt.stage.compiled.compiled_stages import CompiledEnd, CompiledStages
from trajopt.stage.evaluation import StageEvaluator
from trajopt.stage.numerics import numerics_for

OPTIMAL, CHEAPER, MOST_ITERATIONS, OUT_OF_TIME, ROUNDED, INTERRUPTED, REFERRED = range(7)
"""How a solve ended: see newton_solve.h."""
RESULT = np.dtype(
    [("code", np.int64), ("iterations", np.int64)]
    + [(name, float) for name in ("cost", "gradient", "defect", "kkt", "change", "seconds")]
)
TRIALS = 8
"""Step lengths that are tried side by side behind the full one."""
_CONSTANTS = {
    **{
        name: getattr(filters, name)
        for name in ("MARGIN", "ARMIJO", "SWITCH_PHI", "SWITCH_THETA", "SMALL", "LARGE", "NOISE")
    },
    **{name: getattr(newton_loop, name) for name in ("FIRST", "LEAP", "GROWTH", "DECAY", "LARGEST")},
    **{name: getattr(newton_loop, name) for name in ("SHORT", "PATIENCE", "RIVALS", "MAX_RESTORED", "STALLED")},
    "SOLVED": SOLVED,
    "NEAR": NEAR,
    **{name: getattr(barrier, name) for name in ("LINEAR", "POWER", "SMALLEST", "HELD", "SAFEGUARD")},
    **{f"BARRIER_{name}": getattr(barrier, name) for name in ("TAU", "SHARE", "PUSH", "ENOUGH")},
    "SHARES": len(newton_model.SHARES),
}
_Phase = struct_of(
    "newton_phase_t",
    " ".join(prefixed(kind, "first:l last:l read:l expand roll stages room") for kind in ("exact", "plain"))
    + " curve curve_room",
)
_POINT = "xs us x_next costs A B d Q q S R r lambda g cost:d gradient:d scaled:d defect:d theta:d kkt:d"
_FOUND = "K k dx du xs us slope:d delta:d alpha:d theta:d phi:d longest:d"
_Newton = struct_of(
    "newton_t",
    " ".join(
        (
            "phases end_expand end_values end_end end_room plain_expand plain_values plain_end plain_room",
            "n:l m:l riccati adjoint stationarity finite rollout N:l nx:l count:l alike:l trials:l",
            *(prefixed(f"point_{i}", _POINT) for i in range(3)),
            *(prefixed(f"found_{i}", _FOUND) for i in range(3)),
            "Vx Vxx cQ cS cR mQ mS mR mr z move own_alphas size pairs X U D cost part_cost start stop_at trial alphas every none",
            "lengths:l max_iterations:l most_pairs:l asked:l",
            "gradient_tolerance:d defect_tolerance:d kkt_tolerance:d cost_tolerance:d time_limit:d",
            "members total:l next done stop",
        )
    ),
)


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The functions of a solve, compiled or from the cache."""
    constants = [f"#define {name} {value!r}" for name, value in _CONSTANTS.items()]
    shares = f"static const double shares[] = {{{', '.join(map(repr, newton_model.SHARES))}}};"
    folder = files("trajopt.solvers.batch") / "kernels"
    texts = [(folder / name).read_text() for name in ("barrier.h", "newton_solve.h")]
    found = load("\n".join(["#include <float.h>", source(), *constants, shares, *texts]))
    size = bound(found, "newton_size", "i", ctypes.c_long)
    if [size(i) for i in range(3)] != [ctypes.sizeof(_Newton), ctypes.sizeof(_Phase), RESULT.itemsize]:
        raise RuntimeError("newton_solve.h and newton.py disagree about their structs")
    return found


def fits_newton(ocp: OCP, options: Any) -> bool:
    """Whether kernels/newton_solve.h has all that the solver does with a problem."""
    if type(options) is not DDPOptions or ocp.constraints():
        return False
    curved = options.curvature == "newton" and options.indefinite == "modify" and filtered(ocp, options)
    return curved and all(map(_is_compiled, _evaluators(ocp, options)))


def _evaluators(ocp: OCP, options: DDPOptions) -> tuple[StageEvaluator, StageEvaluator]:
    """That of the Gauss-Newton Hessian of the cost, and that which the curvature is added to; maybe one."""
    plain: Any = numerics_for(ocp).evaluator
    exact: Any = plain if options.hessian == "gauss_newton" else numerics_for(ocp, options.hessian).evaluator
    return plain, exact


def _is_compiled(evaluator: StageEvaluator) -> bool:
    *stages, end = evaluator.stages
    whole = all(isinstance(s, CompiledStages) and s._curved is not None for s in stages)
    return whole and isinstance(end, CompiledEnd)


def in_newton(
    batch: Batch,
    guess: tuple[Array, Array],
    options: DDPOptions,
    *,
    gains: bool,
    threads: int | None,
    told: Callable[[int], None] | None,
) -> BatchSolution:
    """Solve a batch; guess: xs (n or 1, N + 1, nx), us (n or 1, N, nu)."""
    began, members = time.perf_counter(), _Members(batch, guess, options, gains)
    run = bound(library(), "newton_run", "p")
    shared = run_on_threads(run, lambda shared: _Worker(members, options, shared), len(batch), threads, told)
    r = members.results
    status = tuple(members.status(i, options) for i in range(len(batch)))
    arrays = members.xs, members.us, r["cost"].copy(), r["iterations"].copy()
    meta = {
        "how": shared.how,
        "lanes": lanes_at_work(shared.threads, members.plain.stages[:-1]),
        "solve_times": r["seconds"].tolist(),
    }
    found = BatchSolution(*arrays, status, batch.times(), members.K, members.k, meta)
    if not shared.stopped:
        rest: dict[str, Any] = {"gains": gains, "threads": threads, "told": told}
        found = with_referred(batch, guess, options, "ddp", found, np.flatnonzero(r["code"] == REFERRED), **rest)
    return replace(found, meta={**found.meta, "seconds": time.perf_counter() - began})


class _Members(Rows):
    """newton_member_t of newton_solve.h for each problem, and where the solutions come to be."""

    def __init__(self, batch: Batch, guess: tuple[Array, Array], options: DDPOptions, gains: bool) -> None:
        ocp, n = batch[0], len(batch)
        super().__init__(n)
        N, nx, nu, ndx = ocp.horizon, ocp.manifold.nx, ocp.nu, ocp.manifold.ndx
        self.ocp = ocp
        self.plain, self.exact = _evaluators(ocp, options)
        self.xs, self.us = np.full((n, N + 1, nx), np.nan), np.full((n, N, nu), np.nan)
        self.K = np.zeros((n, N, nu, ndx)) if gains else None
        self.k = np.zeros((n, N, nu)) if gains else None
        self.results = np.zeros(n, RESULT)
        self.results["code"], self.results["cost"] = NOT_BEGUN, np.nan
        own: Any = [self.exact.stages[:-1], self.plain.stages[:-1]]
        data = [[s.data for s in stages] for stages in own] + [[s._at(s._curved, 0) for s in own[0]]]
        phases = [np.stack([self.stages(batch, i, d) for i, d in enumerate(of)], axis=1) for of in data]
        evaluators: Any = self.exact, self.plain
        ends = [np.stack(self.end(batch, e.stages[-1]), axis=1) for e in evaluators]
        bounds = batch.bounds() or (None, None)
        columns = [*phases, *ends, batch.x0(), *guess, *bounds, self.xs, self.us, self.K, self.k, self.results]
        self.rows = self.table(columns)

    def status(self, i: int, o: DDPOptions) -> Status:
        """The verdict of problem i: that of a single solve."""
        r: Any = self.results[i]
        code, iterations, kkt = int(r["code"]), int(r["iterations"]), float(r["kkt"])
        gradient, defect = float(r["gradient"]), float(r["defect"])
        if code == OPTIMAL:
            return verdicts.optimal(iterations, kkt, gradient, defect)
        if code == CHEAPER:
            return verdicts.cost_converged(iterations, float(r["change"]), o, kkt)
        if code == MOST_ITERATIONS:
            return verdicts.max_iterations(gradient, defect, o, kkt)
        if code == OUT_OF_TIME:
            return verdicts.time_limit(iterations, gradient, defect, o)
        if code == ROUNDED:
            return verdicts.precision_limit(gradient, defect, o, kkt)
        return verdicts.interrupted(iterations) if code == INTERRUPTED else verdicts.not_begun()


class _Worker:
    """newton_t of a thread, with its memory."""

    def __init__(self, members: _Members, o: DDPOptions, shared: Array) -> None:
        ocp, self._rooms = members.ocp, list[Array]()
        N, nx, n, m = ocp.horizon, ocp.manifold.nx, ocp.manifold.ndx, ocp.nu
        lq = CompiledLQ(n, m)
        blocks = {"Q": (N + 1, n, n), "S": (N, m, n), "R": (N, m, m)}
        point = {
            "xs": (N + 1, nx), "us": (N, m), "x_next": (N, nx), "costs": (N + 1,), "A": (N, n, n), "B": (N, n, m), "d": (N, n),
            "q": (N + 1, n), "r": (N, m), "lambda": (N + 1, n), "g": (N, m), **blocks,
        }  # fmt: skip
        step = {"K": (N, m, n), "k": (N, m), "dx": (N + 1, n), "du": (N, m), "xs": (N + 1, nx), "us": (N, m)}
        most = most_pairs(o.max_iterations)
        work = {"Vx": (N + 1, n), "Vxx": (N + 1, n, n), "mr": (N, m), "z": (2, N, m), "move": (2, N, m), "size": (m,)}
        work |= {f"{of}{name}": shape for of in "cm" for name, shape in blocks.items()}
        work |= dict.fromkeys(("alphas", "own_alphas"), (o.max_backtracks + 1,)) | dict.fromkeys(
            ("every", "none"), (N // 8 + 1,)
        )
        work |= dict.fromkeys(("part_cost", "start", "stop_at", "trial"), (TRIALS * N + TRIALS,))
        work |= {
            "X": (TRIALS, N + 1, nx),
            "U": (TRIALS, N, m),
            "D": (TRIALS, N, n),
            "cost": (TRIALS,),
            "pairs": (most, 2),
        }
        values: dict[str, Any] = {}
        for prefix, shapes in [
            *((f"point_{i}_", point) for i in range(3)),
            *((f"found_{i}_", step) for i in range(3)),
            ("", work),
        ]:
            arrays, at = allotted(list(shapes.values()))
            self._rooms += arrays
            values |= {f"{prefix}{name}": where for name, where in zip(shapes, at, strict=True)}
            if not prefix:
                given = dict(zip(shapes, arrays, strict=True))
        given["alphas"][:] = 0.5 ** np.arange(o.max_backtracks + 1)
        given["every"].view(np.int8)[: N + 1] = 1
        phases = (_Phase * len(ocp.phases))(*(self._phase(members, i) for i in range(len(ocp.phases))))
        for name, evaluator in (("end", members.exact), ("plain", members.plain)):
            end: Any = evaluator.stages[-1]
            functions = code_of(end.library.end_first), code_of(end.library.end_values)
            keys = ("expand", "values", "end", "room")
            told = (*functions, None, self._room(end.library.rooms.doubles))
            values |= {f"{name}_{key}": value for key, value in zip(keys, told, strict=True)}
        sweeps = zip(
            ("riccati", "adjoint", "stationarity", "finite", "rollout"), map(code_of, lq.functions), strict=True
        )
        limits = {
            name: getattr(o, name)
            for name in ("max_iterations", "gradient_tolerance", "defect_tolerance", "kkt_tolerance")
        }
        sizes = {
            "n": n,
            "m": m,
            "N": N,
            "nx": nx,
            "count": len(phases),
            "alike": members.plain is members.exact,
            "trials": TRIALS,
        }
        places = {name: address(shared) + 8 * i for i, name in enumerate(("next", "done", "stop"))}
        values |= {
            **dict(sweeps),
            **limits,
            **sizes,
            **places,
            "phases": ctypes.addressof(phases),
            "lengths": o.max_backtracks + 1,
        }
        values |= {"cost_tolerance": o.cost_tolerance, "time_limit": o.time_limit or 0.0}
        values |= {
            "members": address(members.rows),
            "total": members.count,
            "most_pairs": most,
            "asked": o.accept_cost_tolerance,
        }
        self.data = _Newton(**values)
        self.address = ctypes.addressof(self.data)
        self._alive = members, lq, phases, shared

    def _room(self, doubles: int) -> int:
        self._rooms.append(aligned(doubles))
        return address(self._rooms[-1])

    def _phase(self, members: _Members, i: int) -> Any:
        knots, read = members.ocp.phase_slices[i], members.plain.controls_read[i]
        exact, plain = (e.stages[i] for e in (members.exact, members.plain))
        words: list[Any] = []
        for stages in (exact, plain):
            own: Any = stages.library  # type: ignore[attr-defined]
            room = self._room(own.rooms.doubles)
            words += [knots.start, knots.stop, read, code_of(own.first), code_of(own.rollout), None, room]
        curved: Any = exact._curved  # type: ignore[attr-defined]
        room = self._room(curved.second_rooms(exact.data.substeps).doubles)  # type: ignore[attr-defined]
        return _Phase(*words, code_of(curved.second), room)
