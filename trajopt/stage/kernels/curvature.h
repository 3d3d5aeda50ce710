/* Second derivatives of lam' (x_next (-) node) in w = (dx, u), in SIMD lanes: the counterpart of trajopt/step/step_derivatives.py.

   linearize stores the stages of each substep and the sensitivities at its start.  An
   adjoint sweep computes the multiplier of every operation; a second one adds the curvature of the operations, chained with the
   sensitivities of their arguments, to the upper triangle of H (NW x NW). */
#pragma once
#include "sensitivities.h"

/* Hessian in the tangent vector of the state and all controls of the problem. */
typedef struct {
    V *xx, *ux, *uu;
} hessian_t;

ALWAYS_INLINE long hessian_size(const structure_t *S) { return ND * ND + NU * ND + NU * NU; }

ALWAYS_INLINE hessian_t hessian_at(const structure_t *S, V *w)
{
    hessian_t h;
    h.xx = carved(&w, ND * ND), h.ux = carved(&w, NU * ND), h.uu = w;
    return h;
}

ALWAYS_INLINE long contracted_size(const structure_t *S) { return ND * ND + ME * ND + ME * ME + ND + NF * ND + NF * ME; }

/* Results of dynamics_contracted in a workspace of contracted_size vectors. */
ALWAYS_INLINE contraction_t contracted_at(const structure_t *S, V *w)
{
    contraction_t a;
    a.xx = carved(&w, ND * ND), a.ux = carved(&w, ME * ND), a.uu = carved(&w, ME * ME);
    a.f = carved(&w, ND), a.fx = carved(&w, NF * ND), a.fu = w;
    return a;
}

/* Arguments and results of dynamics_contracted at a stage.  inputs: controls with the offset, then parameters with the implicit step. */
typedef struct {
    V *x, *inputs, *t, *lam, *phi;
    contraction_t at;
} evaluation_t;

ALWAYS_INLINE long evaluation_size(const structure_t *S)
{
    return NX + ME + 1 + NP + 1 + 1 + ND + CURVED_FORCES + 1 + contracted_size(S);
}

/* Evaluation j in a workspace of evaluation_size vectors each. */
ALWAYS_INLINE evaluation_t evaluation_at(const structure_t *S, V *evaluations, int j)
{
    V *w = evaluations + j * evaluation_size(S);
    evaluation_t e;
    e.x = carved(&w, NX), e.inputs = carved(&w, ME + 1 + NP + 1), e.t = carved(&w, 1), e.lam = carved(&w, ND);
    e.phi = carved(&w, CURVED_FORCES + 1);
    e.at = contracted_at(S, w);
    return e;
}

/* 1 if second derivatives of f are not all zero. */
#define CURVED_DYNAMICS (S->functions->dynamics_contracted.run != NULL)

/* Stages that are evaluated together: one, or several if dynamics_contracted takes several blocks. */
#define MOST_EVALUATIONS 4
#define EVALUATIONS (S->functions->dynamics_contracted.run_blocks ? MOST_EVALUATIONS : 1)

typedef struct {
    V *x, *lam, *G, *H, *T, *columns, *evaluations;
    contraction_t at;
    hessian_t out;
} curvature_t;

ALWAYS_INLINE long curvature_size(const structure_t *S)
{
    return NX + ND + ND * NW + NW * NW + (ND + ME) * NW + contracted_size(S) + hessian_size(S) + EVALUATIONS * evaluation_size(S)
        + (STAGES + 1) * columns_size(S);
}

/* Workspace of curvature_size vectors. */
ALWAYS_INLINE curvature_t curvature_at(const structure_t *S, V *w)
{
    curvature_t a;
    a.x = carved(&w, NX), a.lam = carved(&w, ND);
    a.G = carved(&w, ND * NW), a.H = carved(&w, NW * NW), a.T = carved(&w, (ND + ME) * NW);
    a.at = contracted_at(S, carved(&w, contracted_size(S))), a.out = hessian_at(S, carved(&w, hessian_size(S)));
    a.evaluations = carved(&w, EVALUATIONS * evaluation_size(S)), a.columns = w;
    return a;
}

