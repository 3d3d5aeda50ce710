"""Checks of a URDF: one tree, and inertias for which the equations of motion can be solved.

Errors make the dynamics wrong: no tree, or a mass matrix that is not positive definite. Joints with one degree of freedom that
move no inertia make the mass matrix singular; they get a small rotor inertia, with a warning. The check is joint by joint on the
pivot of the mass matrix when its joints are eliminated from the leaves to the root, at a few configurations. The pivot is D = S'
I_A S of the articulated-body algorithm (Featherstone 2008, table 7.1); it is compared with the entry of the mass matrix, S' I_c S
of the rigid composite body. Implausible inertias of single links are warnings.
"""

from __future__ import annotations

import numpy as np

from dynamics_backends.names import nearest_names
from dynamics_backends.protocol import Array
from dynamics_backends.rigid_body.algorithms.crba import crba
from dynamics_backends.rigid_body.model.mass_properties import positive_semidefinite, satisfies_triangle
from dynamics_backends.rigid_body.model.model import JOINT_TYPES, ROOT_JOINTS, Model
from dynamics_backends.rigid_body.urdf.elements import Joint, Link, Robot
from dynamics_backends.rigid_body.urdf.xml_source import URDFError

PIVOT_TOLERANCE = 1e-10  # of the scaled pivot: far above rounding, far below the pivots of real joints
ROUNDING = 1e-13  # of the mass matrix, relative to its largest entry: 1e-12 kg m^2 for an arm of 10 kg m^2
ASSUMED_ROTOR = 1e-3  # [kg m^2, or kg]: that of a small geared servo
FEW = 2  # maximum number of separate sentences of one kind
GYRATION = 10.0  # [m]: larger radii are taken for inertias in kg mm^2, as CAD programs write them
CONFIGURATIONS = 3  # neutral and two random ones: a mass matrix may be singular at one configuration by chance


def tree_order(robot: Robot) -> tuple[Link, list[Joint]]:
    """Return the root link and the joints depth first, siblings in the file's order.

    Raises URDFError for an unknown link, a link with two parents, a cycle, no root, two roots.
    """
    above: dict[str, Joint] = {}
    below: dict[str, list[Joint]] = {name: [] for name in robot.links}
    for joint in robot.joints.values():
        _check_ends(joint, robot)
        if joint.child in above:
            other = above[joint.child]
            raise joint.element.error(
                f"link {joint.child!r} is also the child of joint {other.name!r} (line {other.element.line});"
                " a URDF is a tree: remove one of the joints and close the loop by a constraint"
            )
        above[joint.child] = joint
        below[joint.parent].append(joint)
    root = _root_link(robot, above)
    order, stack = [], below[root.name][::-1]
    while stack:
        joint = stack.pop()
        order.append(joint)
        stack += below[joint.child][::-1]
    if len(order) < len(robot.joints):
        raise _cycle(robot, above, reached={root.name, *(joint.child for joint in order)})
    return root, order


def _check_ends(joint: Joint, robot: Robot):
    """Raise URDFError if the parent or child link of a joint does not exist."""
    for end, link in (("parent", joint.parent), ("child", joint.child)):
        if link not in robot.links:
            near = nearest_names(link, list(robot.links))
            hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "add this <link>, or correct the name"
            raise joint.element.required(end).error(f"there is no link named {link!r}; {hint}")


def _root_link(robot: Robot, above: dict[str, Joint]) -> Link:
    """Link without a parent joint. Raises URDFError if there is none, or several."""
    roots = [link for name, link in robot.links.items() if name not in above]
    if not roots:
        raise _cycle(robot, above, reached=set())
    if len(roots) > 1:
        names = ", ".join(f"{link.name!r} (line {link.element.line})" for link in roots)
        raise roots[1].element.error(
            f"the robot has {len(roots)} root links, {names}: join them by a <joint>, or remove all but one"
        )
    return roots[0]


def _cycle(robot: Robot, above: dict[str, Joint], reached: set[str]) -> URDFError:
    """Return the error for links in a cycle; `reached` are the links connected to the root."""
    link = next(name for name in robot.links if name not in reached)
    seen: list[str] = []
    while link not in seen:
        seen.append(link)
        link = above[link].parent
    loop = [link, *reversed(seen[seen.index(link) :])]
    none = "" if reached else "there is no root link: "
    return above[link].element.error(
        f"{none}the links {' -> '.join(map(repr, loop))} form a cycle: remove one of the joints between them"
    )


def link_warnings(link: Link) -> list[str]:
    """Return a list with a warning about an inertia that no real body has, the first of four kinds that applies; else empty.

    The kinds: a positive mass with zero inertia, a negative principal moment, a radius of gyration above GYRATION, a violated
    triangle inequality.
    """
    where = f"link {link.name!r} (line {link.element.line})"
    if link.mass > 0 and not link.inertia.any():
        return [f"{where} has a mass and a zero inertia tensor: taken as a point mass"]
    if not positive_semidefinite(link.inertia):
        return [f"{where} has an inertia tensor with a negative principal moment"]
    largest = float(np.linalg.eigvalsh(link.inertia)[2])
    if link.mass > 0 and largest > GYRATION**2 * link.mass:
        radius = np.sqrt(largest / link.mass)
        return [f"{where} has a radius of gyration of {radius:.3g} m (inertia in kg mm^2?); a URDF has kg and kg m^2"]
    if not satisfies_triangle(link.inertia):
        return [f"{where}: one principal moment of inertia exceeds the sum of the others"]
    return []


