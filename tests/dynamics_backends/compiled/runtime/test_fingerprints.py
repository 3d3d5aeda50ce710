"""Hashes of structures: the same in any process for the same content, another for every edit."""

import itertools
import os
import random
import subprocess
import sys
import types
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from dynamics_backends import scalar as sm
from dynamics_backends.compiled.runtime import fingerprints
from dynamics_backends.compiled.runtime.fingerprints import Unknown, digest
from dynamics_backends.manifold import Manifold
from dynamics_backends.protocol import FunctionMap
from dynamics_backends.rigid_body.model.sample_models import chain
from dynamics_backends.systems.bodies.free_body import FreeBody

FACTOR = 2.0


def plain(x, u, t, p):
    return [FACTOR * x[0] + sm.sin(x[1])]


def made(text, **globals_):
    """The function f of a text, as a user's module would hold it."""
    module = types.ModuleType("users_own")
    module.__dict__.update(globals_, sm=sm)
    exec(text, module.__dict__)
    return module.__dict__["f"]


def users(power):
    """A closure."""
    return lambda x, u, t, p: [x[0] ** power]


@dataclass(frozen=True, eq=False)
class Cart:
    """Dynamics as a method of a dataclass, whose generated ``__repr__`` asks for identities."""

    mass: float
    wind: np.ndarray

    def motion(self, x, u, t, p):
        return [x[1], u[0] / self.mass + self.wind[0]]


class Spring:
    stiffness = 3.0

    def __init__(self, length):
        self.length = length

    def force(self, x):
        return self.stiffness * (x - self.length)


def test_another_process_finds_the_same_hash():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import test_fingerprints as t\n"
        "from dynamics_backends.compiled.runtime.fingerprints import digest\n"
        "print(digest(t.plain, t.users(3), t.Spring(1.0), {'b', 'a', 'c'}, t.chain(3)))"
    )
    found = []
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed}
        run = [sys.executable, "-c", code, str(Path(__file__).parent)]
        found.append(subprocess.run(run, capture_output=True, text=True, check=True, env=env).stdout)
    assert found[0] == found[1] and len(found[0].strip()) == 32


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (0, False),
        (0.0, -0.0),
        ("1", 1),
        ("a", b"a"),
        ((1, 2), [1, 2]),
        ((1, (2, 3)), ((1, 2), 3)),
        (("ab", "c"), ("a", "bc")),
        ((), None),
        ({"a": 1}, {"a": 2}),
        (np.zeros(3), np.zeros((3, 1))),
        (np.zeros(2), np.zeros(2, dtype=np.float32)),
        (np.array([1.0, 2.0]), np.array([1.0, np.nextafter(2.0, 3.0)])),
        (users(2), users(3)),
        (slice(1, 3), slice(1, 4)),
        (slice(3), range(3)),
        (partial(plain, 1), partial(plain, 2)),
        (Spring(1.0), Spring(2.0)),
        (Spring(1.0).force, Spring(2.0).force),
        (Cart(1.0, np.zeros(2)).motion, Cart(2.0, np.zeros(2)).motion),
        (Cart(1.0, np.zeros(2)).motion, Cart(1.0, np.ones(2)).motion),
        (chain(3), chain(4)),
        (FreeBody(chain(3)), FreeBody(chain(3).with_gravity((0.0, 0.0, -1.0)))),
        (chain(3), chain(3).replace(circular=chain(3).joint_names[:1])),
        (Manifold.vector(3), Manifold.vector(4)),
    ],
)
def test_what_differs_has_another_hash(one, other):
    assert digest(one) != digest(other)


def test_equal_content_has_the_same_hash():
    assert digest(users(2)) == digest(users(2))
    assert digest(Spring(1.0)) == digest(Spring(1.0))
    assert digest(Cart(1.0, np.ones(2)).motion) == digest(Cart(1.0, np.ones(2)).motion)
    assert digest(FreeBody(chain(3))) == digest(FreeBody(chain(3)))
    assert digest(chain(3)) == digest(chain(3).replace(source="robot.urdf", package_dirs=("meshes",)))
    shared = (1.0, 2.0)
    assert digest([shared, shared]) == digest([(1.0, 2.0), (1.0, 2.0)])


