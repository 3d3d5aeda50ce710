/* Knots of one phase of an optimal-control problem: values, first derivatives, and second derivatives of

       sigma l(x, u) + lam' (x_next (-) node) + y' g(x, u),

   in the tangent spaces at x and at the node.  The counterpart of trajopt/stage/numpy_stages.py.

   Arrays begin at the first knot of the phase.  Results that are NULL are not stored. */
#pragma once
#include "inner_maps.h"

/* Workspaces in vectors. */
EXPORT long stage_workspace(const structure_t *S)
{
    return knots_workspace(S) + LARGER(S->workspace, blocks_together(S) * S->registers) + (CURVED_FORCES ? contracted_size(S) : 0);
}

EXPORT long stage_stored_size(const structure_t *S) { return substep_size(S); }

EXPORT long stage_second_workspace(const structure_t *S, long substeps)
{
    return stage_workspace(S) + MOST_EVALUATIONS * S->registers + curvature_size(S) + substeps * substep_size(S);
}

/* Store x_next and the defect d at the node of the block that begins at knot n, as far as they are requested. */
static void store_next(const structure_t *S, const knot_t *k, int count, long n, const values_t *out)
{
    if (!out->x_next && !out->d) return;
    STORE(k->next, NX, count, n, out->x_next)
    manifold_difference(S, k->node, k->next, k->d);
    STORE(k->d, ND, count, n, out->d)
}

static ctx_t context(const stages_t *s, V *w) { return (ctx_t){.w = w}; }

static start_t start_of(const stages_t *s, const knot_t *k)
{
    return (start_t){s->substeps, 1, 0, k->x, k->u, k->p, k->t, k->dt, k->own, k->forces};
}

/* Stored substeps of the block that begins at knot n, NULL if none are stored. */
static V *stored_from(const stages_t *s, void *stored, long n)
{
    const structure_t *S = s->structure;
    return stored ? (V *)stored + n / LANES * s->substeps * substep_size(S) : NULL;
}

/* Time step of `count` blocks. */
static start_t starts_of(const stages_t *s, const knot_t *k, int count)
{
    start_t at = start_of(s, k);
    at.count = count, at.apart = knot_size(s->structure);
    return at;
}

/* Set k.next in `count` blocks. */
static void step_blocks(const stages_t *s, knot_t k, int count, V *w)
{
    const structure_t *S = s->structure;
    const ctx_t c = context(s, w);
    if (STEPS_TOGETHER) {
        step(S, c, starts_of(s, &k, count), k.next);
        return;
    }
    for (int j = 0; j < count; j++) {
        const knot_t own = nth_block(S, k, j);
        step(S, c, start_of(s, &own), own.next);
    }
}

/* Evaluate the running cost in `count` blocks. */
static void evaluate_running(const structure_t *S, knot_t k, int count, V *w)
{
    CALL_BLOCKS(S->functions->running_value, count, (k.x, k.u, k.t, k.dt, k.theta, k.forces), (k.l));
}

/* Expand the running cost in `count` blocks. */
static void expand_running(const structure_t *S, knot_t k, int count, V *w)
{
    CALL_BLOCKS(S->functions->running_expand, count, (k.x, k.u, k.t, k.dt, k.theta, k.forces),
                (k.l, k.lx, k.lu, k.lxx, k.lux, k.luu, k.phi, k.lff));
    for (int j = 0; FORCES && j < count; j++) {
        const knot_t own = nth_block(S, k, j);
        const inner_t forces = {FORCES, S->functions->force_columns, ND, NU, own.phi, own.lff, own.forces + FORCES};
        add_inner(forces, (expanded_t){own.lx, own.lu, own.lxx, own.lux, own.luu}, own.block);
    }
}

/* to += from */
static void add_to(V *restrict to, const V *restrict from, long count)
{
    for (long i = 0; i < count; i++) to[i] += from[i];
}

/* Add (phi' forces)_xx to lxx and lux; the forces are linear in u. */
static void add_forces_curvature(const structure_t *S, ctx_t c, const knot_t *k)
{
    if (!CURVED_FORCES) return;
    const contraction_t at = contracted_at(S, carved(&c.w, contracted_size(S)));
    V none[ND];
    clear(none, ND);
    call_contracted(S, c, k->x, k->u, k->t, k->p, none, k->phi, at);
    add_to(k->lxx, at.xx, ND * ND);
    add_to(k->lux, at.ux, MU * ND);
}

