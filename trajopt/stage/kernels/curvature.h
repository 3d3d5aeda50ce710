/* Second derivatives of lam' (x_next (-) node) in w = (dx, u), in SIMD lanes: the counterpart of trajopt/step/step_curvature.py.

   Include sensitivities.h before this file.  A forward sweep over the substeps stores the stages and the sensitivities at the start of
   each.  The adjoint sweep backward computes the multiplier of every operation, and adds its curvature, chained with the sensitivities of
   its arguments, to the upper triangle of H (NW x NW). */

/* Stored substep: workspaces of its stages, its increment, sensitivities at its start, the contact forces, and matrices of the groups. */
typedef struct {
    V *stages, *delta, *G, *forces, *transport, *dexp;
} substep_t;

ALWAYS_INLINE long substep_size(const structure_t *S) { return STAGES * stage_size(S) + ND + ND * NW + FORCES_WORKSPACE + 2 * LIE_WORKSPACE; }

/* Substep i in a workspace of substep_size vectors each. */
ALWAYS_INLINE substep_t substep_at(const structure_t *S, V *substeps, long i)
{
    V *w = substeps + i * substep_size(S);
    substep_t b;
    b.stages = carved(&w, STAGES * stage_size(S)), b.delta = carved(&w, ND), b.G = carved(&w, ND * NW);
    b.forces = carved(&w, FORCES_WORKSPACE), b.transport = carved(&w, LIE_WORKSPACE), b.dexp = carved(&w, LIE_WORKSPACE);
    return b;
}

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

typedef struct {
    V *x, *u, *p, *lam, *G, *H, *T, *columns;
    contraction_t at;
    hessian_t out;
} curvature_t;

ALWAYS_INLINE long curvature_size(const structure_t *S)
{
    return NX + MU + NP + ND + ND * NW + NW * NW + (ND + ME) * NW + contracted_size(S) + hessian_size(S) + (STAGES + 1) * columns_size(S);
}

/* Workspace of curvature_size vectors. */
ALWAYS_INLINE curvature_t curvature_at(const structure_t *S, V *w)
{
    curvature_t a;
    a.x = carved(&w, NX), a.u = carved(&w, MU), a.p = carved(&w, NP), a.lam = carved(&w, ND);
    a.G = carved(&w, ND * NW), a.H = carved(&w, NW * NW), a.T = carved(&w, (ND + ME) * NW);
    a.at = contracted_at(S, carved(&w, contracted_size(S))), a.out = hessian_at(S, carved(&w, hessian_size(S)));
    a.columns = w;
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
    V none[FORCES_BENT + 1];
    if (!phi) clear(none, FORCES_BENT);
    call(S->functions->dynamics_contracted, IN(x, u, t, p, lam, phi ? phi : none), OUT(to.f, to.fx, to.fu, to.xx, to.ux, to.uu), c.w);
}

/* Evaluate dynamics_contracted at a stage, whose state is x. */
static void contract_stage(const structure_t *S, ctx_t c, const curvature_t *a, const stage_t *s, const V *x, V t, const V *lam)
{
    V inputs[INPUTS_WORKSPACE];
    if (S->implicit) extend_inputs(S, a->u, a->p, s->e, *s->step, inputs);
    call_contracted(S, c, x, S->implicit ? inputs : a->u, &t, S->implicit ? inputs + ME + 1 : a->p, lam, c.phi, a->at);
}

/* H += [X; 0 1; E]' F [X; 0 1; E] with F = (xx, ux, uu), the Hessian of lam' f at a stage; upper triangle only.  E: NULL for zero, without
   an offset.  With an offset, the dynamics are affine in the offset and the controls. */
