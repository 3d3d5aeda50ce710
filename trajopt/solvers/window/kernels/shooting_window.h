/* Window of problems in shooting methods, with one problem in each lane: kernels for expansions with their directions, and rollouts of up to
   LANES problems.

   A request is answered immediately, or waits (`waits`) for one of these kernels; the driver chooses the problems that share a call.  Operations
   whose lanes the knots of one problem fill (an expansion alone, rollouts between many nodes) run immediately, and so do rare requests. */
#pragma once
#include "shooting_slot.h"

/* Operations.  LOOKS: expansion with direction; ROLLS + 2 i: rollouts of phase i, + 1 with nonlinear gaps. */
enum { DONE, LOOKS, ROLLS };
enum { START_ASKED, DIRECTION_ASKED, TRIALS_ASKED, POINT_ASKED };

/* Functions of a phase for several problems: expansion and rollout. */
typedef struct {
    long (*first)(const seen_t *of, long origin, long last, long read, int most, first_t *out, void *workspace);
    void (*rolled)(const rolled_t *of, long count, void *workspace);
} window_phase_t;

/* Window.  active: number of running problems; if they leave lanes empty, at the end of a batch, the knots of one problem fill lanes better. */
typedef struct {
    const window_phase_t *phases;
    void (*end_first)(const seen_t *of, long knot, end_first_t *out, void *workspace);
    void *workspace, *directions_workspace;
    long active;
} shooting_window_t;

/* -- requests; a slot without a window waits for nothing -------------------------------------------------------------------------- */

/* Whether expansions hold a problem in each lane: if problems without bounds on the controls fill most lanes. */
static int looks_wait(const shooting_t *s)
{
    const shooting_window_t *w = s->window;
    return w && !s->lower && w->active > LANES / 2;
}

/* Wait for the expansion of an iterate with its direction for the damping mu; gaps: defects of its trajectory. */
static long wait_for_look(shooting_t *s, iterate_t *e, const double *gaps, double mu)
{
    early_direction_t *a = &s->early;
    lq_direction *to = &a->to;
    a->of = e, a->mu = mu;
    to->on_state = s->on_state ? mu : 0.0, to->on_control = mu - to->on_state;
    to->d = e->d, to->lambda = e->lambda, to->g = e->g, to->costs = e->costs, to->K = s->spare_K, to->k = s->spare_k;
    to->under = s->kkt <= a->nearly ? s->policy.K : NULL, to->held_lambda = s->lambda, to->held_g = s->g;
    to->closed = largest(gaps, s->N * s->dims.n) <= GAP_ROUNDING * (1.0 + largest(e->xs, (s->N + 1) * s->nx));
    return s->waits = LOOKS;
}

/* Request the expansion and the residuals of an iterate, with the direction if lanes hold problems. */
static long look(shooting_t *s, iterate_t *e, const double *gaps)
{
    if (looks_wait(s)) return wait_for_look(s, e, gaps, s->mu);
    answer_point(s, e, measure(s, e));
    return s->waits = DONE;
}

static long rolled_out(shooting_t *s)
{
    const int with_direction = s->request == DIRECTION_ASKED;
    if (s->request == START_ASKED) {
        start_from(s);
        return look(s, here(s), s->D);
    }
    answer_trials(s, with_direction ? 1 : s->rolling.count, with_direction ? s->answer + 5 : s->answer);
    return s->waits = DONE;
}

/* Roll out the remaining phases: in a window wait for those whose parts do not fill the lanes. */
static long roll_phases(shooting_t *s)
{
    const rolling_t *r = &s->rolling;
    if (!s->window) {
        roll_all(s);
        return rolled_out(s);
    }
    do {
        if (r->tasks < LANES) return s->waits = ROLLS + 2 * r->phase + (r->trials.nonlinear != 0);
        roll_here(s);
    } while (roll_on(s));
    return rolled_out(s);
}

