"""C code of CasADi for comparisons: equal values, caching, limits of lines and compile time."""

import casadi as ca
import numpy as np
import pytest

from experiments.analysis import compiled_code
from experiments.baselines import generated_code
from experiments.baselines.generated_code import generated

pytestmark = pytest.mark.needs_compiler

POINTS = np.array([[0.3, 2.0], [1.1, -0.5]])


@pytest.fixture
def function(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAJOPT_CACHE_DIR", str(tmp_path))
    x = ca.SX.sym("x", 2)
    return ca.Function("f", [x], [ca.vertcat(ca.sin(x[0]) * x[1], x[1] ** 2)])


def test_the_code_is_compiled_once_and_called_for_every_point(function, tmp_path, monkeypatch):
    first = generated(function, POINTS, 60.0, "-O1")
    assert first.call is not None and first.size > 0 and (first.level, first.why) == ("-O1", "")
    first.call()
    y = first.call.__defaults__[0][1]  # the outputs of the last point
    np.testing.assert_allclose(y, np.asarray(function(POINTS[-1]))[:, 0], rtol=1e-14)

    def refused(*_, **__):
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiled_code.subprocess, "run", refused)
    assert generated(function, POINTS, 60.0, "-O1").size == first.size


def test_long_code_is_compiled_without_optimization_or_rejected_with_a_reason(function, monkeypatch):
    monkeypatch.setattr(generated_code, "OPTIMIZED", 3)
    hurried = generated(function, POINTS, 60.0)
    assert hurried.call is not None and hurried.level == "-O1" and hurried.why.endswith("lines of C at -O1")
    monkeypatch.setattr(generated_code, "MAX_LINES", 3)
    left = generated(function, POINTS, 60.0)
    assert left.call is None and left.size is None and left.why == f"not compiled: {left.lines} lines of C"


def test_a_compiler_timeout_is_cached(function, monkeypatch):
    asked = []

    def late(command, **_):
        asked.append(command)
        return compiled_code.subprocess.CompletedProcess(command, 1, "", "fatal error: CPU time limit exceeded")

    monkeypatch.setattr(compiled_code.subprocess, "run", late)
    assert [generated(function, POINTS, patience).why for patience in (5.0, 5.0, 3.0, 9.0)] == [
        "not compiled in 5 s",
        "not compiled in 5 s",
        "not compiled in 3 s",
        "not compiled in 9 s",
    ]
    assert len(asked) == 2  # for 5 s, and for more