/* T <- M X + N' E, with M (rows x ND) and N (NE x ND): its rows i .. i + r and columns first .. first + w; N, E: NULL for zero */
ALWAYS_INLINE void curvature_rows(const structure_t *S, const V *restrict M, const V *restrict X, const V *restrict N, const V *restrict E,
                                  V *restrict T, int first, int i, const int r, const int w)
{
    const int nd = ND, nw = NW;
    V sum[r][w];
    UNROLL for (int j = 0; j < r; j++)
        UNROLL for (int c = 0; c < w; c++) sum[j][c] = ZERO;
    for (int k = 0; k < nd; k++)
        UNROLL for (int j = 0; j < r; j++)
            UNROLL for (int c = 0; c < w; c++) sum[j][c] += M[(i + j) * nd + k] * X[k * nw + first + c];
    for (int k = 0; N && k < NE; k++)
        UNROLL for (int j = 0; j < r; j++)
            UNROLL for (int c = 0; c < w; c++) sum[j][c] += N[k * nd + i + j] * E[k * nw + first + c];
    UNROLL for (int j = 0; j < r; j++)
        UNROLL for (int c = 0; c < w; c++) T[(i + j) * nw + first + c] = sum[j][c];
}

/* T <- M X + N' E as above, all `rows`. */
ALWAYS_INLINE void curvature_panel(const structure_t *S, const V *restrict M, const V *restrict X, const V *restrict N, const V *restrict E,
                                   V *restrict T, int rows, int first, const int w)
{
    int i = 0;
    for (; i + 3 <= rows; i += 3) curvature_rows(S, M, X, N, E, T, first, i, 3, w);
    for (; i < rows; i++) curvature_rows(S, M, X, N, E, T, first, i, 1, w);
}

/* sum (r x w) += X' T, X and T with `rows` rows: its rows i .. i + r and columns first .. first + w */
ALWAYS_INLINE void curvature_outer(const V *restrict X, const V *restrict T, int nw, int rows, V *restrict sum, int first, int i, const int r,
                                   const int w)
{
    for (int k = 0; k < rows; k++)
        UNROLL for (int j = 0; j < r; j++)
            UNROLL for (int c = 0; c < w; c++) sum[j * w + c] += X[k * nw + i + j] * T[k * nw + first + c];
}

/* H += X' T + E' U in rows i .. i + r and columns first .. first + w; E: NULL for zero */
ALWAYS_INLINE void add_outer(const structure_t *S, const V *restrict X, const V *restrict T, const V *restrict E, const V *restrict U, V *restrict H,
                             int first, int i, const int r, const int w)
{
    const int nw = NW;
    V sum[r * w];
    UNROLL for (int j = 0; j < r; j++)
        UNROLL for (int c = 0; c < w; c++) sum[j * w + c] = H[(i + j) * nw + first + c];
    curvature_outer(X, T, nw, ND, sum, first, i, r, w);
    if (E) curvature_outer(E, U, nw, NE, sum, first, i, r, w);
    UNROLL for (int j = 0; j < r; j++)
        UNROLL for (int c = 0; c < w; c++) H[(i + j) * nw + first + c] = sum[j * w + c];
}

/* Upper triangle of H += X' xx X + X' N' E + E' N X in columns first .. first + w, where N (NE x ND) are the last rows of ux; E: NULL for zero.
   T (ND + ME x NW) becomes xx X + N' E in its first ND rows and ux X below; without E, ux X of the controls alone. */
ALWAYS_INLINE void quadratic_panel(const structure_t *S, const contraction_t *F, const V *restrict X, const V *restrict E, V *restrict T,
                                   V *restrict H, int first, const int w)
{
    V *U = T + ND * NW;
    curvature_panel(S, F->xx, X, E ? F->ux + MU * ND : NULL, E, T, ND, first, w);
    curvature_panel(S, F->ux, X, NULL, NULL, U, E ? ME : MU, first, w);
    int i = 0;
    const int last = first + w; /* rows of the upper triangle */
    for (; i + 3 <= last; i += 3) add_outer(S, X, T, E, U + MU * NW, H, first, i, 3, w);
    for (; i < last; i++) add_outer(S, X, T, E, U + MU * NW, H, first, i, 1, w);
}

/* Evaluate dynamics_contracted at x, u, t, p with multipliers lam of f, and phi of the forces, NULL for none. */
static void call_contracted(const structure_t *S, ctx_t c, const V *x, const V *u, const V *t, const V *p, const V *lam, const V *phi, contraction_t to)
{
    V none[CURVED_FORCES + 1];
    if (!phi) clear(none, CURVED_FORCES);
    call(S->functions->dynamics_contracted, IN(x, u, t, p, lam, phi ? phi : none), OUT(to.f, to.fx, to.fu, to.xx, to.ux, to.uu), c.w);
}

