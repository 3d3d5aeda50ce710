/* Scalar version of vectors.h, vector_math.h and the packing of prelude.h in plain C99, one lane, for exported code. */
#include <math.h>
#include <string.h>

#define LANES 1
typedef double V;

#define ZERO 0.0
#define LANE(v, l) (v)
#define NOINLINE static
#if defined(__GNUC__)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
/* functions of one kind have the same parameters, even if they use only some */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#else
#define ALWAYS_INLINE static inline
#endif
#define SCRATCH
#define EXPORT static inline
#define CONSTANT static const
#define UNROLL

static inline V splat(double x) { return x; }

#define v_sin sin
#define v_cos cos
#define v_exp exp
#define v_log log
#define v_sqrt sqrt
#define v_tan tan
#define v_tanh tanh
#define v_sinh sinh
#define v_cosh cosh
#define v_atan atan
#define v_asin asin
#define v_acos acos
#define v_fabs fabs
#define v_floor floor
#define v_expm1 expm1
#define v_log1p log1p
#define v_atan2 atan2
#define v_pow pow
#define v_constpow pow

static inline V v_lt(V a, V b) { return a < b; }
static inline V v_le(V a, V b) { return a <= b; }
static inline V v_eq(V a, V b) { return a == b; }
static inline V v_ne(V a, V b) { return a != b; }
static inline V v_not(V a) { return a == 0.0; }
static inline V v_and(V a, V b) { return a != 0.0 && b != 0.0; }
static inline V v_or(V a, V b) { return a != 0.0 || b != 0.0; }
static inline V v_if_else_zero(V c, V a) { return c != 0.0 ? a : 0.0; }
static inline V v_fmin(V a, V b) { return a < b ? a : b; }
static inline V v_fmax(V a, V b) { return a > b ? a : b; }
static inline V v_sign(V a) { return (V)(a > 0.0) - (V)(a < 0.0); }

static inline void pack(const double *rows, long n, int count, V *x)
{
    (void)count;
    memcpy(x, rows, sizeof(V) * n);
}

static inline void unpack(const V *x, long n, int count, double *rows)
{
    (void)count;
    memcpy(rows, x, sizeof(V) * n);
}
