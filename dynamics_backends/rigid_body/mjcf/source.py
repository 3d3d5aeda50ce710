"""MJCF files and texts: detection, checks, compilation by MuJoCo's parser, and names of the elements.

MuJoCo's compiler resolves defaults, includes, frames, replicates, meshes and inertias, so that numbers are read from its result,
not from XML.  Names are optional in MJCF: joints and geoms without a name are named after their body, bodies and equalities by
their number; sites stay unnamed.

Checks of the text come first, since MuJoCo replaces a mass of nan by a default, and allocates the sizes in `count`, `nkey` or
`nrow`; some values crash the process.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.rigid_body.spatial.rotations import snap_rotation, unit_quaternion_matrix
from dynamics_backends.rigid_body.urdf.xml_source import is_text
from dynamics_backends.user_input import InputError, read_bounded

MISSING = "MJCF files are read by the package mujoco: pip install 'urdf-trajopt[sim]'"
UNNAMED = "MuJoCo Model"
"""MuJoCo's name of a robot without a name."""
EXACT = 1e-12
"""Tolerance of :func:`snap_rotation` for rotations by pi/2, which are rounded by their quaternions."""
JOINT_KINDS = {
    "mjJNT_FREE": "floating",
    "mjJNT_BALL": "spherical",
    "mjJNT_SLIDE": "prismatic",
    "mjJNT_HINGE": "revolute",
}
_FIRST_TAG = rb"\A(?:\xef\xbb\xbf)?(?:\s|<\?(?:(?!\?>).)*\?>|<!--(?:(?!-->).)*-->|<!DOCTYPE[^>]*>)*<\s*([\w.:-]+)"
_FILE_NAMED = re.compile(r"""\bfile\s*=\s*["']([^"'\0]+)["']""")
_FOLDER_NAMED = re.compile(r"""\b(?:mesh|texture|asset)dir\s*=\s*["']([^"'\0]+)["']""")
CACHE_SIZE = 4
"""Number of cached compiled models."""
FileState = tuple[str, int, int]
_HEAD = 1 << 16
"""Number of bytes at the start of a file that are searched for its first element."""


class MJCFError(InputError):
    """An MJCF cannot be read, or describes no usable robot; the message contains the position and the remedy."""


class MJCFWarning(UserWarning):
    """Elements and terms by which a model moves differently than its MJCF does in MuJoCo; all in one message."""


def is_mjcf(source: str | os.PathLike) -> bool:
    """True if the first element of a file, or of text that starts with "<", is <mujoco>. False for an unreadable file."""
    if is_text(source):
        head = str(source).encode()
    else:
        try:
            with Path(source).open("rb") as file:
                head = file.read(_HEAD)
        except OSError:
            return False
    found = re.match(_FIRST_TAG, head, flags=re.DOTALL)
    return found is not None and found.group(1) == b"mujoco"


def source_path(source: str | os.PathLike) -> str:
    """Absolute path of a file; "" for text."""
    return "" if is_text(source) else str(Path(source).resolve())


class Compiled(NamedTuple):
    """MuJoCo's model (MjModel), shared by all callers and read-only, and the warnings of its compiler."""

    simulated: Any
    warnings: tuple[str, ...]


def compiled(source: str | os.PathLike) -> Compiled:
    """Compile an MJCF file, or text that starts with "<", by MuJoCo.

    The last CACHE_SIZE results are cached while their files are unchanged.

    Raises ModuleNotFoundError without the package mujoco; MJCFError for a missing file, one whose first element is not <mujoco>,
    unsafe attributes, and MuJoCo's errors, with MuJoCo's message.
    """
    try:
        import mujoco  # noqa: F401 (whether it is there)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(MISSING, name="mujoco") from error
    text = is_text(source)
    where = "MJCF text" if text else str(source)
    if not text and not Path(source).is_file():
        raise MJCFError(f"cannot read the MJCF {where!r}: there is no such file")
    if not is_mjcf(source):
        raise MJCFError(
            f"{where}: the first element is not <mujoco>, so that this is no MJCF; a URDF is read by load_urdf"
        )
    return _compiled(str(source) if text else source_path(source), states_of_files(source))


@lru_cache(maxsize=CACHE_SIZE)
def _compiled(source: str, states: tuple[FileState, ...]) -> Compiled:
    """Compile a text, or the path of a file, that is known to be MJCF; cached by its arguments.

    states: see :func:`states_of_files`. Raises MJCFError for unsafe attributes, with the line, and for MuJoCo's errors.
    """
    import mujoco

    text = is_text(source)
    where = "MJCF text" if text else source
    texts = [(where, source)] if text else []
    texts += [(path, _text(Path(path))) for path, _, _ in states if path == source or path.endswith(".xml")]
    for place, content in texts:
        for sentence in attribute_errors(content):
            raise MJCFError(f"{place}, {sentence}")
    said: list[str] = []
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(said.append)  # MuJoCo would write warnings to a file of the working directory
    try:
        simulated = mujoco.MjModel.from_xml_string(source) if text else mujoco.MjModel.from_xml_path(source)
    except (ValueError, RuntimeError, MemoryError, mujoco.FatalError) as error:
        raise MJCFError(
            f"{where}: MuJoCo cannot compile it: {' '.join(str(error).split())}; correct it there"
        ) from None
    finally:
        mujoco.set_mju_user_warning(before)
    return Compiled(simulated, tuple(" ".join(one.split()) for one in said))


