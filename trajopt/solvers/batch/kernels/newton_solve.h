/* Solves by Newton's loop, one problem after the other on each thread: the twin of newton_loop.py and newton_model.py of
   trajopt/solvers/shooting/newton.  Before this text stand iteration.h with what it asks for, barrier.h, and the constants of those
   modules and of filter.py.

   A solve that ends without a verdict of its own (numbers that are not finite, a search that fails) is referred to Python as a whole. */

enum { OPTIMAL, CHEAPER, MOST_ITERATIONS, OUT_OF_TIME, ROUNDED, INTERRUPTED, REFERRED };

/* second_t of stage.h */
typedef struct {
    double sigma;
    const double *lam, *y;
    void *kept;
    double *xx, *ux, *uu;
} curved_t;

/* A phase: its expansions with the exact and with the Gauss-Newton Hessian of the cost, its roll-out, and the curvature of its steps. */
typedef struct {
    phase_t exact, plain;
    void (*curve)(const stages_t *s, const point_t *at, long first, long last, const curved_t *out, void *room);
    void *curve_room;
} newton_phase_t;

/* A trajectory with its expansion, costates and gradient; see Point.  gradient: its largest entry; scaled: the largest relative to the size
   of its terms. */
typedef struct {
    double *xs, *us, *x_next, *costs, *A, *B, *d, *Q, *q, *S, *R, *r, *lambda, *g;
    double cost, gradient, scaled, defect, theta, kkt;
} newton_point_t;

/* A step that the filter accepts; see Found.  longest: what the bounds allow of it. */
typedef struct {
    double *K, *k, *dx, *du, *xs, *us;
    double slope, delta, alpha, theta, phi, longest;
} newton_found_t;

typedef struct {
    long code, iterations;
    double cost, gradient, defect, kkt, change, seconds;
} newton_result_t;

/* A problem: its values by phase (of the exact, the plain and the curved library) and at the end, its start, and where its solution goes. */
typedef struct {
    const stages_t *exact, *plain, *curved;
    const end_t *end, *plain_end;
    const double *x0, *xs, *us, *lower, *upper;
    double *to_xs, *to_us, *to_K, *to_k;
    newton_result_t *result;
} newton_member_t;

/* What solves problems on one thread.  points: where it is, where it goes; found: the step taken, a rival, and that of the last
   policy; Vx, Vxx: of a sweep; cQ, cS, cR: the Hessian of the Lagrangian; gQ, gS, gR with gradients and steps aside: that of Gauss and
   Newton; mQ, mS, mR, mr: what is swept; z, move: multipliers of bounds and their step.  alike: whether one Hessian of the cost serves.  pairs: of the filter, at most most_pairs.  total, next, done, stop: shared with other threads. */
typedef struct {
    const newton_phase_t *phases;
    final_t end, plain_end;
    sweeps_t sweeps;
    long N, nx, count, alike, trials;
    newton_point_t points[2], aside;
    newton_found_t found[3];
    double *Vx, *Vxx, *cQ, *cS, *cR, *mQ, *mS, *mR, *mr, *z, *move, *own_alphas, *size, *pairs, *X, *U, *D, *cost, *part_cost;
    long *start, *stop_at, *trial;
    const double *alphas;
    const signed char *every, *none;
    long lengths, max_iterations, most_pairs, asked;
    double gradient_tolerance, defect_tolerance, kkt_tolerance, cost_tolerance, time_limit;
    const newton_member_t *members;
    long total, *next, *done;
    const volatile long *stop;
} newton_t;

/* A solve: the numbers of its points and steps, its filter and its damping. */
typedef struct {
    newton_t *w;
    const newton_member_t *m;
    newton_point_t *at, *fresh;
    newton_found_t *best, *rival, *last;
    barrier_t barrier;
    double scale, last_delta, least;
    long bounded, pairs, has_policy, plain_known, iteration, restored, idle, short_steps;
} newton_solve_t;

/* -- expansions ------------------------------------------------------------------------------------------------------------------ */

