"""Sphinx configuration: generated pages, executed pages, and checks of the site. `make docs` builds it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
GENERATED = HERE / "generated"
sys.path[:0] = [str(HERE / "extensions"), str(ROOT)]
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

import docstrings  # noqa: E402
import notebooks  # noqa: E402
import public_api  # noqa: E402
import site_check  # noqa: E402

import trajopt  # noqa: E402

project = "trajopt"
author = "the trajopt authors"
release = trajopt.__version__
extensions = [
    "benchmark_tables",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_design",
]
root_doc = "index"
exclude_patterns = ["_build", "generated/notebooks", "extensions", "pictures"]
source_suffix = {".md": "myst-nb", ".rst": "restructuredtext"}
suppress_warnings = ["mystnb.unknown_mime_type"]

# -- notebooks -----------------------------------------------------------------------------------------------
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "notebooks")
nb_execution_timeout = 1200
nb_execution_raise_on_error = True
nb_merge_streams = True
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath", "substitution"]
myst_heading_anchors = 3

# -- reference -----------------------------------------------------------------------------------------------
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 96
add_module_names = False
toc_object_entries_show_parents = "hide"
viewcode_follow_imported_members = True

# -- pages ---------------------------------------------------------------------------------------------------
html_theme = "pydata_sphinx_theme"
html_title = "trajopt"
html_static_path = ["static"]
html_css_files = ["site.css"]
os.environ["PATH"] = os.pathsep.join(
    [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
)  # for !trajopt in pages
mathjax_path = "mathjax.js"  # a copy, so that the site needs no network; see copy_mathjax
html_show_sourcelink = False
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "navbar_align": "left",
    "show_toc_level": 2,
}
html_sidebars = {"index": [], "generated/gallery/index": [], "changelog": []}
linkcheck_ignore = [r"http://127\.0\.0\.1.*"]
PUBLIC = {name.name for name in public_api.public_names()}


def generate(app: Any) -> None:
    """Generate pages from the sources; unchanged pages are not rewritten."""
    import config_keys
    import gallery

    _write(GENERATED / "api", public_api.pages())
    _write(GENERATED / "config", config_keys.pages())
    import report_columns

    found = gallery.make(GENERATED / "gallery", HERE / "_build" / "gallery", app.config.gallery_only)
    _write(GENERATED / "gallery", {"index.md": gallery.page(found)})
    _write(GENERATED, {"columns.md": report_columns.page()})
    _notebooks(GENERATED / "notebooks")


def _write(folder: Path, pages: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for stale in set(folder.glob("*.md")) | set(folder.glob("*.rst")):
        if stale.name not in pages:
            stale.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def executed_pages() -> list[Path]:
    """Return the pages that are notebooks."""
    pages = [p for p in sorted(HERE.rglob("*.md")) if "_build" not in p.parts]
    return [p for p in pages if notebooks.is_notebook(p.read_text(encoding="utf-8"))]


def _notebooks(folder: Path) -> None:
    """Write every executed page as a downloadable notebook."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in executed_pages():
        text = notebooks.notebook(page.read_text(encoding="utf-8"))
        (folder / f"{page.stem}.ipynb").write_text(text, encoding="utf-8")


def offer_notebook(app: Any, docname: str, source: list[str]) -> None:
    """Add a link to the notebook at the end of each executed page."""
    if notebooks.is_notebook(source[0]):
        name = Path(docname).name
        source[0] += f"\n+++\n\n{{download}}`This page as a notebook </generated/notebooks/{name}.ipynb>`\n"


def readable_docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Convert docstrings from prose to reStructuredText; see extensions/docstrings.py."""
    lines[:] = docstrings.rest(lines, _explained(what, thing))


def _explained(what: str, thing: Any) -> set[str]:
    import inspect

    names: set[str] = set(getattr(thing, "__dataclass_fields__", ())) | set(getattr(thing, "_fields", ()))
    with contextlib.suppress(TypeError, ValueError):
        names |= set(inspect.signature(thing).parameters)
    return names - {"self", "cls", "args", "kwargs", "fields"} if what in ("class", "function", "method") else set()


def skip(app: Any, what: str, name: str, thing: Any, skipped: bool, options: Any) -> bool | None:
    """Skip the fields of named tuples, which the class docstring explains."""
    return True if (getattr(thing, "__doc__", "") or "").startswith("Alias for field number") else None


def resolve(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """Resolve references to definitions to their public names; references to private names become plain text."""
    from docutils import nodes

    name = str(node.get("reftarget", "")).split(".")[-1]
    if node.get("refdomain") != "py" or name not in PUBLIC:
        return contnode if node.get("refdomain") == "py" else None
    found = env.get_domain("py").objects.get(f"trajopt.{name}")
    if found is None:
        return contnode
    target = app.builder.get_relative_uri(node.get("refdoc", env.docname), found.docname)
    return nodes.reference("", "", contnode, internal=True, refuri=f"{target}#trajopt.{name}")


def copy_scenes(app: Any, error: Exception | None) -> None:
    """Copy the 3D scenes written by executed pages. Raises RuntimeError if an iframe has no scene."""
    if error is not None or app.builder.name != "html":
        return
    import re

    for page in executed_pages():
        folder = page.parent.relative_to(HERE)
        html = (Path(app.outdir) / folder / f"{page.stem}.html").read_text("utf-8")
        for scene in re.findall(r'<iframe[^>]*?src="([^":]+\.html)', html, re.S):
            source = page.parent / scene
            if not source.exists():
                raise RuntimeError(
                    f"{folder / page.stem} shows {scene}, which is missing: run make clean and build again"
                )
            shutil.copyfile(source, Path(app.outdir) / folder / scene)


def check_site(app: Any, error: Exception | None) -> None:
    """Raise RuntimeError if a page needs a network or has a broken link."""
    if error is None and app.builder.name == "html":
        found = list(site_check.site_errors(Path(app.outdir)))
        if found:
            raise RuntimeError("\n".join(["the site has errors:", *found]))


def copy_mathjax(app: Any, error: Exception | None) -> None:
    """Copy MathJax with SVG output, one file."""
    if error is None and app.builder.name == "html":
        [folder] = importlib.util.find_spec("sphinx-mathjax-offline").submodule_search_locations
        script = Path(folder) / "static" / "mathjax" / "tex-svg-full.js"
        shutil.copyfile(script, Path(app.outdir) / "_static" / "mathjax.js")


def setup(app: Any) -> dict[str, bool]:
    app.add_config_value("gallery_only", "*", "", [str])  # pattern of file names; shortens builds of other pages
    app.connect("builder-inited", generate)
    app.connect("source-read", offer_notebook)
    app.connect("autodoc-process-docstring", readable_docstring)
    app.connect("autodoc-skip-member", skip)
    app.connect("missing-reference", resolve)
    app.connect("build-finished", copy_scenes)
    app.connect("build-finished", copy_mathjax)
    app.connect("build-finished", check_site)
    return {"parallel_read_safe": True}
