"""Derivatives and solves compared with other libraries (peers) in the same run, one thread each.

Derivatives of forward dynamics: Pinocchio's closed forms, called from Python; CasADi's AD of the articulated-body algorithm as C
code; MuJoCo's finite differences, with one mj_forward at the point and one for each of the 3 n directions. The results of each peer
are checked first: the table has the largest relative difference of derivatives, or of optimal costs. Solves: see
:mod:`experiments.papers.beyond.peer_solves`; quick runs omit them. The report names peers that are not installed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.deferred import deferred
from dynamics_backends.registry import make_backend
from dynamics_backends.rigid_body.algorithms.aba import aba
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.state import PinocchioConverter
from dynamics_backends.rigid_body.urdf.loader import URDFWarning
from dynamics_backends.systems.bodies.rigid_body_map import ForwardDynamics
from experiments.analysis.timing import joined_samples, medians, program_call, samples
from experiments.baselines.generated_code import generated
from experiments.papers.beyond.peer_solves import solves
from experiments.papers.study import Claim, Comparison, Outcome
from problems.robots import load_robot, robot_path

ca = deferred("casadi")
Array = np.ndarray

SOURCE = "Beyond the papers."
BATCH, PATIENCE = 128, 120.0
ROBOTS = {"double_pendulum": "fixed", "erd:ur5": "fixed", "hyq": "floating", "erd:talos": "floating"}
QUICK = ("double_pendulum",)
LARGEST_AD = 18
CALLS = (
    f"Derivatives: ours is one call for {BATCH} points in lanes, compiled for this processor, as CasADi's C is. Pinocchio and"
    " MuJoCo are called from Python for every point, which costs about 1 us a call; wheels are compiled for any x86-64 processor."
)
SAME = 1e-5
"""Largest accepted relative difference of derivatives from ours; forward differences are within 1e-6."""


class Peer(NamedTuple):
    """A call of another library, its number of points, and its derivatives in (q, v, tau) at the first point, in our order."""

    name: str
    call: Callable[[], Any]
    points: int
    jacobian: Array


def run(quick: bool) -> Outcome:
    """Measure one row per robot and peer."""
    rows = [row for robot in (QUICK if quick else ROBOTS) for row in _rows(robot, quick)]
    missing = [name for name in ("pinocchio", "mujoco") if find_spec(name) is None]
    whole, absent = ([], []) if quick else solves()
    rows += whole
    remarks = [f"Not installed: {', '.join([*missing, *absent])}."] if missing or absent else []
    if quick:
        remarks.append("Quick runs omit complete solves with Crocoddyl, IPOPT and fatrop.")
    ratios = [r["peer / ours"] for r in rows]
    remarks.append(f"The peers take {min(ratios):.3g} to {max(ratios):.3g} times as long.")
    remarks.append(CALLS)
    return Outcome(rows, [_comparison(r) for r in rows], partial(_draw, rows), remarks, reference="the peers")


def _comparison(r: dict[str, Any]) -> Comparison:
    """Compare with a peer measured in the same run."""
    ours, theirs = (
        f"{r[key]:.3g} us" if r[key] < 1e3 else f"{r[key] / 1e3:.3g} ms" for key in ("ours [us]", "peer [us]")
    )
    why = f"time of the peer / ours {r['peer / ours']:.3g}; results differ by {r['largest difference']:.0e}, relative"
    claim = Claim("at most the peer's time", r["peer / ours"] >= 1.0)
    return Comparison(f"{r['what']}, {r['robot']}: {r['peer']}", theirs, ours, [claim], why)


def _rows(robot: str, quick: bool) -> Iterator[dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", URDFWarning)
        model = load_robot(robot, base=ROBOTS[robot])
    q, v, tau = samples(model, BATCH)
    backend = make_backend(ForwardDynamics(model), "analytic", engine="numpy")
    j = backend.jacobians(np.concatenate([q, v], axis=1)[:1], tau[:1])
    own = np.concatenate([j.fx, j.fu], axis=2)[0]
    tiers = (False, True) if model.nv <= LARGEST_AD else (False,)
    calls = [program_call(FDSVA, model, BATCH, tape=tape) for tape in tiers]
    peers = [peer for make in (_pinocchio, _casadi, _mujoco) if (peer := make(robot, model, quick)) is not None]
    seconds = medians([*calls, *(p.call for p in peers)], 3 if quick else 15)
    ours = 1e6 * min(seconds[: len(calls)]) / BATCH
    for peer, t in zip(peers, seconds[len(calls) :], strict=True):
        theirs = 1e6 * t / peer.points
        apart = float(np.abs(peer.jacobian - own).max() / np.abs(own).max())
        if apart > SAME:
            raise RuntimeError(
                f"{peer.name} on {robot} computes something else: derivatives differ by {apart:.0e}, relative"
            )
        yield {
            "robot": f"{model.name} ({model.nv})",
            "what": "derivatives of forward dynamics",
            "peer": peer.name,
            "ours [us]": ours,
            "peer [us]": theirs,
            "peer / ours": theirs / ours,
            "largest difference": apart,
        }


def _pinocchio(robot: str, model: Model, quick: bool) -> Peer | None:
    """Return a Python loop over the points, or None if Pinocchio is not installed."""
    if find_spec("pinocchio") is None:
        return None
    import pinocchio as pin

    root = (pin.JointModelFreeFlyer(),) if model.floating_base else ()
    pin_model = pin.buildModelFromUrdf(str(robot_path(robot)), *root)
    c, data = PinocchioConverter(model, pin_model), pin_model.createData()
    q, v, tau = samples(model, BATCH)
    points = list(zip(c.q_to_pin(q), c.v_to_pin(v), c.v_to_pin(tau), strict=True))

    def call() -> None:
        for point in points:
            pin.computeABADerivatives(pin_model, data, *point)

    blocks = [np.array(m) for m in pin.computeABADerivatives(pin_model, data, *points[0])]
    blocks[2] = np.triu(blocks[2]) + np.triu(blocks[2], 1).T
    return Peer("Pinocchio", call, BATCH, np.concatenate([c.v_from_pin(c.v_from_pin(m).T).T for m in blocks], axis=1))


def _casadi(robot: str, model: Model, quick: bool) -> Peer | None:
    """Return CasADi's AD as C code, or None for floating bases and large robots, whose code does not compile in time."""
    if model.nv > LARGEST_AD or model.nq != model.nv:
        return None
    n = model.nv
    x = ca.SX.sym("x", 3 * n)
    f = ca.Function("jacobian", [x], [ca.densify(ca.jacobian(aba(model, x[:n], x[n : 2 * n], x[2 * n :]), x))])
    points = joined_samples(model, BATCH)
    code = generated(f, points, PATIENCE, "-O1" if quick else "-O3")
    return None if code.call is None else Peer("CasADi AD, C", code.call, BATCH, np.asarray(f(points[0])))


