"""Similar problems of a scene file."""

import numpy as np
import pytest

from experiments.benchmarks.robots.benchmark_scenes import MOVED, TURNED, similar_problem

BOX = {"name": "box", "type": "box", "size": [0.1] * 3, "quaternion_xyzw": [0.0, 0.0, 0.0, 1.0]}
PROBLEM = {"objects": [{**BOX, "position": [0.5, 0.0, 0.2]}], "start": [0.0, 1.0], "goal": [1.0, 0.0]}


@pytest.mark.parametrize("asked", [1, 5])
def test_perturbations_shrink_until_nothing_collides(asked):
    answers = iter([False] * (asked - 1) + [True] * 2)
    found = similar_problem(PROBLEM, np.random.default_rng(1), lambda scene, q: next(answers))
    fraction = 0.8 ** (asked - 1)
    for key, most in (("start", TURNED), ("goal", TURNED)):
        moved = np.abs(np.subtract(found[key], PROBLEM[key]))
        assert 0.0 < moved.max() <= fraction * most
    moved = np.abs(np.subtract(found["objects"][0]["position"], PROBLEM["objects"][0]["position"]))
    assert 0.0 < moved.max() <= fraction * MOVED and found["objects"][0]["size"] == BOX["size"]


def test_a_problem_without_a_free_perturbation_is_unchanged():
    assert similar_problem(PROBLEM, np.random.default_rng(1), lambda scene, q: False) == PROBLEM
