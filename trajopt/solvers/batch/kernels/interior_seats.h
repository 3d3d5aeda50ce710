/* Problems of the interior point in seats: interior_loop.h, whose calls of derivatives ask for work side by side.  Before this text stand
   interior_loop.h and seats.h.

   Where a solve asks for the derivatives of a phase at the end of a step, the seat waits.  They are found with a knot of several problems in the
   lanes, one knot after the other, where that takes fewer vectors than one problem after the other with its knots in the lanes.  So do seats
   for the sweeps of their Newton systems, which go side by side, and where these fail for the reflections of their Hessians, one knot in each
   lane.  All else is each problem's own, and nobody waits for it: values of trials, ends, what stands before
   and behind the sweeps, measures and step rules.

   A problem alone finds first derivatives, and second ones when it has taken the step; what the former leave behind for the latter would not
   fit the caches for several.  So these find second derivatives with the first ones, knot by knot, for the multipliers that the step leads
   to if its end is taken.  Where it is, they are there when they are asked for; else they are found then.  At the first point, where no
   multipliers are known, and at the last ones, where no second derivatives follow, the first ones are found alone and at once. */

/* A phase: its functions for one problem, those abreast, for several, and what first derivatives leave for second ones: of all knots of one
   problem, or of one knot of several. */
typedef struct {
    part_t own;
    void (*expand)(const stages_t *s, const point_t *at, long first, long last, const first_t *out, void *room);
    void (*curve)(const stages_t *s, const point_t *at, long first, long last, const curved_t *out, void *room);
    void *kept;
} shared_part_t;

/* What a seat holds: its solver, its solve, and by phase its functions and where second derivatives were found ahead, for multipliers lambda
   and y; NULL: nowhere. */
typedef struct {
    interior_t *w;
    solve_t *o;
    part_t *parts;
    const double **ahead;
    double *lambda, *y;
} solver_t;

/* Seats that take turns on one thread.  kept_for: whose first derivatives were the last to leave something in all phases, NULL where others have
   overwritten that. */
typedef struct {
    turns_t turns;
    const shared_part_t *parts;
    long part_count;
    final_t end;
    void *room;
    const seat_t *kept_for;
    void (*sweeps)(elq_lane *lanes, int least);
} group_t;

enum { SWEEPS = ABREAST, REFLECTIONS, STAGES }; /* STAGES + i: derivatives of phase i */

static solver_t *solver_of(const seat_t *seat) { return seat->own; }
static group_t *group_of(const seat_t *seat) { return seat->turns->own; }
static long knots_of(const shared_part_t *part) { return part->own.last - part->own.first; }

/* -- what interior_loop.h calls in place of the kernels: `of` is a shared_part_t ------------------------------------------------------ */

typedef struct {
    const shared_part_t *part;
    const stages_t *stages;
    const point_t *at;
    values_t values;
    first_t first;
    curved_t second;
} stages_asked;

static void serve_values(seat_t *seat, void *asked)
{
    const stages_asked *a = asked;
    a->part->own.values(a->stages, a->at, 0, knots_of(a->part), &a->values, group_of(seat)->room);
}

static void ask_values(const stages_t *s, const point_t *at, long first, long last, const values_t *out, void *of)
{
    stages_asked a = {.part = of, .stages = s, .at = at, .values = *out};
    (void)first, (void)last;
    ask(AT_ONCE, serve_values, &a);
}

static void serve_first(seat_t *seat, void *asked)
{
    stages_asked *a = asked;
    a->first.kept = a->part->kept, group_of(seat)->kept_for = seat;
    a->part->own.expand(a->stages, a->at, 0, knots_of(a->part), &a->first, group_of(seat)->room);
}

static void serve_second(seat_t *seat, void *asked)
{
    stages_asked *a = asked;
    a->second.kept = group_of(seat)->kept_for == seat ? a->part->kept : NULL;
    a->part->own.curve(a->stages, a->at, 0, knots_of(a->part), &a->second, group_of(seat)->room);
}

