"""The configuration files of the package, by their names from any folder."""

from __future__ import annotations

from pathlib import Path

import problems
from dynamics_backends.names import nearest_names

FOLDER = Path(problems.__file__).parent / "configs"
SUFFIX = ".toml"


def bundled_names() -> list[str]:
    """The names of the bundled files, without their suffix."""
    return sorted(file.stem for file in FOLDER.glob(f"*{SUFFIX}"))


def config_file(path: Path) -> Path:
    """The file of a path, or where there is none the bundled file that a bare name stands for.

    Raises FileNotFoundError with what resembles the name.
    """
    if path.is_file():
        return path
    bundled = FOLDER / f"{path.name.removesuffix(SUFFIX)}{SUFFIX}"
    if path == Path(path.name) and bundled.is_file() and not path.is_dir():
        return bundled
    raise FileNotFoundError(_no_file(path))


def _no_file(path: Path) -> str:
    """What is said of a missing file, with names from its folder, or of bundled files, that resemble it."""
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
