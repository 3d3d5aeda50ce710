"""What a plan does outside of the solver: its controls held over each time step, on finely integrated dynamics.

    open      u = us_k
    gains     u = us_k + K_k (x - xs_k), clipped to the bounds, x measured at the beginning of each time step

A plan is only as true as its time steps.  The replay takes the plan's own scheme with many more substeps, so that compiled code
serves it as it is; for a scheme of order p the two runs with n and 2 n substeps give the final state once more by
extrapolation, x_2n (+) (x_2n (-) x_n) / (2^p - 1) (Hairer, Norsett, Wanner, Solving ODEs I, II.4).

Contacts by whole time steps meet the ground over the length h of a step beside their own time; in finer steps alone they would
be those of another, less damped ground.  So their own time grows by h: the replay tells whether bodies move as planned on the
plan's ground.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array, MeetsInSteps, Parameters
from dynamics_backends.registry import same_method
from trajopt.problem.ocp import OCP, Phase, Sampling
from trajopt.stage.evaluation import Direction, Evaluator, Shooting
from trajopt.step.integrators import RUNGE_KUTTA
from trajopt.step.sensitivities import SampledSystem

FINEST = {1: 64, 4: 2}
"""By the order of a scheme, into how many pieces each time step is cut at least."""


class Replay(NamedTuple):
    """Final states (nx,) of a plan and of its replays; ``gains`` is None for a plan without. Entries may not be finite.

    slower [s]: by how much the own time of contacts has grown, see the module.
    """

    planned: Array
    open: Array
    gains: Array | None
    slower: float = 0.0


FINER_KEPT = 4
"""How many finer time steps are kept for each phase."""
Finer = dict[tuple[int, int], tuple[Any, Sampling | None, Any]]
"""Finer time steps by the identity of those that they are made of, and their substeps; with these and their sampling."""


def replay(
    ocp: OCP,
    xs: Array,
    us: Array,
    K: Array,
    evaluator: Callable[[OCP], Evaluator | None],
    known: Finer | None = None,
) -> Replay | None:
    """The replay of a plan xs (N + 1, nx), us (N, nu), K (N, nu, ndx); evaluator: what evaluates problems.

    known: the finer time steps of earlier replays, which new ones join, so that the same plan is replayed by the same ones.
    None where no time step can be cut finer, as those of users' own maps, and where ``evaluator`` gives None.
    """
    if not can_be_cut(ocp):
        return None
    pieces = [_pieces(phase.dynamics) for phase in ocp.phases]
    order = max(_order(phase.dynamics) for phase in ocp.phases)
    slower = [_slower(phase) for phase in ocp.phases]
    known = {} if known is None else known
    if len(known) > FINER_KEPT * len(pieces):  # of systems that are made anew for each replay
        known.clear()
    fine = evaluator(_cut(ocp, pieces, slower, True, known))
    finer = None if fine is None else evaluator(_cut(ocp, pieces, slower, False, known))
    if fine is None or finer is None:
        return None
    ends = [_final(e, xs, us, gains) for gains in (0.0 * K, K) for e in (fine, finer)]
    opened, closed = (_extrapolated(ocp, *pair, order) for pair in ((ends[0], ends[1]), (ends[2], ends[3])))
    return Replay(xs[-1], opened, closed if K.any() else None, max(slower))


def can_be_cut(ocp: OCP) -> bool:
    """Whether time steps of the problem can be cut finer."""
    return any(_pieces(phase.dynamics) is not None for phase in ocp.phases)


def as_meta(ocp: OCP, r: Replay) -> dict[str, Any]:
    """The final states, and of each replay the largest difference from the plan with its name; None for what is not finite.

    By the names of :class:`Replay`, ``slower`` where it is not zero.
    """
    found: dict[str, Any] = {"slower": r.slower} if r.slower else {}
    for key, x in (("open", r.open), ("gains", r.gains)):
        if x is None:
            continue
        if not np.isfinite(x).all():
            found[key] = None
            continue
        d = ocp.manifold.difference(r.planned[:, None], x[:, None])[:, 0]
        worst = int(np.argmax(np.abs(d)))
        found[key] = {"x": x.tolist(), "largest": float(np.abs(d[worst])), "at": ocp.manifold.tangent_names[worst]}
    return found


def _pieces(dynamics: Any) -> int | None:
    """Into how many pieces each substep is cut; None where it cannot be."""
    if not isinstance(dynamics, SampledSystem):
        return None
    finest = FINEST[1 if _order(dynamics) == 1 else 4]
    return max(2, 2 * (finest // (2 * dynamics.substeps)))


def _order(dynamics: Any) -> int:
    scheme = dynamics.scheme if isinstance(dynamics, SampledSystem) else None
    return RUNGE_KUTTA[scheme].order if scheme in RUNGE_KUTTA else 1


def _cut(ocp: OCP, pieces: list[int | None], slower: list[float], half: bool, known: Finer) -> OCP:
    """The problem with finer time steps."""
    phases = []
    for phase, n, time in zip(ocp.phases, pieces, slower, strict=True):
        dynamics: Any = phase.dynamics
        parameters: Parameters = phase.parameters
        if n is not None:
            if time:
                dynamics, parameters = _with_slower(dynamics, time, parameters)
            dynamics = _finer(dynamics, dynamics.substeps * n // (2 if half else 1), known)
        phases.append(replace(phase, dynamics=dynamics, parameters=parameters))
    return replace(ocp, phases=tuple(phases))


def _finer(dynamics: Any, substeps: int, known: Finer) -> Any:
    """A time step with more substeps; its sampling is None where its class overrides what that tells."""
    sampling = dynamics.sampling
    made_of, sampled, finer = known.get((id(dynamics), substeps), (None, None, None))
    if made_of is dynamics and sampled is sampling:
        return finer
    finer = copy(dynamics)
    finer.substeps, finer.sampling = substeps, None if sampling is None else sampling._replace(substeps=substeps)
    known[id(dynamics), substeps] = dynamics, sampling, finer
    return finer


def _slower(phase: Phase) -> float:
    """The length [s] of a step of contacts that meet in steps, 0 where there are none; the mean of unequal ones."""
    d = phase.dynamics
    meets = isinstance(d, SampledSystem) and d.sampling is not None and isinstance(d.system, MeetsInSteps)
    return float(phase.dt.mean()) / d.substeps if meets else 0.0  # type: ignore[attr-defined]


def _with_slower(d: Any, time: float, p: Parameters) -> tuple[SampledSystem, Parameters]:
    system, given = d.system.slower(time, p)
    return SampledSystem(same_method(d.backend, system), d.scheme, d.substeps), given


def _final(e: Evaluator, xs: Array, us: Array, K: Array) -> Array:
    """The final state of the roll-out from x0 under these gains."""
    n = K.shape[2]
    still = Direction(np.zeros((len(xs), n)), np.zeros_like(us), K, np.zeros((len(us), n)))
    with np.errstate(all="ignore"):
        return e.rollout(xs, us, still, np.ones(1), Shooting()).xs[0, -1]


def _extrapolated(ocp: OCP, coarse: Array, fine: Array, order: int) -> Array:
    if not (np.isfinite(coarse).all() and np.isfinite(fine).all()):
        return fine
    d = ocp.manifold.difference(coarse[:, None], fine[:, None])
    return ocp.manifold.integrate(fine[:, None], d / (2**order - 1))[:, 0]
