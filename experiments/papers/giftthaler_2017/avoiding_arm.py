"""Image sequence of an arm that avoids a moving sphere (Giftthaler et al. 2017, fig. 6).

One run of the IRB 4600 with a moving sphere, one image per second: the robot, the sphere, the tool path, and the first plan, from
which replanning deviates. Distances are those of the collision points on the links from the sphere.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

import problems
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.geometry.scene import Body, BodyPath
from dynamics_backends.rigid_body.geometry.shapes import Sphere
from experiments.papers.giftthaler_2017 import QUICK_REPLANNING
from experiments.papers.method import Method, ran
from experiments.papers.study import GIFTTHALER, Claim, Comparison, Outcome
from experiments.replan.run import Setup, require_uninterrupted, setup, simulate
from trajopt.config.config import load_config
from trajopt.config.scenario import path_of
from trajopt.replanning.run_log import RunLog
from trajopt.view.motion import Annotations, Motion
from trajopt.view.picture import Moment, Studio

SOURCE = f"{GIFTTHALER}, fig. 6"
CONFIG = Path(problems.__file__).parent / "configs" / "irb4600_replan.toml"
METHOD = Method(
    "dms",
    "exact",
    "rk4",
    "casadi_ad",
    {"max_iterations": 200, "gradient_tolerance": 1e-4, "constraint_tolerance": 1e-5},
)
"""IPOPT with first derivatives by AD, as in the paper, which does not name its Hessian; ours has the closed form."""
DEFINITION = [
    "problem.horizon=20",
    "problem.dt=0.25",
    "problem.substeps=5",
    "replan.duration=5.0",
    "replan.mode='converge'",
]
RADIUS = 0.25
"""Radius of the sphere [m]."""

PICTURES = 6
WIDTH, CAPTION = 480, 28
"""Width of an image, and height of the caption above it [pixels]."""


def run(quick: bool) -> Outcome:
    """Run the replanning loop. Quick runs: 24 ms, NumPy, two shots of one step, one iteration."""
    config = load_config(CONFIG, [*METHOD.overrides(), *DEFINITION, *(QUICK_REPLANNING if quick else [])])
    start = setup(config.with_engine("numpy") if quick else config)
    METHOD.require(start.first_plan)
    log = require_uninterrupted(simulate(start))
    at = np.linspace(0, len(log.times) - 1, PICTURES).round().astype(int)
    tool = path_of(start.task, log.xs)
    assert tool is not None  # the config names a frame
    sphere = next(iter(log.objects.values()))
    clearance = next(iter(log.clearances.values()))
    rows = [
        {
            "time": log.times[k],
            **dict(zip(("x", "y", "z"), tool[k], strict=True)),
            "distance from the sphere": clearance[k],
            **ran(start.first_plan),
        }
        for k in range(0, len(log.times), max(1, len(log.times) // 250))
    ]
    least = float(clearance.min())
    comparison = Comparison(
        "the arm keeps clear of the sphere (radius 0.25 m)",
        "shown on the robot",
        f"the collision points on its links stay at least {least:.3f} m from the sphere; {len(log.solves)} plans",
        [Claim("the collision points stay outside of the sphere", least >= 0.0)],
        f"in simulation; {METHOD}",
    )
    return Outcome(rows, [comparison], partial(_draw, start, log, at, sphere))


def _draw(start: Setup, log: RunLog, at: Array, sphere: Array, path: Path) -> None:
    from PIL import Image, ImageDraw, ImageFont

    model, first = start.task.ocp.model, path_of(start.task, start.first_plan.xs)
    assert model is not None and start.task.frame is not None and first is not None
    times = log.times - log.times[0]
    ball_path = BodyPath(tuple(times.tolist()), tuple(map(tuple, (sphere - sphere[0]).tolist())))
    ball = Body("sphere", Sphere(RADIUS), p=sphere[0], path=ball_path)
    motion = Motion("arm", model, times, log.xs[:, : model.nq], tracks=(start.task.frame,))
    studio = Studio([motion], Annotations(bodies=[ball], curves={"first plan": first}), width=WIDTH)
    pictures = [studio.picture([Moment(0, int(k))]) for k in at]
    columns, (width, height) = PICTURES // 2, pictures[0].size
    sheet = Image.new("RGB", (columns * width, 2 * (height + CAPTION)), (255, 255, 255))
    for i, (k, picture) in enumerate(zip(at, pictures, strict=True)):
        x, y = (i % columns) * width, (i // columns) * (height + CAPTION)
        sheet.paste(picture, (x, y + CAPTION))
        text = f"{times[k]:.2g} s" + (": gray the path of the tool, green the first plan" if i == 0 else "")
        ImageDraw.Draw(sheet).text((x + 8, y + 4), text, fill=(0, 0, 0), font=ImageFont.load_default(16))
    sheet.save(path)
