"""Refinement of a motion among obstacles: if the check of a solution fails, the problem is solved again.

Pairs of links and bodies are selected for a plan. A motion far from this plan could collide at pairs that were not selected. So
configurations stay within a tube around the best known plan, if that is collision-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.clearance import NUMBERS
from trajopt.collisions.mesh_check import RATE, MeshCheck, MinimumDistance
from trajopt.config.task import Refined
from trajopt.guesses.timed_path import Timing
from trajopt.results.status import StatusCode
from trajopt.solvers.feedback import tracking_gains
from trajopt.solvers.refinement import Again
from trajopt.solvers.termination import unrefined
from trajopt.validation.limit_violations import constraint_violations
from .in_scene import MotionInScene, guess_from_timing, motion_at, with_duration_scaled
from .joint_torques import torques_of
from .path_timing import PathTiming

ROUNDS, IMPROVING, FAILED = 10, 1, 3
"""Maximum numbers of solves: in total, after an accepted motion to find a faster one, and of failed solves."""
RETIMED = 3
"""Maximum number of solves from a TOPP-RA timing of a path."""
LAGGING = 4
"""Maximum number of solves after an accepted motion, as long as it is not clearly shorter than its guess, or as the last motion
was clearly shorter but came too close."""
PATIENCE = 40
"""Maximum iterations of a solve from a collision-free guess before it restarts with other pairs."""
MORE = 0.01
"""Maximum growth of a step's margin per round [m]."""
DEEP = 0.01
"""Depth above which a motion counts as passing through a body [m]."""
STRONG, PLACES = 1.005, np.array([0.0, 0.25, 0.75, 1.0])[:, None]
"""Maximum torque relative to its limit, and the relative times in a step at which it is checked."""
MIDDLE = np.array([[0.5]])
"""Relative time in a step at which the problem limits torques."""
SLOWER = 20
"""Maximum number of times that a plan on the planner's path is slowed down to meet torque limits."""
QUICKER = 0.99
"""Lower bound of the factor by which a motion is sped up."""
EAGER = 1.5
"""Growth of the margin relative to the missing distance."""
MARGIN_FRACTION = 0.5
"""Fraction of the margin that a solution must keep."""
ASKED = 0.75
"""Fraction of the margin below which the margin grows for the next round."""
WIDE, SHRINK = 0.5, 0.5
"""Initial tube around a collision-free path [rad, m], and its factor after a motion that was not accepted."""
SLOW = 1.02
"""A motion slower than the best plan by this factor is abandoned, and the tube shrinks."""
WORTH = 0.995
"""Factor of duration below which a motion counts as clearly shorter. While motions at the limit of their tube get clearly
shorter, the tube follows them."""


BLOCKED = (StatusCode.LOCALLY_INFEASIBLE, StatusCode.STALLED)
"""Status codes of solves that may have failed because moving bodies were still in the way."""
FASTER = "a faster motion may exist"
"""Report of a motion after whose solve an attempt to find a faster one failed, or whose duration was fixed."""
SHORTEST = 1.001
"""A motion within this factor of the lower bound of the duration counts as fastest possible."""


