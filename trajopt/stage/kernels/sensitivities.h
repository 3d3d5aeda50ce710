/* Sensitivities of a time step: the counterpart of trajopt/step/sensitivities.py.  Include step.h before this file.

   The derivatives of f at the stages of a step depend on the stage states only, and are computed first.  Then the sensitivities
   d x / d w, with w = (x_0, u) at the start of all substeps, are propagated through the whole step by panels of columns, in cache. */

/* K <- f_x S + [0 f_u] + f_e E in full rows i .. i + r and columns first .. first + w; E: NULL for zero */
ALWAYS_INLINE void slope_rows(
    const stage_t *restrict a, const V *restrict S, const V *restrict E, V *restrict K, int first, int i, const int r, const int w)
{
    V sum[r][w];
    UNROLL for (int j = 0; j < r; j++)
        UNROLL for (int c = 0; c < w; c++) sum[j][c] = first + c < ND ? ZERO : a->fu[(i + j) * ME + first + c - ND];
    if (E)
        for (int k = 0; k < NE; k++)
            UNROLL for (int j = 0; j < r; j++) {
                const V slope = a->fu[(i + j) * ME + MU + k];
                UNROLL for (int c = 0; c < w; c++) sum[j][c] += slope * E[k * w + c];
            }
    for (int k = 0; k < ND; k++)
        UNROLL for (int j = 0; j < r; j++) {
            const V slope = a->fx[(i + j) * ND + k];
            UNROLL for (int c = 0; c < w; c++) sum[j][c] += slope * S[k * w + c];
        }
    UNROLL for (int j = 0; j < r; j++)
        UNROLL for (int c = 0; c < w; c++) K[(ND - NF + FULL_ROW(i + j)) * w + c] = sum[j][c];
}

/* K <- f_x S in the sparse rows, which read few entries of the state and no controls. */
ALWAYS_INLINE void few_slopes(const stage_t *restrict a, const V *restrict S, V *restrict K, const int w)
{
#if FEW_ROWS
    const V *few = a->fx + FULL_ROWS * ND;
    for (int i = 0; i < FEW_ROWS; i++) {
        V sum[w];
        UNROLL for (int c = 0; c < w; c++) sum[c] = ZERO;
        for (int e = few_first[i]; e < few_first[i + 1]; e++)
            UNROLL for (int c = 0; c < w; c++) sum[c] += few[e] * S[few_column[e] * w + c];
        UNROLL for (int c = 0; c < w; c++) K[(ND - NF + few_row[i]) * w + c] = sum[c];
    }
#else
    (void)a, (void)S, (void)K;
#endif
}

/* K (ND x w) = f_x S + [0 f_u] + f_e E in columns first .. first + w; fresh: S is [1 0], E zero */
ALWAYS_INLINE void slopes(
    const stage_t *restrict a, const V *restrict S, const V *restrict E, V *restrict K, int fresh, int first, const int w)
{
    memcpy(K, S + NF * w, sizeof(V) * (ND - NF) * w); /* qdot = v */
    few_slopes(a, S, K, w);
    if (fresh) {
        for (int i = 0; i < FULL_ROWS; i++)
            for (int c = 0; c < w; c++)
                K[(ND - NF + FULL_ROW(i)) * w + c] = first + c < ND ? a->fx[i * ND + first + c] : a->fu[i * ME + first + c - ND];
        return;
    }
    int i = 0;
    for (; i + 3 <= FULL_ROWS; i += 3) slope_rows(a, S, E, K, first, i, 3, w);
    for (; i < FULL_ROWS; i++) slope_rows(a, S, E, K, first, i, 1, w);
}

