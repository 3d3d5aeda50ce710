/* Elementary functions of vectors, accurate to about one unit in the last place, with the C library's values at zeros,
   infinities and NaN.

   Each function is an argument reduction and a polynomial (Chebyshev series of mpmath.chebyfit in 50 digits, with an error below
   a tenth of a unit). Odd functions are evaluated at |x|. Angles above LARGE, far outside the range of robots, are evaluated
   lane by lane by the C library. */
#pragma once
#include "vectors.h"

#define SIGN_BIT ((VI)splat(-0.0))
#define HALF_PI 0x1.921fb54442d18p+0
#define HALF_PI_REST 0x1.1a62633145c07p-54 /* pi/2 as a sum of two numbers */
#define QUARTER_PI_REST 0x1.1a62633145c07p-55
#define LN2 0x1.62e42fee00000p-1 /* its multiples up to 2^11 are exact */
#define LN2_REST 0x1.a39ef35793c76p-33
#define LOG2_E 0x1.71547652b82fep+0
#define TWO_OVER_PI 0x1.45f306dc9c883p-1
#define TO_INTEGER 0x1.8p+52 /* the last bits of x + TO_INTEGER are the integer nearest to x */
#define LARGE 0x1p+19
#define TAN_PI_8 0x1.a827999fcef32p-2

static inline V magnitude(V x) { return (V)((VI)x & ~SIGN_BIT); }
static inline V with_sign_of(V s, V x) { return (V)((VI)x ^ ((VI)s & SIGN_BIT)); }
static inline V either(VI where, V yes, V no) { return (V)((where & (VI)yes) | (~where & (VI)no)); }

static inline int somewhere(VI where)
{
    long long found = 0;
    for (int i = 0; i < LANES; i++) found |= where[i];
    return found != 0;
}

/* sum_i c[i] x^i; separate sums of even and odd powers halve the dependency chain */
#define POLYNOMIAL(x, ...)                                              \
    ({                                                                  \
        static const double c_[] = {__VA_ARGS__};                       \
        enum { n_ = sizeof c_ / sizeof *c_ };                           \
        const V z_ = (x) * (x);                                         \
        V even_ = splat(c_[(n_ - 1) & ~1]), odd_ = splat(c_[(n_ - 2) | 1]); \
        _Pragma("GCC unroll 16") for (int i_ = ((n_ - 1) & ~1) - 2; i_ >= 0; i_ -= 2) even_ = even_ * z_ + c_[i_]; \
        _Pragma("GCC unroll 16") for (int i_ = ((n_ - 2) | 1) - 2; i_ >= 1; i_ -= 2) odd_ = odd_ * z_ + c_[i_]; \
        even_ + (x) * odd_;                                             \
    })

/* x 2^n for integer n in [-2044, 2046], in two factors, since 2^n may overflow */
static inline V times_power_of_two(V x, V n)
{
    const V half = (0.5 * n + TO_INTEGER) - TO_INTEGER;
    const VI exponent = (VI)(half + TO_INTEGER) - (VI)splat(TO_INTEGER), rest = (VI)(n - half + TO_INTEGER) - (VI)splat(TO_INTEGER);
    return x * (V)((exponent + 1023) << 52) * (V)((rest + 1023) << 52);
}

/* -- angles ---------------------------------------------------------------------------------------------------------- */

/* a - n pi/2, with pi/2 in three parts, since some multiples are within 2^-60 of a double; products with the first two are
   exact. */
static inline V less_quarters(V a, V n)
{
    return ((a - n * 0x1.921fb54400000p+0) - n * 0x1.0b4611a600000p-34) - n * 0x1.3198a2e037073p-69;
}

/* sin r for |r| <= pi/2 */
static inline V sine_of_reduced(V r)
{
    const V z = r * r;
    const V p = POLYNOMIAL(z, -0x1.5555555555555p-3, 0x1.1111111111107p-7, -0x1.a01a01a018a6bp-13, 0x1.71de3a5453aa1p-19,
                           -0x1.ae6455a012933p-26, 0x1.612400c8d73bcp-33, -0x1.ae510a04a3a90p-41, 0x1.899eb4161ddecp-49);
    return r + r * (z * p);
}

