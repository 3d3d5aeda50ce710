"""Time-optimal motions of arms in public benchmark scenes, compared with a sampling planner and TOPP-RA.

    python -m experiments.benchmark_scenes [--scenes FILE] [--kind NAME ...] [--limit n] [--seed s] [--vary s] [--out DIR]

FILE is JSON, optionally compressed with xz. Keys: "robot", "joints", and "problems" with lists of problems by kind. A
problem has start, goal, objects (boxes with edge lengths, cylinders with height and radius; position and quaternion x y
z w in the base frame), and optionally clearance. Rejected problems, such as goals beyond joint limits, and starts or goals
in collision or closer than 1 mm to a body, are printed and not counted in the table; a line says how many they are.
--limit selects a number of problems per kind by the seed. --vary creates similar problems by its seed: it moves bodies,
start and goal, as far as they are free of collisions. Limits are the model's positions, velocities and torques, and
--accelerations (default: Franka's published values for the Panda).

Both methods start from the same path of RRT-Connect with short-cuts. Ours is problems/arms/scenes/arm_in_scene.py. A
solve succeeds if the checks of trajopt/solvers/success.py pass, and if the motion ends at the goal, within all limits,
and at least 1 mm clear of obstacles (coal, 1 kHz, meshes). Otherwise its status is away_from_goal, beyond_limits or
too_near. The other method is TOPP-RA (package toppra) on a spline through the path, refined until it is free of
collisions, with the same limits. TOPP-RA on our path gives the shortest possible time on it. Times include the checks
of trajopt.solve, but not tracing; guess is the time of the planner. If the planner exceeds its limit of processor
time, both methods start from a straight line through the obstacles; the table counts these guesses. DIR receives
scenes.csv.
"""

from __future__ import annotations

import argparse
import json
import lzma
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.batched import inverse_dynamics
from dynamics_backends.rigid_body.geometry.scene import Body, Scene
from dynamics_backends.rigid_body.geometry.shapes import Box, Cylinder
from dynamics_backends.rigid_body.model.model import Model
from experiments.benchmarks.tables import STATUS_HEADS, markdown, status_counts, write_csv
from problems.arms.arm import Arm
from problems.arms.scenes.arm_in_scene import (
    Settings,
    limits_of,
    path_of,
    task_in_scene,
)
from problems.arms.scenes.in_scene import Limits, motion_at
from problems.arms.scenes.path_timing import path_limits, planned_timing
from problems.arms.scenes.scene_robot import scene_robot
from problems.arms.scenes.scene_settings import quaternion_matrix
from problems.robots.loading import load_fixed_base
from trajopt.collisions.broad_phase import CollisionPairs
from trajopt.collisions.mesh_check import RATE, MeshCheck
from trajopt.config.build import solve_task
from trajopt.config.config import Config, read_config
from trajopt.guesses.timed_path import has_toppra, time_optimal
from trajopt.results.status import StatusCode

PANDA = (15.0, 7.5, 10.0, 12.5, 15.0, 20.0, 20.0)
"""Franka's published acceleration limits of the Panda [rad/s^2]."""
LOCKED = {"panda_finger_joint1": 0.04, "panda_finger_joint2": 0.04}
PLANNING = 60.0
"""Processor time limit of the planner [s]."""
MIN_CLEARANCE = 1e-3
"""Smallest clearance of a successful motion [m]."""
MAX_RATIO = 1.01
"""Largest ratio to a limit between knots."""
MOVED, TURNED, SHRINK, MIN_SCALE = 0.03, 0.1, 0.8, 1e-3
"""Range of moved bodies [m] and joints [rad] in similar problems, its reduction after a collision, and its smallest scale."""


class Row(NamedTuple):
    """Results of one problem.

    status: see the module. distance, pair: smallest distance [mm] and its link and body. duration, planned, on_ours,
    guessed: durations of our motion, of toppra on the planner's path and on our path, and of the guess [s]. guess_free:
    True if the guess is free of collisions. guess_ms: time of the planner; solve_ms, processor_ms: wall-clock and
    processor time of building, solving and checking. rounds: number of solves. fraction, limit: largest ratio to a
    limit at 1 kHz, and its kind. reason: message of the status if the solve did not converge.
    """

    kind: str
    number: int
    solved: bool
    status: str
    distance: float
    pair: str
    duration: float
    planned: float
    on_ours: float
    guessed: float
    guess_free: bool
    guess_ms: float
    solve_ms: float
    processor_ms: float
    rounds: int
    iterations: int
    fraction: float
    limit: str
    reason: str


