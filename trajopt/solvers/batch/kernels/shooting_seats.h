/* Problems of SLQ's family in seats: iteration.h, whose calls of kernels ask for work side by side.  Before this text stand iteration.h and
   seats.h.

   Where a solve asks for an expansion with its direction (problems with bounds: for a Riccati sweep) or for a roll-out, the seat waits.  What
   fills the lanes by itself (an expansion alone, whose lanes hold knots) is done at once, on the group's stack.

   How solves end, beside the ends of an iteration, is an enumeration of values.py. */

/* See Status: kkt and change as in record_t; failed_at: the knot of an indefinite Quu. */
typedef struct {
    long code, iterations, failed_at;
    double cost, gradient, defect, kkt, change, seconds;
} result_t;

/* A problem: its values by phase and at the end, its guess, and where its solution goes; K, k: NULL if not asked for. */
typedef struct {
    const stages_t *stages;
    const end_t *end;
    const double *x0, *xs, *us, *lower, *upper;
    long max_iterations;
    double *to_xs, *to_us, *to_K, *to_k;
    result_t *result;
} member_t;

/* What is shared by the problems: a phase's functions, and its roll-out and its expansion of several problems. */
typedef struct {
    phase_t own;
    void (*abreast)(const rolled_t *of, long count, void *room);
    void (*first)(const seen_t *of, long origin, long knot, long read, const first_t *out, void *room);
} shared_phase_t;

enum { SWEEP = ABREAST, LOOK, ROLL }; /* ROLL + i: a roll-out of phase i */

/* A solve, and the problem that it is of. */
typedef struct {
    shooting_t *s;
    phase_t *phases;
    struct group *group;
    member_t *member;
} place_t;

/* Seats that take turns on one thread.  members, total, next, stop, done: shared with other groups; next and done count problems taken and
   ended, stop: set from outside.  steps: whether roll-outs read linear steps; near, solved: STATIONARY and SOLVED of status.py; nearly: the measure of the
   last iterate from which on that of the next is computed, which ends a solve below kkt_tolerance. */
typedef struct group {
    turns_t turns;
    long phase_count;
    const shared_phase_t *phases;
    final_t end;
    sweeps_t sweeps;
    void (*riccati_abreast)(lq_lane *lanes, void *room);
    void (*directions)(lq_direction *lanes, long N, void (*expand)(void *of, long i, const lq_vectors *to), void *of, void *room);
    void (*end_first)(const seen_t *of, long knot, const end_first_t *out, void *room);
    void *room, *sweep_room, *directions_room;
    member_t *members;
    long total;
    long *next, *done;
    const volatile long *stop;
    globalization_t start;
    double near, solved, time_limit, nearly, kkt_tolerance;
    long steps;
} group_t;

static place_t *place_of(const seat_t *seat) { return seat->own; }
static group_t *group_of(const seat_t *seat) { return seat->turns->own; }

/* -- what iteration.h calls in place of the kernels --------------------------------------------------------------------------- */

static long ask_riccati(const lq_problem *p, const lq_bounds *bounds, double on_state, double on_control, const void *changes,
                        const lq_policy *to)
{
    lq_lane lane = {p, bounds, to, on_state, on_control, -1};
    (void)changes;
    ask(SWEEP, NULL, &lane);
    return lane.failed;
}

typedef struct {
    const shared_phase_t *phase;
    const stages_t *stages;
    const point_t *at;
    long first, last;
    const first_t *out;
} expand_asked;

static void serve_expand(seat_t *seat, void *asked)
{
    const expand_asked *a = asked;
    a->phase->own.expand(a->stages, a->at, a->first, a->last, a->out, group_of(seat)->room);
}

static void ask_expand(const stages_t *s, const point_t *at, long first, long last, const first_t *out, void *phase)
{
    expand_asked a = {phase, s, at, first, last, out};
    ask(AT_ONCE, serve_expand, &a);
}

typedef struct {
    const shared_phase_t *phase;
    const stages_t *stages;
    const trials_t *trials;
    const parts_t *parts;
    long first, last;
} roll_asked;

static void serve_roll(seat_t *seat, void *asked)
{
    const roll_asked *a = asked;
    a->phase->own.roll(a->stages, a->trials, a->parts, a->first, a->last, group_of(seat)->room);
}