/* Evaluate dynamics_contracted at `count` stages, from the last stage of the last of the substeps backward: those before stage number `end`. */
static void contract_stages(const structure_t *S, ctx_t c, start_t at, V *substeps, int end, int count, V *evaluations)
{
    const V h = step_of(S, at, 0);
    for (int j = 0; j < count; j++) {
        const int n = end - 1 - j, s = n % STAGES;
        const substep_t b = substep_at(S, substeps, n / STAGES);
        const stage_t stage = stage_at(S, b.stages + s * stage_size(S));
        const evaluation_t e = evaluation_at(S, evaluations, j);
        copy(e.x, stage.at, NX), copy(e.lam, b.on_f + s * ND, ND);
        *e.t = *at.t + (double)(n / STAGES) * h + S->C[s] * h;
        extend_inputs(S, at.u, at.p, stage.e, *stage.step, e.inputs);
        if (!n && c.phi) copy(e.phi, c.phi, CURVED_FORCES);
        else clear(e.phi, CURVED_FORCES);
    }
    const evaluation_t e = evaluation_at(S, evaluations, 0);
    V *const out[] = {e.at.f, e.at.fx, e.at.fu, e.at.xx, e.at.ux, e.at.uu};
    call_blocks(S->functions->dynamics_contracted, 6, 6, IN(e.x, e.inputs, e.t, e.inputs + ME + 1, e.lam, e.phi), out, c.w, count,
                evaluation_size(S));
}

/* H += [X; 0 1; E]' F [X; 0 1; E] with F = (xx, ux, uu), the Hessian of lam' f at a stage; upper triangle only.  E: NULL for zero, without
   an offset.  With an offset, the dynamics are affine in the offset and the controls. */
static void add_field(const structure_t *S, const curvature_t *a, const contraction_t *F, const V *restrict X, const V *restrict E)
{
    V *H = a->H;
    const int panel = PANEL;
#define QUADRATIC(w) quadratic_panel(S, F, X, E, a->T, H, first, w)
    for (int first = 0; first < NW; first += panel)
        switch (NW - first < panel ? NW - first : panel) { EACH_WIDTH(QUADRATIC) }
#undef QUADRATIC
    for (int j = 0; j < MU; j++) {
        const V *row = a->T + (ND + j) * NW;
        for (int c = 0; c <= ND + j; c++) H[c * NW + ND + j] += row[c];
        for (int c = ND + j; c < NW; c++) H[(ND + j) * NW + c] += row[c];
        for (int i = 0; i <= j; i++) H[(ND + i) * NW + ND + j] += F->uu[i * ME + j];
    }
}

/* H += Y' (M / 2 Y + N' Z) and its transpose, on the rows of the groups; M, N as blocks, M symmetric, N: NULL for zero; turned: use N for N' */
static void add_group_curvature(const structure_t *S, const V *restrict M, const V *restrict N, const V *restrict Y, const V *restrict Z,
                                int turned, V *restrict H)
{
    const int nw = NW;
    for (int g = 0; g < LIE_GROUPS; g++) {
        const int n = S->curved[g].nv, at = S->curved[g].v;
        const V *m = M + S->curved[g].block, *cross = N ? N + S->curved[g].block : NULL;
        V T[6 * nw];
        for (int i = 0; i < n; i++)
            for (int c = 0; c < nw; c++) {
                V s = ZERO;
                for (int k = 0; k < n; k++) s += 0.5 * m[i * n + k] * Y[(at + k) * nw + c];
                if (cross)
                    for (int k = 0; k < n; k++) s += cross[turned ? i * n + k : k * n + i] * Z[(at + k) * nw + c];
                T[i * nw + c] = s;
            }
        for (int r = 0; r < nw; r++)
            for (int i = 0; i < n; i++) {
                const V y = Y[(at + i) * nw + r], s = T[i * nw + r];
                for (int c = r; c < nw; c++) H[r * nw + c] += y * T[i * nw + c] + s * Y[(at + i) * nw + c];
            }
    }
}

