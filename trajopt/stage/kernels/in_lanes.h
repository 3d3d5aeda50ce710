/* First derivatives at knots of several problems of the same structure, one problem in each lane.  Results stay SIMD vectors, as the LQ
   sweeps in lanes read them. */
#pragma once
#include "rollout.h"

/* y <- a row of `width` numbers for each lane l */
#define ROW_OF_EACH(row, width, y)                        \
    {                                                     \
        const double *rows[LANES];                        \
        for (int l = 0; l < LANES; l++) rows[l] = (row);  \
        pack_rows(rows, width, y);                        \
    }

/* Load the inputs of knot n of the horizon, in a phase that begins at knot `origin`. */
static void load_in_lanes(const structure_t *S, const seen_t *of, long origin, long n, const knot_t *k)
{
    const long own = n - origin;
    ROW_OF_EACH(of[l].xs + n * NX, NX, k->x)
    ROW_OF_EACH(of[l].xs + (n + 1) * NX, NX, k->node)
    ROW_OF_EACH(of[l].us + n * NU, NU, k->u)
    ROW_OF_EACH(of[l].stages->p + own * NP, NP, k->p)
    ROW_OF_EACH(of[l].stages->theta + own * NT, NT, k->theta)
    ROW_OF_EACH(of[l].stages->t + own, 1, k->t)
    ROW_OF_EACH(of[l].stages->dt + own, 1, k->dt)
}

/* Store the defect of the time step to k->next, and A and B from its sensitivities k->G. */
static void put_step(const structure_t *S, const knot_t *k, const first_t *out)
{
    manifold_difference(S, k->node, k->next, (V *)out->values.d);
    copy(k->d, (V *)out->values.d, ND);
    carry_sensitivities(S, k);
    state_sensitivities(S, k, (V *)out->A);
    control_sensitivities(S, k, (V *)out->B);
}

/* Set the diagonal of R to 1 for controls that nothing reads, those from number `read` on, so that they keep their values. */
static void fix_unread_controls(const structure_t *S, long read, V *restrict R)
{
    for (long a = read; a < NU; a++) R[a * NU + a] = splat(1.0);
}

/* Values and first derivatives at up to `most` knots before knot `last` of the horizon, in a phase that begins at knot `origin` and reads the first
   `read` controls; returns the first of these knots.  Results are SIMD vectors; out[i % most]: of knot i.  Those of the terms are in
   the workspace, and `out` receives their addresses. */
EXPORT long stage_first_in_lanes(const seen_t *of, long origin, long last, long read, int most, first_t *out, V *workspace)
{
    const structure_t *S = of->stages->structure;
    V *w = workspace;
    const knot_t front = carved_knots(S, &w);
    const ctx_t c = context(of->stages, w);
    const int room = blocks_together(S) < most ? blocks_together(S) : most, count = last - origin < room ? last - origin : room;
    const long first = last - count;
    for (int j = 0; j < count; j++) {
        const knot_t k = nth_block(S, front, j);
        load_in_lanes(S, of, origin, first + j, &k);
        if (STEPS_TOGETHER) continue;
        linearize(S, c, start_of(of->stages, &k), k.next, k.G, k.scratch, NULL, NULL);
        put_step(S, &k, out + (first + j) % most);
    }
    if (STEPS_TOGETHER) linearize(S, c, starts_of(of->stages, &front, count), front.next, front.G, front.scratch, NULL, NULL);
    expand_running(S, front, count, w);
    for (int j = 0; j < count; j++) {
        const knot_t k = nth_block(S, front, j);
        first_t *const to = out + (first + j) % most;
        if (STEPS_TOGETHER) put_step(S, &k, to);
        fix_unread_controls(S, read, k.luu);
        to->values.cost = (double *)k.l, to->lx = (double *)k.lx, to->lu = (double *)k.lu;
        to->Q = (double *)k.lxx, to->S = (double *)k.lux, to->R = (double *)k.luu;
    }
    return first;
}

/* First derivatives and Hessian of the terminal cost, at the final knot n; `out` receives their addresses in the workspace. */
EXPORT void end_first_in_lanes(const seen_t *of, long n, end_first_t *out, V *workspace)
{
    const structure_t *S = of->end->structure;
    V *w = workspace;
    const knot_t k = carved_knots(S, &w);
    ROW_OF_EACH(of[l].xs + n * NX, NX, k.x)
    ROW_OF_EACH(of[l].end->theta, NTT, k.theta)
    ROW_OF_EACH(of[l].end->t, 1, k.t)
    call(S->functions->terminal_expand, IN(k.x, k.t, k.theta), OUT(k.l, k.lx, k.lxx), w);
    *out = (end_first_t){(double *)k.l, NULL, (double *)k.lx, NULL, (double *)k.lxx};
}
