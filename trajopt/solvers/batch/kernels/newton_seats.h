/* Problems of Newton's loop in seats: newton_loop.h, whose attempts at a step and trials of step lengths are made side by side.  Before this text stand
   newton_loop.h and seats.h.

   Attempts are one way back over the knots, with expansion, costates, curvature and gains of several problems, for some shares of the curvature, and
   one way forward for a step.  What few problems ask for is done for each of them alone: motions that are rolled out from their start, steps with
   damping, which take one expansion and many sweeps, and the iterations behind these; and the last problems of a batch. */

/* ATTEMPTS + the bits of the shares that are asked for. */
enum { TRIALS = ABREAST, ATTEMPTS, EVERY = 1 << SHARES };

/* A phase: its expansions of several problems, without and with the curvature, the Hessian of its cost alone, its trials, and its roll-out. */
typedef struct {
    long first, last, read;
    void (*plain)(const seen_t *of, long origin, long knot, long read, const first_t *out, void *room);
    void (*exact)(const seen_t *of, long origin, long knot, long read, const void *lambda, const first_t *out, void *room);
    void (*terms)(const seen_t *of, long origin, long knot, long read, const first_t *out, void *room);
    void (*tried)(const tried_t *of, long first, long last, void *room);
    void (*roll)(const stages_t *s, const trials_t *r, const parts_t *p, long first, long last, void *room);
} newton_shared_t;

typedef struct {
    turns_t turns;
    long count;
    const newton_shared_t *phases;
    void (*plain_end)(const seen_t *of, long knot, const end_first_t *out, void *room);
    void (*exact_end)(const seen_t *of, long knot, const end_first_t *out, void *room);
    void (*tried_end)(const tried_t *of, long knot, void *room);
    void (*end_values)(const end_t *s, const double *xs, long stride, long count, double *cost, double *g, void *room);
    void (*attempts)(lq_attempt *lane, long N, const lq_asked *of,
                     void (*expand)(void *at, long i, const void *lambda, const lq_vectors *plain, const lq_vectors *exact), void *at, void *w);
    void *room, *attempts_room;
    newton_t *alone;
    long made_alone; /* iterations of which the step was found alone */
} newton_group_t;

static newton_group_t *newton_group_of(const seat_t *seat) { return seat->turns->own; }

/* -- what newton_loop.h calls ------------------------------------------------------------------------------------------------- */

typedef struct {
    newton_t *o;
    const newton_point_t *e;
} attempt_asked;

static void ask_attempt(newton_t *o, newton_point_t *e)
{
    attempt_asked asked = {o, e};
    ask(ATTEMPTS + o->ahead.asked, NULL, &asked);
}

typedef struct {
    newton_t *o;
    const newton_found_t *step;
    double alpha;
} trial_asked;

static void ask_trial(newton_t *o, const newton_found_t *step, double alpha)
{
    trial_asked asked = {o, step, alpha};
    ask(TRIALS, NULL, &asked);
}

typedef struct {
    const newton_shared_t *phase;
    const stages_t *stages;
    const trials_t *trials;
    const parts_t *parts;
    long first, last;
} motion_asked;

static void serve_motion(seat_t *seat, void *asked)
{
    const motion_asked *a = asked;
    a->phase->roll(a->stages, a->trials, a->parts, a->first, a->last, newton_group_of(seat)->room);
}

static void ask_motion(const stages_t *s, const trials_t *r, const parts_t *p, long first, long last, void *phase)
{
    motion_asked asked = {phase, s, r, p, first, last};
    ask(AT_ONCE, serve_motion, &asked);
}

typedef struct {
    const end_t *end;
    const double *xs;
    long stride, count;
    double *cost;
} values_asked;

static void serve_values(seat_t *seat, void *asked)
{
    const values_asked *a = asked;
    newton_group_of(seat)->end_values(a->end, a->xs, a->stride, a->count, a->cost, NULL, newton_group_of(seat)->room);
}

static void ask_values(const end_t *s, const double *xs, long stride, long count, double *cost, double *g, void *room)
{
    values_asked asked = {s, xs, stride, count, cost};
    (void)g, (void)room;
    ask(AT_ONCE, serve_values, &asked);
}

/* The point where a solve is, the gains of its last step, and what it knows of its way, to another one. */
static void hand_over(const newton_t *from, newton_t *to)
{
    const long N = to->N, m = to->sweeps.m;
    newton_point_t *at = to->at;
    copy(at->xs, from->at->xs, (N + 1) * to->nx), copy(at->us, from->at->us, N * m);
    at->cost = from->at->cost, at->gradient = from->at->gradient, at->scaled = from->at->scaled, at->defect = from->at->defect;
    at->theta = from->at->theta, at->kkt = from->at->kkt, at->costate = from->at->costate;
    copy(to->last->K, from->last->K, N * m * to->sweeps.n), copy(to->last->k, from->last->k, N * m);
    if (from->bounded) copy(to->z, from->z, 2 * N * m), to->barrier.mu = from->barrier.mu;
    to->last->share = from->last->share, to->last->delta = from->last->delta;
    to->began = from->began, to->scale = from->scale, to->last_delta = from->last_delta, to->least = from->least, to->change = from->change;
    to->paired = from->paired, to->has_policy = from->has_policy, to->iteration = from->iteration, to->restored = from->restored;
    to->idle = from->idle, to->short_steps = from->short_steps, to->plain = from->plain;
}