/* to <- from + alpha (end - from), as ipm_take has it */
static void moved_toward(const double *from, const double *end, double alpha, long count, double *to)
{
    for (long i = 0; i < count; i++) to[i] = from[i] + alpha * (end[i] - from[i]);
}

/* The multipliers of a phase that its solve has if it takes the step that it tries. */
static void foresee(const solver_t *own, const part_t *part)
{
    const solve_t *o = own->o;
    const ipm_multipliers *z = &own->w->z, *found = &o->step.own->z;
    const long k = part->first, knots = part->last - k;
    double *lambda = own->lambda + k * N_;
    moved_toward(z->lambda + k * N_, found->lambda + k * N_, o->alpha, knots * N_, lambda);
    moved_toward(z->y + part->row, found->y + part->row, o->alpha, knots * part->count, own->y + part->row);
    if (own->w->program.carried) own->w->program.carried(o->step.own->v + (k + 1) * N_, o->alpha, knots, lambda);
}

static int is_foreseen(const solver_t *own, const part_t *part, const curved_t *asked)
{
    const long k = part->first, knots = part->last - k;
    if (own->ahead[part - own->parts] != asked->xx || memcmp(asked->lam, own->lambda + k * N_, sizeof(double) * knots * N_)) return 0;
    return !asked->y || !memcmp(asked->y, own->y + part->row, sizeof(double) * knots * part->count);
}

/* The place in the solver's arrays of what is asked for. */
static long number_of(const stages_asked *a) { return a->part - group_of(now_seated)->parts; }

/* Whether the step leads to the end, as far as Newton's steps square the error: no second derivatives follow. */
static int ends_soon(const solve_t *o) { return o->now_.error <= sqrt(o->w->gradient_tolerance); }

static void ask_expand(const stages_t *s, const point_t *at, long first, long last, const first_t *out, void *of)
{
    const solver_t *own = solver_of(now_seated);
    stages_asked a = {.part = of, .stages = s, .at = at, .first = *out};
    const long i = number_of(&a), k = a.part->own.first;
    const part_t *part = own->parts + i;
    const filled_t *to = &own->w->places[out->A != own->w->places[0].own.A + k * N_ * N_].own;
    (void)first, (void)last;
    own->ahead[i] = NULL;
    if (part->exact && (!own->o->step.own || ends_soon(own->o))) {
        ask(AT_ONCE, serve_first, &a);
        return;
    }
    if (part->exact) {
        foresee(own, part);
        a.second = (curved_t){own->o->scale, own->lambda + k * N_, part->count ? own->y + part->row : NULL, NULL,
                              to->Q + k * N_ * N_, to->S + k * M_ * N_, to->R + k * M_ * M_};
    }
    ask(STAGES + i, NULL, &a);
    own->ahead[i] = a.second.xx;
}

static void ask_curve(const stages_t *s, const point_t *at, long first, long last, const curved_t *out, void *of)
{
    const solver_t *own = solver_of(now_seated);
    stages_asked a = {.part = of, .stages = s, .at = at, .second = *out};
    (void)first, (void)last;
    if (!is_foreseen(own, own->parts + number_of(&a), out)) ask(AT_ONCE, serve_second, &a);
}

typedef struct {
    const end_t *end;
    const double *x, *y;
    const end_first_t *first;
    double sigma, *cost, *g, *xx;
} end_asked;

static void serve_end(seat_t *seat, void *asked)
{
    const end_asked *a = asked;
    const final_t *own = &group_of(seat)->end;
    void *room = group_of(seat)->room;
    if (a->first) own->expand(a->end, a->x, a->first, room);
    else if (a->xx) own->curve(a->end, a->x, a->sigma, a->y, a->xx, room);
    else own->values(a->end, a->x, 0, 1, a->cost, a->g, room);
}

