/* Newton system of trajopt/solvers/interior/newton.py: condensed, made positive definite, factored, and solved for steps.  Requires
   equality_riccati.h, interior_point.h, reflection.h and centering.h. */
#pragma once
#include "centering.h"
#include "reflection.h"

/* Newton system: structure of the problem; condensed LQ problem with its factors and solution; residuals of rows and of fixed state entries;
   workspace: ten times the size of v; settings.  shift, last_shift: current shift of H, and the last nonzero one.  reflected: number of
   knots with reflected Hessians.  alpha, alpha_z, slope, mu_of_step: step lengths, slope and barrier parameter of the last step. */
typedef struct {
    const ipm_structure *structure;
    ipm_condensed *condensed;
    elq_matrices *matrices;
    const elq_vectors *vectors;
    const elq_factors *factors;
    const elq_step *solution;
    double *rows, *fixes, *workspace;
    ipm_settings settings;
    double shift, last_shift, alpha, alpha_z, slope, mu_of_step;
    long reflected;
} ipm_system;

/* Build the system at a point, with its settings. */
EXPORT void ipm_build(ipm_system *o, const ipm_point *p, const ipm_multipliers *z)
{
    const ipm_structure *s = o->structure;
    long count = 0;
    barrier_terms(s, p->v, z, &o->settings, o->condensed);
    for (long k = 0; k <= s->N; k++) condense_knot(s, p, z, &o->settings, o->condensed, &count, k);
    ipm_residuals(s, p->v, p->g, o->rows, o->fixes);
    o->matrices->A = p->A, o->matrices->B = p->B;
}

/* Knot k of a problem with N time steps. */
typedef struct {
    const ipm_condensed *of;
    long N, k;
} knot_t;

/* Knots in lanes: the blocks Q, S, R of their Hessians, with sizes, and the full Hessian H, to be reflected.  zeros, unused: source and target
   of the blocks S, R that the last knot does not have. */
typedef struct {
    knot_t lanes[LANES];
    long sizes[3];
    V *blocks[3], *H;
    double *zeros, *unused;
    reflecting_t workspace;
} knot_lanes_t;

/* Workspace of a thread, reused by later calls; NULL if the allocation fails. */
static double *thread_memory(long doubles)
{
    static _Thread_local double *memory = NULL;
    static _Thread_local long length = 0;
    if (doubles <= length) return memory;
    free(memory);
    length = (doubles + 7) / 8 * 8, memory = aligned_alloc(64, sizeof(double) * length);
    if (!memory) length = 0;
    return memory;
}

/* Allocate memory for knots in lanes; returns 0 if the allocation fails. */
static int allocate_lanes(knot_lanes_t *b, lq_size dims)
{
    const long whole = W_ * W_, sizes[3] = {N_ * N_, M_ * N_, M_ * M_};
    V *end = (V *)thread_memory(LANES * (sizes[0] + sizes[1] + sizes[2] + 3 * whole + 3 * W_) + 2 * whole);
    if (!end) return 0;
    for (int i = 0; i < 3; i++) b->sizes[i] = sizes[i], b->blocks[i] = end, end += sizes[i];
    b->H = end, b->workspace.H = end + whole, b->workspace.Z = end + 2 * whole, b->workspace.d = end + 3 * whole;
    b->workspace.e = b->workspace.d + W_, b->workspace.beta = b->workspace.e + W_;
    b->zeros = (double *)(b->workspace.beta + W_), b->unused = b->zeros + whole;
    memset(b->zeros, 0, sizeof(double) * whole);
    return 1;
}

/* Block Q, S or R (i = 0, 1, 2) of a knot; NULL for S and R of the last knot. */
static double *block_of(const knot_t *knot, int i, long size)
{
    double *const blocks[3] = {knot->of->Q, knot->of->S, knot->of->R};
    return i && knot->k == knot->N ? NULL : blocks[i] + knot->k * size;
}

