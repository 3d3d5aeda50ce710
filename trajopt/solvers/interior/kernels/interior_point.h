/* Linear algebra of an interior-point iteration: the Newton system, condensed onto the knots; steps and their maximum lengths; residuals;
   the two measures of the filter.

   The primal variables are one vector v = (x (N + 1, n), u (N, m), s (rows)) with bounds lower, upper and their multipliers zl, zu.  A free
   variable has infinite bounds.  The residual of a row is g - s, with the slack s, for an INEQUALITY, and g - target for an EQUALITY. */
#pragma once
#include "interior_constants.h"
#include "../../../lq/kernels/equality_riccati.h"

/* Structure of a problem.  row (N + 2): knot k has the rows row[k] .. row[k + 1]; kind (rows).  fixed (fixes): indices of state entries that
   equal bounds fix at the values `at`, for knot k from fix[k] on.  held (N, m): controls that steps do not change. */
typedef struct {
    long N, rows, fixes;
    lq_size size;
    const long *row, *fix, *fixed;
    const signed char *kind, *held;
    const double *lower, *upper, *target, *at;
} ipm_structure;

/* Point: primal variables v, with the defects d (N, n), row values g, first derivatives, and the Hessian blocks Q, S, R of the Lagrangian. */
typedef struct {
    double *v, *d, *g, *A, *B, *lx, *lu, *gx, *gu, *Q, *S, *R;
} ipm_point;

/* Multipliers: lambda (N, n) of the dynamics, y (rows), zl and zu of the bounds on v, f (fixes) of the fixed state entries. */
typedef struct {
    double *lambda, *y, *zl, *zu, *f;
} ipm_multipliers;

/* Step of v; z: new multipliers lambda, y, f, and the steps of zl, zu. */
typedef struct {
    double *v;
    ipm_multipliers z;
} ipm_step;

/* Settings of a system.  mu: barrier parameter; scale: that of the objective; weight: that of the Hessian; soft: regularization of the
   equations, 0 for hard ones; mode: NEWTON, FEASIBILITY (without objective), ESTIMATE (of multipliers). */
typedef struct {
    double mu, scale, weight, soft;
    long mode;
} ipm_settings;

/* Condensed problem: Q, S, R, q, r, d (N, n), and its equations C, D, e with the offsets `row`.  Arrays of the size of v: Sigma, phi, and
   the inverse distances `below` and `above` from the bounds, zero without a bound. */
typedef struct {
    double *Q, *S, *R, *q, *r, *d, *C, *D, *e, *Sigma, *phi, *below, *above;
    long *row;
} ipm_condensed;

/* Largest absolute entry of x, at least `most`; NaN if an entry or `most` is NaN. */
static double largest(const double *x, long count, double most)
{
    for (long i = 0; i < count; i++)
        if (!(fabs(x[i]) <= most) && most == most) most = fabs(x[i]);
    return most;
}

ALWAYS_INLINE long first_control(const ipm_structure *s) { return (s->N + 1) * s->size.n; }
ALWAYS_INLINE long first_slack(const ipm_structure *s) { return first_control(s) + s->N * s->size.m; }
ALWAYS_INLINE long numbers(const ipm_structure *s) { return first_slack(s) + s->rows; }

/* Set phi for another mu; the inverse distances are known. */
static void barrier_gradient(const ipm_structure *s, const ipm_condensed *c, double mu)
{
    const long count = numbers(s);
    const double *restrict below = c->below, *restrict above = c->above;
    double *restrict phi = c->phi;
    for (long i = 0; i < count; i++) phi[i] = mu * (above[i] - below[i]);
}

/* Set Sigma = zl / (v - l) + zu / (u - v) and phi, the gradient of the barrier.  ESTIMATE: Sigma = 1 on slacks, else 0; phi = zu - zl. */
static void barrier_terms(const ipm_structure *s, const double *restrict v, const ipm_multipliers *z, const ipm_settings *o, ipm_condensed *c)
{
    const long count = numbers(s), slack = first_slack(s);
    const double *restrict lower = s->lower, *restrict upper = s->upper, *restrict zl = z->zl, *restrict zu = z->zu;
    double *restrict below = c->below, *restrict above = c->above, *restrict Sigma = c->Sigma, *restrict phi = c->phi;
    for (long i = 0; i < count; i++) {
        below[i] = 1.0 / (v[i] - lower[i]), above[i] = 1.0 / (upper[i] - v[i]);
        Sigma[i] = zl[i] * below[i] + zu[i] * above[i];
    }
    barrier_gradient(s, c, o->mu);
    if (o->mode != ESTIMATE) return;
    for (long i = 0; i < count; i++) Sigma[i] = i >= slack, phi[i] = zu[i] - zl[i];
}

