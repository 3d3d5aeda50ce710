"""Recursive algorithms as lists of passes over the tree, each with a pure step function; the fields that they read and write.

The names of a step's parameters select the rows that it reads, so an algorithm consists of its step functions only:

    x      own row: of the body in passes over bodies, of the DoF in passes over DoFs
    x_p    the parent body's row (the ground's at the root)
    x_b    in passes over DoFs or pairs: the row of the (deep) DoF's body
    x_k    in passes over pairs: the row of the ancestor DoF k
    x_d    in passes over pairs: the row of the deep DoF d
    x_j    in passes over triples and paths: the row of the DoF j between the two
    joint  the joint type (:class:`~dynamics_backends.rigid_body.spatial.joints.Joint`)

In passes over bodies a DoF field is passed and returned as a list over the joint's DoFs, and ``q`` as the list of
the joint's coordinates.

    @down("vel")            from the root to the leaves
    @up(own, to_parent)     from the leaves to the root; to_parent results are added to the parent's row
    up_sum("f")             the same without a step: subtree sums
    @body("f")  @dof("tau") every body, every DoF, in any order
    @pair("M[k,d]")         every pair of an ancestor DoF k and a DoF d of another, deeper joint on one path
    @own_pair("M[k,d]")     every pair of DoFs of one joint
    @path("GS")             every DoF d with every DoF j at or above it; fields with a row for each such pair
    @triple("qq[d,j,k]")    every three DoFs on one path, of three joints, k above j above d; reads the pair's row too
    @upper_triple           the same with k and j in one joint, @lower_triple with j and d, @own_triple with all three
    @whole("qdd")           linear algebra on whole fields; receives ``model`` and fields, not rows

Drivers (:mod:`~dynamics_backends.rigid_body.passes.drivers`) do all indexing.  FIELDS defines every name that an
algorithm may use, with its axis and the type of one row.  A field is a struct (or a scalar) whose leaves are arrays (rows, N), or a
list of rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from dynamics_backends.rigid_body.spatial.spatial import (
    ArticulatedInertia,
    Coriolis,
    Force,
    Inertia,
    Motion,
    Struct,
    Sym,
    Transform,
    Vec,
    leaves,
)
from dynamics_backends.scalar import stack


def as_rows(field: Any) -> Any:
    """Convert a field of scalars to rows (n, N), or to a column of symbols."""
    return stack(field) if isinstance(field, list) else field


def field_of(values: Sequence[Any]) -> Any:
    """Field of structs or scalars, given row by row: a struct, or rows (n, N), or a column of symbols."""
    columns = [stack(list(column)) for column in zip(*map(leaves, values), strict=True)]
    return values[0].build(*columns) if isinstance(values[0], Struct) else columns[0]


def row(field: Any, index: int) -> Any:
    """One row of a body or DoF field of a driver's result, as a struct of scalars, or a scalar."""
    return field[index] if isinstance(field, list) else take(field, index)


def mapped(x: Any, function: Any) -> Any:
    """Apply a function to every leaf of a struct."""
    return x.build(*map(function, leaves(x))) if isinstance(x, Struct) else function(x)


def take(x: Any, index: Any) -> Any:
    """Rows ``index`` of a field, struct or array; plain numbers, equal in every row, are unchanged."""
    if isinstance(x, Struct):
        return x.build(*[leaf[index] if getattr(leaf, "shape", ()) else leaf for leaf in x.leaves(x)])
    return x[index] if getattr(x, "shape", ()) else x


def set_rows(store: Any, index: Any, value: Any) -> None:
    """Write the leaves of ``value`` to the rows ``index`` of the leaves of ``store``, in place."""
    for target, leaf in zip(leaves(store), leaves(value), strict=True):
        target[index] = leaf


def add_rows(store: Any, index: np.ndarray | slice, value: Any) -> None:
    """Add row i of ``value`` to row index[i] of ``store`` in place; an index array may repeat, since siblings share a parent."""
    for target, leaf in zip(leaves(store), leaves(value), strict=True):
        if isinstance(index, slice):
            target[index] = target[index] + leaf
            continue
        for i, parent in enumerate(index):
            target[parent] = target[parent] + leaf[i]


