/* A solve of a shooting method in C and its iterates with their expansions, for batches.  Before this text stand knots.h and bounded_lq.h of
   trajopt/solvers/window/kernels, decisions.h, and the constants of trajopt/solvers/rules/line_search.py. */

/* See Iterate of iterate.py; costs (N + 1,) by knot. */
typedef struct {
    double *xs, *us, *x_next, *costs, *lambda, *g, *A, *B, *d, *Q, *q, *S, *R, *r;
    double cost, gradient, defect, gap, stop;
} iterate_t;

/* See IterationRecord; kkt_new: of the next iterate where the solve ends there, change: the share by which it improved the cost.
   failed_at: the knot of an indefinite Quu.  seconds: derivatives, sweeps, roll-outs. */
typedef struct {
    double cost, expected, alpha, kkt, kkt_new, change, seconds[3];
    long failed_at;
} record_t;

/* What the way back over the knots of an iterate gives beside its residuals, where many problems are solved side by side: the direction with the
   damping mu, in room of its own.  look: finds both, NULL where one problem is solved alone.  to.dx, to.du: NULL where roll-outs begin nowhere but
   at x0, in a vector space: du - K dx = k is all they read of a linear step then, and (0, k) stands for it.  nearly: the measure of an iterate
   from which on that of the next one is found too, under the gains of the step between them. */
typedef struct shooting shooting_t;
typedef struct {
    void (*look)(shooting_t *s, iterate_t *e);
    lq_direction to;
    const iterate_t *of;
    double mu, nearly;
} ahead_t;

/* A solve.  phases, node, lower and upper (bounds on us, NULL for none) and alphas (1, 1/2, ..., then 1, 2, ...) describe the problem; slots hold iterates,
   of which `at`, `fresh` and `best` are numbers; X, U, D, cost and part_cost, start, stop, trial hold what is tried.  nodes: how many there
   are; abreast: step lengths that are tried side by side; shared: whether the slots have one memory for A, B and the second derivatives, so that one problem of many takes little
   room, and holder the number of the one whose they are. */
struct shooting {
    long N, nx, count, nonlinear, nodes, abreast, shared, holder;
    const phase_t *phases;
    final_t end;
    sweeps_t sweeps;
    options_t options;
    const signed char *node;
    const double *lower, *upper, *alphas;
    iterate_t slots[3];
    lq_policy policy;
    lq_step step, current, extra;
    double *lower_du, *upper_du, *masked, *size;
    bounded_room bounded;
    double *X, *U, *D, *cost, *part_cost;
    long *start, *stop, *trial;
    globalization_t state;
    long at, fresh, best;
    record_t record;
    ahead_t ahead;
};

enum { GO_ON, COST_CONVERGED, NOT_POSITIVE_DEFINITE, NO_PROGRESS };

static lq_problem lq_of(const iterate_t *e, long N) { return (lq_problem){e->A, e->B, e->d, e->Q, e->q, e->S, e->R, e->r, N}; }

/* The expansion about the trajectory of an iterate. */
static void expand(const shooting_t *s, iterate_t *e)
{
    const long N = s->N, nx = s->nx, n = s->sweeps.n, m = s->sweeps.m;
    for (const phase_t *p = s->phases; p < s->phases + s->count; p++) {
        const long k = p->first;
        const point_t at = {e->xs + k * nx, e->us + k * m, e->xs + (k + 1) * nx};
        const first_t out = {{e->x_next + k * nx, e->d + k * n, e->costs + k, NULL},
                             e->A + k * n * n, e->B + k * n * m, e->q + k * n, e->r + k * m, NULL, NULL,
                             e->Q + k * n * n, e->S + k * m * n, e->R + k * m * m, NULL};
        p->expand(p->stages, &at, 0, p->last - k, &out, p->room);
        for (long i = k; i < p->last; i++) /* what nothing reads stays where it is */
            for (long a = p->read; a < m; a++) e->R[(i * m + a) * m + a] = 1.0;
    }
    const end_first_t out = {e->costs + N, NULL, e->q + N * n, NULL, e->Q + N * n * n};
    s->end.expand(s->end.end, e->xs + N * nx, &out, s->end.room);
    e->cost = 0.0;
    for (long i = 0; i <= N; i++) e->cost += e->costs[i];
}

/* The blocks of an iterate's problem, once more where another has taken their place. */
static void recall(shooting_t *s, iterate_t *e)
{
    if (!s->shared || s->holder == e - s->slots) return;
    expand(s, e);
    s->holder = e - s->slots;
    if (e->gap == 0.0) memset(e->d, 0, sizeof(double) * s->N * s->sweeps.n);
}

/* us - P(us - g), P the projection on the bounds, its largest entry. */
static double projected(const shooting_t *s, const iterate_t *e)
{
    const long count = s->N * s->sweeps.m;
    double most = 0.0;
    if (!s->lower) return largest(e->g, count);
    for (long i = 0; i < count; i++) most = fmax(most, fabs(clipped(e->g[i], e->us[i] - s->upper[i], e->us[i] - s->lower[i])));
    return most;
}

/* The residuals behind an expansion with its gradient and gaps. */
static void note_residuals(const shooting_t *s, iterate_t *e)
{
    e->gradient = projected(s, e);
    e->gap = l1(e->d, s->N * s->sweeps.n);
    e->stop = fmax(e->gradient / s->options.gradient_tolerance, e->defect / s->options.defect_tolerance);
}

