/* Closed-loop rollouts of a phase for several step lengths: u = us + alpha du + K (x (-) (xs (+) alpha dx)), within bounds, or along a
   parabola, with dx + alpha/2 ddx and du + alpha/2 ddu in place of dx and du.
   The counterpart of the rollout of trajopt/stage/numpy_stages.py.

   The horizon is rolled out in segments ("parts"), one in each lane.  A segment starts at xs (+) alpha dx at knot 0 and at nodes with linear
   gaps, elsewhere at the state in X.  It ends at the next node with linear gaps or at the end of the phase.  Lanes may hold segments of
   one problem, or of several that differ in values only. */
#pragma once
#include "stage.h"

/* Segment and knot n of each lane; n counts from the start of the horizon.  same: 1 if all lanes read the same rows. */
typedef struct {
    rolled_t of[LANES];
    long n[LANES], steps[LANES], trial[LANES];
    int count, same;
} lanes_t;

static void update_same(lanes_t *at)
{
    at->same = 1;
    for (int l = 1; l < LANES; l++)
        if (at->n[l] != at->n[0] || at->of[l].trials != at->of[0].trials) at->same = 0;
}

/* y <- a row of `width` numbers for each lane l; row: its address. */
#define ROWS_OF_LANES(row, width, y)                                                       \
    {                                                                                      \
        const double *rows[LANES];                                                         \
        for (int l = 0; l < LANES; l++) rows[l] = (row);                                   \
        if (at->same)                                                                      \
            for (int i = 0; i < (width); i++) (y)[i] = splat(rows[0][i]);                  \
        else pack_rows(rows, width, y);                                                    \
    }
/* Rows of an array of the problem, and of an array of its phase. */
#define OF_TRIALS(array, width, y) ROWS_OF_LANES(at->of[l].trials->array + at->n[l] * (width), width, y)
#define OF_STAGES(array, width, y) \
    ROWS_OF_LANES(at->of[l].stages->array + (at->n[l] - at->of[l].parts->origin) * (width), width, y)

/* y <- xs (+) alpha dx at the knots of the lanes, with parabolic terms in all lanes or in none */
static void along(const structure_t *S, V alpha, const lanes_t *at, V *restrict y)
{
    V from[NX], move[ND];
    OF_TRIALS(xs, NX, from)
    OF_TRIALS(dx, ND, move)
    if (at->of[0].trials->ddx) {
        V parabola[ND];
        OF_TRIALS(ddx, ND, parabola)
        for (int i = 0; i < ND; i++) move[i] += 0.5 * alpha * parabola[i];
    }
    for (int i = 0; i < ND; i++) move[i] = alpha * move[i];
    manifold_integrate(S, from, move, y);
}

/* Place the lanes at the starts of `count` segments; returns the largest number of steps. */
static long begin(const rolled_t *of, int count, lanes_t *restrict at, V *restrict alpha)
{
    long steps = 0;
    at->count = count;
    for (int l = 0; l < LANES; l++) {
        const rolled_t *own = at->of + l;
        at->of[l] = of[l < count ? l : count - 1];
        at->n[l] = own->parts->start[own->part];
        at->steps[l] = own->parts->stop[own->part] - at->n[l];
        at->trial[l] = own->parts->trial[own->part];
        LANE(*alpha, l) = own->trials->alphas[at->trial[l]];
        if (at->steps[l] > steps) steps = at->steps[l];
    }
    update_same(at);
    return steps;
}

/* Set the start states x: `ahead` for segments that start at a node, also stored in X, else those in X; returns 1 if any is from X. */
static int enter(const structure_t *S, const lanes_t *at, const V *ahead, V *restrict x)
{
    int found = 0;
    copy(x, ahead, NX);
    for (int l = 0; l < at->count; l++) {
        const trials_t *r = at->of[l].trials;
        const long n = at->n[l];
        double *state = r->X + (at->trial[l] * (r->N + 1) + n) * NX;
        const int fresh = n == 0 || (r->node[n] && !r->nonlinear);
        found |= !fresh;
        for (int i = 0; i < NX; i++)
            if (fresh) state[i] = LANE(x[i], l);
            else LANE(x[i], l) = state[i];
    }
    return found;
}