def _backend(system: Any) -> Any:
    return make_backend(system, "analytic", engine="auto")


def read_scenes(path: Path) -> dict[str, Any]:
    """Read a scene file."""
    content = path.read_bytes()
    return json.loads(lzma.decompress(content) if path.suffix == ".xz" else content)


def scene_of(problem: Mapping[str, Any]) -> Scene:
    """Return the bodies of a problem."""
    return Scene(tuple(_body(o) for o in problem["objects"]))


def _body(o: Mapping[str, Any]) -> Body:
    if o["type"] not in ("box", "cylinder"):
        raise ValueError(f"object {o['name']!r} is a {o['type']!r}; known: box, cylinder")
    shape = Box(tuple(o["size"])) if o["type"] == "box" else Cylinder(o["size"][1], o["size"][0])
    return Body(o["name"], shape, quaternion_matrix(o["quaternion_xyzw"]), np.array(o["position"]))


def selected(
    scenes: Mapping[str, Any], kinds: Sequence[str] | None, limit: int | None, seed: int
) -> Iterator[tuple[str, Any]]:
    """Yield the kind and data of the valid selected problems."""
    for kind, problems in scenes["problems"].items():
        if kinds and kind not in kinds:
            continue
        valid = [p for p in problems if min(p.get("clearance", [1.0])) > 0]
        if limit is not None:
            chosen = np.random.default_rng(seed).permutation(len(valid))[:limit]
            valid = [valid[i] for i in sorted(chosen)]
        yield from ((kind, p) for p in valid)


def similar_problem(
    problem: Mapping[str, Any], rng: np.random.Generator, is_free: Callable[[Scene, Array], bool]
) -> dict[str, Any]:
    """Return a similar problem with a collision-free start and goal, or this problem if none is found.

    Bodies are moved by :data:`MOVED`, joints at start and goal by :data:`TURNED`, and less after collisions.
    """
    fraction = 1.0
    while fraction > MIN_SCALE:
        objects = [{**o, "position": _perturbed(o["position"], fraction * MOVED, rng)} for o in problem["objects"]]
        ends = {key: _perturbed(problem[key], fraction * TURNED, rng) for key in ("start", "goal")}
        found = {**problem, **ends, "objects": objects}
        if all(is_free(scene_of(found), np.array(q)) for q in ends.values()):
            return found
        fraction *= SHRINK
    return dict(problem)


def _perturbed(values: Sequence[float], width: float, rng: np.random.Generator) -> list[float]:
    return [float(x) for x in np.asarray(values, float) + rng.uniform(-width, width, len(values))]