/* The expansion about the trajectory of e, with the exact or the plain Hessian of the cost; where its numbers go is told by `to`. */
static void newton_expand(const newton_solve_t *o, const newton_point_t *e, newton_point_t *to, int plain)
{
    const newton_t *w = o->w;
    const long N = w->N, nx = w->nx, n = w->sweeps.n, m = w->sweeps.m;
    for (long j = 0; j < w->count; j++) {
        const phase_t *p = plain ? &w->phases[j].plain : &w->phases[j].exact;
        const long k = p->first;
        const point_t at = {e->xs + k * nx, e->us + k * m, e->xs + (k + 1) * nx};
        const first_t out = {{to->x_next + k * nx, to->d + k * n, to->costs + k, NULL},
                             to->A + k * n * n, to->B + k * n * m, to->q + k * n, to->r + k * m, NULL, NULL,
                             to->Q + k * n * n, to->S + k * m * n, to->R + k * m * m, NULL};
        p->expand((plain ? o->m->plain : o->m->exact) + j, &at, 0, p->last - k, &out, p->room);
        for (long i = k; i < p->last; i++) /* what nothing reads stays where it is */
            for (long a = p->read; a < m; a++) to->R[(i * m + a) * m + a] = 1.0;
    }
    const final_t *end = plain ? &w->plain_end : &w->end;
    const end_first_t out = {to->costs + N, NULL, to->q + N * n, NULL, to->Q + N * n * n};
    end->expand(plain ? o->m->plain_end : o->m->end, e->xs + N * nx, &out, end->room);
    to->cost = 0.0;
    for (long i = 0; i <= N; i++) to->cost += to->costs[i];
}

static lq_problem newton_lq(const newton_point_t *e, long N) { return (lq_problem){e->A, e->B, e->d, e->Q, e->q, e->S, e->R, e->r, N}; }

static int newton_finite(const newton_solve_t *o, const newton_point_t *e)
{
    const lq_problem lq = newton_lq(e, o->w->N);
    return fabs(e->cost) < HUGE_VAL && o->w->sweeps.finite(&lq);
}

static double size_of_cost(double cost) { return fmax(fabs(cost), DBL_MIN); }

/* The scaled measure, with complementarity at mu. */
static double newton_error(const newton_solve_t *o, const newton_point_t *e, double mu)
{
    const double product = o->bounded ? complementarity(&o->barrier, e->us, mu) / size_of_cost(e->cost) : 0.0;
    return fmax(fmax(e->scaled, product), e->defect);
}

static double newton_phi(const newton_solve_t *o, double cost, const double *us)
{
    return o->bounded ? cost + barrier_value(&o->barrier, us) : cost;
}

/* Costates under the last gains, and the errors of a point. */
static void newton_measure(const newton_solve_t *o, newton_point_t *e)
{
    const newton_t *w = o->w;
    const long N = w->N, n = w->sweeps.n, m = w->sweeps.m;
    lq_problem lq = newton_lq(e, N);
    if (o->bounded) {
        const double *z = o->barrier.z;
        for (long i = 0; i < N * m; i++) w->mr[i] = e->r[i] + (z[N * m + i] - z[i]);
        lq.r = w->mr;
    }
    w->sweeps.stationarity(&lq, o->has_policy ? o->last->K : NULL, e->lambda, e->g, w->size);
    e->gradient = largest(e->g, N * m), e->defect = largest(e->d, N * n), e->theta = l1(e->d, N * n);
    e->scaled = 0.0;
    for (long i = 0; i < N * m; i++)
        if (w->size[i % m] > 0.0) e->scaled = fmax(e->scaled, fabs(e->g[i]) / w->size[i % m]);
    e->kkt = newton_error(o, e, 0.0);
}

/* The Hessian of the Lagrangian at a point. */
static void newton_exact(const newton_solve_t *o, const newton_point_t *e)
{
    const newton_t *w = o->w;
    const long N = w->N, nx = w->nx, n = w->sweeps.n, m = w->sweeps.m;
    for (long j = 0; j < w->count; j++) {
        const newton_phase_t *p = w->phases + j;
        const long k = p->exact.first, last = p->exact.last;
        const point_t at = {e->xs + k * nx, e->us + k * m, e->xs + (k + 1) * nx};
        const curved_t out = {0.0, e->lambda + (k + 1) * n, NULL, NULL, w->cQ + k * n * n, w->cS + k * m * n, w->cR + k * m * m};
        p->curve(o->m->curved + j, &at, 0, last - k, &out, p->curve_room);
    }
    for (long i = 0; i < N * n * n; i++) w->cQ[i] += e->Q[i];
    copy(w->cQ + N * n * n, e->Q + N * n * n, n * n);
    for (long i = 0; i < N * m * n; i++) w->cS[i] += e->S[i];
    for (long i = 0; i < N * m * m; i++) w->cR[i] += e->R[i];
}

