/* One time step of xdot = f(x, u, t, p): the counterpart of trajopt/step/integrators.py.

   With implicit damping, the dynamics have one more parameter, the implicit step, and NE more controls, the offset of the damped velocity;
   AI is the tableau of damping.  Contact forces, if requested in ctx, are those at x_0. */
#pragma once
#include "stage_types.h"
#include "structure.h"

#if LANES == 8 || LANES == 1
#define WIDEST 8
#else
#define WIDEST 4
#endif
#define PANELS ((NW + WIDEST - 1) / WIDEST)
#define PANEL ((NW + PANELS - 1) / PANELS)
/* Call f(w) with the width w of a panel as a constant. */
#define NARROW(f) case 1: f(1); break; case 2: f(2); break; case 3: f(3); break; case 4: f(4); break;
#if WIDEST == 8
#define EACH_WIDTH(f) NARROW(f) case 5: f(5); break; case 6: f(6); break; case 7: f(7); break; case 8: f(8); break;
#else
#define EACH_WIDTH(f) NARROW(f)
#endif

/* A jump x (+) f is an Euler step of length one, whatever dt is. */
#define STEP_LENGTH(dt) (S->jump ? splat(1.0) : (dt))

/* A stage before its sensitivities: its state, the increment to it, f and its derivatives; on groups also the
   derivatives of x (+) delta in x (transport) and in delta (dexp), dexp^-1(delta), and the derivative of dexp^-1(delta) f in delta, as blocks. */
typedef struct {
    V *at, *delta, *f, *fx, *fu, *e, *step, *transport, *dexp, *inverse, *along;
} stage_t;

ALWAYS_INLINE long stage_size(const structure_t *S) { return NX + 2 * ND + NF * (ND + ME) + NE + 1 + 4 * LIE_WORKSPACE; }

/* Stage in a workspace of stage_size vectors. */
ALWAYS_INLINE stage_t stage_at(const structure_t *S, V *w)
{
    stage_t s;
    s.at = carved(&w, NX), s.delta = carved(&w, ND), s.f = carved(&w, ND), s.fx = carved(&w, NF * ND);
    s.fu = carved(&w, NF * ME), s.e = carved(&w, NE), s.step = carved(&w, 1);
    s.transport = carved(&w, LIE_WORKSPACE), s.dexp = carved(&w, LIE_WORKSPACE), s.inverse = carved(&w, LIE_WORKSPACE), s.along = carved(&w, LIE_WORKSPACE);
    return s;
}

/* Time step of `count` blocks of lanes: start and duration of the first, workspace `own` of step_workspace, and contact forces at x, or NULL.  The
   data of the next block are `apart` vectors behind, as are its results. */
typedef struct {
    int substeps, count;
    long apart;
    const V *x, *u, *p, *t, *dt;
    V *own, *forces;
} start_t;

#define INPUTS_WORKSPACE (S->implicit ? ME + NP + 2 : 1)

/* Workspace of a block during a substep: f at the stages, state, increment, offset and time of a stage, inputs of the dynamics extended by the
   offset and the implicit step if damping is implicit, and forces that nothing reads. */
typedef struct {
    V *k, *at, *delta, *offset, *time, *inputs, *unread;
} own_t;

ALWAYS_INLINE own_t own_at(const structure_t *S, V *w)
{
    own_t o;
    o.k = carved(&w, STAGES * ND), o.at = carved(&w, NX), o.delta = carved(&w, ND), o.offset = carved(&w, NE), o.time = carved(&w, 1);
    o.inputs = carved(&w, INPUTS_WORKSPACE), o.unread = w;
    return o;
}

ALWAYS_INLINE long step_workspace(const structure_t *S) { return (STAGES + 1) * ND + NX + NE + 1 + INPUTS_WORKSPACE + FORCES_WORKSPACE; }

ALWAYS_INLINE V step_of(const structure_t *S, start_t at, long place) { return STEP_LENGTH(at.dt[place]) / (double)at.substeps; }

