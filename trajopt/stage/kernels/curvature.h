/* Second derivatives of lam' (x_next (-) node) in w = (dx, u), in SIMD lanes: the counterpart of trajopt/step/step_curvature.py.

   Include sensitivities.h with its dependencies, dynamics_contracted, and the second derivatives of the manifold before this file.  A
   forward sweep over the substeps stores the stages and the sensitivities at the start of each.  The adjoint sweep backward computes the
   multiplier of every operation, and adds its curvature, chained with the sensitivities of its arguments, to the upper triangle of H
   (NW x NW). */

typedef struct {
    stage_t stage[STAGES];
    V delta[ND], G[ND * NW], forces[FORCES_ROOM + 1];
#ifdef LIE
    V transport[LIE_ROOM], dexp[LIE_ROOM];
#endif
} substep_t;

/* Hessian in the tangent vector of the state and all controls of the problem. */
typedef struct {
    V xx[ND * ND], ux[NU * ND + 1], uu[NU * NU + 1];
} hessian_t;

/* Results of dynamics_contracted. */
typedef struct {
    V xx[ND * ND], ux[ME * ND + 1], uu[ME * ME + 1], f[ND], fx[NF * ND], fu[NF * ME + 1];
} contracted_t;

typedef struct {
    V x[NX], u[MU + 1], p[NP + 1], lam[ND], G[ND * NW], H[NW * NW], T[(ND + ME) * NW];
    contracted_t at;
    hessian_t out;
    columns_t columns[STAGES + 1];
} curvature_t;

/* T <- M S + N' E, with M (rows x ND) and N (NE x ND): its rows i .. i + r and columns first .. first + w; N, E: NULL for zero */
ALWAYS_INLINE void curvature_rows(
    const V *restrict M, const V *restrict S, const V *restrict N, const V *restrict E, V *restrict T, int first, int i, const int r, const int w)
{
    V sum[r][w];
    UNROLL for (int j = 0; j < r; j++)
        UNROLL for (int c = 0; c < w; c++) sum[j][c] = ZERO;
    for (int k = 0; k < ND; k++)
        UNROLL for (int j = 0; j < r; j++)
            UNROLL for (int c = 0; c < w; c++) sum[j][c] += M[(i + j) * ND + k] * S[k * NW + first + c];
    for (int k = 0; N && k < NE; k++)
        UNROLL for (int j = 0; j < r; j++)
            UNROLL for (int c = 0; c < w; c++) sum[j][c] += N[k * ND + i + j] * E[k * NW + first + c];
    UNROLL for (int j = 0; j < r; j++)
        UNROLL for (int c = 0; c < w; c++) T[(i + j) * NW + first + c] = sum[j][c];
}

/* T <- M S + N' E as above, all `rows`. */
ALWAYS_INLINE void curvature_panel(const V *restrict M, const V *restrict S, const V *restrict N, const V *restrict E, V *restrict T, int rows,
                                   int first, const int w)
{
    int i = 0;
    for (; i + 3 <= rows; i += 3) curvature_rows(M, S, N, E, T, first, i, 3, w);
    for (; i < rows; i++) curvature_rows(M, S, N, E, T, first, i, 1, w);
}

/* sum (r x w) += S' T, S and T with `rows` rows: its rows i .. i + r and columns first .. first + w */
ALWAYS_INLINE void curvature_outer(const V *restrict S, const V *restrict T, int rows, V *restrict sum, int first, int i, const int r, const int w)
{
    for (int k = 0; k < rows; k++)
        UNROLL for (int j = 0; j < r; j++)
            UNROLL for (int c = 0; c < w; c++) sum[j * w + c] += S[k * NW + i + j] * T[k * NW + first + c];
}

/* H += S' T + E' U in rows i .. i + r and columns first .. first + w; E: NULL for zero */
ALWAYS_INLINE void add_outer(const V *restrict S, const V *restrict T, const V *restrict E, const V *restrict U, V *restrict H, int first, int i,
                             const int r, const int w)
{
    V sum[r * w];
    UNROLL for (int j = 0; j < r; j++)
        UNROLL for (int c = 0; c < w; c++) sum[j * w + c] = H[(i + j) * NW + first + c];
    curvature_outer(S, T, ND, sum, first, i, r, w);
    if (E) curvature_outer(E, U, NE, sum, first, i, r, w);
    UNROLL for (int j = 0; j < r; j++)
        UNROLL for (int c = 0; c < w; c++) H[(i + j) * NW + first + c] = sum[j * w + c];
}