/* Evaluate finite angles of `far` lanes by the C library; other lanes are unchanged. */
#define OF_FAR_LANES(function, x, r)                                                 \
    {                                                                                \
        const VI far = (magnitude(x) > splat(LARGE)) & (magnitude(x) < splat(INFINITY));\
        if (__builtin_expect(somewhere(far), 0))                                     \
            for (int i = 0; i < LANES; i++)                                          \
                if (far[i]) (r)[i] = function((x)[i]);                               \
    }

NOINLINE V v_sin(V x)
{
    const V a = magnitude(x), shifted = a * (0.5 * TWO_OVER_PI) + TO_INTEGER;
    V y = sine_of_reduced(less_quarters(a, 2.0 * (shifted - TO_INTEGER)));
    y = with_sign_of(x, (V)((VI)y ^ (VI)shifted << 63));
    OF_FAR_LANES(sin, x, y)
    return y;
}

NOINLINE V v_cos(V x)
{
    const V a = magnitude(x), shifted = (a * (0.5 * TWO_OVER_PI) - 0.5) + TO_INTEGER, n = 2.0 * (shifted - TO_INTEGER) + 1.0;
    V y = sine_of_reduced(less_quarters(a, n));
    y = (V)((VI)y ^ ~(VI)shifted << 63);
    OF_FAR_LANES(cos, x, y)
    return y;
}

NOINLINE V v_tan(V x)
{
    const V a = magnitude(x), shifted = a * TWO_OVER_PI + TO_INTEGER, r = less_quarters(a, shifted - TO_INTEGER), z = r * r;
    const VI odd = -((VI)shifted & 1);
    const V p = POLYNOMIAL(z, 0x1.5555555555555p-5, -0x1.6c16c16c16965p-10, 0x1.a01a019f4e480p-16, -0x1.27e4fa17532cap-22,
                           0x1.1eeb685cba14cp-29, -0x1.907d3e3374a42p-37);
    const V s = sine_of_reduced(r), half = 0.5 * z, one = 1.0 - half, c = one + (((1.0 - one) - half) + z * z * p);
    V y = with_sign_of(x, either(odd, -c, s) / either(odd, s, c));
    OF_FAR_LANES(tan, x, y)
    return y;
}

/* -- exponentials ------------------------------------------------------------------------------------------------------ */

/* e^r - 1 for x = n ln 2 + r, |r| <= ln(2)/2 */
static inline V exponential_of_reduced(V x, V *n)
{
    *n = (x * LOG2_E + TO_INTEGER) - TO_INTEGER;
    const V high = x - *n * LN2, low = *n * LN2_REST, r = high - low, rest = (high - r) - low;
    const V p = POLYNOMIAL(r, 0x1.0000000000000p-1, 0x1.5555555555557p-3, 0x1.5555555555552p-5, 0x1.11111111100cep-7,
                           0x1.6c16c16c17a0fp-10, 0x1.a01a01abef415p-13, 0x1.a01a019ff3d42p-16, 0x1.71de021a90822p-19,
                           0x1.27e4e9b53c241p-22, 0x1.af4e196027428p-26, 0x1.1f5d64c88a340p-29);
    return r + (r * r * p + rest * (1.0 + r));
}

/* x between lower and upper, or NaN */
static inline V clamped(V x, double lower, double upper)
{
    x = either(x < splat(lower), splat(lower), x);
    return either(x > splat(upper), splat(upper), x);
}

NOINLINE V v_exp(V x)
{
    V n;
    const V e = exponential_of_reduced(clamped(x, -750.0, 710.0), &n);
    return either(x == x, times_power_of_two(1.0 + e, n), x);
}

NOINLINE V v_expm1(V x)
{
    V n;
    const V at = clamped(x, -60.0, 710.0), e = exponential_of_reduced(at, &n), scaled = times_power_of_two(e, n);
    /* 2^n is exact, and 2^n - 1 is exact in the range where it matters */
    const V one = times_power_of_two(splat(1.0), n), sum = (one - 1.0) + scaled;
    return either((x != x) | (x == splat(0.0)), x, either(at > splat(709.0), times_power_of_two(1.0 + e, n), sum));
}

