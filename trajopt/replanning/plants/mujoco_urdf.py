"""Conversion of URDF for MuJoCo: no shapes, an optional floating root joint, and inertias that MuJoCo accepts.

MuJoCo rejects links with physically impossible inertias, such as massless roots and cameras, although the moving bodies that
contain them may be valid. For such a robot, the kinematics are MuJoCo's, and each moving body gets the mass and inertia of the
model, including all links fixed to it. MuJoCo balances inertias that still violate A + B >= C.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynamics_backends.rigid_body.model.model import Frame, Model, root_joint

SHAPES = ("visual", "collision")
EXTRAS = ("gazebo", "transmission", "material", "mujoco")
WORLD = "world_of_the_plant"


def mujoco_urdf(text: str, floating: bool, *, inertial: bool = True) -> str:
    """URDF text for MuJoCo, without shapes, and with a floating joint if ``floating``. inertial: keep masses and inertias."""
    from xml.etree.ElementTree import SubElement, tostring

    from defusedxml.ElementTree import fromstring

    root = fromstring(text)
    for tag in EXTRAS:
        for element in root.findall(tag):
            root.remove(element)
    dropped = SHAPES if inertial else (*SHAPES, "inertial")
    for link in root.findall("link"):
        for element in [e for e in link if e.tag in dropped]:
            link.remove(element)
    if floating:
        joints = root.findall("joint")
        children = {joint.find("child").get("link") for joint in joints}
        base = next(link.get("name") for link in root.findall("link") if link.get("name") not in children)
        if [joint.get("type") for joint in joints if joint.find("parent").get("link") == base] != ["floating"]:
            name = root_joint([joint.get("name") for joint in joints])
            SubElement(root, "link", name=WORLD)
            joint = SubElement(root, "joint", name=name, type="floating")
            SubElement(joint, "parent", link=WORLD)
            SubElement(joint, "child", link=base)
    return tostring(root, encoding="unicode")


def urdf_spec(text: str, model: Model) -> Any:
    """MuJoCo specification (mujoco.MjSpec) of a robot's URDF. Raises ValueError if MuJoCo rejects the robot."""
    import mujoco

    spec = mujoco.MjSpec.from_string(mujoco_urdf(text, model.floating_base))
    try:
        spec.copy().compile()
        return spec
    except ValueError as error:
        if "inertia" not in str(error) and "mass" not in str(error):
            raise
    spec = mujoco.MjSpec.from_string(mujoco_urdf(text, model.floating_base, inertial=False))
    spec.compiler.balanceinertia = True
    for b, name in enumerate(model.body_names):
        _set_inertia(spec.body(name), model, b)
    return spec


def link_of(model: Model, body: int) -> Frame:
    """Frame of the link that a moving body is named after, whose axes MuJoCo uses for the body."""
    name = model.body_names[body]
    return next(f for f in model.frames if f.body == body and f.name == name and f.kind == "link")


def _set_inertia(target: Any, model: Model, b: int) -> None:
    """Set mass and inertia of a body of a specification to those of moving body b of the model."""
    link = link_of(model, b)
    inertia = link.R.T @ np.asarray(model.inertia[b]) @ link.R
    target.mass, target.explicitinertial = float(model.mass[b]), True
    target.ipos, target.iquat = link.R.T @ (model.com[b] - link.p), [1.0, 0.0, 0.0, 0.0]
    target.fullinertia = [*np.diag(inertia), inertia[0, 1], inertia[0, 2], inertia[1, 2]]
