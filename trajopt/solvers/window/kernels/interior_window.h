/* A window of problems in the interior point: kernels that answer for several of them, with one problem in each lane.  Before this text stands
   interior_slot.h.

   A request that needs derivatives of a phase at the end of a step, a sweep of its Newton system, or reflections of Hessians where that fails,
   waits for it (its slot `waits` for a kind of work).  Derivatives are found with a knot of several problems in the lanes, one knot after
   the other, where that takes fewer vectors than one problem after the other with its knots in the lanes.  All else is each problem's own.

   A problem alone finds first derivatives, and second ones when it has taken the step; what the former leave behind for the latter would not
   fit the caches for several.  So these find second derivatives with the first ones, knot by knot, for the multipliers that the step leads
   to if its end is taken.  Where it is, they are there when they are asked for; else they are found then.  At the first point, where no
   multipliers are known, and at the last ones, where no second derivatives follow, the first ones are found alone and at once. */

enum { DONE, SWEEPS, REFLECTIONS, STAGES }; /* what a slot waits for; STAGES + i: derivatives of phase i */
enum { AT_START, AT_TRIAL, AT_TAKEN };      /* what follows derivatives */

/* The libraries of a phase for several problems, and what first derivatives leave for second ones: of all knots of one problem, or of one knot of
   several. */
typedef struct {
    void (*expand)(const stages_t *s, const point_t *at, long first, long last, const first_t *out, void *room);
    void (*curve)(const stages_t *s, const point_t *at, long first, long last, const curved_t *out, void *room);
    void *kept;
} window_phase_t;

/* kept_for: the point whose first derivatives were the last to leave something in all phases, NULL where others have overwritten that; busy, all: lanes
   that worked, and all there were, by knots: in sweeps and in derivatives. */
typedef struct {
    const window_phase_t *phases;
    void *room;
    void (*sweeps)(elq_lane *lanes, int least);
    const place_t *kept_for;
    long busy[2], all[2];
} interior_window_t;

/* A slot of a window.  ahead: by phase, where second derivatives were found ahead (Q), for multipliers lambda and y; NULL: nowhere.  What follows
   belongs to the request that waits: then, what follows derivatives; phase, the next one; foresees: whether second ones are found with first
   ones, alpha along the step `along`; first, end: where a sweep begins, and the first knot that is reflected. */
typedef struct {
    interior_t *o;
    const double **ahead;
    double *lambda, *y;
    long waits, then, phase, foresees, along, soon, centered, first, failed, end;
    double push, alpha, scale;
} window_slot_t;

enum { BACK, AHEAD };

static long knots_of(const part_t *part) { return part->last - part->first; }
static place_t *expanded(const window_slot_t *s) { return s->then == AT_TRIAL ? there(s->o) : here(s->o); }

/* -- derivatives --------------------------------------------------------------------------------------------------------------------- */

/* to <- from + alpha (end - from), as ipm_take has it */
static void moved_toward(const double *from, const double *end, double alpha, long count, double *to)
{
    for (long i = 0; i < count; i++) to[i] = from[i] + alpha * (end[i] - from[i]);
}

/* The multipliers of a phase that its solve has if it takes the step that it tries. */
static void foresee(const window_slot_t *s, const part_t *part)
{
    const interior_t *o = s->o;
    const ipm_step *step = o->steps[s->along];
    const long k = part->first, knots = knots_of(part);
    double *lambda = s->lambda + k * N_;
    moved_toward(o->z.lambda + k * N_, step->z.lambda + k * N_, s->alpha, knots * N_, lambda);
    moved_toward(o->z.y + part->row, step->z.y + part->row, s->alpha, knots * part->count, s->y + part->row);
    if (o->program.carried) o->program.carried(step->v + (k + 1) * N_, s->alpha, knots, lambda);
}

static int is_foreseen(const window_slot_t *s, const part_t *part, const double *Q)
{
    const interior_t *o = s->o;
    const long k = part->first, knots = knots_of(part);
    if (s->ahead[part - o->program.parts] != Q || memcmp(o->z.lambda + k * N_, s->lambda + k * N_, sizeof(double) * knots * N_)) return 0;
    return !part->count || !memcmp(o->z.y + part->row, s->y + part->row, sizeof(double) * knots * part->count);
}

/* Second derivatives at the point of a slot that are not there yet. */
static void window_second(interior_window_t *w, window_slot_t *s, double scale)
{
    interior_t *o = s->o;
    place_t *p = here(o);
    o->since = now();
    for (long i = 0; i < o->program.count; i++) {
        const part_t *part = o->program.parts + i;
        if (part->exact && is_foreseen(s, part, p->own.Q + part->first * N_ * N_)) continue;
        find_second_of(PROBLEM(o), scale, &o->z, p, i, w->kept_for == p);
    }
    find_second_at_end(PROBLEM(o), scale, &o->z, p);
}

