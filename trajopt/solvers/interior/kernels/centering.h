/* Adaptive barrier parameter by a quality function (J. Nocedal, A. Waechter, R. A. Waltz, SIAM J. Optim. 19, 2009): mu = sigma (mean
   complementarity), for the sigma whose step minimizes the linearized residual of the optimality conditions.  Steps are linear in sigma. */
#pragma once
#include "interior_point.h"
#include "../../../../dynamics_backends/compiled/templates/lanes/rows.h"

/* Inputs of the choice of sigma.  tau: fraction of a distance that a step may use; mean: mean complementarity; dual, primal: mean squares of
   the gradient of the Lagrangian and of the violation; low, high: range of sigma. */
typedef struct {
    double tau, mean, dual, primal, low, high;
} ipm_aim;

/* Data of the bounds for the quality function, one entry per bound.  product: z (distance).  at, by: step for mu = 0, and its change for
   mu = mean, relative to the distance.  at_z, by_z: the same for the multiplier, relative to z. */
typedef struct {
    double *product, *at, *by, *at_z, *by_z;
    const ipm_aim *aim;
    long count;
} ipm_oracle;

#define SIDE(way, inverse, dual, zero_dual, mean_dual)                                                                                 \
    for (long i = 0; i < count; i++) {                                                                                                 \
        if (inverse[i] == 0.0) continue;                                                                                               \
        const double z_ = 1.0 / dual[i];                                                                                               \
        o->product[n] = dual[i] / inverse[i];                                                                                          \
        o->at[n] = way zero->v[i] * inverse[i], o->by[n] = way(mean->v[i] - zero->v[i]) * inverse[i];                                  \
        o->at_z[n] = zero_dual[i] * z_, o->by_z[n] = (mean_dual[i] - zero_dual[i]) * z_;                                               \
        n++;                                                                                                                           \
    }

/* Fill the data of the bounds from the steps for mu = 0 and for mu = mean. */
static void fill_bounds(const ipm_condensed *c, const ipm_multipliers *z, const ipm_step *zero, const ipm_step *mean, long count, ipm_oracle *o)
{
    long n = 0;
    SIDE(+, c->below, z->zl, zero->z.zl, mean->z.zl)
    SIDE(-, c->above, z->zu, zero->z.zu, mean->z.zu)
    o->count = n;
}

/* Quality function: linearized squared residual of the optimality conditions after the step for sigma. */
static double quality(const ipm_oracle *o, double sigma)
{
    const double *restrict product = o->product, *restrict at = o->at, *restrict by = o->by, *restrict at_z = o->at_z, *restrict by_z = o->by_z;
    double primal = 0.0, dual = 0.0, left = 0.0;
    for (long i = 0; i < o->count; i++) {
        const double t = -(at[i] + sigma * by[i]), u = -(at_z[i] + sigma * by_z[i]);
        primal = t > primal ? t : primal;
        dual = u > dual ? u : dual;
    }
    const double a = reach(primal, o->aim->tau), b = reach(dual, o->aim->tau);
    for (long i = 0; i < o->count; i++) {
        const double t = product[i] * (1.0 + a * (at[i] + sigma * by[i])) * (1.0 + b * (at_z[i] + sigma * by_z[i]));
        left += t * t;
    }
    return (1.0 - b) * (1.0 - b) * o->aim->dual + (1.0 - a) * (1.0 - a) * o->aim->primal + left / (double)o->count;
}

#define GOLDEN 0.38196601125010515 /* (3 - sqrt 5) / 2 */
#define SECTIONS 8
#define NARROW 1e-2

/* Minimize the quality function over the range of sigma by golden sections, on the side of sigma = 1 toward which it decreases. */
static double centering(const ipm_oracle *o)
{
    double low = o->aim->low, high = o->aim->high;
    const double below = 1.0 - NARROW;
    if (low < below && high > 1.0) {
        if (quality(o, below) > quality(o, 1.0)) low = 1.0;
        else high = below;
    }
    double a = low, b = high, c = a + GOLDEN * (b - a), d = b - GOLDEN * (b - a);
    double at_c = quality(o, c), at_d = quality(o, d);
    for (int i = 0; i < SECTIONS && b - a > NARROW * b; i++) {
        if (at_c > at_d) {
            a = c, c = d, at_c = at_d;
            d = b - GOLDEN * (b - a);
            at_d = quality(o, d);
        } else {
            b = d, d = c, at_d = at_c;
            c = a + GOLDEN * (b - a);
            at_c = quality(o, c);
        }
    }
    double best = at_c < at_d ? c : d, least = at_c < at_d ? at_c : at_d;
    const double ends[2] = {low, high};
    for (int i = 0; i < 2; i++) {
        const double t = quality(o, ends[i]);
        if (t < least) best = ends[i], least = t;
    }
    return best;
}