/* S <- T G + E D in w columns, with D the derivative of the increment; T, E are identities outside of the groups */
ALWAYS_INLINE void moved(const V *T, const V *E, const V *restrict G, const V *restrict D, V *restrict S, const int w)
{
    for (int i = 0; i < ND * w; i++) S[i] = G[i] + D[i];
#ifdef LIE
    for (int g = 0; g < LIE_GROUPS; g++) memset(S + lie_at[g] * w, 0, sizeof(V) * lie_size[g] * w);
    add_blocks_times(T, G, S, w);
    add_blocks_times(E, D, S, w);
#else
    (void)T, (void)E;
#endif
}

#if STAGES > 1
/* Derivative S of the state at stage s, and on groups derivative D of the increment to that state. */
ALWAYS_INLINE void moved_to_stage(int s, const stage_t *restrict a, V h, const V *restrict P, const V *restrict K, V *restrict D, V *restrict S, const int w)
{
#ifdef LIE
    combined(A_[s], s, h, K, 0, ND, NULL, D, w);
    moved(a->transport, a->dexp, P, D, S, w);
#else
    (void)a, (void)D;
    combined(A_[s], s, h, K, 0, ND, P, S, w);
#endif
}
#endif

/* Derivatives in w: S of the state at a stage, D of the increment to it, K of f there (D and K on groups only), E of the offset. */
typedef struct {
    V S[ND * NW], D[ND * NW], K[ND * NW], E[NE * NW + 1];
} columns_t;

ALWAYS_INLINE void store_columns(const V *restrict from, V *restrict to, int first, const int w)
{
    for (int i = 0; i < ND; i++)
        for (int c = 0; c < w; c++) to[i * NW + first + c] = from[i * w + c];
}

ALWAYS_INLINE void store_groups(const V *restrict from, V *restrict to, int first, const int w)
{
#ifdef LIE
    for (int g = 0; g < LIE_GROUPS; g++)
        for (int i = lie_at[g]; i < lie_at[g] + lie_size[g]; i++)
            for (int c = 0; c < w; c++) to[i * NW + first + c] = from[i * w + c];
#else
    (void)from, (void)to, (void)first;
#endif
}

/* One step of length h: its stages, and the derivatives of x_next in x (T) and in the increment (E) as blocks; fresh: 1 for the first step. */
typedef struct {
    const stage_t *stage;
    const V *T, *E;
    V h;
    int fresh;
} passage_t;

/* Propagate columns first .. first + w of G (ND x NW) = d x / d w through one step; before a fresh step G is [1 0].  kept (STAGES + 1, the last
   for the whole increment): if not NULL, receives the derivatives of the stages. */
ALWAYS_INLINE void through_step(passage_t step, V *restrict G, columns_t *restrict kept, int first, const int w)
{
    const stage_t *stage = step.stage;
    const V *T = step.T, *E = step.E, h = step.h;
    const int fresh = step.fresh;
    V P[ND * PANEL], D[ND * PANEL], S[ND * PANEL], K[STAGES * ND * PANEL];
    for (int i = 0; i < ND; i++)
        for (int c = 0; c < w; c++) P[i * w + c] = fresh ? splat(i == first + c) : G[i * NW + first + c];
    slopes(stage, P, NULL, K, fresh, first, w);
    if (kept) store_columns(P, kept->S, first, w);
#if STAGES > 1
    for (int s = 1; s < STAGES; s++) {
        const stage_t *a = stage + s;
        moved_to_stage(s, a, h, P, K, D, S, w);
        const V *e = NULL;
#if NE
        V offset[NE * PANEL];
        lagged(s, h, K, offset, w);
        e = offset;
        if (kept)
            for (int i = 0; i < NE; i++)
                for (int j = 0; j < w; j++) kept[s].E[i * NW + first + j] = offset[i * w + j];
#endif
        slopes(a, S, e, K + s * ND * w, 0, first, w);
        if (kept) {
            store_columns(S, kept[s].S, first, w);
            store_groups(D, kept[s].D, first, w);
            store_groups(K + s * ND * w, kept[s].K, first, w);
        }
#ifdef LIE
        blocks_times(a->inverse, K + s * ND * w, w);
        add_blocks_times(a->along, D, K + s * ND * w, w);
#endif
    }
#endif
    increments(h, K, D, w);
    moved(T, E, P, D, S, w);
    if (kept) store_groups(D, kept[STAGES].D, first, w);
    store_columns(S, G, first, w);
}

