/* Many problems of one structure, side by side.  Before this text stand iteration.h, coroutines.h and LANES.

   A seat holds a problem and runs the one source of a solve, iteration.h, as a coroutine.  Where that asks for an expansion with its direction
   (problems with bounds: for a Riccati sweep) or for a roll-out, the seat waits: when all seats of a group do, what most of them wait for is
   done for one problem in each lane.  Decisions are scalar and each problem's own; problems need not be in step.  A seat whose problem has
   ended takes the next one.  What fills the lanes by itself (an expansion alone, whose lanes hold knots) is done at once, on the group's stack.

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

enum { IDLE, READY, AT_ONCE, SWEEP, LOOK, ROLL }; /* what a seat waits for; ROLL + i: a roll-out of phase i */

typedef struct seat seat_t;

struct seat {
    shooting_t *s;
    phase_t *phases;
    coroutine_t coroutine;
    struct group *group;
    member_t *member;
    long waits_for, since;
    void (*serve)(seat_t *, void *);
    void *asked;
};

/* Lanes that worked, and all there were, in sweeps and in roll-outs, by knots. */
typedef struct {
    long busy[2], all[2];
} use_t;

/* Seats that take turns on one thread.  members, total, next, stop, done: shared with other groups; next and done count problems taken and
   ended, stop: set from outside.  steps: whether roll-outs read linear steps; near, solved: see status.py; asked: accept_cost_tolerance; nearly: the measure of the last iterate from which
   on that of the next is asked for, which ends a solve below kkt_tolerance. */
typedef struct group {
    seat_t *seats;
    long count, phase_count;
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
    long asked, steps, turn;
    use_t use;
} group_t;

/* Turns after which a seat is served although others wait for something else. */
#define PATIENCE 6

static __thread seat_t *now_seated;

static void ask(seat_t *seat, long kind, void (*serve)(seat_t *, void *), void *asked)
{
    seat->waits_for = kind, seat->serve = serve, seat->asked = asked, seat->since = seat->group->turn;
    wait_here(&seat->coroutine);
}

/* -- what iteration.h calls in place of the kernels --------------------------------------------------------------------------- */

static long ask_riccati(const lq_problem *p, const lq_bounds *bounds, double on_state, double on_control, const void *changes,
                        const lq_policy *to)
{
    lq_lane lane = {p, bounds, to, on_state, on_control, -1};
    (void)changes;
    ask(now_seated, SWEEP, NULL, &lane);
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
    a->phase->own.expand(a->stages, a->at, a->first, a->last, a->out, seat->group->room);
}

static void ask_expand(const stages_t *s, const point_t *at, long first, long last, const first_t *out, void *phase)
{
    expand_asked a = {phase, s, at, first, last, out};
    ask(now_seated, AT_ONCE, serve_expand, &a);
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
    a->phase->own.roll(a->stages, a->trials, a->parts, a->first, a->last, seat->group->room);
}

static void ask_roll(const stages_t *s, const trials_t *r, const parts_t *p, long first, long last, void *phase)
{
    seat_t *seat = now_seated;
    roll_asked a = {phase, s, r, p, first, last};
    if (last - first >= LANES) ask(seat, AT_ONCE, serve_roll, &a); /* its own parts fill the lanes */
    else ask(seat, ROLL + (a.phase - seat->group->phases), NULL, &a);
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
    const final_t *own = &seat->group->end;
    if (a->out) own->expand(a->end, a->xs, a->out, seat->group->room);
    else own->values(a->end, a->xs, a->stride, a->count, a->cost, NULL, seat->group->room);
}

static void ask_end_expand(const end_t *s, const double *x, const end_first_t *out, void *room)
{
    end_asked a = {s, x, 0, 1, NULL, out};
    (void)room;
    ask(now_seated, AT_ONCE, serve_end, &a);
}

static void ask_end_values(const end_t *s, const double *xs, long stride, long count, double *cost, double *g, void *room)
{
    end_asked a = {s, xs, stride, count, cost, NULL};
    (void)g, (void)room;
    ask(now_seated, AT_ONCE, serve_end, &a);
}

static void ask_look(shooting_t *s, iterate_t *e)
{
    (void)s;
    ask(now_seated, LOOK, NULL, e);
}

/* -- a solve -------------------------------------------------------------------------------------------------------------------- */

/* The end of a search without success, at the best iterate: see _no_progress of shooting_loop.py. */
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

/* Iterate until a test fires: see _finished and _advance of shooting_loop.py. */
static long run(shooting_t *s, const group_t *g, const member_t *m, result_t *result)
{
    const double began = now();
    if (!shooting_start(s)) return NON_FINITE;
    for (result->iterations = 0;; result->iterations++) {
        iterate_t *at = s->slots + s->at;
        if (at->stop <= 1.0) return CONVERGED;
        const int little = s->record.alpha > 0.0 && fabs(s->record.expected) <= sqrt(g->kkt_tolerance) * fabs(s->record.cost);
        if (result->iterations && s->record.kkt <= g->nearly && little && at->defect <= s->options.defect_tolerance) {
            result->kkt = kkt(s, at);
            if (result->kkt <= g->kkt_tolerance) return OPTIMAL;
        }
        if (result->iterations >= m->max_iterations) return MAX_ITERATIONS;
        if (g->time_limit > 0.0 && now() - began > g->time_limit) return TIME_LIMIT;
        if (*g->stop) return INTERRUPTED;
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
        if (result->kkt <= g->near || g->asked) s->at = s->fresh;
        return code;
    }
}

