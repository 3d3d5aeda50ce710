"""Robots, random trees, states and the measure of error that the rigid-body tests share."""

from __future__ import annotations

import warnings
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.model.sample_models import random_tree
from dynamics_backends.rigid_body.model.state import PinocchioConverter
from dynamics_backends.rigid_body.urdf.loader import URDFWarning
from problems.robots import erd_names, load_robot, robot_path

FOREIGN = {
    "ur5": "fixed",
    "panda": "fixed",
    "kinova": "fixed",
    "hyq": "floating",
    "anymal": "floating",
    "talos": "floating",
}
TREES = tuple(f"{base}{seed}" for seed in range(3) for base in ("fixed", "floating"))  # all joint types


@cache
def foreign(name: str) -> Model:
    """A robot of example-robot-data by its short name, on the base given in FOREIGN."""
    if not erd_names():
        pytest.skip("example-robot-data is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", URDFWarning)
        return load_robot(f"erd:{name}", base=FOREIGN[name])


@cache
def tree(name: str, bodies: int = 7) -> Model:
    """The random tree 'fixed<seed>' or 'floating<seed>' with damping, friction and rotors in its joints."""
    floating = name.startswith("floating")
    seed = int(name.removeprefix("floating").removeprefix("fixed"))
    model = random_tree(seed, bodies, floating_base=floating)
    rng = np.random.default_rng(seed)
    base = 6 if floating else 0
    fields = {k: rng.uniform(0.01, 0.3, model.nv) for k in ("damping", "friction", "armature")}
    for values in fields.values():
        values[:base] = 0.0
    return model.replace(**fields)


def robot(name: str) -> Model:
    """A foreign robot or a random tree."""
    return foreign(name) if name in FOREIGN else tree(name)


class Twin(NamedTuple):
    """A foreign robot here and in Pinocchio."""

    model: Model
    pin_model: object
    data: object
    converter: PinocchioConverter

    def q(self, q):
        """q in Pinocchio's convention."""
        return self.converter.q_to_pin(q)

    def v(self, v):
        """v, a or tau in Pinocchio's order."""
        return self.converter.v_to_pin(v)

    def vector(self, v):
        """A vector of Pinocchio's in our order."""
        return self.converter.v_from_pin(v)

    def columns(self, matrix):
        """A matrix (m, nv) of Pinocchio's with our order of columns."""
        return self.converter.v_from_pin(np.array(matrix))

    def matrix(self, matrix):
        """A matrix (nv, nv) of Pinocchio's with our order of rows and columns."""
        return self.columns(self.columns(matrix).T).T


@cache
def twin(name: str) -> Twin:
    """A foreign robot here and in Pinocchio; skips where a package is missing."""
    pin = pytest.importorskip("pinocchio")
    model = foreign(name)
    root = (pin.JointModelFreeFlyer(),) if model.floating_base else ()
    pin_model = pin.buildModelFromUrdf(str(robot_path(f"erd:{name}")), *root)
    return Twin(model, pin_model, pin_model.createData(), PinocchioConverter(model, pin_model))


def state(model: Model, seed: int, N: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Configurations (N, nq) within the limits, velocities and accelerations or forces (N, nv) of unit variance."""
    rng = np.random.default_rng(seed)
    return model.random_configuration(rng, N), rng.standard_normal((N, model.nv)), rng.standard_normal((N, model.nv))


def error(actual, expected, at_least: float = 0.0) -> float:
    """Largest deviation relative to the largest entry of the expected block, or to `at_least` where the block may vanish."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    if expected.size == 0:
        return 0.0
    scale = max(np.abs(expected).max(), at_least)
    deviation = np.abs(actual - expected).max()
    return float(deviation / scale) if scale > 0 else float(deviation)


def worst(actual, expected) -> float:
    """The largest `error` over a batch."""
    return max(error(a, e) for a, e in zip(actual, expected, strict=True))
