"""Legged robots that walk in MuJoCo at a commanded speed, without a gait schedule, in scenes that differ from the model.

    python -m experiments.benchmark_walking [--robot hyq] [--seconds 60 | --minutes 10] [--scenes level,light,...] [--seed 0]
                                                       [--period 0.005] [--set KEY=VALUE ...]

Plans are those of problems/configs/hyq_free_walk.toml: half a second, by real-time iterations with implicit contact
steps. Other robots use the same numbers, scaled by dynamic similarity. The plant is MuJoCo with its own contact model;
the scene scales its friction and masses. Depending on the scene, states are measured with noise, and the base is pushed
every PUSH_EVERY seconds from a random side with an impulse of SHOVE times the robot's mass over PUSH_TIME. Plans take
effect one lead after their measurement.

The ground of "steps" has slabs of height STEP at random positions, which the planner does not know. A run ends when the
robot falls (:mod:`problems.legged.gaits.falls`). The speed is that of the base, averaged over SMOOTH seconds, after the
first START seconds; its error is relative to the commanded speed. In simulated time every response is charged one
period, so that runs do not depend on the machine. The table also has the measured times.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import problems
from dynamics_backends.protocol import Array
from experiments.benchmarks.tables import markdown
from experiments.replan.plants import plants_of
from experiments.replan.run import Setup, require_uninterrupted, setup
from trajopt.config.build import backend_factory
from trajopt.config.config import Config, load_config
from trajopt.config.scenario import horizon_of, planned, sensor_of
from trajopt.config.task import Task
from trajopt.replanning.loop import Plant, ReplanningLoop
from trajopt.replanning.plan import Plan
from trajopt.replanning.real_time import RealTimeSLQ
from trajopt.replanning.run_log import EventKind, RunLog
from trajopt.replanning.workers import SimulatedWorker

CONFIG = Path(problems.__file__).parent / "configs" / "hyq_free_walk.toml"
PUSH_EVERY, PUSH_TIME, SHOVE = 3.0, 0.1, 0.1
"""Time between pushes [s], duration of a push [s], velocity change by a push [m/s]."""
NOISE = (0.002, 0.02)
"""Standard deviations of measured positions [m, rad] and velocities [m/s, rad/s]."""
STEP, SLAB, WIDE = 0.05, (0.4, 1.2), 3.0
"""Height of slabs, range of their lengths and distances, half of their width [m]."""
START, SMOOTH = 2.0, 1.0
REPORT_INTERVAL = 10.0
"""Time between two progress lines [s]."""


class Scene(NamedTuple):
    """Differences between plant and model. friction, mass: factors; noise: of measured states; slope [rad]; steps: slabs."""

    friction: float = 1.0
    mass: float = 1.0
    noise: bool = False
    pushes: bool = False
    slope: float = 0.0
    steps: bool = False


SCENES = {
    "level": Scene(),
    "slippery": Scene(friction=0.7),
    "rough": Scene(friction=1.3),
    "light": Scene(mass=0.9),
    "heavy": Scene(mass=1.1),
    "noise": Scene(noise=True),
    "pushes": Scene(pushes=True),
    "uphill": Scene(slope=np.radians(5.0)),
    "downhill": Scene(slope=np.radians(-5.0)),
    "steps": Scene(steps=True),
    "all": Scene(friction=0.7, mass=1.1, noise=True, pushes=True),
}


class Outcome(NamedTuple):
    """Results of a run. fell: description of the fall, or ''; walked: time until the fall or the end [s].

    speed, error: mean speed [m/s] and relative rms error; ms: response p50, p95 and preparation p95.
    """

    fell: str
    walked: float
    distance: float
    speed: float
    error: float
    ms: tuple[float, float, float]
    failed: int


def run_config(robot: str, scene: Scene, seconds: float, seed: int, overrides: Sequence[str] = ()) -> Config:
    """Return the configuration of a run with overrides."""
    settings = [f"problem.robot={robot!r}", f"replan.duration={seconds}", f"replan.seed={seed}"]
    config = load_config(CONFIG, [*settings, *overrides])
    run = config.replan
    plant = replace(run.plant, mass_factor=scene.mass, slope=scene.slope)
    plant = replace(plant, contact_friction=scene.friction * plant.contact_friction)
    if scene.steps:
        plant = replace(plant, boxes=slabs(seconds, seed))
    position, velocity = NOISE if scene.noise else (0.0, 0.0)
    sensor = replace(run.sensor, position_noise=position, velocity_noise=velocity)
    return replace(config, replan=replace(run, plant=plant, sensor=sensor))


def slabs(seconds: float, seed: int) -> tuple[tuple[float, float, float, float, float], ...]:
    """Return boxes over the longest possible walk; the start area is free."""
    rng, rows, x = np.random.default_rng(seed), [], SLAB[1]
    while x < 2.0 + seconds:
        length, ground = rng.uniform(*SLAB, 2).tolist()
        rows.append((x + 0.5 * length, 0.0, 0.5 * length, WIDE, STEP))
        x += length + ground
    return tuple(rows)


def with_pushes(config: Config, model: Any, seconds: float, seed: int) -> Config:
    """Return the configuration with horizontal pushes of the base from random sides."""
    rng, force = np.random.default_rng(seed), model.total_mass * SHOVE / PUSH_TIME
    rows = [
        (start, PUSH_TIME, force * np.cos(angle), force * np.sin(angle))
        for start in np.arange(PUSH_EVERY, seconds, PUSH_EVERY).tolist()
        for angle in [float(rng.uniform(0.0, 2.0 * np.pi))]
    ]
    plant = replace(config.replan.plant, push_joints=tuple(model.dof_names[:2]), pushes=tuple(rows))
    return replace(config, replan=replace(config.replan, plant=plant))


def walk(
    robot: str, scene: Scene, seconds: float, seed: int, first: Setup | None = None, overrides: Sequence[str] = ()
) -> tuple[Setup, RunLog]:
    """Run a scene. first: a run of the same robot, whose task and first plan are reused."""
    config = run_config(robot, scene, seconds, seed, overrides)
    start = setup(config) if first is None else first._replace(config=config)
    model = start.task.ocp.model
    if scene.pushes:
        config = with_pushes(config, model, seconds, seed)
    s, ocp = config.replan, planned(start.task, config.replan)
    plant = plants_of(start.task, s, backend_factory(config.backend), config.problem.robot)()
    worker = SimulatedWorker(s.tick, lambda respond, prepare: (s.period, 0.0))
    loop = ReplanningLoop(
        horizon_of(start.task, s),
        RealTimeSLQ(regularization=s.regularization, search=s.search),
        plant,
        Plan.from_solution(start.first_plan, 0.0),
        s.timing,
        estimator=sensor_of(ocp, s),
        worker=worker,
        on_tick=_progress(plant),
        until=partial(_fall, start.task),
    )
    return start._replace(config=config), require_uninterrupted(loop.run(seconds))


def _fall(task: Task, t: float, x: Array) -> str:
    """Return the description of a fall in a state x (nx,) at time t [s], or "" if the robot has not fallen."""
    return next(iter(task.fallen(np.stack([task.ocp.x0, x]), np.array([0.0, t]))), "")


def _progress(plant: Plant) -> Callable[[float], None]:
    reported = 0.0

    def on_tick(t: float) -> None:
        nonlocal reported
        x = plant.state()
        if t >= reported + REPORT_INTERVAL:
            reported = t
            print(f"  after {t:.0f} s the base is at {x[0]:.2f}, {x[1]:.2f}, {x[2]:.2f} m", file=sys.stderr, flush=True)

    return on_tick


def outcome(start: Setup, log: RunLog) -> Outcome:
    """Return the results of a run."""
    end, xs, terms = float(log.times[-1]) + log.tick, log.xs, start.task.ocp.terms()
    end_events = (EventKind.STOPPED, EventKind.PLANT_DIVERGED)
    commanded = next(term.parameters["velocity"][0] for term in terms if term.name == "base")
    width = max(1, round(SMOOTH / log.tick))
    mean_speeds = (xs[width:, 0] - xs[:-width, 0]) / SMOOTH if len(xs) > width else np.zeros(0)
    speed = mean_speeds[log.times[: len(mean_speeds)] >= START]
    spells = np.array([(spell.respond, spell.prepare) for spell in log.spells])
    ms = (np.median(spells[:, 0]), np.percentile(spells[:, 0], 95), np.percentile(spells[:, 1], 95))
    return Outcome(
        next((event.message for event in log.events if event.kind in end_events), ""),
        end,
        float(xs[-1, 0] - xs[0, 0]),
        float(speed.mean()) if len(speed) else np.nan,
        float(np.sqrt(np.mean((speed / commanded - 1.0) ** 2))) if len(speed) else np.nan,
        tuple(1e3 * float(value) for value in ms),  # type: ignore[arg-type]
        sum(not solve.success for solve in log.solves),
    )


HEAD = (
    "scene",
    "walked",
    "distance [m]",
    "speed [m/s]",
    "rms error",
    "response p50, p95 [ms]",
    "preparation p95",
    "failed",
)


def row(name: str, o: Outcome) -> list[str]:
    """Format the results of a scene."""
    return [
        name,
        f"{o.walked:.1f} s{f', FELL ({o.fell})' if o.fell else ''}",
        f"{o.distance:.2f}",
        f"{o.speed:.3f}",
        f"{100 * o.error:.1f} %",
        f"{o.ms[0]:.1f}, {o.ms[1]:.1f}",
        f"{o.ms[2]:.1f}",
        str(o.failed),
    ]


def main() -> None:
    """Print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robot", default="hyq", help="a name, erd:NAME or a path")
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of each scene [s]")
    parser.add_argument("--minutes", type=float, help="duration of each scene [min], instead of --seconds")
    parser.add_argument("--scenes", default=",".join(SCENES), help="comma-separated names")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--period", type=float, help="seconds between plans, at least the tick of 5 ms; default 0.01")
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help="override a configuration key"
    )
    parser.add_argument("--out", type=Path, default=Path("out") / "benchmark_walking", help="folder of the results")
    given = parser.parse_args()
    names = given.scenes.split(",")
    if unknown := set(names) - set(SCENES):
        parser.error(f"unknown scenes: {', '.join(sorted(unknown))}; choose from {', '.join(SCENES)}")
    seconds = given.seconds if given.minutes is None else 60.0 * given.minutes
    period = [] if given.period is None else [f"replan.{key}={given.period}" for key in ("period", "lead")]
    overrides = [*period, *given.overrides]
    found, first = [], None
    for name in names:
        first, log = walk(given.robot, SCENES[name], seconds, given.seed, first, overrides)
        found.append(row(name, outcome(first, log)))
        print("  ".join(found[-1]), flush=True)
    print(markdown(HEAD, found, given.out / "table.csv"))


if __name__ == "__main__":
    main()