/* u from the deviation e of x from the nominal state; e: NULL for zero. */
static void controls(const structure_t *S, V alpha, const lanes_t *at, const V *e, V *restrict u)
{
    V step[NU + 1], K[NU * ND + 1], limit[NU + 1];
    OF_TRIALS(us, NU, u)
    OF_TRIALS(du, NU, step)
    if (at->of[0].trials->ddu) {
        V parabola[NU + 1];
        OF_TRIALS(ddu, NU, parabola)
        for (int i = 0; i < NU; i++) step[i] += 0.5 * alpha * parabola[i];
    }
    for (int i = 0; i < NU; i++) u[i] += alpha * step[i];
    if (e) {
        OF_TRIALS(K, NU * ND, K)
        for (int i = 0; i < NU; i++)
            for (int k = 0; k < ND; k++) u[i] += K[i * ND + k] * e[k];
    }
    if (!at->of[0].trials->lower) return;
    OF_TRIALS(upper, NU, limit)
    for (int i = 0; i < NU; i++) u[i] = v_fmin(u[i], limit[i]);
    OF_TRIALS(lower, NU, limit)
    for (int i = 0; i < NU; i++) u[i] = v_fmax(u[i], limit[i]);
}

/* Set the state x at the knots `next` from x_next, and the remaining gap e there. */
static void close_gaps(const structure_t *S, V alpha, const lanes_t *at, const lanes_t *next, const V *ahead, const V *x_next, V *restrict x,
                       V *restrict e)
{
    copy(x, x_next, NX);
    for (int i = 0; i < ND; i++) e[i] = ZERO;
    if (at->of[0].trials->nonlinear) { /* all lanes then hold the same segment */
        V back[ND];
        if (!at->of[0].trials->node[next->n[0]]) return;
        OF_TRIALS(gaps, ND, e)
        for (int i = 0; i < ND; i++) back[i] = -(e[i] = (1.0 - alpha) * e[i]);
        manifold_integrate(S, x_next, back, x);
        return;
    }
    V gap[ND];
    manifold_difference(S, ahead, x_next, gap);
    for (int l = 0; l < LANES; l++) {
        if (!at->of[l].trials->node[next->n[l]]) continue;
        for (int i = 0; i < ND; i++) LANE(e[i], l) = LANE(gap[i], l);
        for (int i = 0; i < NX; i++) LANE(x[i], l) = LANE(ahead[i], l);
    }
}

/* Store u, the gap e and the state x after the j-th step, of the segments that are not yet at their end. */
static void store_step(const structure_t *S, const lanes_t *at, long j, const V *u, const V *e, const V *x)
{
    double unseen[NU + ND + NX], *us[LANES], *gaps[LANES], *xs[LANES];
    for (int l = 0; l < LANES; l++) {
        const trials_t *r = at->of[l].trials;
        const long trial = at->trial[l], n = at->n[l], N = r->N;
        const int in_use = l < at->count && j < at->steps[l];
        us[l] = in_use ? r->U + (trial * N + n) * NU : unseen;
        gaps[l] = in_use ? r->D + (trial * N + n) * ND : unseen;
        const int begun = n + 1 < N && r->node[n + 1] && !r->nonlinear; /* stored by the segment that starts there */
        xs[l] = in_use && !begun ? r->X + (trial * (N + 1) + n + 1) * NX : unseen;
    }
    unpack_rows(u, NU, us);
    unpack_rows(e, ND, gaps);
    unpack_rows(x, NX, xs);
}

/* Segments in the lanes of a block: their knots, step lengths and running costs so far; the states to which they move, and their gaps. */
typedef struct {
    lanes_t at;
    V alpha, total, *ahead, *e;
    int away; /* 1 if a state may differ from `ahead` */
} rolling_t;

/* Load the inputs of one step of the segments. */
static void load_step(const structure_t *S, const rolling_t *g, const knot_t *k)
{
    const lanes_t *at = &g->at;
    if (g->away) manifold_difference(S, g->ahead, k->x, g->e);
    controls(S, g->alpha, at, g->away ? g->e : NULL, k->u);
    OF_STAGES(p, NP, k->p)
    OF_STAGES(theta, NT, k->theta)
    OF_STAGES(t, 1, k->t)
    OF_STAGES(dt, 1, k->dt)
}

