"""Inverse kinematics of a frame: configurations within the joint limits that place the frame at a goal.

    find q:   e(q) = W (p* - p(q), w(q)) = 0,   q_lower <= q <= q_upper,   the solution nearest to q0

p is the position of the frame, w the rotation vector from its orientation to that of the goal, in world axes. With a free axis, w
is the smallest rotation that aligns this axis. W divides positions by the reach, an upper bound on the distance of the frame from
the first joint, to make them comparable with angles. A batch of starts, q0 and random configurations, is improved in parallel by
steps

    dq = J' (J J' + lambda 1)^-1 e  +  g (1 - J^+ J) (q0 - q),       lambda = |e|^2 / 2 + MIN_DAMPING

that exclude joints at a limit that would pass it. The damping by the squared residual (Sugihara 2011, IEEE Trans. Robotics 27(5),
eq. 29) gives Gauss-Newton steps near a solution, and short steps if there is none. It grows after a step that increases the
error, which is rejected. The second term, which does not move the frame to first order, pulls redundant joints toward q0.
Revolute joints are finally wrapped to within half a turn of q0, if their limits allow.

The manipulability of a configuration is the product of the singular values of the scaled Jacobian of the goal, sqrt(det J J') for
robots with enough joints (Yoshikawa 1985). The dexterity is the ratio of the smallest and the largest one. Both vanish at a
singularity.
"""

from __future__ import annotations

from collections.abc import Callable
from math import hypot, isfinite
from typing import NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.registry import kinematics_of
from dynamics_backends.rigid_body.algorithms.kinematics import rotation_log
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.spatial.rotations import rotation_matrix

STARTS = 16
"""Default number of starts, q0 and random ones."""
MORE_STARTS = 4
"""Factor on the number of starts in a second search, if the first one missed a goal."""
ITERATIONS = 50
PATIENCE = 5
"""Maximum number of iterations after each goal has a converged start; the other starts may end nearer to q0."""
TOLERANCE = 1e-6
"""Convergence tolerance on |e|, with lengths in units of the reach."""
NEAR = 5e-5
"""Error |e|, lengths in units of the reach, up to which a goal counts as reached; with a stretched arm, starts end slightly off.
"""
MIN_DAMPING = 1e-10
MORE_DAMPING = 1e-7
"""Damping added after a failed step, multiplied by four after each further failure; near a singularity curvature matters."""
GAIN = 0.3
"""Gain g toward q0."""
GAIN_STEPS, FINAL_STEPS = 25, 3
"""Maximum number of steps with the gain toward q0, and minimum number of final steps without it."""
COARSE_TOLERANCE = 1e3
"""Factor on the tolerance while the gain toward q0 is active, because that gain limits the accuracy."""
MAX_STEP = 0.5
"""Largest entry of a step [rad, or reach]."""
SAME_SOLUTION = 1e-2
"""Solutions whose joints all agree to this [rad or m] count as equal."""
OPPOSITE = 1e-8
"""Axes with a smaller sine of their angle are parallel or opposite, and their normal is rounding error."""
TURN = 2.0 * np.pi

Clearance = Callable[[Array], Array]
"""Function from configurations (M, nq) to the smallest distance (M,) [m] from obstacles, negative inside."""


class IKResult(NamedTuple):
    """Result of inverse kinematics for each of N goals; without the axis N for a single goal.

    q: (N, nq), the solution nearest to q0, collision-free ones first; without a solution, the configuration with the smallest
    error. reached: (N,) True if q is a solution, with errors up to 5e-5 rad or 5e-5 of the arm's reach. position_error (N,) [m],
    rotation_error (N,) [rad]: errors of q, 0 for a part that the goal leaves open. manipulability, dexterity: (N,), product of
    the singular values of the goal's Jacobian, with lengths in units of the reach, and ratio of the smallest to the largest
    one; both are zero at a singularity. clear: (N,) True if q is free of obstacles. solutions: a tuple with the distinct
    solutions (M, nq) of each goal, also of a single one; collision-free ones come first, and of these, as of the others, the
    nearest to q0 first.
    """

    q: Array
    reached: Array
    position_error: Array
    rotation_error: Array
    manipulability: Array
    dexterity: Array
    clear: Array
    solutions: tuple[Array, ...]


class _Goal(NamedTuple):
    """Batch of goals, one for each row of a search. position (M, 3), rotation (M, 3, 3), either None; axis (3,) or None."""

    position: Array | None
    rotation: Array | None
    axis: Array | None

    def repeated(self, count: int) -> _Goal:
        """Goals with each one repeated ``count`` times, once for each start."""
        p, R = (None if a is None else np.repeat(a, count, axis=0) for a in (self.position, self.rotation))
        return _Goal(p, R, self.axis)


