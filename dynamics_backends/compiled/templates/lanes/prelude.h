/* Vectors over lanes: one knot of the horizon in each.  Before stand LANES, MVEC (a libmvec function prefix, or nothing), and MVEC_MORE
   where libmvec has more than sin, cos, exp, log and pow. */
#include <math.h>
#include <string.h>

typedef double V __attribute__((vector_size(8 * LANES)));
typedef long long VI __attribute__((vector_size(8 * LANES)));

/* What the texts behind this one ask of a prelude; scalar.h is its twin for one lane in plain C99. */
#define ZERO ((V){})
#define LANE(v, l) (v)[l]
#define NOINLINE static __attribute__((noinline))
#define STRAIGHT NOINLINE
#define JOINED static
#define NUMBER(name, value) enum { name = value };
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define SCRATCH static __thread __attribute__((aligned(64)))
#define EXPORT __attribute__((visibility("default")))
#define UNROLL _Pragma("GCC unroll 8")

static inline V splat(double x) { return x - ZERO; }

#define EACH_LANE(name, call) \
    static inline V v_##name(V x) { V r; for (int i = 0; i < LANES; i++) r[i] = call(x[i]); return r; }
#define EACH_LANE_2(name, call) \
    static inline V v_##name(V x, V y) { V r; for (int i = 0; i < LANES; i++) r[i] = call(x[i], y[i]); return r; }

#ifdef MVEC
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define FROM_MVEC(name) \
    V PASTE(MVEC, v_##name)(V); \
    static inline V v_##name(V x) { return PASTE(MVEC, v_##name)(x); }
#define FROM_MVEC_2(name) \
    V PASTE(MVEC, vv_##name)(V, V); \
    static inline V v_##name(V x, V y) { return PASTE(MVEC, vv_##name)(x, y); }
#else
#define FROM_MVEC(name) EACH_LANE(name, name)
#endif
#ifdef MVEC_MORE
#define SINCE_2_35 FROM_MVEC
#define SINCE_2_35_2 FROM_MVEC_2
#else
#define SINCE_2_35(name) EACH_LANE(name, name)
#define SINCE_2_35_2(name) EACH_LANE_2(name, name)
#endif
FROM_MVEC(sin)
FROM_MVEC(cos)
FROM_MVEC(exp)
FROM_MVEC(log)
SINCE_2_35(tan)
SINCE_2_35(tanh)
SINCE_2_35(sinh)
SINCE_2_35(cosh)
SINCE_2_35(atan)
SINCE_2_35(asin)
SINCE_2_35(acos)
SINCE_2_35_2(atan2)
EACH_LANE(sqrt, __builtin_sqrt)
EACH_LANE(fabs, __builtin_fabs)
EACH_LANE(floor, __builtin_floor)
EACH_LANE(expm1, expm1)
EACH_LANE(log1p, log1p)
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
#if LANES == 8 && defined(__AVX512F__) && !defined(__clang__) /* GCC finds these in no comparison */
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

#define MIX(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)

/* a[l][i] <- x[i][l] for LANES vectors x in memory. */
static inline void transpose(const V *restrict x, V *restrict a)
{
#if LANES == 8
    typedef double H __attribute__((vector_size(32), aligned(32)));
    const H *h = (const H *)x; /* halves come from memory in place: shuffles are what this costs */
    V b[8], c[8];
    for (int i = 0; i < 4; i++) {
        b[i] = MIX(h[2 * i], h[2 * i + 8], 0, 1, 2, 3, 4, 5, 6, 7);
        b[i + 4] = MIX(h[2 * i + 1], h[2 * i + 9], 0, 1, 2, 3, 4, 5, 6, 7);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 4; j += 2) {
            c[i + j] = MIX(b[i + j], b[i + j + 1], 0, 8, 2, 10, 4, 12, 6, 14);
            c[i + j + 1] = MIX(b[i + j], b[i + j + 1], 1, 9, 3, 11, 5, 13, 7, 15);
        }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            a[i + j] = MIX(c[i + j], c[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            a[i + j + 2] = MIX(c[i + j], c[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
#elif LANES == 4
    V b0 = MIX(x[0], x[1], 0, 4, 2, 6), b1 = MIX(x[0], x[1], 1, 5, 3, 7);
    V b2 = MIX(x[2], x[3], 0, 4, 2, 6), b3 = MIX(x[2], x[3], 1, 5, 3, 7);
    a[0] = MIX(b0, b2, 0, 1, 4, 5);
    a[1] = MIX(b1, b3, 0, 1, 4, 5);
    a[2] = MIX(b0, b2, 2, 3, 6, 7);
    a[3] = MIX(b1, b3, 2, 3, 6, 7);
#endif
}

/* LANES rows of n doubles each <-> n vectors.  Lanes beyond `count` repeat the last row on the way in and are dropped on the way out. */
static void pack(const double *restrict rows, long n, int count, V *restrict x)
{
    long i = 0;
#if LANES == 8 || LANES == 4
    if (count == LANES)
        for (; i + LANES <= n; i += LANES) {
            V t[LANES];
            for (int l = 0; l < LANES; l++) memcpy(&t[l], rows + n * l + i, sizeof(V));
            transpose(t, x + i);
        }
#endif
    for (int l = 0; l < LANES; l++) {
        const double *row = rows + n * (l < count ? l : count - 1);
        for (long j = i; j < n; j++) ((double *)x)[j * LANES + l] = row[j];
    }
}

/* Outputs behind as many doubles, a megabyte, go past the caches: they would be read into them first, and thrown out again. */
#define STREAM_ABOVE (1L << 17)

static inline void store(V x, double *to, int streamed)
{
#if LANES == 8 && defined(__AVX512F__)
    if (streamed) {
        __builtin_ia32_movntpd512(to, x);
        return;
    }
#endif
    (void)streamed;
    memcpy(to, &x, sizeof(V));
}

static void unpack(const V *restrict x, long n, int count, double *restrict rows)
{
    long i = 0;
#if LANES == 8 || LANES == 4
    if (count == LANES)
        for (; i + LANES <= n; i += LANES) {
            V t[LANES];
            transpose(x + i, t);
            for (int l = 0; l < LANES; l++) memcpy(rows + n * l + i, &t[l], sizeof(V));
        }
#endif
    for (int l = 0; l < count; l++)
        for (long j = i; j < n; j++) rows[n * l + j] = ((const double *)x)[j * LANES + l];
}
/* end of the prelude */