/* Q += w a a', S += w b a', R += w b b' for a row a (n), b (m) that is mostly zero. */
static void add_row(double w, const double *restrict a, const double *restrict b, double *restrict Q, double *restrict S,
                           double *restrict R, lq_size dims)
{
    for (int i = 0; i < N_; i++) {
        if (a[i] == 0.0) continue;
        const double f = w * a[i];
        for (int j = 0; j < N_; j++) Q[i * N_ + j] += f * a[j];
    }
    if (!b) return;
    for (int i = 0; i < M_; i++) {
        if (b[i] == 0.0) continue;
        const double f = w * b[i];
        for (int j = 0; j < N_; j++) S[i * N_ + j] += f * a[j];
        for (int j = 0; j < M_; j++) R[i * M_ + j] += f * b[j];
    }
}

ALWAYS_INLINE void add_gradient(double w, const double *restrict a, const double *restrict b, double *restrict q, double *restrict r, lq_size dims)
{
    for (int j = 0; j < N_; j++) q[j] += w * a[j];
    if (b)
        for (int j = 0; j < M_; j++) r[j] += w * b[j];
}

/* Factor w in the new multiplier w (J dz + residual) + phi / (1 + soft Sigma) of an inequality. */
ALWAYS_INLINE double stiffness(double Sigma, double soft) { return Sigma / (1.0 + soft * Sigma); }

/* Softness of the terminal equations in Newton steps, if controls of more than KNOTS_AT_END knots would have to satisfy them. */
#define PROXIMAL 1e-8
#define KNOTS_AT_END 2

/* Softness of the equations at knot k: that of the settings; PROXIMAL; or 0 for hard ones.  Elimination at the last knots divides by products
   of time steps, as many as it takes knots: its rounding errors then exceed the curvature of the problem.  Soft equations are proximal:
   a dx + e = soft (y_new - y) for the multipliers y at the point, which vanishes at a solution (R. T. Rockafellar, Augmented Lagrangians and
   applications of the proximal point algorithm in convex programming, Math. Oper. Res. 1, 1976). */
static double softness(const ipm_structure *s, const ipm_settings *o, long k)
{
    if (o->soft > 0.0 || o->mode != NEWTON || k < s->N) return o->soft;
    long equations = s->fix[k + 1] - s->fix[k];
    for (long i = s->row[k]; i < s->row[k + 1]; i++) equations += s->kind[i] == EQUALITY;
    return equations > KNOTS_AT_END * s->size.m ? PROXIMAL : 0.0;
}

/* Multiplier y that a soft equation is centered at: that of the point in Newton steps, else 0. */
ALWAYS_INLINE double center(const ipm_settings *o, double y) { return o->mode == NEWTON && o->soft == 0.0 ? y : 0.0; }

/* Add an equation a dx + b du + e = 0 with multiplier y to the condensed problem; a soft one as a square to its objective. */
static void add_equation(const double *a, const double *b, double e, double y, double soft, ipm_condensed *c, long *count, long k, lq_size dims)
{
    if (soft > 0.0) {
        add_row(1.0 / soft, a, b, c->Q + k * N_ * N_, c->S + k * M_ * N_, c->R + k * M_ * M_, dims);
        add_gradient(e / soft + y, a, b, c->q + k * N_, c->r + k * M_, dims);
        return;
    }
    memcpy(c->C + *count * N_, a, sizeof(double) * N_);
    if (b) memcpy(c->D + *count * M_, b, sizeof(double) * M_);
    c->e[(*count)++] = e;
}

