"""Docstrings whose first sentence stands on its own, and one spelling of English.

Strings that document a name count as docstrings: those of modules, classes and functions, and those behind an assignment.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("dynamics_backends", "trajopt", "problems", "experiments", "tools", "tests", "docs/extensions")
FILES = sorted(path for folder in SOURCES for path in (ROOT / folder).rglob("*.py"))
KINDS = ("py", "h", "c", "toml", "md")
TEXTS = [path for folder in (*SOURCES, "docs") for kind in KINDS for path in (ROOT / folder).rglob(f"*.{kind}")]
BARE = re.compile(r"(Of|That of|Those of|The same(?= (of|as|with|but|where|by|around|on|in|for)\b|[,.:;]))\b")
"""How a sentence begins that needs the line above it."""
BRITISH = re.compile(
    r"isation|behaviour|colour|favour|neighbour|honour|labour|centre|metres?$|modell|labell|travell|artefact|judgement|whilst|amongst"
    r"|towards|grey|analys(ed?|er|ing)$|(organ|optim|regular|linear|discret|initial|penal|minim|maxim|global|factor|general|parametr|normal"
    r"|real|quant|recogn|visual|symmetr|util|stabil|vector|local|summar|emphas)is(e|es|ed|er|ing)$"
)
QUOTED = {"tests/problems/arms/test_arm_constraints.py": "centre"}  # what a user wrote, and is told of


def docstrings(source: str) -> list[tuple[int, str]]:
    """Line and text of each string that stands as a statement."""
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr))
    values = ((node.lineno, node.value) for node in nodes if isinstance(node.value, ast.Constant))
    return [(line, value.value.strip()) for line, value in values if isinstance(value.value, str)]


def bare(source: str) -> list[str]:
    """The docstrings that begin in the middle of a sentence."""
    if not re.search(rf'"""\s*{BARE.pattern}', source):
        return []
    return [f"{line}: {text.splitlines()[0]}" for line, text in docstrings(source) if BARE.match(text)]


def british(text: str) -> list[str]:
    """Words that are spelled otherwise in American English, parts of identifiers too."""
    words = re.findall(r"[A-Z]?[a-z]+", text)
    return [word for word in words if BRITISH.search(word.lower())]


def test_every_docstring_stands_on_its_own() -> None:
    found = {file.relative_to(ROOT).as_posix(): bare(file.read_text(encoding="utf-8")) for file in FILES}
    assert {file: lines for file, lines in found.items() if lines} == {}


def test_one_spelling() -> None:
    found = {}
    for path in (*TEXTS, *ROOT.glob("*.md")):
        if (
            path != Path(__file__)
            and "_build" not in path.parts
            and (words := british(path.read_text(encoding="utf-8")))
        ):
            found[path.relative_to(ROOT).as_posix()] = words
    assert {file: set(words) for file, words in found.items()} == {file: {word} for file, word in QUOTED.items()}


@pytest.mark.parametrize(
    "text",
    ["Of a panel.", "That of the only geom.", "The same of a text.", "The same, but for one.", "Those of a size."],
)
def test_bare_docstrings_are_found(text: str) -> None:
    for source in (
        f'"""{text}"""',
        f'x = 1\n"""{text}"""',
        f'def f():\n    """{text}"""',
        f'class A:\n    """{text}"""',
    ):
        assert len(bare(source)) == 1
    assert bare('"""The same number of panels, of those of the same size."""') == []


def test_british_words_are_found() -> None:
    words = "regularisation behaviour Centre towards grey modelled optimised linearise analysed neighbours"
    assert british(words) == words.split()
    assert british("toward center raise rising noise precise analyses exercise otherwise promising comprising") == []
