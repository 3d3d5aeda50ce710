"""Replay of a plan: rollout of its controls with finer time steps, to check the plan's accuracy.

    open      u = us_k
    gains     u = us_k + K_k (x (-) xs_k), clipped to the bounds, x measured at the beginning of each time step

The replay uses the plan's integration scheme with more substeps. Its runs are extrapolated to substeps of length zero
(:class:`_Refined`), together with the plan, which is the run with uncut substeps. Substeps are halved until the correction is small
relative to the tolerance, or relative to the excess of the deviation over the tolerance, at most as often as FINEST allows. The
run with gains is skipped if the run without gains holds or all gains are zero. Forces that act for less than the shortest piece, a
half of a substep of rk4, such as a narrow current that is crossed in one step, may be missed by all runs.

The deviation is the largest difference from the plan in a component at any knot, relative to the tolerance

    fixed base       0.05 rad, 0.02 m          of each joint, but at most 0.05 of the range of a prismatic one
    floating base    0.1 rad, 0.05 m           of the base and of each joint
    other systems    0.05                      of the range of each component along the plan, at least of a tenth of the largest
                                               range, limited to 1

``OCP.replay_tolerance`` replaces these numbers if set.  Of other systems, all components of the state are compared.  Velocities of
robots are not: they jump when contacts close, so a small shift in time causes a large difference.  But velocities of a fixed base
must not violate constraints (:func:`broken_constraints`), such as rest at the end or velocity limits.

Stepped contacts meet the ground over the step length h in addition to their own time constant; finer steps alone would simulate
a less damped ground.  So the replay increases the time constant by h, to test the motion on the plan's ground.  The plan is then
no run with uncut substeps, and is not used for the extrapolation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import Array, MeetsInSteps
from dynamics_backends.registry import same_method
from trajopt.problem.ocp import OCP, Phase
from trajopt.problem.terms import parameters_at
from trajopt.stage.evaluation import Direction, Shooting, StageEvaluator
from trajopt.step.integrators import RUNGE_KUTTA
from trajopt.step.other_backend import on_library
from trajopt.step.sensitivities import SampledSystem
from trajopt.validation.limit_violations import constraint_violations

FINEST = {1: 64, 4: 2}
"""Maximum number of pieces of a substep for a single substep per time step, by the order of the scheme: 1, or 4 for all others.

