"""Driver of the package's library for rigid-body programs: loops that serve all robots; it needs no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from dynamics_backends.compiled.loops.kernel import ModelKernel, library_kernel
from dynamics_backends.compiled.loops.kernel_data import arrays_of, named
from dynamics_backends.rigid_body.model.model import Model
from dynamics_backends.rigid_body.passes import drivers
from dynamics_backends.rigid_body.passes.passes import Program
from dynamics_backends.rigid_body.spatial.spatial import leaves


class LibraryDriver:
    """Driver that evaluates programs on real arrays by kernels of the library, cached by model, else by :func:`.drivers.run`."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Model, dict[str, ModelKernel | None]] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Pickle as a new driver without cached kernels."""
        return LibraryDriver, ()  # kernels belong to a process

    def __structure__(self) -> tuple[()]:
        """Empty structure: fingerprints of maps contain the class of the driver, but not its caches."""
        return ()  # the results of a map do not depend on the driver

    def __call__(self, program: Program, model: Model, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of a program by its kernel; :func:`.drivers.run` evaluates other numbers and programs without a kernel."""
        values = [arguments[name] for name in program.arguments]
        real = all(isinstance(x, np.ndarray) and not np.iscomplexobj(x) for value in values for x in leaves(value))
        kernel = self._kernel(program, model) if real else None
        if kernel is None:
            return drivers.run(program, model, arguments)
        return named(program, model, kernel(*arrays_of(values)))

    def _kernel(self, program: Program, model: Model) -> ModelKernel | None:
        """Cached kernel of a program for a model; None if the library does not contain the program."""
        known = self._known.setdefault(model, {})
        if program.name not in known:
            known[program.name] = library_kernel(program, model)
        return known[program.name]
