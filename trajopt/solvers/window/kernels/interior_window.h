/* Window of interior-point problems: kernels that answer requests of several problems, one in each lane.  Requires interior_slot.h.

   A slot waits (`waits`) for one of three operations: derivatives of a phase at a trial point, the sweep of a Newton system, or the reflection
   of Hessians after a failed sweep.  For derivatives, lanes hold the same knot of several problems, or the knots of one problem after the other,
   whichever takes fewer vectors.  All other work is done for each problem separately.

   A single solve finds first derivatives at a trial point, and second derivatives after the step is accepted.  In a window, the intermediate
   values that second derivatives reuse would not fit the caches.  So a window finds second derivatives together with first ones, knot by knot,
   for the multipliers predicted in case the step is accepted; if the prediction fails, it finds them again.  At the first point, without
   multipliers, and at the last one, which needs no second derivatives, first derivatives are found separately and immediately. */

enum { DONE, SWEEPS, REFLECTIONS, STAGES }; /* operations; STAGES + i: derivatives of phase i */
enum { AT_START, AT_TRIAL, AT_TAKEN };      /* request that continues after derivatives */

/* Functions of a phase for several problems.  kept: intermediate values that second derivatives reuse from first ones, of all knots of one
   problem, or of one knot of several problems. */
typedef struct {
    void (*expand)(const stages_t *s, const point_t *at, long first, long last, const first_t *out, void *room);
    void (*curve)(const stages_t *s, const point_t *at, long first, long last, const curved_t *out, void *room);
    void *kept;
} window_phase_t;

/* Window.  kept_for: point whose intermediate values are stored for all phases; NULL after other points overwrote some of them. */
typedef struct {
    const window_phase_t *phases;
    void *room;
    void *sweep_room;
    const place_t *kept_for;
} interior_window_t;

static long knots_of(const part_t *part) { return part->last - part->first; }
static place_t *expanded(interior_t *o) { return o->then == AT_TRIAL ? there(o) : here(o); }

/* -- derivatives --------------------------------------------------------------------------------------------------------------------- */

/* Set to = from + alpha (end - from), as ipm_take does. */
static void moved_toward(const double *from, const double *end, double alpha, long count, double *to)
{
    for (long i = 0; i < count; i++) to[i] = from[i] + alpha * (end[i] - from[i]);
}

/* Predict the multipliers of a phase in case the trial step is accepted. */
static void foresee(const interior_t *o, const part_t *part)
{
    const lq_size dims = o->structure.size;
    const ipm_step *step = o->steps[o->along];
    const long k = part->first, knots = knots_of(part);
    double *lambda = o->foreseen_lambda + k * N_;
    moved_toward(o->z.lambda + k * N_, step->z.lambda + k * N_, o->alpha, knots * N_, lambda);
    moved_toward(o->z.y + part->row, step->z.y + part->row, o->alpha, knots * part->count, o->foreseen_y + part->row);
    if (o->program.carried) o->program.carried(o->program.structure, step->v + (k + 1) * N_, o->alpha, knots, lambda);
}

static int is_foreseen(const interior_t *o, const part_t *part, const double *Q)
{
    const lq_size dims = o->structure.size;
    const long k = part->first, knots = knots_of(part);
    if (o->ahead[part - o->program.parts] != Q || memcmp(o->z.lambda + k * N_, o->foreseen_lambda + k * N_, sizeof(double) * knots * N_)) return 0;
    return !part->count || !memcmp(o->z.y + part->row, o->foreseen_y + part->row, sizeof(double) * knots * part->count);
}

/* Find the second derivatives at the current iterate that were not computed early. */
static void window_second(interior_window_t *w, interior_t *o, double scale)
{
    const lq_size dims = o->structure.size;
    place_t *p = here(o);
    o->since = now();
    for (long i = 0; i < o->program.count; i++) {
        const part_t *part = o->program.parts + i;
        if (part->exact && is_foreseen(o, part, p->own.Q + part->first * N_ * N_)) continue;
        find_second_of(PROBLEM(o), scale, &o->z, p, i, w->kept_for == p);
    }
    find_second_at_end(PROBLEM(o), scale, &o->z, p);
    lap(o, DERIVATIVES);
}

/* Continue a request after the derivatives of all phases. */
static long differentiated(interior_t *o)
{
    const double objective = find_first_at_end(PROBLEM(o), expanded(o));
    if (o->then == AT_START) {
        interior_tell_start(o, o->push, objective);
    } else if (o->then == AT_TRIAL) {
        o->answer[TRIAL] = objective;
        tell_violation(o, there(o), o->answer + TRIAL + 1);
    } else {
        interior_take_multipliers(o);
    }
    return o->waits = DONE;
}