/* What follows when all derivatives are there. */
static long differentiated(window_slot_t *s)
{
    interior_t *o = s->o;
    const double objective = find_first_at_end(PROBLEM(o), expanded(s));
    if (s->then == AT_START) {
        tell_start(o, s->push, objective);
    } else if (s->then == AT_TRIAL) {
        o->answer[TRIAL] = objective;
        tell_violation(o, there(o), o->answer + TRIAL + 1);
    } else {
        take_multipliers(o, &o->asked.take);
    }
    return s->waits = DONE;
}

/* Go on with the derivatives of the phases from s->phase on. */
static long differentiate(interior_window_t *w, window_slot_t *s)
{
    interior_t *o = s->o;
    for (; s->phase < o->program.count; s->phase++) {
        const part_t *part = o->program.parts + s->phase;
        s->ahead[s->phase] = NULL;
        if (!part->exact || s->foresees) {
            if (part->exact) foresee(s, part);
            return s->waits = STAGES + s->phase;
        }
        find_first_of(PROBLEM(o), expanded(s), s->phase);
        w->kept_for = !s->phase || w->kept_for == expanded(s) ? expanded(s) : NULL;
    }
    return differentiated(s);
}

static long begin_derivatives(interior_window_t *w, window_slot_t *s, long then, long foresees)
{
    s->then = then, s->phase = 0, s->foresees = foresees;
    return differentiate(w, s);
}

typedef struct {
    point_t at;
    first_t first;
    curved_t second;
} asked_t;

/* What is asked for a slot in a phase. */
static asked_t asked_of(const window_phase_t *phase, const window_slot_t *s)
{
    interior_t *o = s->o;
    const part_t *part = o->program.parts + s->phase;
    place_t *p = expanded(s);
    asked_t a = {seen_by(&o->program, &o->structure, p, part), first_of(&o->program, p, s->phase),
                 second_of(&o->program, p, s->phase, s->scale, s->lambda, s->y)};
    a.first.kept = a.second.kept = phase->kept;
    return a;
}

/* One problem after the other, with its knots in the lanes. */
static void differentiate_alone(interior_window_t *w, const part_t *part, const window_phase_t *phase, window_slot_t *const *slots, long count)
{
    for (long i = 0; i < count; i++) {
        const stages_t *stages = slots[i]->o->problem->own.stages + slots[i]->phase;
        const asked_t a = asked_of(phase, slots[i]);
        part->expand(stages, &a.at, 0, knots_of(part), &a.first, part->room);
        if (part->exact) part->curve(stages, &a.at, 0, knots_of(part), &a.second, part->curve_room);
    }
    w->busy[AHEAD] += count * knots_of(part);
    w->all[AHEAD] += count * ((knots_of(part) + LANES - 1) / LANES) * LANES;
}

/* One knot after the other, with that of all problems in the lanes; the last problem fills up the lanes. */
static void differentiate_abreast(interior_window_t *w, const part_t *part, const window_phase_t *phase, window_slot_t *const *slots, long count)
{
    stages_t stages[LANES];
    point_t at[LANES];
    first_t first[LANES];
    curved_t second[LANES];
    for (long l = 0; l < LANES; l++) {
        const window_slot_t *s = slots[l < count ? l : count - 1];
        const asked_t a = asked_of(phase, s);
        stages[l] = s->o->problem->own.stages[s->phase], at[l] = a.at, first[l] = a.first, second[l] = a.second;
        first[l].values.x_next = NULL; /* which nobody reads */
    }
    for (long k = 0; k < knots_of(part); k++) {
        phase->expand(stages, at, k, k + 1, first, w->room);
        if (part->exact) phase->curve(stages, at, k, k + 1, second, w->room);
    }
    w->busy[AHEAD] += count * knots_of(part);
    w->all[AHEAD] += LANES * knots_of(part);
}

/* Derivatives of a phase, of up to LANES slots that wait for them. */
EXPORT void interior_window_stages(interior_window_t *w, window_slot_t *const *slots, long count)
{
    const long i = slots[0]->phase;
    const part_t *part = slots[0]->o->program.parts + i;
    w->kept_for = NULL;
    if (count * ((knots_of(part) + LANES - 1) / LANES) > knots_of(part)) differentiate_abreast(w, part, w->phases + i, slots, count);
    else differentiate_alone(w, part, w->phases + i, slots, count);
    for (long l = 0; l < count; l++) {
        window_slot_t *s = slots[l];
        if (part->exact) s->ahead[i] = expanded(s)->own.Q + part->first * N_ * N_;
        s->phase++;
        differentiate(w, s);
    }
}

/* -- Newton systems ------------------------------------------------------------------------------------------------------------------- */

/* The step of a system that is factored, and its end. */
static long stepped(interior_window_t *w, window_slot_t *s)
{
    interior_t *o = s->o;
    o->since = now();
    if (s->centered) solve_center(o, &o->asked.center.aim);
    else solve_newton(o, o->asked.newton.mu, o->asked.newton.share);
    s->along = 0, s->alpha = o->system->alpha;
    if (o->asked.newton.differentiate == 0.0) {
        try_length(o, s->alpha, 0, o->answer + TRIAL);
        return s->waits = DONE;
    }
    move(o, s->alpha, o->steps[0]->v);
    return begin_derivatives(w, s, AT_TRIAL, !s->soon);
}