/* Add the inequalities of knot k: J' w J to the Hessian and J'(w (g - s) + phi) to the gradient, as matrix products. */
static void add_inequalities(const ipm_structure *s, const ipm_point *p, const ipm_settings *o, ipm_condensed *c, long k)
{
    const lq_size dims = s->size;
    const long first = s->row[k], rows = s->row[k + 1] - first, slack = first_slack(s);
    double *Q = c->Q + k * N_ * N_, *S = c->S + k * M_ * N_, *R = c->R + k * M_ * M_, *q = c->q + k * N_, *r = c->r + k * M_;
    if (!rows) return;
    double a[rows * N_], b[rows * M_], wa[rows * N_], wb[rows * M_], h[rows], on_controls = 0.0;
    int count = 0;
    for (long i = first; i < first + rows; i++) {
        if (s->kind[i] != INEQUALITY) continue;
        const double own = c->Sigma[slack + i], w = stiffness(own, o->soft), e = o->mode == ESTIMATE ? 0.0 : p->g[i] - p->v[slack + i];
        h[count] = w * e + c->phi[slack + i] / (1.0 + o->soft * own);
        for (int j = 0; j < N_; j++) a[count * N_ + j] = p->gx[i * N_ + j], wa[count * N_ + j] = w * p->gx[i * N_ + j];
        for (int j = 0; k < s->N && j < M_; j++) {
            b[count * M_ + j] = p->gu[i * M_ + j], wb[count * M_ + j] = w * p->gu[i * M_ + j];
            on_controls += fabs(b[count * M_ + j]);
        }
        count++;
    }
    TRANSPOSED_PRODUCT(Q, a, wa, N_, count, N_, 1);
    PRODUCT(q, h, a, 1, count, N_, 1);
    if (on_controls == 0.0) return;
    TRANSPOSED_PRODUCT(S, wb, a, M_, count, N_, 1);
    TRANSPOSED_PRODUCT(R, b, wb, M_, count, M_, 1);
    PRODUCT(r, h, b, 1, count, M_, 1);
}

static void condense_knot(const ipm_structure *s, const ipm_point *p, const ipm_multipliers *z, const ipm_settings *o, ipm_condensed *c,
                          long *count, long k)
{
    const lq_size dims = s->size;
    const long u = first_control(s) + k * M_, slack = first_slack(s);
    const double weight = o->weight, one = o->mode == ESTIMATE, soft = softness(s, o, k);
    const double *Sigma = c->Sigma + k * N_, *phi = c->phi + k * N_, scale = o->mode == FEASIBILITY ? 0.0 : o->scale;
    double *Q = c->Q + k * N_ * N_, *S = c->S + k * M_ * N_, *R = c->R + k * M_ * M_, *q = c->q + k * N_, *r = c->r + k * M_;
    for (int i = 0; i < N_ * N_; i++) Q[i] = weight != 0.0 ? weight * p->Q[k * N_ * N_ + i] : 0.0;
    for (int i = 0; i < N_; i++) {
        Q[i * (N_ + 1)] += Sigma[i] + one;
        q[i] = scale * p->lx[k * N_ + i] + phi[i];
    }
    if (k < s->N) {
        const signed char *held = s->held + k * M_;
        for (int i = 0; i < M_ * N_; i++) S[i] = weight != 0.0 && !held[i / N_] ? weight * p->S[k * M_ * N_ + i] : 0.0;
        for (int i = 0; i < M_ * M_; i++) R[i] = weight != 0.0 && !held[i / M_] && !held[i % M_] ? weight * p->R[k * M_ * M_ + i] : 0.0;
        for (int i = 0; i < M_; i++) {
            R[i * (M_ + 1)] += held[i] ? 1.0 : c->Sigma[u + i] + one;
            r[i] = held[i] ? 0.0 : scale * p->lu[k * M_ + i] + c->phi[u + i];
        }
        for (int i = 0; i < N_; i++) c->d[k * N_ + i] = one != 0.0 ? 0.0 : p->d[k * N_ + i];
    }
    c->row[k] = *count;
    add_inequalities(s, p, o, c, k);
    for (long i = s->row[k]; i < s->row[k + 1]; i++) {
        const double *a = p->gx + i * N_, *b = k < s->N ? p->gu + i * M_ : NULL;
        if (s->kind[i] == EQUALITY) {
            add_equation(a, b, one != 0.0 ? 0.0 : p->g[i] - s->target[i], center(o, z->y[i]), soft, c, count, k, dims);
        }
    }
    for (long i = s->fix[k]; i < s->fix[k + 1]; i++) {
        double a[N_], none[M_];
        memset(a, 0, sizeof a);
        memset(none, 0, sizeof none);
        a[s->fixed[i]] = 1.0;
        const double e = p->v[k * N_ + s->fixed[i]] - s->at[i];
        add_equation(a, k < s->N ? none : NULL, one != 0.0 ? 0.0 : e, center(o, z->f[i]), soft, c, count, k, dims);
    }
    c->row[k + 1] = *count;
}

