"""Interface of the compiled engine for hand-written kernels.

It re-exports functions that return C sources to include in larger kernels (dynamics, manifolds, and any traced map or expression),
and functions to call the C library: its kernels, addresses of arrays, workspaces, threads, the cache of traces.
"""

from __future__ import annotations

from dynamics_backends.compiled.emit.emit import (
    Argument as Argument,
    TracedFunction as TracedFunction,
    chunked_function as chunked_function,
    constant as constant,
)
from dynamics_backends.compiled.emit.trace import trace_expressions as trace_expressions
from dynamics_backends.compiled.loops.kernel import (
    definitions as definitions,
    kernel_text as kernel_text,
    prelude as prelude,
    template as template,
)
from dynamics_backends.compiled.runtime.fingerprints import (
    Likeness as Likeness,
    Unknown as Unknown,
    source_digest as source_digest,
)
from dynamics_backends.compiled.runtime.memory import (
    KNOTS_PER_THREAD as KNOTS_PER_THREAD,
    Workspaces as Workspaces,
    address as address,
    aligned as aligned,
    bound as bound,
    code_of as code_of,
    default_threads as default_threads,
    over_threads as over_threads,
    packing as packing,
    structs_in as structs_in,
)
from dynamics_backends.compiled.runtime.trace_cache import (
    remembered as remembered,
)
from dynamics_backends.compiled.sources.dynamics_source import (
    ALONG as ALONG,
    has_contraction as has_contraction,
    has_source as has_source,
    partials_kernel as partials_kernel,
    question_of as question_of,
    straight_functions as straight_functions,
)
from dynamics_backends.compiled.sources.manifold_source import (
    Factor as Factor,
    factor_array as factor_array,
    factors_in_c as factors_in_c,
    factors_of as factors_of,
    groups_source as groups_source,
)
from dynamics_backends.compiled.sources.traced_source import (
    TooLong as TooLong,
    by_rows as by_rows,
    operations_limit as operations_limit,
    require_short as require_short,
    short_enough as short_enough,
)
from dynamics_backends.environment import (
    CompilerError as CompilerError,
    compiler_command as compiler_command,
)
from dynamics_backends.machine.library import kernels as kernels, lanes, python_function as python_function
from dynamics_backends.methods.symbolic_map import (
    Symbols as Symbols,
    TraceError as TraceError,
    description as description,
    symbolic_value as symbolic_value,
)
from dynamics_backends.rigid_body.algorithms.seen_poses import watching as watching
from dynamics_backends.symbols import preserved_calls as preserved_calls

lanes_in_use = lanes
