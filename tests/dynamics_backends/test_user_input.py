"""Text from users: cut messages, bounded nesting; and environment variables."""

import tomllib

import pytest

from dynamics_backends import environment
from dynamics_backends.compiled.runtime.memory import default_threads, processors
from dynamics_backends.environment import CompilerError, compiler_command
from dynamics_backends.names import unknown_name
from dynamics_backends.user_input import (
    LONGEST_MESSAGE,
    LONGEST_QUOTE,
    InputError,
    parse_json,
    parse_toml,
    quoted,
    read_bounded,
    shortened,
)


def test_short_messages_stay_as_they_are():
    text = "a.urdf, line 4, <joint name='elbow'>: the robot's link 'bas' isn't there; did you mean 'base'? " * 3
    assert shortened(text) == text


def test_long_quotes_and_words_are_cut_and_the_remedy_stays():
    value = "x" * 1_000_000
    for text in (f"xyz={value!r} has 1 numbers: give three", f'a "{value}" b: give three', f"{value}: give three"):
        cut = shortened(text)
        assert len(cut) < 3 * LONGEST_QUOTE
        assert shortened(cut) == cut
        assert "(100000" in cut and cut.endswith("give three")
    assert len(shortened("ab " * 500_000)) < LONGEST_MESSAGE + 100
    assert len(shortened("'" * 500_000)) < LONGEST_MESSAGE + 100
    assert len(str(InputError(repr(value)))) < 3 * LONGEST_QUOTE
    assert len(str(unknown_name("joint", value, [value + "a", "b"]))) < 1000


def test_values_of_any_kind_are_quoted_in_bounded_length():
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    for value in (16**9000, -(16**9000), [0] * 10**6, dict.fromkeys(range(100), "a" * 10**5), deep, "a" * 10**6):
        assert len(quoted(value)) < 4000
    assert quoted([1, 2.5, "a"]) == "[1, 2.5, 'a']"


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 5000 + "]" * 5000,
        "a = 1\nb = " + "[" * 5000,
        "a = " + "{ a = " * 100 + "1" + "}" * 100,
        ".".join("a" * 100_000) + " = 1",
        "[" + ".".join(['"a"'] * 10_000) + "]",
        "a = " + "9" * 5000,
        "a = 0x" + "f" * 5000,
        "a = 9223372036854775808",
        "a = " + "[" * 60 + "]" * 60,
    ],
)
def test_hostile_toml_is_an_error_of_toml(text):
    with pytest.raises(tomllib.TOMLDecodeError):
        parse_toml(text)


def test_valid_toml_is_read():
    assert parse_toml("a.b = [1, [2.5]]\n[c]\nd = '1.2.3.4'") == {"a": {"b": [1, [2.5]]}, "c": {"d": "1.2.3.4"}}


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 60 + "1" + "}" * 60, "1 2", ""]
)
def test_hostile_json_is_a_value_error(text):
    with pytest.raises(ValueError):
        parse_json(text)


def test_reading_is_bounded(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"abc")
    assert read_bounded(file, 3) == b"abc"
    with pytest.raises(InputError, match="larger than"):
        read_bounded(file, 2)


@pytest.mark.parametrize("value", ["abc", "-1", "1.5", "1e3", "9" * 30, "\u0664", "1_0"])
def test_wrong_numbers_of_threads_name_the_variable_and_the_remedy(value, monkeypatch):
    monkeypatch.setenv("TRAJOPT_THREADS", value)
    with pytest.raises(
        InputError, match="TRAJOPT_THREADS is .*: set it to a number of threads from 1 to .* or unset it"
    ):
        default_threads()


def test_blank_and_valid_numbers_of_threads(monkeypatch):
    for value, threads in (("", processors()), (" ", processors()), ("0", processors()), ("3", 3)):
        monkeypatch.setenv("TRAJOPT_THREADS", value)
        assert default_threads() == threads


def test_a_blank_compiler_is_unset(monkeypatch):
    monkeypatch.setenv("CC", " \t")
    assert environment.compiler() == ()


@pytest.mark.parametrize("value", ["''", '"', "gcc 'a"])
def test_compilers_that_are_no_command_name_the_variable(value, monkeypatch):
    monkeypatch.setenv("CC", value)
    with pytest.raises(CompilerError, match="the environment variable CC is .*: correct or unset it"):
        compiler_command()


def test_blank_folders_are_unset(monkeypatch):
    monkeypatch.setenv("TRAJOPT_CACHE_DIR", " ")
    assert environment.folder(environment.CACHE_FOLDER) is None