static void ask_roll(const stages_t *s, const trials_t *r, const parts_t *p, long first, long last, void *phase)
{
    roll_asked a = {phase, s, r, p, first, last};
    if (last - first >= LANES) ask(AT_ONCE, serve_roll, &a); /* its own parts fill the lanes */
    else ask(ROLL + (a.phase - group_of(now_seated)->phases), NULL, &a);
}

typedef struct {
    const end_t *end;
    const double *xs;
    long stride, count;
    double *cost;
    const end_first_t *out;
} end_asked;

static void serve_end(seat_t *seat, void *asked)
{
    const end_asked *a = asked;
    const final_t *own = &group_of(seat)->end;
    if (a->out) own->expand(a->end, a->xs, a->out, group_of(seat)->room);
    else own->values(a->end, a->xs, a->stride, a->count, a->cost, NULL, group_of(seat)->room);
}

static void ask_end_expand(const end_t *s, const double *x, const end_first_t *out, void *room)
{
    end_asked a = {s, x, 0, 1, NULL, out};
    (void)room;
    ask(AT_ONCE, serve_end, &a);
}

static void ask_end_values(const end_t *s, const double *xs, long stride, long count, double *cost, double *g, void *room)
{
    end_asked a = {s, xs, stride, count, cost, NULL};
    (void)g, (void)room;
    ask(AT_ONCE, serve_end, &a);
}

static void ask_look(shooting_t *s, iterate_t *e)
{
    (void)s;
    ask(LOOK, NULL, e);
}

/* -- a solve -------------------------------------------------------------------------------------------------------------------- */

/* The end of a search without success, at the best iterate: see _settled of methods/shooting.py. */
static long settled(shooting_t *s, const group_t *g, result_t *result)
{
    model_t step;
    s->at = s->best;
    iterate_t *best = s->slots + s->at;
    result->kkt = kkt(s, best);
    s->state.mu = 0.0, s->state.delta = 1.0;
    if (!direction(s, best, &step)) return NOT_POSITIVE_DEFINITE;
    if (result->kkt <= g->solved || promise(&s->state, step, phi(s, best)) <= NEAR_ROUNDING) return PRECISION_LIMIT;
    return s->state.drift > ADRIFT ? GAPS_STAY_OPEN : LINE_SEARCH_FAILED;
}

/* Iterate until a test fires: see _finished and _advance of methods/shooting.py. */
static long run(shooting_t *s, const group_t *g, const member_t *m, result_t *result)
{
    const double began = now();
    if (!shooting_start(s)) return NON_FINITE;
    for (result->iterations = 0;; result->iterations++) {
        iterate_t *at = s->slots + s->at;
        if (at->stop <= 1.0) return CONVERGED;
        const int little = s->record.alpha > 0.0 && fabs(s->record.expected) <= sqrt(g->kkt_tolerance) * fabs(s->record.cost);
        if (result->iterations && s->record.kkt <= g->nearly && little && at->defect <= s->options.defect_tolerance) {
            const double measure = kkt(s, at);
            if (measure <= g->kkt_tolerance) return OPTIMAL;
        }
        if (result->iterations >= m->max_iterations) return MAX_ITERATIONS;
        if (g->time_limit > 0.0 && now() - began > g->time_limit) return TIME_LIMIT;
        if (*g->stop) return INTERRUPTED;
        if (are_left(&g->turns, LANES / 2)) s->ahead.look = NULL, s->ahead.of = NULL;
        const int code = shooting_iterate(s);
        if (code == GO_ON) continue;
        result->failed_at = s->record.failed_at;
        if (code == NOT_POSITIVE_DEFINITE) return code;
        result->iterations++;
        if (code == NO_PROGRESS) {
            const long end = settled(s, g, result);
            result->failed_at = s->record.failed_at;
            return end;
        }
        result->kkt = s->record.kkt_new, result->change = s->record.change;
        if (result->kkt <= g->near) s->at = s->fresh;
        return code;
    }
}

