"""Loop kernels: a program of passes as C loops over the tables of a model, one kernel for all robots.

Each step function is traced once for each joint type and emitted as a static C function.  The loops around it read the tree from
integer tables and the inertias from double tables at run time.  Consecutive downward, body and DoF passes share one sweep from the
root.  Passes over paths share a loop with the triples that read their rows, and rows are stored for one path at a time.  Each field
that a ``x_p`` reads has a row -1 with the ground's values, so that the loop has no branch at the root.  Arguments and results with
such a row, and arguments that a pass updates, have storage in the workspace and are copied from, or to, the caller's arrays.
Passes of linear algebra are calls of the C templates (linear_algebra/ltl.h, tensors.h) on whole fields.

Matrix entries whose DoFs lie on no common path are cleared for every block, if a pass or the caller may read them.  Structural
zeros of tensors are never written, since a workspace begins as zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dynamics_backends.compiled.emit.emit import Argument, step_function
from dynamics_backends.compiled.loops.kernel_data import INT_TABLES
from dynamics_backends.rigid_body.passes.passes import (
    FIELDS,
    TABLES as DOUBLE_TABLES,
    TRIPLES,
    Axis,
    Pass,
    Program,
    base_name,
    entry,
)
from dynamics_backends.rigid_body.spatial.joints import JOINTS, Joint
from dynamics_backends.rigid_body.spatial.spatial import build, leaves, size
from dynamics_backends.trace import Trace, trace

CALLS = {
    "add_to_diagonal": "for (int d = 0; d < nv; d++) M[d * nv + d] += armature[d];",
    "ltl_factor": "ltl_factor(nv, up, M, factor);",
    "ltl_solve": "ltl_solve((branches_t){nv, up, end}, factor, tau_net, a, 1, 1.0, 0);",
    "ltl_solve_once": "ltl_solve_once(nv, up, M, tau_net, a);",
    "ltl_solve_weight": "ltl_solve((branches_t){nv, up, end}, factor, lam, mu, 1, -1.0, 0);",
    "fd_contraction": (
        "fd_contraction(nv, dof_body, parent, stretches, G_qa, (forward_first_t){da_dq, da_dv, M_inverse},\n"
        "(forward_second_t){L_qq, L_vv, L_qv, L_qtau});"
    ),
    "fd_tensors": (
        "fd_tensors(&(tree_t){{nv, up, end}, dof_body, parent, v_index}, factor,\n"
        "&(inverse_second_t){tau_qq, tau_vv, tau_qv, M_q}, &(forward_first_t){da_dq, da_dv, M_inverse},\n"
        "&(forward_second_t){a_qq, a_vv, a_qv, a_qtau});"
    ),
    "ltl_inverse": "ltl_inverse((branches_t){nv, up, end}, factor, M_inverse);",
    "ltl_minus_solve_both": (
        "ltl_solve((branches_t){nv, up, end}, factor, dtau_dq, da_dq, nv, -1.0, 1); "
        "ltl_solve((branches_t){nv, up, end}, factor, dtau_dv, da_dv, nv, -1.0, 1);"
    ),
}
"""C call by the name of a pass's template."""
IN_PLACE = {"fd_contraction": {"G_qq": "L_qq", "G_qv": "L_qv", "G_vv": "L_vv"}}
"""Fields that a template overwrites with an output, by template: field -> output."""


ON_PATHS = {"add_to_diagonal": ("M",), "ltl_factor": ("M",), "ltl_solve_once": ("M",), "fd_contraction": ("G_qa",)}
"""Matrices that a template reads only at entries whose row and column lie on a common path."""


_FORWARD = ("down", "body", "dof")
_PATHS = ("path", *TRIPLES.values())
_SHARING = (_FORWARD, _PATHS, ("pair",), ("own_pair",))
"""Kinds of passes that share one loop over the tree if they are neighbors."""
_COUNT = {Axis.BODY: "nb", Axis.DOF: "nv", Axis.Q: "nq", Axis.PAIR: "1", Axis.WHOLE: "nv * (nv + 1)"}
_COUNT |= {Axis.MATRIX: "nv * nv", Axis.TENSOR: "nv * nv * nv"}