/* to <- M' from, on the rows of the groups, M as blocks; to <- from on other rows */
static void blocks_adjoint(const structure_t *S, const V *restrict M, const V *restrict from, V *restrict to)
{
    copy(to, from, ND);
    for (int g = 0; g < LIE_GROUPS; g++) {
        const factor_t f = S->curved[g];
        const int n = f.nv;
        for (int j = 0; j < n; j++) {
            V s = ZERO;
            for (int i = 0; i < n; i++) s += M[f.block + i * n + j] * from[f.v + i];
            to[f.v + j] = s;
        }
    }
}

/* Multipliers (STAGES x ND) of f at the stages from the multiplier of the increment, without the contributions of later stages. */
static void stage_multipliers(const structure_t *S, V h, const V *restrict increment, V *restrict slope)
{
    if (!S->semi_implicit) {
        for (int s = 0; s < STAGES; s++)
            for (int i = 0; i < ND; i++) slope[s * ND + i] = S->B[s] * h * increment[i];
        return;
    }
    for (int i = 0; i < NV; i++) {
        slope[i] = h * increment[i];
        slope[NV + i] = h * (slope[i] + increment[NV + i]);
    }
}

/* Store the multipliers of a substep, and replace lam, the multiplier at its end, by that at its start. */
static void adjoint_substep(const structure_t *S, substep_t b, V h, V *restrict lam)
{
    V increment[ND], along[ND];
    copy(b.end, lam, ND), copy(increment, lam, ND);
    if (LIE_GROUPS) {
        blocks_adjoint(S, b.dexp, b.end, increment);
        blocks_adjoint(S, b.transport, b.end, lam);
    }
    stage_multipliers(S, h, increment, b.slope);
    for (int s = STAGES - 1; s >= 0; s--) {
        const stage_t stage = stage_at(S, b.stages + s * stage_size(S));
        const int curved = LIE_GROUPS && s;
        V *slope = b.slope + s * ND, *f = b.on_f + s * ND, *x = b.on_x + s * ND, at_offset[NE + 1], start[ND];
        if (curved) blocks_adjoint(S, stage.inverse, slope, f), blocks_adjoint(S, stage.along, slope, along);
        else copy(f, slope, ND);
        for (int j = 0; j < ND; j++) x[j] = NF == ND || j < NF ? ZERO : f[j - NF];
        clear(at_offset, NE);
        slopes_adjoint(S, &stage, f + ND - NF, x, at_offset);
        copy(increment, x, ND), copy(start, x, ND);
        if (curved) {
            blocks_adjoint(S, stage.dexp, x, increment), blocks_adjoint(S, stage.transport, x, start);
            for (int g = 0; g < LIE_GROUPS; g++)
                for (int i = S->curved[g].v; i < S->curved[g].v + S->curved[g].nv; i++) increment[i] += along[i];
        }
        for (int j = 0; j < s; j++) {
            const double share = S->A[s * STAGES + j];
            if (share != 0.0)
                for (int i = 0; i < ND; i++) b.slope[j * ND + i] += share * h * increment[i];
            for (int i = 0; i < NE; i++) b.slope[j * ND + NV + i] += (S->AI[s * STAGES + j] - share) * h * at_offset[i];
        }
        for (int i = 0; i < ND; i++) lam[i] += start[i];
    }
}

/* Add the curvature of the increments of the groups at stage s to H. */
static void add_stage_curvature(const structure_t *S, substep_t b, int s, columns_t columns, V *H)
{
    const stage_t stage = stage_at(S, b.stages + s * stage_size(S));
    V first[LIE_WORKSPACE], second[LIE_WORKSPACE];
    manifold_dexp_inv_hessian(S, stage.delta, stage.f, b.slope + s * ND, first, second);
    add_group_curvature(S, second, first, columns.D, columns.K, 1, H);
    manifold_integrate_hessian(S, stage.delta, b.on_x + s * ND, first, second);
    add_group_curvature(S, second, first, columns.D, b.G, 0, H);
}

/* Add the curvature of the increment of a substep to its state to H. */
static void add_end_curvature(const structure_t *S, substep_t b, columns_t columns, V *H)
{
    V first[LIE_WORKSPACE], second[LIE_WORKSPACE];
    manifold_integrate_hessian(S, b.delta, b.end, first, second);
    add_group_curvature(S, second, first, columns.D, b.G, 0, H);
}

