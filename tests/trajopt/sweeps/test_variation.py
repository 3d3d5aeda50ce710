"""Draws: within their range, functions of seed, key and row alone; texts are parsed and formatted."""

from __future__ import annotations

import numpy as np
import pytest

from dynamics_backends.names import UnknownName
from trajopt.sweeps.variation import Variation, Variations


@pytest.mark.parametrize(
    ("text", "kind", "arguments"),
    [
        ("uniform(0, 1.5)", "uniform", (0, 1.5)),
        (" uniform([0.2, -0.4],[0.5, 0.4]) ", "uniform", ([0.2, -0.4], [0.5, 0.4])),
        ("slq,ddp", "choices", ("slq", "ddp")),
        ("slq", "choices", ("slq",)),
        ("[0, 1], [2, 3]", "choices", ([0, 1], [2, 3])),
        ('each("a, b", true, 3)', "each", ("a, b", True, 3)),
        ("normal(0, [0.1, 0.2])", "normal", (0, [0.1, 0.2])),
        ("erd:ur5, erd:panda", "choices", ("erd:ur5", "erd:panda")),
        ("each(.6, 1., -.5e-3, [.1, 2.])", "each", (0.6, 1.0, -0.5e-3, [0.1, 2.0])),
    ],
)
def test_texts_are_parsed_and_written_texts_parse_to_the_same(text, kind, arguments):
    read = Variation.parse(text)
    assert read == Variation(kind, arguments)
    assert Variation.parse(str(read)) == read


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("uniform(1)", "low and a high end"),
        ("uniform(2, 1)", "lower end first"),
        ("uniform([0, 1], [1, 2, 3])", "lists of one length"),
        ("uniform(0, inf)", "finite"),
        ("log_uniform(0, 1)", "positive ends"),
        ("normal(0, -1)", "deviation of at least 0"),
        ("integers(0.5, 3)", "expected integers"),
        ("uniform(a, b)", "numbers or lists"),
        ("choices()", "has no choices"),
        ("", "has no choices"),
    ],
)
def test_invalid_variations_are_rejected(text, message):
    with pytest.raises(ValueError, match=message):
        Variation.parse(text)


def test_an_unknown_kind_is_answered_with_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'uniform'"):
        Variation.parse("unifrom(0, 1)")


def test_a_row_depends_on_seed_and_key_and_its_number_alone():
    few = Variations({"a": "uniform(0, 1)"}, seed=3)
    more = Variations({"b": "normal(0, 1)", "a": "uniform(0, 1)", "c": "x,y"}, seed=3)
    rows = [few.values(row)["a"] for row in range(50)]
    assert rows == [more.values(row)["a"] for row in reversed(range(50))][::-1]
    assert len(set(rows)) == 50
    assert Variations({"a": "uniform(0, 1)"}, seed=4).values(0)["a"] != rows[0]
    assert Variations({"other": "uniform(0, 1)"}, seed=3).values(0)["other"] != rows[0]


def test_draws_are_distributed_as_said():
    vary = {
        "u": "uniform([1, -2], [3, -1])",
        "l": "log_uniform(1e-4, 1)",
        "n": "normal(2, 0.5)",
        "i": "integers(1, 3)",
        "c": "a,b",
    }
    drawn = [Variations(vary).values(row) for row in range(800)]
    u, l, n = (np.array([d[key] for d in drawn]) for key in "uln")
    assert u.shape == (800, 2) and (u > [1, -2]).all() and (u < [3, -1]).all()
    np.testing.assert_allclose(u.mean(axis=0), [2.0, -1.5], atol=0.1)
    np.testing.assert_allclose(np.log10(l).mean(), -2.0, atol=0.15)
    np.testing.assert_allclose([n.mean(), n.std()], [2.0, 0.5], atol=0.05)
    counts = {i: sum(d["i"] == i for d in drawn) for i in (1, 2, 3)}
    assert sum(counts.values()) == 800 and min(counts.values()) > 210
    assert {type(d["i"]) for d in drawn} == {int} and 340 < sum(d["c"] == "a" for d in drawn) < 460


def test_crossed_keys_meet_the_same_draws():
    variations = Variations({"solver": "each(slq, ddp)", "goal": "uniform(0, 1)", "n": "each(1, 2, 3)"})
    rows = [variations.values(row) for row in range(12)]
    assert len({r["goal"] for r in rows[:6]}) == 1 and rows[6]["goal"] != rows[5]["goal"]
    pairs = [(r["solver"], r["n"]) for r in rows[:6]]
    assert sorted(pairs) == [(s, n) for s in ("ddp", "slq") for n in (1, 2, 3)]