/* Compute the residuals of the rows (rows) and of the fixed state entries (fixes). */
EXPORT void ipm_residuals(const ipm_structure *s, const double *v, const double *g, double *rows, double *fixes)
{
    const lq_size dims = s->size;
    const double *slack = v + first_slack(s);
    for (long i = 0; i < s->rows; i++)
        rows[i] = s->kind[i] == INEQUALITY ? g[i] - slack[i] : s->kind[i] == EQUALITY ? g[i] - s->target[i] : 0.0;
    for (long k = 0; k <= s->N; k++)
        for (long i = s->fix[k]; i < s->fix[k + 1]; i++) fixes[i] = v[k * N_ + s->fixed[i]] - s->at[i];
}

/* Step length, at most 1, that uses at most the fraction `tau` of each distance to a bound; ratio: the largest of step / distance. */
ALWAYS_INLINE double reach(double ratio, double tau) { return ratio > tau ? tau / ratio : 1.0; }

/* Update z by alpha dz, clipped to within a factor of mu / (distance from the bound): Waechter and Biegler, eq. 16. */
EXPORT void ipm_move_duals(const ipm_structure *s, const double *restrict v, const ipm_multipliers *dz, double alpha, double mu,
                           double factor, const ipm_multipliers *z)
{
    const long count = numbers(s);
    const double *bounds[2] = {s->lower, s->upper}, *steps[2] = {dz->zl, dz->zu};
    double *own[2] = {z->zl, z->zu};
    for (int side = 0; side < 2; side++) {
        const double *restrict bound = bounds[side], *restrict step = steps[side], way = side ? -mu : mu;
        double *restrict at = own[side];
        for (long i = 0; i < count; i++) {
            const double central = way / (v[i] - bound[i]), high = factor * central, low = central / factor;
            double value = at[i] + alpha * step[i];
            value = value > high ? high : value;
            at[i] = value < low ? low : value;
        }
    }
}

/* Update the multipliers after a step: move lambda, y and f by the fraction alpha toward those of `to`, and zl, zu by alpha_z times their steps. */
EXPORT void ipm_take(const ipm_structure *s, const double *v, const ipm_multipliers *to, double alpha, double alpha_z, double mu, double factor,
                     const ipm_multipliers *z)
{
    const lq_size dims = s->size;
    for (long i = 0; i < s->N * N_; i++) z->lambda[i] += alpha * (to->lambda[i] - z->lambda[i]);
    for (long i = 0; i < s->rows; i++) z->y[i] += alpha * (to->y[i] - z->y[i]);
    for (long i = 0; i < s->fixes; i++) z->f[i] += alpha * (to->f[i] - z->f[i]);
    ipm_move_duals(s, v, to, alpha_z, mu, factor, z);
}

/* Sums over residuals t: |t|, the largest |t|, t^2. */
typedef struct {
    double sum, most, squares;
} violation_t;

ALWAYS_INLINE void add_violation(violation_t *all, double t)
{
    t = fabs(t);
    all->sum += t, all->squares += t * t;
    all->most = t > all->most ? t : all->most;
}

/* out: violation as l1 norm and largest entry, largest defect, -sum of the logarithms of the distances from bounds, sum of squares of the
   violation.  The violation is NaN if it is not finite. */
EXPORT void ipm_values(const ipm_structure *s, const double *v, const double *d, const double *g, double *out)
{
    const lq_size dims = s->size;
    const double *slack = v + first_slack(s);
    const long count = numbers(s);
    violation_t all = {0.0};
    double defect, logarithms = 0.0;

    for (long i = 0; i < s->N * N_; i++) add_violation(&all, d[i]);
    defect = all.most;
    for (long i = 0; i < s->rows; i++)
        if (s->kind[i] != ABSENT) add_violation(&all, g[i] - (s->kind[i] == INEQUALITY ? slack[i] : s->target[i]));
    for (long k = 0; k <= s->N; k++)
        for (long i = s->fix[k]; i < s->fix[k + 1]; i++) add_violation(&all, v[k * N_ + s->fixed[i]] - s->at[i]);
    for (long i = 0; i < count; i++) {
        const double below = v[i] - s->lower[i], above = s->upper[i] - v[i];
        logarithms += (below < HUGE_VAL ? log(below) : 0.0) + (above < HUGE_VAL ? log(above) : 0.0);
    }
    const int bad = !(all.sum < HUGE_VAL);
    out[0] = bad ? NAN : all.sum, out[1] = bad ? NAN : all.most, out[2] = defect, out[3] = -logarithms, out[4] = all.squares;
}

/* out: largest entry of the gradient of the Lagrangian, and of the complementarity for mu = 0 and for mu; sum of |lambda|, |y|, |f|, and of z;
   their counts; sum of the products z (distance); sum of squares of the gradient with its slack part. */