class Refinement:
    """Checks solutions of a problem and chooses the next problem from the results.

    latest: problem of the returned solution, or the next problem. timed: time dominates the cost and the guess is collision-free.
    Then ``known`` [s] is the duration of the guess within velocity and acceleration limits, which motions should not exceed.
    delay: wait [s] of the first guess, until moving bodies have left its goal. sharp: solve to a smaller tolerance.
    """

    def __init__(
        self,
        motion: MotionInScene,
        check: MeshCheck | None,
        ocp: to.OCP,
        guess: to.Guess,
        tube: float = WIDE,
        timing: PathTiming | None = None,
    ) -> None:
        self.motion, self.check, self.ocp = motion, check, ocp
        self.base, self.start, self.tube, self.latest = guess, guess, tube, ocp
        self.first, self.free_ocp = guess, ocp
        self.best: to.Solution | None = None
        self.best_ocp = ocp
        self.best_report = ""
        self.seen: list[to.Guess] = []
        self.more = np.zeros((motion.checks, motion.knots))
        self.torques = np.ones((motion.knots, motion.model.nv))
        self.rounds, self.improving, self.failed = 0, 0, 0
        self.shortest = motion.shortest(guess.xs[0], guess.xs[-1])
        costs = motion.costs
        quick = costs.time > costs.acceleration + costs.energy and not motion.structure.limits_rates
        self.timed = np.isfinite(tube) and quick
        self.known = float(guess.xs[-1, -1]) if self.timed else np.inf
        self.timing = timing if self.timed else None
        self.sharp, self.at_limit, self.planned, self.retimed, self.best_tube = False, False, False, 0, tube
        n, T = motion.model.nv, float(guess.xs[-1, -1])
        self.delay = motion.clear_from(guess.xs[-1, :n], T) - T if motion.pairs.scene.moves else 0.0
        if self.delay > 0.0:
            self._wait_for_bodies()
            self.start, self.latest = self.base, motion.with_pairs(self.ocp, self.base)

    def refined(self, solution: to.Solution) -> Refined:
        """Check a solution, see :class:`trajopt.config.task.Refined`."""
        motion, n, solution = self.motion, self.motion.model.nv, self._speed_up(solution)
        self.rounds += 1
        qs, _, _, times = motion_at(solution, n, RATE)
        least, near = self._checked(qs, times)
        plan, converged = to.Guess(solution.xs, solution.us), solution.status.success
        free = least.distance >= MARGIN_FRACTION * motion.margin
        self.improving += self.best is not None
        self.failed += not converged
        report = _distance_text(least) if free else f"the motion is too close: {least}"
        slow = self.timed and self.rounds < ROUNDS and times[-1] > SLOW * self.base.xs[-1, -1]
        converged = converged and not slow
        strong = converged and free and self._exceeds_torque_limits(solution)
        if strong:
            report = "torques exceed their limits between knots"
        elif free and not converged:
            why = "the motion takes longer than its guess" if slow else f"the solve ended with {solution.status.code}"
            report = f"{why}; {report}"
        if converged and free and not strong:
            gain = np.inf if self.best is None else self.best.xs[-1, -1] / solution.xs[-1, -1]
            held = self._at_limit(plan)
            if gain > 1.0:
                self.best, self.best_report, self.at_limit, self.best_tube = solution, report, held, self.tube
                self.best_ocp = self.latest
            shortest = solution.xs[-1, -1] <= self.shortest / WORTH
            fixed = self.ocp is not self.free_ocp
            if shortest or fixed or not held or gain < 1.0 / WORTH:
                if self.sharp or not self._lags():
                    return self._finish_or_restart()
                self.sharp = True
            self.base = plan if gain > 1.0 else self.base
        if self.rounds >= ROUNDS or self.improving >= self._improvements(solution) or self.failed >= FAILED:
            return self._rejected(report, solution) if self.best is None else self._finish_or_restart(FASTER)
        if strong:
            return self._again(report, plan, solution)
        if converged and free:
            found, tube = self._faster()
            if found is not None:
                return self._problem_from_timing(found, tube)
            self.tube = min(2.0 * self.tube, WIDE)
            return self._again(report, plan, solution)
        if solution.status.code in BLOCKED and motion.pairs.scene.moves and self.best is None:
            self._wait_for_bodies()
        if not converged or least.distance < -DEEP:
            self.more *= 0.5
            self.seen = [plan] if np.isfinite(self.tube) else [*self.seen, plan]
            self.tube *= SHRINK
            if not converged or np.isfinite(self.tube) or self.rounds % 2:
                return self._again(report, self.base, solution)
        self._increase_margins(near, times)
        return self._again(report, plan, solution)

    def _wait_for_bodies(self) -> None:
        """Start from the first guess after a wait, and fix the duration: the problem places moving bodies where they are at the
        times of its guess, which is exact for this duration only.

        The first wait is half of the time until all bodies rest, the next one all of it; at least ``delay``.
        """
        motion, first = self.motion, self.first
        T, n, (_, longest) = float(first.xs[-1, -1]), motion.model.nv, motion.limits.duration
        rest = max(body.path.times[-1] for body in motion.pairs.scene.bodies if body.path is not None)
        wait = min(max(min(self.failed / (FAILED - 1), 1.0) * max(rest, 0.0), self.delay), longest - T)
        if wait > 0.0:
            q, times = first.xs[1:, :n], wait + T * motion.grid
            delayed = Timing(np.vstack([q[:1], q]), np.append(0.0, times))
            self.base = guess_from_timing(delayed, motion.limits, motion.fractions)
            lower, upper = np.array(self.free_ocp.u_lower), np.array(self.free_ocp.u_upper)
            lower[0, 0] = upper[0, 0] = self.base.xs[-1, -1]
            self.ocp = replace(self.free_ocp, u_lower=lower, u_upper=upper)

    def _rejected(self, report: str, solution: to.Solution) -> Refined:
        """Return the last motion, which is not accepted.

        With moving bodies it is compared with their positions at its own times, and reported as not feasible instead of locally
        infeasible: only the problem with the bodies at the times of the guess is locally infeasible.
        """
        if not self.motion.pairs.scene.moves:
            return Refined(False, report)
        guess_duration = float(self.start.xs[-1, -1])
        self.latest = self.motion.with_pairs(self.free_ocp, to.Guess(solution.xs, solution.us))
        report += f"; the last solve placed the moving bodies at the times of a guess of {guess_duration:.3f} s"
        if solution.status.code not in BLOCKED:
            return Refined(False, report)
        status = unrefined(self.rounds, report)
        return Refined(False, report, solution=replace(solution, status=status))

    def _lags(self) -> bool:
        """True if the best motion is not clearly shorter than its guess."""
        return self.best is not None and self.best.xs[-1, -1] > WORTH * self.known

    def _improvements(self, last: to.Solution) -> int:
        """Return the maximum number of solves after an accepted motion, depending on the last result."""
        promising = self.best is not None and last.status.success and last.xs[-1, -1] * SLOW < self.best.xs[-1, -1]
        return LAGGING if self._lags() or promising else IMPROVING

    def _finish_or_restart(self, *more: str) -> Refined:
        """Return the best motion, or restart from a faster timing of the planner's or the motion's path, if one exists."""
        found, tube = self._faster()
        return self._best_with_report(*more) if found is None else self._problem_from_timing(found, tube)

    def _problem_from_timing(self, found: Timing, tube: float) -> Refined:
        """Return the next problem, with the pairs and the guess of a timing."""
        self.retimed += 1
        self.improving, self.tube = 0, tube
        self.base = self.start = guess_from_timing(found, self.motion.limits, self.motion.fractions)
        self.latest = self.motion.with_pairs(self.ocp, self.start, self.more, self.seen, self.tube, self.torques)
        return Refined(False, self.best_report, Again(self.latest, self.start, sharp=self.sharp))

    def _faster(self) -> tuple[Timing | None, float]:
        """Return a TOPP-RA timing of the planner's or the best motion's path if it is clearly faster, or None; and the tube."""
        if self.timing is None or self.best is None or self.retimed >= RETIMED or self.rounds >= ROUNDS:
            return None, self.tube
        T = float(self.best.xs[-1, -1])
        if SHORTEST * self.shortest >= T:
            return None, self.tube
        planned = None if self.planned else self.timing.faster_than(T)
        if planned is not None:
            self.planned = True
            return planned, WIDE
        own = self.timing.solution_timing(self.best) if self.at_limit else None
        return (own if own is not None and own.duration < WORTH * T else None), self.best_tube

    def _best_with_report(self, *more: str) -> Refined:
        """Return the best motion, with a comparison to its guess and to TOPP-RA on the planner's path."""
        assert self.best is not None  # the caller has an accepted motion
        self.latest = self.best_ocp  # later problems have other pairs, margins and tubes
        if self.timing is not None and self.timing.faster_than(float(self.best.xs[-1, -1]) / SHORTEST) is not None:
            self._use_planned_path()
        T = float(self.best.xs[-1, -1])
        if self.ocp is not self.free_ocp:
            more = (FASTER, "the duration is that of a guess that waits for moving bodies")
        if self.known * SHORTEST < T:
            more = (*more, f"its guess, timed by velocity and acceleration limits only, takes {self.known:.3f} s")
        if self.timing is not None:
            more = (*more, self.timing.compared(T))
        return Refined(True, "; ".join((self.best_report, *more)), solution=self.best)

    def _use_planned_path(self) -> None:
        """Use the planner's path, timed with piecewise constant accelerations, if it is collision-free and shorter.

        It must satisfy the constraints of the problem with its own pairs and without additional margins, which becomes the latest.
        """
        motion, best = self.motion, self.best
        if best is None or self.timing is None or self.timing.planned is None:
            return
        plan = self._slow_down(guess_from_timing(self.timing.planned, motion.limits, motion.fractions))
        if plan is None or plan.xs[-1, -1] >= best.xs[-1, -1]:
            return
        status = replace(best.status, message="Path of the planner timed by TOPP-RA: feasible, but not optimal.")
        gains = tracking_gains(self.latest, plan.xs, plan.us)
        found = replace(self._with_plan(best, plan), status=status, K=gains, k=np.zeros_like(best.k), multipliers={})
        qs, _, _, times = motion_at(found, motion.model.nv, RATE)
        least, _ = self._checked(qs, times)
        own = motion.with_pairs(self.ocp, plan, tube=WIDE)
        if least.distance >= MARGIN_FRACTION * motion.margin and not any(
            constraint_violations(own, found.xs, found.us)
        ):
            self.latest, self.best, self.best_report = (
                own,
                found,
                f"{_distance_text(least)}; this is the path of the planner, no shorter motion was found",
            )

    def _slow_down(self, plan: to.Guess) -> to.Guess | None:
        """Rescale a plan to the shortest duration within its limits, on the same path; None if torques exceed their limits."""
        ratio = max(self._duration_ratio_at_limits(plan), self.motion.limits.duration[0] / float(plan.xs[-1, -1]))
        plan = with_duration_scaled(plan, ratio, self.motion.model.nv)
        for _ in range(SLOWER):
            if self._torque_ratios(plan, PLACES).max() <= 1.0:
                return plan
            plan = with_duration_scaled(plan, SLOW, self.motion.model.nv)
        return None

    def _duration_ratio_at_limits(self, plan: to.Guess | to.Solution) -> float:
        """Return the duration at which a plan reaches its velocity or acceleration limits, relative to its duration."""
        n, limits = self.motion.model.nv, self.motion.limits
        velocity = np.abs(plan.xs[1:, n : 2 * n] / limits.velocity).max()
        return float(max(velocity, np.sqrt(np.abs(plan.us[1:] / limits.acceleration).max())))

    def _with_plan(self, solution: to.Solution, plan: to.Guess) -> to.Solution:
        """Return a solution with another trajectory and its times."""
        times = self.latest.times_of(plan.xs)
        xs = np.vstack([solution.xs[:1], plan.xs[1:]])  # the duration in x0 is unchanged
        return replace(solution, xs=xs, us=plan.us, cost=float(self.latest.cost(xs, plan.us)), times=times)

    def _speed_up(self, solution: to.Solution) -> to.Solution:
        """Speed up a solution on the same path to its limits; interior-point methods end slightly within them."""
        motion, T = self.motion, float(solution.xs[-1, -1])
        if not (self.timed and solution.status.success) or motion.pairs.scene.moves:
            return solution
        ratio = max(self._duration_ratio_at_limits(solution), motion.limits.duration[0] / T, QUICKER)
        if ratio >= 1.0:
            return solution
        plan = with_duration_scaled(to.Guess(solution.xs, solution.us), ratio, motion.model.nv)
        before, after = (self._torque_ratios(p, MIDDLE).max() for p in (solution, plan))
        return solution if after > max(1.0, before) else self._with_plan(solution, plan)

    def _exceeds_torque_limits(self, solution: to.Solution) -> bool:
        """True if torques exceed their limits between the constrained times; lowers the torque limits there."""
        ratio = self._torque_ratios(solution, PLACES)
        over = ratio > STRONG
        self.torques = np.divide(self.torques, ratio, out=np.array(self.torques), where=over)
        return bool(over.any())

    def _torque_ratios(self, plan: to.Guess | to.Solution, places: Array) -> Array:
        """Return the largest torques (N, n) relative to their limits at relative times (P, 1) of each step."""
        motion, n = self.motion, self.motion.model.nv
        s = float(plan.xs[-1, -1]) * motion.fractions[:, None, None] * places
        q, v, a = (x[1:, None] for x in (plan.xs[:-1, :n], plan.xs[:-1, n : 2 * n], plan.us))
        qs, vs = q + s * (v + 0.5 * s * a), v + s * a
        q, v, a = (x.reshape(-1, n) for x in (qs, vs, np.broadcast_to(a, vs.shape)))
        ratio = np.abs(torques_of(motion.model, q, v, a)) / motion.limits.torque
        return np.asarray(ratio.reshape(motion.knots, -1, n).max(axis=1))

    def _at_limit(self, plan: to.Guess) -> bool:
        """True if the tube or a coarse capsule limits a plan."""
        n = self.motion.model.nv
        away = float(np.abs(plan.xs[1:-1, :n] - self.start.xs[1:-1, :n]).max())
        return away > 0.99 * self.tube or self.motion.limited_by_coarse(self.start, plan)

    def _again(self, report: str, start: to.Guess, solution: to.Solution) -> Refined:
        before, self.start = self.latest, start
        self.latest = self.motion.with_pairs(self.ocp, start, self.more, self.seen, self.tube, self.torques)
        multipliers_to_reuse = (
            matching_multipliers(solution.multipliers, before, self.latest) if solution.status.success else {}
        )
        return Refined(False, report, Again(self.latest, start, multipliers_to_reuse, self.sharp))

    def _increase_margins(self, near: Array, times: Array) -> None:
        """Increase the margins of steps that come too close between the constrained times; near: distances (M,) [m]."""
        motion = self.motion
        step = np.minimum(motion.grid.searchsorted(times / times[-1], side="right") - 1, motion.knots - 1)
        for k in np.unique(step[np.isfinite(near)]):
            grown = min(EAGER * (motion.margin - float(near[step == k].min())), MORE)
            self.more[:, k] += grown
            self.more[-1, max(k - 1, 0)] += 0.5 * grown
            self.more[0, min(k + 1, motion.knots - 1)] += 0.5 * grown

    def _checked(self, qs: Array, times: Array) -> tuple[MinimumDistance, Array]:
        """Return the smallest distance, and the distances (M,) below the required one, else infinity."""
        asked = ASKED * self.motion.margin
        if self.check is not None:
            return self.check.below(qs, times, asked)
        gaps = self.motion.pairs.smallest_gaps(qs, times)
        k = int(np.argmin(gaps))
        least = MinimumDistance(float(gaps[k]), "a capsule of the robot", "the scene", float(times[k]))
        return least, np.where(gaps < asked, gaps, np.inf)


def _distance_text(least: MinimumDistance) -> str:
    """Return a sentence on the smallest distance, which is infinite if the robot can touch nothing."""
    return f"smallest distance {least}" if np.isfinite(least.distance) else "no bodies to avoid"


def matching_multipliers(multipliers: Mapping[str, Array], before: to.OCP, after: to.OCP) -> dict[str, Array]:
    """Return multipliers for the next problem; zero for distance slots whose pair has changed."""
    found = dict(multipliers)
    for old, new in zip(before.phases[-1].constraints, after.phases[-1].constraints, strict=True):
        if "pairs" in new.parameters and new.name in found:
            y = found[new.name]
            same = np.equal(old.parameters["pairs"], new.parameters["pairs"]).reshape(*y.shape, NUMBERS)
            found[new.name] = y * same.all(axis=2)
    return found