/* Transport the columns of G to the tangent space at the node. */
static void carry_sensitivities(const structure_t *S, const knot_t *k)
{
    if (!LIE_GROUPS) return;
    V carry[LIE_WORKSPACE];
    manifold_dexp_inv(S, k->d, carry);
    blocks_times(S, carry, k->G, NW);
}

/* A (ND x ND) and B (ND x NU) as blocks of G */
static void state_sensitivities(const structure_t *S, const knot_t *k, V *restrict A)
{
    for (int i = 0; i < ND; i++)
        for (int j = 0; j < ND; j++) A[i * ND + j] = k->G[i * NW + j];
}

static void control_sensitivities(const structure_t *S, const knot_t *k, V *restrict B)
{
    for (int i = 0; i < ND; i++)
        for (int j = 0; j < NU; j++) B[i * NU + j] = j < MU ? k->G[i * NW + ND + j] : ZERO;
}

/* Blocks xx, ux, uu from the upper triangle of H (NW x NW). */
static void blocks_of(const structure_t *S, const V *H, hessian_t out)
{
    for (int i = 0; i < ND; i++)
        for (int j = i; j < ND; j++) out.xx[i * ND + j] = out.xx[j * ND + i] = H[i * NW + j];
    for (int i = 0; i < NU; i++)
        for (int j = 0; j < ND; j++) out.ux[i * ND + j] = i < MU ? H[j * NW + ND + i] : ZERO;
    for (int i = 0; i < NU; i++)
        for (int j = i; j < NU; j++) out.uu[i * NU + j] = out.uu[j * NU + i] = j < MU ? H[(ND + i) * NW + ND + j] : ZERO;
}

/* to <- xs (+) alpha dx for `count` states */
EXPORT void stage_moved(const structure_t *S, const double *xs, const double *dx, double alpha, long count, double *to)
{
    for (long n = 0; n < count; n += LANES) {
        const int own = count - n < LANES ? count - n : LANES;
        V x[NX], d[ND], y[NX];
        pack(xs + n * NX, NX, own, x);
        pack(dx + n * ND, ND, own, d);
        for (int i = 0; i < ND; i++) d[i] = alpha * d[i];
        manifold_integrate(S, x, d, y);
        unpack(y, NX, own, to + n * NX);
    }
}

/* Transport covectors lam at `count` states to the states x (+) alpha dx: lam <- dexp^-1(alpha dx)' lam on the groups. */
EXPORT void stage_carried(const structure_t *S, const double *dx, double alpha, long count, double *lam)
{
    for (long n = 0; n < count; n += LANES) {
        const int own = count - n < LANES ? count - n : LANES;
        V d[ND], M[LIE_WORKSPACE + 1], from[ND], y[ND];
        pack(dx + n * ND, ND, own, d);
        pack(lam + n * ND, ND, own, from);
        for (int i = 0; i < ND; i++) d[i] = alpha * d[i];
        manifold_dexp_inv(S, d, M);
        blocks_adjoint(S, M, from, y);
        unpack(y, ND, own, lam + n * ND);
    }
}

static void store_sensitivities(const structure_t *S, const knot_t *k, int count, long n, const first_t *out)
{
    carry_sensitivities(S, k);
    state_sensitivities(S, k, k->block);
    STORE(k->block, ND * ND, count, n, out->A)
    control_sensitivities(S, k, k->block);
    STORE(k->block, ND * NU, count, n, out->B)
}

/* Store the time step of the block that begins at knot n, as far as it is requested. */
static void store_stepped(const structure_t *S, const knot_t *k, int count, long n, const first_t *out)
{
    store_next(S, k, count, n, &out->values);
    if (out->A) store_sensitivities(S, k, count, n, out);
}