/* -- the linear-quadratic problem: see NewtonModel --------------------------------------------------------------------------------- */

static void between(double *to, const double *plain, const double *exact, double share, long count)
{
    for (long i = 0; i < count; i++) to[i] = plain[i] + share * (exact[i] - plain[i]);
}

static void on_diagonal(double *H, double delta, long knots, long n)
{
    for (long i = 0; i < knots; i++)
        for (long a = 0; a < n; a++) H[(i * n + a) * n + a] += delta;
}

/* The problem with a share of the curvature and the damping delta. */
static lq_problem newton_part(newton_solve_t *o, double share, double delta)
{
    newton_t *w = o->w;
    const long N = w->N, n = w->sweeps.n, m = w->sweeps.m;
    lq_problem lq = newton_lq(o->at, N);
    const newton_point_t *plain = w->alike ? o->at : &w->aside;
    if (share < 1.0 && !w->alike && !o->plain_known) newton_expand(o, o->at, &w->aside, 1), o->plain_known = 1;
    lq.Q = share < 1.0 ? plain->Q : w->cQ, lq.S = share < 1.0 ? plain->S : w->cS, lq.R = share < 1.0 ? plain->R : w->cR;
    if ((share == 0.0 || share == 1.0) && delta == 0.0 && !o->bounded) return lq;
    if (share == 0.0 || share == 1.0) {
        copy(w->mQ, lq.Q, (N + 1) * n * n), copy(w->mR, lq.R, N * m * m);
    } else {
        between(w->mQ, lq.Q, w->cQ, share, (N + 1) * n * n);
        between(w->mS, lq.S, w->cS, share, N * m * n);
        between(w->mR, lq.R, w->cR, share, N * m * m);
        lq.S = w->mS;
    }
    if (delta != 0.0) on_diagonal(w->mQ, delta, N + 1, n), on_diagonal(w->mR, delta, N, m);
    if (o->bounded) {
        copy(w->mr, lq.r, N * m);
        barrier_impose(&o->barrier, o->at->us, m, w->mR, w->mr);
        lq.r = w->mr;
    }
    lq.Q = w->mQ, lq.R = w->mR;
    return lq;
}

/* The number of the first of the shares first .. last that leaves a convex problem, with its policy in `to`; last where none does. */
static int newton_convex(newton_solve_t *o, int first, int last, double delta, newton_found_t *to, lq_problem *lq)
{
    const newton_t *w = o->w;
    const lq_policy policy = {to->K, to->k, w->Vx, w->Vxx};
    for (int i = first; i < last; i++) {
        *lq = newton_part(o, shares[i], delta);
        if (w->sweeps.riccati(lq, NULL, 0.0, 0.0, NULL, &policy) < 0 && all_finite(w->Vxx, (w->N + 1) * w->sweeps.n * w->sweeps.n)) return i;
    }
    return last;
}

/* -- the search ------------------------------------------------------------------------------------------------------------------ */

static int newton_by_cost(const newton_solve_t *o, double theta, double expected)
{
    return theta <= 1e-10 * o->scale || (theta <= SMALL * o->scale && -expected > 0.0 && pow(-expected, SWITCH_PHI) > pow(theta, SWITCH_THETA));
}

static int newton_accepts(const newton_solve_t *o, double theta, double phi, double gaps, double value, double expected)
{
    const double *pairs = o->w->pairs;
    if (gaps > LARGE * o->scale) return 0;
    for (long i = 0; i < o->pairs; i++)
        if (!(gaps <= (1.0 - MARGIN) * pairs[2 * i] || value <= pairs[2 * i + 1] - MARGIN * pairs[2 * i])) return 0;
    if (newton_by_cost(o, theta, expected)) return value <= phi + ARMIJO * fmin(expected, 0.0) + NOISE * fabs(phi);
    return gaps <= (1.0 - MARGIN) * theta || value <= phi - MARGIN * theta;
}

