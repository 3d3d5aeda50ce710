/* Primal-dual logarithmic barrier for control bounds.

       phi = J - mu sum log((u - lower) / w) - mu sum log((upper - u) / w),   w = upper - lower

   The primal-dual system eliminates the multipliers z = mu / slack: Newton's method gets the gradient -mu / slack and the curvature z / slack, and
   all controls keep feedback gains.  A step keeps at least the fraction 1 - TAU of each slack.  trajopt/solvers/rules/barrier.py updates mu.  If a
   side is free, its term is left out, and w = 1.

   us, lower, upper have `count` entries; z has 2 count entries, those of the lower bounds first. */
#pragma once
#include "knots.h"
#include "newton_constants.h"

typedef struct {
    const double *lower, *upper;
    double *z, mu;
    long count;
} barrier_t;

/* Maximum and minimum that ignore a NaN x; faster than fmax and fmin, which are calls. */
static inline double larger(double most, double x) { return x > most ? x : most; }
static inline double smaller(double least, double x) { return x < least ? x : least; }

static double slack(const barrier_t *b, const double *us, int side, long i) { return side ? b->upper[i] - us[i] : us[i] - b->lower[i]; }

static double width_of(const barrier_t *b, long i)
{
    const double width = b->upper[i] - b->lower[i], nearer = fmax(1.0, fmin(fabs(b->lower[i]), fabs(b->upper[i])));
    return isfinite(width) ? fmin(width, WIDEST * nearer) : 1.0;
}

/* Move controls into the interior of their bounds, at least `push` from them, relative to the bound and the range. */
static void barrier_interior(const barrier_t *b, double push, double *us)
{
    for (long i = 0; i < b->count; i++) {
        const double lower = b->lower[i], upper = b->upper[i];
        if (isfinite(lower)) us[i] = fmax(us[i], lower + push * fmin(fmax(1.0, fabs(lower)), upper - lower));
        if (isfinite(upper)) us[i] = fmin(us[i], upper - push * fmin(fmax(1.0, fabs(upper)), upper - lower));
    }
}

/* Set the multipliers to mu / slack. */
static void barrier_multipliers(const barrier_t *b, const double *us)
{
    for (int side = 0; side < 2; side++)
        for (long i = 0; i < b->count; i++) b->z[side * b->count + i] = b->mu / slack(b, us, side, i);
}

/* Range of a factor, and of a product of many factors, without overflow. */
#define FACTOR 1e50
#define PRODUCT_OF_FACTORS 1e200

/* Barrier term for mu = 1, without free sides, infinite outside the interior.  A logarithm of a product replaces several logarithms, to save time. */
static double barrier_logs(const barrier_t *b, const double *us)
{
    double sum = 0.0, product = 1.0;
    for (int side = 0; side < 2; side++)
        for (long i = 0; i < b->count; i++) {
            const double share = slack(b, us, side, i) / width_of(b, i);
            if (!(share > 0.0)) return HUGE_VAL;
            if (share > FACTOR || share < 1.0 / FACTOR) {
                if (isfinite(share)) sum += log(share);
                continue;
            }
            product *= share;
            if (product < PRODUCT_OF_FACTORS && product > 1.0 / PRODUCT_OF_FACTORS) continue;
            sum += log(product), product = 1.0;
        }
    return -(sum + log(product));
}

/* Add the gradient of the barrier to r, and its curvature to the diagonals of R (N, m, m). */
static void barrier_impose(const barrier_t *b, const double *us, long m, double *R, double *r)
{
    for (long i = 0; i < b->count; i++) {
        const double below = slack(b, us, 0, i), above = slack(b, us, 1, i);
        R[(i / m * m + i % m) * m + i % m] += b->z[i] / below + b->z[b->count + i] / above;
        r[i] = r[i] - b->mu / below + b->mu / above;
    }
}

/* Update the smallest and largest product of a multiplier and its slack. */
static void barrier_products(const barrier_t *b, const double *us, double *least, double *greatest)
{
    for (int side = 0; side < 2; side++)
        for (long i = 0; i < b->count; i++) {
            const double own = slack(b, us, side, i);
            if (!isfinite(own)) continue;
            const double product = b->z[side * b->count + i] * own;
            *least = smaller(*least, product), *greatest = larger(*greatest, product);
        }
}

static double barrier_reach(double value, double move) { return move < 0.0 ? -TAU * value / move : 1.0; }

/* Largest step length, at most 1, that leaves the fraction 1 - TAU of every slack. */
static double barrier_longest(const barrier_t *b, const double *us, const double *du)
{
    double longest = 1.0;
    for (int side = 0; side < 2; side++)
        for (long i = 0; i < b->count; i++) longest = smaller(longest, barrier_reach(slack(b, us, side, i), side ? -du[i] : du[i]));
    return longest;
}

/* Update the multipliers after a step du from us; new: accepted controls; workspace: 2 count entries. */
static void barrier_stepped(const barrier_t *b, const double *us, const double *du, const double *new, double *workspace)
{
    double longest = 1.0;
    for (int side = 0; side < 2; side++)
        for (long i = 0; i < b->count; i++) {
            const long at = side * b->count + i;
            const double own = slack(b, us, side, i), z = b->z[at];
            workspace[at] = b->mu / own - z - z / own * (side ? -du[i] : du[i]);
            longest = smaller(longest, barrier_reach(z, workspace[at]));
        }
    for (int side = 0; side < 2; side++)
        for (long i = 0; i < b->count; i++) {
            const long at = side * b->count + i;
            const double ahead = b->mu / slack(b, new, side, i);
            b->z[at] = smaller(ahead * KAPPA_SIGMA, larger(ahead / KAPPA_SIGMA, b->z[at] + longest * workspace[at]));
        }
}

/* Bound on which a multiplier holds control i: 1 for the lower one, 2 for the upper one, 0 for neither. */
static int barrier_holds(const barrier_t *b, const double *us, long i)
{
    for (int side = 0; side < 2; side++) {
        const double width = width_of(b, i);
        if (slack(b, us, side, i) <= HELD * width && b->z[side * b->count + i] * width > b->mu / HELD) return side + 1;
    }
    return 0;
}