/* Extend u and p by the offset e (NULL for zero) and the implicit step.  w: workspace of INPUTS_WORKSPACE vectors. */
ALWAYS_INLINE void extend_inputs(const structure_t *S, const V *u, const V *p, const V *e, V step, V *w)
{
    V *controls = carved(&w, ME + 1), *values = carved(&w, NP + 1);
    copy(controls, u, MU);
    for (int i = 0; i < NE; i++) controls[MU + i] = e ? e[i] : ZERO;
    copy(values, p, NP);
    values[NP] = step;
}

/* y (ND x w) <- M y on the rows of the groups, M as blocks */
ALWAYS_INLINE void blocks_times(const structure_t *S, const V *restrict M, V *restrict y, const int w)
{
    for (int g = 0; g < LIE_GROUPS; g++) {
        const factor_t f = S->curved[g];
        const int n = f.nv;
        V *rows = y + f.v * w, sum[6];
        for (int c = 0; c < w; c++) {
            for (int i = 0; i < n; i++) {
                sum[i] = ZERO;
                for (int k = 0; k < n; k++) sum[i] += M[f.block + i * n + k] * rows[k * w + c];
            }
            for (int i = 0; i < n; i++) rows[i * w + c] = sum[i];
        }
    }
}

/* y (ND x w) += M x on the rows of the groups, M as blocks */
ALWAYS_INLINE void add_blocks_times(const structure_t *S, const V *restrict M, const V *restrict x, V *restrict y, const int w)
{
    for (int g = 0; g < LIE_GROUPS; g++) {
        const factor_t f = S->curved[g];
        const int n = f.nv;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < n; k++)
                for (int c = 0; c < w; c++) y[(f.v + i) * w + c] += M[f.block + i * n + k] * x[(f.v + k) * w + c];
    }
}

/* to (rows x w) <- from + h sum_j a[j] K[j], with rows first .. first + rows of each K[j]; from: NULL for zero */
ALWAYS_INLINE void combined(const structure_t *S, const double *a, int count, V h, const V *restrict K, int first, int rows,
                            const V *restrict from, V *restrict to, const int w)
{
    for (int i = 0; i < rows; i++) {
        V sum[w];
        UNROLL for (int c = 0; c < w; c++) sum[c] = ZERO;
        for (int j = 0; j < count; j++) {
            if (a[j] == 0.0) continue;
            const V *own = K + (j * ND + first + i) * w;
            UNROLL for (int c = 0; c < w; c++) sum[c] += a[j] * own[c];
        }
        UNROLL for (int c = 0; c < w; c++) to[i * w + c] = from ? from[i * w + c] + h * sum[c] : h * sum[c];
    }
}

/* r <- h sum_j (ai_sj - a_sj) K[j] in the rows of velocities, w columns: the offset of the damped velocity at stage s, or its derivative */
ALWAYS_INLINE void lagged(const structure_t *S, int s, V h, const V *restrict K, V *restrict r, const int w)
{
    double a[STAGES];
    for (int j = 0; j < s; j++) a[j] = S->AI[s * STAGES + j] - S->A[s * STAGES + j];
    combined(S, a, s, h, K, NV, NE, NULL, r, w);
}

/* Implicit step of stage s, as a fraction of the step. */
#define SHARE(s) (S->semi_implicit ? 1.0 : S->implicit ? S->AI[(s) * STAGES + (s)] : 0.0)

ALWAYS_INLINE void increments(const structure_t *S, V h, const V *restrict K, V *restrict D, const int w)
{
    if (!S->semi_implicit) {
        combined(S, S->B, STAGES, h, K, 0, ND, NULL, D, w);
        return;
    }
    for (int i = 0; i < NV; i++)
        for (int c = 0; c < w; c++) {
            D[(NV + i) * w + c] = h * K[(NV + i) * w + c];
            D[i * w + c] = h * (K[i * w + c] + D[(NV + i) * w + c]);
        }
}