With more substeps it is divided by their number, to an even number of at least 2.
"""
COARSEST = 8
"""Maximum number of pieces of a substep in the first run."""
SETTLED = 0.05
"""Halving stops if the correction of the last run is at most this fraction of the tolerance."""
FAR = 10.0
"""Halving also stops if the excess over the tolerance is more than this many times the correction of the last run."""

TOLERANCES = {"fixed": {"rad": 0.05, "m": 0.02}, "floating": {"rad": 0.1, "m": 0.05}}
"""Default tolerances on position deviations, by kind of robot and unit."""
RANGE_SHARE, OF_LARGEST = 0.05, 0.1
"""Default tolerance for systems without a robot, as a fraction of the range of each component, and largest one for a prismatic
joint, of the range between its limits. Ranges count as at least OF_LARGEST
times the largest one, this limited to 1: components may be constant.
"""
LEAST = 1e-6
"""Smallest tolerance for prismatic joints and systems without a robot, that on the defects of a plan: motions may stay where they
are."""


class Deviation(NamedTuple):
    """A run of the replay and its deviation from the plan.

    how: "with its controls held", "with its controls interpolated" or "with its feedback gains". xs (N + 1, nx) at times (N + 1,)
    [s]. ratio: largest deviation of a component divided by its tolerance, infinite if the run is not finite. amount, limit: this
    deviation and its tolerance, in ``unit``. name: tangent direction with this deviation. knot: its knot, or the first one that is
    not finite.
    """

    how: str
    xs: Array
    times: Array
    ratio: float
    amount: float
    limit: float
    unit: str
    name: str
    knot: int

    def sentence(self) -> str:
        """Describe the deviation from the plan, or that the motion diverges."""
        if not np.isfinite(self.ratio):
            return f"replayed {self.how}, the motion diverges"
        amount, limit = (f"{v:.2g} {self.unit}".strip() for v in (self.amount, self.limit))
        where = f"at t = {self.times[self.knot]:.3g} s"
        return f"replayed {self.how}, {self.name} deviates by {amount} from the plan {where}, tolerance {limit}"


class Replay(NamedTuple):
    """Runs of a replay: with held or interpolated controls and, if that run fails and the plan has gains, with feedback gains.

    slower [s]: largest increase of the contacts' time constant in a phase, see the module docstring.
    """

    runs: tuple[Deviation, ...]
    slower: float = 0.0

    def as_meta(self, ocp: OCP) -> dict[str, Any]:
        """Return plain values by run, "open" and "gains": the deviation, its sentence, and the final state ``x``.

        ``x`` is None if any state of the run is not finite. "slower" is added if contacts were slowed down.
        """
        found: dict[str, Any] = {"slower": self.slower} if self.slower else {}
        for key, run in zip(("open", "gains"), self.runs, strict=False):
            numbers = {k: getattr(run, k) for k in ("ratio", "amount", "limit", "unit", "name", "knot")}
            finite = bool(np.isfinite(run.xs).all())
            found[key] = {**numbers, "x": run.xs[-1].tolist() if finite else None, "sentence": run.sentence()}
        return found


def within_tolerance(run: Deviation) -> bool:
    """True if a run stays within its tolerance."""
    return run.ratio <= 1.0


def replay(
    ocp: OCP,
    xs: Array,
    us: Array,
    K: Array,
    evaluator: Callable[[OCP], StageEvaluator],
    holds: Callable[[Deviation], bool] = within_tolerance,
) -> Replay | None:
    """Replay a plan xs (N + 1, nx), us (N, nu), K (N, nu, ndx) with finer time steps: with held controls, then with its gains.

    evaluator: creates the stage evaluator of a problem. holds: returns True if a run suffices, so that the run with gains is
    skipped; it is skipped for K = 0 too. Returns None if no time step can be refined, as for user-defined discrete maps.
    """
    if not can_be_cut(ocp):
        return None
    slower = [_slower(phase) for phase in ocp.phases]
    whole, halvings = evaluator(_with_slower(ocp, slower) if any(slower) else ocp), _halvings(ocp)
    cut = cache(lambda i: whole.finer(halvings[i]))

    def run(how: str, gains: Array) -> Deviation:
        """Replay a control law with gains, and compare it with the plan."""
        rolled = cache(lambda i: _rolled_out(cut(i), xs, us, gains))
        return _accurate(ocp, how, xs, rolled, halvings, as_planned=not any(slower))

    laws = ((HELD, 0.0 * K), *(((WITH_GAINS, K),) if K.any() else ()))
    return Replay(_runs_until(holds, (run(how, gains) for how, gains in laws)), max(slower))


def _runs_until(holds: Callable[[Deviation], bool], runs: Iterator[Deviation]) -> tuple[Deviation, ...]:
    """Return the runs up to and including the first one for which ``holds`` is true; all runs if there is none."""
    found: list[Deviation] = []
    for run in runs:
        found.append(run)
        if holds(run):
            break
    return tuple(found)


def _halvings(ocp: OCP) -> list[list[int]]:
    """Return the pieces per substep of each phase, from the coarsest to the finest run; 1 if a phase cannot be refined."""
    cuts = [[_pieces(phase.dynamics) or 1 for phase in ocp.phases]]
    while max(cuts[-1]) > COARSEST or len(cuts) < 2:
        cuts.append([max(1, n // 2) for n in cuts[-1]])
    return cuts[::-1]


def _accurate(
    ocp: OCP, how: str, plan: Array, rolled: Callable[[int], Array], halvings: list[list[int]], as_planned: bool
) -> Deviation:
    """Return the deviation of a control law's extrapolated run from the plan, with substeps as fine as needed.

    Substeps are refined until the correction is at most SETTLED times the tolerance, or the deviation exceeds the tolerance by more
    than FAR times the correction, or the finest run is reached. rolled: states of the run with a refinement index. halvings: pieces
    per substep of each phase, by refinement index. as_planned: the plan (N + 1, nx) itself is a run with uncut substeps.
    """
    limits, _ = tolerances(ocp, plan)
    cuts = [max(pieces) for pieces in halvings]
    refined = _Refined(ocp.manifold, min(_order(phase.dynamics) for phase in ocp.phases if _pieces(phase.dynamics)))
    if as_planned:
        refined.add(plan, 1)
    for i in range(1 if as_planned and cuts[0] == 1 else 0, len(cuts)):
        correction = refined.add(rolled(i), cuts[i])
        if correction is None:
            continue
        error = float((np.abs(correction[:, : len(limits)]) / limits).max())
        run = deviation(ocp, how, plan, refined.best)
        if error <= SETTLED or FAR * error < run.ratio - 1.0:
            return run
    return deviation(ocp, how, plan, refined.best)


class _Refined:
    """Richardson extrapolation of rollouts with substeps of decreasing length, by the scheme of Aitken and Neville.

    With T_i0 the rollout with n_i pieces per substep and T_ik of order p + k,

        T_i,k+1 = T_ik (+) (T_ik (-) T_i-1,k) / ((n_i / n_i-k-1)^p - 1)

    (Hairer, Norsett, Wanner, Solving ODEs I, II.9), for p = 1; for p > 1 only the last two rollouts count (k = 0).

    Rollouts before one that is not finite do not count.
    """

    def __init__(self, manifold: Manifold, order: int) -> None:
        self.manifold, self.order = manifold, order
        self.row, self.pieces = list[Array](), list[int]()

    @property
    def best(self) -> Array:
        """The last extrapolated rollout."""
        return self.row[-1]

    def add(self, run: Array, pieces: int) -> Array | None:
        """Add a rollout (N + 1, nx) and return its last correction (N + 1, ndx).

        Returns None if no earlier rollout counts, or if this one is not finite.
        """
        before = self.row if self.order == 1 else self.row[:1]
        if not all(np.isfinite(rollout).all() for rollout in (run, *before[:1])):
            before = []
        self.row, correction = [run], None
        for coarse, n in zip(before, reversed(self.pieces), strict=False):
            step = self.manifold.difference(coarse.T, self.row[-1].T) / ((pieces / n) ** self.order - 1.0)
            self.row.append(self.manifold.integrate(self.row[-1].T, step).T)
            correction = step.T
        self.pieces.append(pieces)
        return correction


HELD, WITH_GAINS = "with its controls held", "with its feedback gains"
INTERPOLATED = "with its controls interpolated"
PIECES = 16
"""Number of pieces of a time step with interpolated controls."""


def replay_first_order_hold(
    ocp: OCP, xs: Array, us: Array, K: Array, holds: Callable[[Deviation], bool] = within_tolerance
) -> Replay | None:
    """Replay a plan with a first-order hold of its controls us (N + 1, nu); see :func:`replay`.

    Each time step is cut into PIECES pieces, and twice as many, with the control at their midpoint, which is accurate to second
    order; these two runs are extrapolated. With gains, K_k (x (-) xs_k) is added over the whole time step k. Controls are not
    clipped. Steps are evaluated in NumPy. Returns None if a phase is no SampledSystem.
    """
    if not all(isinstance(phase.dynamics, SampledSystem) for phase in ocp.phases):
        return None
    order = min(2, max(_order(phase.dynamics) for phase in ocp.phases))
    coarse, fine = (_interpolated_run(ocp, xs, us, K, pieces) for pieces in (PIECES, 2 * PIECES))
    hows = (INTERPOLATED, WITH_GAINS) if K.any() else (INTERPOLATED,)

    def run(i: int, how: str) -> Deviation:
        """Compare the extrapolated i-th rollout with the plan."""
        refined = _Refined(ocp.manifold, order)
        refined.add(coarse[:, i], PIECES)
        refined.add(fine[:, i], 2 * PIECES)
        return deviation(ocp, how, xs, refined.best)

    return Replay(_runs_until(holds, (run(i, how) for i, how in enumerate(hows))))


def _interpolated_run(ocp: OCP, xs: Array, us: Array, K: Array, pieces: int) -> Array:
    """Return the states (N + 1, 2, nx) of two rollouts from x0, without and with gains, with ``pieces`` pieces per time step."""
    x = np.repeat(ocp.x0[None], 2, axis=0)
    found, fractions, t = [x], (np.arange(pieces) + 0.5) / pieces, ocp.t
    with np.errstate(all="ignore"):
        for phase, step, knots in zip(ocp.phases, on_library(ocp).phases, ocp.phase_slices, strict=True):
            for k in range(knots.start, knots.stop):
                i, dt = k - knots.start, phase.dt[k - knots.start] / pieces
                p = parameters_at(phase.parameters, i)
                off = ocp.manifold.difference(np.repeat(xs[k][:, None], 2, axis=1), x.T).T
                feedback = np.stack([np.zeros(ocp.nu), K[k] @ off[1]])
                for j, fraction in enumerate(fractions):
                    u = us[k] + fraction * (us[k + 1] - us[k]) + feedback
                    x = step.dynamics.step(x, u[:, : step.dynamics.nu], t[k] + j * dt, dt, p)
                found.append(x)
    return np.array(found)


def deviation(ocp: OCP, how: str, xs: Array, run: Array) -> Deviation:
    """Deviation of a run (N + 1, nx) from a plan xs (N + 1, nx): its largest entry relative to :func:`tolerances`.

    It is infinite if the run is not finite, at the first such knot.
    """
    limits, units = tolerances(ocp, xs)
    times, names = np.asarray(ocp.times_of(xs)), ocp.manifold.tangent_names
    finite = np.isfinite(run).all(axis=1)
    if not finite.all():
        k = int(np.argmin(finite))
        return Deviation(how, run, times, np.inf, np.inf, float(limits[0]), units[0], names[0], k)
    off = np.abs(ocp.manifold.difference(xs.T, run.T).T[:, : len(limits)])
    with np.errstate(over="ignore"):
        ratios = off / limits
    k, i = (int(v) for v in np.unravel_index(int(np.argmax(ratios)), off.shape))
    return Deviation(how, run, times, float(ratios[k, i]), float(off[k, i]), float(limits[i]), units[i], names[i], k)


def tolerances(ocp: OCP, xs: Array) -> tuple[Array, tuple[str, ...]]:
    """Return tolerances and units of the tangent directions that are compared: a robot's positions, or all of another system.

    ``OCP.replay_tolerance`` replaces the default tolerances: for a robot in each unit, for another system as the fraction of the
    range. Units of other systems are "".
    """
    given, model = ocp.replay_tolerance, ocp.model
    if model is not None and ocp.manifold.ndx >= 2 * model.nv:
        kind = TOLERANCES["floating" if model.floating_base else "fixed"]
        units = tuple(model.dof_units)
        if given is not None:
            return np.full(len(units), given), units
        limits = np.array([kind.get(unit, kind["rad"]) for unit in units])
        for i, q, joint in zip(model.v_index, model.q_index, model.joint_types, strict=True):
            stroke = model.q_upper[q] - model.q_lower[q]
            if joint == "prismatic" and stroke > 0.0:
                limits[i] = max(LEAST, min(limits[i], RANGE_SHARE * stroke))
        return limits, units
    d = ocp.manifold.difference(np.repeat(xs[:1], len(xs), axis=0).T, xs.T)
    span = np.ptp(d, axis=1)
    fraction = RANGE_SHARE if given is None else given
    least = min(1.0, OF_LARGEST * float(span.max()))
    return np.maximum(fraction * np.maximum(least, span), LEAST), ("",) * len(span)


def broken_constraints(ocp: OCP, xs: Array, us: Array, run: Deviation) -> list[str]:
    """Return a sentence for each constraint that holds on the plan xs (N + 1, nx), us (N, nu), but not on a run of the replay.

    Only for robots with fixed base. The constraints are evaluated on the run's velocities, moved toward the plan by at most
    RANGE_SHARE of their range along the plan, at least of 1 rad/s or m/s, and on the plan's positions, whose deviations have
    tolerances of their own.
    """
    model = ocp.model
    if model is None or model.floating_base or ocp.manifold.ndx < 2 * model.nv:
        return []
    v = slice(model.nq, model.nq + model.nv)
    tolerance = RANGE_SHARE * np.maximum(1.0, np.ptp(xs[:, v], axis=0))
    off = run.xs[:, v] - xs[:, v]
    if (np.abs(off) <= tolerance).all():
        return []
    moved = xs.copy()
    moved[:, v] += np.sign(off) * np.maximum(np.abs(off) - tolerance, 0.0)
    before = {b.name for b in constraint_violations(ocp, xs, us)}
    names = {b.name for b in constraint_violations(ocp, moved, us)} - before
    moved[:, v] = run.xs[:, v]
    broken = [b for b in constraint_violations(ocp, moved, us) if b.name in names] if names else []
    return [f"replayed {run.how}, {b._replace(time=run.times[b.knot]).sentence()}" for b in broken]


def can_be_cut(ocp: OCP) -> bool:
    """True if any phase's time steps can be refined."""
    return any(_pieces(phase.dynamics) is not None for phase in ocp.phases)