static void add_field(const structure_t *S, const curvature_t *a, const V *restrict X, const V *restrict E)
{
    V *H = a->H;
    const int panel = PANEL;
#define QUADRATIC(w) quadratic_panel(S, &a->at, X, E, a->T, H, first, w)
    for (int first = 0; first < NW; first += panel)
        switch (NW - first < panel ? NW - first : panel) { EACH_WIDTH(QUADRATIC) }
#undef QUADRATIC
    for (int j = 0; j < MU; j++) {
        const V *row = a->T + (ND + j) * NW;
        for (int c = 0; c <= ND + j; c++) H[c * NW + ND + j] += row[c];
        for (int c = ND + j; c < NW; c++) H[(ND + j) * NW + c] += row[c];
        for (int i = 0; i <= j; i++) H[(ND + i) * NW + ND + j] += a->at.uu[i * ME + j];
    }
}

/* H += Y' (M / 2 Y + N' Z) and its transpose, on the rows of the groups; M, N as blocks, M symmetric, N: NULL for zero; turned: use N for N' */
static void add_bend(const structure_t *S, const V *restrict M, const V *restrict N, const V *restrict Y, const V *restrict Z, int turned, V *restrict H)
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

/* Adjoint sweep through one substep: adds its curvature to H, and replaces lam, the multiplier at its end, by that at its start.
   phi: multipliers of the forces at its start. */
static void back(const structure_t *S, ctx_t c, const curvature_t *a, substep_t b, V t, V h, const V *phi)
{
    const int lie = LIE_GROUPS > 0;
    V slope[STAGES * ND], increment[ND], start[ND], first[LIE_WORKSPACE + 1], second[LIE_WORKSPACE + 1], at_f[ND], more[ND];
    if (lie) {
        manifold_integrate_bend(S, b.delta, a->lam, first, second);
        add_bend(S, second, first, columns_at(S, a->columns + STAGES * columns_size(S)).D, b.G, 0, a->H);
        blocks_adjoint(S, b.dexp, a->lam, increment);
        blocks_adjoint(S, b.transport, a->lam, start);
    } else {
        copy(increment, a->lam, ND);
        copy(start, a->lam, ND);
    }
    stage_multipliers(S, h, increment, slope);
    for (int s = STAGES - 1; s >= 0; s--) {
        const stage_t stage = stage_at(S, b.stages + s * stage_size(S));
        const columns_t columns = columns_at(S, a->columns + s * columns_size(S));
        V *l = slope + s * ND, at[ND], at_offset[NE + 1];
        if (lie && s) {
            manifold_dexp_inv_bend(S, stage.delta, stage.f, l, first, second);
            add_bend(S, second, first, columns.D, columns.K, 1, a->H);
            clear(more, ND);
            blocks_adjoint(S, stage.along, l, more);
            blocks_adjoint(S, stage.inverse, l, at_f);
            l = at_f;
        }
        c.phi = s ? NULL : phi;
        contract_stage(S, c, a, &stage, stage.at, t + S->C[s] * h, l);
        add_field(S, a, columns.X, NE && s ? columns.E : NULL);
        for (int j = 0; j < ND; j++) at[j] = NF == ND || j < NF ? ZERO : l[j - NF];
        clear(at_offset, NE);
        slopes_adjoint(S, &stage, l + ND - NF, at, at_offset);
        if (lie && s) {
            V through[ND], on[ND];
            manifold_integrate_bend(S, stage.delta, at, first, second);
            add_bend(S, second, first, columns.D, b.G, 0, a->H);
            blocks_adjoint(S, stage.dexp, at, through);
            blocks_adjoint(S, stage.transport, at, on);
            copy(increment, through, ND), copy(at, on, ND);
            for (int g = 0; g < LIE_GROUPS; g++)
                for (int i = S->curved[g].v; i < S->curved[g].v + S->curved[g].nv; i++) increment[i] += more[i];
        } else copy(increment, at, ND);
        for (int j = 0; j < s; j++) {
            const double share = S->A[s * STAGES + j];
            if (share != 0.0)
                for (int i = 0; i < ND; i++) slope[j * ND + i] += share * h * increment[i];
            for (int i = 0; i < NE; i++) slope[j * ND + NV + i] += (S->AI[s * STAGES + j] - share) * h * at_offset[i];
        }
        for (int i = 0; i < ND; i++) start[i] += at[i];
    }
    copy(a->lam, start, ND);
}