/* The gains about the solution, or those of the last step: see _final_policy of shooting_loop.py. */
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

static void solve(seat_t *seat)
{
    const group_t *g = seat->group;
    shooting_t *s = seat->s;
    member_t *m = seat->member;
    const long N = s->N, nx = s->nx, nu = s->sweeps.m;
    const double began = now();
    result_t result = {0};
    for (long i = 0; i < g->phase_count; i++) seat->phases[i].stages = m->stages + i;
    s->end.end = m->end;
    s->lower = m->lower, s->upper = m->upper;
    s->state = g->start;
    s->at = 0, s->fresh = s->best = s->holder = NONE;
    iterate_t *at = s->slots;
    copy(at->xs, m->xs, (N + 1) * nx);
    copy(at->xs, m->x0, nx);
    copy(at->us, m->us, N * nu);
    memset(s->policy.K, 0, sizeof(double) * N * nu * s->sweeps.n);
    memset(s->policy.k, 0, sizeof(double) * N * nu);
    result.code = run(s, g, m, &result);
    at = s->slots + s->at;
    result.cost = at->cost, result.gradient = at->gradient, result.defect = at->defect;
    copy(m->to_xs, at->xs, (N + 1) * nx);
    copy(m->to_us, at->us, N * nu);
    if (m->to_K && result.code != NON_FINITE) tell_policy(s, m);
    result.seconds = now() - began;
    *m->result = result;
    __atomic_add_fetch(g->done, 1, __ATOMIC_RELAXED);
}

/* One problem after the other. */
static void take_turns(void *of)
{
    seat_t *seat = of;
    group_t *g = seat->group;
    while (!*g->stop) {
        const long number = __atomic_fetch_add(g->next, 1, __ATOMIC_RELAXED);
        if (number >= g->total) break;
        seat->member = g->members + number;
        solve(seat);
    }
}

/* -- turns ---------------------------------------------------------------------------------------------------------------------- */

static void note(group_t *g, int of, long busy, long knots)
{
    g->use.busy[of] += busy * knots;
    g->use.all[of] += LANES * knots;
}

/* The seat that waits the longest: for a kind, or IDLE for anything. */
static seat_t *oldest(const group_t *g, long kind)
{
    seat_t *found = NULL;
    for (seat_t *seat = g->seats; seat < g->seats + g->count; seat++)
        if ((kind ? seat->waits_for == kind : seat->waits_for != IDLE) && (!found || seat->since < found->since)) found = seat;
    return found;
}

/* The next seat behind `first`, `i` places on. */
static seat_t *behind_seat(const group_t *g, const seat_t *first, long i) { return g->seats + (first - g->seats + i) % g->count; }

/* Sweeps of up to LANES seats that wait for one, from the one that waits the longest on. */
static void serve_sweeps(group_t *g)
{
    const seat_t *first = oldest(g, SWEEP);
    lq_lane lanes[LANES], *asked[LANES];
    int count = 0;
    for (long i = 0; i < g->count && count < LANES; i++) {
        seat_t *seat = behind_seat(g, first, i);
        if (seat->waits_for != SWEEP) continue;
        lq_lane *own = seat->asked;
        if (count && !own->bounds != !asked[0]->bounds) continue; /* all have bounds, or none */
        asked[count++] = own;
        seat->waits_for = READY;
    }
    note(g, 0, count, asked[0]->p->N);
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
    seat_t *seats[LANES];
    seen_t lanes[LANES];
    const shared_phase_t *phase;
} looking_t;

static void expand_abreast(void *of, long i, const lq_vectors *to)
{
    looking_t *at = of;
    group_t *g = at->g;
    if (i == at->seats[0]->s->N) {
        const end_first_t out = {to->cost, NULL, to->q, NULL, to->Q};
        g->end_first(at->lanes, i, &out, g->room);
        return;
    }
    if (!at->phase || i < at->phase->own.first || i >= at->phase->own.last) {
        for (at->phase = g->phases; i >= at->phase->own.last; at->phase++) {}
        for (int l = 0; l < LANES; l++) at->lanes[l].stages = at->seats[l]->phases[at->phase - g->phases].stages;
    }
    const phase_t *own = &at->phase->own;
    const first_t out = {{NULL, to->d, to->cost, NULL}, to->A, to->B, to->q, to->r, NULL, NULL, to->Q, to->S, to->R, NULL};
    at->phase->first(at->lanes, own->first, i, own->read, &out, g->room);
}

