"""Number of operations that a loop kernel executes for a robot."""

from __future__ import annotations

import numpy as np

from dynamics_backends.compiled.loops.loops import loop_kernel
from dynamics_backends.compiled.loops.sparsity import FORMS, below_others
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
        count * _calls(program.passes[number].kind, variant, (number, "rooted") in counts, model)
        for (number, variant), count in counts.items()
    )
    below = int(np.count_nonzero(np.asarray(model.parent) >= 0))
    sums = sum(size(FIELDS[o].kind) for p in program.passes if p.kind == "up" for o in p.outputs[p.own :])
    return total + below * sums + model.nv * any(p.template for p in program.passes)


def _calls(kind: str, variant: str, has_rooted: bool, model: Model) -> int:
    """Return how often a pass runs in one variant: a joint type, or one of FORMS."""
    if variant not in FORMS:
        return model.joint_types.count(variant)
    if kind in ("down", "up", "body"):
        return model.nb
    if kind == "dof":
        return model.nv
    index = layout(model).indices(kind)
    if kind not in ("pair", "own_pair"):
        return len(index["d"])
    rooted = has_rooted & ~below_others(model)[index["k"]]
    form = np.where(index["k"] == index["d"], "diagonal", np.where(rooted, "rooted", ""))
    return int(np.count_nonzero(form == variant))