/* Upper triangle of H += S' xx S + S' N' E + E' N S in columns first .. first + w, where N (NE x ND) are the last rows of ux; E: NULL for zero.
   T (ND + ME x NW) becomes xx S + N' E in its first ND rows and ux S below; without E, ux S of the controls alone. */
ALWAYS_INLINE void quadratic_panel(const contracted_t *restrict F, const V *restrict S, const V *restrict E, V *restrict T, V *restrict H, int first,
                                   const int w)
{
    V *U = T + ND * NW;
    curvature_panel(F->xx, S, E ? F->ux + MU * ND : NULL, E, T, ND, first, w);
    curvature_panel(F->ux, S, NULL, NULL, U, E ? ME : MU, first, w);
    int i = 0;
    const int last = first + w; /* rows of the upper triangle */
    for (; i + 3 <= last; i += 3) add_outer(S, T, E, U + MU * NW, H, first, i, 3, w);
    for (; i < last; i++) add_outer(S, T, E, U + MU * NW, H, first, i, 1, w);
}

static contraction_t into(contracted_t *a) { return (contraction_t){a->f, a->fx, a->fu, a->xx, a->ux, a->uu}; }

/* Evaluate dynamics_contracted at a stage. */
static void contracted_at(ctx_t c, curvature_t *restrict a, const stage_t *s, const V *x, V t, const V *lam)
{
    inputs_t at;
    inputs_at(&at, a->u, a->p, s->e, s->step);
    dynamics_contracted(c, x, at.u, t, at.p, lam, into(&a->at));
}

/* H += [S; 0 1; E]' F [S; 0 1; E] with F = (xx, ux, uu), the Hessian of lam' f at a stage; upper triangle only.  E: NULL for zero, without
   an offset.  With an offset, the dynamics are affine in the offset and the controls. */
static void add_field(curvature_t *restrict a, const V *restrict S, const V *restrict E)
{
    V *H = a->H;
    for (int j = 0; j < PANELS - 1; j++) quadratic_panel(&a->at, S, E, a->T, H, j * PANEL, PANEL);
    quadratic_panel(&a->at, S, E, a->T, H, (PANELS - 1) * PANEL, LAST_PANEL);
    for (int j = 0; j < MU; j++) {
        const V *row = a->T + (ND + j) * NW;
        for (int c = 0; c <= ND + j; c++) H[c * NW + ND + j] += row[c];
        for (int c = ND + j; c < NW; c++) H[(ND + j) * NW + c] += row[c];
        for (int i = 0; i <= j; i++) H[(ND + i) * NW + ND + j] += a->at.uu[i * ME + j];
    }
}

#ifdef LIE
/* H += Y' (M / 2 Y + N' Z) and its transpose, on the rows of the groups; M, N as blocks, M symmetric, N: NULL for zero; turned: use N for N' */
static void add_bend(const V *restrict M, const V *restrict N, const V *restrict Y, const V *restrict Z, int turned, V *restrict H)
{
    for (int g = 0; g < LIE_GROUPS; g++) {
        const int n = lie_size[g], at = lie_at[g];
        const V *m = M + lie_offset[g], *cross = N ? N + lie_offset[g] : NULL;
        V T[6 * NW];
        for (int i = 0; i < n; i++)
            for (int c = 0; c < NW; c++) {
                V s = ZERO;
                for (int k = 0; k < n; k++) s += 0.5 * m[i * n + k] * Y[(at + k) * NW + c];
                if (cross)
                    for (int k = 0; k < n; k++) s += cross[turned ? i * n + k : k * n + i] * Z[(at + k) * NW + c];
                T[i * NW + c] = s;
            }
        for (int r = 0; r < NW; r++)
            for (int i = 0; i < n; i++) {
                const V y = Y[(at + i) * NW + r], s = T[i * NW + r];
                for (int c = r; c < NW; c++) H[r * NW + c] += y * T[i * NW + c] + s * Y[(at + i) * NW + c];
            }
    }
}

/* to <- M' from, on the rows of the groups, M as blocks; to <- from on other rows */
static void blocks_adjoint(const V *restrict M, const V *restrict from, V *restrict to)
{
    memcpy(to, from, sizeof(V) * ND);
    for (int g = 0; g < LIE_GROUPS; g++) {
        const int n = lie_size[g];
        for (int j = 0; j < n; j++) {
            V s = ZERO;
            for (int i = 0; i < n; i++) s += M[lie_offset[g] + i * n + j] * from[lie_at[g] + i];
            to[lie_at[g] + j] = s;
        }
    }
}
#endif