@dataclass
class LoopKernel:
    """C source of a block function ``name(ti, td, inputs..., outputs..., w)`` and the sizes that a caller needs.

    input_sizes, output_sizes, workspace: C expressions in nb, nv and nq, numbers of vectors.
    operations: operation counts of the step functions, by number of the pass and joint type, "" for all.
    """

    name: str
    source: str
    inputs: list[str]
    outputs: list[str]
    input_sizes: list[str]
    output_sizes: list[str]
    workspace: str
    operations: dict[tuple[int, str], int] = field(default_factory=dict)


def loop_kernel(program: Program, joint_types: Sequence[str]) -> LoopKernel:
    """Generate the C loops of a program for models with these joint types."""
    return _Writer(program, sorted(joint_types)).kernel()


@dataclass
class _Writer:
    """Writer of the C loops of one program for some joint types."""

    program: Program
    joint_types: list[str]
    functions: list[str] = field(default_factory=list)
    operations: dict[tuple[int, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.name = self.program.name
        passes = self.program.passes
        self.inputs, self.outputs = list(self.program.arguments), list(self.program.outputs)
        self.tables = [n for n in DOUBLE_TABLES if n not in self.inputs]
        read = {base_name(n) for p in passes for n in (*p.inputs, *(p.outputs if p.step is None else ()))}
        self.live = read | set(self.outputs)
        self.by_entry = {base_name(o) for p in passes if p.by_entry for o in p.outputs}
        self.in_place = {f: o for p in passes for f, o in IN_PLACE.get(p.template, {}).items()}
        self.written = list(dict.fromkeys(base_name(o) for p in passes for o in p.outputs if self._is_live(o)))
        self.parents = {base_name(n) for p in passes for n in p.inputs if n.endswith("_p")}
        arguments = dict.fromkeys((*self.inputs, *self.outputs))
        updated = set(self.inputs) & {*self.written, *self.outputs}
        self.copied = [f for f in arguments if f in self.parents or f in updated]

    def kernel(self) -> LoopKernel:
        """Write the C function of all passes; returns it with the sizes of arguments, results and workspace."""
        body: list[str] = [*self._unpack_tables(), *self._storage()]
        for group in self._groups():
            body += self._loop(group)
        body += [self._copy(f"{f}_out", f, f) for f in self.outputs if f in self.copied]
        roomed = [f for f in self.written if self._has_workspace(f)] + [f for f in self.copied if f not in self.written]
        total = " + ".join([self._size(f, ground=f in self.parents) for f in roomed] or ["0"])
        arguments = ["const int* const* ti", "const double* const* td"]
        arguments += [f"const V* restrict {i}{'_in' * (i in self.copied)}" for i in self.inputs]
        arguments += [f"V* restrict {o}{'_out' * (o in self.copied)}" for o in self.outputs]
        head = f"static void {self.name}({', '.join([*arguments, 'V* workspace'])})"
        source = "\n".join([*self.functions, head, "{", *body, "}", ""])
        sizes_in, sizes_out = ([self._size(f) for f in fields] for fields in (self.inputs, self.outputs))
        return LoopKernel(self.name, source, self.inputs, self.outputs, sizes_in, sizes_out, total, self.operations)

    def _is_live(self, output: str) -> bool:
        """True if a pass or the caller reads an output; other outputs are neither computed nor stored."""
        return base_name(output) in self.live

    def _is_read_as_a_whole(self, f: str) -> bool:
        """True if a pass or the caller may read structurally zero entries of a matrix f."""
        readers = [p for p in self.program.passes if f in p.inputs]
        return f in self.outputs or not all(f in ON_PATHS.get(p.template, ()) for p in readers)

    # -- declarations -----------------------------------------------------------------------------------------------
    def _unpack_tables(self) -> list[str]:
        """C declarations of the model's tables and sizes."""
        lines = [f"const int* restrict {n} = ti[{i}];" for i, n in enumerate(INT_TABLES)]
        own = [(i, n) for i, n in enumerate(DOUBLE_TABLES) if n in self.tables]
        lines += [f"const double* restrict {n} = td[{i}];" for i, n in own]
        used = [f"(void){n};" for n in (*INT_TABLES, *self.tables, "nq")]
        return [*lines, "const int nb = head[0], nv = head[1], nq = head[2];", " ".join(used)]

    def _size(self, f: str, *, ground: bool = False) -> str:
        """C expression for the number of vectors of a field; ground: with the row -1."""
        kind = FIELDS[f]
        rows = f"({_COUNT[kind.axis]} + 1)" if ground else f"({_COUNT[kind.axis]})"
        return f"{self._leaves(f)} * {rows}"

    @staticmethod
    def _leaves(f: str) -> int:
        """Number of scalars in one row of a field, each a vector over the knots."""
        return size(FIELDS[f].kind)

    def _has_workspace(self, f: str) -> bool:
        """True if a written field has storage in the workspace."""
        return f in self.copied or (f not in self.outputs and f not in self.in_place)

    def _storage(self) -> list[str]:
        """C declarations of the written fields in the workspace (or in the output that replaces one), with their initial values."""
        lines = []
        for f in dict.fromkeys((*self.written, *self.copied)):
            if f in self.in_place:
                lines.append(f"V* {f} = {self.in_place[f]};")
            elif self._has_workspace(f):
                behind = f" + {self._leaves(f)}" if f in self.parents else ""
                lines.append(f"V* {f} = workspace{behind}; workspace += {self._size(f, ground=f in self.parents)};")
            if FIELDS[f].axis is Axis.MATRIX and f in self.by_entry and self._is_read_as_a_whole(f):
                lines.append(f"clear_gaps(gaps, {f});")
            if f in self.parents:
                lines.append(self._ground(f))
            if f in self.copied and f in self.inputs:
                lines.append(self._copy(f, f"{f}_in", f))
        return lines

    def _copy(self, target: str, source: str, f: str) -> str:
        """C statement that copies the numbers of a field f."""
        return f"memcpy({target}, {source}, sizeof(V) * {self._size(f)});"

    def _ground(self, f: str) -> str:
        """C statements that write the ground's values to row -1 of a field: identity pose, gravity as acceleration, else zeros."""
        n = size(FIELDS[f].kind)
        if f == "X":
            values = [f"splat({1.0 if i in (0, 4, 8) else 0.0})" for i in range(n)]
        elif f in ("acc", "acc_link"):
            values = ["splat(0.0)"] * 3 + [f"splat(td[{len(DOUBLE_TABLES)}][{i}])" for i in range(3)]
        else:
            values = ["splat(0.0)"] * n
        return " ".join(f"{f}[{i - len(values)}] = {v};" for i, v in enumerate(values))

    # -- loops ------------------------------------------------------------------------------------------------------
    def _groups(self) -> list[list[tuple[int, Pass]]]:
        """Numbered passes, in groups of neighbors that share one loop."""
        groups: list[list[tuple[int, Pass]]] = []
        for item in enumerate(self.program.passes):
            if groups and any({item[1].kind, groups[-1][-1][1].kind} <= set(kinds) for kinds in _SHARING):
                groups[-1].append(item)
            else:
                groups.append([item])
        return groups

    def _loop(self, group: list[tuple[int, Pass]]) -> list[str]:
        """C loop of passes that share it."""
        kind = group[0][1].kind
        if kind in _FORWARD:
            return self._forward(group)
        if kind in _PATHS:
            return self._along_paths(group)
        return self._over_pairs(group) if kind in ("pair", "own_pair") else self._single(*group[0])

    def _forward(self, group: list[tuple[int, Pass]]) -> list[str]:
        """C loop over the bodies from the root, for downward, body and DoF passes."""
        lines = ["for (int b = 0; b < nb; b++) {", "const int p = parent[b]; (void)p;"]
        for number, p in group:
            if p.kind == "dof":
                lines += ["for (int d = v_index[b]; d < v_index[b + 1]; d++)", self._call(number, p)]
            else:
                lines.append(self._body_call(number, p))
        return [*lines, "}"]

    def _single(self, number: int, p: Pass) -> list[str]:
        """C code of a pass of linear algebra or of an upward pass."""
        if p.kind == "whole":
            return [CALLS[p.template]]
        return self._up(number, p)

    def _over_pairs(self, group: list[tuple[int, Pass]]) -> list[str]:
        """C loops over every DoF d and the DoFs k of the joints above, or those of its joint."""
        calls = " ".join(self._call(number, p) for number, p in group)
        if group[0][1].kind == "own_pair":
            loop = f"for (int k = v_index[b]; k < v_index[b + 1]; k++) {{ {calls} }}"
        else:
            head = "for (int i = above_start[d]; i < above_start[d + 1]; i++)"
            loop = f"{head} {{ const int k = above[i]; {calls} }}"
        return [
            "for (int d = 0; d < nv; d++) {",
            "const int b = dof_body[d], p = parent[b]; (void)p;",
            loop,
            "}",
        ]

    def _along_paths(self, group: list[tuple[int, Pass]]) -> list[str]:
        """C loops over every DoF d and each j of its joint or above: the rows of the pair, then all k of j's joint or above."""
        calls = dict.fromkeys(_PATHS, "")
        for number, p in group:
            calls[p.kind] += self._call(number, p)

        def over(letter: str, dof: str, above: bool, *body: str) -> list[str]:
            """Loop over all DoFs of the joints above that of DoF ``dof``, or over all of its joint."""
            i = f"i_{letter}"
            table, at, row = ("above_start", dof, f"above[{i}]") if above else ("v_index", f"dof_body[{dof}]", i)
            head = f"for (int {i} = {table}[{at}]; {i} < {table}[{at} + 1]; {i}++) {{ const int {letter} = {row};"
            return [head, *body, "}"]

        lines = ["for (int d = 0; d < nv; d++) {", "const int b = dof_body[d], p = parent[b]; (void)p;"]
        for lower in (False, True):  # True: j belongs to the joint of d
            inner = [x for upper in (False, True) for x in over("k", "j", not upper, calls[TRIPLES[lower, upper]])]
            lines += over("j", "d", not lower, calls["path"], *inner)
        return [*lines, "}"]

    def _up(self, number: int, p: Pass) -> list[str]:
        """C loop over the bodies from the leaves: the step, if the pass has one, and the sum of its results in the parent's rows.

        Bodies attached to the world add nothing.
        """
        given = p.outputs[p.own :]
        lines = ["for (int b = nb - 1; b >= 0; b--) {", "const int p = parent[b];"]
        if p.step is None:
            lines.append("if (p < 0) continue;")
        else:
            lines += [f"V to_{o}[{self._leaves(o)}];" for o in given]
            lines += [self._body_call(number, p), "if (p < 0) continue;"]
        for o in given:
            n = self._leaves(o)
            share = f"{o}[{n} * b + i]" if p.step is None else f"to_{o}[i]"
            lines.append(f"for (int i = 0; i < {n}; i++) {o}[{n} * p + i] += {share};")
        return [*lines, "}"]

    # -- calls of step functions ------------------------------------------------------------------------------------
    def _body_call(self, number: int, p: Pass) -> str:
        """C call of a step for body b, selected by the joint type if the step depends on it."""
        if not p.by_joint:
            return self._call(number, p)
        cases = [
            f"case {list(JOINTS).index(t)}: {self._call(number, p, joint_type=t)} break;" for t in self.joint_types
        ]
        return "switch (type[b]) { " + "\n".join(cases) + " }"

    def _call(self, number: int, p: Pass, joint_type: str = "") -> str:
        """Trace a step, emit its C function, and return the C call; records operation counts."""
        function = f"{self.name}_{number}_{joint_type}" if joint_type else f"{self.name}_{number}"
        names = [n for n in p.inputs if n != "joint"]
        traced = self._trace(p, names, joint_type)
        self.operations[number, joint_type] = len(traced.operations)
        pointers = [self._input(n, p) for n in names]
        pointers += [self._output(o, p) for o in p.outputs if self._is_live(o)]
        self._emit(function, p, names, traced)
        return f"{function}({', '.join(pointers)});"

    def _trace(self, p: Pass, names: list[str], joint_type: str) -> Trace:
        """Trace of a step, for a joint type if it depends on one."""
        joint = JOINTS[joint_type] if joint_type else None
        repeats = [self._repeats(n, joint) for n in names]
        kinds = [FIELDS[base_name(n)].kind for n in names]

        def step(*flat):
            """Step function on lists of scalars: builds its arguments, and returns the scalars of the live outputs."""
            arguments = []
            for kind, r, values in zip(kinds, repeats, flat, strict=True):
                it = iter(values)
                arguments.append([build(kind, it) for _ in range(r)] if r else build(kind, it))
            ordered = iter(arguments)
            results = p.results(*[joint if n == "joint" else next(ordered) for n in p.inputs])
            return [self._flat(r) for o, r in zip(p.outputs, results, strict=True) if self._is_live(o)]

        return trace(step, [self._leaves(base_name(n)) * max(r, 1) for n, r in zip(names, repeats, strict=True)])

    def _emit(self, function: str, p: Pass, names: list[str], t: Trace) -> None:
        """Add the C function of a traced step."""
        inputs = [Argument(f"a{i}", 0, vector=base_name(n) not in self.tables) for i, n in enumerate(names)]
        outputs = [f"r{i}" for i in range(len(t.outputs))]
        self.functions.append(step_function(function, t, inputs, outputs, inline=p.by_entry))

    @staticmethod
    def _flat(result: object) -> list:
        """Scalars of a step's result, a struct, a scalar, or a list of these."""
        return [leaf for r in result for leaf in leaves(r)] if isinstance(result, list) else leaves(result)

    @staticmethod
    def _repeats(name: str, joint: Joint | None) -> int:
        """Number of rows of a field that a step for one joint receives as a list; 0 if it receives one row."""
        axis = FIELDS[base_name(name)].axis
        if joint is None or axis not in (Axis.DOF, Axis.Q):
            return 0
        return joint.nq if axis is Axis.Q else joint.nv

    def _input(self, name: str, p: Pass) -> str:
        """C pointer to the row of a field (of a body, DoF, coordinate or pair) that the parameter ``name`` of a step reads."""
        base = base_name(name)
        f = FIELDS[base]
        suffix = "" if name == base else name[-2:]
        over_bodies = p.kind in ("down", "up", "body")
        own = {Axis.BODY: "b", Axis.Q: "q_index[b]", Axis.PAIR: "0"}.get(f.axis, "v_index[b]" if over_bodies else "d")
        row = suffix[1:] or own
        return f"{base} + {self._leaves(base)} * {row}"

    def _output(self, name: str, p: Pass) -> str:
        """C pointer to the row or entry that a step writes; a buffer for results that are added to the parent's row."""
        base = base_name(name)
        f = FIELDS[base]
        if p.kind == "up" and base in p.outputs[p.own :]:
            return f"to_{base}"
        if f.axis in (Axis.MATRIX, Axis.TENSOR):
            letters = entry(name)
            index = letters[0]
            for letter in letters[1:]:
                index = f"({index}) * nv + {letter}"
            return f"{base} + ({index})"
        over_bodies = p.kind in ("down", "up", "body")
        row = {Axis.BODY: "b", Axis.PAIR: "0"}.get(f.axis, "v_index[b]" if over_bodies else "d")
        return f"{base} + {self._leaves(base)} * {row}"
