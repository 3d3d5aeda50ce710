/* A problem, its points and their errors in Newton's loop: see newton_point.py and newton_model.py of trajopt/solvers/shooting/newton.
   Before this text stand iteration.h with what it asks for, barrier.h, the constants of those modules and the ends of ends.py. */

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
   of its terms; costate: the largest one.  plain: whether Q, S and R are those of Gauss and Newton. */
typedef struct {
    double *xs, *us, *x_next, *costs, *A, *B, *d, *Q, *q, *S, *R, *r, *lambda, *g;
    double cost, gradient, scaled, defect, theta, kkt, costate;
    long plain;
} newton_point_t;

/* A step that the filter accepts; see Found.  longest: what the bounds allow of it; share: the number of its share. */
typedef struct {
    double *K, *k, *dx, *du, *xs, *us;
    double slope, delta, alpha, theta, phi, longest;
    long share;
} newton_found_t;

/* What ends a solve: see Ended of ends.py. */
typedef struct {
    long code, iterations;
    double cost, gradient, defect, kkt, change, seconds;
} newton_result_t;

/* What is told of a point and of the step from it: see IterationRecord.  share: NONE where there was no step; seconds: derivatives,
   sweeps, roll-outs. */
typedef struct {
    double cost, merit, stop, gradient, delta, step_norm, defect, expected, actual, alpha, kkt, seconds[3];
    long share;
} newton_record_t;

/* A problem: its values by phase (of the exact, the plain and the curved library) and at the end, its start, and where its solution goes;
   to_K, to_k: NULL where gains are not asked for. */
typedef struct {
    const stages_t *exact, *plain, *curved;
    const end_t *end, *plain_end;
    const double *x0, *xs, *us, *lower, *upper;
    double *to_xs, *to_us, *to_K, *to_k;
    newton_result_t *result;
    long max_iterations;
} newton_member_t;

/* What is done for problems side by side: attempts at steps from a point, with what is known of that from its expansion, and a trial
   of a step length along a step; and, alone, newton_damped with damping, which asks for sweeps again and again, iterations where is_alone says
   so, and newton_finite.  See newton_seats.h. */
typedef struct newton newton_t;
typedef struct {
    void (*attempt)(newton_t *o, newton_point_t *e);
    void (*roll)(newton_t *o, const newton_found_t *step, double alpha);
    int (*damped)(newton_t *o, int first, int last, double delta, newton_found_t *to);
    int (*is_alone)(const newton_t *o);
    long (*iterate)(newton_t *o);
    int (*finite)(const newton_t *o, const newton_point_t *e);
} newton_abreast_t;

/* A solve, and what solves problems on one thread.
   points: where it is, where it goes; found: the step taken, a rival, and that of the last policy; Vx, Vxx: of a sweep; cQ, cS, cR: the
   Hessian of the Lagrangian; oQ, oS, oR: that of the cost of the other kind than the points' own, once it is known; mQ, mS, mR, mr: what is swept;
   z, move: multipliers of bounds and their step; bend, push, pull: what these add to a problem, see barrier.h.  alike: whether one Hessian of the cost serves; widest: the number of the largest share that is
   tried.  pairs: of the filter, most_pairs at most.  total, next, done, stop: shared with other threads.
   abreast: NULL where a problem is solved alone; else points have a trajectory and numbers alone, and `ahead` are the last attempts, of a point
   and of some shares, as bits.
   What follows them belongs to one solve. */
struct newton {
    const newton_phase_t *phases;
    final_t end, plain_end;
    sweeps_t sweeps;
    long N, nx, count, alike, widest, trials;
    newton_point_t points[2];
    newton_found_t found[3];
    double *Vx, *Vxx, *cQ, *cS, *cR, *oQ, *oS, *oR, *mQ, *mS, *mR, *mr, *z, *move, *bend, *push, *pull, *own_alphas, *size, *pairs, *X, *U, *D, *cost, *part_cost;
    long *start, *stop_at, *trial;
    const double *alphas;
    const signed char *every, *none;
    long lengths, most_pairs;
    double gradient_tolerance, defect_tolerance, kkt_tolerance, cost_tolerance, time_limit;
    const newton_member_t *members;
    long total, *next, *done;
    const volatile long *stop;
    const newton_abreast_t *abreast;
    lq_attempt ahead;
    const newton_point_t *ahead_of;
    const newton_member_t *m;
    newton_point_t *at, *fresh;
    newton_found_t *best, *rival, *last;
    barrier_t barrier;
    double began, scale, last_delta, least, change;
    long bounded, paired, has_policy, other_known, iteration, restored, idle, short_steps, plain;
    newton_record_t record;
};

