"""Sample models: trees, seeds, and physical inertias."""

import numpy as np
import pytest

from dynamics_backends.rigid_body.model.mass_properties import satisfies_triangle
from dynamics_backends.rigid_body.model.model import JOINT_TYPES
from dynamics_backends.rigid_body.model.sample_models import binary_tree, chain, random_tree
from dynamics_backends.rigid_body.urdf.checks import inertia_errors


def test_chain_hangs_each_body_from_the_one_before():
    model = chain(5)
    assert model.parent.tolist() == [-1, 0, 1, 2, 3] and model.nv == 5
    assert model.joint_names == ("joint0", "joint1", "joint2", "joint3", "joint4")
    assert chain(3, rng=1).digest == chain(3, rng=1).digest != chain(3, rng=2).digest
    assert chain(3, rng=1).parent.tolist() == [-1, 0, 1]


@pytest.mark.parametrize("kind", JOINT_TYPES)
def test_chains_of_every_joint_type(kind):
    model = chain(3, kind)
    assert model.nv == 3 * JOINT_TYPES[kind][1] and not inertia_errors(model)


def test_binary_tree_has_two_branches_everywhere():
    model = binary_tree(15)
    assert model.parent.tolist() == [-1] + [(b - 1) // 2 for b in range(1, 15)]
    assert model.depth.max() == 3


@pytest.mark.parametrize("seed", range(10))
def test_random_trees_are_physical(seed):
    model = random_tree(seed, 10)
    assert not inertia_errors(model)
    assert all(satisfies_triangle(inertia) for inertia in model.inertia) and model.mass.min() > 0
    assert np.all(model.parent < np.arange(10))


def test_random_trees_mix_joints_and_shapes():
    models = [random_tree(seed, 12) for seed in range(10)]
    assert {kind for model in models for kind in model.joint_types} == set(JOINT_TYPES)
    assert max(model.depth.max() for model in models) >= 4
    assert any(np.bincount(model.parent + 1).max() >= 3 for model in models)


def test_random_trees_follow_their_seed_and_options():
    assert random_tree(7, 6).digest == random_tree(np.random.default_rng(7), 6).digest
    model = random_tree(7, 6, joints=("revolute", "prismatic"), floating_base=True)
    assert model.floating_base and set(model.joint_types[1:]) <= {"revolute", "prismatic"}
    assert model.parent[1:].min() == 0
