/* Window of problems in Newton's method, with one problem in each lane.  Two kernels serve up to LANES problems: LQ solves with their expansions,
   in one backward and one forward pass over the knots, and trials of step lengths.  Requires newton_slot.h.

   A request is answered immediately, or waits (`waits`) for one of the two kernels; the driver chooses the problems that share a call.  Rare
   requests (rollouts without defects, damped steps) are served one at a time, damped steps in a slot that stores expansions. */

enum { DONE, TRIALS, ATTEMPTS }; /* operations; ATTEMPTS + bit mask of the requested curvature fractions */
enum { FIRST_GAINS, ACCEPT, STEP, TRY, RESTORE, ON_BOUNDS, GAINS };

/* Functions of a phase for several problems: expansions without and with second derivatives of the dynamics, the Hessian of its cost alone, and
   trials. */
typedef struct {
    long first, last, read;
    void (*plain)(const seen_t *of, long origin, long knot, long read, const first_t *out, void *room);
    void (*exact)(const seen_t *of, long origin, long knot, long read, const void *lambda, const first_t *out, void *room);
    void (*terms)(const seen_t *of, long origin, long knot, long read, const first_t *out, void *room);
    void (*tried)(const tried_t *of, long first, long last, void *room);
} window_phase_t;

typedef struct {
    long count;
    const window_phase_t *phases;
    void (*plain_end)(const seen_t *of, long knot, const end_first_t *out, void *room);
    void (*exact_end)(const seen_t *of, long knot, const end_first_t *out, void *room);
    void (*tried_end)(const tried_t *of, long knot, void *room);
    void *room, *attempts_room;
} newton_window_t;

/* -- requests --------------------------------------------------------------------------------------------------------------------------- */

/* Wait for the expansion about e and LQ solves with damping `delta`; under: gains for the costates. */
static long wait_for_attempt(newton_t *o, iterate_t *e, long asked, double delta, const double *under)
{
    lq_attempt *a = &o->ahead;
    o->ahead_of = e, a->asked = asked, a->delta = delta, a->under = under;
    if (o->bounded) barrier_apart(&o->barrier, e->us, o->bend, o->push, o->pull), a->barrier = (lq_barrier){o->bend, o->pull, o->push};
    return o->waits = ATTEMPTS + asked;
}

/* Start, without an expansion; answer: cost of the guess if there are bounds, which scales the barrier, else 0. */
EXPORT void newton_window_start(newton_t *o, const newton_problem_t *problem)
{
    static const double still[1] = {0.0};
    newton_take(o, problem);
    o->answer[0] = 0.0;
    if (!o->bounded) return;
    const newton_step_t *step = o->tried[1];
    memset(step->dx, 0, sizeof(double) * (o->N + 1) * o->dims.n), memset(step->du, 0, sizeof(double) * o->N * o->dims.m);
    newton_roll(o, o->at->us, step->K, step, still, 1, o->every);
    o->answer[0] = o->cost[0];
}

static long all_fractions(const newton_t *o) { return (1L << FRACTIONS) - (1L << o->widest); }

EXPORT long newton_window_first_gains(newton_t *o, double delta, double mu)
{
    const long steps = o->N * o->dims.m;
    o->request = FIRST_GAINS, o->barrier.mu = mu;
    if (o->bounded && delta == 0.0) barrier_multipliers(&o->barrier, o->at->us);
    if (delta >= 0.0) return wait_for_attempt(o, o->at, all_fractions(o), delta, NULL);
    memset(o->last->K, 0, sizeof(double) * steps * o->dims.n), memset(o->last->k, 0, sizeof(double) * steps);
    return wait_for_attempt(o, o->at, 0, 0.0, o->last->K);
}

EXPORT long newton_window_accept(newton_t *o, long place, long row, long asked, double mu)
{
    newton_move(o, place, row, mu);
    o->request = ACCEPT;
    return wait_for_attempt(o, o->fresh, asked, 0.0, o->last->K);
}

EXPORT long newton_window_restore(newton_t *o, long asked, double mu)
{
    o->request = RESTORE;
    if (newton_closed_motion(o, mu)) return wait_for_attempt(o, o->fresh, asked, 0.0, o->last->K);
    answer_point(o, o->at, 0);
    return o->waits = DONE;
}

EXPORT long newton_window_on_bounds(newton_t *o)
{
    o->request = ON_BOUNDS;
    newton_snapped(o);
    return wait_for_attempt(o, o->fresh, 0, 0.0, o->last->K);
}

/* Set to = to + mu by if there is a barrier. */
static void add_barrier_part(const newton_t *o, double *to, const double *by, long count)
{
    for (long i = 0; o->bounded && i < count; i++) to[i] += o->barrier.mu * by[i];
}