def _pieces(dynamics: Any) -> int | None:
    """Return the number of pieces of each substep in the finest run, or None if the step cannot be refined."""
    if not isinstance(dynamics, SampledSystem):
        return None
    finest = FINEST[1 if _order(dynamics) == 1 else 4]
    return max(2, 2 * (finest // (2 * dynamics.substeps)))


def _order(dynamics: Any) -> int:
    """Order of a phase's integration scheme; 1 for maps that are not Runge-Kutta steps."""
    scheme = dynamics.scheme if isinstance(dynamics, SampledSystem) else None
    return RUNGE_KUTTA[scheme].order if scheme in RUNGE_KUTTA else 1


def _slower(phase: Phase) -> float:
    """Return the mean length [s] of a phase's integration steps if its contacts meet the ground in steps, else 0."""
    d = phase.dynamics
    meets = isinstance(d, SampledSystem) and d.sampling is not None and isinstance(d.system, MeetsInSteps)
    return float(phase.dt.mean()) / d.substeps if meets else 0.0  # type: ignore[attr-defined]


def _with_slower(ocp: OCP, slower: list[float]) -> OCP:
    """Return the problem with the contact time constants of each phase increased by a time [s], unchanged for 0."""
    phases = []
    for phase, time in zip(ocp.phases, slower, strict=True):
        d: Any = phase.dynamics
        if time:
            system, given = d.system.slower(time, phase.parameters)
            made = SampledSystem(same_method(d.backend, system), d.scheme, d.substeps)
            phase = replace(phase, dynamics=made, parameters=given)
        phases.append(phase)
    return replace(ocp, phases=tuple(phases))


def _rolled_out(e: StageEvaluator, xs: Array, us: Array, K: Array) -> Array:
    """Return the states (N + 1, nx) of the rollout from x0 under us + K (x (-) xs), clipped to the bounds on controls.

    e: evaluator with the time steps of the rollout.
    """
    n = K.shape[2]
    still = Direction(np.zeros((len(xs), n)), np.zeros_like(us), K, np.zeros((len(us), n)))
    with np.errstate(all="ignore"):
        return e.rollout(xs, us, still, np.ones(1), Shooting()).xs[0]
