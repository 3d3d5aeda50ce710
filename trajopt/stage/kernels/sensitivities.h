/* Sensitivities of a time step: the counterpart of trajopt/step/sensitivities.py.

   The derivatives of f at the stages of a step depend on the stage states only, and are computed first.  Then the sensitivities
   d x / d w, with w = (x_0, u) at the start of all substeps, are propagated through the whole step by panels of columns, in cache. */
#pragma once
#include "step.h"

/* K <- f_x S + [0 f_u] + f_e E in rows i .. i + r and columns first .. first + w; E: NULL for zero */
ALWAYS_INLINE void slope_rows(const structure_t *S, const stage_t *a, const V *restrict X, const V *restrict E, V *restrict K, int first, int i,
                              const int r, const int w)
{
    const int nd = ND, me = ME, above = ND - NF;
    const V *restrict fx = a->fx + i * nd, *restrict fu = a->fu + i * me;
    V sum[r][w];
    UNROLL for (int j = 0; j < r; j++)
        UNROLL for (int c = 0; c < w; c++) sum[j][c] = first + c < nd ? ZERO : fu[j * me + first + c - nd];
    if (E)
        for (int k = 0; k < NE; k++)
            UNROLL for (int j = 0; j < r; j++) {
                const V slope = fu[j * me + MU + k];
                UNROLL for (int c = 0; c < w; c++) sum[j][c] += slope * E[k * w + c];
            }
    for (int k = 0; k < nd; k++)
        UNROLL for (int j = 0; j < r; j++) {
            const V slope = fx[j * nd + k];
            UNROLL for (int c = 0; c < w; c++) sum[j][c] += slope * X[k * w + c];
        }
    UNROLL for (int j = 0; j < r; j++)
        UNROLL for (int c = 0; c < w; c++) K[(above + i + j) * w + c] = sum[j][c];
}

/* K (ND x w) = f_x X + [0 f_u] + f_e E in columns first .. first + w; fresh: X is [1 0], E zero */
ALWAYS_INLINE void slopes(const structure_t *S, const stage_t *a, const V *restrict X, const V *restrict E, V *restrict K, int fresh, int first,
                          const int w)
{
    const int rows = NF;
    copy(K, X + NF * w, (ND - NF) * w); /* qdot = v */
    if (fresh) {
        for (int i = 0; i < rows; i++)
            for (int c = 0; c < w; c++)
                K[(ND - NF + i) * w + c] = first + c < ND ? a->fx[i * ND + first + c] : a->fu[i * ME + first + c - ND];
        return;
    }
    int i = 0;
    for (; i + 3 <= rows; i += 3) slope_rows(S, a, X, E, K, first, i, 3, w);
    for (; i < rows; i++) slope_rows(S, a, X, E, K, first, i, 1, w);
}

/* X <- T G + E D in w columns, with D the derivative of the increment; T, E are identities outside of the groups */
ALWAYS_INLINE void moved(const structure_t *S, const V *T, const V *E, const V *restrict G, const V *restrict D, V *restrict X, const int w)
{
    for (int i = 0; i < ND * w; i++) X[i] = G[i] + D[i];
    if (!LIE_GROUPS) return;
    for (int g = 0; g < LIE_GROUPS; g++) clear(X + S->curved[g].v * w, S->curved[g].nv * w);
    add_blocks_times(S, T, G, X, w);
    add_blocks_times(S, E, D, X, w);
}

/* Derivative X of the state at stage s, and on groups derivative D of the increment to that state. */
ALWAYS_INLINE void moved_to_stage(const structure_t *S, int s, const stage_t *a, V h, const V *restrict P, const V *restrict K, V *restrict D,
                                  V *restrict X, const int w)
{
    const double *row = S->A + s * STAGES;
    if (LIE_GROUPS) {
        combined(S, row, s, h, K, 0, ND, NULL, D, w);
        moved(S, a->transport, a->dexp, P, D, X, w);
    } else combined(S, row, s, h, K, 0, ND, P, X, w);
}

/* Derivatives in w: X of the state at a stage, D of the increment to it, K of f there (D and K on groups only), E of the offset. */
typedef struct {
    V *X, *D, *K, *E;
} columns_t;

ALWAYS_INLINE long columns_size(const structure_t *S) { return (LIE_GROUPS ? 3 * ND : ND) * NW + NE * NW; }

/* Columns in a workspace of columns_size vectors. */
ALWAYS_INLINE columns_t columns_at(const structure_t *S, V *w)
{
    columns_t c;
    const long size = LIE_GROUPS ? ND * NW : 0;
    c.X = carved(&w, ND * NW), c.D = carved(&w, size), c.K = carved(&w, size), c.E = w;
    return c;
}