/* Make the LQ solve with fraction i the step `to`; the two swap their memory. */
static void take_attempt(newton_t *o, long i, newton_step_t *to)
{
    lq_attempt *a = &o->ahead;
    const lq_policy left = {to->K, to->k, NULL, NULL};
    const lq_step step = {to->dx, to->du};
    const double mu = o->bounded ? o->barrier.mu : 0.0;
    const long steps = o->N * o->dims.m;
    to->K = a->K[i], to->k = a->k[i], to->dx = a->dx, to->du = a->du, to->slope = a->slope[0] + mu * (a->slope[1] + mu * a->slope[2]);
    a->K[i] = left.K, a->k[i] = left.k, a->dx = step.dx, a->du = step.du, o->ahead_of = NULL;
    add_barrier_part(o, to->k, a->k_by[i], steps), add_barrier_part(o, to->du, a->du_by, steps);
    add_barrier_part(o, to->dx, a->dx_by, (o->N + 1) * o->dims.n);
    to->fraction = i;
}

/* Find the step of the first of the fractions first .. past that yields a convex problem.  Returns DONE, with its index in `first` (past: none), or
   the operation to wait for.  If the last step took the full curvature, smaller fractions are requested only when needed. */
static long find_attempt(newton_t *o, newton_step_t *to)
{
    const lq_attempt *a = &o->ahead;
    for (; o->first < o->past; o->first++) {
        const long i = o->first;
        const int known = o->ahead_of == o->at && a->delta == 0.0 && a->asked >> i & 1;
        const int convex = known && a->convex >> i & 1;
        if (!known || (convex && a->share != i)) {
            const long rest = (1L << o->past) - (1L << i);
            return wait_for_attempt(o, o->at, i == o->widest && o->has_policy && o->last->fraction == i ? 1L << i : rest, 0.0, o->last->K);
        }
        if (!convex) continue;
        take_attempt(o, i, to);
        return DONE;
    }
    return DONE;
}

static long go_on_with_step(newton_t *o)
{
    newton_step_t *to = o->tried[o->place];
    if ((o->waits = find_attempt(o, to)) != DONE) return o->waits;
    o->answer[0] = -1.0;
    if (o->first == o->past) return DONE;
    to->longest = o->bounded ? barrier_longest(&o->barrier, o->at->us, to->du) : 1.0;
    o->own_alphas[0] = to->longest;
    return o->waits = TRIALS;
}

/* Step without damping. */
EXPORT long newton_window_step(newton_t *o, long place, long first, long past, double mu)
{
    o->request = STEP, o->place = place, o->first = first, o->past = past, o->barrier.mu = mu;
    return go_on_with_step(o);
}

EXPORT long newton_window_try(newton_t *o, long place, long first)
{
    o->request = TRY, o->place = place, o->own_alphas[0] = o->tried[place]->longest * o->alphas[first];
    return o->waits = TRIALS;
}

static long go_on_with_gains(newton_t *o)
{
    if ((o->waits = find_attempt(o, o->tried[1])) != DONE) return o->waits;
    newton_put_gains(o, o->first < o->past ? o->tried[1] : o->has_policy ? o->last : NULL);
    return DONE;
}

EXPORT long newton_window_gains(newton_t *o, long first)
{
    o->request = GAINS, o->first = first, o->past = FRACTIONS;
    return go_on_with_gains(o);
}

/* Move the slot with expansions to the current iterate of a problem. */
EXPORT void newton_window_lend(newton_t *alone, const newton_t *o)
{
    alone->problem = o->problem, alone->at = alone->points, alone->fresh = alone->at + 1;
    alone->tried[0] = alone->steps, alone->tried[1] = alone->steps + 1, alone->last = alone->steps + 2;
    alone->bounded = o->bounded, alone->barrier = (barrier_t){o->problem->lower, o->problem->upper, alone->z, 0.0, o->barrier.count};
    newton_hand_over(o, alone);
    newton_expand(alone, alone->at, 0), newton_measure(alone, alone->at);
}

/* Move a problem to the iterate of the slot with expansions. */
EXPORT void newton_window_return(const newton_t *alone, newton_t *o) { newton_hand_over(alone, o); }

/* -- kernels -------------------------------------------------------------------------------------------------------------------------------- */

/* Continue the request of a slot after an LQ solve; returns the operation to wait for, or DONE. */
static long go_on_behind_attempt(newton_t *o)
{
    lq_attempt *a = &o->ahead;
    iterate_t *e = o->ahead_of;
    e->cost = a->cost, e->defect = a->defect, e->gap = a->theta;
    e->gradient = a->finite ? a->gradient : NAN, e->scaled = a->finite ? a->scaled : NAN;
    switch (o->request) {
    case STEP: return go_on_with_step(o);
    case GAINS: return go_on_with_gains(o);
    case RESTORE: answer_restored(o); return DONE;
    case ON_BOUNDS: answer_point(o, e, 1); return DONE;
    case ACCEPT: newton_turn(o); break;
    default:
        if (a->asked && a->convex >> GAUSS_NEWTON & 1) {
            const long steps = o->N * o->dims.m;
            copy(o->last->K, a->K[GAUSS_NEWTON], steps * o->dims.n), copy(o->last->k, a->k[GAUSS_NEWTON], steps);
            add_barrier_part(o, o->last->k, a->k_by[GAUSS_NEWTON], steps);
            o->has_policy = 1;
        }
    }
    answer_point(o, o->at, (int)o->has_policy);
    return DONE;
}

