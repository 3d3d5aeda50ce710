"""C sources to include in larger kernels: dynamics, manifolds, and any traced map or expression."""

from dynamics_backends.compiled.emit.emit import (
    Argument as Argument,
    chunked_function as chunked_function,
    constant as constant,
)
from dynamics_backends.compiled.emit.trace import trace_expressions as trace_expressions
from dynamics_backends.compiled.sources.dynamics_source import (
    contraction_in_library as contraction_in_library,
    differences_of as differences_of,
    dynamics_in_library as dynamics_in_library,
    has_contraction as has_contraction,
    has_source as has_source,
    library_functions as library_functions,
    question_of as question_of,
    straight_functions as straight_functions,
)
from dynamics_backends.compiled.sources.factors import (
    Factor as Factor,
    factor_array as factor_array,
    factors_in_c as factors_in_c,
    factors_of as factors_of,
)
from dynamics_backends.compiled.sources.manifold_source import (
    groups_source as groups_source,
)
from dynamics_backends.compiled.sources.traced_function import TracedFunction as TracedFunction
from dynamics_backends.compiled.sources.traced_source import (
    TooLong as TooLong,
    by_rows as by_rows,
    operations_limit as operations_limit,
    require_short as require_short,
    short_enough as short_enough,
)
from dynamics_backends.methods.symbolic_map import (
    Symbols as Symbols,
    TraceError as TraceError,
    description as description,
    symbolic_value as symbolic_value,
)
from dynamics_backends.rigid_body.algorithms.seen_poses import watching as watching
from dynamics_backends.scalars.called import preserved_calls as preserved_calls
