"""Legged robots that walk on MuJoCo's ground without a schedule, told their speed alone, while the world differs from the model.

    python -m experiments.benchmark_walking [--robot hyq] [--seconds 60 | --minutes 10] [--scenes level,light,...] [--seed 0]
                                                       [--period 0.005] [--set KEY=VALUE ...]

Plans are those of problems/configs/hyq_free_walk.toml, of half a second, by real-time iterations over contacts of long steps;
another robot takes the same numbers by dynamic similarity.  The plant is MuJoCo with contacts of its own, its friction and its
masses off by what the scene says; states are measured with noise, plans hold one lead after their measurement, and every
PUSH_EVERY seconds the base is pushed from a random side by SHOVE m/s times its mass, over PUSH_TIME.

The ground of "steps" is one of slabs STEP high and as long as a stride or more, at random places along the way, of which no plan
knows.  A run ends where the robot has fallen (:mod:`problems.legged.gaits.falls`).  The speed is that of the base, averaged over
SMOOTH seconds, after the first START; its error is relative to that asked for.  In simulated time every response is charged one
period, so that runs do not depend on the machine; measured times stand beside them.
"""

from __future__ import annotations

import argparse
import csv
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
from experiments.replan.run import Setup, setup, whole
from problems.replanning.plants import plants_of
from trajopt.config.build import backend_factory
from trajopt.config.config import Config, load_config
from trajopt.config.scenario import horizon_of, planned, sensor_of
from trajopt.config.task import Task
from trajopt.replanning.loop import Plant, ReplanningLoop
from trajopt.replanning.plan import Plan
from trajopt.replanning.planners.real_time_slq import RealTimeSLQ
from trajopt.replanning.run_log import EventKind, RunLog
from trajopt.replanning.workers import SimulatedWorker

CONFIG = Path(problems.__file__).parent / "configs" / "hyq_free_walk.toml"
PUSH_EVERY, PUSH_TIME, SHOVE = 3.0, 0.1, 0.1
"""[s, s, m/s]"""
NOISE = (0.002, 0.02)
"""Standard deviations of measured positions [m, rad] and velocities [m/s, rad/s]."""
STEP, SLAB, WIDE = 0.05, (0.4, 1.2), 3.0
"""[m]: height of slabs, range of their lengths and of the ground between them, half of their width."""
START, SMOOTH = 2.0, 1.0
TELL = 10.0
"""[s] between two words about a run."""


class Scene(NamedTuple):
    """Differences of the world from the model. friction, mass: factors. noise: whether the state is measured with it. slope: [rad].
    steps: whether slabs lie in the way."""

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
    """fell: how, in words, "" for a robot that did not. walked: seconds until the fall, or the end. speed: mean and relative rms
    error. ms: response p50, p95 and preparation p95."""

    fell: str
    walked: float
    distance: float
    speed: float
    error: float
    ms: tuple[float, float, float]
    failed: int


def configured(robot: str, scene: Scene, seconds: float, seed: int, overrides: Sequence[str] = ()) -> Config:
    """The config of a run; overrides: of its keys."""
    own = [f"problem.robot={robot!r}", f"replan.duration={seconds}", f"replan.seed={seed}"]
    config = load_config(CONFIG, [*own, *overrides])
    run = config.replan
    plant = replace(run.plant, mass_factor=scene.mass, slope=scene.slope)
    plant = replace(plant, contact_friction=scene.friction * plant.contact_friction)
    if scene.steps:
        plant = replace(plant, boxes=slabs(seconds, seed))
    position, velocity = NOISE if scene.noise else (0.0, 0.0)
    sensor = replace(run.sensor, position_noise=position, velocity_noise=velocity)
    return replace(config, replan=replace(run, plant=plant, sensor=sensor))


def slabs(seconds: float, seed: int) -> tuple[tuple[float, float, float, float, float], ...]:
    """Boxes for as far as any robot walks in a time, where no foot stands at the start."""
    rng, rows, x = np.random.default_rng(seed), [], SLAB[1]
    while x < 2.0 + seconds:
        length, ground = rng.uniform(*SLAB, 2).tolist()
        rows.append((x + 0.5 * length, 0.0, 0.5 * length, WIDE, STEP))
        x += length + ground
    return tuple(rows)