ALWAYS_INLINE void store_columns(const structure_t *S, const V *restrict from, V *restrict to, int first, const int w)
{
    for (int i = 0; i < ND; i++)
        for (int c = 0; c < w; c++) to[i * NW + first + c] = from[i * w + c];
}

ALWAYS_INLINE void store_groups(const structure_t *S, const V *restrict from, V *restrict to, int first, const int w)
{
    for (int g = 0; g < LIE_GROUPS; g++)
        for (int i = S->curved[g].v; i < S->curved[g].v + S->curved[g].nv; i++)
            for (int c = 0; c < w; c++) to[i * NW + first + c] = from[i * w + c];
}

/* One step of length h: workspaces of its stages, and the derivatives of x_next in x (T) and in the increment (E) as blocks; fresh: 1 for the
   first step. */
typedef struct {
    V *stages;
    const V *T, *E;
    V h;
    int fresh;
} passage_t;

/* Propagate columns first .. first + w of G (ND x NW) = d x / d w through one step; before a fresh step G is [1 0].  stored (STAGES + 1
   workspaces of columns, the last for the whole increment): if not NULL, receives the derivatives of the stages. */
ALWAYS_INLINE void through_step(const structure_t *S, passage_t step, V *restrict G, V *restrict stored, int first, const int w)
{
    stage_t a = stage_at(S, step.stages);
    const V *T = step.T, *E = step.E, h = step.h;
    const int fresh = step.fresh;
    V P[ND * w], D[ND * w], X[ND * w], K[STAGES * ND * w], offset[NE * w + 1];
    for (int i = 0; i < ND; i++)
        for (int c = 0; c < w; c++) P[i * w + c] = fresh ? splat(i == first + c) : G[i * NW + first + c];
    slopes(S, &a, P, NULL, K, fresh, first, w);
    if (stored) store_columns(S, P, columns_at(S, stored).X, first, w);
    for (int s = 1; s < STAGES; s++) {
        a = stage_at(S, step.stages + s * stage_size(S));
        const columns_t columns = columns_at(S, stored ? stored + s * columns_size(S) : P);
        moved_to_stage(S, s, &a, h, P, K, D, X, w);
        const V *e = NULL;
        if (NE) {
            lagged(S, s, h, K, offset, w);
            e = offset;
            if (stored)
                for (int i = 0; i < NE; i++)
                    for (int j = 0; j < w; j++) columns.E[i * NW + first + j] = offset[i * w + j];
        }
        slopes(S, &a, X, e, K + s * ND * w, 0, first, w);
        if (stored) {
            store_columns(S, X, columns.X, first, w);
            store_groups(S, D, columns.D, first, w);
            store_groups(S, K + s * ND * w, columns.K, first, w);
        }
        if (LIE_GROUPS) {
            blocks_times(S, a.inverse, K + s * ND * w, w);
            add_blocks_times(S, a.along, D, K + s * ND * w, w);
        }
    }
    increments(S, h, K, D, w);
    moved(S, T, E, P, D, X, w);
    if (stored) store_groups(S, D, columns_at(S, stored + STAGES * columns_size(S)).D, first, w);
    store_columns(S, X, G, first, w);
}

/* Propagate all columns of G through one step. */
static void all_through(const structure_t *S, passage_t step, V *restrict G, V *restrict stored)
{
    const int panel = PANEL;
#define THROUGH(w) through_step(S, step, G, stored, first, w)
    for (int first = 0; first < NW; first += panel)
        switch (NW - first < panel ? NW - first : panel) { EACH_WIDTH(THROUGH) }
#undef THROUGH
}

/* Add l' f_x to `to` (ND), and l' f_e to at_offset (NE), for multipliers l of the computed rows of f */
static void slopes_adjoint(const structure_t *S, const stage_t *a, const V *restrict l, V *restrict to, V *restrict at_offset)
{
    for (int i = 0; i < NF; i++)
        for (int j = 0; j < ND; j++) to[j] += a->fx[i * ND + j] * l[i];
    for (int i = 0; i < NF; i++)
        for (int j = 0; j < NE; j++) at_offset[j] += a->fu[i * ME + MU + j] * l[i];
}

/* 1 if a step of one substep is x + increment, with f and its derivatives evaluated at one point in a vector space. */
#define AT_ONE_POINT (STAGES == 1 && !LIE_GROUPS)