def states_of_files(source: str | os.PathLike) -> tuple[FileState, ...]:
    """Path, modification time [ns] and size of an MJCF file and of all existing files that it and its .xml files reference.

    References in text are relative to the working directory, as in MuJoCo.
    """
    found = set() if is_text(source) else {Path(source).resolve()}
    home = next(iter(found)).parent if found else Path.cwd()
    folders, texts = [home], [(path.parent, _text(path)) for path in found] or [(home, str(source))]
    while texts:
        place, text = texts.pop()
        folders += [home / name for name in _FOLDER_NAMED.findall(text)]
        named = {(folder / name).resolve() for name in _FILE_NAMED.findall(text) for folder in (place, *folders)}
        new = {path for path in named - found if path.is_file()}
        found |= new
        texts += [(path.parent, _text(path)) for path in new if path.suffix == ".xml"]
    states = ((str(path), path.stat()) for path in sorted(found))
    return tuple((path, state.st_mtime_ns, state.st_size) for path, state in states)


def _text(path: Path) -> str:
    """Content of a file as text, with undecodable bytes replaced. Raises OSError, and InputError for a large file."""
    return read_bounded(path).decode("utf-8", errors="replace")


class Names:
    """Names of the robot and, by number, of bodies, joints, geoms, sites and equalities of an MjModel.

    All are unique among their kind, but for sites without a name, which have "". source: file or text, for the name of a robot
    without one: the stem of the file, or "robot".
    """

    def __init__(self, simulated: Any, source: str | os.PathLike = "<") -> None:
        m = simulated
        self.robot = _robot_name(m, "robot" if is_text(source) else Path(source).stem)
        self.bodies = _unique(m.body(i).name or f"body{i}" for i in range(m.nbody))
        of_joints = [(i, int(m.jnt_bodyid[i])) for i in range(m.njnt)]
        self.joints = _unique(m.joint(i).name or self._joint_name(m, i, body) for i, body in of_joints)
        self.geoms = _unique(
            m.geom(i).name or f"{self.bodies[m.geom_bodyid[i]]}_geom{i - m.body_geomadr[m.geom_bodyid[i]]}"
            for i in range(m.ngeom)
        )
        self.equalities = _unique(m.equality(i).name or f"equality{i}" for i in range(m.neq))
        self.sites = tuple(m.site(i).name for i in range(m.nsite))

    def _joint_name(self, m: Any, i: int, body: int) -> str:
        """Name of an unnamed joint: BODY_joint, with its number on the body if the body has several joints."""
        name = f"{self.bodies[body]}_joint"
        return name if m.body_jntnum[body] == 1 else f"{name}{i - m.body_jntadr[body]}"


def _robot_name(m: Any, default: str) -> str:
    """Name of the robot in the file, or ``default`` if it has none."""
    name = bytes(m.names).split(b"\0", 1)[0].decode(errors="replace")
    return default if name in ("", UNNAMED) else name


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    """Names with _2, _3, ... appended to repeated ones, so that all are unique."""
    seen: dict[str, None] = {}
    for name in names:
        own, count = name, 2
        while own in seen:
            own, count = f"{name}_{count}", count + 1
        seen[own] = None
    return tuple(seen)


def rotation(quaternion: Any) -> np.ndarray:
    """Rotation (3, 3) of MuJoCo's quaternion w x y z, which is normalized.

    Rounding errors of quarter and half turns about a coordinate axis are removed (:func:`snap_rotation`).
    """
    w, x, y, z = np.asarray(quaternion, dtype=float) / np.linalg.norm(quaternion)
    return snap_rotation(unit_quaternion_matrix((x, y, z, w)), EXACT)


def moves(simulated: Any, body: int) -> bool:
    """True if a body has joints, or is rigidly part of one that has."""
    return bool(simulated.body_jntnum[simulated.body_weldid[body]])


def joint_kind(simulated: Any, joint: int) -> str:
    """Joint type in the model's terms: "revolute", "prismatic", "spherical" or "floating"."""
    import mujoco

    return JOINT_KINDS[mujoco.mjtJoint(int(simulated.jnt_type[joint])).name]


def joint_bodies(simulated: Any) -> dict[int, list[int]]:
    """Numbers of the joints of each body that has joints, by body."""
    found: dict[int, list[int]] = {}
    for i in range(simulated.njnt):
        found.setdefault(int(simulated.jnt_bodyid[i]), []).append(i)
    return found