/* Propagate all columns of G through one step. */
ALWAYS_INLINE void all_through(passage_t step, V *restrict G, columns_t *restrict kept)
{
    for (int j = 0; j < PANELS - 1; j++) through_step(step, G, kept, j * PANEL, PANEL);
    through_step(step, G, kept, (PANELS - 1) * PANEL, LAST_PANEL);
}

/* Add l' f_x to `to` (ND), and l' f_e to at_offset (NE), for multipliers l of the computed rows of f */
ALWAYS_INLINE void slopes_adjoint(const stage_t *restrict a, const V *restrict l, V *restrict to, V *restrict at_offset)
{
    for (int i = 0; i < FULL_ROWS; i++)
        for (int j = 0; j < ND; j++) to[j] += a->fx[i * ND + j] * l[FULL_ROW(i)];
#if FEW_ROWS
    for (int i = 0; i < FEW_ROWS; i++)
        for (int e = few_first[i]; e < few_first[i + 1]; e++) to[few_column[e]] += a->fx[FULL_ROWS * ND + e] * l[few_row[i]];
#endif
    for (int i = 0; i < FULL_ROWS; i++)
        for (int j = 0; j < NE; j++) at_offset[j] += a->fu[i * ME + MU + j] * l[FULL_ROW(i)];
}

/* 1 if a step of one substep is x + increment, with f and its derivatives evaluated at one point in a vector space. */
#if STAGES == 1 && !defined LIE
#define AT_ONE_POINT 1
#else
#define AT_ONE_POINT 0
#endif

#if AT_ONE_POINT && FEW_ROWS
#error "derivatives of a step at one point are not packed"
#endif

/* G of a step AT_ONE_POINT from fx and fu. */
static void sensitivities_at_once(V h, const V *restrict fx, const V *restrict fu, V *restrict G)
{
    SCRATCH V K[ND * NW];
    for (int i = 0; i < ND - NF; i++)
        for (int j = 0; j < NW; j++) K[i * NW + j] = splat(j == NF + i);
    for (int i = 0; i < NF; i++) {
        V *row = K + (ND - NF + i) * NW;
        for (int j = 0; j < ND; j++) row[j] = fx[i * ND + j];
        for (int j = 0; j < MU; j++) row[ND + j] = fu[i * ME + j];
    }
    increments(h, K, G, NW);
    for (int i = 0; i < ND; i++) G[i * NW + i] += 1.0;
}

/* x_next and its derivative G (ND x NW) in (x, u), chained over the substeps */
static void linearize(ctx_t c, start_t at, V *restrict x, V *restrict G)
{
    SCRATCH stage_t stage[STAGES];
    const V h = STEP_LENGTH(at.dt) / (double)at.substeps;
    V delta[ND], from[NX], *T = NULL, *E = NULL;
    memcpy(x, at.x, sizeof from);
    for (int s = 0; s < at.substeps; s++) {
        memcpy(from, x, sizeof from);
        increment(c, from, at.u, at.t + (double)s * h, h, at.p, stage, delta);
        c.forces = NULL;
        manifold_integrate(from, delta, x);
        if (AT_ONE_POINT && at.substeps == 1) {
            sensitivities_at_once(h, stage->fx, stage->fu, G);
            return;
        }
#ifdef LIE
        V transport[LIE_ROOM], dexp[LIE_ROOM];
        T = transport, E = dexp;
        manifold_transport(delta, T);
        manifold_dexp(delta, E);
#endif
        all_through((passage_t){stage, T, E, h, s == 0}, G, NULL);
    }
}