/* Multipliers of f at the stages from the multiplier of the increment, without the contributions of later stages. */
static void stage_multipliers(V h, const V *restrict increment, V (*restrict slope)[ND])
{
#ifdef SEMI_IMPLICIT
    for (int i = 0; i < NV; i++) {
        slope[0][i] = h * increment[i];
        slope[0][NV + i] = h * (slope[0][i] + increment[NV + i]);
    }
#else
    for (int s = 0; s < STAGES; s++)
        for (int i = 0; i < ND; i++) slope[s][i] = B_[s] * h * increment[i];
#endif
}

/* Adjoint sweep through one substep: adds its curvature to H, and replaces lam, the multiplier at its end, by that at its start.
   phi: multipliers of the forces at its start. */
static void back(ctx_t c, curvature_t *restrict a, const substep_t *restrict b, V t, V h, const V *phi)
{
    V slope[STAGES][ND], increment[ND], start[ND];
#ifdef LIE
    V first[LIE_ROOM], second[LIE_ROOM], at_f[ND], more[ND];
    manifold_integrate_bend(b->delta, a->lam, first, second);
    add_bend(second, first, a->columns[STAGES].D, b->G, 0, a->H);
    blocks_adjoint(b->dexp, a->lam, increment);
    blocks_adjoint(b->transport, a->lam, start);
#else
    memcpy(increment, a->lam, sizeof increment);
    memcpy(start, a->lam, sizeof start);
#endif
    stage_multipliers(h, increment, slope);
    for (int s = STAGES - 1; s >= 0; s--) {
        const stage_t *stage = b->stage + s;
        const columns_t *columns = a->columns + s;
        V *l = slope[s], at[ND], at_offset[NE + 1];
#ifdef LIE
        if (s) {
            manifold_dexp_inv_bend(stage->delta, stage->f, l, first, second);
            add_bend(second, first, columns->D, columns->K, 1, a->H);
            memset(more, 0, sizeof more);
            blocks_adjoint(stage->along, l, more);
            blocks_adjoint(stage->inverse, l, at_f);
            l = at_f;
        }
#endif
#ifdef SEMI_IMPLICIT
        const V time = t;
#else
        const V time = t + C_[s] * h;
#endif
        c.phi = s ? NULL : phi;
        contracted_at(c, a, stage, stage->at, time, l);
        add_field(a, columns->S, NE && s ? columns->E : NULL);
        for (int j = 0; j < ND; j++) at[j] = j < NF ? ZERO : l[j - NF];
        if (NF == ND)
            for (int j = 0; j < ND; j++) at[j] = ZERO;
        for (int j = 0; j < NE; j++) at_offset[j] = ZERO;
        slopes_adjoint(stage, l + ND - NF, at, at_offset);
#ifdef LIE
        if (s) {
            V through[ND], on[ND];
            manifold_integrate_bend(stage->delta, at, first, second);
            add_bend(second, first, columns->D, b->G, 0, a->H);
            blocks_adjoint(stage->dexp, at, through);
            blocks_adjoint(stage->transport, at, on);
            for (int i = 0; i < ND; i++) increment[i] = through[i], at[i] = on[i];
            for (int g = 0; g < LIE_GROUPS; g++)
                for (int i = lie_at[g]; i < lie_at[g] + lie_size[g]; i++) increment[i] += more[i];
        }
#else
        memcpy(increment, at, sizeof at);
#endif
#ifndef SEMI_IMPLICIT
        for (int j = 0; j < s; j++)
            if (A_[s][j] != 0.0)
                for (int i = 0; i < ND; i++) slope[j][i] += A_[s][j] * h * increment[i];
#endif
#if NE
        for (int i = 0; i < NE; i++)
            for (int j = 0; j < s; j++) slope[j][NV + i] += (AI_[s][j] - A_[s][j]) * h * at_offset[i];
#endif
        for (int i = 0; i < ND; i++) start[i] += at[i];
    }
    memcpy(a->lam, start, sizeof start);
}

static void columns_of(const substep_t *b, V h, int fresh, V *restrict G, columns_t *restrict kept)
{
    const V *T = NULL, *E = NULL;
#ifdef LIE
    T = b->transport, E = b->dexp;
#endif
    all_through((passage_t){b->stage, T, E, h, fresh}, G, kept);
}

/* Forward sweep over the substeps: x becomes x_next and G its derivative; b stores the stages, the sensitivities at their start, and the
   forces of the first substep.  last: if not NULL, receives the columns of the last substep. */