/* -- expansions ------------------------------------------------------------------------------------------------------------------ */

/* What nothing reads stays where it is. */
static void newton_still(const newton_t *o, const phase_t *p, double *R)
{
    const long m = o->sweeps.m;
    for (long i = p->first; i < p->last; i++)
        for (long a = p->read; a < m; a++) R[(i * m + a) * m + a] = 1.0;
}

static const phase_t *newton_kind(const newton_t *o, long j, long plain) { return plain ? &o->phases[j].plain : &o->phases[j].exact; }

/* The expansion about the trajectory of e, without the exact Hessian of the cost where the next step will hardly ask for it. */
static void newton_expand(newton_t *o, newton_point_t *e)
{
    const long plain = e->plain = !o->alike && o->plain > 0;
    const stages_t *stages = plain ? o->m->plain : o->m->exact;
    const final_t *end = plain ? &o->plain_end : &o->end;
    const double began = now();
    const long N = o->N, nx = o->nx, n = o->sweeps.n, m = o->sweeps.m;
    for (long j = 0; j < o->count; j++) {
        const phase_t *p = newton_kind(o, j, plain);
        const long k = p->first;
        const point_t at = {e->xs + k * nx, e->us + k * m, e->xs + (k + 1) * nx};
        const first_t out = {{e->x_next + k * nx, e->d + k * n, e->costs + k, NULL},
                             e->A + k * n * n, e->B + k * n * m, e->q + k * n, e->r + k * m, NULL, NULL,
                             e->Q + k * n * n, e->S + k * m * n, e->R + k * m * m, NULL};
        p->expand(stages + j, &at, 0, p->last - k, &out, p->room);
        newton_still(o, p, e->R);
    }
    const end_first_t out = {e->costs + N, NULL, e->q + N * n, NULL, e->Q + N * n * n};
    end->expand(plain ? o->m->plain_end : o->m->end, e->xs + N * nx, &out, end->room);
    e->cost = 0.0;
    for (long i = 0; i <= N; i++) e->cost += e->costs[i];
    o->record.seconds[DERIVATIVES] += now() - began;
}

/* The Hessian of the cost about the trajectory of e of the other kind than its own. */
static void newton_other(newton_t *o, const newton_point_t *e)
{
    if (o->other_known) return;
    const long plain = !e->plain;
    const stages_t *stages = plain ? o->m->plain : o->m->exact;
    const final_t *end = plain ? &o->plain_end : &o->end;
    const double began = now();
    const long N = o->N, nx = o->nx, n = o->sweeps.n, m = o->sweeps.m;
    for (long j = 0; j < o->count; j++) {
        const phase_t *p = newton_kind(o, j, plain);
        const long k = p->first;
        const point_t at = {e->xs + k * nx, e->us + k * m, e->xs + (k + 1) * nx};
        const first_t out = {.Q = o->oQ + k * n * n, .S = o->oS + k * m * n, .R = o->oR + k * m * m};
        p->expand(stages + j, &at, 0, p->last - k, &out, p->room);
        newton_still(o, p, o->oR);
    }
    const end_first_t out = {.Q = o->oQ + N * n * n};
    end->expand(plain ? o->m->plain_end : o->m->end, e->xs + N * nx, &out, end->room);
    o->other_known = 1;
    o->record.seconds[DERIVATIVES] += now() - began;
}

static lq_problem newton_lq(const newton_point_t *e, long N) { return (lq_problem){e->A, e->B, e->d, e->Q, e->q, e->S, e->R, e->r, N}; }

static int newton_finite(const newton_t *o, const newton_point_t *e)
{
    const lq_problem lq = newton_lq(e, o->N);
    if (o->abreast) return (o->has_policy && e->gradient == e->gradient) || o->abreast->finite(o, e);
    return fabs(e->cost) < HUGE_VAL && o->sweeps.finite(&lq);
}