/* Go on alone, in w, from the point where a solve is: with the expansion there and, where these are asked for, second derivatives. */
static void go_on_alone(newton_t *w, const newton_t *o, int exact)
{
    w->m = o->m, w->at = w->points, w->fresh = w->at + 1, w->best = w->found, w->rival = w->found + 1, w->last = w->found + 2;
    w->pairs = o->pairs, w->other_known = 0;
    w->bounded = o->bounded, w->barrier = (barrier_t){o->m->lower, o->m->upper, w->z, 0.0, o->barrier.count};
    hand_over(o, w);
    newton_expand(w, w->at), newton_measure(w, w->at);
    if (exact) newton_exact(w, w->at);
}

typedef struct {
    newton_t *o;
    int first, last, found;
    double delta;
    newton_found_t *to;
} damped_asked;

static void serve_damped(seat_t *seat, void *asked)
{
    damped_asked *a = asked;
    newton_t *w = newton_group_of(seat)->alone, *o = a->o;
    const long N = o->N, n = o->sweeps.n, m = o->sweeps.m;
    go_on_alone(w, o, a->first < SHARES - 1);
    a->found = newton_damped(w, a->first, a->last, a->delta, w->best);
    o->last_delta = w->last_delta;
    newton_group_of(seat)->made_alone += a->found && a->to == o->best;
    if (!a->found) return;
    const newton_found_t *from = w->best;
    newton_found_t *to = a->to;
    copy(to->K, from->K, N * m * n), copy(to->k, from->k, N * m), copy(to->dx, from->dx, (N + 1) * n), copy(to->du, from->du, N * m);
    copy(to->xs, from->xs, (N + 1) * o->nx), copy(to->us, from->us, N * m);
    to->slope = from->slope, to->delta = from->delta, to->alpha = from->alpha, to->theta = from->theta, to->phi = from->phi;
    to->longest = from->longest, to->share = from->share;
}

static int ask_damped(newton_t *o, int first, int last, double delta, newton_found_t *to)
{
    damped_asked asked = {o, first, last, 0, delta, to};
    ask(AT_ONCE, serve_damped, &asked);
    return asked.found;
}

/* Where the last step had damping, the next will ask for some, too. */
static int is_alone(const newton_t *o)
{
    return (o->iteration && o->last->delta != 0.0) || are_left(now_seated->turns, LANES);
}

typedef struct {
    newton_t *o;
    long end;
} iterations_asked;

#define IN_TURN 8 /* iterations that one problem makes alone while others wait */

static void serve_iterations(seat_t *seat, void *asked)
{
    iterations_asked *a = asked;
    newton_t *w = newton_group_of(seat)->alone;
    go_on_alone(w, a->o, 0);
    long count = 0;
    do a->end = newton_iterate(w), count++;
    while (a->end == NONE && is_alone(w) && (count < IN_TURN || are_left(seat->turns, LANES)));
    newton_group_of(seat)->made_alone += w->iteration - a->o->iteration;
    hand_over(w, a->o);
    a->o->ahead_of = NULL;
}

static long ask_iterations(newton_t *o)
{
    iterations_asked asked = {o, NONE};
    ask(AT_ONCE, serve_iterations, &asked);
    return asked.end;
}

typedef struct {
    const newton_t *o;
    const newton_point_t *e;
    int finite;
} finite_asked;

static void serve_finite(seat_t *seat, void *asked)
{
    finite_asked *a = asked;
    newton_t *w = newton_group_of(seat)->alone;
    w->m = a->o->m, w->at = w->points, w->plain = w->other_known = 0;
    copy(w->at->xs, a->e->xs, (w->N + 1) * w->nx), copy(w->at->us, a->e->us, w->N * w->sweeps.m);
    newton_expand(w, w->at);
    a->finite = newton_finite(w, w->at);
}

static int ask_finite(const newton_t *o, const newton_point_t *e)
{
    finite_asked asked = {o, e, 0};
    ask(AT_ONCE, serve_finite, &asked);
    return asked.finite;
}

static const newton_abreast_t newton_asks = {ask_attempt, ask_trial, ask_damped, is_alone, ask_iterations, ask_finite};

/* -- turns ---------------------------------------------------------------------------------------------------------------------- */

/* Those for whom steps are attempted: their solves, what is read of their problems by libraries without and with the curvature, and the number of
   the phase that is being expanded. */
typedef struct {
    const newton_group_t *g;
    long phase;
    const newton_t *o[LANES];
    seen_t plain[LANES], exact[LANES];
} attempting_t;

