"""Cost of distance computations in a compiled stage, by the number of pair slots.

    python -m experiments.benchmark_clearance [--robot erd:panda] [--knots 256] [--repeat 50] [--out DIR]

Pairs of 9 link capsules and 10 bodies: the nearest body of each capsule, the nearest capsule of each body (the broad
phase gives slots to near pairs only), and all 90 pairs. Times per knot on one thread are differences to the same stage
without distances: values and first derivatives, without and with contracted second derivatives; minima over
alternating repeats.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import trajopt as to
from dynamics_backends.protocol import Array
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.geometry.clearance import NUMBERS, WORLD, Slot
from dynamics_backends.rigid_body.model.model import Model
from experiments.analysis.timing import interleaved_times
from experiments.benchmarks.tables import markdown
from problems.arms.scenes.scene_structure import Costs, SceneStructure
from problems.robots.loading import load_fixed_base
from trajopt.stage.engine import StageOperations, stages_of
from trajopt.stage.stages import Knots

CAPSULES, BODIES = 9, 10
SEED = 0


def slots_of(model: Model, pairs: int) -> tuple[Slot, ...]:
    """Return slots of capsules that alternate over the links; every third body is a cylinder."""
    links = [i * model.nb // CAPSULES for i in range(CAPSULES)]
    return tuple(
        Slot(links[i % CAPSULES], WORLD, "cylinder" if i // CAPSULES % 3 == 2 else "box") for i in range(pairs)
    )


def stage_calls(model: Model, pairs: int, knots: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return calls of a stage with this number of pairs: first order, and contracted second order."""
    structure = SceneStructure(
        model, slots_of(model, pairs), (np.inf,) * model.nv, Costs(1.0, 0.01, 0.0, 10.0), knots, 1
    )
    choice, motion = structure.phases(lambda system: make_backend(system, "analytic", engine="auto"))
    rng, n = np.random.default_rng(SEED), model.nv
    ocp = to.OCP((choice, motion), np.r_[np.zeros(2 * n), 1.0])
    xs = np.concatenate([rng.uniform(-1.0, 1.0, (knots + 1, 2 * n)), np.ones((knots + 1, 1))], axis=1)
    us = rng.uniform(-1.0, 1.0, (knots, n))
    path = [
        (),
        tuple(
            c.updated(pairs=_numbers(rng, knots, pairs)) if pairs and "pairs" in c.parameters else c
            for c in motion.constraints
        ),
    ]
    stages: Any = stages_of(ocp, StageOperations("exact", second=True, path=path))[1]
    rows = sum(c.residual.n_out for c in motion.constraints)
    lam, y = rng.standard_normal((knots, 2 * n + 1)), rng.standard_normal((knots, rows))
    at = Knots(xs[:-1], us, xs[1:])
    return lambda: stages.first(at, quadratic=False), lambda: stages.second(at, 1.0, lam, y)


def _numbers(rng: np.random.Generator, knots: int, pairs: int) -> Array:
    """Return random segments on the links and bodies around the robot."""
    numbers = np.zeros((knots, pairs, NUMBERS))
    numbers[:, :, :6] = rng.uniform(-0.1, 0.1, (knots, pairs, 6))
    numbers[:, :, 6:15] = np.eye(3).ravel()
    numbers[:, :, 15:18] = rng.uniform(-1.0, 1.0, (knots, pairs, 3))
    numbers[:, :, 18:] = 0.1
    return numbers.reshape(knots, -1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robot", default="erd:panda")
    parser.add_argument("--knots", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=50)
    parser.add_argument("--out", type=Path, help="folder of table.csv")
    a = parser.parse_args(arguments)
    os.environ["TRAJOPT_THREADS"] = "1"
    model = load_fixed_base(
        a.robot, "free", ("panda_finger_joint1", "panda_finger_joint2") if "panda" in a.robot else ()
    )
    counts = (0, CAPSULES, BODIES, CAPSULES * BODIES)
    calls = [call for pairs in counts for call in stage_calls(model, pairs, a.knots)]
    fastest = [1e6 * min(times) / a.knots for times in interleaved_times(calls, a.repeat)]
    first, both = np.array(fastest[::2]), np.array(fastest[::2]) + fastest[1::2]
    lines = [
        [str(pairs), f"{first[i] - first[0]:.2f}", f"{both[i] - both[0]:.2f}"]
        for i, pairs in enumerate(counts[1:], start=1)
    ]
    print(f"{model.name}; the stage without distances: {first[0]:.2f} and {both[0]:.2f} us per knot")
    heads = ["pairs with a slot", "first order [us per knot]", "with second order [us per knot]"]
    print(markdown(heads, lines, a.out and a.out / "table.csv"))


if __name__ == "__main__":
    main()