/* Trajectories for `count` step lengths from `alphas` on; nodes: where parts begin. */
static void newton_roll(const newton_solve_t *o, const newton_found_t *step, const double *alphas, long count, const signed char *nodes)
{
    const newton_t *w = o->w;
    const long N = w->N, nx = w->nx;
    const trials_t r = {N, 0, o->at->xs, o->at->us, step->dx, step->du, step->K, o->at->d, o->m->lower, o->m->upper, alphas, nodes, w->X, w->U, w->D};
    memset(w->cost, 0, sizeof(double) * count);
    for (long j = 0; j < w->count; j++) {
        const phase_t *p = &w->phases[j].plain;
        long tasks = 0, begin = p->first;
        for (long knot = p->first + 1; knot <= p->last; knot++) {
            if (knot < p->last && !nodes[knot]) continue;
            for (long i = 0; i < count; i++, tasks++) w->start[tasks] = begin, w->stop_at[tasks] = knot, w->trial[tasks] = i;
            begin = knot;
        }
        const parts_t parts = {p->first, w->start, w->stop_at, w->trial, w->part_cost};
        p->roll(o->m->plain + j, &r, &parts, 0, tasks, p->room);
        for (long i = 0; i < tasks; i++) w->cost[w->trial[i]] += w->part_cost[i];
    }
    w->plain_end.values(o->m->plain_end, w->X + N * nx, (N + 1) * nx, count, w->part_cost, NULL, w->plain_end.room);
    for (long i = 0; i < count; i++) w->cost[i] += w->part_cost[i];
}

/* The first of the steps 1, 1/2, ... that the filter accepts, for the policy in `to`; the full one is tried alone. */
static int newton_searched(newton_solve_t *o, const lq_problem *lq, double delta, newton_found_t *to)
{
    const newton_t *w = o->w;
    const long N = w->N, x = (N + 1) * w->nx, d = N * w->sweeps.n, u = N * w->sweeps.m;
    const lq_policy policy = {to->K, to->k, NULL, NULL};
    double change[2];
    memset(to->dx, 0, sizeof(double) * w->sweeps.n);
    w->sweeps.rollout(lq, NULL, &policy, to->dx, to->du, change);
    to->slope = change[0], to->delta = delta, to->longest = o->bounded ? barrier_longest(&o->barrier, o->at->us, to->du) : 1.0;
    for (long i = 0; i < w->lengths; i++) w->own_alphas[i] = to->longest * w->alphas[i];
    const double start = newton_phi(o, o->at->cost, o->at->us);
    for (long first = 0, count; first < w->lengths; first += count) {
        count = first == 0 ? 1 : w->lengths - first < w->trials ? w->lengths - first : w->trials;
        newton_roll(o, to, w->own_alphas + first, count, w->every);
        for (long i = 0; i < count; i++) {
            const double alpha = w->own_alphas[first + i], theta = l1(w->D + i * d, d), phi = newton_phi(o, w->cost[i], w->U + i * u);
            if (!all_finite(w->X + i * x, x) || !(fabs(theta) < HUGE_VAL) || !(fabs(phi) < HUGE_VAL)) continue;
            if (!newton_accepts(o, o->at->theta, start, theta, phi, to->slope * alpha)) continue;
            to->alpha = alpha, to->theta = theta, to->phi = phi;
            copy(to->xs, w->X + i * x, x), copy(to->us, w->U + i * u, u);
            return 1;
        }
    }
    return 0;
}

static double newton_raised(const newton_solve_t *o, double delta)
{
    if (delta == 0.0) return fmax(FIRST, DECAY * o->last_delta);
    return delta * (o->last_delta != 0.0 ? GROWTH : LEAP);
}