/* Inputs of the dynamics at stage s of one block: its state, from the f of earlier stages, in `to`, and the rest in the workspace. */
static void enter_stage(const structure_t *S, start_t at, long place, int substep, int s, const V *x, const own_t *own, V *restrict to)
{
    const V h = step_of(S, at, place), *e = NULL;
    if (s) {
        combined(S, S->A + s * STAGES, s, h, own->k, 0, ND, NULL, own->delta, 1);
        manifold_integrate(S, x, own->delta, to);
        if (NE) lagged(S, s, h, own->k, own->offset, 1), e = own->offset;
    } else {
        copy(to, x, NX);
        clear(own->offset, NE);
    }
    *own->time = at.t[place] + (double)substep * h + S->C[s] * h;
    if (S->implicit) extend_inputs(S, at.u + place, at.p + place, e, SHARE(s) * h, own->inputs);
}

/* f at stage s of one block, as the derivative of the increment on groups; if `stage` is not NULL, it receives the derivatives of the group's
   operations. */
static void leave_stage(const structure_t *S, int s, const own_t *own, const stage_t *stage)
{
    V *slope = own->k + s * ND, inverse[LIE_WORKSPACE + 1];
    if (!LIE_GROUPS || !s) return;
    manifold_dexp_inv(S, own->delta, stage ? stage->inverse : inverse);
    if (stage) {
        manifold_transport(S, own->delta, stage->transport);
        manifold_dexp(S, own->delta, stage->dexp);
        manifold_d_dexp_inv(S, own->delta, slope, stage->along);
    }
    blocks_times(S, stage ? stage->inverse : inverse, slope, 1);
}

/* delta (ND): increments of a substep from x in all blocks; if stages (workspaces of stage_size) is not NULL, they receive the stages with the
   derivatives of f.  forces: at x, or NULL. */
static void increment(const structure_t *S, ctx_t c, start_t at, int substep, const V *x, V *stages, V *delta, V *forces)
{
    const long apart = at.apart;
    const own_t front = own_at(S, at.own);
    const V *u = S->implicit ? front.inputs : at.u, *p = S->implicit ? front.inputs + ME + 1 : at.p;
    for (int s = 0; s < STAGES; s++) {
        const stage_t first = stage_at(S, stages + s * stage_size(S));
        V *state = stages ? first.at : front.at, *f = front.k + s * ND, *beside = s || !forces ? front.unread : forces;
        for (int j = 0; j < at.count; j++) {
            const long place = j * apart;
            const own_t own = own_at(S, at.own + place);
            enter_stage(S, at, place, substep, s, x + place, &own, state + place);
            for (int i = 0; i < ND - NF; i++) own.k[s * ND + i] = state[place + NX - NF + i];
        }
        if (stages) {
            V *const out[] = {f + ND - NF, first.fx, first.fu, beside};
            call_blocks(S->functions->dynamics_partials, 4, 4, IN(state, u, front.time, p), out, c.w, at.count, apart);
        } else {
            V *const out[] = {f + ND - NF, beside};
            call_blocks(S->functions->dynamics_value, 4, 2, IN(state, u, front.time, p), out, c.w, at.count, apart);
        }
        for (int j = 0; j < at.count; j++) {
            const own_t own = own_at(S, at.own + j * apart);
            if (!stages) {
                leave_stage(S, s, &own, NULL);
                continue;
            }
            const stage_t stage = stage_at(S, stages + j * apart + s * stage_size(S));
            copy(stage.f, own.k + s * ND, ND), copy(stage.e, own.offset, NE);
            *stage.step = SHARE(s) * step_of(S, at, j * apart);
            if (s) copy(stage.delta, own.delta, ND);
            leave_stage(S, s, &own, &stage);
        }
    }
    for (int j = 0; j < at.count; j++) {
        const own_t own = own_at(S, at.own + j * apart);
        increments(S, step_of(S, at, j * apart), own.k, delta + j * apart, 1);
    }
}

/* x <- x_next in all blocks */
static void step(const structure_t *S, ctx_t c, start_t at, V *x)
{
    V *const delta = own_at(S, at.own).delta, from[NX];
    for (int j = 0; j < at.count; j++) copy(x + j * at.apart, at.x + j * at.apart, NX);
    for (int s = 0; s < at.substeps; s++) {
        increment(S, c, at, s, x, NULL, delta, s ? NULL : at.forces);
        for (int j = 0; j < at.count; j++) {
            V *const to = x + j * at.apart;
            copy(from, to, NX);
            manifold_integrate(S, from, delta + j * at.apart, to);
        }
    }
}