/* Reflect the Hessians of the knots in lanes: replace eigenvalues by their absolute values. */
static void reflect_lanes(knot_lanes_t *b, lq_size dims)
{
    V *Q = b->blocks[0], *S = b->blocks[1], *R = b->blocks[2];
    for (int i = 0; i < 3; i++) {
        const double *from[LANES];
        for (int l = 0; l < LANES; l++) {
            const double *block = block_of(b->lanes + l, i, b->sizes[i]);
            from[l] = block ? block : b->zeros;
        }
        pack_rows(from, b->sizes[i], b->blocks[i]);
    }
    for (int l = 0; l < LANES; l++) { /* the last knot: dummy controls whose eigenvalues do not exceed the others */
        if (b->lanes[l].k < b->lanes[l].N) continue;
        const double most = largest(block_of(b->lanes + l, 0, b->sizes[0]), N_ * N_, 0.0);
        for (int i = 0; i < M_; i++) R[i * (M_ + 1)][l] = most;
    }
    for (int i = 0; i < N_; i++) {
        for (int j = i; j < N_; j++) b->H[i * W_ + j] = Q[i * N_ + j];
        for (int j = 0; j < M_; j++) b->H[i * W_ + N_ + j] = S[j * N_ + i];
    }
    for (int i = 0; i < M_; i++)
        for (int j = i; j < M_; j++) b->H[(N_ + i) * W_ + N_ + j] = R[i * M_ + j];
    if (!reflect(b->H, &b->workspace, dims)) return;
    for (int i = 0; i < N_; i++) {
        for (int j = 0; j < N_; j++) Q[i * N_ + j] = UPPER(b->H, i, j);
        for (int j = 0; j < M_; j++) S[j * N_ + i] = b->H[i * W_ + N_ + j];
    }
    for (int i = 0; i < M_; i++)
        for (int j = 0; j < M_; j++) R[i * M_ + j] = UPPER(b->H, N_ + i, N_ + j);
}

/* Write the Hessians in the lanes first .. end back to their knots. */
static void unpack_lanes(knot_lanes_t *b, long first, long end)
{
    for (int i = 0; i < 3; i++) {
        double *to[LANES];
        for (int l = 0; l < LANES; l++) {
            double *block = first <= l && l < end ? block_of(b->lanes + l, i, b->sizes[i]) : NULL;
            to[l] = block ? block : b->unused;
        }
        unpack_rows(b->blocks[i], b->sizes[i], to);
    }
}

/* Reflect the Hessians of the knots first .. end, except non-finite ones.  Free lanes hold earlier knots, most of which later calls need: b
   caches their Hessians, with knot *top in its first lane (-1: empty cache). */
static void reflect_knots(const ipm_condensed *c, long N, long first, long end, knot_lanes_t *b, long *top, lq_size dims)
{
    for (long k = end - 1; k >= first;) {
        if (*top < k || k <= *top - LANES) {
            for (int l = 0; l < LANES; l++) b->lanes[l] = (knot_t){c, N, k - l > 0 ? k - l : 0};
            reflect_lanes(b, dims), *top = k;
        }
        const long last = *top - LANES + 1 > first ? *top - LANES + 1 : first;
        unpack_lanes(b, *top - k, *top - last + 1);
        k = last - 1;
    }
}

/* Factor the system with a shift `shift`, and soft dynamics if soft > 0; returns the knot that is not positive definite, or -1. */
EXPORT long ipm_factor_damped(ipm_system *o, double shift, double soft)
{
    o->matrices->shift = shift, o->matrices->soft = soft;
    return elq_factor(o->matrices, o->factors);
}

/* Factor the system with the first shift of a growing series that makes it positive definite; returns 0 if none does. */
static int factor_shifted(ipm_system *o)
{
    const int first = o->last_shift == 0.0;
    o->shift = first ? FIRST_SHIFT : LOWER * o->last_shift > MIN_SHIFT ? LOWER * o->last_shift : MIN_SHIFT;
    while (ipm_factor_damped(o, o->shift, 0.0) >= 0) {
        o->shift *= first ? FASTER : RAISE;
        if (o->shift > MAX_SHIFT) return 0;
    }
    o->last_shift = o->shift;
    return 1;
}

/* Factor the system; make it positive definite if it is not.  With `reflections`, reflect the Hessians from the failing knot up to the previous
   failing knot or the end, and repeat.  Without them, or if they fail, shift all Hessians.  Returns 0 if nothing succeeds. */
EXPORT int ipm_factor(ipm_system *o, int reflections)
{
    const lq_size dims = o->structure->size;
    o->shift = 0.0, o->reflected = 0;
    long top = -1, end = o->structure->N + 1, failed = ipm_factor_damped(o, 0.0, 0.0);
    knot_lanes_t b;
    if (!reflections || failed < 0 || !allocate_lanes(&b, dims)) return failed < 0 || factor_shifted(o);
    while (failed >= 0 && failed < end) {
        reflect_knots(o->condensed, o->structure->N, failed, end, &b, &top, dims);
        o->reflected += end - failed;
        const long behind = end - 1;
        end = failed, failed = factor_from(o->matrices, o->factors, behind);
    }
    return failed < 0 || factor_shifted(o);
}

