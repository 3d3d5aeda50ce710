"""Compiled library of a phase's structure: its functions and their structs (kernels/stage.h, rollout.h)."""

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
"""Parts of a library: values and first derivatives alone, with rollouts, with second derivatives; Newton's loop for several
problems in the lanes."""
_SECOND = {"second", "newton"}
"""Parts with second derivatives."""
ABREAST = "abreast"
"""Part of a library whose lanes hold the same knot of several problems."""


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
    """Functions of a phase's structure and the tables of its robot; every phase contains the functions of the final knot.

    With the part "abreast", functions take arrays of structs, one for the problem in each lane, and the final knot has none.
    """

    def __init__(self, dll: ctypes.CDLL, backend: Any, shape: StageShape) -> None:
        self.shape, self.lanes = shape, find_toolchain().lanes
        alone = ABREAST not in shape.parts
        self.tables = tables_of(model_in_loops(backend.map))
        self.ti, self.td = (pointers(t) for t in self.tables)
        head = address(self.tables[0][0])
        if "first" in shape.parts:
            self.first = bound(dll, "stage_first", "pp ll pp")
            if alone:
                self.end_values = bound(dll, "end_values", "pp ll ppp")
                self.end_first = bound(dll, "end_first", "pppp")
        if "rollout" in shape.parts:
            self.rollout = bound(dll, "stage_rollout", "ppp ll p")
            self.rollout_abreast = bound(dll, "stage_rollout_abreast", "plp")
            self.first_abreast = bound(dll, "stage_first_abreast", "p lll pp")
            self.terms_abreast = bound(dll, "stage_terms_abreast", "p lll pp")
            self.end_first_abreast = bound(dll, "end_first_abreast", "pl pp")
        elif alone and "first" in shape.parts:
            self.values = bound(dll, "stage_values", "pp ll pp")
            if not backend.map.manifold.is_flat:
                self.moved, self.carried = dll.stage_moved, dll.stage_carried
        if "newton" in shape.parts:
            self.newton_abreast = bound(dll, "stage_newton_abreast", "p lll ppp")
            self.tried_abreast = bound(dll, "stage_tried_abreast", "p ll p")
            self.end_first_abreast = bound(dll, "end_first_abreast", "pl pp")
            self.end_tried_abreast = bound(dll, "end_tried_abreast", "pl p")
            self._newton_room = bound(dll, "newton_room", "pl", ctypes.c_long)
        self.rooms = Rooms(int(bound(dll, "stage_room", "p", ctypes.c_long)(head)) * self.lanes)
        if "second" in shape.parts:
            self.second = bound(dll, "stage_second", "pp ll pp")
            if alone:
                self.knot_second = ctypes.cast(dll.stage_knot_second, ctypes.c_void_p).value
            self.kept = int(bound(dll, "stage_kept", "", ctypes.c_long)())
            self._second_room = bound(dll, "stage_second_room", "pl", ctypes.c_long)
            self._second_rooms: dict[int, Rooms] = {}
            if alone and "first" in shape.parts:
                self.end_second = bound(dll, "end_second", "ppd ppp")

    def newton_doubles(self, substeps: int) -> int:
        """Size in doubles of the workspace of Newton's loop for a lane group of problems."""
        return int(self._newton_room(address(self.tables[0][0]), substeps)) * self.lanes

    def second_rooms(self, substeps: int) -> Rooms:
        """Workspaces of second derivatives, one for each thread."""
        if substeps not in self._second_rooms:
            doubles = int(self._second_room(address(self.tables[0][0]), substeps)) * self.lanes
            self._second_rooms[substeps] = Rooms(doubles)
        return self._second_rooms[substeps]


def library_lookup(backend: Any, shape: StageShape, *, quick: bool = False) -> Sought:
    """Cache lookup for the library of a structure. quick: the version compiled with quick flags."""
    toolchain = find_toolchain()
    question = question_of(backend, dict(shape.parameters))
    return Sought("stage", *question, shape, refusals=(TooLong,), toolchain=toolchain.hurried if quick else toolchain)


def source_of(backend: Any, shape: StageShape) -> str:
    """C source of a library. Raises TooLong, TraceError."""
    sizes = dict(shape.parameters)
    several = has_stages(shape.scheme)
    dynamics = dynamics_source(backend, sizes, several_stages=several)
    wanted = _SECOND.intersection(shape.parts)
    second = contracted_source(backend, sizes, several_stages=several) if wanted else None
    return "\n".join([templates(), stage_source(dynamics, unwrapped(backend.map), shape, second).source])