/* Continue with the derivatives of the phases from o->phase on. */
static long differentiate(interior_window_t *w, interior_t *o)
{
    for (; o->phase < o->program.count; o->phase++) {
        const part_t *part = o->program.parts + o->phase;
        o->ahead[o->phase] = NULL;
        if (!part->exact || o->foresees) {
            if (part->exact) foresee(o, part);
            return o->waits = STAGES + o->phase;
        }
        find_first_of(PROBLEM(o), expanded(o), o->phase);
        w->kept_for = !o->phase || w->kept_for == expanded(o) ? expanded(o) : NULL;
    }
    return differentiated(o);
}

static long begin_derivatives(interior_window_t *w, interior_t *o, long then, long foresees)
{
    o->then = then, o->phase = 0, o->foresees = foresees;
    return differentiate(w, o);
}

typedef struct {
    point_t at;
    first_t first;
    curved_t second;
} asked_t;

/* Arguments of the derivatives of a slot in its current phase. */
static asked_t asked_of(const window_phase_t *phase, interior_t *o)
{
    const lq_size dims = o->structure.size;
    const part_t *part = o->program.parts + o->phase;
    place_t *p = expanded(o);
    asked_t a = {seen_by(&o->program, &o->structure, p, part), first_of(&o->program, p, o->phase, dims),
                 second_of(&o->program, p, o->phase, o->scale, o->foreseen_lambda, o->foreseen_y, dims)};
    a.first.kept = a.second.kept = phase->kept;
    return a;
}

/* Find derivatives of one problem after the other, with its knots in lanes. */
static void differentiate_alone(const part_t *part, const window_phase_t *phase, interior_t *const *slots, long count)
{
    for (long i = 0; i < count; i++) {
        const stages_t *stages = slots[i]->problem->own.stages + slots[i]->phase;
        const asked_t a = asked_of(phase, slots[i]);
        part->expand(stages, &a.at, 0, knots_of(part), &a.first, part->room);
        if (part->exact) part->curve(stages, &a.at, 0, knots_of(part), &a.second, part->curve_room);
    }
}

/* Find derivatives of one knot after the other, with problems in lanes; unused lanes repeat the last problem. */
static void differentiate_abreast(const interior_window_t *w, const part_t *part, const window_phase_t *phase, interior_t *const *slots, long count)
{
    stages_t stages[LANES];
    point_t at[LANES];
    first_t first[LANES];
    curved_t second[LANES];
    for (long l = 0; l < LANES; l++) {
        interior_t *o = slots[l < count ? l : count - 1];
        const asked_t a = asked_of(phase, o);
        stages[l] = o->problem->own.stages[o->phase], at[l] = a.at, first[l] = a.first, second[l] = a.second;
        first[l].values.x_next = NULL; /* unused */
    }
    for (long k = 0; k < knots_of(part); k++) {
        phase->expand(stages, at, k, k + 1, first, w->room);
        if (part->exact) phase->curve(stages, at, k, k + 1, second, w->room);
    }
}

/* Find the derivatives of a phase for up to LANES waiting slots; returns 1 if lanes held problems. */
static int serve_stages(interior_window_t *w, interior_t *const *slots, long count)
{
    const lq_size dims = slots[0]->structure.size;
    const long i = slots[0]->phase;
    const part_t *part = slots[0]->program.parts + i;
    w->kept_for = NULL;
    const int abreast = count * ((knots_of(part) + LANES - 1) / LANES) > knots_of(part);
    if (abreast) differentiate_abreast(w, part, w->phases + i, slots, count);
    else differentiate_alone(part, w->phases + i, slots, count);
    for (long l = 0; l < count; l++) {
        interior_t *o = slots[l];
        if (part->exact) o->ahead[i] = expanded(o)->own.Q + part->first * N_ * N_;
        o->phase++;
        differentiate(w, o);
    }
    return abreast;
}

/* -- Newton systems ------------------------------------------------------------------------------------------------------------------- */

/* Solve a factored system for the step, and evaluate its trial point. */
static long stepped(interior_window_t *w, interior_t *o)
{
    o->since = now();
    solve_newton(o);
    o->along = 0, o->alpha = o->system->alpha;
    if (NEWTON_ASKED(o)->differentiate == 0.0) {
        try_length(o, o->alpha, 0, o->answer + TRIAL);
        return o->waits = DONE;
    }
    move(o, o->alpha, o->steps[0]->v);
    return begin_derivatives(w, o, AT_TRIAL, !o->soon);
}