class Bench:
    """Robot, configuration and limits shared by all problems."""

    def __init__(self, robot: str, accelerations: tuple[float, ...], solver: str, options: Mapping[str, Any]) -> None:
        self.robot, self.accelerations = robot, accelerations
        locked = LOCKED if robot.startswith("erd:panda") else {}
        self.scene_robot = scene_robot(load_fixed_base(robot, "free", locked))
        self.model = self.scene_robot.model
        self.warm: set[frozenset[str]] = set()
        self.config: Config = read_config(
            {
                "problem": {"name": "arm_in_scene", "goal_q": [0.0] * self.model.nq, "robot": robot},
                "solver": {"name": solver, **options},
            },
            "benchmark",
        )

    def is_free(self, scene: Scene, q: Array) -> bool:
        """True if the arm at q (nq,) is within its limits and has a clearance of at least :data:`MIN_CLEARANCE`."""
        within = (q >= self.model.q_lower).all() and (q <= self.model.q_upper).all()
        return bool(within) and self._check(scene).nearest(q).distance >= MIN_CLEARANCE

    def _check(self, scene: Scene) -> MeshCheck:
        return MeshCheck(self.model, self.scene_robot.shapes, scene, self.scene_robot.self_pairs.pairs)

    def settings(self, goal: Array, **more: Any) -> Settings:
        """Return the settings of a problem."""
        return Settings(
            robot=self.robot,
            goal_q=tuple(goal.tolist()),
            acceleration_limits=self.accelerations,
            guess="rrt",
            planning_time=PLANNING,
            **more,
        )

    def row(self, kind: str, problem: Mapping[str, Any]) -> Row:
        """Solve a problem and check its motion."""
        start, goal = (np.array(problem[key], float) for key in ("start", "goal"))
        scene, s = scene_of(problem), self.settings(goal)
        arm = Arm.from_model(self.model, tuple(start.tolist()), tuple(goal.tolist()), None)
        check = self._check(scene)
        limits = limits_of(s, self.model)
        began = time.perf_counter()
        pairs = CollisionPairs(self.scene_robot.cover, scene, self.scene_robot.self_pairs.pairs)
        path, free = path_of(s, start, goal, pairs, self.model)
        guess_ms = 1e3 * (time.perf_counter() - began)
        planned = planned_duration(path, limits, self.model, check)
        kinds = frozenset(core.kind for _, core in pairs.cores)
        if kinds not in self.warm:  # compiles the kernels shared by scenes of these shapes
            self.warm.add(kinds)
            solve_task(self.config, task_in_scene(s, arm, self.scene_robot, scene, _backend, (path, free)))
        began, processor = time.perf_counter(), time.process_time()
        task = task_in_scene(s, arm, self.scene_robot, scene, _backend, (path, free))
        solution = solve_task(self.config, task)
        solve_ms, processor_ms = 1e3 * (time.perf_counter() - began), 1e3 * (time.process_time() - processor)
        q, v, a, times = motion_at(solution, self.model.nv, RATE)
        nearest = check.along(q, times)
        fraction, of = largest_limit_ratio(self.model, limits, q, v, a)
        at_goal = float(np.abs(q[-1] - goal).max()) < 1e-4 and float(np.abs(v[-1]).max()) < 1e-4
        status = solution.status.code.value
        if solution.status.success:
            found = {
                "too_near": nearest.distance < MIN_CLEARANCE,
                "away_from_goal": not at_goal,
                "beyond_limits": fraction > MAX_RATIO,
            }
            status = next((end for end, true in found.items() if true), status)
        solved = status == StatusCode.CONVERGED.value
        on_ours = toppra_duration(q, times, limits, self.model) if solved else np.nan
        return Row(
            kind,
            int(problem.get("index", 0)),
            solved,
            status,
            1e3 * nearest.distance,
            f"{nearest.link} and {nearest.body}",
            float(times[-1]),
            planned,
            on_ours,
            float(task.guess.xs[-1, -1]),
            free,
            guess_ms,
            solve_ms,
            processor_ms,
            int(solution.meta.get("rounds", 1)),
            solution.iterations,
            fraction,
            of,
            "" if solution.status.success else solution.status.message,
        )


def largest_limit_ratio(model: Model, limits: Limits, q: Array, v: Array, a: Array) -> tuple[float, str]:
    """Return the largest ratio to a limit along a motion, and the kind of limit."""
    tau = inverse_dynamics(model, q, v, a)
    ratios = {
        "velocity": np.abs(v) / limits.velocity,
        "acceleration": np.abs(a) / limits.acceleration,
        "torque": np.abs(tau) / limits.torque,
    }
    worst = max(ratios, key=lambda key: float(ratios[key].max()))
    return float(ratios[worst].max()), worst


# -- TOPP-RA -------------------------------------------------------------------------------------------------


def planned_duration(path: Array, limits: Limits, model: Model, check: MeshCheck) -> float:
    """Return the duration [s] of TOPP-RA on the planner's path; NaN without toppra or if it fails."""
    found = planned_timing(path, limits, model, check) if has_toppra() else None
    return float("nan") if found is None else found.duration


def toppra_duration(q: Array, times: Array, limits: Limits, model: Model) -> float:
    """Return the duration [s] of TOPP-RA on the path of a motion, q (K, n) at times (K,); NaN without toppra or if it fails."""
    found = time_optimal(q, times, path_limits(limits, model)) if has_toppra() else None
    return float("nan") if found is None else found.duration


# -- tables --------------------------------------------------------------------------------------------------


def table(rows: Sequence[Row], file: Path | None = None) -> str:
    """Format the results, one row per kind, and for all; file: CSV file to write them to."""
    header = [
        "scenes", "problems", *STATUS_HEADS, "smallest distance [mm]", "duration [s]", "relative to toppra on the planner's path",
        "slower motions", "relative to toppra on ours", "guesses in collision",
        "planner [ms]", "solve [ms] 50 / 95 %", "processor [ms] 50 / 95 %", "iterations", "rounds",
    ]  # fmt: skip
    kinds = list(dict.fromkeys(row.kind for row in rows))
    lines = [_line(kind, [r for r in rows if r.kind == kind]) for kind in kinds]
    return markdown(header, [*lines, _line("all", list(rows))], file)


