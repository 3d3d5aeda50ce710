/* One time step of xdot = f(x, u, t, p): the counterpart of trajopt/step/integrators.py.  Include structure.h before this file.

   With implicit damping, the dynamics have one more parameter, the implicit step, and NE more controls, the offset of the damped velocity;
   AI is the tableau of damping.  Contact forces, if requested in ctx, are those at x_0. */

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

/* A stage before its sensitivities: its state, the increment to it, f and its derivatives, with sparse rows packed; on groups also the
   derivatives of x (+) delta in x (transport) and in delta (dexp), dexp^-1(delta), and the derivative of dexp^-1(delta) f in delta, as blocks. */
typedef struct {
    V *at, *delta, *f, *fx, *fu, *e, *step, *transport, *dexp, *inverse, *along;
} stage_t;

ALWAYS_INLINE long slopes_size(const structure_t *S) { return FULL_ROWS * ND + FEW_ENTRIES; }

ALWAYS_INLINE long stage_size(const structure_t *S) { return NX + 2 * ND + slopes_size(S) + FULL_ROWS * ME + NE + 1 + 4 * LIE_ROOM; }

/* Stage in a workspace of stage_size vectors. */
ALWAYS_INLINE stage_t stage_at(const structure_t *S, V *w)
{
    stage_t s;
    s.at = carved(&w, NX), s.delta = carved(&w, ND), s.f = carved(&w, ND), s.fx = carved(&w, slopes_size(S));
    s.fu = carved(&w, FULL_ROWS * ME), s.e = carved(&w, NE), s.step = carved(&w, 1);
    s.transport = carved(&w, LIE_ROOM), s.dexp = carved(&w, LIE_ROOM), s.inverse = carved(&w, LIE_ROOM), s.along = carved(&w, LIE_ROOM);
    return s;
}

/* Start and duration of a time step. */
typedef struct {
    int substeps;
    const V *x, *u, *p;
    V t, dt;
} start_t;

/* u and p of the dynamics at a stage. */
typedef struct {
    const V *u, *p;
} inputs_t;

#define INPUTS_ROOM (S->implicit ? ME + NP + 2 : 1)

/* Inputs of the dynamics, extended by the offset and the implicit step if damping is implicit.  w: workspace of INPUTS_ROOM vectors. */
ALWAYS_INLINE inputs_t inputs_at(const structure_t *S, const V *u, const V *p, const V *e, V step, V *w)
{
    if (!S->implicit) return (inputs_t){u, p};
    V *controls = carved(&w, ME + 1), *values = carved(&w, NP + 1);
    copy(controls, u, MU);
    for (int i = 0; i < NE; i++) controls[MU + i] = e ? e[i] : ZERO;
    copy(values, p, NP);
    values[NP] = step;
    return (inputs_t){controls, values};
}

static void field(const structure_t *S, ctx_t c, const V *x, const V *u, V t, const V *p, const V *e, V step, V *restrict f)
{
    V memory[INPUTS_ROOM];
    const inputs_t at = inputs_at(S, u, p, e, step, memory);
    for (int i = 0; i < ND - NF; i++) f[i] = x[NX - NF + i];
    call(S->functions->dynamics_value, IN(x, at.u, &t, at.p), OUT(f + ND - NF, c.forces), c.w);
}

static void field_partials(const structure_t *S, ctx_t c, const V *x, const V *u, V t, const V *p, const V *e, V step, stage_t s)
{
    for (int i = 0; i < NE; i++) s.e[i] = e ? e[i] : ZERO;
    *s.step = step;
    V memory[INPUTS_ROOM];
    const inputs_t at = inputs_at(S, u, p, e, step, memory);
    for (int i = 0; i < ND - NF; i++) s.f[i] = x[NX - NF + i];
    call(S->functions->dynamics_partials, IN(x, at.u, &t, at.p), OUT(s.f + ND - NF, s.fx, s.fu, c.forces), c.w);
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

/* delta (ND): increment of a step of length h; if stages (workspaces of stage_size) is not NULL, it receives the stages with the derivatives
   of f. */
static void increment(const structure_t *S, ctx_t c, const V *x, const V *u, V t, V h, const V *p, V *stages, V *restrict delta)
{
    V k[STAGES * ND];
    if (stages) {
        const stage_t first = stage_at(S, stages);
        field_partials(S, c, x, u, t, p, NULL, SHARE(0) * h, first);
        copy(k, first.f, ND), copy(first.at, x, NX);
    } else field(S, c, x, u, t, p, NULL, SHARE(0) * h, k);
    c.forces = NULL;
    for (int s = 1; s < STAGES; s++) {
        V at[NX], offset[NE + 1], *slope = k + s * ND;
        const V *e = NULL;
        combined(S, S->A + s * STAGES, s, h, k, 0, ND, NULL, delta, 1);
        manifold_integrate(S, x, delta, at);
        if (NE) lagged(S, s, h, k, offset, 1), e = offset;
        if (!stages) {
            field(S, c, at, u, t + S->C[s] * h, p, e, SHARE(s) * h, slope);
            if (LIE_GROUPS) {
                V inverse[LIE_ROOM];
                manifold_dexp_inv(S, delta, inverse);
                blocks_times(S, inverse, slope, 1);
            }
            continue;
        }
        const stage_t stage = stage_at(S, stages + s * stage_size(S));
        field_partials(S, c, at, u, t + S->C[s] * h, p, e, SHARE(s) * h, stage);
        copy(slope, stage.f, ND), copy(stage.at, at, NX), copy(stage.delta, delta, ND);
        if (LIE_GROUPS) {
            manifold_dexp_inv(S, delta, stage.inverse);
            manifold_transport(S, delta, stage.transport);
            manifold_dexp(S, delta, stage.dexp);
            manifold_d_dexp_inv(S, delta, slope, stage.along);
            blocks_times(S, stage.inverse, slope, 1);
        }
    }
    increments(S, h, k, delta, 1);
}

static void step(const structure_t *S, ctx_t c, start_t at, V *restrict x)
{
    const V h = STEP_LENGTH(at.dt) / (double)at.substeps;
    V delta[ND], from[NX];
    copy(x, at.x, NX);
    for (int s = 0; s < at.substeps; s++) {
        increment(S, c, x, at.u, at.t + (double)s * h, h, at.p, NULL, delta);
        c.forces = NULL;
        copy(from, x, NX);
        manifold_integrate(S, from, delta, x);
    }
}
