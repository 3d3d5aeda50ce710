"""Functions to compile and call C source: compilation, the cache, addresses of arrays, workspaces and threads."""

from dynamics_backends.compiled.loops.kernel import (
    definitions as definitions,
    kernel_text as kernel_text,
    prelude as prelude,
    template as template,
    templates as templates,
)
from dynamics_backends.compiled.runtime.cache import (
    cache_folder as cache_folder,
    load as load,
)
from dynamics_backends.compiled.runtime.fingerprints.structure import Likeness as Likeness
from dynamics_backends.compiled.runtime.memory import (
    KNOTS_PER_THREAD as KNOTS_PER_THREAD,
    Rooms as Rooms,
    address as address,
    aligned as aligned,
    bound as bound,
    code_of as code_of,
    default_threads as default_threads,
    over_threads as over_threads,
    pointers as pointers,
    ranges as ranges,
)
from dynamics_backends.compiled.runtime.structs import structs_in as structs_in
from dynamics_backends.compiled.runtime.toolchain import (
    CompilerError as CompilerError,
    find_toolchain as find_toolchain,
    has_compiler as has_compiler,
    lanes_in_use as lanes_in_use,
)
from dynamics_backends.compiled.runtime.trace_cache import (
    library as library,
    remembered as remembered,
)
from dynamics_backends.machine.library import kernels as kernels
