"""Registries of names: built-in ones, those of a script, and entry points of installed packages."""

import sys
from importlib.metadata import EntryPoint

import pytest

from dynamics_backends import extensions
from dynamics_backends.extensions import ExtensionError, Registry
from dynamics_backends.names import UnknownName


def numbers(name, value):
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no number")
    return value


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A distribution with entry points of the group "trajopt.digits", as an installer leaves it on Python's path."""
    (tmp_path / "digits_of_tests.py").write_text("four, word = 4, 'five'\n")
    info = tmp_path / "digits_of_tests-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: digits-of-tests\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[trajopt.digits]\nfour = digits_of_tests:four\none = digits_of_tests:four\nword = digits_of_tests:word\n"
        "gone = digits_of_tests:none\n[console_scripts]\nsix = digits_of_tests:four\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    extensions._entry_points.cache_clear()
    yield
    extensions._entry_points.cache_clear()
    sys.modules.pop("digits_of_tests", None)


def digits():
    return Registry("digit", "digits", {"one": 1}, numbers)


def test_built_in_and_registered(package):
    found = digits()
    found.register("two", 2)
    found.register("four", 40)  # before the entry point
    assert (found["one"], found["two"], found["four"]) == (1, 2, 40)
    found.register("two", 22)
    assert found["two"] == 22
    assert list(found) == ["one", "two", "four", "word", "gone"] and len(found) == 5
    with pytest.raises(ValueError, match="digit 'one' is built in; choose another name"):
        found.register("one", 1)
    with pytest.raises(ValueError, match="must be a text"):
        found.register("", 1)
    with pytest.raises(TypeError, match="'x' is no number"):
        found.register("three", "x")
    with pytest.raises(UnknownName, match="no digit is named 'fuor'; did you mean 'four'"):
        found["fuor"]


def test_entry_points_are_loaded_on_first_use(package):
    found = digits()
    assert "four" in found and "six" not in found
    assert "digits_of_tests" not in sys.modules and found.loaded() == {"one": 1}
    assert found["one"] == 1  # the built-in one, not the entry point of its name
    assert found["four"] == 4 and found.loaded() == {"one": 1, "four": 4}


def test_an_entry_point_that_cannot_be_used_is_named_with_its_package(package):
    found = digits()
    with pytest.raises(ExtensionError, match=r"digit 'word' of the package digits-of-tests .* 'five' is no number"):
        found["word"]
    with pytest.raises(ExtensionError, match=r"'gone' .*\(digits_of_tests:none\) cannot be used: AttributeError"):
        found["gone"]
    assert found["four"] == 4


def test_a_folder_that_hides_a_package_is_named(tmp_path, monkeypatch):
    (tmp_path / "hiding").mkdir()
    (tmp_path / "hiding" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    point = EntryPoint("five", "hiding.values", "trajopt.digits")
    with pytest.raises(
        ExtensionError, match=f"Python finds hiding in {tmp_path / 'hiding'}: rename that folder if it hides"
    ):
        digits()._load_entry_point(point)
    sys.modules.pop("hiding")


def test_an_empty_registry_names_the_install_command():
    with pytest.raises(
        UnknownName, match=r"no installed package has entry points of the group 'trajopt.none_of_these'"
    ):
        Registry("digit", "none_of_these")["one"]


def test_the_entry_points_of_the_project_load():
    """The extensions in pyproject.toml, independent of the installation."""
    import tomllib
    from pathlib import Path

    from trajopt.comparison.compare import PLOTS
    from trajopt.config.registry import CONFIG_FOLDERS, PROBLEMS

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    groups = project["entry-points"]
    registries = {"trajopt.problems": PROBLEMS, "trajopt.configs": CONFIG_FOLDERS, "trajopt.plots": PLOTS}
    assert set(groups) == set(registries)
    for group, known in registries.items():
        for name, value in groups[group].items():
            assert known._load_entry_point(EntryPoint(name, value, group))
        assert set(groups[group]) <= set(known), "install the project again: pip install -e ."