/* Compute the steps of zl and zu from that of v, and the maximum step lengths; returns the part phi'step of the slope.  tau: fraction of a
   distance that a step may use. */
static double recover_bounds(ipm_system *o, const ipm_multipliers *z, double tau, const ipm_step *to)
{
    const ipm_condensed *c = o->condensed;
    const double *restrict below = c->below, *restrict above = c->above, *restrict phi = c->phi, *restrict zl = z->zl, *restrict zu = z->zu;
    const double *restrict step = to->v, mu = o->settings.mu;
    double *restrict dl = to->z.zl, *restrict du = to->z.zu, slope = 0.0, primal = 0.0, dual = 0.0;
    const long count = numbers(o->structure);
    for (long i = 0; i < count; i++) {
        const double own = step[i];
        const double l = (mu - zl[i] * own) * below[i] - zl[i], u = (mu + zu[i] * own) * above[i] - zu[i];
        const double near = own > 0.0 ? own * above[i] : -own * below[i], rl = -l / zl[i], ru = -u / zu[i];
        dl[i] = l, du[i] = u;
        slope += phi[i] * own;
        primal = near > primal ? near : primal;
        dual = rl > dual ? rl : dual;
        dual = ru > dual ? ru : dual;
    }
    o->alpha = reach(primal, tau), o->alpha_z = reach(dual, tau);
    return slope;
}

/* Directional derivative of the objective along a step. */
static double objective_slope(const ipm_system *o, const ipm_point *p, const double *step)
{
    const lq_size dims = o->structure->size;
    const ipm_structure *s = o->structure;
    const double *du = step + first_control(s);
    double slope = 0.0;
    for (long i = 0; i < first_control(s); i++) slope += p->lx[i] * step[i];
    for (long i = 0; i < s->N * M_; i++) slope += p->lu[i] * du[i];
    return o->settings.scale * slope;
}

/* Recover the slack steps, the new multipliers y and f, the steps of zl and zu, the step lengths and the slope, from dx, du and row residuals. */
static void recover(ipm_system *o, const ipm_point *p, const ipm_multipliers *z, const double *rows, double tau, const ipm_step *to)
{
    const lq_size dims = o->structure->size;
    const ipm_structure *s = o->structure;
    const ipm_condensed *c = o->condensed;
    const long N = s->N, slack = first_slack(s);
    const double *y = o->solution->y, given = o->settings.soft;
    double *restrict step = to->v;
    long at = 0;
    for (long k = 0; k <= N; k++) {
        const double *dx = step + k * N_, *du = step + first_control(s) + k * M_, soft = softness(s, &o->settings, k);
        for (long i = s->row[k]; i < s->row[k + 1]; i++) {
            step[slack + i] = 0.0;
            to->z.y[i] = 0.0;
            if (s->kind[i] == ABSENT) continue;
            double t = rows[i];
            if (s->kind[i] == INEQUALITY || soft > 0.0) {
                for (int j = 0; j < N_; j++) t += p->gx[i * N_ + j] * dx[j];
                for (int j = 0; k < N && j < M_; j++) t += p->gu[i * M_ + j] * du[j];
            }
            if (s->kind[i] == INEQUALITY) {
                const double own = c->Sigma[slack + i];
                to->z.y[i] = (own * t + c->phi[slack + i]) / (1.0 + given * own);
                step[slack + i] = t - given * to->z.y[i];
            } else {
                const double reads = largest(p->gx + i * N_, N_, 0.0); /* no step changes a row without entries: its multiplier would only grow */
                to->z.y[i] = soft > 0.0 ? (reads > 0.0 || given > 0.0 ? t / soft : 0.0) + center(&o->settings, z->y[i]) : y[at++];
            }
        }
        for (long i = s->fix[k]; i < s->fix[k + 1]; i++)
            to->z.f[i] = soft > 0.0 ? (p->v[k * N_ + s->fixed[i]] - s->at[i] + dx[s->fixed[i]]) / soft + center(&o->settings, z->f[i]) : y[at++];
    }
    o->slope = objective_slope(o, p, step) + recover_bounds(o, z, tau, to);
}