/* Go on to the knots after the j-th step, whose controls and next states k holds; x: states there. */
static void end_step(const structure_t *S, rolling_t *g, long j, const knot_t *k, V *restrict x)
{
    lanes_t *at = &g->at, next;
    memcpy(next.of, at->of, sizeof(next.of));
    for (int l = 0; l < LANES; l++) next.n[l] = at->n[l] + 1;
    next.same = at->same;
    along(S, g->alpha, &next, g->ahead);
    close_gaps(S, g->alpha, at, &next, g->ahead, k->next, x, g->e);
    store_step(S, at, j, k->u, g->e, x);
    for (int l = 0; l < LANES; l++) /* a segment that has ended repeats its last knot, without storing it */
        if (j + 1 < at->steps[l]) at->n[l] = next.n[l];
    update_same(at);
    g->away = 1;
}

/* Roll out `count` segments, at most one for each lane of blocks_together(S) blocks; segments of one problem are contiguous.  Several
   steps are collected before the running cost is evaluated: step j of group g of lanes is in block (j mod deep) groups + g. */
static void roll_block(const rolled_t *of, int count, V *workspace)
{
    const structure_t *S = of->stages->structure;
    V *w = workspace;
    const knot_t front = carved_knots(S, &w);
    const int groups = (count + LANES - 1) / LANES, deep = blocks_together(S) / groups;
    knot_t block[MAX_BLOCKS];
    rolling_t rolling[MAX_BLOCKS];
    long steps = 0;
    for (int b = 0; b < groups * deep; b++) block[b] = nth_block(S, front, b);
    for (int i = 0; i < groups; i++) {
        rolling_t *const g = rolling + i;
        const long longest = begin(of + i * LANES, lanes_used(i * LANES, count), &g->at, &g->alpha);
        if (longest > steps) steps = longest;
        g->ahead = block[i].node, g->e = block[i].d, g->total = ZERO;
        along(S, g->alpha, &g->at, g->ahead);
        g->away = enter(S, &g->at, g->ahead, block[i].x);
    }
    for (long j = 0; j < steps; j++) {
        const int filled = j % deep + 1;
        const knot_t *k = block + (filled - 1) * groups, *to = block + filled % deep * groups;
        for (int i = 0; i < groups; i++) load_step(S, rolling + i, k + i);
        step_blocks(of->stages, *k, groups, w);
        if (filled == deep || j + 1 == steps) {
            evaluate_running(S, front, filled * groups, w);
            for (int b = 0; b < filled * groups; b++) {
                rolling_t *const g = rolling + b % groups;
                for (int l = 0; l < g->at.count; l++)
                    if (j + 1 - filled + b / groups < g->at.steps[l]) LANE(g->total, l) += LANE(*block[b].l, l);
            }
        }
        for (int i = 0; i < groups; i++) end_step(S, rolling + i, j, k + i, to[i].x);
    }
    for (int n = 0; n < count; n++) of[n].parts->cost[of[n].part] = LANE(rolling[n / LANES].total, n % LANES);
}

/* Roll out segments first .. last of a problem. */
EXPORT void stage_rollout(const stages_t *s, const trials_t *r, const parts_t *p, long first, long last, V *workspace)
{
    rolled_t of[MAX_BLOCKS * LANES];
    const int most = blocks_together(s->structure) * LANES;
    for (long part = first; part < last; part += most) {
        const int count = last - part < most ? last - part : most;
        for (int l = 0; l < count; l++) of[l].stages = s, of[l].trials = r, of[l].parts = p, of[l].part = part + l;
        roll_block(of, count, workspace);
    }
}

/* Roll out segments of several problems with the same tables.  Either all of them have nonlinear gaps with nodes at the same knots, or none;
   either all have bounds, or none. */
EXPORT void stage_rollout_in_lanes(const rolled_t *of, long count, V *workspace)
{
    const int most = blocks_together(of->stages->structure) * LANES;
    for (long n = 0; n < count; n += most) roll_block(of + n, count - n < most ? count - n : most, workspace);
}