/* Expansion and direction of an iterate on one way; 0 where numbers are not finite or Quu is not positive definite. */
static int look(shooting_t *s, iterate_t *e, const double *gaps, double mu)
{
    const long N = s->N, n = s->sweeps.n;
    lq_direction *to = &s->ahead.to;
    const double began = now();
    s->ahead.of = e, s->ahead.mu = mu;
    if (s->holder == e - s->slots) s->holder = NONE; /* whose trajectory is another one now */
    to->on_state = s->options.on_state ? mu : 0.0, to->on_control = mu - to->on_state;
    to->d = e->d, to->lambda = e->lambda, to->g = e->g, to->costs = e->costs;
    to->under = s->record.kkt <= s->ahead.nearly ? s->policy.K : NULL, to->held_lambda = s->bounded.lambda, to->held_g = s->bounded.g;
    to->closed = largest(gaps, N * n) <= GAP_ROUNDING * (1.0 + largest(e->xs, (N + 1) * s->nx));
    s->ahead.look(s, e);
    if (to->found) {
        e->cost = 0.0;
        for (long i = 0; i <= N; i++) e->cost += e->costs[i];
        to->found = fabs(e->cost) < HUGE_VAL;
    }
    if (to->found) {
        if (to->closed) memset(e->d, 0, sizeof(double) * N * n);
        e->defect = to->defect;
        note_residuals(s, e);
    }
    s->record.seconds[BACKWARD] += now() - began;
    return to->found;
}

/* Expansion and residuals of an iterate, about a trajectory that left the gaps `gaps`: see measured of iterate.py; 0 where they are not finite.
   mu: the damping with which it will be gone on from, as far as it is known. */
static int measure(shooting_t *s, iterate_t *e, const double *gaps, double mu)
{
    const long N = s->N, n = s->sweeps.n;
    if (s->ahead.look && !s->lower && look(s, e, gaps, mu)) return 1;
    const double began = now();
    expand(s, e);
    s->holder = e - s->slots;
    const lq_problem lq = lq_of(e, N);
    const double expanded = now();
    s->record.seconds[DERIVATIVES] += expanded - began;
    const int finite = fabs(e->cost) < HUGE_VAL && s->sweeps.finite(&lq);
    if (finite) {
        e->defect = largest(e->d, N * n);
        if (e->defect <= GAP_ROUNDING * (1.0 + largest(e->xs, (N + 1) * s->nx))) memset(e->d, 0, sizeof(double) * N * n);
        s->sweeps.adjoint(&lq, e->lambda, e->g);
        note_residuals(s, e);
    }
    s->record.seconds[BACKWARD] += now() - expanded;
    return finite;
}

static double phi(const shooting_t *s, const iterate_t *e) { return e->cost + s->state.penalty * e->gap; }

/* The gains of the policy, those of controls on a bound zero. */
static const double *free_gains(const shooting_t *s, const iterate_t *e)
{
    const long n = s->sweeps.n, m = s->sweeps.m;
    if (!s->lower) return s->policy.K;
    copy(s->masked, s->policy.K, s->N * m * n);
    for (long i = 0; i < s->N * m; i++)
        if (e->us[i] <= s->lower[i] || e->us[i] >= s->upper[i]) memset(s->masked + i * n, 0, sizeof(double) * n);
    return s->masked;
}

/* The derivative of the cost along the step as the gaps `gaps` close by `share`, from what kkt has found under the gains: see slope of iterate.py. */
static double slope(const shooting_t *s, const iterate_t *e, const double *gaps, double share)
{
    const long n = s->sweeps.n, m = s->sweeps.m;
    const double *K = free_gains(s, e);
    double sum = share * dot(s->bounded.lambda + n, gaps, s->N * n);
    for (long i = 0; i < s->N; i++)
        for (long a = i * m; a < (i + 1) * m; a++) sum += s->bounded.g[a] * (s->step.du[a] - dot(K + a * n, s->step.dx + i * n, n));
    return sum;
}

/* The scaled measure of optimality under the gains of the policy: see optimality.py.  It may have been found with the direction. */
static double kkt(shooting_t *s, iterate_t *e)
{
    const long N = s->N, n = s->sweeps.n, m = s->sweeps.m;
    const ahead_t *ahead = &s->ahead;
    if (ahead->of == e && ahead->to.found && ahead->to.under == s->policy.K) return fmax(largest(e->d, N * n), ahead->to.kkt_under);
    recall(s, e);
    const lq_problem lq = lq_of(e, N);
    const double *K = free_gains(s, e);
    double most = largest(e->d, N * n);
    double *lambda = s->bounded.lambda, *g = s->bounded.g;
    s->sweeps.stationarity(&lq, K, lambda, g, s->size);
    for (long i = 0; i < N * m; i++) {
        const double size = s->size[i % m];
        double inward = g[i];
        if (s->lower && e->us[i] <= s->lower[i]) inward = fmin(inward, 0.0);
        if (s->lower && e->us[i] >= s->upper[i]) inward = fmax(inward, 0.0);
        if (size > 0.0) most = fmax(most, fabs(inward) / size);
    }
    return most;
}