/* e^x / 2 and e^-x / 2 for x >= 0, without overflow of e^x */
static inline V half_exponential(V x)
{
    V n;
    const V e = exponential_of_reduced(clamped(x, -750.0, 711.0), &n);
    return times_power_of_two(1.0 + e, n - 1.0);
}

NOINLINE V v_cosh(V x)
{
    const V a = magnitude(x);
    return either(x == x, half_exponential(a) + half_exponential(-a), x);
}

NOINLINE V v_sinh(V x)
{
    const V a = magnitude(x), e = v_expm1(clamped(a, 0.0, 50.0));
    const V y = either(a < splat(40.0), 0.5 * (e + e / (1.0 + e)), half_exponential(a));
    return with_sign_of(x, either(x == x, y, a));
}

NOINLINE V v_tanh(V x)
{
    const V a = magnitude(x), e = v_expm1(2.0 * clamped(a, 0.0, 22.0));
    return with_sign_of(x, either(x == x, e / (2.0 + e), a));
}

/* -- logarithms -------------------------------------------------------------------------------------------------------- */

/* log(m + rest) + k ln 2 for m in [sqrt(1/2), sqrt(2)] */
static inline V logarithm_of_reduced(V m, V rest, V k)
{
    const V f = m - 1.0, s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
    const V p = POLYNOMIAL(z, 0x1.5555555555555p-1, 0x1.9999999999a38p-2, 0x1.2492492476b73p-2, 0x1.c71c72017f306p-3,
                           0x1.745cf8f4a7ec6p-3, 0x1.3b1c38bb12df2p-3, 0x1.0fbe3b6c6987dp-3, 0x1.0c074d9f1dd73p-3);
    return k * LN2 + (f - (half - (s * (half + z * p) + (k * LN2_REST + rest / m))));
}

/* x = m 2^k for a positive number x */
static inline V reduced_number(V x, V *k)
{
    const VI tiny = x < splat(0x1p-1022);
    const VI bits = (VI)either(tiny, x * 0x1p+54, x), up = (bits & 0xfffffffffffffLL) + 0x95f619980c434LL;
    /* the exponent, plus one if the fraction is above sqrt(2) */
    const VI exponent = (bits >> 52) + (up >> 52);
    const VI magic = (VI)splat(TO_INTEGER);
    *k = ((V)(exponent + magic) - TO_INTEGER) - 1023.0 - (V)(tiny & (VI)splat(54.0));
    return (V)((bits & 0xfffffffffffffLL) | ((1023 - (up >> 52)) << 52));
}

NOINLINE V v_log(V x)
{
    V k;
    const V m = reduced_number(x, &k), y = logarithm_of_reduced(m, ZERO, k);
    const V above = either(x == splat(HUGE_VAL), x, y); /* comparisons with NaN are false */
    return either(x > ZERO, above, either(x == ZERO, splat(-HUGE_VAL), either(x == x, splat(NAN), x)));
}

NOINLINE V v_log1p(V x)
{
    V k;
    const V u = 1.0 + x, rest = either(x > splat(1.0), 1.0 - (u - x), x - (u - 1.0));
    const V m = reduced_number(u, &k), y = logarithm_of_reduced(m, rest * (m / u), k);
    const V above = either(x == splat(HUGE_VAL), x, y), small = either(magnitude(x) < splat(0x1p-54), x, above);
    return either(x > splat(-1.0), small, either(x == splat(-1.0), splat(-HUGE_VAL), either(x == x, splat(NAN), x)));
}

/* -- inverse trigonometric functions ------------------------------------------------------------------------------------- */

