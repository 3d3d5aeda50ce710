"""Tensor-matrix products compared with recursions, with and without AVX (Singh, Russell, Wensing 2023, fig. 14 and 15).

The second derivatives of forward dynamics need A(F) = M_q F for three matrices F (inner terms) and M^-1 T for tensors T
(outer terms). DTM multiplies. IDFOZA runs IDSVA without velocity and gravity for each column of F; AZA runs the
articulated-body algorithm for each column of T. All methods are compiled and run on one thread for one point: products
by BLAS (dgemm), recursions with several columns in the lanes of a block. Robots are chains of rods; the binary trees of
fig. 14 are omitted. Each measurement runs in a separate process whose BLAS has one thread. "AVX on": all vector
instructions of the processor (AVX-2 in the paper). "AVX off": the C library for any x86-64 processor (SSE2, two lanes),
and BLAS restricted to a processor without AVX. data.csv has the number of lanes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dynamics_backends.environment import MARCH
from dynamics_backends.machine.library import X86_64, lanes, require_library
from dynamics_backends.rigid_body.algorithms.aba import ABA
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import IDSVA
from dynamics_backends.rigid_body.model.sample_models import chain
from experiments.analysis.timing import medians, program_call
from experiments.papers.study import SINGH, Claim, Comparison, Outcome, times

SOURCE = f"{SINGH}, fig. 14, 15"
BODIES, QUICK_BODIES = (2, 4, 8, 16, 32, 64, 110), (2, 4)
TERMS = {"inner": ("DTM", "IDFOZA"), "outer": ("DTM", "AZA")}


AVX = {True: "AVX on", False: "AVX off"}
OLD_PROCESSOR = "Nehalem"
"""OpenBLAS name of a processor without AVX."""
LIMIT = 600.0
"""Time limit of a measuring process [s]."""


def run(quick: bool) -> Outcome:
    """Measure all times [us]."""
    sizes, rounds = (QUICK_BODIES, 3) if quick else (BODIES, 7)
    rows = [{"AVX": name, **row} for avx, name in AVX.items() for row in measure_in_process(sizes, rounds, avx=avx)]
    lines = [_comparison(rows, term, avx) for term in TERMS for avx in AVX.values()]
    return Outcome(rows, [*lines, *_effect(rows)], partial(_draw, rows))


def measure(sizes: Sequence[int], rounds: int) -> list[dict[str, Any]]:
    """Measure both methods for both terms, with the vector instructions of this process."""
    rows = []
    for n in sizes:
        names, calls = zip(*_calls(n).items(), strict=True)
        for (term, method), t in zip(names, medians(calls, rounds), strict=True):
            rows.append({"bodies": n, "term": term, "method": method, "lanes": lanes(), "microseconds": 1e6 * t})
    return rows


def measure_in_process(sizes: Sequence[int], rounds: int, *, avx: bool) -> list[dict[str, Any]]:
    """Measure in a separate process whose BLAS has one thread.

    Raises CalledProcessError, TimeoutExpired; without ``avx`` LibraryMissing if only the library of this processor was built.
    """
    code = f"import json; from {__name__} import measure; print(json.dumps(measure({tuple(sizes)}, {rounds})))"
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    if not avx:
        require_library(X86_64[0])
        environment |= {MARCH: X86_64[0], "OPENBLAS_CORETYPE": OLD_PROCESSOR}
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=LIMIT, check=True
    )
    rows: list[dict[str, Any]] = json.loads(process.stdout.splitlines()[-1])
    return rows


def _calls(n: int) -> dict[tuple[str, str], Callable[[], Any]]:
    """Return calls for one inner term, M_q times a matrix (n, n), and one outer term, M^-1 times a tensor (n, n, n)."""
    model, rng = chain(n), np.random.default_rng(0)
    tensor, matrix = rng.standard_normal((n, n, n)), rng.standard_normal((n, n))
    rows, flat = tensor.reshape(n * n, n), tensor.reshape(n, n * n)
    inner, outer = np.empty((n * n, n)), np.empty((n, n * n))
    return {
        ("inner", "DTM"): partial(np.matmul, rows, matrix, out=inner),
        ("inner", "IDFOZA"): program_call(IDSVA, model, n),
        ("outer", "DTM"): partial(np.matmul, matrix, flat, out=outer),
        ("outer", "AZA"): program_call(ABA, model, n * n),
    }


def times_of(rows: list[dict[str, Any]], term: str, method: str, avx: str) -> dict[int, float]:
    """Return the times [us] of a method by number of bodies."""
    return {r["bodies"]: r["microseconds"] for r in rows if (r["term"], r["method"], r["AVX"]) == (term, method, avx)}


def crossover(rows: list[dict[str, Any]], term: str, avx: str) -> int | None:
    """Return the smallest size from which the recursion is faster up to the largest size, or None."""
    product, recursion = (times_of(rows, term, method, avx) for method in TERMS[term])
    faster = [n for n in product if all(recursion[m] < product[m] for m in product if m >= n)]
    return min(faster) if faster else None


def _comparison(rows: list[dict[str, Any]], term: str, avx: str) -> Comparison:
    found, sizes = crossover(rows, term, avx), sorted({r["bodies"] for r in rows})
    ours = f"none up to {sizes[-1]} bodies"
    if found is not None:
        ours = (
            f"between {max(n for n in sizes if n < found)} and {found} bodies"
            if found > sizes[0]
            else f"at {found} bodies"
        )
    if term == "inner":
        published, claim = (
            "at some size for chains (plotted only)",
            Claim("there is one", found is not None, only_differs=True),
        )
    else:
        published = "beyond the sizes of robots"
        claim = Claim("none at sizes of robots", found is None or found > 50, only_differs=True)
    why = "our recursions run in lanes"
    if term == "inner":
        why += ", and IDFOZA computes all first derivatives"
    return Comparison(f"{term} term, {avx}: the recursion becomes faster", published, ours, [claim], why)


def _effect(rows: list[dict[str, Any]]) -> list[Comparison]:
    """Compare times without and with AVX for the largest chain, and the crossovers of the inner term."""
    largest, lines = max(r["bodies"] for r in rows), []
    for term, methods in TERMS.items():
        gains = {}
        for method in methods:
            on, off = (times_of(rows, term, method, avx)[largest] for avx in AVX.values())
            gains[method] = off / on
        ours = ", ".join(f"{method} {times(gain)}" for method, gain in gains.items())
        claims = [Claim("AVX makes DTM faster", gains["DTM"] > 1.0)]
        if term == "inner":
            on, off = (crossover(rows, term, avx) or float("inf") for avx in AVX.values())
            claims.append(Claim("AVX moves the crossover to larger chains", on >= off, only_differs=True))
        why = "our recursions run in lanes, so that AVX speeds them up too; one column at a time in the paper"
        lines.append(
            Comparison(f"{term} term: AVX off / AVX on, {largest} bodies", "DTM gains (plotted)", ours, claims, why)
        )
    return lines


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, LINES, figure

    with figure(path, 1, 2, 9.0, 3.6, "Inner and outer terms by products and by recursions [us]") as axes:
        for axis, (term, methods) in zip(axes.flat, TERMS.items(), strict=True):
            for color, method in zip(COLORS, methods, strict=False):
                for line, avx in zip(LINES, AVX.values(), strict=False):
                    own = times_of(rows, term, method, avx)
                    axis.loglog(
                        list(own),
                        list(own.values()),
                        line,
                        marker="o",
                        color=color,
                        label=f"{method}, {avx}",
                        markersize=3,
                    )
            axis.set_title(f"{term} term")
            axis.set_xlabel("bodies")
            axis.legend(fontsize=7)
