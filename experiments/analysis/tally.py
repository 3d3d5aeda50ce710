"""Number of operations that a loop kernel executes for a robot."""

from __future__ import annotations

import numpy as np

from dynamics_backends.compiled.loops.loops import loop_kernel
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes.layout import layout
from dynamics_backends.rigid_body.passes.passes import FIELDS, Program
from dynamics_backends.rigid_body.spatial.spatial import size


def operations(program: Program, model: Model) -> int:
    """Count the operations for one knot. Raises ValueError for programs with linear algebra, whose templates are not counted."""
    counts = loop_kernel(program, model.joint_types).operations
    templates = {p.template for p in program.passes} - {"", "add_to_diagonal"}
    if templates:
        raise ValueError(f"{program.name} has linear algebra ({', '.join(sorted(templates))}), which is not counted")
    total = sum(
        count * _calls(program.passes[number].kind, joint_type, model) for (number, joint_type), count in counts.items()
    )
    below = int(np.count_nonzero(np.asarray(model.parent) >= 0))
    sums = sum(size(FIELDS[o].kind) for p in program.passes if p.kind == "up" for o in p.outputs[p.own :])
    return total + below * sums + model.nv * any(p.template for p in program.passes)


def _calls(kind: str, joint_type: str, model: Model) -> int:
    """Return how often a pass runs, for joints of one type unless it is ""."""
    if joint_type:
        return model.joint_types.count(joint_type)
    if kind in ("down", "up", "body"):
        return model.nb
    return model.nv if kind == "dof" else len(layout(model).indices(kind)["d"])
