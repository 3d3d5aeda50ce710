"""Edits of sources that mean the same count as the same, others never."""

import pytest

from dynamics_backends.compiled.runtime.fingerprints.source_texts import counted_as, is_known, meaning, remember

TEXT = b'"""About f."""\n\n\ndef f(x):\n    """Twice x."""\n    return 2 * x  # doubled\n'
SAME = [
    TEXT.replace(b"Twice", b"Two times"),
    TEXT.replace(b"  # doubled", b""),
    TEXT.replace(b"2 * x", b"(2\n * x)"),
    TEXT + b"\n# the end\n",
]
OTHER = [
    TEXT.replace(b"2 *", b"3 *"),
    TEXT.replace(b"f(x)", b"g(x)"),
    TEXT.replace(b'"""Twice x."""', b'label = "Twice x."'),
    TEXT.replace(b"2 * x", b"2 * x or 'Twice x.'"),
    TEXT + b"f = None\n",
    b"not python (",
]


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("TRAJOPT_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize("text", SAME)
def test_comments_docstrings_and_layout_mean_nothing(text):
    before = counted_as([TEXT])
    assert counted_as([text]) != before  # nothing is known yet
    remember([TEXT])
    assert counted_as([text]) == before == counted_as([TEXT])


@pytest.mark.parametrize("text", OTHER)
def test_code_and_other_strings_count(text):
    remember([TEXT])
    assert counted_as([text]) != counted_as([TEXT]) and meaning(text) != meaning(TEXT)


def test_texts_go_on_to_count_as_the_first_of_their_meaning():
    first = counted_as([TEXT])
    remember([TEXT])
    for text in SAME:
        assert not is_known([text])
        remember([text])
        assert is_known([text]) and counted_as([text]) == first
    remember(OTHER)
    assert len(set(counted_as([TEXT, *SAME, *OTHER]))) == 1 + len(OTHER)
