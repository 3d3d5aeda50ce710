"""Configuration files bundled with packages, found by name from any folder."""

from __future__ import annotations

from pathlib import Path

from dynamics_backends.names import nearest_names
from trajopt.config.registry import CONFIG_FOLDERS

SUFFIX = ".toml"


def bundled_files() -> dict[str, Path]:
    """Return the bundled configuration files by name, sorted. Of two with one name, the folder registered first wins."""
    found: dict[str, Path] = {}
    for folder in CONFIG_FOLDERS.values():
        for file in folder.glob(f"*{SUFFIX}"):
            found.setdefault(file.stem, file)
    return dict(sorted(found.items()))


def bundled_names() -> list[str]:
    """Return the names of the bundled files, without suffix."""
    return list(bundled_files())


def about(file: Path) -> str:
    """Return the header comment of a configuration file as one line."""
    words: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        words += line.lstrip("# ").split()
    return " ".join(words)


def config_file(path: Path) -> Path:
    """Return a path if it is a file, else the bundled file of that name.

    Raises FileNotFoundError with what resembles the name.
    """
    if path.is_file():
        return path
    bundled = bundled_files().get(path.name.removesuffix(SUFFIX))
    if path == Path(path.name) and bundled is not None and not path.is_dir():
        return bundled
    raise FileNotFoundError(_no_file(path))


def _no_file(path: Path) -> str:
    """Return the message for a missing file, with similar names in its folder or of bundled files."""
    what = f"{path} is a folder, not a config file" if path.is_dir() else f"config file {path} does not exist"
    folder = path if path.is_dir() else path.parent
    if not folder.is_dir():
        what += f": folder {folder} does not exist"
    own = nearest_names(path.stem, [file.stem for file in sorted(folder.glob(f"*{SUFFIX}"))])
    near = [str(folder / f"{name}{SUFFIX}") for name in own] or nearest_names(path.stem, bundled_names(), 1)
    if near:
        named = " or ".join(near)
        return f"{what}; did you mean {named}{'' if own else ', a bundled configuration'}?"
    return f"{what}; `trajopt keys` lists the bundled configurations"
