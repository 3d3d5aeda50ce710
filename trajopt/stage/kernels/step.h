/* One time step of xdot = f(x, u, t, p): the counterpart of trajopt/step/integrators.py.

   Include a prelude (prelude.h, or scalar.h for one lane in plain C99) before this file, and define: NX, ND (sizes of a state and of a
   tangent vector); MU (controls of the dynamics); NF (computed rows of xdot: ND, or those below qdot = v); FEW_ROWS and its tables if
   derivatives of some rows are stored sparsely (dynamics_source.py); STAGES and the tableau A_, B_, C_ of a Runge-Kutta method, or
   SEMI_IMPLICIT; JUMP if f is a jump of the state; IMPLICIT if damping is implicit.  With IMPLICIT, the dynamics have one more parameter,
   the implicit step, and NE more controls, the offset of the damped velocity, and AI_ is the tableau of damping.  The functions of the
   manifold and of the dynamics are required too (dynamics_backends/compiled/sources/manifold_source.py, dynamics_source.py).

   Contact forces, if requested in ctx, are those at x_0. */

#ifndef IMPLICIT
#define NE 0
#endif
#if NE
#define NV NE /* the state may continue after q and v, for example with durations */
#else
#define NV (ND / 2)
#endif
#define ME (MU + NE) /* controls of the dynamics with the offset */
#define NW (ND + MU)
#if LANES == 8 || LANES == 1
#define WIDEST 8
#else
#define WIDEST 4
#endif
#define PANELS ((NW + WIDEST - 1) / WIDEST)
#define PANEL ((NW + PANELS - 1) / PANELS)
#define LAST_PANEL (NW - (PANELS - 1) * PANEL)

#ifdef FEW_ROWS
#define FULL_ROW(i) full_row[i]
#else
#define FEW_ROWS 0
#define FEW_ENTRIES 0
#define FULL_ROW(i) (i)
#endif
#define FULL_ROWS (NF - FEW_ROWS)

#ifdef SEMI_IMPLICIT
#define STAGES 1
#endif

/* A jump x (+) f is an Euler step of length one, whatever dt is. */
#ifdef JUMP
#define STEP_LENGTH(dt) splat(1.0)
#else
#define STEP_LENGTH(dt) (dt)
#endif

/* A stage before its sensitivities: its state, the increment to it, f and its derivatives, with sparse rows packed; on groups also the
   derivatives of x (+) delta in x (transport) and in delta (dexp), dexp^-1(delta), and the derivative of dexp^-1(delta) f in delta, as blocks. */
typedef struct {
    V at[NX], delta[ND], f[ND], fx[FULL_ROWS * ND + FEW_ENTRIES], fu[FULL_ROWS * ME + 1], e[NE + 1], step;
#ifdef LIE
    V transport[LIE_ROOM], dexp[LIE_ROOM], inverse[LIE_ROOM], along[LIE_ROOM];
#endif
} stage_t;

/* Start and duration of a time step. */
typedef struct {
    int substeps;
    const V *x, *u, *p;
    V t, dt;
} start_t;

/* u and p of the dynamics at a stage, extended by the offset and the implicit step if damping is implicit. */
typedef struct {
    const V *u, *p;
#ifdef IMPLICIT
    V controls[ME + 1], values[NP + 1];
#endif
} inputs_t;

ALWAYS_INLINE void inputs_at(inputs_t *at, const V *u, const V *p, const V *e, V step)
{
#ifdef IMPLICIT
    memcpy(at->controls, u, sizeof(V) * MU);
    for (int i = 0; i < NE; i++) at->controls[MU + i] = e ? e[i] : ZERO;
    memcpy(at->values, p, sizeof(V) * NP);
    at->values[NP] = step;
    at->u = at->controls, at->p = at->values;
#else
    at->u = u, at->p = p;
    (void)e, (void)step;
#endif
}

static void field(ctx_t c, const V *x, const V *u, V t, const V *p, const V *e, V step, V *restrict f)
{
    inputs_t at;
    inputs_at(&at, u, p, e, step);
    for (int i = 0; i < ND - NF; i++) f[i] = x[NX - NF + i];
    dynamics_value(c, x, at.u, t, at.p, f + ND - NF);
}

static void field_partials(ctx_t c, const V *x, const V *u, V t, const V *p, const V *e, V step, stage_t *restrict s)
{
    if (e) memcpy(s->e, e, sizeof(V) * NE);
    else for (int i = 0; i < NE; i++) s->e[i] = ZERO;
    s->step = step;
    inputs_t at;
    inputs_at(&at, u, p, e, step);
    for (int i = 0; i < ND - NF; i++) s->f[i] = x[NX - NF + i];
    dynamics_partials(c, x, at.u, t, at.p, s->f + ND - NF, s->fx, s->fu);
}

