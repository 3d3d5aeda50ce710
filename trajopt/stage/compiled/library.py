"""The compiled library of a phase's structure: its functions, and the structs that they take (kernels/stage.h, rollout.h)."""

from __future__ import annotations

import ctypes
from typing import Any

from dynamics_backends.compiled.interface.libraries import (
    Rooms,
    Sought,
    address,
    bound,
    find_toolchain,
    pointers,
    struct_of,
    templates,
)
from dynamics_backends.compiled.interface.sources import (
    TooLong,
    contracted_source,
    dynamics_source,
    model_in_loops,
    question_of,
    tables_of,
)
from dynamics_backends.protocol import unwrapped
from trajopt.stage.source.stage_source import StageShape, has_stages, stage_source

ALONE, ROLLED, CURVED, NEWTON = ("first",), ("first", "rollout"), ("first", "second"), ("newton",)
"""The parts of a library: for values and first derivatives alone, with roll-outs, with second derivatives; and for Newton's loop
with problems side by side."""
_SECOND = {"second", "newton"}
"""Parts that take second derivatives."""
ABREAST = "abreast"
"""The part of one whose lanes hold the same knot of several problems."""


StagesData = struct_of("stages_t", "ti td substeps:l t dt p theta pg")
PointData = struct_of("point_t", "xs us nodes")
ValuesData = struct_of("values_t", "x_next d cost g")
FirstData = struct_of("first_t", "x_next d cost g A B lx lu gx gu Q S R kept")
SecondData = struct_of("second_t", "sigma:d lam y kept xx ux uu")
SweepData = struct_of("sweep_t", "stages at room")
TrialsData = struct_of("trials_t", "N:l nonlinear:l xs us dx du K gaps lower upper alphas node X U D ddx ddu")
PartsData = struct_of("parts_t", "origin:l start stop trial cost")
EndData = struct_of("end_t", "t theta pg")
EndFirstData = struct_of("end_first_t", "cost g lx gx Q")


class Library:
    """The functions of a phase's structure, and the tables of its robot; what the end needs is part of every phase's.

    Those of a part "abreast" take structs of as many problems as there are lanes, one after the other, and are none of the end.
    """

    def __init__(self, found: ctypes.CDLL, backend: Any, shape: StageShape) -> None:
        self.shape, self.lanes = shape, find_toolchain().lanes
        alone = ABREAST not in shape.parts
        self.tables = tables_of(model_in_loops(backend.map))
        self.ti, self.td = (pointers(t) for t in self.tables)
        head = address(self.tables[0][0])
        if "first" in shape.parts:
            self.first = bound(found, "stage_first", "pp ll pp")
            if alone:
                self.end_values = bound(found, "end_values", "pp ll ppp")
                self.end_first = bound(found, "end_first", "pppp")
        if "rollout" in shape.parts:
            self.rollout = bound(found, "stage_rollout", "ppp ll p")
            self.rollout_abreast = bound(found, "stage_rollout_abreast", "plp")
            self.first_abreast = bound(found, "stage_first_abreast", "p lll pp")
            self.terms_abreast = bound(found, "stage_terms_abreast", "p lll pp")
            self.end_first_abreast = bound(found, "end_first_abreast", "pl pp")
        elif alone and "first" in shape.parts:
            self.values = bound(found, "stage_values", "pp ll pp")
            if not backend.map.manifold.is_flat:
                self.moved, self.carried = found.stage_moved, found.stage_carried
        if "newton" in shape.parts:
            self.newton_abreast = bound(found, "stage_newton_abreast", "p lll ppp")
            self.tried_abreast = bound(found, "stage_tried_abreast", "p ll p")
            self.end_first_abreast = bound(found, "end_first_abreast", "pl pp")
            self.end_tried_abreast = bound(found, "end_tried_abreast", "pl p")
            self._newton_room = bound(found, "newton_room", "pl", ctypes.c_long)
        self.rooms = Rooms(int(bound(found, "stage_room", "p", ctypes.c_long)(head)) * self.lanes)
        if "second" in shape.parts:
            self.second = bound(found, "stage_second", "pp ll pp")
            if alone:
                self.knot_second = ctypes.cast(found.stage_knot_second, ctypes.c_void_p).value
            self.kept = int(bound(found, "stage_kept", "", ctypes.c_long)())
            self._second_room = bound(found, "stage_second_room", "pl", ctypes.c_long)
            self._second_rooms: dict[int, Rooms] = {}
            if alone and "first" in shape.parts:
                self.end_second = bound(found, "end_second", "ppd ppp")

    def newton_doubles(self, substeps: int) -> int:
        """Doubles of the workspace of problems side by side."""
        return int(self._newton_room(address(self.tables[0][0]), substeps)) * self.lanes

    def second_rooms(self, substeps: int) -> Rooms:
        """Workspaces of the second derivatives."""
        if substeps not in self._second_rooms:
            doubles = int(self._second_room(address(self.tables[0][0]), substeps)) * self.lanes
            self._second_rooms[substeps] = Rooms(doubles)
        return self._second_rooms[substeps]


def sought(backend: Any, shape: StageShape, *, quick: bool = False) -> Sought:
    """Where the library of a structure is looked for; quick: that of a compiler in a hurry."""
    toolchain = find_toolchain()
    question = question_of(backend, dict(shape.parameters))
    return Sought("stage", *question, shape, refusals=(TooLong,), toolchain=toolchain.hurried if quick else toolchain)


def source_of(backend: Any, shape: StageShape) -> str:
    """The C text of a library. Raises TooLong, TraceError."""
    sizes = dict(shape.parameters)
    several = has_stages(shape.scheme)
    dynamics = dynamics_source(backend, sizes, several_stages=several)
    wanted = _SECOND.intersection(shape.parts)
    second = contracted_source(backend, sizes, several_stages=several) if wanted else None
    return "\n".join([templates(), stage_source(dynamics, unwrapped(backend.map), shape, second).source])
