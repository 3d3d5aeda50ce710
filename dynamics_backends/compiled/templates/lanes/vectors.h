/* Vectors over lanes, one knot of the horizon per lane, and their arithmetic. LANES: doubles in a vector of the instruction set. */
#pragma once
#include <math.h>
#include <string.h>

#ifndef LANES
#if defined __AVX512F__
#define LANES 8
#elif defined __AVX2__
#define LANES 4
#else
#define LANES 2
#endif
#endif

typedef double V __attribute__((vector_size(8 * LANES)));
typedef long long VI __attribute__((vector_size(8 * LANES)));

/* Names that all kernels use; scalar.h defines them for one lane in plain C99. */
#define ZERO ((V){})
#define LANE(v, l) (v)[l]
#define NOINLINE static __attribute__((noinline))
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define SCRATCH static __thread __attribute__((aligned(64)))
#define EXPORT __attribute__((visibility("default")))
#define CONSTANT EXPORT const
#define UNROLL _Pragma("GCC unroll 8")

static inline V splat(double x) { return x - ZERO; }

#define EACH_LANE(name, call) \
    static inline V v_##name(V x) { V r; for (int i = 0; i < LANES; i++) r[i] = call(x[i]); return r; }
#define EACH_LANE_2(name, call) \
    static inline V v_##name(V x, V y) { V r; for (int i = 0; i < LANES; i++) r[i] = call(x[i], y[i]); return r; }

EACH_LANE(sqrt, __builtin_sqrt)
EACH_LANE(fabs, __builtin_fabs)
EACH_LANE(floor, __builtin_floor)
EACH_LANE_2(pow, pow)
EACH_LANE_2(constpow, pow)

static inline V one_where(VI mask) { return (V)(mask & (VI)splat(1.0)); }
static inline V v_lt(V a, V b) { return one_where(a < b); }
static inline V v_le(V a, V b) { return one_where(a <= b); }
static inline V v_eq(V a, V b) { return one_where(a == b); }
static inline V v_ne(V a, V b) { return one_where(a != b); }
static inline V v_not(V a) { return one_where(a == (V){}); }
static inline V v_and(V a, V b) { return one_where((a != (V){}) & (b != (V){})); }
static inline V v_or(V a, V b) { return one_where((a != (V){}) | (b != (V){})); }
static inline V v_select_lt(V x, V y, V a, V b) { VI m = x < y; return (V)((m & (VI)a) | (~m & (VI)b)); }
static inline V v_if_else_zero(V c, V a) { return (V)((VI)(c != (V){}) & (VI)a); }
#if LANES == 8 && defined(__AVX512F__) && !defined(__clang__) /* GCC does not generate these instructions from comparisons */
static inline V v_fmin(V a, V b) { return __builtin_ia32_minpd512_mask(a, b, a, -1, 4); }
static inline V v_fmax(V a, V b) { return __builtin_ia32_maxpd512_mask(a, b, a, -1, 4); }
#elif LANES == 4 && defined(__AVX__) && !defined(__clang__)
static inline V v_fmin(V a, V b) { return __builtin_ia32_minpd256(a, b); }
static inline V v_fmax(V a, V b) { return __builtin_ia32_maxpd256(a, b); }
#else
static inline V v_fmin(V a, V b) { VI m = a < b; return (V)((m & (VI)a) | (~m & (VI)b)); }
static inline V v_fmax(V a, V b) { VI m = a > b; return (V)((m & (VI)a) | (~m & (VI)b)); }
#endif
static inline V v_sign(V a) { return one_where(a > (V){}) - one_where(a < (V){}); }