/* Continue a request after a sweep; failed: knot where the sweep failed, or -1. */
static long swept(interior_window_t *w, interior_t *o, long failed)
{
    o->failed = failed;
    if (failed < 0) return stepped(w, o);
    if (NEWTON_ASKED(o)->reflect != 0.0 && failed < o->end) return o->waits = REFLECTIONS;
    if (factor_shifted(o->system)) return stepped(w, o);
    tell_step(o, 0, NEWTON_ASKED(o)->mu);
    return o->waits = DONE;
}

/* Perform the sweeps of up to LANES slots; a sweep ends at the knot where it fails.  Lanes hold problems while most lanes are active (unused
   lanes repeat the last problem); the remaining sweeps run one after the other. */
static void serve_sweeps(interior_window_t *w, interior_t *const *slots, long count)
{
    elq_lane lanes[LANES];
    const int least = 3 * LANES / 4;
    for (long l = 0; l < LANES; l++) {
        const interior_t *o = slots[l < count ? l : count - 1];
        lanes[l] = (elq_lane){o->system->matrices, o->system->factors, o->first, -1, o->first};
    }
    if (count >= least) elq_factor_abreast(lanes, least, w->sweep_room);
    for (long l = 0; l < count; l++)
        swept(w, slots[l], lanes[l].left >= 0 ? factor_from(lanes[l].p, lanes[l].f, lanes[l].left) : lanes[l].failed);
}

/* Reflect the Hessians of all slots that wait for it, one knot in each lane. */
static void serve_reflections(interior_window_t *w, interior_t *const *slots, long count)
{
    const lq_size dims = slots[0]->structure.size;
    side_by_side_t own, *b = &own;
    int held = 0;
    if (!take_side_by_side(b, dims)) {
        for (long i = 0; i < count; i++) slots[i]->end = 0, swept(w, slots[i], slots[i]->failed);
        return;
    }
    for (long i = 0; i < count; i++) {
        interior_t *o = slots[i];
        const ipm_system *system = o->system;
        for (long k = o->failed; k < o->end; k++) {
            b->lanes[held++] = (knot_t){system->condensed, system->structure->N, k};
            if (held < LANES && (i + 1 < count || k + 1 < o->end)) continue;
            for (int l = held; l < LANES; l++) b->lanes[l] = b->lanes[held - 1];
            reflect_lanes(b, dims);
            leave_lanes(b, 0, held);
            held = 0;
        }
    }
    for (long i = 0; i < count; i++) {
        interior_t *o = slots[i];
        o->system->reflected += o->end - o->failed;
        o->first = o->end - 1, o->end = o->failed, o->waits = SWEEPS;
    }
}

/* Run operation `kind` for `count` waiting slots, at most LANES; returns 1 if lanes held problems, 0 if they held knots. */
EXPORT long interior_window_serve(interior_window_t *w, interior_t *const *slots, long count, long kind)
{
    if (kind >= STAGES) return serve_stages(w, slots, count);
    if (kind == SWEEPS) serve_sweeps(w, slots, count);
    else serve_reflections(w, slots, count);
    return kind == SWEEPS;
}

/* -- requests: each returns the operation that the slot waits for ---------------------------------------------------------------------- */

EXPORT long interior_window_start(interior_window_t *w, interior_t *o, const interior_problem_t *m, double push)
{
    o->push = push;
    interior_place(o, m, push);
    return begin_derivatives(w, o, AT_START, 0);
}

/* Request the step of a Newton system; soon: 1 if it should converge, so that no second derivatives are needed after it. */
EXPORT long interior_window_step(interior_window_t *w, interior_t *o, int soon)
{
    const double scale = NEWTON_ASKED(o)->scale;
    window_second(w, o, scale);
    build_system(o, scale, NEWTON_ASKED(o)->mu);
    o->system->shift = 0.0, o->system->reflected = 0;
    o->system->matrices->shift = o->system->matrices->soft = 0.0;
    o->scale = scale, o->soon = soon;
    o->first = o->structure.N, o->end = o->structure.N + 1;
    return o->waits = SWEEPS;
}

EXPORT long interior_window_take(interior_window_t *w, interior_t *o)
{
    const take_t *r = TAKE_ASKED(o);
    o->along = r->corrected != 0.0, o->alpha = r->alpha, o->scale = r->scale;
    o->since = now(), o->at = 1 - o->at, o->second_found = 0;
    if (r->known == 0.0) return begin_derivatives(w, o, AT_TAKEN, !o->soon);
    interior_take_multipliers(o);
    return o->waits = DONE;
}