@pytest.mark.parametrize(
    "change",
    [
        lambda: made("def f(x, u, t, p): return [K * x[0]]", K=2.0),
        lambda: made("def f(x, u, t, p): return [K * x[0]]", K=np.float64(3.0)),
        lambda: made("def f(x, u, t, p): return [K * x[1]]", K=3.0),
        lambda: made("def f(x, u, t, p): return [K + x[0]]", K=3.0),
        lambda: made("def f(x, u, t, p, a=1): return [K * x[0]]", K=3.0),
        lambda: made("def f(x, u, t, p, a=2): return [K * x[0]]", K=3.0),
        lambda: made("def f(x, u, t, p, *, a=2): return [K * x[0]]", K=3.0),
        lambda: made("def f(x, u, t, p): return [K.k * x[0]]", K=types.SimpleNamespace(k=3.0)),
        lambda: made("def g(x): return x\ndef f(x, u, t, p): return [g(K) * x[0]]", K=3.0),
        lambda: made("def g(x): return 2 * x\ndef f(x, u, t, p): return [g(K) * x[0]]", K=3.0),
        lambda: made("def f(x, u, t, p): return [(lambda y: K * y)(x[0])]", K=3.0),
        lambda: made("def f(x, u, t, p): return [(lambda y: K * y)(x[0])]", K=4.0),
        lambda: made("def f(x, u, t, p): return [sm.sin(x[0])]"),
        lambda: made("def f(x, u, t, p): return [sm.cos(x[0])]"),
    ],
)
def test_a_users_function_counts_with_all_that_it_reads(change):
    reference = digest(made("def f(x, u, t, p): return [K * x[0]]", K=3.0))
    assert digest(change()) != reference
    assert digest(change()) == digest(change())


def closed(k):
    """A function that reads a number of the one around it."""
    return lambda x, u, t, p: [k * x[0]]


def test_values_of_defaults_and_closures_count():
    texts = ("def f(x, u, t, p, a={}): return [a * x[0]]", "def f(x, u, t, p, *, a={}): return [a * x[0]]")
    functions = [made(text.format(a)) for text in texts for a in (1.0, 2.0)] + [closed(1.0), closed(2.0)]
    assert len({digest(f) for f in functions}) == len(functions)


def test_attributes_of_modules_count():
    other = types.ModuleType("others_own")
    other.k = 1.0
    f = made("def f(x, u, t, p): return [other.k * x[0]]", other=other)
    before = digest(f)
    other.k = 2.0
    assert digest(f) != before


def test_functions_that_call_each_other_end():
    f = made("def g(n): return f if n else g\ndef f(x, u, t, p): return [g(1)(x, u, t, p)]")
    assert digest(f) == digest(f)


@pytest.mark.parametrize(
    ("text", "globals_"),
    [
        ("def f(x, u, t, p): return [open('file').read()]", {}),
        ("def f(x, u, t, p): return [np.random.random() * x[0]]", {"np": np}),
        ("def f(x, u, t, p): return [draw() * x[0]]", {"draw": np.random.rand}),
        ("def f(x, u, t, p): return [rng.random() * x[0]]", {"rng": np.random.default_rng(0)}),
        ("def f(x, u, t, p): return [random.random() * x[0]]", {"random": random}),
        ("def f(x, u, t, p):\n    import json\n    return [x[0]]", {}),
        ("def f(x, u, t, p):\n    global K\n    K = K + 1\n    return [K * x[0]]", {"K": 1}),
        ("def f(x, u, t, p): return [eval('x[0]')]", {}),
        ("def f(x, u, t, p): return [next(steps) * x[0]]", {"steps": itertools.count()}),
        ("def f(x, u, t, p): return [table[0] * x[0]]", {"table": np.array([object()])}),
    ],
)
def test_what_cannot_be_told_is_said(text, globals_):
    with pytest.raises(Unknown):
        digest(made(text, **globals_))


def test_ten_thousand_pairs_of_edits_share_nothing():
    """Small edits of residuals, maps and robots, each compared with all others by a set of their hashes."""
    rng = np.random.default_rng(0)
    operators, indices = ("+", "-", "*", "/"), range(5)
    numbers = [float(v) for v in np.round(rng.uniform(-2, 2, 5), 2)]
    found, edits = set(), 0
    for operator, i, k, number in itertools.product(operators, indices, indices, numbers):
        f = made(f"def f(x, u, t, p): return [x[{i}] {operator} C * x[{k}]]", C=number)
        for nu in (0, 1):
            found.add(digest(FunctionMap(f, 5, nu, 1), (("weight", 1),)))
            edits += 1
    assert len(found) == edits == 1000  # half a million pairs
    model, robots = chain(4), set()
    for _ in range(200):
        body = int(rng.integers(4))
        mass = model.mass.copy()
        mass[body] = np.nextafter(mass[body], np.inf, dtype=float) * (1 + 1e-15 * len(robots))
        model = model.replace(mass=mass)
        robots.add(digest(FreeBody(model)))
    assert len(robots) == 200 and not robots & found


def test_the_toolkits_sources_are_part_of_every_hash(monkeypatch, tmp_path):
    own = tmp_path / "toolkit_sources"
    own.mkdir()
    (own / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(fingerprints, "TOOLKIT", ("toolkit_sources",))
    found = []
    for text in ("a = 1\n", "a = 2\n"):
        (own / "kernel.h").write_text(text)
        fingerprints.toolkit_sources.cache_clear()
        found.append(fingerprints.toolkit_sources())
    fingerprints.toolkit_sources.cache_clear()
    assert found[0] != found[1]
