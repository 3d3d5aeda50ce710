/* The Newton system of trajopt/solvers/ipm/newton.py: condensed, made positive definite, factored, and solved for steps.  Before this text
   stand equality_riccati.h, interior_point.h, reflection.h and centering.h. */

/* What the system is made of: the problem's structure, the condensed LQ problem, its factors and solution; residuals of rows and of fixed
   numbers of the state; room for ten times as many numbers as v; settings.  shift, last_shift: of H, now and the last that was not zero; reflected: knots whose Hessians changed
   the sign of eigenvalues.  alpha, alpha_z, slope: of the last step; mu_of_step: its barrier parameter. */
typedef struct {
    const ipm_structure *structure;
    ipm_condensed *condensed;
    elq_matrices *matrices;
    const elq_vectors *vectors;
    const elq_factors *factors;
    const elq_step *solution;
    double *rows, *fixes, *room;
    ipm_settings settings;
    double shift, last_shift, alpha, alpha_z, slope, mu_of_step;
    long reflected;
} ipm_system;

/* Build the system at a point by its settings. */
EXPORT void ipm_build(ipm_system *o, const ipm_point *p, const ipm_multipliers *z)
{
    condense(o->structure, p, z, &o->settings, o->condensed);
    residuals(o->structure, p->v, p->g, o->rows, o->fixes);
    o->matrices->A = p->A, o->matrices->B = p->B;
}

/* The Hessians of the knots first .. end with the sizes of their eigenvalues. */
static void reflect_knots(ipm_system *o, long first, long end)
{
    ipm_condensed *c = o->condensed;
    const long N = o->structure->N;
    double H[W_ * ROW_];
    memset(H, 0, sizeof H);
    for (long k = first; k < end && k < N; k++) {
        double *Q = c->Q + k * N_ * N_, *S = c->S + k * M_ * N_, *R = c->R + k * M_ * M_;
        for (int i = 0; i < N_; i++) {
            memcpy(H + i * ROW_, Q + i * N_, sizeof(double) * N_);
            for (int j = 0; j < M_; j++) H[i * ROW_ + N_ + j] = S[j * N_ + i];
        }
        for (int i = 0; i < M_; i++) {
            memcpy(H + (N_ + i) * ROW_, S + i * N_, sizeof(double) * N_);
            memcpy(H + (N_ + i) * ROW_ + N_, R + i * M_, sizeof(double) * M_);
        }
        if (!reflect(H, W_)) return;
        for (int i = 0; i < N_; i++) memcpy(Q + i * N_, H + i * ROW_, sizeof(double) * N_);
        for (int i = 0; i < M_; i++) {
            memcpy(S + i * N_, H + (N_ + i) * ROW_, sizeof(double) * N_);
            memcpy(R + i * M_, H + (N_ + i) * ROW_ + N_, sizeof(double) * M_);
        }
    }
    if (end > N) {
        double *Q = c->Q + N * N_ * N_;
        memset(H, 0, sizeof H);
        for (int i = 0; i < N_; i++) memcpy(H + i * ROW_, Q + i * N_, sizeof(double) * N_);
        reflect(H, N_);
        for (int i = 0; i < N_; i++) memcpy(Q + i * N_, H + i * ROW_, sizeof(double) * N_);
    }
    o->reflected += end - first;
}

static long factored(ipm_system *o, double shift, double soft)
{
    o->matrices->shift = shift, o->matrices->soft = soft;
    return elq_factor(o->matrices, o->factors);
}

/* Factor it, soft dynamics with the damping; the knot that is not positive definite, or -1. */
EXPORT long ipm_factor_damped(ipm_system *o, double damping, double soft) { return factored(o, damping, soft); }

/* Factor it, made positive definite where it is not: by reflections, where these are asked for, from the knot that fails to the end or to
   the last such one, else, and in the last resort, by a shift of all.  0: nothing does that. */
