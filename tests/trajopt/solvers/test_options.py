"""Ranges of the solvers' options."""

from __future__ import annotations

import re

import pytest

from trajopt.solvers.options import AutoOptions, DDPOptions, DMSOptions, IPMOptions, SLQOptions, SQPOptions

SHOOTING = (SLQOptions, DDPOptions)
SECOND_ORDER = (SQPOptions, DMSOptions, IPMOptions)


@pytest.mark.parametrize("value", [1e6, 1e308, float("inf"), float("nan"), 0.0, -1.0, True, "1e-6"])
def test_tolerances_that_accept_anything_are_refused(value):
    for Options in (*SHOOTING, *SECOND_ORDER, AutoOptions):
        for key in ("gradient_tolerance", "constraint_tolerance"):
            most = 1000 if key == "gradient_tolerance" and Options in SHOOTING else 1
            with pytest.raises(ValueError, match=re.escape(f"{key} = {value!r}; expected ")) as caught:
                Options(**{key: value})
            assert f"a positive number of at most {most}" in str(caught.value)
    for Options in (*SHOOTING, SQPOptions):
        with pytest.raises(ValueError, match="kkt_tolerance"):
            Options(kkt_tolerance=value)


@pytest.mark.parametrize("Options", [*SHOOTING, SQPOptions])
def test_backtracks_are_bounded(Options):
    with pytest.raises(ValueError, match="max_backtracks = 1000000; expected an integer of at least 0 and at most 100"):
        Options(max_backtracks=10**6)
    assert Options(max_backtracks=100).max_backtracks == 100
    with pytest.raises(ValueError, match="max_backtracks = True"):
        Options(max_backtracks=True)


@pytest.mark.parametrize("Options", [*SHOOTING, *SECOND_ORDER, AutoOptions])
def test_iterations_are_bounded(Options):
    with pytest.raises(ValueError, match="max_iterations = 1000000000; expected .* at most 1000000"):
        Options(max_iterations=10**9)


@pytest.mark.parametrize(
    ("Options", "settings", "message"),
    [
        (SLQOptions, {"max_outer_iterations": 0}, "max_outer_iterations = 0; expected an integer of at least 1"),
        (SLQOptions, {"cost_tolerance": 2.0}, r"cost_tolerance = 2.0; expected a number in \[0, 1\]"),
        (SLQOptions, {"min_regularization": 1e11}, "max_regularization = .* at least min_regularization = 1e\\+11"),
        (SLQOptions, {"initial_regularization": 1e11}, "initial_regularization = .* at most max_regularization = 1e"),
        (SLQOptions, {"constraint_penalty": 1e9}, "max_constraint_penalty = .* at least constraint_penalty = 1e"),
        (SQPOptions, {"elastic_weight": 1e6}, "max_elastic_weight = .* at least elastic_weight = 1e"),
        (IPMOptions, {"barrier": 1e300}, "barrier = 1e\\+300; expected a positive number of at most 1e\\+08"),
        (DMSOptions, {"barrier": 1e300}, "barrier = 1e\\+300; expected a positive number of at most 1e\\+08"),
    ],
)
def test_options_out_of_range_are_named(Options, settings, message):
    with pytest.raises(ValueError, match=message):
        Options(**settings)