class Axis(Enum):
    """Index set of the rows of a field."""

    BODY = "body"
    DOF = "dof"
    Q = "q"
    PAIR = "pair"
    MATRIX = "matrix"
    TENSOR = "tensor"
    WHOLE = "whole"


@dataclass(frozen=True)
class Field:
    """Axis of a field's rows, and the type of one row (None: a scalar)."""

    axis: Axis
    kind: type[Struct] | None = None


TABLES = ("fixed", "pitch", "mass", "com", "central", "I_link", "armature", "carried")
"""Fields that are constants of the model."""

_B, _D = Axis.BODY, Axis.DOF
FIELDS: dict[str, Field] = {
    # arguments
    "q": Field(Axis.Q),  # configuration
    "v": Field(_D),  # joint velocity
    "a": Field(_D),  # joint acceleration
    "tau": Field(_D),  # joint force
    "f_ext": Field(_B, Force),  # external force on the body, in its own frame
    # tables of the model
    "fixed": Field(_B, Transform),  # placement of the joint frame in the parent's frame
    "pitch": Field(_B),
    "mass": Field(_B),
    "com": Field(_B, Vec),
    "central": Field(_B, Sym),  # inertia about the center of mass
    "I_link": Field(_B, Inertia),  # the same body's inertia about the origin of its frame
    "armature": Field(_D),
    "carried": Field(_D),  # armature of translations whose axes rotate with the body
    # in link frames
    "X_link": Field(_B, Transform),  # pose in the parent
    "vel_link": Field(_B, Motion),
    "acc_link": Field(_B, Motion),
    "bias_link": Field(_B, Motion),  # velocity-product acceleration v x S qdot
    "f_link": Field(_B, Force),
    "IA": Field(_B, ArticulatedInertia),
    "pA": Field(_B, Force),
    "UD": Field(_D, Force),  # U D^-1
    "uD": Field(_D),  # D^-1 u
    # in the ground frame
    "X": Field(_B, Transform),  # pose in the world
    "S": Field(_D, Motion),  # columns of the motion subspace
    "vel": Field(_B, Motion),
    "acc": Field(_B, Motion),
    "I_own": Field(_B, Inertia),  # of the body alone
    "I": Field(_B, Inertia),  # after the upward sum, of its subtree; B and f likewise
    "B": Field(_B, Coriolis),
    "f": Field(_B, Force),
    "acc_joint": Field(_B, Motion),  # contribution of the joint accelerations to acc
    "f_joint": Field(_B, Force),  # and to f
    "f_ground": Field(_B, Force),  # external force about the working origin, in world axes
    "psid": Field(_D, Motion),  # psidot = v_p x S
    "psidd": Field(_D, Motion),  # psiddot = a_p x S + v_p x psidot
    "rate": Field(_D, Motion),  # psidot + Sdot
    "IS": Field(_D, Force),  # composite I times S
    "unit": Field(_D, Motion),  # column of the motion subspace in the child's frame
    "lever": Field(_D, Vec),  # linear part of unit times carried
    "tau_turn": Field(_D),  # joint force of rotors due to the rotation of their axes
    "turn_v": Field(_D, Force),  # projected on unit, the derivative of tau_turn in v_d
    "q_above": Field(_D, Force),  # product with an ancestor's S: d tau_k / d q_d
    "q_own": Field(_D, Force),  # the same within one joint
    "v_above": Field(_D, Force),  # product with an ancestor's S: d tau_k / d v_d
    "BtS": Field(_D, Vec),  # angular part of B' S
    "tau_bias": Field(_D),  # joint force at zero acceleration
    # second order, contracted with mu
    "lam": Field(_D),
    "mu": Field(_D),
    "w": Field(_B, Motion),  # w_p + S mu
    "chi": Field(_D, Motion),  # w_p x S
    "B_own": Field(_B, Coriolis),  # of the body alone
    "h": Field(_B, Force),  # I w; after the upward sum, of the subtree; z and Bw likewise
    "z": Field(_B, Vec),  # angular part of B' w
    "Bw": Field(_B, Coriolis),  # 2 B(I, w)
    "pull": Field(_D, Vec),  # linear part of S mu x unit
    "Z": Field(_D, Vec),
    "H": Field(_D, Force),
    "U": Field(_D, Vec),
    "G_qq": Field(Axis.MATRIX),
    "G_qv": Field(Axis.MATRIX),
    "G_vv": Field(Axis.MATRIX),
    "G_qa": Field(Axis.MATRIX),
    "L_qq": Field(Axis.MATRIX),  # of lambda' FD
    "L_qv": Field(Axis.MATRIX),
    "L_vv": Field(Axis.MATRIX),
    "L_qtau": Field(Axis.MATRIX),
    # second order, tensors; pairs consist of a deep DoF d and a DoF j at or above it
    "B_v": Field(_D, Coriolis),  # 2 B(I, S): derivative of the composite B in v_d
    "B_q": Field(_D, Coriolis),  # 2 B(I, psid) + S x* B - B S x: derivative of the composite B in q_d
    "GS": Field(Axis.PAIR, Force),
    "ES": Field(Axis.PAIR, Vec),
    "R": Field(Axis.PAIR, Vec),
    "HS": Field(Axis.PAIR, Vec),
    "to_qq": Field(Axis.PAIR, Force),  # product with S_k: qq[k,d,j]
    "to_qv": Field(Axis.PAIR, Force),  # product with S_k: qv[k,j,d]
    "to_vq": Field(Axis.PAIR, Force),  # product with S_k: qv[k,d,j]
    "tau_qq": Field(Axis.TENSOR),
    "tau_vv": Field(Axis.TENSOR),
    "tau_qv": Field(Axis.TENSOR),
    "M_q": Field(Axis.TENSOR),
    "a_qq": Field(Axis.TENSOR),
    "a_vv": Field(Axis.TENSOR),
    "a_qv": Field(Axis.TENSOR),
    "a_qtau": Field(Axis.TENSOR),
    # results
    "M": Field(Axis.MATRIX),
    "dtau_dq": Field(Axis.MATRIX),
    "dtau_dv": Field(Axis.MATRIX),
    "tau_net": Field(_D),  # tau - tau_bias
    "factor": Field(Axis.WHOLE),  # of the mass matrix
    "da_dq": Field(Axis.MATRIX),
    "da_dv": Field(Axis.MATRIX),
    "M_inverse": Field(Axis.MATRIX),
    "mass_moment": Field(_B, Vec),
    "kinetic": Field(_B),
}