/* Solve for the step of the condensed vectors, with the given row residuals; tau: fraction of the distance to a bound that it may use. */
EXPORT void ipm_solve(ipm_system *o, const ipm_point *p, const ipm_multipliers *z, const double *rows, double tau, const ipm_step *to)
{
    const lq_size dims = o->structure->size;
    const ipm_structure *s = o->structure;
    const elq_step *found = o->solution;
    memset(found->dx, 0, sizeof(double) * N_);
    elq_solve(o->matrices, o->vectors, o->factors, found);
    memcpy(to->v, found->dx, sizeof(double) * (s->N + 1) * N_);
    memcpy(to->v + first_control(s), found->du, sizeof(double) * s->N * M_);
    memcpy(to->z.lambda, found->lambda, sizeof(double) * s->N * N_);
    recover(o, p, z, rows, tau, to);
}

/* Recompute the vectors of the condensed problem for other residuals, those of a second-order correction. */
EXPORT void ipm_vectors(const ipm_system *system, const ipm_point *p, const ipm_multipliers *z, const double *d, const double *rows,
                        const double *fixes)
{
    const ipm_structure *s = system->structure;
    const ipm_settings *o = &system->settings;
    ipm_condensed *c = system->condensed;
    const lq_size dims = s->size;
    const long slack = first_slack(s);
    long count = 0;
    memcpy(c->d, d, sizeof(double) * s->N * N_);
    for (long k = 0; k <= s->N; k++) {
        double *q = c->q + k * N_, *r = c->r + k * M_;
        const long u = first_control(s) + k * M_;
        const double soft = softness(s, o, k);
        for (int i = 0; i < N_; i++) q[i] = o->scale * p->lx[k * N_ + i] + c->phi[k * N_ + i];
        for (int i = 0; k < s->N && i < M_; i++) r[i] = s->held[k * M_ + i] ? 0.0 : o->scale * p->lu[k * M_ + i] + c->phi[u + i];
        for (long i = s->row[k]; i < s->row[k + 1]; i++) {
            if (s->kind[i] == INEQUALITY)
                add_gradient(c->Sigma[slack + i] * rows[i] + c->phi[slack + i], p->gx + i * N_, k < s->N ? p->gu + i * M_ : NULL, q, r, dims);
            else if (s->kind[i] == EQUALITY) {
                if (soft > 0.0) add_gradient(rows[i] / soft + center(o, z->y[i]), p->gx + i * N_, k < s->N ? p->gu + i * M_ : NULL, q, r, dims);
                else c->e[count++] = rows[i];
            }
        }
        for (long i = s->fix[k]; i < s->fix[k + 1]; i++) {
            if (soft > 0.0) q[s->fixed[i]] += fixes[i] / soft + center(o, z->f[i]);
            else c->e[count++] = fixes[i];
        }
    }
}

/* Set a = a + sigma (b - a). */
static void between(double *restrict a, const double *restrict b, double sigma, long count)
{
    for (long i = 0; i < count; i++) a[i] += sigma * (b[i] - a[i]);
}

/* Solve for the step with mu = sigma mean, where the quality function chooses sigma.  The system was built for mu = 0.  As it is linear in mu,
   the step interpolates between those for mu = 0 and mu = mean.  other: memory for the step for mu = mean. */
EXPORT void ipm_centered(ipm_system *o, const ipm_point *p, const ipm_multipliers *z, const ipm_aim *aim, const ipm_step *other,
                         const ipm_step *to)
{
    const lq_size dims = o->structure->size;
    const ipm_structure *s = o->structure;
    const long count = numbers(s);
    double *workspace = o->workspace;
    ipm_oracle oracle = {workspace, workspace + 2 * count, workspace + 4 * count, workspace + 6 * count, workspace + 8 * count, aim, 0};
    ipm_solve(o, p, z, o->rows, aim->tau, to);
    o->settings.mu = aim->mean;
    barrier_gradient(s, o->condensed, aim->mean);
    ipm_vectors(o, p, z, p->d, o->rows, o->fixes);
    ipm_solve(o, p, z, o->rows, aim->tau, other);
    fill_bounds(o->condensed, z, to, other, count, &oracle);
    const double sigma = centering(&oracle);
    o->settings.mu = o->mu_of_step = sigma * aim->mean;
    between(to->v, other->v, sigma, count);
    between(to->z.lambda, other->z.lambda, sigma, s->N * N_);
    between(to->z.y, other->z.y, sigma, s->rows);
    between(to->z.f, other->z.f, sigma, s->fixes);
    barrier_gradient(s, o->condensed, o->settings.mu);
    o->slope = objective_slope(o, p, to->v) + recover_bounds(o, z, aim->tau, to);
}