/* The arctangent of t in [0, 1]. */
static inline V arctangent_to_one(V t)
{
    const VI upper = t > splat(TAN_PI_8);
    const V s = either(upper, (t - 1.0) / (t + 1.0), t), z = s * s;
    const V p = POLYNOMIAL(z, -0x1.5555555555555p-2, 0x1.9999999999344p-3, -0x1.2492492435beep-3, 0x1.c71c7185006ddp-4,
                           -0x1.745d0b1ef71ecp-4, 0x1.3b1262253e208p-4, -0x1.10fa6b502376ep-4, 0x1.dfe57271156bbp-5,
                           -0x1.a095374ce56bbp-5, 0x1.41560ea6668bfp-5, -0x1.3a129c8a05421p-6);
    const V more = s * z * p;
    return either(upper, 0.5 * HALF_PI + (s + (more + QUARTER_PI_REST)), s + more);
}

NOINLINE V v_atan2(V y, V x)
{
    const V a = magnitude(x), b = magnitude(y);
    const VI steep = b > a, both = (a == splat(HUGE_VAL)) & (b == splat(HUGE_VAL)), none = (a == ZERO) & (b == ZERO);
    const V least = either(steep, a, b), most = either(steep, b, a);
    V r = arctangent_to_one(either(both, splat(1.0), either(none, ZERO, least / either(none, splat(1.0), most))));
    r = either(steep, HALF_PI - (r - HALF_PI_REST), r);
    r = either((VI)x >> 63, 2.0 * HALF_PI - (r - 2.0 * HALF_PI_REST), r);
    return either((x != x) | (y != y), x + y, with_sign_of(y, r));
}

NOINLINE V v_atan(V x)
{
    const V a = magnitude(x);
    const VI steep = a > splat(1.0);
    const V r = arctangent_to_one(either(steep, 1.0 / a, a));
    return with_sign_of(x, either(steep, HALF_PI - (r - HALF_PI_REST), r));
}

/* asin(x) - x for |x| <= 1/2 */
static inline V arcsine_more(V x)
{
    const V z = x * x;
    const V p = POLYNOMIAL(z, 0x1.5555555555556p-3, 0x1.3333333332ebdp-4, 0x1.6db6db6e33356p-5, 0x1.f1c71c1ce46ccp-6,
                           0x1.6e8bb1e919659p-6, 0x1.1c4d32ae44ec8p-6, 0x1.c9cf677405c4cp-7, 0x1.78228b4086228p-7,
                           0x1.525b4e274fa99p-7, 0x1.64cb211c6bf58p-8, 0x1.1db3b63ecb677p-6, -0x1.e89a42a224981p-7,
                           0x1.d7d7f9098002ep-6);
    return x * z * p;
}

/* Returns high, with high + rest = sqrt((1 - a)/2), the sine of half of acos(a) */
static inline V half_angle_sine(V a, V *rest)
{
    const V z = 0.5 * (1.0 - a), s = v_sqrt(z), high = (V)((VI)s & ~0xffffffffLL);
    *rest = either(z > ZERO, (z - high * high) / (s + high), ZERO); /* high: s truncated, so that its square is exact */
    return high;
}

NOINLINE V v_asin(V x)
{
    const V a = magnitude(x);
    const VI upper = a > splat(0.5);
    V rest;
    const V high = half_angle_sine(a, &rest), s = either(upper, high + rest, a), more = arcsine_more(s);
    const V above = 0.5 * HALF_PI - ((2.0 * more - (HALF_PI_REST - 2.0 * rest)) - (0.5 * HALF_PI - 2.0 * high));
    return with_sign_of(x, either(upper, above, a + more));
}

NOINLINE V v_acos(V x)
{
    const V a = magnitude(x);
    const VI upper = a > splat(0.5), negative = (VI)x >> 63;
    V rest;
    const V high = half_angle_sine(a, &rest), s = either(upper, high + rest, a), more = arcsine_more(s);
    const V near_one = 2.0 * (high + (rest + more)), signed_a = with_sign_of(x, a);
    const V near_minus_one = 2.0 * HALF_PI - 2.0 * (high + (rest + more - HALF_PI_REST));
    const V middle = HALF_PI - (signed_a - (HALF_PI_REST - with_sign_of(x, more)));
    return either(upper, either(negative, near_minus_one, near_one), middle);
}
