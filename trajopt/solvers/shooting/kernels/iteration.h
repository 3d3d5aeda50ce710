/* One iteration of a shooting solver: the twin of ShootingLoop._advance of trajopt/solvers/shooting/shooting_loop.py for one model,
   the plain expansion.  Before this text stand lq_types.h, stage_types.h, bounded_lq.h and decisions.h, and the constants of globalization.py.

   Nothing here knows the sizes of a problem: what does comes as functions, compiled for it.  So this is compiled once. */

/* The knots first .. last, whose dynamics and cost read `read` controls, in their library. */
typedef struct {
    long first, last, read;
    void (*expand)(const stages_t *s, const point_t *at, long first, long last, const first_t *out, void *room);
    void (*roll)(const stages_t *s, const trials_t *r, const parts_t *p, long first, long last, void *room);
    const stages_t *stages;
    void *room;
} phase_t;

typedef struct {
    void (*expand)(const end_t *s, const double *x, const end_first_t *out, void *room);
    void (*values)(const end_t *s, const double *xs, long stride, long count, double *cost, double *g, void *room);
    const end_t *end;
    void *room;
} final_t;

/* See Iterate of iterate.py; costs (N + 1,) by knot. */
typedef struct {
    double *xs, *us, *x_next, *costs, *lambda, *g, *A, *B, *d, *Q, *q, *S, *R, *r;
    double cost, gradient, defect, gap, stop;
} iterate_t;

/* See IterationRecord; kkt_new: of the next iterate where the solve ends there, change: the share by which it improved the cost.
   failed_at: the knot of an indefinite Quu.  seconds: derivatives, sweeps, roll-outs. */
typedef struct {
    double cost, merit, stop, gradient, defect, mu, step_norm, violation, expected, actual, alpha, kkt, kkt_new, change, seconds[3];
    long failed_at;
} record_t;

enum { DERIVATIVES, BACKWARD, ROLLOUT };
enum { NONE = -1 };

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
   are; abreast: step lengths that are tried side by side; quiet: whether nobody reads more of the record than cost, kkt, alpha
   and what was expected; shared: whether the slots have one memory for A, B and the second derivatives, so that one problem of many takes little
   room, and holder the number of the one whose they are. */