/* G of a step AT_ONE_POINT from fx and fu.  K: workspace of ND x NW vectors. */
static void sensitivities_at_once(const structure_t *S, V h, const V *restrict fx, const V *restrict fu, V *restrict K, V *restrict G)
{
    for (int i = 0; i < ND - NF; i++)
        for (int j = 0; j < NW; j++) K[i * NW + j] = splat(j == NF + i);
    for (int i = 0; i < NF; i++) {
        V *row = K + (ND - NF + i) * NW;
        for (int j = 0; j < ND; j++) row[j] = fx[i * ND + j];
        for (int j = 0; j < MU; j++) row[ND + j] = fu[i * ME + j];
    }
    increments(S, h, K, G, NW);
    for (int i = 0; i < ND; i++) G[i * NW + i] += 1.0;
}

/* Stored substep: workspaces of its stages, its increment, sensitivities at its start, the contact forces, matrices of the groups, and
   multipliers: of x at its end; of each stage's derivative of the increment (slope), of f (on_f), and of the stage's state (on_x). */
typedef struct {
    V *stages, *delta, *G, *forces, *transport, *dexp, *end, *slope, *on_f, *on_x;
} substep_t;

ALWAYS_INLINE long substep_size(const structure_t *S)
{
    return STAGES * (stage_size(S) + 3 * ND) + 2 * ND + ND * NW + FORCES_WORKSPACE + 2 * LIE_WORKSPACE;
}

/* Substep i in a workspace of substep_size vectors each. */
ALWAYS_INLINE substep_t substep_at(const structure_t *S, V *substeps, long i)
{
    V *w = substeps + i * substep_size(S);
    substep_t b;
    b.stages = carved(&w, STAGES * stage_size(S)), b.delta = carved(&w, ND), b.G = carved(&w, ND * NW);
    b.forces = carved(&w, FORCES_WORKSPACE), b.transport = carved(&w, LIE_WORKSPACE), b.dexp = carved(&w, LIE_WORKSPACE);
    b.end = carved(&w, ND), b.slope = carved(&w, STAGES * ND), b.on_f = carved(&w, STAGES * ND), b.on_x = w;
    return b;
}

ALWAYS_INLINE passage_t passage_of(substep_t b, V h, int fresh) { return (passage_t){b.stages, b.transport, b.dexp, h, fresh}; }

/* Workspace of linearize for a block in vectors. */
ALWAYS_INLINE long linearize_workspace(const structure_t *S) { return STAGES * stage_size(S) + ND * NW + ND + NX; }

/* x_next and its derivative G (ND x NW) in (x, u) in all blocks, chained over the substeps.  w: workspace of linearize_workspace vectors.
   stored: if not NULL, receives the substeps (at.substeps workspaces of substep_size) of each block.  columns: if not NULL, receives the columns
   of the last substep of one block. */
static void linearize(const structure_t *S, ctx_t c, start_t at, V *x, V *G, V *w, V *stored, V *columns)
{
    const long apart = at.apart;
    V *own = carved(&w, STAGES * stage_size(S)), *delta = carved(&w, ND), *from = carved(&w, NX), T[LIE_WORKSPACE + 1], E[LIE_WORKSPACE + 1];
    for (int j = 0; j < at.count; j++) copy(x + j * apart, at.x + j * apart, NX);
    for (int s = 0; s < at.substeps; s++) {
        const int last = s == at.substeps - 1;
        V *stages = stored && at.count == 1 ? substep_at(S, stored, s).stages : own; /* their distance is `apart` only in the workspace */
        for (int j = 0; j < at.count; j++) copy(from + j * apart, x + j * apart, NX);
        increment(S, c, at, s, from, stages, delta, s ? NULL : at.forces);
        for (int j = 0; j < at.count; j++) {
            const long place = j * apart;
            const V h = step_of(S, at, place);
            passage_t through = {stages + place, T, E, h, s == 0};
            manifold_integrate(S, from + place, delta + place, x + place);
            if (stored && !s) copy(substep_at(S, stored, j * at.substeps).forces, at.forces + place, FORCES_WORKSPACE);
            if (AT_ONE_POINT && at.substeps == 1) {
                const stage_t stage = stage_at(S, stages + place);
                sensitivities_at_once(S, h, stage.fx, stage.fu, w + place, G + place);
                continue;
            }
            manifold_transport(S, delta + place, T);
            manifold_dexp(S, delta + place, E);
            if (stored) {
                const substep_t b = substep_at(S, stored, j * at.substeps + s);
                if (stages == own) copy(b.stages, stages + place, STAGES * stage_size(S));
                for (int i = 0; !s && i < ND * NW; i++) G[place + i] = splat(i / NW == i % NW);
                copy(b.G, G + place, ND * NW), copy(b.delta, delta + place, ND);
                copy(b.transport, T, LIE_WORKSPACE), copy(b.dexp, E, LIE_WORKSPACE);
            }
            all_through(S, through, G + place, last ? columns : NULL);
        }
    }
}