def enabled(simulated: Any, *what: str) -> bool:
    """True if the file's <flag> disables none of these parts of the dynamics, such as "GRAVITY".

    Parts that this version of MuJoCo does not know count as enabled.
    """
    import mujoco

    bits = [int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}", 0)) for name in what]  # 0: not known to this version
    return not any(simulated.opt.disableflags & bit for bit in bits)


MAX_COPIES = 100_000
"""Maximum number of copies by nested <replicate>, and of points of a <flexcomp> or <composite>."""
MAX_CELLS = 100_000_000
"""Maximum number of cells of a height field or texels of a texture."""
MAX_ENTRIES = 1_000_000
"""Maximum value of an attribute of <size> other than `memory`."""
_TAG = re.compile(r"<(/?)([A-Za-z_]\w*)((?:\s+[\w:.-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'))*)\s*(/?)>")
_ATTRIBUTE = re.compile(r"([\w:.-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_NOT_FINITE = re.compile(r"(?<!\S)[+-]?(?:nan|inf|infinity)(?!\S)", re.IGNORECASE)
_NAN = re.compile(r"(?<!\S)[+-]?nan(?!\S)", re.IGNORECASE)
_TEXTS = re.compile(
    r"(name|class|childclass|model|file|data|text|prefix|type|material|target|refname|objname|[a-z]*dir)\d?$"
)
"""Attributes that are not numbers."""
_NAMED = re.compile(r"(joint|body|geom|site|tendon|actuator|mesh|texture|hfield|sensor|camera|light|flex|skin|key)\w*$")
"""Attributes that name other elements."""


def attribute_errors(text: str) -> Iterator[str]:
    """Yield an error, with the line, for each attribute of an MJCF text that is unsafe for MuJoCo.

    Unsafe are numbers that are not finite (ranges may be infinite), and sizes or copies that would take too much memory. After an
    error about the copies of <replicate>, the rest of the text is not checked.
    """
    text = _without_comments(text)
    opened: list[int] = []
    copies, line, at = 1, 1, 0
    for tag in _TAG.finditer(text):
        closing, name, attributes, closed = tag.groups()
        line, at = line + text.count("\n", at, tag.start()), tag.start()
        if closing:
            copies //= opened.pop() if name == "replicate" and opened else 1
            continue
        values = {key: double or single for key, double, single in _ATTRIBUTE.findall(attributes)}
        where = f"line {line}, <{name}>: "
        for key, value in values.items():
            pattern = _NAN if key.endswith("range") else _NOT_FINITE
            if not (_TEXTS.match(key) or _NAMED.match(key)) and pattern.search(value):
                yield f"{where}{key} is {value!r}: give finite numbers"
        if name == "replicate" and not closed:
            opened.append(max(_leading_integer(values.get("count", "1")), 1))
            copies *= opened[-1]
            if copies > MAX_COPIES:
                yield f"{where}{copies} copies: MuJoCo would need too much memory; give at most {MAX_COPIES}"
                return
        elif name in _SIZES:
            yield from (where + sentence for sentence in _SIZES[name](values))


def _without_comments(text: str) -> str:
    """Replace comments by their newlines; linear in the length of the text, also for unclosed comments."""
    parts, at = [], 0
    while (begin := text.find("<!--", at)) >= 0 and (end := text.find("-->", begin + 4)) >= 0:
        parts += [text[at:begin], "\n" * text.count("\n", begin, end)]
        at = end + 3
    return "".join([*parts, text[at:]])


def _leading_integer(text: str) -> int:
    """Leading integer, not negative, of a text (at most 18 digits); 0 if there is none."""
    found = re.match(r"\s*\+?(\d{1,18})", text)
    return int(found[1]) if found else 0


def _product(values: Mapping[str, str], *keys: str) -> int:
    """Product of all integers in these attributes; each counts as at least 1, a missing attribute as 1."""
    words = [word for key in keys for word in values.get(key, "").split()]
    return math.prod(max(_leading_integer(word), 1) for word in words)


def _limited(largest: int, *keys: str) -> Callable[[Mapping[str, str]], Iterator[str]]:
    """Return a check that yields an error if the product of the numbers in some attributes exceeds ``largest``."""

    def check(values: Mapping[str, str]) -> Iterator[str]:
        """Yield an error if the product of the attributes is too large."""
        product = _product(values, *keys)
        if product > largest:
            yield f"{' times '.join(keys)} is {product}: MuJoCo would need too much memory; give at most {largest}"

    return check


def _size(values: Mapping[str, str]) -> Iterator[str]:
    """Yield an error for each attribute of <size>, other than `memory`, above MAX_ENTRIES."""
    for key, value in values.items():
        if key != "memory" and _leading_integer(value) > MAX_ENTRIES:
            yield f"{key} is {value!r}: MuJoCo would need too much memory; give at most {MAX_ENTRIES}"


_SIZES = {
    "flexcomp": _limited(MAX_COPIES, "count"),
    "composite": _limited(MAX_COPIES, "count"),
    "hfield": _limited(MAX_CELLS, "nrow", "ncol"),
    "texture": _limited(MAX_CELLS, "width", "height"),
    "size": _size,
}