/* Continue after a direction: roll out its full step if requested, and as many shorter ones as take no longer. */
static long directed(shooting_t *s)
{
    s->row = s->known_from = s->known = s->bent = 0;
    if (s->answer[0] < 0.0 && s->python.bend) s->bent = s->python.bend(s->at, s->step.dx, s->step.du, s->policy.K) > 0.0;
    if (s->answer[0] >= 0.0 || !s->rolled) return s->waits = DONE;
    s->known = s->in_lanes;
    roll_begin(s, s->policy.K, s->step, s->nonlinear, 0, s->known);
    return roll_phases(s);
}

/* Make the direction that was found with the expansion the last one, and answer it. */
static void take_look(shooting_t *s)
{
    const long N = s->N, n = s->dims.n, m = s->dims.m;
    early_direction_t *a = &s->early;
    const lq_step left = s->step;
    take_policy(s);
    if (a->to.dx) {
        s->step = (lq_step){a->to.dx, a->to.du};
        a->to.dx = left.dx, a->to.du = left.du;
    } else memset(left.dx, 0, sizeof(double) * (N + 1) * n), copy(left.du, s->policy.k, N * m);
    a->of = NULL;
    s->kkt = fmax(largest(here(s)->d, N * n), a->to.kkt);
    const double length = fmax(largest(s->step.dx, (N + 1) * n), largest(s->step.du, N * m));
    const double answer[] = {NONE, a->to.slope, 2.0 * (a->to.change - a->to.slope), length, s->kkt};
    copy(s->answer, answer, 5);
}

static long direct(shooting_t *s)
{
    const early_direction_t *a = &s->early;
    if (a->of == here(s) && a->to.found && a->mu == s->mu) take_look(s);
    else solve_direction(s, s->mu);
    return directed(s);
}

EXPORT void shooting_start(shooting_t *s, double mu)
{
    take(s);
    s->request = START_ASKED, s->mu = mu;
    roll_begin(s, s->spare_K, s->step, 0, 0, 1);
    roll_phases(s);
}

EXPORT void shooting_direction(shooting_t *s, double mu, long going, long rolled)
{
    go(s, going);
    s->request = DIRECTION_ASKED, s->mu = mu, s->rolled = rolled;
    const int known = s->holder == s->at || (s->early.of == here(s) && s->early.mu == mu);
    if (!known && looks_wait(s)) wait_for_look(s, here(s), here(s)->d, mu);
    else direct(s);
}

/* Roll out up to `count` step lengths from 2^-first on, or answer those that were rolled out with the direction; rolling.count is their number.
   parabolic: along the parabola; 0 step lengths if there is none. */
EXPORT void shooting_roll(shooting_t *s, long first, long count, long parabolic)
{
    const int known = !parabolic && first >= s->known_from && first < s->known;
    s->request = TRIALS_ASKED;
    if (known || (parabolic && !s->bent)) {
        if (known) s->row = first;
        s->rolling.count = !known ? 0 : count < s->known - first ? count : s->known - first;
        rolled_out(s);
        return;
    }
    s->row = s->known = 0;
    roll_begin(s, s->policy.K, s->step, s->nonlinear, first, count < s->together ? count : s->together);
    if (parabolic) s->rolling.trials.ddx = s->bend.dx, s->rolling.trials.ddu = s->bend.du;
    roll_phases(s);
}

EXPORT void shooting_correct(shooting_t *s, long again)
{
    correct(s, again);
    s->request = TRIALS_ASKED, s->row = 0, s->known_from = 1;
    roll_begin(s, s->policy.K, s->current, s->nonlinear, 0, 1);
    roll_phases(s);
}

EXPORT void shooting_expand(shooting_t *s, long row, double mu)
{
    s->request = POINT_ASKED, s->mu = mu;
    take_row(s, row);
    look(s, next_of(s), s->D + (s->row + row) * s->N * s->dims.n);
}

/* -- kernels ------------------------------------------------------------------------------------------------------------------- */

/* Problems in an expansion: inputs in lanes, and the current phase. */
typedef struct {
    const shooting_window_t *w;
    long phase;
    shooting_t *const *slots;
    long count;
    seen_t lanes[LANES];
} looking_t;