def body_warnings(model: Model) -> list[str]:
    """Return warnings about moving bodies without mass, merged links included.

    More than FEW such bodies get one warning together, since multi-axis joints are often modeled with them.
    """
    pairs = zip(model.body_names, model.joint_names, model.mass, strict=True)
    massless = [(body, joint) for body, joint, mass in pairs if mass == 0]
    if len(massless) > FEW:
        return [f"{len(massless)} links moved by joints have no mass: {', '.join(repr(body) for body, _ in massless)}"]
    return [f"link {body!r}, moved by joint {joint!r}, has no mass" for body, joint in massless]


def with_assumed_rotors(model: Model, exempt: frozenset[str] = frozenset()) -> tuple[Model, list[str]]:
    """Return the model with a rotor inertia at each non-exempt joint that moves no inertia, and warnings about these joints.

    Only joints of one degree of freedom get one, of ASSUMED_ROTOR. exempt: names of joints that are not checked.
    """
    pivots, armature, notes = _pivots(model), np.array(model.armature), []
    for b, joint in enumerate(model.joint_names):
        idle = JOINT_TYPES[model.joint_types[b]] == (1, 1) and abs(pivots[:, b]).max() <= PIVOT_TOLERANCE
        if idle and joint not in exempt:
            armature[model.dofs(b)] = ASSUMED_ROTOR
            notes.append(
                f"joint {joint!r} moves no inertia (link {model.body_names[b]!r} and its subtree): a rotor inertia of"
                f" {ASSUMED_ROTOR:g} is assumed; lock the joint, correct the <inertial>, or give its armature"
            )
    return (model.replace(armature=armature) if notes else model), notes


def _pivots(model: Model) -> Array:
    """Return :func:`scaled_pivots` (CONFIGURATIONS, nb) at the neutral and at random configurations, the same at every call."""
    if not model.nb:
        return np.zeros((CONFIGURATIONS, 0))
    rng = np.random.default_rng(0)
    qs = np.array([model.neutral(), *model.random_configuration(rng, CONFIGURATIONS - 1)])
    return np.array([scaled_pivots(model, M) for M in np.moveaxis(crba(model, qs.T), -1, 0)])


def inertia_errors(model: Model, exempt: frozenset[str] = frozenset()) -> list[str]:
    """Return errors about the non-exempt joints at which the mass matrix is not positive definite.

    Such a joint has a negative pivot (:func:`scaled_pivots`) in one of the checked configurations, or no positive one in any.
    """
    pivots = _pivots(model)
    errors = []
    for b, joint in enumerate(model.joint_names):
        negative = pivots[:, b].min() < -PIVOT_TOLERANCE
        if joint not in exempt and (negative or pivots[:, b].max() <= PIVOT_TOLERANCE):
            errors.append(_inertia_error(model, b, negative))
    return errors


def _inertia_error(model: Model, b: int, negative: bool) -> str:
    """Error, with the remedy, about the joint of body b, which moves no inertia, or an unphysical one if ``negative``."""
    moved = [body for body in range(model.nb) if model.dofs(b)[0] in model.ancestors(body)]
    joint, link = model.joint_names[b], model.body_names[b]
    inertia = "an unphysical" if negative else "no"
    effect = "has a negative eigenvalue" if negative else "is singular"
    remedy = f"make the joint fixed, or load with armature={{{joint!r}: 1e-3}}"
    if model.joint_types[b] == "floating":
        remedy = "load with base='fixed'" if joint in ROOT_JOINTS else "make the joint fixed"
    return (
        f"joint {joint!r} moves {inertia} inertia (link {link!r} and its subtree of {model.mass[moved].sum():g} kg), so that the"
        f" mass matrix {effect}: correct the <inertial> of the links, such as {link!r}, {remedy}"
    )


def scaled_pivots(model: Model, M: Array) -> Array:
    """Return (nb,) the smallest eigenvalue, at most 1, of the pivot block D of each body in a mass matrix M (nv, nv), scaled by c.

    The blocks of the joints are eliminated from the leaves to the root; D is the block of a joint before its elimination. Joints
    without a positive pivot are not eliminated, so that they count as rigid. c: diagonal of the block in M, of the rigid subtree;
    entry (i, j) of D is divided by sqrt(c_i c_j). Entries of c at the level of rounding errors (ROUNDING) count as zero.

    The value is -inf if an entry of c is negative, 0 if one is zero.
    """
    M, diagonal, pivots = M.copy(), np.diag(M), np.zeros(model.nb)
    diagonal = np.where(abs(diagonal) > ROUNDING * abs(diagonal).max(initial=0.0), diagonal, 0.0)
    for b in reversed(range(model.nb)):
        dofs = model.dofs(b)
        c = diagonal[dofs]
        if c.min() <= 0.0:
            pivots[b] = -np.inf if c.min() < 0.0 else 0.0
            continue
        D = M[np.ix_(dofs, dofs)]
        pivots[b] = np.linalg.eigvalsh(D / np.sqrt(np.outer(c, c)))[0]
        if pivots[b] > PIVOT_TOLERANCE:
            M -= M[:, dofs] @ np.linalg.solve(D, M[dofs])
    return pivots