class _Errors(NamedTuple):
    """Error e (M, m), its Jacobian J (M, m, nv), distance |p* - p| (M,) [m], and angle |w| (M,) [rad]."""

    e: Array
    J: Array
    distance: Array
    angle: Array


def inverse_kinematics(
    model: Model,
    frame: str,
    position: Array | None = None,
    rotation: Array | None = None,
    *,
    free_axis: Array | None = None,
    q0: Array | None = None,
    clearance: Clearance | None = None,
    limits: bool = True,
    starts: int = STARTS,
    seed: int = 0,
) -> IKResult:
    """Find configurations that place a frame at a goal, or at each of N goals.

    position: (3,) or (N, 3) [m] in the world. rotation: world from frame, in a form of :func:`~trajopt.rotation_matrix`, (3, 3)
    or (N, 3, 3). Either may be omitted. free_axis: (3,) in the frame, axis of a free rotation. q0: (nq,) or (N, nq), reference
    configuration, default the neutral one. clearance: ranks solutions in collision after the others. limits: enforce joint
    limits. starts: number of starts of the search, q0 and random ones; if a goal is missed, the search for all goals is repeated
    once with 4 times as many. Raises UnknownName for a frame that the model does not have, ValueError for another
    shape, no goal, an invalid rotation or axis, numbers that are not finite, starts < 1, a frame that no joint moves, or a model
    with quaternions or with mimic joints that follow others.

    >>> import numpy as np, trajopt as to
    >>> arm = to.load_robot("iiwa7")
    >>> found = to.inverse_kinematics(arm, "iiwa_link_ee", np.array([0.4, 0.1, 0.6]))
    >>> bool(found.reached), bool(np.all(found.q <= arm.q_upper))
    (True, True)
    """
    frame_id = model.frame_id(frame)
    if model.nq != model.nv:
        balls = [name for name, kind in zip(model.joint_names, model.joint_types, strict=True) if kind == "spherical"]
        which = f"does not support ball joints: {', '.join(balls)}"
        why = "supports fixed-base robots only" if model.floating_base or not balls else which
        raise ValueError(f"{model.name} has quaternions in its configuration; inverse kinematics {why}")
    if model.coupling is not None:
        raise ValueError(
            f"{model.name} has mimic joints that follow others, which inverse kinematics does not support; load it with mimic = "
            "'free' or 'lock'"
        )
    if model.frames[frame_id].body < 0:
        raise ValueError(f"{frame!r} is not moved by any joint: choose a frame of a moving link")
    if starts < 1:
        raise ValueError(f"starts = {starts}: expected at least 1 (q0)")
    goal, single = _goals(position, rotation, free_axis)
    n = len(goal.position if goal.position is not None else goal.rotation)  # type: ignore[arg-type]
    reference = _reference_configurations(model, q0, n)
    rng = np.random.default_rng(seed)
    for count in (starts, MORE_STARTS * starts):
        search = _Search(model, frame_id, goal.repeated(count), np.repeat(reference, count, axis=0), limits)
        q, errors = search.run(search.start_configurations(count, rng), count)
        result = _selected(search, q, errors, n, clearance, single)
        if np.all(result.reached):
            break
    return result


def _goals(position: Array | None, rotation: Array | None, axis: Array | None) -> tuple[_Goal, bool]:
    """Goals as batches of equal length, with a normalized axis, and True if a single goal was given.

    Raises ValueError without a goal, for wrong shapes or numbers of goals, numbers that are not finite, and an axis that is zero
    or without a rotation.
    """
    if position is None and rotation is None:
        raise ValueError("inverse kinematics needs a goal: position, rotation, or both")
    p = None if position is None else np.asarray(position, dtype=float)
    R = None if rotation is None else rotation_matrix(rotation, "rotation")
    if p is not None and (p.shape[-1:] != (3,) or p.ndim > 2):
        raise ValueError(f"position has shape {p.shape}; expected (3,) or (N, 3)")
    if p is not None and not np.isfinite(p).all():
        raise ValueError("position contains NaN or infinity")
    single = (p is None or p.ndim == 1) and (R is None or R.ndim == 2)
    batches = {len(a) for a, ndim in ((p, 1), (R, 2)) if a is not None and a.ndim > ndim} or {1}
    if len(batches) > 1 or 0 in batches:
        raise ValueError(
            f"positions and rotations have {sorted(batches)} goals; give the same number of both, at least one"
        )
    (n,) = batches
    P = None if p is None else np.broadcast_to(p, (n, 3))
    Q = None if R is None else np.broadcast_to(R, (n, 3, 3))
    if axis is not None and (R is None or np.shape(axis) != (3,) or not np.isfinite(axis).all() or not np.any(axis)):
        raise ValueError(f"free_axis = {axis}; expected a direction (3,) in the frame, together with a rotation")
    return _Goal(P, Q, None if axis is None else np.asarray(axis, dtype=float) / np.linalg.norm(axis)), single