/* Expansions and directions of up to LANES seats that wait for them. */
static void serve_looks(group_t *g)
{
    looking_t at = {g};
    lq_direction lanes[LANES];
    int count = 0;
    const seat_t *first = oldest(g, LOOK);
    for (long i = 0; i < g->count && count < LANES; i++) {
        seat_t *seat = behind_seat(g, first, i);
        if (seat->waits_for == LOOK) at.seats[count++] = seat, seat->waits_for = READY;
    }
    for (int l = 0; l < LANES; l++) {
        if (l >= count) at.seats[l] = at.seats[count - 1];
        const seat_t *seat = at.seats[l];
        const iterate_t *e = seat->asked;
        at.lanes[l] = (seen_t){NULL, seat->s->end.end, e->xs, e->us};
        lanes[l] = seat->s->ahead.to;
    }
    const long N = at.seats[0]->s->N;
    note(g, 0, count, N);
    g->directions(lanes, N, expand_abreast, &at, g->directions_room);
    for (int l = 0; l < count; l++) at.seats[l]->s->ahead.to = lanes[l];
}

/* Roll-outs of a phase, of seats that wait for one with the same tables and gaps, up to a block of lanes or a little more. */
static void serve_rolls(group_t *g, long kind)
{
    rolled_t of[2 * LANES];
    const seat_t *longest = oldest(g, kind);
    const roll_asked *first = longest->asked;
    int count = 0;
    for (long i = 0; i < g->count && count < LANES; i++) {
        seat_t *seat = behind_seat(g, longest, i);
        if (seat->waits_for != kind) continue;
        const roll_asked *a = seat->asked;
        const int alike = a->trials->nonlinear == first->trials->nonlinear && a->stages->td == first->stages->td;
        if (!alike || (count && count + a->last - a->first > LANES)) continue;
        for (long part = a->first; part < a->last; part++) of[count++] = (rolled_t){a->stages, a->trials, a->parts, part};
        seat->waits_for = READY;
    }
    note(g, 1, count, first->phase->own.last - first->phase->own.first);
    first->phase->abreast(of, count, g->room);
}

/* What most seats wait for, unless one has waited for long. */
static long most_wanted(const group_t *g)
{
    long best = IDLE, most = 0;
    const seat_t *longest = oldest(g, IDLE);
    if (longest && g->turn - longest->since > PATIENCE) return longest->waits_for;
    for (long i = 0; i < g->count; i++) {
        const long kind = g->seats[i].waits_for;
        long count = 0;
        if (kind == IDLE) continue;
        for (long j = i; j < g->count; j++) count += g->seats[j].waits_for == kind;
        if (count > most) most = count, best = kind;
    }
    return best;
}

/* Let a seat go on until it waits for others, or has no more to do. */
static void seat_goes_on(seat_t *seat)
{
    do {
        if (seat->waits_for == AT_ONCE) seat->serve(seat, seat->asked);
        seat->waits_for = READY;
        now_seated = seat;
        go_on(&seat->coroutine);
        if (seat->coroutine.ended) seat->waits_for = IDLE;
    } while (seat->waits_for == AT_ONCE);
}

/* Solve problems until there are none left, or until `stop` is set. */
EXPORT void batch_run(group_t *g)
{
    for (seat_t *seat = g->seats; seat < g->seats + g->count; seat++) {
        shooting_t *s = seat->s;
        s->phases = seat->phases;
        for (long i = 0; i < g->phase_count; i++) {
            seat->phases[i] = g->phases[i].own;
            seat->phases[i].expand = ask_expand, seat->phases[i].roll = ask_roll, seat->phases[i].room = (void *)(g->phases + i);
        }
        s->end.expand = ask_end_expand, s->end.values = ask_end_values;
        s->sweeps = g->sweeps;
        s->sweeps.riccati = ask_riccati;
        s->ahead.look = ask_look, s->ahead.nearly = g->nearly;
        if (!g->steps) s->ahead.to.dx = s->ahead.to.du = NULL;
        s->quiet = 1;
        seat->group = g, seat->waits_for = READY;
        begin_coroutine(&seat->coroutine, take_turns, seat);
    }
    while (1) {
        for (seat_t *seat = g->seats; seat < g->seats + g->count; seat++)
            if (seat->waits_for == READY) seat_goes_on(seat);
        const long kind = most_wanted(g);
        if (kind == IDLE) break;
        g->turn++;
        if (kind == SWEEP) serve_sweeps(g);
        else if (kind == LOOK) serve_looks(g);
        else serve_rolls(g, kind);
    }
}

/* Make seat i ready, with its problem's memory, its phases and its stack. */
EXPORT void batch_seat(seat_t *seats, long i, shooting_t *s, phase_t *phases, char *stack, long size)
{
    seat_t *seat = seats + i;
    seat->s = s, seat->phases = phases, seat->coroutine.stack = stack, seat->coroutine.size = size;
}

/* The sizes of seat_t, group_t and result_t. */
EXPORT long batch_size(int of) { return of == 0 ? sizeof(seat_t) : of == 1 ? sizeof(group_t) : sizeof(result_t); }