def _mujoco(robot: str, model: Model, quick: bool) -> Peer | None:
    """Return MuJoCo's forward differences, or None for floating bases or if MuJoCo is not installed."""
    if find_spec("mujoco") is None or model.floating_base:
        return None
    import mujoco

    from trajopt.replanning.mujoco_plant import load_mujoco

    simulated, states = load_mujoco(robot_path(robot), model)
    simulated.dof_damping[:] = 0.0
    data, n = mujoco.MjData(simulated), model.nv
    q, v, tau = (rows[0] for rows in samples(model, BATCH))  # the other peers' first point
    step = 1e-7

    def acceleration(at: Array, speed: Array, force: Array) -> Array:
        data.qpos[:], data.qvel[:] = states.to_mujoco(np.concatenate([at, speed]))
        data.qfrc_applied[:] = states.force_to_mujoco(at, force)
        mujoco.mj_forward(simulated, data)
        return states.acceleration_from_mujoco(np.concatenate([at, speed]), data.qacc)

    def jacobian() -> Array:
        base, columns = acceleration(q, v, tau), []
        for i in range(3 * n):
            moved = [q.copy(), v.copy(), tau.copy()]
            moved[i // n][i % n] += step
            columns.append((acceleration(*moved) - base) / step)
        return np.stack(columns, axis=1)

    return Peer("MuJoCo, differences", jacobian, 1, jacobian())


def _draw(rows: list[dict[str, Any]], path: Path) -> None:
    from experiments.plots.canvas import COLORS, figure

    with figure(path, 1, 1, 8.0, 3.6, "Time of peers / our time", bottom=1.2) as axes:
        axis = axes[0, 0]
        axis.bar(range(len(rows)), [r["peer / ours"] for r in rows], color=COLORS[0])
        axis.axhline(1.0, color="#5b6472", linewidth=0.8)
        axis.set_xticks(
            range(len(rows)), [f"{r['robot']}\n{r['peer']}" for r in rows], rotation=30, ha="right", fontsize=7
        )
