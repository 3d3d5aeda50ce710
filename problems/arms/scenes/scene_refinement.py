"""What is done about a motion among obstacles that does not stand: the problem is solved again.

Pairs of links and bodies are chosen for a plan. A motion that leaves it far behind may go through what nobody asked about, so that
configurations stay within a tube about the best plan that is known, where that is free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.clearance import NUMBERS
from problems.arms.scenes.in_scene import MotionInScene, motion_at, plan_timed, timed_by
from problems.arms.scenes.joint_torques import torques_of
from problems.arms.scenes.way_timing import WayTiming
from trajopt.collisions.mesh_check import RATE, LeastDistance, MeshCheck
from trajopt.config.task import Refined
from trajopt.guesses.time_optimal import Timing
from trajopt.solvers.feedback import tracking_gains

ROUNDS, IMPROVING, FAILED = 10, 1, 3
"""Solves of a problem at most; of these after one that stands, for a faster motion; and those that find no motion at all."""
RETIMED = 3
"""Solves at most from what TOPP-RA makes of a way."""
LAGGING = 4
"""Solves at most after a motion that stands, as long as it is not clearly shorter than its guess, or the last
one was clearly shorter than what stands and only came too close."""
PATIENCE = 40
"""Iterations after which a solve from a guess that is free begins anew with other pairs."""
MORE = 0.01
"""[m] The margin of a step grows by no more than this in a round."""
DEEP = 0.01
"""[m] A motion that goes deeper has gone through something."""
STRONG, PLACES = 1.005, np.array([0.0, 0.25, 0.75, 1.0])[:, None]
"""The share of a limit of torque that a solution may take at these places of a step."""
MIDDLE = np.array([[0.5]])
"""Where in a step limits of torques hold."""
SLOWER = 20
"""The planner's way is slowed down so often at most, until torques keep their limits."""
QUICKER = 0.99
"""The share of the duration that a motion is quickened to at most."""
EAGER = 1.5
"""The margin grows by this factor of what is missing."""
KEPT = 0.5
"""The share of the margin that a solution must keep."""
ASKED = 0.75
"""The share below which more is asked in the next round."""
WIDE, SHRINK = 0.5, 0.5
"""[rad, m] The first tube about a path that is free, and by what it shrinks where a motion within did not stand."""
SLOW = 1.02
"""A motion that takes this much longer than the best plan is in a corner: it is left, for a narrower tube."""
WORTH = 0.995
"""A motion at the limit of its tube is followed as long as the duration falls below this share; one that takes less than this share
of its guess is clearly shorter."""


SHORTEST = 1.001
"""A motion that takes no longer than this times what no motion falls below is as fast as can be."""