static void columns_of(const structure_t *S, substep_t b, V h, int fresh, V *restrict G, V *restrict kept)
{
    all_through(S, (passage_t){b.stages, b.transport, b.dexp, h, fresh}, G, kept);
}

/* Forward sweep over the substeps: x becomes x_next and G its derivative; `substeps` stores the stages, the sensitivities at their start,
   and the forces of the first substep.  last: if not NULL, receives the columns of the last substep. */
static void forward(const structure_t *S, ctx_t c, start_t at, V *substeps, V *restrict x, V *restrict G, V *last)
{
    const V h = step_of(S, at, 0);
    V from[NX];
    copy(x, at.x, NX);
    for (int i = 0; i < ND; i++)
        for (int j = 0; j < NW; j++) G[i * NW + j] = splat(i == j);
    for (int s = 0; s < at.substeps; s++) {
        const substep_t b = substep_at(S, substeps, s);
        copy(b.G, G, ND * NW);
        copy(from, x, NX);
        increment(S, c, at, s, from, b.stages, b.delta, s ? NULL : b.forces);
        manifold_transport(S, b.delta, b.transport);
        manifold_dexp(S, b.delta, b.dexp);
        columns_of(S, b, h, s == 0, G, s == at.substeps - 1 ? last : NULL);
        manifold_integrate(S, from, b.delta, x);
    }
}

/* Adjoint sweep over the substeps: adds the Hessian of lam' x_next to a->H; a->columns: those of the last substep. */
static void backward(const structure_t *S, ctx_t c, int count, V t, V h, V *substeps, const curvature_t *a)
{
    for (int s = count - 1; s >= 0; s--) {
        const substep_t b = substep_at(S, substeps, s);
        if (s < count - 1) {
            copy(a->G, b.G, ND * NW);
            columns_of(S, b, h, s == 0, a->G, a->columns);
        }
        back(S, c, a, b, t + (double)s * h, h, s ? NULL : c.phi);
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

/* Add the Hessian of lam' (x_next (-) node) + phi' forces, for a->lam and the phi of c, to a->H, which must be 0.  Call forward() to a->x,
   a->G and a->columns before. */
static void contract_back(const structure_t *S, ctx_t c, start_t at, const V *node, V *substeps, const curvature_t *a)
{
    const V h = step_of(S, at, 0);
    copy(a->u, at.u, MU);
    copy(a->p, at.p, NP);
    if (LIE_GROUPS) {
        V d[ND], blocks[LIE_WORKSPACE], lam[ND];
        manifold_difference(S, node, a->x, d);
        manifold_difference_bend(S, d, a->lam, blocks);
        add_bend(S, blocks, NULL, a->G, NULL, 0, a->H);
        manifold_dexp_inv(S, d, blocks);
        copy(lam, a->lam, ND);
        blocks_adjoint(S, blocks, lam, a->lam);
    }
    backward(S, c, at.substeps, *at.t, h, substeps, a);
}

/* a->H <- the Hessian of lam' (x_next (-) node) + phi' forces, for a->lam and the phi of c.  kept: substeps stored by forward() at the same
   point; NULL: compute them first, in `own`. */
static void contract(const structure_t *S, ctx_t c, start_t at, const V *node, V *kept, V *own, const curvature_t *a)
{
    const V h = step_of(S, at, 0);
    clear(a->H, NW * NW);
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
    if (kept) {
        const substep_t last = substep_at(S, kept, at.substeps - 1);
        copy(a->G, last.G, ND * NW);
        columns_of(S, last, h, at.substeps == 1, a->G, a->columns);
        manifold_integrate(S, stage_at(S, last.stages).at, last.delta, a->x);
    } else {
        forward(S, c, at, own, a->x, a->G, a->columns);
    }
    contract_back(S, c, at, node, kept ? kept : own, a);
}