/* A step that the filter accepts, by the shares from the first on, with more damping than delta until there is one. */
static int newton_damped(newton_solve_t *o, int last, double delta, newton_found_t *to)
{
    int first = 0;
    for (; delta < LARGEST; delta = newton_raised(o, delta)) {
        lq_problem lq;
        const int share = newton_convex(o, first, last, delta, to, &lq);
        if (share == last) continue;
        if (newton_searched(o, &lq, delta, to)) {
            o->last_delta = delta != 0.0 ? delta : o->last_delta * DECAY;
            return 1;
        }
        if (fabs(to->slope) <= 1e-13 * fabs(newton_phi(o, o->at->cost, o->at->us)) && o->at->defect <= o->w->defect_tolerance) return 0;
        first = share, last = share + 1;
    }
    return 0;
}

static double newton_merit(const newton_solve_t *o, const newton_found_t *step)
{
    return step->phi + largest(o->at->lambda, (o->w->N + 1) * o->w->sweeps.n) * step->theta;
}

/* The step to take, in o->best; where short ones follow each other, damped ones compete. */
static int newton_step(newton_solve_t *o)
{
    newton_exact(o, o->at);
    o->plain_known = 0;
    const int found = newton_damped(o, SHARES, 0.0, o->best);
    o->short_steps = found && o->best->alpha <= SHORT * o->best->longest ? o->short_steps + 1 : 0;
    if (!found || o->short_steps < PATIENCE) return found;
    const double before = o->last_delta;
    double delta = o->best->delta;
    for (int i = 0; i < RIVALS; i++) {
        if (!newton_damped(o, 1, newton_raised(o, delta), o->rival)) break;
        const int short_step = o->rival->alpha <= SHORT * o->rival->longest;
        delta = o->rival->delta;
        if (newton_merit(o, o->rival) < newton_merit(o, o->best)) {
            newton_found_t *won = o->rival;
            o->rival = o->best, o->best = won;
        }
        if (!short_step) break;
    }
    o->last_delta = o->best->delta != 0.0 ? o->best->delta : before;
    return 1;
}

/* -- a solve --------------------------------------------------------------------------------------------------------------------- */

static int no_progress(const newton_solve_t *o)
{
    return o->at->kkt <= 1e3 * SOLVED && o->at->defect <= 1e3 * o->w->defect_tolerance ? ROUNDED : REFERRED;
}

static void go_to(newton_solve_t *o, const double *xs, const double *us)
{
    copy(o->fresh->xs, xs, (o->w->N + 1) * o->w->nx);
    copy(o->fresh->us, us, o->w->N * o->w->sweeps.m);
    newton_expand(o, o->fresh, o->fresh, 0);
}

static void arrive(newton_solve_t *o)
{
    newton_point_t *left = o->at;
    newton_measure(o, o->fresh);
    o->at = o->fresh, o->fresh = left;
}

/* Go on from the roll-out of the last policy, without gaps; the end, or NONE. */
static int newton_restore(newton_solve_t *o)
{
    static const double still[1] = {0.0};
    newton_t *w = o->w;
    const long N = w->N, n = w->sweeps.n, m = w->sweeps.m;
    if (o->at->kkt <= SOLVED || o->at->theta == 0.0 || o->restored++ >= MAX_RESTORED) return no_progress(o);
    memset(o->rival->dx, 0, sizeof(double) * (N + 1) * n), memset(o->rival->du, 0, sizeof(double) * N * m);
    if (o->has_policy) copy(o->rival->K, o->last->K, N * m * n);
    else memset(o->rival->K, 0, sizeof(double) * N * m * n);
    newton_roll(o, o->rival, still, 1, w->none);
    if (!(fabs(w->cost[0]) < HUGE_VAL) || !all_finite(w->X, (N + 1) * w->nx)) return no_progress(o);
    if (o->bounded) barrier_interior(&o->barrier, w->U);
    go_to(o, w->X, w->U);
    if (!newton_finite(o, o->fresh)) return no_progress(o);
    if (o->bounded) barrier_multipliers(&o->barrier, o->fresh->us);
    o->iteration++;
    arrive(o);
    o->scale = fmax(1.0, o->at->theta), o->pairs = 0;
    return NONE;
}