def shoved(config: Config, model: Any, seconds: float, seed: int) -> Config:
    """The config with pushes of the base, level and from random sides."""
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
    """A run, and what it started from; first: of the same robot, whose task and first plan serve again."""
    config = configured(robot, scene, seconds, seed, overrides)
    start = setup(config) if first is None else first._replace(config=config)
    model = start.task.ocp.model
    if scene.pushes:
        config = shoved(config, model, seconds, seed)
    s, ocp = config.replan, planned(start.task, config.replan)
    plant = plants_of(start.task, s, backend_factory(config.backend), config.problem.robot)()
    worker = SimulatedWorker(s.tick, lambda respond, prepare: (s.period, 0.0))
    loop = ReplanningLoop(
        horizon_of(start.task, s),
        RealTimeSLQ(regularization=s.regularization, search=s.search),
        plant,
        Plan.of(start.first, 0.0),
        s.timing,
        estimator=sensor_of(ocp, s),
        worker=worker,
        on_tick=_progress(plant),
        until=partial(_fall, start.task),
    )
    return start._replace(config=config), whole(loop.run(seconds))


def _fall(task: Task, t: float, x: Array) -> str:
    """The first sentence on a robot that has fallen in a state x (nx,) at a time t [s], "" if it stands."""
    return next(iter(task.fallen(np.stack([task.ocp.x0, x]), np.array([0.0, t]))), "")


def _progress(plant: Plant) -> Callable[[float], None]:
    told = 0.0

    def on_tick(t: float) -> None:
        nonlocal told
        x = plant.state()
        if t >= told + TELL:
            told = t
            print(f"  after {t:.0f} s the base is at {x[0]:.2f}, {x[1]:.2f}, {x[2]:.2f} m", file=sys.stderr, flush=True)

    return on_tick


def outcome(start: Setup, log: RunLog) -> Outcome:
    """The numbers of a run."""
    end, xs, wanted = float(log.times[-1]) + log.tick, log.xs, start.task.ocp.terms()
    ended = (EventKind.STOPPED, EventKind.PLANT_DIVERGED)
    asked = next(term.parameters["velocity"][0] for term in wanted if term.name == "base")
    width = max(1, round(SMOOTH / log.tick))
    ahead = (xs[width:, 0] - xs[:-width, 0]) / SMOOTH if len(xs) > width else np.zeros(0)
    speed = ahead[log.times[: len(ahead)] >= START]
    spells = np.array([(spell.respond, spell.prepare) for spell in log.spells])
    ms = (np.median(spells[:, 0]), np.percentile(spells[:, 0], 95), np.percentile(spells[:, 1], 95))
    return Outcome(
        next((event.message for event in log.events if event.kind in ended), ""),
        end,
        float(xs[-1, 0] - xs[0, 0]),
        float(speed.mean()) if len(speed) else np.nan,
        float(np.sqrt(np.mean((speed / asked - 1.0) ** 2))) if len(speed) else np.nan,
        tuple(1e3 * float(value) for value in ms),  # type: ignore[arg-type]
        sum(not solve.success for solve in log.solves),
    )


HEAD = (
    "scene",
    "walked",
    "distance [m]",
    "speed [m/s]",
    "its rms error",
    "response p50, p95 [ms]",
    "preparation p95",
    "failed",
)


def row(name: str, o: Outcome) -> list[str]:
    """The numbers of a scene."""
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
    """Print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robot", default="hyq", help="a name, erd:NAME or a path")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each scene")
    parser.add_argument("--minutes", type=float, help="of each scene, instead of --seconds")
    parser.add_argument("--scenes", default=",".join(SCENES), help="by name, with commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--period", type=float, help="seconds between plans, at least the tick of 5 ms; default 0.01")
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help="of the config"
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
    print(markdown(HEAD, found))
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "walking.csv").open("w", newline="") as file:
        csv.writer(file).writerows([HEAD, *found])


if __name__ == "__main__":
    main()