TRIPLES = {
    (False, False): "triple",
    (False, True): "upper_triple",
    (True, False): "lower_triple",
    (True, True): "own_triple",
}
"""Kinds of passes over triples; key: (j belongs to the joint of d, k belongs to the joint of j)."""


@dataclass(frozen=True)
class Pass:
    """One pass; ``outputs`` are fields, or entries ``field[k,d]``, ``field[d,j,k]`` of matrices and tensors.

    ``own``: number of outputs of an upward pass that belong to the body; the other outputs are added to the parent's row.
    ``template``: C template of a linear algebra pass in the compiled engine. ``step``: None for subtree sums. Raises KeyError for
    an input or output that is no name of FIELDS.
    """

    kind: str
    outputs: tuple[str, ...]
    step: Callable[..., Any] | None
    own: int = 0
    template: str = ""
    inputs: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        names = tuple(inspect.signature(self.step).parameters) if self.step else ()
        object.__setattr__(self, "inputs", names)
        for name in (*names, *self.outputs):
            if name not in ("joint", "model") and base_name(name) not in FIELDS:
                raise KeyError(f"{name!r} names no field; add it to FIELDS in passes.py")

    @property
    def by_joint(self) -> bool:
        """True if a pass over bodies depends on the joint type: it uses the joint, its coordinates or lists of DoFs."""
        if self.kind not in ("down", "up", "body"):
            return False
        return any(
            n == "joint" or FIELDS[base_name(n)].axis in (Axis.DOF, Axis.Q) for n in (*self.inputs, *self.outputs)
        )

    @property
    def by_entry(self) -> bool:
        """True if the pass writes entries of matrices or tensors."""
        return self.kind in ("pair", "own_pair", *TRIPLES.values())

    def results(self, *arguments: Any) -> tuple[Any, ...]:
        """Results of the step for these arguments, as a tuple with one entry for each output."""
        assert self.step is not None
        result = self.step(*arguments)
        return result if len(self.outputs) > 1 else (result,)


