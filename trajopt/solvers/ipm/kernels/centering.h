/* The barrier parameter by a quality function: mu = sigma (mean complementarity) for the sigma whose step leaves least of the optimality
   conditions, as their linearization sees it (J. Nocedal, A. Waechter, R. A. Waltz, SIAM J. Optim. 19, 2009).  Steps are linear in sigma.
   Before this text stands interior_point.h. */

/* Steps for mu = 0 and for mu = mean, as v, zl and zu; what the quality function knows of the point: sums of squares of the gradient of
   the Lagrangian and of the violation, each over its count; share: of a distance that a step may take. */
typedef struct {
    const double *zero_v, *zero_zl, *zero_zu, *mean_v, *mean_zl, *mean_zu;
    double mean, dual, primal, share;
    long count;
} ipm_oracle;

/* Step lengths to the bounds for sigma. */
static void lengths(const ipm_structure *s, const ipm_point *p, const ipm_multipliers *z, const ipm_oracle *o, double sigma, double *alpha,
                    double *alpha_z)
{
    const long count = numbers(s);
    double a = 1.0, b = 1.0;
    for (long i = 0; i < count; i++) {
        if (!(s->lower[i] > -HUGE_VAL) && !(s->upper[i] < HUGE_VAL)) continue;
        const double dv = o->zero_v[i] + sigma * (o->mean_v[i] - o->zero_v[i]);
        const double dl = o->zero_zl[i] + sigma * (o->mean_zl[i] - o->zero_zl[i]);
        const double du = o->zero_zu[i] + sigma * (o->mean_zu[i] - o->zero_zu[i]);
        double t = reach(p->v[i] - s->lower[i], dv, o->share);
        a = t < a ? t : a;
        t = reach(s->upper[i] - p->v[i], -dv, o->share);
        a = t < a ? t : a;
        t = reach(z->zl[i], dl, o->share);
        b = t < b ? t : b;
        t = reach(z->zu[i], du, o->share);
        b = t < b ? t : b;
    }
    *alpha = a, *alpha_z = b;
}

/* What the step for sigma would leave, to first order in the residuals. */
static double quality(const ipm_structure *s, const ipm_point *p, const ipm_multipliers *z, const ipm_oracle *o, double sigma)
{
    const long count = numbers(s);
    double a, b, products = 0.0;
    lengths(s, p, z, o, sigma, &a, &b);
    for (long i = 0; i < count; i++) {
        if (!(s->lower[i] > -HUGE_VAL) && !(s->upper[i] < HUGE_VAL)) continue;
        const double v = p->v[i] + a * (o->zero_v[i] + sigma * (o->mean_v[i] - o->zero_v[i]));
        if (s->lower[i] > -HUGE_VAL) {
            const double t = (v - s->lower[i]) * (z->zl[i] + b * (o->zero_zl[i] + sigma * (o->mean_zl[i] - o->zero_zl[i])));
            products += t * t;
        }
        if (s->upper[i] < HUGE_VAL) {
            const double t = (s->upper[i] - v) * (z->zu[i] + b * (o->zero_zu[i] + sigma * (o->mean_zu[i] - o->zero_zu[i])));
            products += t * t;
        }
    }
    return (1.0 - b) * (1.0 - b) * o->dual + (1.0 - a) * (1.0 - a) * o->primal + products / (double)o->count;
}

#define GOLDEN 0.38196601125010515 /* (3 - sqrt 5) / 2 */
#define SECTIONS 8
#define NARROW 1e-2

/* sigma in low .. high that minimizes the quality function, by golden sections: on the side of 1 where it falls. */
static double centering(const ipm_structure *s, const ipm_point *p, const ipm_multipliers *z, const ipm_oracle *o, double low, double high)
{
    const double below = 1.0 - (1e-4 > NARROW ? 1e-4 : NARROW);
    if (low < below && high > 1.0) {
        if (quality(s, p, z, o, below) > quality(s, p, z, o, 1.0)) low = 1.0;
        else high = below;
    }
    double a = low, b = high, c = a + GOLDEN * (b - a), d = b - GOLDEN * (b - a);
    double at_c = quality(s, p, z, o, c), at_d = quality(s, p, z, o, d);
    for (int i = 0; i < SECTIONS && b - a > NARROW * b; i++) {
        if (at_c > at_d) {
            a = c, c = d, at_c = at_d;
            d = b - GOLDEN * (b - a);
            at_d = quality(s, p, z, o, d);
        } else {
            b = d, d = c, at_d = at_c;
            c = a + GOLDEN * (b - a);
            at_c = quality(s, p, z, o, c);
        }
    }
    double best = at_c < at_d ? c : d, least = at_c < at_d ? at_c : at_d;
    const double ends[2] = {low, high};
    for (int i = 0; i < 2; i++) {
        const double t = quality(s, p, z, o, ends[i]);
        if (t < least) best = ends[i], least = t;
    }
    return best;
}
