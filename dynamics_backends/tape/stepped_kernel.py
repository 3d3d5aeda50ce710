"""Solution of a time step with contacts as a kernel call in a trace: templates/contact/stepped_solve.h.

Newton's iterations are not an expression.  The kernel that runs them calls the contact law as a tape, so it serves every law.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynamics_backends.compiled.loops.kernel_data import subtree_ends
from dynamics_backends.rigid_body.algorithms import ltl
from dynamics_backends.rigid_body.spatial.spatial import leaves, vec_of
from dynamics_backends.symbols import ca
from dynamics_backends.systems.contact import implicit_step
from dynamics_backends.systems.contact.implicit_step import ContactProblem
from dynamics_backends.tape.tape import Tape
from dynamics_backends.trace import Kernel, symbolic, trace_expressions


def solved_by_kernel(m: ContactProblem, v: Sequence[Any]) -> list[Any]:
    """Symbolic change of the joint velocities, a list of nv scalars, in a time step with contacts, by a call of the kernel of
    Newton's method.

    m: the contact problem, with symbols. v: joint velocities (nv) at the start, which scale the accuracy.
    """
    n, paths = len(m.drive), [list(c.J) for c in m.arrivals]
    numbers = [m.M[i][j] for i, above in enumerate(ltl.ancestor_lists(m.parents)) for j in (i, *above)]
    numbers += [*m.drive, *(x for c in m.arrivals for column in c.J.values() for x in leaves(column))]
    numbers += [x for c in m.arrivals for x in leaves(c.velocity)]
    numbers += [c.gap for c in m.arrivals]
    numbers += [x for c in m.arrivals for x in leaves(c.normal)]
    numbers += [implicit_step.energy(m, v), m.step]
    values = [ca.densify(ca.SX(value) if not isinstance(value, list) else ca.vertcat(*value)) for value in m.p.values()]
    inputs = ca.densify(ca.vertcat(*numbers, *values))
    parameters = sum(value.numel() for value in values)
    head = [n, len(paths), parameters, implicit_step.STEPS, implicit_step.TRIALS]
    start = np.cumsum([0, *map(len, paths)])
    up = np.asarray(m.parents)
    integers = [head, up, subtree_ends(up), start, [*(j for path in paths for j in path), 0]]
    doubles = [[implicit_step.ACCURACY**2, implicit_step.FLAT]]
    tables = [np.array(t, np.int32) for t in integers], [np.array(t, float) for t in doubles]
    kernel = Kernel("stepped_solve", tables, inputs.numel(), n, (_law(m, [x.numel() for x in values]),))
    delta = symbolic(kernel)(inputs)
    return [delta[i] for i in range(n)]


def _law(m: ContactProblem, sizes: Sequence[int]) -> Tape:
    """Tape of the contact law: gap, normal (3), velocity w (3), p -> force (3), its derivative in w (9).

    The derivative is a symmetric matrix, by columns. p: all parameters of m, concatenated; sizes: number of components of each.
    """
    gap, normal, w, p = (
        ca.SX.sym(name, size) for name, size in (("gap", 1), ("normal", 3), ("w", 3), ("p", sum(sizes)))
    )
    ends = np.cumsum([0, *sizes])
    given = {name: p[int(i) : int(j)] for name, i, j in zip(m.p, ends[:-1], ends[1:], strict=True)}
    force, slope = m.law.force_and_slopes(gap, vec_of(normal), vec_of(w), given)
    results = [ca.vertcat(*map(ca.SX, leaves(x))) for x in (force, slope.w)]
    return Tape.of(trace_expressions([gap, normal, w, p], results), [1, 3, 3, sum(sizes)])