struct shooting {
    long N, nx, count, nonlinear, nodes, abreast, quiet, shared, holder;
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

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reductions go in PARTS at once: a compiler may not change their order by itself. */
#define PARTS 16

static double largest(const double *x, long count)
{
    double part[PARTS] = {0.0}, most = 0.0;
    long i = 0;
    for (; i + PARTS <= count; i += PARTS)
        for (int j = 0; j < PARTS; j++) part[j] = fabs(x[i + j]) > part[j] ? fabs(x[i + j]) : part[j];
    for (; i < count; i++) most = fabs(x[i]) > most ? fabs(x[i]) : most;
    for (int j = 0; j < PARTS; j++) most = part[j] > most ? part[j] : most;
    return most;
}

static double l1(const double *x, long count)
{
    double part[PARTS] = {0.0}, sum = 0.0;
    long i = 0;
    for (; i + PARTS <= count; i += PARTS)
        for (int j = 0; j < PARTS; j++) part[j] += fabs(x[i + j]);
    for (; i < count; i++) sum += fabs(x[i]);
    for (int j = 0; j < PARTS; j++) sum += part[j];
    return sum;
}

static double dot(const double *x, const double *y, long count)
{
    double part[PARTS] = {0.0}, sum = 0.0;
    long i = 0;
    for (; i + PARTS <= count; i += PARTS)
        for (int j = 0; j < PARTS; j++) part[j] += x[i + j] * y[i + j];
    for (; i < count; i++) sum += x[i] * y[i];
    for (int j = 0; j < PARTS; j++) sum += part[j];
    return sum;
}

static lq_problem lq_of(const iterate_t *e, long N) { return (lq_problem){e->A, e->B, e->d, e->Q, e->q, e->S, e->R, e->r, N}; }

/* -- iterates --------------------------------------------------------------------------------------------------------------- */

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

/* -- direction -------------------------------------------------------------------------------------------------------------- */

/* The bounds on du at an iterate. */
static lq_bounds room_for(const shooting_t *s, const iterate_t *e)
{
    for (long i = 0; i < s->N * s->sweeps.m; i++)
        s->lower_du[i] = s->lower[i] - e->us[i], s->upper_du[i] = s->upper[i] - e->us[i];
    return (lq_bounds){s->lower_du, s->upper_du};
}

/* alpha^2/2 D2: the curvature of the cost along a step. */
static double curvature(const shooting_t *s, lq_problem p, lq_step step)
{
    const long n = s->sweeps.n, m = s->sweeps.m;
    double D2 = 0.0;
    for (long i = 0; i <= p.N; i++) {
        const double *x = step.dx + i * n, *u = step.du + i * m;
        for (long a = 0; a < n; a++) D2 += x[a] * dot(p.Q + (i * n + a) * n, x, n);
        if (i == p.N) break;
        for (long a = 0; a < m; a++) D2 += u[a] * (2.0 * dot(p.S + (i * m + a) * n, x, n) + dot(p.R + (i * m + a) * m, u, m));
    }
    return D2;
}

/* The direction that was found with the expansion, or is by another; 0 where that failed. */
static int seen_ahead(shooting_t *s, iterate_t *at, model_t *step)
{
    ahead_t *a = &s->ahead;
    if (!a->look || s->lower) return 0;
    if (a->of != at || a->mu != s->state.mu) look(s, at, at->d, s->state.mu);
    if (!a->to.found) return 0;
    const lq_policy policy = s->policy;
    const lq_step last = s->step;
    s->policy.K = a->to.K, s->policy.k = a->to.k;
    a->to.K = policy.K, a->to.k = policy.k;
    if (a->to.dx) {
        s->step = (lq_step){a->to.dx, a->to.du};
        a->to.dx = last.dx, a->to.du = last.du;
    } else {
        memset(s->step.dx, 0, sizeof(double) * (s->N + 1) * s->sweeps.n);
        copy(s->step.du, s->policy.k, s->N * s->sweeps.m);
    }
    a->of = NULL;
    step->D1 = a->to.slope;
    step->D2 = 2.0 * (a->to.change - step->D1);
    step->gap = at->gap;
    s->record.failed_at = NONE;
    s->record.kkt = fmax(largest(at->d, s->N * s->sweeps.n), a->to.kkt);
    return 1;
}

/* The policy and its linear trajectory, with more regularization until Quu can be factorized, and how far the iterate is from optimal under it;
   0 where it cannot. */
static int direction(shooting_t *s, iterate_t *at, model_t *step)
{
    if (seen_ahead(s, at, step)) return 1;
    recall(s, at);
    const lq_problem lq = lq_of(at, s->N);
    const double began = now();
    long failed;
    memset(s->step.dx, 0, sizeof(double) * s->sweeps.n); /* trajectories begin at x0 */
    while (1) {
        const double mu = s->state.mu, on_state = s->options.on_state ? mu : 0.0, on_control = mu - on_state;
        if (s->lower) {
            failed = solve_bounded(&s->sweeps, lq, room_for(s, at), on_state, on_control, &s->bounded, s->policy, s->step);
            if (failed < 0) step->D2 = curvature(s, lq, s->step);
        } else {
            double change[2];
            failed = s->sweeps.riccati(&lq, NULL, on_state, on_control, NULL, &s->policy);
            if (failed < 0) s->sweeps.rollout(&lq, NULL, &s->policy, s->step.dx, s->step.du, change), step->D2 = change[1];
        }
        if (failed < 0 || mu >= s->options.largest) break;
        raise_mu(&s->state, &s->options);
    }
    step->D1 = 0.0, step->gap = at->gap;
    s->record.failed_at = failed;
    if (failed < 0) {
        s->record.kkt = kkt(s, at);
        step->D1 = slope(s, at, at->d, 1.0);
    }
    s->record.seconds[BACKWARD] += now() - began;
    return failed < 0;
}

/* -- search ----------------------------------------------------------------------------------------------------------------- */

/* The parts of a phase that are rolled out side by side, for `count` step lengths next to each other. */
static parts_t parts_of(const shooting_t *s, const phase_t *p, long count, long *tasks)
{
    long k = 0, begin = p->first;
    for (long knot = p->first + 1; knot <= p->last; knot++) {
        if (knot < p->last && (s->nonlinear || !s->node[knot])) continue;
        for (long i = 0; i < count; i++, k++) s->start[k] = begin, s->stop[k] = knot, s->trial[k] = i;
        begin = knot;
    }
    *tasks = k;
    return (parts_t){p->first, s->start, s->stop, s->trial, s->part_cost};
}

/* Trajectories along a step for `count` step lengths from the number `first` on: X, U, D and their costs. */
static void roll(shooting_t *s, const iterate_t *at, lq_step step, long first, long count)
{
    const long N = s->N, nx = s->nx;
    const double began = now();
    const trials_t r = {N, s->nonlinear, at->xs, at->us, step.dx, step.du, s->policy.K, at->d, s->lower, s->upper, s->alphas + first,
                        s->node, s->X, s->U, s->D};
    memset(s->cost, 0, sizeof(double) * count);
    for (const phase_t *p = s->phases; p < s->phases + s->count; p++) {
        long tasks;
        const parts_t parts = parts_of(s, p, count, &tasks);
        p->roll(p->stages, &r, &parts, 0, tasks, p->room);
        for (long k = 0; k < tasks; k++) s->cost[s->trial[k]] += s->part_cost[k];
    }
    s->end.values(s->end.end, s->X + N * nx, (N + 1) * nx, count, s->part_cost, NULL, s->end.room);
    for (long i = 0; i < count; i++) s->cost[i] += s->part_cost[i];
    s->record.seconds[ROLLOUT] += now() - began;
}

/* The decrease of the merit in a row of what was rolled out last, -infinity where something is not finite. */
static double decrease(const shooting_t *s, const iterate_t *at, long row)
{
    const long x = (s->N + 1) * s->nx, d = s->N * s->sweeps.n;
    const double actual = phi(s, at) - (s->cost[row] + s->state.penalty * l1(s->D + row * d, d));
    return fabs(actual) < HUGE_VAL && all_finite(s->X + row * x, x) ? actual : -HUGE_VAL;
}

/* Whether no shorter step need be looked at. */
static int is_good(found_t found) { return found.accepted && found.actual >= LOWER_RATIO * found.expected; }

/* Look at `count` step lengths that were rolled out last, of which the first is the number `first`, beside the best of those before, whose
   number is NONE where there is none: see _best of globalization.py.  Returns whether shorter ones are to be looked at. */
static int look_at(const shooting_t *s, const iterate_t *at, model_t step, long first, long count, found_t *best, long *number)
{
    for (long i = 0; i < count; i++) {
        const double alpha = s->alphas[first + i], expected = expected_decrease(&s->state, alpha, step), actual = decrease(s, at, i);
        const int accepted = acceptable(&s->options, expected, actual), none = *number == NONE;
        if (!none && best->accepted && !(actual > best->actual)) return 0;
        if (none || (accepted && !best->accepted) || actual > best->actual) {
            *best = (found_t){accepted || (!none && best->accepted), i, alpha, expected, actual};
            *number = first + i;
        }
        if (is_good(*best)) return 0;
    }
    return 1;
}

/* The step that closes the gaps left by `current` too, under the same policy: see second_order of iterate.py. */
static void correct(shooting_t *s, iterate_t *at, lq_step current)
{
    recall(s, at);
    const long n = s->sweeps.n, m = s->sweeps.m;
    lq_problem lq = lq_of(at, s->N);
    lq_policy feedback = s->policy;
    lq_bounds limits;
    double change[2];
    lq.d = s->D;
    memset(s->bounded.k, 0, sizeof(double) * s->N * m);
    feedback.k = s->bounded.k;
    if (s->lower) {
        limits = room_for(s, at);
        for (long i = 0; i < s->N * m; i++) s->lower_du[i] -= current.du[i], s->upper_du[i] -= current.du[i];
    }
    memset(s->extra.dx, 0, sizeof(double) * n);
    s->sweeps.rollout(&lq, s->lower ? &limits : NULL, &feedback, s->extra.dx, s->extra.du, change);
    for (long i = 0; i < (s->N + 1) * n; i++) current.dx[i] += s->extra.dx[i];
    for (long i = 0; i < s->N * m; i++) current.du[i] += s->extra.du[i];
}

/* A full step, or longer ones in its direction, with the lowest merit: see _stretched of globalization.py. */
static found_t stretched(shooting_t *s, const iterate_t *at, found_t full)
{
    const long first = 1 + (s->options.max_backtracks > POLISHED ? s->options.max_backtracks : POLISHED); /* behind 1, 1/2, ... */
    found_t best = full;
    roll(s, at, s->step, first, STRETCHED);
    for (long i = 1; i < STRETCHED; i++) {
        const double actual = decrease(s, at, i);
        if (actual > best.actual) best.row = i, best.alpha = s->alphas[first + i], best.actual = actual;
    }
    return best;
}

/* The line search on the merit: see line_search of globalization.py. */
static found_t search(shooting_t *s, iterate_t *at, model_t step)
{
    found_t best;
    long number = NONE, behind = 0; /* of the best step length, and of the first one that was rolled out last */
    roll(s, at, s->step, 0, 1);
    look_at(s, at, step, 0, 1, &best, &number);
    if (best.accepted && best.actual >= TOO_MUCH * best.expected) return stretched(s, at, best);
    if (!s->nonlinear && s->nodes && !best.accepted) {
        copy(s->current.dx, s->step.dx, (s->N + 1) * s->sweeps.n);
        copy(s->current.du, s->step.du, s->N * s->sweeps.m);
        found_t full = best;
        for (int i = 0; i < MAX_CORRECTIONS && full.actual > -HUGE_VAL; i++) {
            const double before = full.actual;
            long own = NONE;
            correct(s, at, s->current);
            roll(s, at, s->current, 0, 1);
            look_at(s, at, step, 0, 1, &full, &own);
            if (full.accepted) return full;
            if (full.actual > best.actual) best = full;
            if (full.actual < before) break;
        }
    }
    int more = !is_good(best);
    for (long first = 1; more && first <= s->options.max_backtracks; first += s->abreast) {
        const long left = s->options.max_backtracks + 1 - first, count = left < s->abreast ? left : s->abreast;
        roll(s, at, s->step, behind = first, count);
        more = look_at(s, at, step, first, count, &best, &number);
    }
    if (best.accepted && number < behind) roll(s, at, s->step, number, 1), best.row = 0; /* others stand there */
    return best;
}

/* The damping behind a step. */
static globalization_t behind(const shooting_t *s, found_t found)
{
    globalization_t next = s->state;
    if (found.alpha > LOWER_AT && found.actual >= LOWER_RATIO * found.expected) lower_mu(&next, &s->options);
    return next;
}

/* The next iterate: that of a row of what was tried; 0 where it is not finite. */
static int take(shooting_t *s, long row, double mu)
{
    const long x = (s->N + 1) * s->nx, u = s->N * s->sweeps.m, d = s->N * s->sweeps.n;
    iterate_t *e = s->slots + s->fresh;
    copy(e->xs, s->X + row * x, x);
    copy(e->us, s->U + row * u, u);
    return measure(s, e, s->D + row * d, mu);
}

/* The longest of a few steps that reduces the residual, or the cost as told by the gradients at both ends: see polish of step_search.py. */
static found_t polish(shooting_t *s, iterate_t *at, model_t step)
{
    const options_t *o = &s->options;
    found_t found = {0, 0, 0.0, 0.0, -HUGE_VAL};
    roll(s, at, s->step, 0, POLISHED);
    for (long i = 0; i < POLISHED && !found.accepted; i++) {
        const double alpha = s->alphas[i], expected = expected_decrease(&s->state, alpha, step);
        iterate_t *e = s->slots + s->fresh;
        found = (found_t){0, i, alpha, expected, -HUGE_VAL};
        if (!take(s, i, s->state.mu)) continue;
        const double measure = kkt(s, e), slopes = step.D1 + slope(s, e, at->d, 1.0 - alpha);
        found.actual = -0.5 * alpha * slopes + s->state.penalty * alpha * at->gap;
        const int sufficient = found.actual >= o->accept_ratio * expected && o->accept_ratio * expected > 0.0;
        const int closed = e->defect <= fmax(at->defect, o->defect_tolerance);
        const int risen = s->cost[i] - at->cost > 10.0 * ROUNDING * fabs(phi(s, at));
        found.accepted = !risen && (measure < s->record.kkt || (sufficient && closed));
    }
    return found;
}

/* -- an iteration ------------------------------------------------------------------------------------------------------------ */

static double violation(const shooting_t *s, const iterate_t *e)
{
    double most = 0.0;
    for (long i = 0; s->lower && i < s->N * s->sweeps.m; i++)
        most = fmax(most, fmax(s->lower[i] - e->us[i], e->us[i] - s->upper[i]));
    return most;
}

static void tell(shooting_t *s, const iterate_t *at, found_t found, double mu)
{
    record_t *r = &s->record;
    const double size = fmax(largest(s->step.dx, (s->N + 1) * s->sweeps.n), largest(s->step.du, s->N * s->sweeps.m));
    r->merit = phi(s, at), r->stop = at->stop, r->gradient = at->gradient, r->defect = at->defect;
    r->mu = mu, r->step_norm = r->alpha * size, r->violation = violation(s, at);
    r->actual = found.actual;
}

/* Adapt mu to the outcome; whether the solve ends here. */
static int judge(shooting_t *s, const iterate_t *at, iterate_t *new, found_t found, int polished)
{
    globalization_t *g = &s->state;
    const options_t *o = &s->options;
    if (s->best == NONE || !polished || at->stop < PROGRESS * s->slots[s->best].stop) s->best = s->at, g->idle = 0;
    g->idle++;
    const int open = !s->nonlinear && s->nodes && at->defect > o->defect_tolerance;
    if (!open) g->drift = 0;
    const int given_up = open && adrift(g, new ? found.alpha : 0.0, at->gap);
    if (g->idle > MAX_IDLE || given_up || (!new && g->mu >= o->largest)) return NO_PROGRESS;
    if (!new) {
        raise_mu(g, o);
        return GO_ON;
    }
    *g = behind(s, found);
    const double change = fabs(at->cost - new->cost);
    if (!(change < o->cost_tolerance * fabs(new->cost)) || new->defect > o->defect_tolerance) return GO_ON;
    s->record.change = change / fabs(new->cost);
    s->record.kkt_new = kkt(s, new);
    return COST_CONVERGED;
}

/* Roll the guess out under the gains of the policy, its nodes where they are; returns the cost. */
static double roll_guess(shooting_t *s, const iterate_t *e)
{
    const long nonlinear = s->nonlinear;
    s->nonlinear = 0;
    roll(s, e, s->step, 0, 1);
    s->nonlinear = nonlinear;
    return s->cost[0];
}

/* Hold a guess by the policy of its LQ problem, or by its gains alone, where either costs less than the guess as it is rolled out: see
   held_rollout of iterate.py. */
static void hold(shooting_t *s, const iterate_t *e, double cost)
{
    enum { OPEN, GAINS, POLICY } best = OPEN;
    const long gains = s->N * s->sweeps.m * s->sweeps.n, controls = s->N * s->sweeps.m;
    const lq_problem lq = lq_of(e, s->N);
    if (s->sweeps.finite(&lq) && s->sweeps.riccati(&lq, NULL, 0.0, HOLDING, NULL, &s->policy) < 0) {
        const double held = roll_guess(s, e);
        if (fabs(held) < HUGE_VAL && !(cost <= held)) best = GAINS, cost = held;
        copy(s->step.du, s->policy.k, controls);
        const double led = roll_guess(s, e);
        if (fabs(led) < HUGE_VAL && !(cost <= led)) best = POLICY;
    }
    if (best == OPEN) memset(s->policy.K, 0, sizeof(double) * gains);
    if (best != POLICY) {
        memset(s->step.du, 0, sizeof(double) * controls);
        roll_guess(s, e);
    }
}

/* The iterate in the slot `at` from a guess there, within the bounds, with the parts between nodes rolled out: see _start of shooting_loop.py;
   0 where it is not finite. */
EXPORT int shooting_start(shooting_t *s)
{
    const long N = s->N, n = s->sweeps.n, m = s->sweeps.m;
    iterate_t *e = s->slots + s->at;
    memset(&s->record, 0, sizeof s->record);
    memset(s->step.dx, 0, sizeof(double) * (N + 1) * n);
    memset(s->step.du, 0, sizeof(double) * N * m);
    memset(s->policy.K, 0, sizeof(double) * N * m * n);
    for (long i = 0; s->lower && i < N * m; i++) e->us[i] = clipped(e->us[i], s->lower[i], s->upper[i]);
    const double cost = roll_guess(s, e);
    if (s->nodes < N) { /* where every knot is a node, no state follows from another */
        expand(s, e);
        if (!(cost <= FALLEN * fmax(1.0, fabs(e->cost)))) hold(s, e, cost);
    }
    copy(e->xs, s->X, (N + 1) * s->nx);
    copy(e->us, s->U, N * m);
    return measure(s, e, s->D, s->state.mu);
}

/* One iteration from the slot `at`: a direction, a search along it, the next iterate in the slot `fresh` (NONE: none).  Where the solve
   goes on, that is the one to go on from. */
EXPORT int shooting_iterate(shooting_t *s)
{
    iterate_t *at = s->slots + s->at;
    model_t step;
    found_t found = {0};
    memset(s->record.seconds, 0, sizeof s->record.seconds);
    for (s->fresh = 0; s->fresh == s->at || s->fresh == s->best; s->fresh++) {}
    if (!direction(s, at, &step)) return NOT_POSITIVE_DEFINITE;
    adapt(&s->state, step);
    const double mu = s->state.mu, hope = promise(&s->state, step, phi(s, at));
    int moved = 0, polished = !(hope > ROUNDING);
    if (!polished) {
        found = search(s, at, step);
        moved = found.accepted && take(s, found.row, behind(s, found).mu);
        polished = !moved && hope <= NEAR_ROUNDING;
    }
    if (polished) {
        found = polish(s, at, step);
        moved = found.accepted;
    }
    const double told = now();
    const int code = judge(s, at, moved ? s->slots + s->fresh : NULL, found, polished);
    s->record.cost = at->cost, s->record.expected = found.expected, s->record.alpha = moved ? found.alpha : 0.0;
    if (!s->quiet) tell(s, at, found, mu);
    s->record.seconds[BACKWARD] += now() - told;
    if (!moved) s->fresh = NONE;
    else if (code == GO_ON) s->at = s->fresh;
    return code;
}

/* How far the iterate to go on from is from optimal, under the gains of the last step. */
EXPORT double shooting_kkt(shooting_t *s, long slot)
{
    return kkt(s, s->slots + slot);
}

/* The policy about the iterate in a slot, gains K (N, m, n) and steps k (N, m): the knot where Quu cannot be factorized, or NONE. */
EXPORT long shooting_gains(shooting_t *s, long slot, double mu, double *K, double *k)
{
    iterate_t *at = s->slots + slot;
    recall(s, at);
    const lq_problem lq = lq_of(at, s->N);
    const lq_policy policy = {K, k, s->policy.Vx, s->policy.Vxx};
    const double on_state = s->options.on_state ? mu : 0.0;
    if (!s->lower) return s->sweeps.riccati(&lq, NULL, on_state, mu - on_state, NULL, &policy);
    const lq_bounds limits = room_for(s, at);
    return s->sweeps.riccati(&lq, &limits, on_state, mu - on_state, NULL, &policy);
}

EXPORT long shooting_size(void) { return sizeof(shooting_t); }