/* One iteration; the end, or NONE. */
static int newton_advance(newton_solve_t *o, newton_result_t *result)
{
    newton_t *w = o->w;
    const double cost = o->at->cost;
    while (o->bounded && barrier_lowered(&o->barrier, newton_error(o, o->at, o->barrier.mu), size_of_cost(cost))) o->pairs = 0;
    if (!newton_step(o)) return newton_restore(o);
    const double start = newton_phi(o, cost, o->at->us);
    newton_found_t *taken = o->best;
    const double expected = -taken->slope * taken->alpha;
    if (!newton_by_cost(o, o->at->theta, -expected)) {
        w->pairs[2 * o->pairs] = o->at->theta, w->pairs[2 * o->pairs + 1] = start;
        o->pairs++;
    }
    o->best = o->last, o->last = taken, o->has_policy = 1;
    go_to(o, taken->xs, taken->us);
    if (o->bounded) barrier_stepped(&o->barrier, o->at->us, taken->du, o->fresh->us, w->move);
    arrive(o);
    o->iteration++;
    const newton_point_t *new = o->at;
    if (!(fabs(new->cost + new->kkt) < HUGE_VAL)) return REFERRED;
    const double change = fabs(cost - new->cost);
    if (change < w->cost_tolerance * fabs(new->cost) && new->defect <= w->defect_tolerance) {
        result->change = change / fabs(new->cost);
        return CHEAPER;
    }
    const int better = new->kkt < 0.9 * o->least || fabs(expected) > 1e-10 * size_of_cost(cost);
    o->least = fmin(o->least, new->kkt), o->idle = better ? 0 : o->idle + 1;
    return o->idle > STALLED ? ROUNDED : NONE;
}

/* The guess with its expansion, and gains for its first costates; 0 where numbers are not finite. */
static int newton_start(newton_solve_t *o)
{
    newton_t *w = o->w;
    const long N = w->N, n = w->sweeps.n, m = w->sweeps.m;
    newton_point_t *at = o->at, *plain = w->alike ? at : &w->aside;
    copy(at->xs, o->m->xs, (N + 1) * w->nx), copy(at->xs, o->m->x0, w->nx), copy(at->us, o->m->us, N * m);
    if (o->bounded) barrier_interior(&o->barrier, at->us);
    newton_expand(o, at, at, 0);
    if (!w->alike) newton_expand(o, at, plain, 1);
    if (!newton_finite(o, at) || !newton_finite(o, plain)) return 0;
    o->plain_known = 1;
    if (o->bounded) {
        o->barrier.mu = BARRIER_SHARE * size_of_cost(plain->cost) / (double)(N * m);
        barrier_multipliers(&o->barrier, at->us);
    }
    for (double delta = 0.0; !o->has_policy && delta < LARGEST; delta = fmax(FIRST, LEAP * delta)) {
        const lq_problem lq = newton_part(o, 0.0, delta);
        const lq_policy policy = {o->last->K, o->last->k, w->Vx, w->Vxx};
        o->has_policy = w->sweeps.riccati(&lq, NULL, 0.0, 0.0, NULL, &policy) < 0 && all_finite(o->last->K, N * m * n);
    }
    newton_measure(o, at);
    o->scale = fmax(1.0, at->theta);
    return 1;
}

/* Iterate to an end: see _finished of newton_loop.py. */
static int newton_iterated(newton_solve_t *o, newton_result_t *result)
{
    const newton_t *w = o->w;
    const double began = now();
    if (!newton_start(o)) return REFERRED;
    for (;;) {
        const newton_point_t *at = o->at;
        const double product = o->bounded ? complementarity(&o->barrier, at->us, 0.0) : 0.0;
        const double stop = fmax(fmax(at->gradient, product) / w->gradient_tolerance, at->defect / w->defect_tolerance);
        if (stop <= 1.0 || (at->kkt <= w->kkt_tolerance && at->defect <= w->defect_tolerance)) return OPTIMAL;
        if (o->iteration >= w->max_iterations) return MOST_ITERATIONS;
        if (w->time_limit > 0.0 && now() - began > w->time_limit) return OUT_OF_TIME;
        if (*w->stop) return INTERRUPTED;
        if (o->pairs == w->most_pairs) return REFERRED;
        const int end = newton_advance(o, result);
        if (end != NONE) return end;
    }
}

