"""Combinations of backends, solvers and Hessians for a configuration; see :mod:`trajopt.comparison.compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dynamics_backends.names import UnknownName
from trajopt.comparison.check_derivatives import REFERENCE
from trajopt.comparison.compare import CANNOT_RUN, Variant, with_hessians
from trajopt.config.build import build_task, make_ready, solve_task
from trajopt.config.config import Config, ConfigError, read_config
from trajopt.config.task import Task
from trajopt.problem.guess import Guess
from trajopt.problem.ocp import OCP
from trajopt.results.solution import Solution
from trajopt.solvers.registry import SOLVERS, carried_over
from trajopt.step.other_backend import BackendChoice


def _variant(config: Config, hessian: str, reason: str, guess: Guess | None) -> Variant:
    """Return the variant of the problem of a configuration. guess: initial guess; None: the guess of its task.

    hessian, reason: see :class:`~trajopt.comparison.compare.Variant`.
    """

    def posed() -> Task:
        """Build the task of the configuration; a given guess replaces that of the task and its relaxed problems."""
        task = build_task(config)
        return task if guess is None else replace(task, initial=guess, easier=())

    def solved(task: Task) -> Solution:
        """Trace the functions that the solve calls, then solve the task as ``trajopt solve`` does."""
        make_ready(config, task)
        return solve_task(config, task)

    def reference() -> OCP:
        """Return the problem with derivatives by complex step, in NumPy."""
        return build_task(with_backend(config, REFERENCE).with_engine("numpy")).ocp

    names = Path(config.source).stem, config.backend.name, config.backend.engine, config.solver_name
    return Variant(*names, config.solver_options, posed, solved, reference, hessian, reason)


def with_solver(config: Config, name: str) -> Config:
    """Return the configuration with another solver, and those of its options that the new solver accepts.

    Only options that differ from their defaults are carried over, and none that either solver's name fixes. Unchanged for the
    present solver. Raises ConfigError for an unknown solver.
    """
    if name == config.solver_name or name not in SOLVERS:
        return config if name == config.solver_name else with_options(config, name, {})
    return with_options(config, name, carried_over(vars(config.solver_options), config.solver_name, name)[0])


def with_options(config: Config, solver: str, options: Mapping[str, Any]) -> Config:
    """Return the configuration with a solver and its options; options that are None are left to their defaults.

    Raises ConfigError for an unknown solver and for invalid options.
    """
    given = {key: value for key, value in options.items() if value is not None}
    return read_config(config.as_dict() | {"solver": {**given, "name": solver}}, config.source)


def with_backend(config: Config, choice: BackendChoice) -> Config:
    """Return the configuration with another backend: a name, or a mapping with "name", "engine" and options.

    Raises ConfigError for an unknown backend, and for a mapping without a name.
    """
    if isinstance(choice, str):
        return read_config(config.with_backend(choice).as_dict(), config.source)
    if "name" not in choice:
        raise ConfigError(config.source, [f"backend: {dict(choice)} has no name"])
    known = {"name", "engine", "step", "mode"}
    table = {key: value for key, value in choice.items() if key in known}
    options = {key: value for key, value in choice.items() if key not in known}
    return read_config(
        config.as_dict() | {"backend": {**table, **({"options": options} if options else {})}}, config.source
    )


def config_variants(
    config: Config,
    backends: Sequence[BackendChoice],
    solvers: Sequence[str],
    hessians: Sequence[str] = (),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    guess: Guess | None = None,
) -> list[Variant]:
    """Combine every solver with every Hessian and every backend; an empty list means the one of the configuration.

    options: further options by solver. A solver without a requested Hessian gives a variant with that reason, which is not run.
    Raises ConfigError for an unknown name, and for a Hessian that none of the solvers has.
    """
    names, own = solvers or [config.solver_name], dict[str, Config]()
    for name in names:
        own[name] = with_solver(config, name)
        if options and name in options:
            own[name] = with_options(own[name], name, {**asdict(own[name].solver_options), **options[name]})
    try:
        given = with_hessians([(name, own[name].solver_options) for name in names], hessians)
    except UnknownName as error:
        raise ConfigError(config.source, [f"--hessians: {error}"]) from error
    return [
        _variant(with_backend(replace(own[name], solver_options=o), b), hessian, reason, guess)
        for name, o, hessian, reason in given
        for b in backends or [config.backend.name]
    ]


def first_task(given: Sequence[Variant]) -> Task:
    """Return the task of the first variant whose problem can be built, that is, without an error of CANNOT_RUN.

    Raises the first of these errors if none can be built, ValueError for no variants, and other errors at once.
    """
    first: Exception | None = None
    for variant in given:
        try:
            task: Any = variant.posed()  # a Task, see _variant
            return task
        except CANNOT_RUN as error:
            first = first or error
    raise first or ValueError("nothing to compare")
