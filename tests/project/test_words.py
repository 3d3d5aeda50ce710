"""American spelling in sources and documentation."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("dynamics_backends", "trajopt", "problems", "experiments", "tools", "tests", "docs/extensions")
KINDS = ("py", "h", "c", "toml", "md")
TEXTS = [path for folder in (*SOURCES, "docs") for kind in KINDS for path in (ROOT / folder).rglob(f"*.{kind}")]
BRITISH = re.compile(
    r"isation|behaviour|colour|favour|neighbour|honour|labour|centre|metres?$|modell|labell|travell|artefact|judgement|whilst|amongst"
    r"|towards|grey|analys(ed?|er|ing)$|(organ|optim|regular|linear|discret|initial|penal|minim|maxim|global|factor|general|parametr|normal"
    r"|real|quant|recogn|visual|symmetr|util|stabil|vector|local|summar|emphas)is(e|es|ed|er|ing)$"
)
QUOTED = {"tests/problems/arms/test_arm_constraints.py": "centre"}  # user input that the message quotes


def british(text: str) -> list[str]:
    """Return the words with British spelling, including parts of identifiers."""
    words = re.findall(r"[A-Z]?[a-z]+", text)
    return [word for word in words if BRITISH.search(word.lower())]


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


def test_british_words_are_found() -> None:
    words = "regularisation behaviour Centre towards grey modelled optimised linearise analysed neighbours"
    assert british(words) == words.split()
    assert british("toward center raise rising noise precise analyses exercise otherwise promising comprising") == []