def _reference_configurations(model: Model, q0: Array | None, n: int) -> Array:
    """Reference configuration q0 (n, nq) of each of n goals, default the neutral one.

    Raises ValueError for another shape, and for numbers that are not finite.
    """
    q = model.neutral() if q0 is None else np.asarray(q0, dtype=float)
    if q.shape not in ((model.nq,), (n, model.nq)) or not np.isfinite(q).all():
        raise ValueError(f"q0 has shape {q.shape}; expected finite numbers, ({model.nq},) or (N = {n}, {model.nq})")
    return np.broadcast_to(q, (n, model.nq))


_SLIDES = {"prismatic": (True,), "planar": (True, True, False)}
"""Coordinates of a joint that are lengths, for types with such coordinates."""
_TURNS = {"revolute": (True,), "planar": (False, False, True)}
"""Coordinates of a joint that are angles."""


def _coordinates(model: Model, selected: dict[str, tuple[bool, ...]]) -> Array:
    """Array (nq,) that is True for the selected coordinates, by joint type; all types have as many coordinates as DoFs."""
    single = (False,)
    return np.concatenate([selected.get(kind, single) for kind in model.joint_types])


class _Search:
    """Parallel search from several starts for all goals; arrays have one row for each pair of goal and start."""

    def __init__(self, model: Model, frame: int, goal: _Goal, reference: Array, limits: bool) -> None:
        self.model, self.goal, self.reference = model, goal, reference
        unlimited = np.full(model.nq, np.inf)
        self.lower, self.upper = (model.q_lower, model.q_upper) if limits else (-unlimited, unlimited)
        self.lower, self.upper = np.minimum(self.lower, self.upper), np.maximum(self.lower, self.upper)
        self.reach, self.kinematics = reach_of(model, frame), kinematics_of(model, frame)
        self.damping = np.zeros(len(reference))
        self.slides, self.turns = _coordinates(model, _SLIDES), _coordinates(model, _TURNS)
        self.planar = [int(i) for i, kind in zip(model.q_index, model.joint_types, strict=True) if kind == "planar"]
        self.on_path = np.zeros(model.nv, dtype=bool)
        self.on_path[model.ancestors(model.frames[frame].body)] = True

    def start_configurations(self, starts: int, rng: np.random.Generator) -> Array:
        """Start configurations, a row for each pair of goal and start; starts: number of rows of each goal.

        For each goal, its q0 clipped to the limits is first. Random ones within the limits follow, or near q0 for joints without
        limits. Joints that do not move the frame keep the clipped q0.
        """
        reference = np.clip(self.reference, self.lower, self.upper)
        span = np.where(self.slides, self.reach, np.pi)
        lower = np.where(np.isfinite(self.lower), self.lower, reference - span)
        upper = np.where(np.isfinite(self.upper), self.upper, reference + span)
        q = np.where(self.on_path, rng.uniform(lower, upper), reference)
        q[::starts] = reference[::starts]
        return q

    def run(self, q: Array, starts: int) -> tuple[Array, _Errors]:
        """Improve the start configurations q; returns their final configurations and errors. starts: number of rows of each goal.

        If more joints move the frame than the error has components, at most the first GAIN_STEPS steps also draw them toward q0.
        The search ends after ITERATIONS, or at most PATIENCE iterations after each goal has a converged start. Finally, revolute
        joints are wrapped (:meth:`unwound`).
        """
        left, drawn = ITERATIONS, self.on_path.sum() > self.rows
        errors = self.errors(q)
        while left > 0:
            draws = drawn and left > max(FINAL_STEPS, ITERATIONS - GAIN_STEPS)
            candidates = self.step(q, errors, GAIN if draws else 0.0)
            q, errors = self.accepted(q, errors, candidates, draws)
            good = np.linalg.norm(errors.e, axis=1) <= TOLERANCE * (COARSE_TOLERANCE if draws else 1.0)
            left -= 1
            if good.reshape(-1, starts).any(axis=1).all():
                left = min(left, PATIENCE)
        q = self.unwound(q)
        return q, self.errors(q)

    def accepted(self, q: Array, errors: _Errors, candidates: Array, draws: bool) -> tuple[Array, _Errors]:
        """Configurations and errors after steps; a step that increases the error is rejected and raises the damping.

        Other steps lower the damping. draws: take all steps, as they also move toward q0, with unchanged damping.
        """
        result = self.errors(candidates)
        if draws:
            return candidates, result
        less = np.sum(result.e**2, axis=1) <= np.sum(errors.e**2, axis=1)
        self.damping = np.where(
            less, np.where(self.damping > MORE_DAMPING, 0.25 * self.damping, 0.0), 4.0 * self.damping
        )
        self.damping = np.where(less, self.damping, np.maximum(self.damping, MORE_DAMPING))
        merged = (np.where(less.reshape(-1, *[1] * (a.ndim - 1)), a, b) for a, b in zip(result, errors, strict=True))
        return np.where(less[:, None], candidates, q), _Errors(*merged)

    @property
    def rows(self) -> int:
        """Number m of error components."""
        turns = 0 if self.goal.rotation is None else 3 if self.goal.axis is None else 2
        return turns + (0 if self.goal.position is None else 3)

    def errors(self, q: Array) -> _Errors:
        """Error e of the frame, its Jacobian, distance and angle at configurations q (M, nq), see :class:`_Errors`."""
        at = self.kinematics(q.T)
        J = np.moveaxis(np.reshape(at.jacobian, (6, self.model.nv, -1)), -1, 0)
        for i in self.planar:  # rates of x and y, in place of the velocity in the axes of the body
            (c, s), x, y = (f(q[:, i + 2])[:, None] for f in (np.cos, np.sin)), J[:, :, i], J[:, :, i + 1]
            J[:, :, i], J[:, :, i + 1] = c * x - s * y, s * x + c * y
        e, rows = [], []
        distance = angle = np.zeros(len(q))
        if self.goal.position is not None:
            offset = self.goal.position - at.position.T
            distance = np.linalg.norm(offset, axis=1)
            e, rows = [offset / self.reach], [J[:, :3] / self.reach]
        if self.goal.rotation is not None:
            R: Array = np.moveaxis(np.array(at.rotation), -1, 0)
            rotation_vector, spin = self.rotation_vector(R, self.goal.rotation), J[:, 3:]
            angle = np.linalg.norm(rotation_vector, axis=1)
            if self.goal.axis is not None:  # rotation about the free axis does not change the error
                along = R @ self.goal.axis
                spin = spin - along[:, :, None] * np.einsum("ni,nij->nj", along, spin)[:, None]
            e, rows = [*e, rotation_vector], [*rows, spin]
        return _Errors(np.concatenate(e, axis=1), np.concatenate(rows, axis=1), distance, angle)

    def rotation_vector(self, R: Array, goal: Array) -> Array:
        """Rotation vectors w (M, 3) from orientations R (M, 3, 3) to those of the goal (M, 3, 3), in world axes.

        With a free axis, they turn the axis of R to that of the goal by the shortest rotation.
        """
        axis = self.goal.axis
        if axis is None:
            relative = np.einsum("nij,nkj->ikn", goal, R)
            return np.stack(rotation_log([list(row) for row in relative]), axis=1)
        a, b = R @ axis, goal @ axis
        normal = np.cross(a, b)
        sine, cosine = np.linalg.norm(normal, axis=1), np.sum(a * b, axis=1)
        across = np.cross(a, np.eye(3)[np.abs(a).argmin(axis=1)])  # opposite axes: any perpendicular axis
        across /= np.linalg.norm(across, axis=1, keepdims=True)
        about = np.where((sine > OPPOSITE)[:, None], normal / np.maximum(sine, OPPOSITE)[:, None], across)
        return about * np.arctan2(sine, cosine)[:, None]

    def step(self, q: Array, errors: _Errors, draw: float) -> Array:
        """Configurations after a damped Gauss-Newton step from q of at most MAX_STEP, clipped to the joint limits.

        errors: at q. draw: gain toward q0, zero for none.
        """
        free = np.broadcast_to(self.on_path, q.shape).copy()
        toward = draw * (np.clip(self.reference, self.lower, self.upper) - q)
        dq = np.zeros_like(q)
        for _ in range(2):  # the second pass excludes joints that would pass their limits
            J = errors.J * free[:, None, :]
            JJ = J @ np.swapaxes(J, 1, 2)
            damping = 0.5 * np.sum(errors.e**2, axis=1) + MIN_DAMPING + self.damping
            JJ[:, range(JJ.shape[1]), range(JJ.shape[1])] += damping[:, None]
            residual = errors.e - (J @ (toward * free)[:, :, None])[:, :, 0]
            dq = np.swapaxes(J, 1, 2) @ np.linalg.solve(JJ, residual[:, :, None])
            dq = (dq[:, :, 0] + toward) * free
            passes = ((q <= self.lower) & (dq < 0)) | ((q >= self.upper) & (dq > 0))
            if not (passes & free).any():
                break
            free &= ~passes
        longest = np.where(self.slides, MAX_STEP * self.reach, MAX_STEP)
        dq = dq * np.minimum(1.0, 1.0 / np.maximum(np.abs(dq / longest).max(axis=1, keepdims=True), 1e-12))
        return np.clip(q + dq, self.lower, self.upper)

    def unwound(self, q: Array) -> Array:
        """Wrap angles of q to within half a turn of q0, each only if its limits allow."""
        moved = q - TURN * np.round((q - self.reference) / TURN)
        return np.where(self.turns & (moved >= self.lower) & (moved <= self.upper), moved, q)