/* The gains about the solution, or those of the last step: see Gains of shooting_requests.py. */
static void tell_policy(shooting_t *s, const member_t *m)
{
    const long N = s->N, n = s->sweeps.n, m_ = s->sweeps.m;
    iterate_t *at = s->slots + s->at;
    recall(s, at);
    const lq_problem lq = lq_of(at, N);
    const double mu = s->state.mu, on_state = s->options.on_state ? mu : 0.0;
    lq_bounds limits;
    copy(m->to_K, s->policy.K, N * m_ * n);
    copy(m->to_k, s->policy.k, N * m_);
    if (s->lower) limits = room_for(s, at);
    if (s->sweeps.riccati(&lq, s->lower ? &limits : NULL, on_state, mu - on_state, NULL, &s->policy) >= 0) return;
    copy(m->to_K, s->policy.K, N * m_ * n);
    copy(m->to_k, s->policy.k, N * m_);
}

static void solve(const place_t *at)
{
    const group_t *g = at->group;
    shooting_t *s = at->s;
    member_t *m = at->member;
    const long N = s->N, nx = s->nx, nu = s->sweeps.m;
    const double began = now();
    result_t result = {.kkt = NAN};
    for (long i = 0; i < g->phase_count; i++) at->phases[i].stages = m->stages + i;
    s->end.end = m->end;
    s->lower = m->lower, s->upper = m->upper;
    s->state = g->start;
    s->ahead.look = ask_look, s->ahead.of = NULL;
    s->at = 0, s->fresh = s->best = s->holder = NONE;
    iterate_t *e = s->slots;
    copy(e->xs, m->xs, (N + 1) * nx);
    copy(e->xs, m->x0, nx);
    copy(e->us, m->us, N * nu);
    memset(s->policy.K, 0, sizeof(double) * N * nu * s->sweeps.n);
    memset(s->policy.k, 0, sizeof(double) * N * nu);
    result.code = run(s, g, m, &result);
    e = s->slots + s->at;
    result.cost = e->cost, result.gradient = e->gradient, result.defect = e->defect;
    if (result.kkt != result.kkt && result.code != NON_FINITE) result.kkt = kkt(s, e);
    copy(m->to_xs, e->xs, (N + 1) * nx);
    copy(m->to_us, e->us, N * nu);
    if (m->to_K && result.code != NON_FINITE) tell_policy(s, m);
    result.seconds = now() - began;
    *m->result = result;
    __atomic_add_fetch(g->done, 1, __ATOMIC_RELAXED);
}

/* One problem after the other. */
static void solve_next(void *of)
{
    place_t *at = place_of(of);
    group_t *g = at->group;
    while (!*g->stop) {
        const long number = __atomic_fetch_add(g->next, 1, __ATOMIC_RELAXED);
        if (number >= g->total) break;
        at->member = g->members + number;
        solve(at);
    }
}

/* -- turns ---------------------------------------------------------------------------------------------------------------------- */

/* All have bounds, or none. */
static int sweeps_together(const void *first, const void *asked)
{
    return !((const lq_lane *)first)->bounds == !((const lq_lane *)asked)->bounds;
}

/* Sweeps of up to LANES seats that wait for one, from the one that waits the longest on. */
static void serve_sweeps(group_t *g)
{
    seat_t *seats[LANES];
    lq_lane lanes[LANES], *asked[LANES];
    const int count = gather(&g->turns, SWEEP, sweeps_together, seats, 0);
    for (int l = 0; l < count; l++) asked[l] = seats[l]->asked;
    note_use(&g->turns, BACK, count, asked[0]->p->N);
    if (count == 1) {
        lq_lane *own = asked[0];
        own->failed = g->sweeps.riccati(own->p, own->bounds, own->on_state, own->on_control, NULL, own->to);
        return;
    }
    for (int l = 0; l < LANES; l++) lanes[l] = *asked[l < count ? l : count - 1];
    g->riccati_abreast(lanes, g->sweep_room);
    for (int l = 0; l < count; l++) asked[l]->failed = lanes[l].failed;
}

/* Those whose expansions and directions are found: the seats, what is read of their problems, and the phase that is being expanded. */
typedef struct {
    group_t *g;
    const place_t *places[LANES];
    seen_t lanes[LANES];
    const shared_phase_t *phase;
} looking_t;