static double size_of_cost(double cost) { return fmax(fabs(cost), DBL_MIN); }

/* The scaled measure, with complementarity at mu. */
static double newton_error(const newton_t *o, const newton_point_t *e, double mu)
{
    const double product = o->bounded ? complementarity(&o->barrier, e->us, mu) / size_of_cost(e->cost) : 0.0;
    const double rest = fmax(product, e->defect);
    return e->scaled <= rest ? rest : e->scaled;
}

static double newton_phi(const newton_t *o, double cost, const double *us)
{
    return o->bounded ? cost + barrier_value(&o->barrier, us) : cost;
}

/* Costates under the last gains, and the errors of a point, which are no numbers where those of its expansion are none. */
static void newton_measure(newton_t *o, newton_point_t *e)
{
    if (o->abreast) return; /* that comes with an attempt */
    const double began = now();
    const long N = o->N, n = o->sweeps.n, m = o->sweeps.m;
    lq_problem lq = newton_lq(e, N);
    if (o->bounded) {
        const double *z = o->barrier.z;
        for (long i = 0; i < N * m; i++) o->mr[i] = e->r[i] + (z[N * m + i] - z[i]);
        lq.r = o->mr;
    }
    o->sweeps.stationarity(&lq, o->has_policy ? o->last->K : NULL, e->lambda, e->g, o->size);
    e->gradient = largest(e->g, N * m), e->defect = largest(e->d, N * n), e->theta = l1(e->d, N * n);
    e->costate = largest(e->lambda, (N + 1) * n);
    e->scaled = 0.0;
    for (long i = 0; i < N * m; i++)
        if (o->size[i % m] > 0.0) e->scaled = larger(e->scaled, fabs(e->g[i]) / o->size[i % m]);
    e->kkt = newton_error(o, e, 0.0);
    /* what is no number in q, r, A and B is none in the costates or the gradient, and a Hessian that has none leaves no sweep convex */
    if (!(fabs(e->cost) < HUGE_VAL) || !all_finite(e->g, N * m) || !all_finite(e->lambda, (N + 1) * n) || !all_finite(e->d, N * n))
        e->gradient = e->scaled = e->kkt = NAN;
    o->record.seconds[BACKWARD] += now() - began;
}

/* The largest of gradient, complementarity and gaps, each by its tolerance. */
static double newton_stop(const newton_t *o, const newton_point_t *e)
{
    const double product = o->bounded ? complementarity(&o->barrier, e->us, 0.0) : 0.0;
    if (e->gradient != e->gradient) return NAN;
    return fmax(fmax(e->gradient, product) / o->gradient_tolerance, e->defect / o->defect_tolerance);
}

/* The Hessian of the Lagrangian at a point. */
static void newton_exact(newton_t *o, const newton_point_t *e)
{
    if (o->widest == SHARES - 1 || o->abreast) return; /* which no share asks for, or only together with a sweep */
    if (e->plain) newton_other(o, e);
    const double *Q = e->plain ? o->oQ : e->Q, *S = e->plain ? o->oS : e->S, *R = e->plain ? o->oR : e->R;
    const double began = now();
    const long N = o->N, nx = o->nx, n = o->sweeps.n, m = o->sweeps.m;
    for (long j = 0; j < o->count; j++) {
        const newton_phase_t *p = o->phases + j;
        const long k = p->exact.first, last = p->exact.last;
        const point_t at = {e->xs + k * nx, e->us + k * m, e->xs + (k + 1) * nx};
        const curved_t out = {0.0, e->lambda + (k + 1) * n, NULL, NULL, o->cQ + k * n * n, o->cS + k * m * n, o->cR + k * m * m};
        p->curve(o->m->curved + j, &at, 0, last - k, &out, p->curve_room);
    }
    for (long i = 0; i < N * n * n; i++) o->cQ[i] += Q[i];
    copy(o->cQ + N * n * n, Q + N * n * n, n * n);
    for (long i = 0; i < N * m * n; i++) o->cS[i] += S[i];
    for (long i = 0; i < N * m * m; i++) o->cR[i] += R[i];
    o->record.seconds[DERIVATIVES] += now() - began;
}