def reach_of(model: Model, frame: int) -> float:
    """Upper bound on the distance [m] of a frame from the first joint of its chain; at least 1 mm.

    The sum of lengths between joints, and strokes: a prismatic joint adds its largest limit, 1 m without limits, a planar one 1 m.
    """
    f = model.frames[frame]
    return max(chain_lengths(model)[f.body] + hypot(*f.p) if f.body >= 0 else 0.0, 1e-3)


def chain_lengths(model: Model) -> list[float]:
    """Upper bound on the distance [m] of each body from the first joint of its chain, as in :func:`reach_of`."""
    lengths: list[float] = []
    for body, (parent, kind) in enumerate(zip(model.parent, model.joint_types, strict=True)):
        length = lengths[parent] + hypot(*model.placement_p[body]) if parent >= 0 else 0.0
        if kind == "prismatic":
            i = model.q_index[body]
            stroke = float(max(abs(model.q_lower[i]), abs(model.q_upper[i])))
            length += stroke if isfinite(stroke) else 1.0
        elif kind == "planar":
            length += 1.0
        lengths.append(length)
    return lengths


def _selected(
    search: _Search, q: Array, errors: _Errors, n: int, clearance: Clearance | None, single: bool
) -> IKResult:
    """Select the best start of each goal, and its distinct solutions.

    n: number of goals. clearance: distance of configurations from obstacles [m], None for no obstacles. single: remove the axis
    of goals, but not from the tuple ``solutions``. Starts that reach the goal rank first, those free of obstacles before the
    others, each by the distance from q0; then those that miss it, by the error.
    """
    norms = np.linalg.norm(errors.e, axis=1).reshape(n, -1)
    good = norms <= NEAR
    clear = np.ones(len(q), dtype=bool) if clearance is None else clearance(q) >= 0
    far = np.linalg.norm(q - search.reference, axis=1).reshape(n, -1)
    order = np.lexsort((np.where(good, far, norms), ~(good & clear.reshape(n, -1)), ~good), axis=1)
    chosen = order[:, 0] + np.arange(n) * norms.shape[1]
    singular = np.linalg.svd(errors.J[chosen][:, :, search.on_path], compute_uv=False)[:, : search.rows]
    solutions = []
    for i in range(n):
        ranked = order[i][good[i][order[i]]] + i * norms.shape[1]
        solutions.append(_distinct(q[ranked]))
    numbers = {
        "q": q[chosen],
        "reached": good.reshape(-1)[chosen],
        "position_error": errors.distance[chosen],
        "rotation_error": errors.angle[chosen],
        "manipulability": np.prod(singular, axis=1),
        "dexterity": singular.min(axis=1) / np.maximum(singular.max(axis=1), 1e-300),
        "clear": clear[chosen],
    }
    return IKResult(**{k: a[0] if single else a for k, a in numbers.items()}, solutions=tuple(solutions))


def _distinct(q: Array) -> Array:
    """Configurations in their order, without those that agree with an earlier one to SAME_SOLUTION in all joints."""
    distinct: list[Array] = []
    for candidate in q:
        if all(np.abs(candidate - k).max() > SAME_SOLUTION for k in distinct):
            distinct.append(candidate)
    return np.array(distinct).reshape(-1, q.shape[1])
