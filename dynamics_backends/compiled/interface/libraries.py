"""Functions to call the C library: kernels and their C source, addresses of arrays, workspaces, threads, the cache of traces."""

from dynamics_backends.compiled.compiler import (
    CompilerError as CompilerError,
    compiler_command as compiler_command,
)
from dynamics_backends.compiled.loops.kernel import (
    definitions as definitions,
    kernel_text as kernel_text,
    prelude as prelude,
    template as template,
)
from dynamics_backends.compiled.runtime.fingerprints.structure import Likeness as Likeness
from dynamics_backends.compiled.runtime.memory import (
    KNOTS_PER_THREAD as KNOTS_PER_THREAD,
    Workspaces as Workspaces,
    address as address,
    aligned as aligned,
    bound as bound,
    code_of as code_of,
    default_threads as default_threads,
    over_threads as over_threads,
)
from dynamics_backends.compiled.runtime.structs import structs_in as structs_in
from dynamics_backends.compiled.runtime.trace_cache import (
    remembered as remembered,
)
from dynamics_backends.machine.library import kernels as kernels, lanes

lanes_in_use = lanes