class Refinement:
    """Checks of solutions, and what they teach.

    latest: the problem of the solution that is returned, or to be solved next. timed: whether time is what costs most, on a way
    that is free: then ``known`` [s] is its duration within limits of velocity and acceleration, and no motion should take longer.
    sharp: whether solves end at a smaller tolerance.
    """

    def __init__(
        self,
        motion: MotionInScene,
        check: MeshCheck | None,
        ocp: to.OCP,
        guess: to.Guess,
        tube: float = WIDE,
        timing: WayTiming | None = None,
    ) -> None:
        self.motion, self.check, self.ocp = motion, check, ocp
        self.base, self.start, self.tube, self.latest = guess, guess, tube, ocp
        self.best: to.Solution | None = None
        self.best_ocp = ocp
        self.told = ""
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
        self.sharp, self.held, self.planned, self.retimed, self.stood = False, False, False, 0, tube

    def refined(self, solution: to.Solution) -> Refined:
        """See :class:`trajopt.config.task.Refined`."""
        motion, n, solution = self.motion, self.motion.model.nv, self._quickened(solution)
        self.rounds += 1
        qs, _, _, times = motion_at(solution, n, RATE)
        least, near = self._checked(qs, times)
        plan, converged = to.Guess(solution.xs, solution.us), solution.status.success
        free = least.distance >= KEPT * motion.margin
        self.improving += self.best is not None
        self.failed += not converged
        report = f"smallest distance {least}" if free else f"the motion is too close: {least}"
        slow = self.timed and self.rounds < ROUNDS and times[-1] > SLOW * self.base.xs[-1, -1]
        converged = converged and not slow
        strong = converged and free and self._too_strong(solution)
        if strong:
            report = "torques exceed their limits between knots"
        if converged and free and not strong:
            gain = np.inf if self.best is None else self.best.xs[-1, -1] / solution.xs[-1, -1]
            held = self._at_limit(plan)
            if gain > 1.0:
                self.best, self.told, self.held, self.stood = solution, report, held, self.tube
                self.best_ocp = self.latest
            shortest = solution.xs[-1, -1] <= self.shortest / WORTH
            if shortest or not held or gain < 1.0 / WORTH:
                if self.sharp or not self._lags():
                    return self._ended()
                self.sharp = True
            self.base = plan if gain > 1.0 else self.base
        if self.rounds >= ROUNDS or self.improving >= self._improvements(solution) or self.failed >= FAILED:
            return Refined(False, report) if self.best is None else self._ended("a faster motion may exist")
        if strong:
            return self._again(report, plan, solution)
        if converged and free:
            found, tube = self._faster()
            if found is not None:
                return self._from(found, tube)
            self.tube = min(2.0 * self.tube, WIDE)
            return self._again(report, plan, solution)
        if not converged or least.distance < -DEEP:
            self.more *= 0.5
            self.seen = [plan] if np.isfinite(self.tube) else [*self.seen, plan]
            self.tube *= SHRINK
            if not converged or np.isfinite(self.tube) or self.rounds % 2:
                return self._again(report, self.base, solution)
        self._ask_more(near, times)
        return self._again(report, plan, solution)

    def _lags(self) -> bool:
        """True if the best motion is not clearly shorter than its guess."""
        return self.best is not None and self.best.xs[-1, -1] > WORTH * self.known

    def _improvements(self, last: to.Solution) -> int:
        """Solves at most after a motion that stands, by what the last one found."""
        promising = self.best is not None and last.status.success and last.xs[-1, -1] * SLOW < self.best.xs[-1, -1]
        return LAGGING if self._lags() or promising else IMPROVING

    def _ended(self, *more: str) -> Refined:
        """The best motion, unless the planner's way or its own can be passed in less time: then that is where to start again."""
        found, tube = self._faster()
        return self._stands(*more) if found is None else self._from(found, tube)

    def _from(self, found: Timing, tube: float) -> Refined:
        """The problem with the pairs of a timing, and from there."""
        self.retimed += 1
        self.improving, self.tube = 0, tube
        self.base = self.start = plan_timed(found, self.motion.limits, self.motion.shares)
        self.latest = self.motion.with_pairs(self.ocp, self.start, self.more, self.seen, self.tube, self.torques)
        return Refined(False, self.told, self.latest, self.start, sharp=self.sharp)

    def _faster(self) -> tuple[Timing | None, float]:
        """TOPP-RA on the planner's way, or that of the best motion, where that takes clearly less time; and the tube about it."""
        if self.timing is None or self.best is None or self.retimed >= RETIMED or self.rounds >= ROUNDS:
            return None, self.tube
        T = float(self.best.xs[-1, -1])
        if SHORTEST * self.shortest >= T:
            return None, self.tube
        planned = None if self.planned else self.timing.faster_than(T)
        if planned is not None:
            self.planned = True
            return planned, WIDE
        own = self.timing.own(self.best) if self.held else None
        return (own if own is not None and own.duration < WORTH * T else None), self.stood

    def _stands(self, *more: str) -> Refined:
        """The best motion, with a word about what it is held against: its guess, and TOPP-RA on the planner's way."""
        assert self.best is not None  # else nothing stands
        self.latest = self.best_ocp  # later problems have other pairs, margins and tubes
        if self.timing is not None and self.timing.faster_than(float(self.best.xs[-1, -1]) / SHORTEST) is not None:
            self._pass_planned_way()
        T = float(self.best.xs[-1, -1])
        if self.known * SHORTEST < T:
            more = (*more, f"its guess, timed by velocity and acceleration limits only, takes {self.known:.3f} s")
        if self.timing is not None:
            more = (*more, self.timing.compared(T))
        return Refined(True, "; ".join((self.told, *more)), solution=self.best)

    def _pass_planned_way(self) -> None:
        """Take the planner's way, as fast as steps of constant accelerations pass it, where that is clear and shorter."""
        motion, best = self.motion, self.best
        if best is None or self.timing is None or self.timing.planned is None:
            return
        plan = self._slowed(plan_timed(self.timing.planned, motion.limits, motion.shares))
        if plan is None or plan.xs[-1, -1] >= best.xs[-1, -1]:
            return
        status = replace(best.status, message="Path of the planner timed by TOPP-RA: feasible, but not optimal.")
        gains = tracking_gains(self.latest, plan.xs, plan.us)
        found = replace(self._with_plan(best, plan), status=status, K=gains, k=np.zeros_like(best.k), multipliers={})
        qs, _, _, times = motion_at(found, motion.model.nv, RATE)
        least, _ = self._checked(qs, times)
        if least.distance >= KEPT * motion.margin:
            self.best, self.told = (
                found,
                f"smallest distance {least}; this is the path of the planner, no shorter motion was found",
            )

    def _slowed(self, plan: to.Guess) -> to.Guess | None:
        """A plan on the same way, in as little time as its limits let it be; None where torques do not let it pass."""
        share = max(self._share_of_limits(plan), self.motion.limits.duration[0] / float(plan.xs[-1, -1]))
        plan = timed_by(plan, share, self.motion.model.nv)
        for _ in range(SLOWER):
            if self._torque_shares(plan, PLACES).max() <= 1.0:
                return plan
            plan = timed_by(plan, SLOW, self.motion.model.nv)
        return None

    def _share_of_limits(self, plan: to.Guess | to.Solution) -> float:
        """The share of its duration in which a plan would be at its limits of velocity or acceleration."""
        n, limits = self.motion.model.nv, self.motion.limits
        velocity = np.abs(plan.xs[1:, n : 2 * n] / limits.velocity).max()
        return float(max(velocity, np.sqrt(np.abs(plan.us[1:] / limits.acceleration).max())))

    def _with_plan(self, solution: to.Solution, plan: to.Guess) -> to.Solution:
        """A solution with another trajectory, and its times."""
        times = self.latest.times_of(plan.xs)
        xs = np.vstack([solution.xs[:1], plan.xs[1:]])  # what x0 says of the duration is as it was
        return replace(solution, xs=xs, us=plan.us, cost=float(self.latest.cost(xs, plan.us)), times=times)

    def _quickened(self, solution: to.Solution) -> to.Solution:
        """The same way in as little time as limits let it be: methods of interior points end a little within them."""
        motion, T = self.motion, float(solution.xs[-1, -1])
        if not (self.timed and solution.status.success) or motion.pairs.scene.moves:
            return solution
        share = max(self._share_of_limits(solution), motion.limits.duration[0] / T, QUICKER)
        if share >= 1.0:
            return solution
        plan = timed_by(to.Guess(solution.xs, solution.us), share, motion.model.nv)
        before, after = (self._torque_shares(p, MIDDLE).max() for p in (solution, plan))
        return solution if after > max(1.0, before) else self._with_plan(solution, plan)

    def _too_strong(self, solution: to.Solution) -> bool:
        """True if torques exceed their limits between the places where these hold; there they are lowered."""
        share = self._torque_shares(solution, PLACES)
        over = share > STRONG
        self.torques = np.divide(self.torques, share, out=np.array(self.torques), where=over)
        return bool(over.any())

    def _torque_shares(self, plan: to.Guess | to.Solution, places: Array) -> Array:
        """The largest shares (N, n) of limits that torques take at places (P, 1) of each step."""
        motion, n = self.motion, self.motion.model.nv
        s = float(plan.xs[-1, -1]) * motion.shares[:, None, None] * places
        q, v, a = (x[1:, None] for x in (plan.xs[:-1, :n], plan.xs[:-1, n : 2 * n], plan.us))
        qs, vs = q + s * (v + 0.5 * s * a), v + s * a
        q, v, a = (x.reshape(-1, n) for x in (qs, vs, np.broadcast_to(a, vs.shape)))
        share = np.abs(torques_of(motion.model, q, v, a)) / motion.limits.torque
        return np.asarray(share.reshape(motion.knots, -1, n).max(axis=1))

    def _at_limit(self, plan: to.Guess) -> bool:
        """True if the tube, or what stands for bodies that were far away, holds a plan back."""
        n = self.motion.model.nv
        away = float(np.abs(plan.xs[1:-1, :n] - self.start.xs[1:-1, :n]).max())
        return away > 0.99 * self.tube or self.motion.held_back(self.start, plan)

    def _again(self, report: str, start: to.Guess, solution: to.Solution) -> Refined:
        before, self.start = self.latest, start
        self.latest = self.motion.with_pairs(self.ocp, start, self.more, self.seen, self.tube, self.torques)
        kept = multipliers_kept(solution.multipliers, before, self.latest) if solution.status.success else {}
        return Refined(False, report, self.latest, start, multipliers=kept, sharp=self.sharp)

    def _ask_more(self, near: Array, times: Array) -> None:
        """Let the margins grow in steps that come too close, between the places where distances hold; near: (M,) [m]."""
        motion = self.motion
        step = np.minimum(motion.grid.searchsorted(times / times[-1], side="right") - 1, motion.knots - 1)
        for k in np.unique(step[np.isfinite(near)]):
            grown = min(EAGER * (motion.margin - float(near[step == k].min())), MORE)
            self.more[:, k] += grown
            self.more[-1, max(k - 1, 0)] += 0.5 * grown
            self.more[0, min(k + 1, motion.knots - 1)] += 0.5 * grown

    def _checked(self, qs: Array, times: Array) -> tuple[LeastDistance, Array]:
        """The least distance, and those (M,) that are too small."""
        asked = ASKED * self.motion.margin
        if self.check is not None:
            return self.check.below(qs, times, asked)
        gaps = self.motion.pairs.least(qs, times)
        k = int(np.argmin(gaps))
        least = LeastDistance(float(gaps[k]), "a capsule of the robot", "the scene", float(times[k]))
        return least, np.where(gaps < asked, gaps, np.inf)


def multipliers_kept(multipliers: Mapping[str, Array], before: to.OCP, after: to.OCP) -> dict[str, Array]:
    """Multipliers of a problem for the next; zero for the distances of slots that are about another pair there."""
    found = dict(multipliers)
    for old, new in zip(before.phases[-1].constraints, after.phases[-1].constraints, strict=True):
        if "pairs" in new.parameters and new.name in found:
            y = found[new.name]
            same = np.equal(old.parameters["pairs"], new.parameters["pairs"]).reshape(*y.shape, NUMBERS)
            found[new.name] = y * same.all(axis=2)
    return found