static void ask_end_values(const end_t *s, const double *x, long stride, long count, double *cost, double *g, void *room)
{
    end_asked a = {.end = s, .x = x, .cost = cost, .g = g};
    (void)stride, (void)count, (void)room;
    ask(AT_ONCE, serve_end, &a);
}

static void ask_end_expand(const end_t *s, const double *x, const end_first_t *out, void *room)
{
    end_asked a = {.end = s, .x = x, .first = out};
    (void)room;
    ask(AT_ONCE, serve_end, &a);
}

static void ask_end_curve(const end_t *s, const double *x, double sigma, const double *y, double *xx, void *room)
{
    end_asked a = {.end = s, .x = x, .y = y, .sigma = sigma, .xx = xx};
    (void)room;
    ask(AT_ONCE, serve_end, &a);
}

/* -- Newton systems ------------------------------------------------------------------------------------------------------------------- */

static long ask_sweep(const elq_matrices *p, const elq_factors *f, long first)
{
    elq_lane lane = {p, f, first, -1, -1};
    ask(SWEEPS, NULL, &lane);
    return lane.failed;
}

/* A sweep alone, from a knot on. */
static long sweep(const elq_lane *lane, long first)
{
    elq_matrices own = *lane->p;
    own.abreast = NULL;
    return factor_from(&own, lane->f, first);
}

/* Knots that the first `count` lanes have swept over. */
static void note_sweeps(use_t *use, const elq_lane *lanes, int count)
{
    long first = 0, last = lanes->first;
    for (int l = 0; l < count; l++) {
        const long end = lanes[l].failed < 0 ? lanes[l].left + 1 : lanes[l].failed;
        use->busy[BACK] += lanes[l].first - end + 1;
        if (lanes[l].first > first) first = lanes[l].first;
        if (end < last) last = end;
    }
    use->all[BACK] += LANES * (first - last + 1);
}

/* Sweeps of up to LANES seats, which end where they fail: side by side, as long as most lanes go on, the last problem filling up the lanes;
   what is left, alone. */
static void serve_sweeps(group_t *g)
{
    seat_t *seats[LANES];
    elq_lane lanes[LANES];
    const int count = gather(&g->turns, SWEEPS, NULL, seats, 0), least = 3 * LANES / 4;
    for (int l = 0; l < LANES; l++) {
        lanes[l] = *(const elq_lane *)seats[l < count ? l : count - 1]->asked;
        lanes[l].left = lanes[l].first;
    }
    if (count >= least) {
        g->sweeps(lanes, least);
        note_sweeps(&g->turns.use, lanes, count);
    }
    for (int l = 0; l < count; l++) {
        if (lanes[l].left >= 0) lanes[l].failed = sweep(lanes + l, lanes[l].left);
        ((elq_lane *)seats[l]->asked)->failed = lanes[l].failed;
    }
}

typedef struct {
    const ipm_condensed *of;
    long N, first, end;
} reflections_asked;

static void ask_reflections(const ipm_condensed *c, long N, long first, long end)
{
    reflections_asked a = {c, N, first, end};
    ask(REFLECTIONS, NULL, &a);
}

/* The knots of all seats that wait for that, one in each lane. */
static void serve_reflections(group_t *g)
{
    seat_t *seats[LANES];
    side_by_side_t *b = &side_by_side;
    const int count = gather(&g->turns, REFLECTIONS, NULL, seats, 0);
    int held = 0;
    for (int i = 0; i < count; i++) {
        const reflections_asked *a = seats[i]->asked;
        for (long k = a->first; k < a->end; k++) {
            b->lanes[held++] = (knot_t){a->of, a->N, k};
            if (held < LANES && (i + 1 < count || k + 1 < a->end)) continue;
            for (int l = held; l < LANES; l++) b->lanes[l] = b->lanes[held - 1];
            reflect_lanes(b);
            leave_lanes(b, 0, held);
            held = 0;
        }
    }
}

/* -- turns --------------------------------------------------------------------------------------------------------------------------- */

/* Vectors that the knots of one problem take. */
static long blocks_of(long knots) { return (knots + LANES - 1) / LANES; }