/* Values and first derivatives, as far as they are requested: without Q and lx, no derivatives; without x_next, d and A, terms alone. */
EXPORT void stage_first(const stages_t *s, const point_t *at, long first, long last, const first_t *out, V *workspace)
{
    const structure_t *S = s->structure;
    V *w = workspace;
    const knot_t front = carved_knots(S, &w);
    const ctx_t c = context(s, w);
    const int most = blocks_together(S), stepped = out->values.x_next || out->values.d, expanded = out->Q || out->lx;
    const int linear = out->A || (FORCES && expanded), together = STEPS_TOGETHER && linear;
    for (long from = first; from < last; from += most * LANES) {
        int blocks = 0;
        for (long n = from; n < last && blocks < most; n += LANES, blocks++) {
            const knot_t k = nth_block(S, front, blocks);
            const int count = load_knots(S, s, at, n, last, &k);
            if (!linear || together) continue;
            linearize(S, c, start_of(s, &k), k.next, k.G, k.scratch, stored_from(s, out->stored, n), NULL);
            store_stepped(S, &k, count, n, out);
        }
        if (together) {
            const start_t starts = starts_of(s, &front, blocks);
            linearize(S, c, starts, front.next, front.G, front.scratch, stored_from(s, out->stored, from), NULL);
        }
        if (!linear && stepped) step_blocks(s, front, blocks, w);
        knot_t k = front;
        if (expanded) {
            expand_running(S, k, blocks, w);
            CALL_BLOCKS(S->functions->path_first, blocks, (k.x, k.u, k.t, k.pg), (k.g, k.gx, k.gu));
        } else {
            evaluate_running(S, k, blocks, w);
            CALL_BLOCKS(S->functions->path_value, blocks, (k.x, k.u, k.t, k.pg), (k.g));
        }
        for (int j = 0; j < blocks; j++) {
            const long n = from + j * LANES;
            const int count = lanes_used(n, last);
            k = nth_block(S, front, j);
            if (!linear || together) store_stepped(S, &k, count, n, out);
            if (out->Q) add_forces_curvature(S, context(s, w), &k);
            STORE(k.l, 1, count, n, out->values.cost)
            STORE(k.lx, ND, count, n, out->lx)
            STORE(k.lu, NU, count, n, out->lu)
            STORE(k.lxx, ND * ND, count, n, out->Q)
            STORE(k.lux, NU * ND, count, n, out->S)
            STORE(k.luu, NU * NU, count, n, out->R)
            STORE(k.g, NG, count, n, out->values.g)
            STORE(k.gx, NG * ND, count, n, out->gx)
            STORE(k.gu, NG * NU, count, n, out->gu)
        }
    }
}

/* to += factor from */
static void add_scaled(V factor, const V *from, V *restrict to, int count)
{
    for (int i = 0; i < count; i++) to[i] += factor * from[i];
}

EXPORT void stage_second(const stages_t *s, const point_t *at, long first, long last, const second_t *out, V *workspace)
{
    const structure_t *S = s->structure;
    V *w = workspace;
    const curvature_t a = curvature_at(S, carved(&w, curvature_size(S)));
    const knot_t front = carved_knots(S, &w);
    V *own = carved(&w, s->substeps * substep_size(S)), sigma;
    const int most = blocks_together(S), costs = out->sigma != 0.0;
    ctx_t c = context(s, w);
    LOAD(&out->sigma, 0, 1, 1, &sigma)
    for (long from = first; from < last; from += most * LANES) {
        int blocks = 0;
        knot_t k = front;
        for (long n = from; n < last && blocks < most; n += LANES, blocks++) {
            k = nth_block(S, front, blocks);
            const int count = load_knots(S, s, at, n, last, &k);
            if (out->y) LOAD(out->y, n, NG, count, k.g)
            if (!costs || !FORCES) continue;
            if (out->stored) copy(k.forces, substep_at(S, stored_from(s, out->stored, n), 0).forces, FORCES_WORKSPACE);
            else call(S->functions->dynamics_partials, IN(k.x, k.u, k.t, k.p), OUT(a.at.f, a.at.fx, a.at.fu, k.forces), w);
        }
        k = front;
        if (costs) expand_running(S, k, blocks, w);
        if (out->y) CALL_BLOCKS(S->functions->path_second, blocks, (k.x, k.u, k.t, k.pg, k.g), (k.hxx, k.hux, k.huu));
        for (int j = 0; j < blocks; j++) {
            const long n = from + j * LANES;
            const int count = lanes_used(n, last);
            k = nth_block(S, front, j);
            if (costs) {
                if (!out->lam) add_forces_curvature(S, c, &k);
                for (int i = 0; i < CURVED_FORCES; i++) k.phi[i] *= sigma;
            }
            c.phi = CURVED_FORCES && costs ? k.phi : NULL;
            if (out->lam) {
                LOAD(out->lam, n, ND, count, a.lam)
                contract(S, c, start_of(s, &k), k.node, stored_from(s, out->stored, n), own, &a, k.scratch);
                blocks_of(S, a.H, a.out);
            } else {
                clear(a.out.xx, hessian_size(S));
            }
            if (costs) {
                add_scaled(sigma, k.lxx, a.out.xx, ND * ND);
                add_scaled(sigma, k.lux, a.out.ux, NU * ND);
                add_scaled(sigma, k.luu, a.out.uu, NU * NU);
            }
            if (out->y && NG) {
                add_to(a.out.xx, k.hxx, ND * ND);
                add_to(a.out.ux, k.hux, NU * ND);
                add_to(a.out.uu, k.huu, NU * NU);
            }
            STORE(a.out.xx, ND * ND, count, n, out->xx)
            STORE(a.out.ux, NU * ND, count, n, out->ux)
            STORE(a.out.uu, NU * NU, count, n, out->uu)
        }
    }
}