/* Adjoint sweeps over the substeps: add the Hessian of lam' x_next to a->H; a->columns: those of the last substep. */
static void backward(const structure_t *S, ctx_t c, start_t at, V *substeps, const curvature_t *a)
{
    const V h = step_of(S, at, 0);
    for (int i = at.substeps - 1; i >= 0; i--) adjoint_substep(S, substep_at(S, substeps, i), h, a->lam);
    for (int i = at.substeps - 1, evaluated = 0, total = at.substeps * STAGES; i >= 0; i--) {
        const substep_t b = substep_at(S, substeps, i);
        if (i < at.substeps - 1) {
            copy(a->G, b.G, ND * NW);
            all_through(S, passage_of(b, h, i == 0), a->G, a->columns);
        }
        if (LIE_GROUPS) add_end_curvature(S, b, columns_at(S, a->columns + STAGES * columns_size(S)), a->H);
        for (int s = STAGES - 1; s >= 0; s--, evaluated++) {
            const columns_t columns = columns_at(S, a->columns + s * columns_size(S));
            if (CURVED_DYNAMICS) {
                const int j = evaluated % EVALUATIONS, left = total - evaluated;
                if (!j) contract_stages(S, c, at, substeps, left, left < EVALUATIONS ? left : EVALUATIONS, a->evaluations);
                const evaluation_t e = evaluation_at(S, a->evaluations, j);
                add_field(S, a, &e.at, columns.X, NE && s ? columns.E : NULL);
            }
            if (LIE_GROUPS && s) add_stage_curvature(S, b, s, columns, a->H);
        }
    }
}

/* f, its derivatives and the Hessian of lam' x_next for a step AT_ONE_POINT, whose Hessian is that of the multiplier of f times f. */
static void contracted_once(const structure_t *S, ctx_t c, start_t at, const V *lam, contraction_t to)
{
    const V h = step_of(S, at, 0);
    V slope[ND], inputs[INPUTS_WORKSPACE];
    stage_multipliers(S, h, lam, slope);
    if (S->implicit) extend_inputs(S, at.u, at.p, NULL, SHARE(0) * h, inputs);
    call_contracted(S, c, at.x, S->implicit ? inputs : at.u, at.t, S->implicit ? inputs + ME + 1 : at.p, slope, c.phi, to);
}

/* a->H <- the Hessian of lam' (x_next (-) node) + phi' forces, for a->lam and the phi of c.  stored: substeps of linearize at the same point;
   NULL: compute them first, in `own`.  w: workspace of linearize. */
static void contract(const structure_t *S, ctx_t c, start_t at, const V *node, V *stored, V *own, const curvature_t *a, V *w)
{
    const V h = step_of(S, at, 0);
    clear(a->H, NW * NW);
    if (!CURVED_DYNAMICS && !LIE_GROUPS) return;
    if (AT_ONE_POINT && at.substeps == 1) {
        contracted_once(S, c, at, a->lam, a->at);
        for (int i = 0; i < ND; i++)
            for (int j = i; j < ND; j++) a->H[i * NW + j] = a->at.xx[i * ND + j];
        for (int j = 0; j < MU; j++) {
            for (int i = 0; i < ND; i++) a->H[i * NW + ND + j] = a->at.ux[j * ND + i];
            for (int i = 0; i <= j; i++) a->H[(ND + i) * NW + ND + j] = a->at.uu[i * ME + j];
        }
        return;
    }
    if (stored) {
        const substep_t last = substep_at(S, stored, at.substeps - 1);
        copy(a->G, last.G, ND * NW);
        all_through(S, passage_of(last, h, at.substeps == 1), a->G, a->columns);
        manifold_integrate(S, stage_at(S, last.stages).at, last.delta, a->x);
    } else {
        linearize(S, c, at, a->x, a->G, w, own, a->columns);
    }
    if (LIE_GROUPS) {
        V d[ND], blocks[LIE_WORKSPACE], lam[ND];
        manifold_difference(S, node, a->x, d);
        manifold_difference_hessian(S, d, a->lam, blocks);
        add_group_curvature(S, blocks, NULL, a->G, NULL, 0, a->H);
        manifold_dexp_inv(S, d, blocks);
        copy(lam, a->lam, ND);
        blocks_adjoint(S, blocks, lam, a->lam);
    }
    backward(S, c, at, stored ? stored : own, a);
}