EXPORT int ipm_factor(ipm_system *o, int reflections)
{
    o->shift = 0.0, o->reflected = 0;
    long end = o->structure->N + 1, failed = factored(o, 0.0, 0.0);
    while (reflections && failed >= 0 && failed < end) {
        reflect_knots(o, failed, end);
        const long behind = end - 1;
        end = failed, failed = factor_from(o->matrices, o->factors, behind);
    }
    if (failed < 0) return 1;
    const int first = o->last_shift == 0.0;
    o->shift = first ? FIRST_SHIFT : LOWER * o->last_shift > LEAST_SHIFT ? LOWER * o->last_shift : LEAST_SHIFT;
    while (factored(o, o->shift, 0.0) >= 0) {
        o->shift *= first ? FASTER : RAISE;
        if (o->shift > LARGEST_SHIFT) return 0;
    }
    o->last_shift = o->shift;
    return 1;
}

/* The step for the condensed vectors, whose rows have these residuals; share: how much of a distance from a bound may go. */
EXPORT void ipm_solve(ipm_system *o, const ipm_point *p, const ipm_multipliers *z, const double *rows, double share, const ipm_step *to)
{
    const ipm_structure *s = o->structure;
    const elq_step *found = o->solution;
    double out[3];
    memset(found->dx, 0, sizeof(double) * N_);
    elq_solve(o->matrices, o->vectors, o->factors, found);
    memcpy(to->v, found->dx, sizeof(double) * (s->N + 1) * N_);
    memcpy(to->v + first_control(s), found->du, sizeof(double) * s->N * M_);
    memcpy(to->z.lambda, found->lambda, sizeof(double) * s->N * N_);
    recover(s, p, z, &o->settings, o->condensed, rows, found->y, share, to->v, &to->z, out);
    o->alpha = out[0], o->alpha_z = out[1], o->slope = out[2];
}

/* The vectors of the system for other residuals of the same rows: of a second-order correction. */
EXPORT void ipm_vectors(ipm_system *o, const ipm_point *p, const double *d, const double *rows, const double *fixes)
{
    vectors(o->structure, p, d, rows, fixes, &o->settings, o->condensed);
}

/* a <- a + sigma (b - a) */
static void between(double *restrict a, const double *restrict b, double sigma, long count)
{
    for (long i = 0; i < count; i++) a[i] += sigma * (b[i] - a[i]);
}

/* From a system of mu = 0, the step for the mu = sigma mean that the quality function chooses, sigma between low and high: as the system
   is linear in mu, one between the steps for mu = 0 and for mu = mean.  other: memory for the latter; room: for five numbers of each bound.
   dual, primal: mean squares of the gradient and of the violation. */
EXPORT void ipm_centered(ipm_system *o, const ipm_point *p, const ipm_multipliers *z, double mean, double dual, double primal, double low,
                         double high, double share, const ipm_step *other, const ipm_step *to)
{
    const ipm_structure *s = o->structure;
    const long count = numbers(s);
    double *room = o->room;
    ipm_oracle oracle = {room, room + 2 * count, room + 4 * count, room + 6 * count, room + 8 * count, dual, primal, share, 0};
    ipm_solve(o, p, z, o->rows, share, to);
    o->settings.mu = mean;
    barrier_gradient(s, o->condensed, mean);
    vectors(s, p, p->d, o->rows, o->fixes, &o->settings, o->condensed);
    ipm_solve(o, p, z, o->rows, share, other);
    look_at_bounds(o->condensed, z, to, other, count, &oracle);
    const double sigma = centering(&oracle, low, high);
    o->settings.mu = o->mu_of_step = sigma * mean;
    between(to->v, other->v, sigma, count);
    between(to->z.lambda, other->z.lambda, sigma, s->N * N_);
    between(to->z.y, other->z.y, sigma, s->rows);
    between(to->z.f, other->z.f, sigma, s->fixes);
    barrier_gradient(s, o->condensed, sigma * mean);
    o->slope = objective_slope(s, p, &o->settings, to->v) + recover_bounds(s, z, o->condensed, sigma * mean, share, to->v, &to->z, &o->alpha, &o->alpha_z);
}