/* Phase and point of stage_knot_second, for a sweep that computes lam knot by knot. */
typedef struct {
    const stages_t *stages;
    const point_t *at;
    V *workspace;
} sweep_t;

/* Hessian of lam' (x_next (-) node) at knot n. */
EXPORT void stage_knot_second(const void *sweep, long n, const double *lam, double *xx, double *ux, double *uu)
{
    const sweep_t *k = sweep;
    const stages_t *s = k->stages;
    const structure_t *S = s->structure;
    const stages_t here = {S, s->substeps, s->t + n, s->dt + n, s->p + n * NP, s->theta + n * NT, s->pg + n * NPG};
    const point_t at = {k->at->xs + n * NX, k->at->us + n * NU, k->at->nodes + n * NX};
    const second_t out = {0.0, lam, NULL, NULL, xx, ux, uu};
    stage_second(&here, &at, 0, 1, &out, k->workspace);
}

static void load_end(const structure_t *S, const end_t *s, const double *x, const knot_t *k)
{
    LOAD(x, 0, NX, 1, k->x)
    LOAD(s->theta, 0, NTT, 1, k->theta)
    LOAD(s->pg, 0, NPGT, 1, k->pg)
    LOAD(s->t, 0, 1, 1, k->t)
}

/* Costs and constraints of `count` states with stride `stride`. */
EXPORT void end_values(const end_t *s, const double *xs, long stride, long count, double *cost, double *g, V *workspace)
{
    const structure_t *S = s->structure;
    V *w = workspace;
    const knot_t k = carved_knots(S, &w);
    load_end(S, s, xs, &k);
    for (long n = 0; n < count; n += LANES) {
        const int own = count - n < LANES ? count - n : LANES;
        for (int l = 0; l < LANES; l++)
            for (int i = 0; i < NX; i++) LANE(k.x[i], l) = xs[(l < own ? n + l : n) * stride + i];
        call(S->functions->terminal_value, IN(k.x, k.t, k.theta), OUT(k.l), w);
        put_rows(k.l, 1, own, n, cost);
        if (!g) continue;
        call(S->functions->final_value, IN(k.x, k.t, k.pg), OUT(k.g), w);
        put_rows(k.g, NGT, own, n, g);
    }
}

EXPORT void end_first(const end_t *s, const double *x, const end_first_t *out, V *workspace)
{
    const structure_t *S = s->structure;
    V *w = workspace;
    const knot_t k = carved_knots(S, &w);
    load_end(S, s, x, &k);
    call(S->functions->terminal_expand, IN(k.x, k.t, k.theta), OUT(k.l, k.lx, k.lxx), w);
    STORE(k.l, 1, 1, 0, out->cost)
    STORE(k.lx, ND, 1, 0, out->lx)
    STORE(k.lxx, ND * ND, 1, 0, out->Q)
    call(S->functions->final_first, IN(k.x, k.t, k.pg), OUT(k.g, k.gx), w);
    STORE(k.g, NGT, 1, 0, out->g)
    STORE(k.gx, NGT * ND, 1, 0, out->gx)
}

/* Hessian of sigma l + y' g; y: NULL for none. */
EXPORT void end_second(const end_t *s, const double *x, double sigma, const double *y, double *xx, V *workspace)
{
    const structure_t *S = s->structure;
    V *w = workspace;
    const knot_t k = carved_knots(S, &w);
    V *H = k.block;
    load_end(S, s, x, &k);
    call(S->functions->terminal_expand, IN(k.x, k.t, k.theta), OUT(k.l, k.lx, k.lxx), w);
    for (int i = 0; i < ND * ND; i++) H[i] = sigma * k.lxx[i];
    if (y) {
        LOAD(y, 0, NGT, 1, k.g)
        call(S->functions->final_second, IN(k.x, k.t, k.pg, k.g), OUT(k.lxx), w);
        add_to(H, k.lxx, ND * ND);
    }
    STORE(H, ND * ND, 1, 0, xx)
}