static void expand_abreast(void *of, long i, const lq_vectors *to)
{
    looking_t *at = of;
    group_t *g = at->g;
    if (i == at->places[0]->s->N) {
        const end_first_t out = {to->cost, NULL, to->q, NULL, to->Q};
        g->end_first(at->lanes, i, &out, g->room);
        return;
    }
    if (!at->phase || i < at->phase->own.first || i >= at->phase->own.last) {
        for (at->phase = g->phases; i >= at->phase->own.last; at->phase++) {}
        for (int l = 0; l < LANES; l++) at->lanes[l].stages = at->places[l]->phases[at->phase - g->phases].stages;
    }
    const phase_t *own = &at->phase->own;
    const first_t out = {{NULL, to->d, to->cost, NULL}, to->A, to->B, to->q, to->r, NULL, NULL, to->Q, to->S, to->R, NULL};
    at->phase->first(at->lanes, own->first, i, own->read, &out, g->room);
}

/* Expansions and directions of up to LANES seats that wait for them. */
static void serve_looks(group_t *g)
{
    looking_t at = {g};
    seat_t *seats[LANES];
    lq_direction lanes[LANES];
    const int count = gather(&g->turns, LOOK, NULL, seats, 0);
    for (int l = 0; l < LANES; l++) {
        const seat_t *seat = seats[l < count ? l : count - 1];
        const iterate_t *e = seat->asked;
        const shooting_t *s = place_of(seat)->s;
        at.places[l] = place_of(seat);
        at.lanes[l] = (seen_t){NULL, s->end.end, e->xs, e->us};
        lanes[l] = s->ahead.to;
    }
    const long N = at.places[0]->s->N;
    note_use(&g->turns, BACK, count, N);
    g->directions(lanes, N, expand_abreast, &at, g->directions_room);
    for (int l = 0; l < count; l++) at.places[l]->s->ahead.to = lanes[l];
}

/* Roll-outs of phases with the same tables and gaps. */
static int rolls_together(const void *first, const void *asked)
{
    const roll_asked *a = first, *b = asked;
    return a->trials->nonlinear == b->trials->nonlinear && a->stages->td == b->stages->td;
}

/* Roll-outs of a phase, of seats that wait for one: as many as the lanes hold, the parts of one problem side by side. */
static void serve_rolls(group_t *g, long kind)
{
    rolled_t of[2 * LANES];
    seat_t *seats[LANES];
    const int asked = gather(&g->turns, kind, rolls_together, seats, 0);
    const roll_asked *first = seats[0]->asked;
    int count = 0;
    for (int i = 0; i < asked; i++) {
        const roll_asked *a = seats[i]->asked;
        if (count && count + a->last - a->first > LANES) {
            seats[i]->waits_for = kind; /* no room is left */
            continue;
        }
        for (long part = a->first; part < a->last; part++) of[count++] = (rolled_t){a->stages, a->trials, a->parts, part};
    }
    note_use(&g->turns, AHEAD, count, first->phase->own.last - first->phase->own.first);
    first->phase->abreast(of, count, g->room);
}

static void serve(turns_t *t, long kind)
{
    if (kind == SWEEP) serve_sweeps(t->own);
    else if (kind == LOOK) serve_looks(t->own);
    else serve_rolls(t->own, kind);
}

/* Solve problems until there are none left, or until `stop` is set. */
EXPORT void batch_run(group_t *g)
{
    for (long j = 0; j < g->turns.count; j++) {
        place_t *at = place_of(g->turns.seats + j);
        shooting_t *s = at->s;
        at->group = g;
        s->phases = at->phases;
        for (long i = 0; i < g->phase_count; i++) {
            at->phases[i] = g->phases[i].own;
            at->phases[i].expand = ask_expand, at->phases[i].roll = ask_roll, at->phases[i].room = (void *)(g->phases + i);
        }
        s->end.expand = ask_end_expand, s->end.values = ask_end_values;
        s->sweeps = g->sweeps;
        s->sweeps.riccati = ask_riccati;
        s->ahead.nearly = g->nearly;
        if (!g->steps) s->ahead.to.dx = s->ahead.to.du = NULL;
    }
    g->turns.own = g, g->turns.serve = serve;
    take_turns(&g->turns, solve_next);
}

/* The sizes of place_t, group_t and result_t. */
EXPORT long batch_size(int of) { return of == 0 ? sizeof(place_t) : of == 1 ? sizeof(group_t) : sizeof(result_t); }
