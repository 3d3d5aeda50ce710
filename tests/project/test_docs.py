"""Documentation sources: links, public names, configuration keys, and syntax of examples.

`make docs` executes the pages; these tests need no documentation packages.
"""

from __future__ import annotations

import ast
import csv
import doctest
import importlib
import inspect
import json
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

import trajopt as to

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "extensions"))

import config_keys  # noqa: E402
import docstrings  # noqa: E402
import gallery  # noqa: E402
import notebooks  # noqa: E402
import public_api  # noqa: E402
import report_columns  # noqa: E402
import site_check  # noqa: E402

from trajopt.config import keys  # noqa: E402
from trajopt.config.registry import about  # noqa: E402

MADE = ("_build", "generated", "extensions", "pictures")
PAGES = sorted(p for p in DOCS.rglob("*.md") if not set(MADE) & set(p.relative_to(DOCS).parts))
NAMES = [name.name for name in public_api.public_names()]
MODULES = sorted({name.module for name in public_api.public_names()})


def title(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


# -- pages ---------------------------------------------------------------------------------------------------


def toctree_entries(page: Path) -> set[Path]:
    """Return the pages in the tables of contents of a page."""
    found = set()
    for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
        for line in block.splitlines():
            if line.strip() and not line.startswith(":"):
                found |= {p.resolve() for p in page.parent.glob(f"{line.strip()}.md")}
    return found


def test_every_page_is_in_a_table_of_contents():
    listed = set().union(*(toctree_entries(page) for page in PAGES))
    assert [title(p) for p in PAGES if p.resolve() not in listed and title(p) != "index.md"] == []


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_links_between_pages_are_valid(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if re.match(r"[a-z]+:", target) or "generated/" in target:
            continue
        place = page.parent / target
        assert place.exists() or place.with_name(f"{place.name}.md").exists(), f"{title(page)} links to {target}"


SHOWN = {
    f"{title(page)} {i}": block
    for page in PAGES
    for i, block in enumerate(re.findall(r"^```(python|toml)\n(.*?)^```", page.read_text("utf-8"), re.S | re.M))
}
"""Language and source of code blocks that are not executed."""


@pytest.mark.parametrize("block", SHOWN.values(), ids=SHOWN)
def test_code_that_is_only_shown_parses(block):
    language, source = block
    statements = ast.parse(source).body if language == "python" else tomllib.loads(source)
    assert statements


@pytest.mark.parametrize("page", [p for p in PAGES if notebooks.is_notebook(p.read_text("utf-8"))], ids=title)
def test_executed_pages_are_notebooks_of_valid_code(page):
    text = page.read_text(encoding="utf-8")
    cells = notebooks.code_cells(text)
    assert cells
    for source in cells:
        ast.parse("\n".join("pass" if line.lstrip().startswith("!") else line for line in source.splitlines()))
    found = json.loads(notebooks.notebook(text))
    assert [c["source"] for c in found["cells"] if c["cell_type"] == "code"] == [s.rstrip() for s in cells]


def test_every_benchmark_table_is_shown_once_and_dated():
    files = {
        path.stem: path.read_text(encoding="utf-8").splitlines()
        for path in (DOCS / "benchmarks" / "data").glob("*.csv")
    }
    shown = [
        name for page in PAGES for name in re.findall(r"^```\{benchmark\} (\w+)\n```", page.read_text("utf-8"), re.M)
    ]
    assert sorted(shown) == sorted(files)
    for name, lines in files.items():
        caption = [line for line in lines if line.startswith("#")]
        assert caption and re.search(r"\d{1,2} [A-Z][a-z]+ \d{4}|\d{4}-\d\d-\d\d", " ".join(lines)), name
        header, *rows = csv.reader(lines[len(caption) :])
        assert rows and {len(row) for row in rows} == {len(header)}, name


def shown_commands() -> list[tuple[str, list[str]]]:
    """Yield (page, words) of all trajopt command lines in shell blocks and executed cells."""
    found = []
    for page in (*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M)
        lines = "\n".join(blocks).replace("\\\n", " ").splitlines() + re.findall(r"^!(trajopt .*)", text, re.M)
        for line in lines:
            words = shlex.split(re.split("[|>]|2>", line.replace("[NAME]", "NAME"))[0], comments=True)
            if words and Path(words[0]).name == "trajopt":
                found.append((page.name, words[1:]))
    return found


@pytest.mark.parametrize(("page", "words"), shown_commands(), ids=lambda value: value if isinstance(value, str) else "")
def test_commands_that_are_shown_are_understood(page, words):
    """Commands and options exist; configurations exist and accept the overridden keys."""
    import click

    from experiments.cli.main import main
    from trajopt.config.config import load_config

    if not words[0].isalpha():
        return
    command = main.commands[words[0]]
    context = click.Context(command, info_name=words[0])
    parser = command.make_parser(context)
    options, rest, _ = parser.parse_args(words[1:])
    assert not [word for word in rest if word.startswith("--")]
    for config in (word for word in rest if word.startswith("problems/configs/") and "NAME" not in word):
        assert (ROOT / config).exists()
        overrides = [o for o in options.get("overrides", ()) if "=out/" not in o]
        load_config(ROOT / config, overrides)


def test_every_way_a_solve_can_end_is_in_the_failure_cookbook():
    headings = re.findall(r"^## (.*)", (DOCS / "howto" / "failures.md").read_text(encoding="utf-8"), re.M)
    assert all(sum(f"`{code}`" in heading for heading in headings) == 1 for code in to.StatusCode)


# -- the reference -------------------------------------------------------------------------------------------


def test_every_public_name_is_on_one_page_and_is_documented():
    pages = public_api.pages()
    headed = [line for name, text in pages.items() if name != "index.rst" for line in text.splitlines()]
    assert all(headed.count(name) == 1 for name in NAMES)
    aliases = {n for n in NAMES if not (inspect.isclass(getattr(to, n)) or inspect.isfunction(getattr(to, n)))}
    bare = [n for n in NAMES if n not in aliases and not (inspect.getdoc(getattr(to, n)) or "").strip()]
    assert bare == []


def test_a_folder_without_a_theme_makes_a_page():
    assert public_api.theme_of("trajopt.new_folder.module") == ("new_folder", "New folder")
    assert public_api.theme_of("dynamics_backends.rigid_body.urdf.loader")[0] == "robots"


def test_every_key_of_a_configuration_is_in_the_reference():
    from trajopt.config.registry import PROBLEMS
    from trajopt.solvers.registry import SOLVERS

    pages = config_keys.pages()
    tables = [table for _, tables in keys.chapters().values() for table in tables]
    for file, (_, own) in keys.chapters().items():
        for table in own:
            for key in keys.keys(table.kind):
                assert f"| `{key.name}` |" in pages[f"{file}.md"]
    assert {f"problem_{name}" for name in PROBLEMS} <= set(keys.chapters())
    assert {kind for _, kind, _ in SOLVERS.values()} <= {table.kind for table in tables}


def test_keys_are_explained():
    """Keys are explained by class docstrings; unexplained keys are counted, and their number may only decrease."""
    rows = [key for _, tables in keys.chapters().values() for t in tables for key in keys.keys(t.kind)]
    assert sum(not row.meaning for row in rows) <= 0.05 * len(rows)


def test_all_columns_of_the_table_are_documented():
    """The page has the verbosity from which the table shows a column."""
    text = report_columns.page()
    heads = [to.ConsoleTable(verbosity=v).legend() for v in (1, 2, 3)]
    assert "| `iter` |" in text and text.count("| 1 |") == len(heads[0].splitlines())
    for line in heads[2].splitlines():
        assert f"| `{line.split()[0]}` |".replace("|grad|", r"\|grad\|") in text


# -- docstrings ----------------------------------------------------------------------------------------------


def test_a_docstring_is_read_by_its_names():
    text = "The grid. horizon: number of steps. dt, lead [s]: their length; at least 0. free: text (a: b)."
    before, found = keys.entries(text, {"horizon", "dt", "lead", "a"})
    assert before == "The grid."
    assert [e.names for e in found] == [("horizon",), ("dt", "lead")]
    assert found[1].text == "[s] their length; at least 0. free: text (a: b)."


def test_marks_in_prose_mean_themselves():
    lines = docstrings.rest(["|r|_w of x_ and *args, see :func:`solve` and `name`.", "", "    x_i = |a|*b", "", "End."])
    assert lines[0] == r"\|r\|\_w of x\_ and \*args, see :func:`solve` and ``name``."
    assert lines[2:5] == ["::", "", "    x_i = |a|*b"]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module):
    found = doctest.testmod(
        importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    )
    assert found.failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    count = sum(bool(t.examples) for m in MODULES for t in finder.find(importlib.import_module(m)))
    assert count >= 12


# -- the site ------------------------------------------------------------------------------------------------


def test_a_site_that_is_not_whole_is_complained_about(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="sub/b.html#here">b</a><a href="#top">up</a><a href="#none">?</a>'
    )
    (tmp_path / "sub" / "b.html").write_text(
        '<p id="here"></p><img src="../there.png"><img src="gone.png"><script src="https://cdn.test/x.js"></script>'
        '<a href="../a.html#top">a</a><a href="../c.html">c</a><a href="https://example.org">elsewhere</a>'
    )
    (tmp_path / "there.png").write_bytes(b"")
    assert set(site_check.site_errors(tmp_path)) == {
        "a.html links to #none, which has no such anchor",
        "sub/b.html shows gone.png, which does not exist",
        "sub/b.html loads https://cdn.test/x.js from the network",
        "sub/b.html links to ../c.html, which does not exist",
    }


# -- the gallery ---------------------------------------------------------------------------------------------


def test_the_gallery_has_all_configurations(tmp_path):
    facts = {"status": "converged", "success": True, "iterations": 3, "seconds": 0.01, "solver": "slq", "knots": 5}
    shown = [
        gallery.Entry(c.stem, tomllib.loads(c.read_text())["problem"]["name"], about(c), False, facts)
        for c in gallery.configs()
    ]
    shown[0] = shown[0]._replace(facts=None)
    text = gallery.page(shown)
    assert all(text.count(f"{s.name}.png") == 1 for s in shown[1:])
    assert f"`{shown[0].name}`: more than" in text
    assert all(s.about for s in shown)


def test_the_cache_key_depends_on_the_configuration(tmp_path):
    one, other = tmp_path / "a.toml", tmp_path / "b.toml"
    one.write_text("x = 1")
    other.write_text("x = 2")
    assert gallery.digest(one) != gallery.digest(other) and len(gallery.digest(one)) == 16


def test_the_cache_key_depends_on_the_code(tmp_path, monkeypatch):
    (tmp_path / "trajopt").mkdir()
    source, config = tmp_path / "trajopt" / "a.py", tmp_path / "a.toml"
    config.write_text("x = 1")
    monkeypatch.setattr(gallery, "ROOT", tmp_path)
    found = set()
    for text in ("x = 1", "x = 2", "x = 1"):
        source.write_text(text)
        gallery.code.cache_clear()
        found.add(gallery.digest(config))
    gallery.code.cache_clear()
    assert len(found) == 2