/* The phase of knot i, of which the lanes then read. */
static const newton_shared_t *phase_at(attempting_t *at, long i)
{
    const newton_group_t *g = at->g;
    if (at->phase == NONE || i < g->phases[at->phase].first || i >= g->phases[at->phase].last) {
        for (at->phase = 0; i >= g->phases[at->phase].last; at->phase++) {}
        for (int l = 0; l < LANES; l++)
            at->plain[l].stages = at->o[l]->m->plain + at->phase, at->exact[l].stages = at->o[l]->m->curved + at->phase;
    }
    return g->phases + at->phase;
}

static first_t blocks_of(const lq_vectors *to)
{
    return (first_t){{NULL, to->d, to->cost, NULL}, to->A, to->B, to->q, to->r, NULL, NULL, to->Q, to->S, to->R, NULL};
}

static void expand_end(const attempting_t *at, long N, const lq_vectors *to, void (*expand)(const seen_t *, long, const end_first_t *, void *),
                       const seen_t *of)
{
    const end_first_t out = {to->cost, NULL, to->q, NULL, to->Q};
    expand(of, N, &out, at->g->room);
}

static void expand_attempts(void *of, long i, const void *lambda, const lq_vectors *plain, const lq_vectors *exact)
{
    attempting_t *at = of;
    const newton_group_t *g = at->g;
    if (i == at->o[0]->N) {
        if (plain) expand_end(at, i, plain, g->plain_end, at->plain);
        if (exact) expand_end(at, i, exact, g->exact_end, at->exact);
        return;
    }
    const newton_shared_t *p = phase_at(at, i);
    if (plain) {
        const first_t out = blocks_of(plain);
        (exact ? p->terms : p->plain)(at->plain, p->first, i, p->read, &out, g->room);
    }
    if (exact) {
        const first_t out = blocks_of(exact);
        p->exact(at->exact, p->first, i, p->read, lambda, &out, g->room);
    }
}

static void serve_attempts(newton_group_t *g, long kind)
{
    seat_t *seats[LANES];
    lq_attempt lanes[LANES];
    attempting_t at = {g, NONE};
    const long asked = kind - ATTEMPTS;
    const lq_asked of = {shares, asked};
    int count = gather(&g->turns, kind, NULL, seats, 0);
    for (long fewer = EVERY - 1; fewer >= 0; fewer--) /* lanes that are left are for those who ask for some of the shares */
        if (fewer != asked && !(fewer & ~asked)) count = gather(&g->turns, ATTEMPTS + fewer, NULL, seats, count);
    for (int l = 0; l < LANES; l++) {
        const attempt_asked *a = seats[l < count ? l : count - 1]->asked;
        const newton_t *o = at.o[l] = a->o;
        at.plain[l] = (seen_t){NULL, o->m->plain_end, a->e->xs, a->e->us};
        at.exact[l] = (seen_t){NULL, o->m->end, a->e->xs, a->e->us};
        lanes[l] = o->ahead;
    }
    note_use(&g->turns, BACK, count, at.o[0]->N);
    g->attempts(lanes, at.o[0]->N, &of, expand_attempts, &at, g->attempts_room);
    for (int l = 0; l < count; l++) ((const attempt_asked *)seats[l]->asked)->o->ahead = lanes[l];
}

static void serve_trials(newton_group_t *g)
{
    seat_t *seats[LANES];
    tried_t lanes[LANES];
    const newton_t *of[LANES];
    double unseen = 0.0;
    const int count = gather(&g->turns, TRIALS, NULL, seats, 0);
    for (int l = 0; l < LANES; l++) {
        const trial_asked *a = seats[l < count ? l : count - 1]->asked;
        newton_t *o = a->o;
        of[l] = o, o->cost[0] = 0.0;
        lanes[l] = (tried_t){NULL,       o->m->plain_end, o->at->xs, o->at->us, a->step->dx, a->step->du, a->alpha, o->X,
                             o->U,       o->D,            l < count ? o->cost : &unseen};
    }
    const long N = of[0]->N;
    note_use(&g->turns, AHEAD, count, N);
    for (long i = 0; i < g->count; i++) {
        for (int l = 0; l < LANES; l++) lanes[l].stages = of[l]->m->curved + i;
        g->phases[i].tried(lanes, g->phases[i].first, g->phases[i].last, g->room);
    }
    g->tried_end(lanes, N, g->room);
}

static void serve(turns_t *t, long kind)
{
    if (kind == TRIALS) serve_trials(t->own);
    else serve_attempts(t->own, kind);
}

static void solve_next(void *seat) { newton_run(((seat_t *)seat)->own); }

/* Solve problems until there are none left, or until `stop` is set. */
EXPORT void newton_seats_run(newton_group_t *g)
{
    for (long j = 0; j < g->turns.count; j++) {
        newton_t *o = g->turns.seats[j].own;
        newton_phase_t *phases = (newton_phase_t *)o->phases;
        for (long i = 0; i < g->count; i++) phases[i].plain.roll = ask_motion, phases[i].plain.room = (void *)(g->phases + i);
        o->plain_end.values = ask_values, o->abreast = &newton_asks;
    }
    g->turns.own = g, g->turns.serve = serve;
    take_turns(&g->turns, solve_next);
}

EXPORT long newton_group_size(int of) { return of == 0 ? sizeof(newton_group_t) : sizeof(newton_shared_t); }
