"""Problems in the units of their books: valid, and solved to optima that are known in closed form."""

from __future__ import annotations

import numpy as np
import pytest

import trajopt as to
from experiments.benchmarks.first_try.units import instances

ALL = {instance.name: instance for instance in instances()}
FALL = 1.84328
"""Time of the brachistochrone down 10 m and 10 m aside [s], to six digits."""


def test_there_are_41_of_seven_families():
    assert len(instances()) == len(ALL) == 41
    assert len({instance.family for instance in ALL.values()}) == 7


@pytest.mark.parametrize("name", ALL)
def test_an_instance_is_a_valid_problem_of_extreme_numbers(name):
    ocp, guess = ALL[name].build()
    assert not [f for f in to.validate(ocp, guess) if f.severity == "error"]
    given = [ocp.x0, guess.xs, guess.us, *(c.upper for c in ocp.constraints())]
    sizes = np.abs(np.concatenate([np.ravel(v) for v in given]))
    sizes = sizes[(sizes > 0.0) & (sizes < np.inf)]
    assert sizes.max() > 280.0 or sizes.min() < 3e-3 or name == "brachistochrone of 10 m"


@pytest.mark.parametrize(
    ("name", "optimum"),
    [
        ("ship in minimum time", 2.0 * np.sqrt(1e6 * 1e4 / 1e7)),
        ("slew", 2.0 * np.sqrt(1e4 * 1.0 / 0.1)),
        ("microgram in minimum time", 2.0 * np.sqrt(1e-9 * 1e-6 / 1e-6)),
        ("boat in a current", 1e4 / np.sqrt(5.0**2 - 3.0**2)),
        ("grid", 1e12**2 / 3600.0),
        ("brachistochrone of 1 mm", FALL * 1e-2),
        ("brachistochrone of 1000 km", FALL * np.sqrt(1e5)),
    ],
)
def test_closed_forms(name, optimum):
    found = to.solve(*ALL[name].build())
    assert found.status.success and found.cost == pytest.approx(optimum, rel=1e-3)


def test_amounts_change_nothing_but_the_size_of_the_result():
    small, large = (to.solve(*ALL[f"reactor of {amount} mol"].build()) for amount in ("1e-06", "1000"))
    assert small.status.success and large.status.success
    assert small.cost == pytest.approx(1e-9 * large.cost, rel=1e-5)
    np.testing.assert_allclose(small.us, large.us, rtol=1e-3)