/* One problem after the other, with its knots in the lanes. */
static void expand_alone(group_t *g, const shared_part_t *part, seat_t **seats, int count)
{
    const long knots = knots_of(part);
    for (int i = 0; i < count; i++) {
        stages_asked *a = seats[i]->asked;
        a->first.kept = a->second.kept = part->kept;
        part->own.expand(a->stages, a->at, 0, knots, &a->first, g->room);
        if (part->own.exact) part->own.curve(a->stages, a->at, 0, knots, &a->second, g->room);
    }
    g->turns.use.busy[AHEAD] += count * knots;
    g->turns.use.all[AHEAD] += count * blocks_of(knots) * LANES;
}

/* One knot after the other, with that of all problems in the lanes; the last problem fills up the lanes. */
static void expand_abreast(group_t *g, const shared_part_t *part, seat_t **seats, int count)
{
    stages_t stages[LANES];
    point_t at[LANES];
    first_t first[LANES];
    curved_t second[LANES];
    const long knots = knots_of(part);
    for (int l = 0; l < LANES; l++) {
        const stages_asked *a = seats[l < count ? l : count - 1]->asked;
        stages[l] = *a->stages, at[l] = *a->at, first[l] = a->first, second[l] = a->second;
        first[l].values.x_next = NULL; /* which nobody reads */
        first[l].kept = second[l].kept = part->kept;
    }
    for (long k = 0; k < knots; k++) {
        part->expand(stages, at, k, k + 1, first, g->room);
        if (part->own.exact) part->curve(stages, at, k, k + 1, second, g->room);
    }
    note_use(&g->turns, AHEAD, count, knots);
}

/* Derivatives of a phase, of up to LANES seats that wait for them. */
static void serve_stages(group_t *g, long kind)
{
    const shared_part_t *part = g->parts + kind - STAGES;
    const long knots = knots_of(part);
    seat_t *seats[LANES];
    const int count = gather(&g->turns, kind, NULL, seats, 0);
    g->kept_for = NULL;
    if (count * blocks_of(knots) > knots) expand_abreast(g, part, seats, count);
    else expand_alone(g, part, seats, count);
}

/* What Newton systems ask for first, behind which seats are in step again. */
static void serve(turns_t *t, long kind)
{
    if (oldest(t, SWEEPS)) serve_sweeps(t->own);
    else if (oldest(t, REFLECTIONS)) serve_reflections(t->own);
    else serve_stages(t->own, kind);
}

/* -- a seat -------------------------------------------------------------------------------------------------------------------------- */

static void solve_in_seat(void *of)
{
    const solver_t *own = solver_of(of);
    solve_all(own->o, own->w);
}

static void seat_solver(const group_t *g, const solver_t *own)
{
    interior_t *w = own->w;
    for (long i = 0; i < g->part_count; i++) {
        part_t *part = own->parts + i;
        *part = g->parts[i].own;
        part->values = ask_values, part->expand = ask_expand, part->curve = ask_curve;
        part->room = part->curve_room = (void *)(g->parts + i);
    }
    w->program.parts = own->parts;
    w->system->matrices->abreast = ask_sweep, w->system->abreast = ask_reflections;
    w->program.end = g->end;
    w->program.end.values = ask_end_values, w->program.end.expand = ask_end_expand, w->program.end.curve = ask_end_curve;
}

/* Solve problems until there are none left, or until `stop` is set. */
EXPORT void interior_seats_run(group_t *g)
{
    for (long j = 0; j < g->turns.count; j++) seat_solver(g, solver_of(g->turns.seats + j));
    g->turns.own = g, g->turns.serve = serve;
    take_turns(&g->turns, solve_in_seat);
}

/* The sizes of shared_part_t, solver_t and group_t. */
EXPORT long interior_seats_size(int of)
{
    const long sizes[] = {sizeof(shared_part_t), sizeof(solver_t), sizeof(group_t)};
    return sizes[of];
}