#ifdef LIE
/* y (ND x w) <- M y on the rows of the groups, M as blocks */
ALWAYS_INLINE void blocks_times(const V *restrict M, V *restrict y, const int w)
{
    for (int g = 0; g < LIE_GROUPS; g++) {
        const int n = lie_size[g];
        V *rows = y + lie_at[g] * w, sum[6];
        for (int c = 0; c < w; c++) {
            for (int i = 0; i < n; i++) {
                sum[i] = ZERO;
                for (int k = 0; k < n; k++) sum[i] += M[lie_offset[g] + i * n + k] * rows[k * w + c];
            }
            for (int i = 0; i < n; i++) rows[i * w + c] = sum[i];
        }
    }
}

/* y (ND x w) += M x on the rows of the groups, M as blocks */
ALWAYS_INLINE void add_blocks_times(const V *restrict M, const V *restrict x, V *restrict y, const int w)
{
    for (int g = 0; g < LIE_GROUPS; g++) {
        const int n = lie_size[g];
        for (int i = 0; i < n; i++)
            for (int k = 0; k < n; k++)
                for (int c = 0; c < w; c++)
                    y[(lie_at[g] + i) * w + c] += M[lie_offset[g] + i * n + k] * x[(lie_at[g] + k) * w + c];
    }
}
#endif

/* to (rows x w) <- from + h sum_j a[j] K[j], with rows first .. first + rows of each K[j]; from: NULL for zero */
ALWAYS_INLINE void combined(
    const double *a, int count, V h, const V *restrict K, int first, int rows, const V *restrict from, V *restrict to, const int w)
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
#if NE
ALWAYS_INLINE void lagged(int s, V h, const V *restrict K, V *restrict r, const int w)
{
    double a[STAGES];
    for (int j = 0; j < s; j++) a[j] = AI_[s][j] - A_[s][j];
    combined(a, s, h, K, NV, NE, NULL, r, w);
}
#endif

#ifdef SEMI_IMPLICIT
#define SHARE(s) 1.0
#elif defined IMPLICIT
#define SHARE(s) AI_[s][s]
#else
#define SHARE(s) 0.0
#endif

#ifdef SEMI_IMPLICIT
ALWAYS_INLINE void increments(V h, const V *restrict K, V *restrict D, const int w)
{
    for (int i = 0; i < NV; i++)
        for (int c = 0; c < w; c++) {
            D[(NV + i) * w + c] = h * K[(NV + i) * w + c];
            D[i * w + c] = h * (K[i * w + c] + D[(NV + i) * w + c]);
        }
}
#else
ALWAYS_INLINE void increments(V h, const V *restrict K, V *restrict D, const int w)
{
    combined(B_, STAGES, h, K, 0, ND, NULL, D, w);
}
#endif

/* delta (ND): increment of a step of length h; if stage is not NULL, it receives the stages with the derivatives of f. */
static void increment(ctx_t c, const V *x, const V *u, V t, V h, const V *p, stage_t *stage, V *restrict delta)
{
    V k[STAGES][ND];
    if (stage) field_partials(c, x, u, t, p, NULL, SHARE(0) * h, stage);
    else field(c, x, u, t, p, NULL, SHARE(0) * h, k[0]);
    if (stage) memcpy(k[0], stage->f, sizeof k[0]), memcpy(stage->at, x, sizeof stage->at);
#if STAGES > 1
    c.forces = NULL;
    V at[NX];
    for (int s = 1; s < STAGES; s++) {
        combined(A_[s], s, h, k[0], 0, ND, NULL, delta, 1);
        manifold_integrate(x, delta, at);
        const V *e = NULL;
#if NE
        V offset[NE];
        lagged(s, h, k[0], offset, 1);
        e = offset;
#endif
        if (stage) field_partials(c, at, u, t + C_[s] * h, p, e, SHARE(s) * h, stage + s);
        else field(c, at, u, t + C_[s] * h, p, e, SHARE(s) * h, k[s]);
        if (stage) {
            memcpy(k[s], stage[s].f, sizeof k[s]);
            memcpy(stage[s].at, at, sizeof at);
            memcpy(stage[s].delta, delta, sizeof stage->delta);
        }
#ifdef LIE
        V inverse[LIE_ROOM];
        manifold_dexp_inv(delta, inverse);
        if (stage) {
            memcpy(stage[s].inverse, inverse, sizeof inverse);
            manifold_transport(delta, stage[s].transport);
            manifold_dexp(delta, stage[s].dexp);
            manifold_d_dexp_inv(delta, k[s], stage[s].along);
        }
        blocks_times(inverse, k[s], 1);
#endif
    }
#endif
    increments(h, k[0], delta, 1);
}

static void step(ctx_t c, start_t at, V *restrict x)
{
    const V h = STEP_LENGTH(at.dt) / (double)at.substeps;
    V delta[ND], from[NX];
    memcpy(x, at.x, sizeof from);
    for (int s = 0; s < at.substeps; s++) {
        increment(c, x, at.u, at.t + (double)s * h, h, at.p, NULL, delta);
        c.forces = NULL;
        memcpy(from, x, sizeof from);
        manifold_integrate(from, delta, x);
    }
}
