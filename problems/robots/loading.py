"""Load the robots of problems, with a cache shared by all problems of a process."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dynamics_backends.rigid_body.mjcf.source import MJCFWarning
from dynamics_backends.rigid_body.model.model import STANDARD_GRAVITY, Model
from dynamics_backends.rigid_body.model.model_builder import lock_joints
from dynamics_backends.rigid_body.robots import is_path, load_robot


def load_fixed_base(
    robot: str,
    mimic: str = "free",
    locked: Iterable[str] | Mapping[str, float] = (),
    package_dirs: tuple[str, ...] = (),
    turns: str = "nearest",
) -> Model:
    """Load a fixed-base robot: a bundled name, "erd:NAME", or the path of a URDF or MJCF file. locked: joints made rigid, also a
    floating joint of the base.
    package_dirs: folders of the mesh packages. turns: treatment of continuous joints, see
    :func:`~dynamics_backends.rigid_body.urdf.loader.load_urdf`; without such joints it has no effect.

    Raises UnknownName, ValueError, ModuleNotFoundError, FileNotFoundError, URDFError, MJCFError.
    """
    model = _loaded(robot, base="fixed", mimic=mimic, locked=locked, package_dirs=package_dirs)
    if model.floating_base:  # by a joint of a URDF
        note = f"the floating joint {model.joint_names[0]!r} is rigid, at its pose in the file"
        model = lock_joints(model, model.joint_names[:1])
        model = model.replace(notes=(note, *model.notes))
    return model.replace(circular=()) if turns == "counted" and model.circular else model


def load_floating_base(robot: str, package_dirs: tuple[str, ...] = ()) -> Model:
    """Load a floating-base robot: a bundled name, "erd:NAME", or the path of a URDF or MJCF file.
    package_dirs: folders of the mesh packages.

    An MJCF file without gravity gets standard gravity, with an MJCFWarning. Raises UnknownName, ModuleNotFoundError,
    FileNotFoundError,
    URDFError, MJCFError.
    """
    model = _loaded(robot, base="floating", package_dirs=package_dirs)
    if model.gravity.any():
        return model
    message = (
        f"{model.name} has no gravity in its file, but a legged robot needs it: using {-STANDARD_GRAVITY[2]:g} m/s^2"
    )
    warnings.warn(message, MJCFWarning, stacklevel=2)
    return model.replace(gravity=STANDARD_GRAVITY, notes=(message, *model.notes))


_RECENT: dict[str, tuple[Model, list[warnings.WarningMessage]]] = {}
MAX_RECENT = 8
"""Maximum number of cached robots."""


def _loaded(robot: str, **options: Any) -> Model:
    """Load a robot. A cached robot is the same object, with the same warnings, so that data derived from it can be cached too.

    MJCF files, which may include other files, are read each time.
    """
    path = Path(robot).expanduser() if is_path(robot) else None
    if path is not None and (path.suffix != ".urdf" or not path.is_file()):
        return load_robot(robot, **options)
    state = None if path is None else (path.stat().st_mtime_ns, path.stat().st_size)
    key = repr((robot, sorted(options.items()), state))
    if key not in _RECENT:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = load_robot(robot, **options)
        while len(_RECENT) >= MAX_RECENT:
            del _RECENT[next(iter(_RECENT))]
        _RECENT[key] = model, caught
    model, message = _RECENT[key]
    for w in message:
        warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
    return model