/* The gains about the solution, or those of the last step. */
static void newton_gains(newton_solve_t *o)
{
    const newton_t *w = o->w;
    const long N = w->N, n = w->sweeps.n, m = w->sweeps.m;
    lq_problem lq;
    newton_exact(o, o->at);
    o->plain_known = 0;
    const newton_found_t *from = newton_convex(o, 0, SHARES, 0.0, o->rival, &lq) < SHARES ? o->rival : o->has_policy ? o->last : NULL;
    if (!from) return;
    copy(o->m->to_K, from->K, N * m * n);
    copy(o->m->to_k, from->k, N * m);
    for (long i = 0; o->bounded && i < N * m; i++)
        if (barrier_holds(&o->barrier, o->at->us, i)) memset(o->m->to_K + i * n, 0, sizeof(double) * n), o->m->to_k[i] = 0.0;
}

/* Go to the point with controls on the bounds that hold them, its motion rolled out; nowhere where that spoils it. */
static void put_on_bounds(newton_solve_t *o)
{
    static const double still[1] = {0.0};
    newton_t *w = o->w;
    const long N = w->N, n = w->sweeps.n, m = w->sweeps.m;
    newton_found_t *s = o->rival;
    if (!o->has_policy) memset(o->last->K, 0, sizeof(double) * N * m * n);
    memset(s->dx, 0, sizeof(double) * (N + 1) * n), memset(s->du, 0, sizeof(double) * N * m);
    copy(s->us, o->at->us, N * m);
    for (long i = 0; i < N * m; i++) {
        const int side = barrier_holds(&o->barrier, o->at->us, i);
        if (side) o->at->us[i] = side == 1 ? o->m->lower[i] : o->m->upper[i], memset(o->last->K + i * n, 0, sizeof(double) * n);
    }
    copy(s->K, o->last->K, N * m * n);
    newton_roll(o, s, still, 1, w->none);
    copy(o->at->us, s->us, N * m);
    if (!(fabs(w->cost[0] - o->at->cost) <= SOLVED * fabs(o->at->cost))) return;
    go_to(o, w->X, w->U);
    if (!newton_finite(o, o->fresh)) return;
    newton_measure(o, o->fresh);
    if (!(o->fresh->kkt <= fmax(SOLVED, o->at->kkt))) return;
    newton_point_t *left = o->at;
    o->at = o->fresh, o->fresh = left;
}

/* Whether an end is a success: see Status. */
static int newton_succeeds(const newton_t *w, long code, double kkt)
{
    return code == OPTIMAL || (code == CHEAPER && (w->asked || kkt <= NEAR)) || (code == ROUNDED && kkt <= SOLVED);
}

static void newton_solve(newton_t *w, const newton_member_t *m)
{
    const double began = now();
    newton_result_t result = {0};
    newton_solve_t o = {.w = w, .m = m, .at = w->points, .fresh = w->points + 1, .best = w->found, .rival = w->found + 1, .last = w->found + 2,
                        .barrier = {m->lower, m->upper, w->z, 0.0, w->N * w->sweeps.m}, .bounded = m->lower != NULL, .least = HUGE_VAL};
    result.code = newton_iterated(&o, &result);
    result.iterations = o.iteration;
    result.gradient = o.at->gradient, result.defect = o.at->defect, result.kkt = o.at->kkt;
    if (o.bounded && newton_succeeds(w, result.code, result.kkt)) put_on_bounds(&o);
    result.cost = o.at->cost;
    copy(m->to_xs, o.at->xs, (w->N + 1) * w->nx);
    copy(m->to_us, o.at->us, w->N * w->sweeps.m);
    if (m->to_K && result.code != REFERRED) newton_gains(&o);
    result.seconds = now() - began;
    *m->result = result;
    if (result.code != REFERRED) __atomic_add_fetch(w->done, 1, __ATOMIC_RELAXED);
}

/* Solve problems until there are none left, or until `stop` is set. */
EXPORT void newton_run(newton_t *w)
{
    while (!*w->stop) {
        const long number = __atomic_fetch_add(w->next, 1, __ATOMIC_RELAXED);
        if (number >= w->total) break;
        newton_solve(w, w->members + number);
    }
}

/* The sizes of newton_t, newton_phase_t and newton_result_t. */
EXPORT long newton_size(int of) { return of == 0 ? sizeof(newton_t) : of == 1 ? sizeof(newton_phase_t) : sizeof(newton_result_t); }