/* What follows a sweep that has failed at a knot, or not (-1). */
static long swept(interior_window_t *w, window_slot_t *s, long failed)
{
    s->failed = failed;
    if (failed < 0) return stepped(w, s);
    if (s->o->asked.newton.reflect != 0.0 && failed < s->end) return s->waits = REFLECTIONS;
    if (factor_shifted(s->o->system)) return stepped(w, s);
    tell_step(s->o, 0, s->centered ? 0.0 : s->o->asked.newton.mu);
    return s->waits = DONE;
}

/* Sweeps of up to LANES slots, which end where they fail: side by side, as long as most lanes go on, the last problem filling up the lanes; what is
   left, alone. */
EXPORT void interior_window_sweeps(interior_window_t *w, window_slot_t *const *slots, long count)
{
    elq_lane lanes[LANES];
    const int least = 3 * LANES / 4;
    long first = 0, last = LONG_MAX;
    for (long l = 0; l < LANES; l++) {
        const window_slot_t *s = slots[l < count ? l : count - 1];
        lanes[l] = (elq_lane){s->o->system->matrices, s->o->system->factors, s->first, -1, s->first};
    }
    if (count >= least) {
        w->sweeps(lanes, least);
        for (long l = 0; l < count; l++) {
            const long end = lanes[l].failed < 0 ? lanes[l].left + 1 : lanes[l].failed;
            w->busy[BACK] += lanes[l].first - end + 1;
            if (lanes[l].first > first) first = lanes[l].first;
            if (end < last) last = end;
        }
        w->all[BACK] += LANES * (first - last + 1);
    }
    for (long l = 0; l < count; l++)
        swept(w, slots[l], lanes[l].left >= 0 ? factor_from(lanes[l].p, lanes[l].f, lanes[l].left) : lanes[l].failed);
}

/* The Hessians of the knots of all slots that wait for reflections, one in each lane. */
EXPORT void interior_window_reflections(interior_window_t *w, window_slot_t *const *slots, long count)
{
    side_by_side_t *b = &side_by_side;
    int held = 0;
    (void)w;
    for (long i = 0; i < count; i++) {
        window_slot_t *s = slots[i];
        const ipm_system *system = s->o->system;
        for (long k = s->failed; k < s->end; k++) {
            b->lanes[held++] = (knot_t){system->condensed, system->structure->N, k};
            if (held < LANES && (i + 1 < count || k + 1 < s->end)) continue;
            for (int l = held; l < LANES; l++) b->lanes[l] = b->lanes[held - 1];
            reflect_lanes(b);
            leave_lanes(b, 0, held);
            held = 0;
        }
    }
    for (long i = 0; i < count; i++) {
        window_slot_t *s = slots[i];
        s->o->system->reflected += s->end - s->failed;
        s->first = s->end - 1, s->end = s->failed, s->waits = SWEEPS;
    }
}

/* -- requests: each returns what the slot waits for ------------------------------------------------------------------------------------ */

EXPORT long interior_window_start(interior_window_t *w, window_slot_t *s, const interior_problem_t *m, double push)
{
    s->push = push;
    place_guess(s->o, m, push);
    return begin_derivatives(w, s, AT_START, 0);
}

/* The step of a Newton system: soon: whether it leads to the end, where no second derivatives follow; centered: whether a center_t was asked for, whose
   first numbers are those of newton_t. */
EXPORT long interior_window_step(interior_window_t *w, window_slot_t *s, int soon, int centered)
{
    interior_t *o = s->o;
    const double scale = o->asked.newton.scale;
    window_second(w, s, scale);
    build_system(o, scale, centered ? 0.0 : o->asked.newton.mu);
    o->system->shift = 0.0, o->system->reflected = 0;
    o->system->matrices->shift = o->system->matrices->soft = 0.0;
    s->scale = scale, s->soon = soon, s->centered = centered;
    s->first = o->structure.N, s->end = o->structure.N + 1;
    return s->waits = SWEEPS;
}

EXPORT long interior_window_take(interior_window_t *w, window_slot_t *s)
{
    interior_t *o = s->o;
    const take_t *r = &o->asked.take;
    s->along = r->corrected != 0.0, s->alpha = r->alpha, s->scale = r->scale;
    o->since = now(), o->at = 1 - o->at, o->second_found = 0;
    if (r->known == 0.0) return begin_derivatives(w, s, AT_TAKEN, !s->soon);
    take_multipliers(o, r);
    return s->waits = DONE;
}

/* The sizes of interior_window_t, window_phase_t and window_slot_t. */
EXPORT long interior_window_size(int of)
{
    const long sizes[] = {sizeof(interior_window_t), sizeof(window_phase_t), sizeof(window_slot_t)};
    return sizes[of];
}