class Program:
    """Recursive algorithm: a name, its passes in order, and the output fields."""

    def __init__(self, name: str, passes: Sequence[Pass], outputs: Sequence[str], given: Sequence[str] = ()) -> None:
        """Create a program; its arguments are the fields that passes read before any pass writes them.

        given: tables of the model that are arguments too. Raises ValueError if no pass writes an output.
        """
        self.name = name
        self.passes = tuple(passes)
        self.outputs = tuple(outputs)
        written: set[str] = set()
        arguments: list[str] = []
        for p in self.passes:
            own = {base_name(o) for o in p.outputs}
            recursive = {
                n for n in p.inputs if n.endswith("_p") and base_name(n) in own
            }  # begins with the ground's value
            read = [base_name(n) for n in p.inputs if n not in ("joint", "model") and n not in recursive]
            arguments += [n for n in read if n not in written and (n not in TABLES or n in given)]
            written.update(base_name(o) for o in p.outputs)
        self.arguments = tuple(dict.fromkeys(arguments))
        self._given: dict[str, Program] = {}
        if missing := set(self.outputs) - written:
            raise ValueError(f"program {name}: no pass writes {sorted(missing)}")

    def with_argument(self, table: str) -> Program:
        """Program that takes a table of the model ("armature", ...) as an argument; itself if no pass reads the table."""
        if table not in {base_name(n) for p in self.passes for n in p.inputs}:
            return self
        if table not in self._given:
            self._given[table] = Program(f"{self.name}_{table}", self.passes, self.outputs, [table])
        return self._given[table]

    def inserted(self, new: Pass, *, after: Pass, name: str) -> Program:
        """Program with the pass ``new`` right after the pass ``after``."""
        return Program(name, [x for p in self.passes for x in ((p, new) if p is after else (p,))], self.outputs)


def base_name(name: str) -> str:
    """Array of the recursion to which a parameter or an output of a pass belongs: "v" for "v_p", "M" for "M[k,d]"."""
    if name in FIELDS:
        return name
    if name.endswith("]"):
        return name[: name.index("[")]
    return name[:-2] if name[-2:] in ("_p", "_b", "_k", "_j", "_d") else name


def entry(output: str) -> str:
    """Index letters of an output that is an entry: "kd" for ``M[k,d]``."""
    return output[output.index("[") + 1 : -1].replace(",", "")


def _decorator(kind: str) -> Callable[..., Callable[[Callable[..., Any]], Pass]]:
    """Return a function of output names; it returns a decorator that makes a step function a pass of this kind."""

    def with_outputs(*outputs: str) -> Callable[[Callable[..., Any]], Pass]:
        return lambda step: Pass(kind, outputs, step)

    return with_outputs


down = _decorator("down")
body = _decorator("body")
dof = _decorator("dof")
pair = _decorator("pair")
own_pair = _decorator("own_pair")
path = _decorator("path")
triple = _decorator("triple")
upper_triple = _decorator("upper_triple")
lower_triple = _decorator("lower_triple")
own_triple = _decorator("own_triple")


def whole(*outputs: str, template: str) -> Callable[[Callable[..., Any]], Pass]:
    """Decorator of a linear algebra pass on whole fields, with its C template."""
    return lambda step: Pass("whole", outputs, step, template=template)


def up(own: Sequence[str], to_parent: Sequence[str]) -> Callable[[Callable[..., Any]], Pass]:
    """Decorator of an upward pass: the step returns the body's results ``own``, then those added to the parent's rows."""
    return lambda step: Pass("up", (*own, *to_parent), step, own=len(own))


def up_sum(*fields: str) -> Pass:
    """Upward pass that replaces each row of a body field by the sum over its subtree; fields are in one common frame."""
    return Pass("up", fields, None)