static long expand_lanes(void *of, long last, lq_vectors *to)
{
    looking_t *at = of;
    const shooting_window_t *w = at->w;
    const phase_t *phases = at->slots[0]->phases;
    const long N = at->slots[0]->N;
    if (last > N) {
        end_first_t out;
        w->end_first(at->lanes, N, &out, w->workspace);
        to[N % EXPANDED] = (lq_vectors){.Q = out.Q, .q = out.lx, .cost = out.cost};
        return N;
    }
    if (at->phase == NONE || last <= phases[at->phase].first || last > phases[at->phase].last) {
        for (at->phase = 0; last > phases[at->phase].last; at->phase++) {}
        for (int l = 0; l < LANES; l++) at->lanes[l].stages = SLOT_OF(l, at->slots, at->count)->phases[at->phase].stages;
    }
    const phase_t *own = phases + at->phase;
    first_t out[EXPANDED];
    for (int i = 0; i < EXPANDED; i++) out[i] = (first_t){.values.d = to[i].d, .A = to[i].A, .B = to[i].B};
    const long first = w->phases[at->phase].first(at->lanes, own->first, last, own->read, EXPANDED, out, w->workspace);
    for (long n = first; n < last; n++) {
        const first_t *e = out + n % EXPANDED;
        to[n % EXPANDED] = (lq_vectors){e->A, e->B, e->values.d, e->Q, e->lx, e->S, e->R, e->lu, e->values.cost};
    }
    return first;
}

/* Store the results of an expansion with direction in its iterate; returns 0 if they are not finite or Quu is not positive definite. */
static int note_look(shooting_t *s, iterate_t *e)
{
    lq_direction *to = &s->early.to;
    if (!to->found) return 0;
    e->cost = 0.0;
    for (long i = 0; i <= s->N; i++) e->cost += e->costs[i];
    if (!(to->found = fabs(e->cost) < HUGE_VAL)) return 0;
    if (to->closed) memset(e->d, 0, sizeof(double) * s->N * s->dims.n);
    e->defect = to->defect;
    note_residuals(s, e);
    return 1;
}

static void looked(shooting_t *s)
{
    iterate_t *e = s->request == POINT_ASKED ? next_of(s) : here(s);
    const int found = note_look(s, e);
    if (s->request == DIRECTION_ASKED) {
        direct(s);
        return;
    }
    answer_point(s, e, found || measure(s, e));
    s->waits = DONE;
}

static void serve_looks(const shooting_window_t *w, shooting_t *const *slots, long count)
{
    looking_t at = {w, NONE, slots, count};
    lq_direction lanes[LANES];
    for (int l = 0; l < LANES; l++) {
        const shooting_t *s = SLOT_OF(l, slots, count);
        at.lanes[l] = (seen_t){NULL, s->end.end, s->early.of->xs, s->early.of->us};
        lanes[l] = s->early.to;
    }
    lq_directions(lanes, slots[0]->dims, slots[0]->N, expand_lanes, &at, w->directions_workspace);
    for (int l = 0; l < count; l++) {
        slots[l]->early.to = lanes[l];
        looked(slots[l]);
    }
}

/* Roll out a phase of several problems, with their parts in lanes; problems whose parts do not fit keep waiting. */
static void serve_rolls(const shooting_window_t *w, shooting_t *const *slots, long count)
{
    rolled_t of[LANES];
    shooting_t *rolled[LANES];
    const long phase = slots[0]->rolling.phase;
    long parts = 0, found = 0;
    for (int l = 0; l < count; l++) {
        const rolling_t *r = &slots[l]->rolling;
        if (parts + r->tasks > LANES) continue;
        for (long part = 0; part < r->tasks; part++) of[parts++] = (rolled_t){slots[l]->phases[phase].stages, &r->trials, &r->parts, part};
        rolled[found++] = slots[l];
    }
    w->phases[phase].rolled(of, parts, w->workspace);
    for (long l = 0; l < found; l++)
        if (roll_on(rolled[l])) roll_phases(rolled[l]);
        else rolled_out(rolled[l]);
}

/* Run operation `kind` for `count` waiting slots, at most LANES. */
EXPORT void shooting_window_serve(const shooting_window_t *w, shooting_t *const *slots, long count, long kind)
{
    if (kind == LOOKS) serve_looks(w, slots, count);
    else serve_rolls(w, slots, count);
}
