"""SRDF of a robot: reference postures, and pairs of links without collision checks.

    <group_state name="standing" group="all"> <joint name="knee" value="0.6"/> ... </group_state>
    <disable_collisions link1="thigh" link2="shin" reason="Adjacent"/>

The value of a floating joint is position and quaternion x y z w, that of a joint with one coordinate its value, or the cosine and
sine of an angle.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dynamics_backends.names import unknown_name
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.urdf.xml_source import Element, URDFError, read_xml


@dataclass(frozen=True)
class SRDF:
    """Contents of an SRDF.

    source: name of the file. robot: its name. postures: (group, name) -> joint -> values, the group "" if none is given.
    disabled: (link, link, reason) of the pairs of links without collision checks.
    """

    source: str
    robot: str
    postures: Mapping[tuple[str, str], Mapping[str, tuple[float, ...]]]
    disabled: Sequence[tuple[str, str, str]]

    def posture(self, model: Model, name: str, group: str | None = None) -> np.ndarray:
        """Configuration (nq,) of a reference posture; joints without a value are at their neutral configuration.

        group: selects one of several groups with a posture of this name, default the first of those with the most joints. Joints
        of the posture that the model does not have (locked ones) are ignored. Raises UnknownName for an unknown posture or one
        whose joints are all unknown to the model, URDFError for a value that does not fit its joint.
        """
        fitting = {g: values for (g, n), values in self.postures.items() if n == name and group in (None, g)}
        if not fitting:
            raise unknown_name(f"posture of {self.source}", name, sorted({n for _, n in self.postures}))
        values = max(fitting.values(), key=len)
        q = model.neutral()
        known = [joint for joint in values if joint in model.joint_names]
        if values and not known:
            raise unknown_name(f"joint of {model.name}", next(iter(values)), list(model.joint_names))
        ends = [*model.q_index[1:], model.nq]
        for joint in known:
            body = model.joint_id(joint)
            first, end = int(model.q_index[body]), int(ends[body])
            q[first:end] = self._posture_values(joint, values[joint], end - first)
        return q

    def _posture_values(self, joint: str, values: tuple[float, ...], size: int) -> Sequence[float]:
        """Coordinates (size,) of a joint from its values in the file.

        Two values of a joint with one coordinate are the cosine and sine of an angle; the quaternion of a floating joint is
        normalized. Raises URDFError for another number of values than ``size``, and for a quaternion with a norm of at most 0.5.
        """
        if size == 1 and len(values) == 2:
            return [math.atan2(values[1], values[0])]
        if len(values) != size:
            raise URDFError(f"{self.source}: joint {joint!r} has {len(values)} values in a posture, and takes {size}")
        if size in (4, 7):
            norm = math.hypot(*values[-4:])
            if not norm > 0.5:
                raise URDFError(
                    f"{self.source}: the orientation of joint {joint!r} in a posture is no quaternion x y z w"
                )
            return [*values[:-4], *(v / norm for v in values[-4:])]
        return values


def load_srdf(source: str | os.PathLike) -> SRDF:
    """Read an SRDF file, or SRDF text that starts with "<". Raises URDFError, with file, line and element, for an invalid SRDF."""
    root = read_xml(source)
    if root.tag != "robot":
        raise root.error("an SRDF has <robot> outermost")
    postures: dict[tuple[str, str], dict[str, tuple[float, ...]]] = {}
    for state in root.all("group_state"):
        key = (state.attributes.get("group", ""), state.string("name"))  # "": a posture without a group
        postures[key] = {joint.string("name"): _values(joint) for joint in state.all("joint")}
    pairs = root.all("disable_collisions")
    disabled = [(p.string("link1"), p.string("link2"), p.attributes.get("reason", "")) for p in pairs]
    return SRDF(root.source, root.attributes.get("name", ""), postures, tuple(disabled))


def _values(joint: Element) -> tuple[float, ...]:
    """Numbers of the attribute "value" of a <joint>, at least one. Raises URDFError if there is none, or a text is no number."""
    words = joint.string("value").split()
    if not words:
        raise joint.error("value is empty: give a number")
    return tuple(joint.vector("value", [0.0] * len(words)).tolist())


def srdf_beside(urdf: str | os.PathLike) -> Path:
    """Return the SRDF of a file NAME.urdf: NAME.srdf in the same folder, in its folder srdf or in ../srdf.

    Without a file of this name, it is the only SRDF in these three folders.

    Raises FileNotFoundError if there is none, or several without this name.
    """
    urdf = Path(urdf)
    places = [urdf.parent, urdf.parent / "srdf", urdf.parent.parent / "srdf"]
    named = [place / f"{urdf.stem}.srdf" for place in places]
    for file in named:
        if file.is_file():
            return file
    there = sorted({file for place in places if place.is_dir() for file in place.glob("*.srdf")})
    if len(there) == 1:
        return there[0]
    found = f"there are {', '.join(file.name for file in there)}" if there else "there is none"
    raise FileNotFoundError(f"no SRDF belongs to {urdf} ({found}): put {urdf.stem}.srdf beside it")


def reference_posture(model: Model, name: str) -> np.ndarray:
    """Configuration (nq,) of a posture in the SRDF beside the robot's file (:func:`srdf_beside`).

    Raises FileNotFoundError without an SRDF or for a model without a file, and the errors of :func:`load_srdf` and
    :meth:`SRDF.posture`.
    """
    if not model.source:
        raise FileNotFoundError("a reference posture is read from the SRDF beside a robot's URDF, and there is no file")
    return load_srdf(srdf_beside(model.source)).posture(model, name)