/* Problems in LQ solves: inputs of the functions without and with second derivatives, and the phase being expanded. */
typedef struct {
    const newton_window_t *w;
    long phase;
    newton_t *const *o;
    long count;
    seen_t plain[LANES], exact[LANES];
} attempting_t;

/* Return the phase of knot i, and let the lanes read its data. */
static const window_phase_t *phase_at(attempting_t *at, long i)
{
    const newton_window_t *w = at->w;
    if (at->phase == NONE || i < w->phases[at->phase].first || i >= w->phases[at->phase].last) {
        for (at->phase = 0; i >= w->phases[at->phase].last; at->phase++) {}
        for (int l = 0; l < LANES; l++) {
            const newton_problem_t *p = SLOT_OF(l, at->o, at->count)->problem;
            at->plain[l].stages = p->plain + at->phase, at->exact[l].stages = p->curved + at->phase;
        }
    }
    return w->phases + at->phase;
}

static first_t blocks_of(const lq_vectors *to)
{
    return (first_t){{NULL, to->d, to->cost, NULL}, to->A, to->B, to->q, to->r, NULL, NULL, to->Q, to->S, to->R, NULL};
}

static void expand_ends(const attempting_t *at, long N, const lq_vectors *to, void (*expand)(const seen_t *, long, const end_first_t *, void *),
                       const seen_t *of)
{
    const end_first_t out = {to->cost, NULL, to->q, NULL, to->Q};
    expand(of, N, &out, at->w->room);
}

static void expand_attempts(void *of, long i, const void *lambda, const lq_vectors *plain, const lq_vectors *exact)
{
    attempting_t *at = of;
    const newton_window_t *w = at->w;
    if (i == at->o[0]->N) {
        if (plain) expand_ends(at, i, plain, w->plain_end, at->plain);
        if (exact) expand_ends(at, i, exact, w->exact_end, at->exact);
        return;
    }
    const window_phase_t *p = phase_at(at, i);
    if (plain) {
        const first_t out = blocks_of(plain);
        (exact ? p->terms : p->plain)(at->plain, p->first, i, p->read, &out, w->room);
    }
    if (exact) {
        const first_t out = blocks_of(exact);
        p->exact(at->exact, p->first, i, p->read, lambda, &out, w->room);
    }
}

/* Perform LQ solves for `count` waiting slots, at most LANES; asked: bit mask of the curvature fractions. */
EXPORT void newton_window_attempts(const newton_window_t *w, newton_t *const *slots, long count, long asked)
{
    lq_attempt lanes[LANES];
    attempting_t at = {w, NONE, slots, count};
    const lq_asked of = {fractions, asked};
    const double began = now();
    for (int l = 0; l < LANES; l++) {
        const newton_t *o = SLOT_OF(l, slots, count);
        at.plain[l] = (seen_t){NULL, o->problem->plain_end, o->ahead_of->xs, o->ahead_of->us};
        at.exact[l] = (seen_t){NULL, o->problem->end, o->ahead_of->xs, o->ahead_of->us};
        lanes[l] = o->ahead;
    }
    lq_attempts(lanes, slots[0]->dims, slots[0]->N, &of, expand_attempts, &at, w->attempts_room);
    for (int l = 0; l < count; l++) {
        slots[l]->ahead = lanes[l], slots[l]->waits = go_on_behind_attempt(slots[l]);
        slots[l]->seconds[BACKWARD] += (now() - began) / (double)count;
    }
}

/* Try a step length for each of `count` slots, at most LANES. */
EXPORT void newton_window_trials(const newton_window_t *w, newton_t *const *slots, long count)
{
    tried_t lanes[LANES];
    double unseen = 0.0;
    const long N = slots[0]->N;
    for (int l = 0; l < LANES; l++) {
        newton_t *o = SLOT_OF(l, slots, count);
        const newton_step_t *step = o->tried[o->place];
        o->cost[0] = 0.0;
        lanes[l] = (tried_t){NULL, o->problem->plain_end, o->at->xs, o->at->us, step->dx, step->du, o->own_alphas[0], o->X, o->U, o->D,
                             l < count ? o->cost : &unseen};
    }
    for (long i = 0; i < w->count; i++) {
        for (int l = 0; l < LANES; l++) lanes[l].stages = SLOT_OF(l, slots, count)->problem->curved + i;
        w->phases[i].tried(lanes, w->phases[i].first, w->phases[i].last, w->room);
    }
    w->tried_end(lanes, N, w->room);
    for (int l = 0; l < count; l++) {
        newton_t *o = slots[l];
        if (o->request == STEP) answer_step(o, o->tried[o->place]);
        else answer_trial(o, 0, o->answer);
        o->waits = DONE;
    }
}