def _line(name: str, rows: list[Row]) -> list[str]:
    good = [r for r in rows if r.solved]
    ratio = [r.duration / r.planned for r in good if np.isfinite(r.planned)]
    own = [r.duration / r.on_ours for r in good if np.isfinite(r.on_ours)]
    return [
        name,
        str(len(rows)),
        *status_counts(r.status for r in rows),
        f"{min((r.distance for r in good), default=np.nan):.2f}",
        _median([r.duration for r in good]),
        _median(ratio),
        str(sum(x > 1.0 for x in ratio)),
        _median(own),
        str(sum(not r.guess_free for r in rows)),
        _quantiles([r.guess_ms for r in rows]),
        _quantiles([r.solve_ms for r in rows]),
        _quantiles([r.processor_ms for r in rows]),
        _median([r.iterations for r in rows]),
        _median([r.rounds for r in rows]),
    ]


def _median(values: Sequence[float]) -> str:
    return f"{np.median(values):.3g}" if len(values) else "-"


def _quantiles(values: Sequence[float]) -> str:
    return f"{np.percentile(values, 50):.0f} / {np.percentile(values, 95):.0f}" if len(values) else "-"


def _problem_line(r: Row) -> str:
    """Format a line about a problem."""
    guess = f"guess {r.guessed:.3f} s" if r.guess_free else f"guess {r.guessed:.3f} s, in collision"
    return (
        f"{r.kind} {r.number}: {r.status}, {r.distance:.1f} mm ({r.pair}), {r.duration:.3f} s, "
        f"toppra {r.planned:.3f} s, on ours {r.on_ours:.3f} s, {guess}, planner {r.guess_ms:.0f} ms, solve {r.solve_ms:.0f} ms "
        f"(processor {r.processor_ms:.0f}), {r.rounds} rounds, {r.iterations} iterations, {r.fraction:.3f} of {r.limit} {r.reason}"
    )


def main() -> None:
    """Solve and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=Path, required=True, metavar="FILE")
    parser.add_argument("--kind", nargs="+", help="kinds of scenes; default: all")
    parser.add_argument("--limit", type=int, help="number of problems of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vary", type=int, metavar="SEED", help="solve similar problems, created by a seed")
    parser.add_argument("--solver", default="ipm")
    parser.add_argument("--robot", help='default: "erd:" and the first word of the file\'s robot')
    parser.add_argument("--accelerations", type=float, nargs="+", default=PANDA, help="limits by joint [rad/s^2]")
    parser.add_argument("--out", type=Path, help="folder of the CSV")
    a = parser.parse_args()
    if not has_toppra():
        print("the package toppra is not installed (pip install 'urdf-trajopt[scene]'): its durations are missing")
    scenes = read_scenes(a.scenes)
    options: dict[str, Any] = {"gradient_tolerance": 1e-3, "constraint_tolerance": 1e-5}
    options |= {"hessian": "gauss_newton", "barrier": 0.01} if a.solver == "ipm" else {}
    bench = Bench(a.robot or f"erd:{scenes['robot'].split()[0]}", tuple(a.accelerations), a.solver, options)
    if a.out is not None:
        a.out.mkdir(parents=True, exist_ok=True)
    rows, rejected = list[Row](), 0
    rng = None if a.vary is None else np.random.default_rng(a.vary)
    for kind, problem in selected(scenes, a.kind, a.limit, a.seed):
        problem = problem if rng is None else similar_problem(problem, rng, bench.is_free)
        try:
            row = bench.row(kind, problem)
        except ValueError as error:
            print(f"{kind} {problem.get('index', 0)}: rejected, {error}", flush=True)
            rejected += 1
            continue
        rows.append(row)
        print(_problem_line(row), flush=True)
        if a.out is not None:
            write_csv(a.out / "scenes.csv", rows)
    if rows:
        print(f"\n{table(rows, a.out and a.out / 'table.csv')}")
    print(f"\nRejected problems: {rejected}.")


if __name__ == "__main__":
    main()
