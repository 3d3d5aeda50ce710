"""Counted operations of loop kernels."""

import numpy as np
import pytest

from dynamics_backends.rigid_body.algorithms.rnea import RNEA
from dynamics_backends.rigid_body.derivatives.fd_derivatives import FDSVA
from dynamics_backends.rigid_body.derivatives.rnea_derivatives import IDSVA
from dynamics_backends.rigid_body.model.sample_models import binary_tree, chain
from experiments.analysis.tally import operations


@pytest.mark.parametrize(("program", "order"), [(RNEA, 1), (IDSVA, 2)], ids=lambda x: getattr(x, "name", ""))
def test_the_count_of_a_chain_is_a_polynomial_in_its_length(program, order):
    counts = [operations(program, chain(n)) for n in range(2, order + 4)]
    assert np.all(np.diff(counts, order) > 0) and not np.any(np.diff(counts, order + 1))


def test_branches_are_cheaper_than_a_chain():
    assert operations(IDSVA, binary_tree(7)) < operations(IDSVA, chain(7))


def test_linear_algebra_is_not_counted():
    with pytest.raises(ValueError, match="ltl_factor"):
        operations(FDSVA, chain(3))
