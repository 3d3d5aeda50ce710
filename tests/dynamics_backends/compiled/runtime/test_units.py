"""Long sources are cut into units that are compiled side by side, and the library is the same."""

import ctypes

import numpy as np
import pytest
from rigid_body_cases import foreign

from dynamics_backends.compiled.loops.kernel import CompiledKernel, entry, templates
from dynamics_backends.compiled.loops.unrolled import unrolled_kernel
from dynamics_backends.compiled.runtime import units as units_module
from dynamics_backends.compiled.runtime.cache import load
from dynamics_backends.compiled.runtime.memory import bound
from dynamics_backends.compiled.runtime.toolchain import CompilerError, find_toolchain
from dynamics_backends.compiled.runtime.units import units
from dynamics_backends.rigid_body.algorithms.aba import ABA

pytestmark = pytest.mark.needs_compiler


def source_of(model):
    kernel = unrolled_kernel(ABA, model)
    return "\n".join([templates(), kernel.source, entry(kernel)])


def test_short_sources_stay_whole():
    source = source_of(foreign("ur5"))
    assert units(source) == [source]


def test_every_function_is_in_one_unit(monkeypatch):
    monkeypatch.setattr(units_module, "WORTH_SPLITTING", 0)
    source = source_of(foreign("ur5"))
    names = [line.split("(")[0].split()[-1] for line in source.splitlines() if line.startswith("STRAIGHT void")]
    parts = units(source)
    assert len(names) >= 3 and len(parts) >= 2
    for name in names:
        assert sum(f"STRAIGHT void {name}(" in part for part in parts) == 1
    assert not any("STRAIGHT void" in line for line in parts[0].splitlines())


def test_a_units_text_does_not_depend_on_what_stands_beside_it(monkeypatch):
    monkeypatch.setattr(units_module, "WORTH_SPLITTING", 0)
    source = source_of(foreign("ur5"))
    more = source + "STRAIGHT void another_0(V* restrict w)\n{\nw[0] = w[1];\n}\n"
    assert set(units(source)[1:]) < set(units(more)[1:])


def test_small_families_share_a_unit(monkeypatch):
    monkeypatch.setattr(units_module, "WORTH_SPLITTING", 0)
    function = "STRAIGHT void {0}_0(V* restrict w)\n{{\n{1}}}\n"
    long = function.format("long", "w[0] = w[1];\n" * 100)
    small = [function.format(name, "w[0] = w[1];\n") for name in ("one", "other")]
    _, *apart = units(templates() + small[0] + long + small[1])
    assert [[name in unit for name in ("long_0", "one_0", "other_0")] for unit in apart] == [
        [True, False, False],
        [False, True, True],
    ]


def test_callers_of_a_family_are_a_unit_of_their_own(monkeypatch):
    """The rest of the source stays the same when a family grows."""
    monkeypatch.setattr(units_module, "WORTH_SPLITTING", 0)

    def text(count):
        parts = [f"STRAIGHT void f_{i}(V* restrict w)\n{{\nw[{i}] = splat({i}.5);\n}}\n" for i in range(count)]
        calls = "\n".join(f"void f_{i}(V* restrict w);\nf_{i}(w);" for i in range(count))
        head = '__attribute__((visibility("default"))) double total(void)\n{\n'
        head += "V w[9];\ndouble sum = 0.0;\nmemset(w, 0, sizeof w);\nf(w);\n"
        loop = "for (int i = 0; i < 9; i++) sum += w[i][0];\nreturn sum;\n}\n"
        joined = f"JOINED void f(V* restrict w)\n{{\n{calls}\n}}\n"
        return templates() + "\n" + "".join(parts) + joined + head + loop

    for count in (2, 5):
        for splitting in (0, 10**9):
            monkeypatch.setattr(units_module, "WORTH_SPLITTING", splitting)
            assert bound(load(text(count)), "total", "", ctypes.c_double)() == count**2 / 2
    monkeypatch.setattr(units_module, "WORTH_SPLITTING", 0)
    assert units(text(2))[0] == units(text(5))[0]


def test_the_library_is_the_same(monkeypatch):
    model, rng = foreign("ur5"), np.random.default_rng(0)
    q, v, tau = rng.standard_normal((3, 11, 6))
    whole = CompiledKernel(unrolled_kernel(ABA, model), model, [(6,)])(q, v, tau)[0]
    monkeypatch.setattr(units_module, "WORTH_SPLITTING", 0)
    monkeypatch.setattr("dynamics_backends.compiled.loops.kernel.templates", lambda: "/* cut */\n" + templates())
    np.testing.assert_array_equal(CompiledKernel(unrolled_kernel(ABA, model), model, [(6,)])(q, v, tau)[0], whole)


def test_what_the_compiler_says_of_a_unit_is_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(units_module, "WORTH_SPLITTING", 0)
    wrong = templates() + "STRAIGHT void f(int x)\n{\nthis is not C;\n}\n"
    with pytest.raises(CompilerError, match="failed"):
        find_toolchain().compile(f"#define LANES 4\n{wrong}", tmp_path / "kernel.so")
