"""Functions of a phase, and the stages of the package's C library that call them (kernels/stage.h)."""

from __future__ import annotations

import ctypes
from typing import Any

from dynamics_backends.compiled.loops.kernel import kernel_text, prelude, template
from dynamics_backends.compiled.runtime.memory import Workspaces, bound, code_of, structs_in
from dynamics_backends.compiled.sources.dynamics_source import ALONG, partials_kernel
from dynamics_backends.compiled.sources.traced_source import TooLong
from dynamics_backends.machine.library import kernels, lanes as lanes_in_use
from dynamics_backends.methods.symbolic_map import TraceError
from dynamics_backends.protocol import unwrapped
from trajopt.stage.compiled.structure import FunctionsData, Structure
from trajopt.stage.compiled.taped_functions import taped_functions
from trajopt.stage.source.term_source import StageShape

_KERNELS = (
    "structure.h",
    "stage_types.h",
    "step.h",
    "sensitivities.h",
    "curvature.h",
    "knots.h",
    "inner_maps.h",
    "stage.h",
)
_SEVERAL = ("rollout.h", "in_lanes.h")


def stages_source(*more: str) -> str:
    """Return the C source of the stage kernels.

    It must follow the headers of :func:`_templates`. more: names of further files of the folder kernels, appended in this order.
    """
    return kernel_text("trajopt.stage", *_KERNELS, *more)


def source() -> str:
    """Return the C source of all stage kernels, those of rollouts and for lanes of problems included, after their headers."""
    return "\n".join([*_templates(), stages_source(*_SEVERAL)])


def _templates() -> list[str]:
    """Return the C sources of the headers that must precede the stage kernels, in this order."""
    headers = map(template, ("lanes/rows.h", "lanes/function.h", "lanes/context.h", "lanes/groups.h"))
    return [prelude(), *headers, kernel_text("trajopt.stage", "functions.h")]


StagesData, PointData, FirstData, SecondData, SweepData, TrialsData, PartsData, EndData, EndFirstData = structs_in(
    stages_source(),
    *(
        "stages_t",
        "point_t",
        "first_t",
        "second_t",
        "sweep_t",
        "trials_t",
        "parts_t",
        "end_t",
        "end_first_t",
    ),
)


class Library:
    """Functions of a phase's structure, as tapes or in the package's C library, and the C kernels of the stages that call them.

    Functions of the terminal cost and of final constraints are included. Kernels of second derivatives are attributes only if
    ``shape.second``. Kernels named ``..._in_lanes`` evaluate one problem in each lane and take an array with a struct for each.
    Raises TooLong if a function has too many operations, TraceError if it cannot be traced.
    """

    def __init__(self, backend: Any, shape: StageShape) -> None:
        taped = taped_functions(backend, shape)
        self.shape, self.lanes = shape, lanes_in_use()
        functions, workspace = FunctionsData(rows=taped.rows), 0
        functions.force_rows, functions.force_columns, functions.curved_forces = taped.forces
        found = {name: tape.function for name, tape in taped.tapes.items()}
        partials = partials_kernel(backend, found, dict(shape.parameters), taped.rows)
        if partials is not None:
            found.pop(ALONG, None)
            found["dynamics_partials"] = (*partials.function, None)
            workspace = partials.points * taped.registers
        for name, values in found.items():
            for member, number in zip(("run", "self", "run_blocks"), values, strict=True):
                setattr(functions, f"{name}_{member}", number)
        sizes = ctypes.addressof(functions), workspace, taped.registers
        structure = Structure.of(unwrapped(backend.map), shape).data(*sizes)
        self.structure = at = ctypes.addressof(structure.data)
        self._memory = structure, functions, partials, taped
        stages = kernels()
        self.first = bound(stages, "stage_first", "pp ll pp")
        self.rollout = bound(stages, "stage_rollout", "ppp ll p")
        self.moved, self.carried = stages.stage_moved, stages.stage_carried
        self.end_values = bound(stages, "end_values", "pp ll ppp")
        self.end_first = bound(stages, "end_first", "pppp")
        self.rollout_in_lanes = bound(stages, "stage_rollout_in_lanes", "plp")
        self.first_in_lanes = bound(stages, "stage_first_in_lanes", "p lll i pp", ctypes.c_long)
        self.end_first_in_lanes = bound(stages, "end_first_in_lanes", "pl pp")
        self.workspaces = Workspaces(int(bound(stages, "stage_workspace", "p", ctypes.c_long)(at)) * self.lanes)
        if shape.second:
            self.second = bound(stages, "stage_second", "pp ll pp")
            self.end_second = bound(stages, "end_second", "ppd ppp")
            self.knot_second = code_of(stages.stage_knot_second)
            self.stored_size = int(bound(stages, "stage_stored_size", "p", ctypes.c_long)(at))
            self._second_workspace = bound(stages, "stage_second_workspace", "pl", ctypes.c_long)
            self._second_workspaces: dict[int, Workspaces] = {}

    def second_workspaces(self, substeps: int) -> Workspaces:
        """Return the workspaces of second derivatives for time steps of this many substeps, cached by this number.

        The i-th workspace serves the i-th range of knots of a parallel evaluation. Only for a library with ``shape.second``.
        """
        if substeps not in self._second_workspaces:
            self._second_workspaces[substeps] = Workspaces(
                int(self._second_workspace(self.structure, substeps)) * self.lanes
            )
        return self._second_workspaces[substeps]


_MOST_LIBRARIES = 64
_known: dict[tuple[Any, StageShape], Library | Exception] = {}


def library_of(backend: Any, shape: StageShape) -> Library:
    """Return the library of a backend and a structure, cached in memory; problems that differ in values only share it.

    Failures are cached too. A full cache drops its oldest entry. Raises TooLong if a function of the phase has too many
    operations, TraceError if it cannot be traced.
    """
    key = backend, shape
    if key not in _known:
        if len(_known) >= _MOST_LIBRARIES:
            _known.pop(next(iter(_known)))
        try:
            _known[key] = Library(backend, shape)
        except (TooLong, TraceError) as refusal:
            _known[key] = refusal
    found = _known[key]
    if isinstance(found, Exception):
        raise found
    return found