EXPORT void ipm_measure(const ipm_structure *s, const ipm_point *p, const ipm_multipliers *z, double scale, double mu, double *out)
{
    const lq_size dims = s->size;
    const long N = s->N, control = first_control(s), slack = first_slack(s), count = numbers(s);
    double gradient = 0.0, plain = 0.0, shifted = 0.0, sum_y = 0.0, sum_z = 0.0, total = 0.0, squares = 0.0;
    long counted_y = N * N_ + s->fixes, counted_z = 0;
    for (long k = 0; k <= N; k++) {
        double x[N_], u[M_];
        for (int i = 0; i < N_; i++) {
            x[i] = scale * p->lx[k * N_ + i] + z->zu[k * N_ + i] - z->zl[k * N_ + i];
            if (k) x[i] -= z->lambda[(k - 1) * N_ + i];
        }
        if (k < N) {
            for (int i = 0; i < M_; i++) u[i] = scale * p->lu[k * M_ + i] + z->zu[control + k * M_ + i] - z->zl[control + k * M_ + i];
            PRODUCT(x, z->lambda + k * N_, p->A + k * N_ * N_, 1, N_, N_, 1);
            PRODUCT(u, z->lambda + k * N_, p->B + k * N_ * M_, 1, N_, M_, 1);
        }
        for (long i = s->row[k]; i < s->row[k + 1]; i++) {
            if (s->kind[i] == ABSENT) continue;
            add_gradient(z->y[i], p->gx + i * N_, k < N ? p->gu + i * M_ : NULL, x, u, dims);
            sum_y += fabs(z->y[i]);
            counted_y++;
            if (s->kind[i] == INEQUALITY) {
                const double t = fabs(z->zu[slack + i] - z->zl[slack + i] - z->y[i]);
                gradient = t > gradient || t != t ? t : gradient;
                squares += t * t;
            }
        }
        for (long i = s->fix[k]; i < s->fix[k + 1]; i++) x[s->fixed[i]] += z->f[i], sum_y += fabs(z->f[i]);
        for (int i = 0; k && i < N_; i++) {
            gradient = fabs(x[i]) > gradient || x[i] != x[i] ? fabs(x[i]) : gradient;
            squares += x[i] * x[i];
        }
        for (int i = 0; k < N && i < M_; i++) {
            if (s->held[k * M_ + i]) continue;
            gradient = fabs(u[i]) > gradient || u[i] != u[i] ? fabs(u[i]) : gradient;
            squares += u[i] * u[i];
        }
    }
    for (long i = 0; i < N * N_; i++) sum_y += fabs(z->lambda[i]);
    const double *bounds[2] = {s->lower, s->upper}, *values[2] = {z->zl, z->zu};
    for (int side = 0; side < 2; side++) {
        const double *restrict bound = bounds[side], *restrict value = values[side], *restrict v = p->v, way = side ? -1.0 : 1.0;
        for (long i = 0; i < count; i++) {
            const double distance = way * (v[i] - bound[i]);
            if (!(distance < HUGE_VAL)) continue;
            const double t = distance * value[i];
            counted_z++, sum_z += value[i], total += t;
            plain = fabs(t) > plain ? fabs(t) : plain;
            shifted = fabs(t - mu) > shifted ? fabs(t - mu) : shifted;
        }
    }
    out[0] = gradient, out[1] = plain, out[2] = shifted, out[3] = sum_y, out[4] = sum_z, out[5] = counted_y, out[6] = counted_z;
    out[7] = total, out[8] = squares;
}

/* Move v strictly inside its bounds (Waechter and Biegler, after eq. 35); g: row values that set the slacks first, or NULL. */
EXPORT void ipm_push(const ipm_structure *s, const double *g, double push, double fraction, double *v)
{
    const long slack = first_slack(s), count = numbers(s);
    for (long i = 0; g && i < s->rows; i++) v[slack + i] = s->kind[i] == INEQUALITY ? g[i] : 0.0;
    for (long i = 0; i < count; i++) {
        const double l = s->lower[i], u = s->upper[i], width = u - l;
        double low = push * (fabs(l) > 1.0 ? fabs(l) : 1.0), high = push * (fabs(u) > 1.0 ? fabs(u) : 1.0);
        if (width < HUGE_VAL) {
            low = low < fraction * width ? low : fraction * width;
            high = high < fraction * width ? high : fraction * width;
        }
        if (l > -HUGE_VAL && v[i] < l + low) v[i] = l + low;
        if (u < HUGE_VAL && v[i] > u - high) v[i] = u - high;
    }
}