static void forward(ctx_t c, start_t at, substep_t *restrict b, V *restrict x, V *restrict G, columns_t *last)
{
    const V h = STEP_LENGTH(at.dt) / (double)at.substeps;
    V from[NX];
    memcpy(x, at.x, sizeof from);
    if (FORCES_ROOM) c.forces = b->forces;
    for (int i = 0; i < ND; i++)
        for (int j = 0; j < NW; j++) G[i * NW + j] = splat(i == j);
    for (int s = 0; s < at.substeps; s++) {
        memcpy(b[s].G, G, sizeof b[s].G);
        memcpy(from, x, sizeof from);
        increment(c, from, at.u, at.t + (double)s * h, h, at.p, b[s].stage, b[s].delta);
        c.forces = NULL;
#ifdef LIE
        manifold_transport(b[s].delta, b[s].transport);
        manifold_dexp(b[s].delta, b[s].dexp);
#endif
        columns_of(b + s, h, s == 0, G, s == at.substeps - 1 ? last : NULL);
        manifold_integrate(from, b[s].delta, x);
    }
}

/* Adjoint sweep over the substeps: adds the Hessian of lam' x_next to a->H; a->columns: those of the last substep. */
static void backward(ctx_t c, int substeps, V t, V h, const substep_t *restrict b, curvature_t *restrict a)
{
    for (int s = substeps - 1; s >= 0; s--) {
        if (s < substeps - 1) {
            memcpy(a->G, b[s].G, sizeof a->G);
            columns_of(b + s, h, s == 0, a->G, a->columns);
        }
        back(c, a, b + s, t + (double)s * h, h, s ? NULL : c.phi);
    }
}

/* f, its derivatives and the Hessian of lam' x_next for a step AT_ONE_POINT, whose Hessian is that of the multiplier of f times f. */
static void contracted_once(ctx_t c, start_t at, const V *lam, contracted_t *to)
{
    const V h = STEP_LENGTH(at.dt);
    V slope[STAGES][ND];
    inputs_t own;
    stage_multipliers(h, lam, slope);
    inputs_at(&own, at.u, at.p, NULL, SHARE(0) * h);
    dynamics_contracted(c, at.x, own.u, at.t, own.p, slope[0], into(to));
}

/* Add the Hessian of lam' (x_next (-) node) + phi' forces, for a->lam and the phi of c, to a->H, which must be 0.  Call forward() to a->x,
   a->G and a->columns before. */
static void contract_back(ctx_t c, start_t at, const V *node, const substep_t *b, curvature_t *restrict a)
{
    const V h = STEP_LENGTH(at.dt) / (double)at.substeps;
    memcpy(a->u, at.u, sizeof(V) * MU);
    memcpy(a->p, at.p, sizeof(V) * NP);
#ifdef LIE
    V d[ND], inverse[LIE_ROOM], bend[LIE_ROOM], lam[ND];
    manifold_difference(node, a->x, d);
    manifold_difference_bend(d, a->lam, bend);
    add_bend(bend, NULL, a->G, NULL, 0, a->H);
    manifold_dexp_inv(d, inverse);
    memcpy(lam, a->lam, sizeof lam);
    blocks_adjoint(inverse, lam, a->lam);
#else
    (void)node;
#endif
    backward(c, at.substeps, at.t, h, b, a);
}

/* a->H <- the Hessian of lam' (x_next (-) node) + phi' forces, for a->lam and the phi of c.  kept: substeps stored by forward() at the same
   point; NULL: compute them first, in `own`. */
static void contract(ctx_t c, start_t at, const V *node, const substep_t *kept, substep_t *restrict own, curvature_t *restrict a)
{
    const int substeps = at.substeps;
    const V h = STEP_LENGTH(at.dt) / (double)substeps;
    memset(a->H, 0, sizeof a->H);
#if AT_ONE_POINT
    if (substeps == 1) {
        contracted_once(c, at, a->lam, &a->at);
        for (int i = 0; i < ND; i++)
            for (int j = i; j < ND; j++) a->H[i * NW + j] = a->at.xx[i * ND + j];
        for (int j = 0; j < MU; j++) {
            for (int i = 0; i < ND; i++) a->H[i * NW + ND + j] = a->at.ux[j * ND + i];
            for (int i = 0; i <= j; i++) a->H[(ND + i) * NW + ND + j] = a->at.uu[i * ME + j];
        }
        return;
    }
#endif
    if (kept) {
        const substep_t *last = kept + substeps - 1;
        memcpy(a->G, last->G, sizeof a->G);
        columns_of(last, h, substeps == 1, a->G, a->columns);
        manifold_integrate(last->stage[0].at, last->delta, a->x);
    } else {
        forward(c, at, own, a->x, a->G, a->columns);
    }
    contract_back(c, at, node, kept ? kept : own, a);
}
