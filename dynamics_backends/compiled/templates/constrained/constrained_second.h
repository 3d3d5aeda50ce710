/* Second derivatives of constrained motion, to stand behind constrained.h. */

typedef struct {
    V qa[CQA_SIZE], qf[CQF_SIZE];
} constrained_slopes_t;

/* T (CD x CC) = g_qy dy in w columns, from dy there */
ALWAYS_INLINE void constrained_slopes(
    const constrained_slopes_t *g, const V *restrict x, const V *restrict f, int first, V *restrict T, const int w)
{
    V sum[w];
    for (int i = 0; i < CD; i++) {
        UNROLL for (int c = 0; c < w; c++) sum[c] = ZERO;
        add_sparse_row(cqa_start, cqa_at, g->qa, i, x, sum, w);
        add_sparse_row(cqf_start, cqf_at, g->qf, i, f, sum, w);
        UNROLL for (int c = 0; c < w; c++) T[i * CC + first + c] = sum[c];
    }
}

/* The same as constrained_panel, and T in these columns */
ALWAYS_INLINE void constrained_panel_second(
    const constrained_factor_t *k, const constrained_slopes_t *g, const V *top, const V *bottom, int first, V *fx, V *fu, V *restrict T,
    const int w)
{
    V x[CD * w], f[CR * w];
    constrained_columns(k, top, bottom, first, x, f, w);
    store_constrained(x, first, fx, fu, w);
    constrained_slopes(g, x, f, first, T, w);
}

/* What the solution's own dependence adds to xx, which holds g's second derivatives; ux and uu. */
static void constrained_curvature(const V *restrict T, V *xx, V *ux, V *uu)
{
    enum { n = CD, ndx = 2 * CD, nu = CC - 2 * CD };
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            const V cross = T[i * CC + n + j];
            xx[i * ndx + j] += T[i * CC + j] + T[j * CC + i];
            xx[i * ndx + n + j] += cross;
            xx[(n + j) * ndx + i] += cross;
        }
    for (int j = 0; j < nu; j++)
        for (int i = 0; i < n; i++) {
            ux[j * ndx + i] = T[i * CC + ndx + j];
            ux[j * ndx + n + i] = ZERO;
        }
    for (int i = 0; i < nu * nu; i++) uu[i] = ZERO;
}

/* fx and fu, and the second derivatives. */
static void constrained_second(
    const constrained_factor_t *k, const constrained_slopes_t *g, const V *top, const V *bottom, V *fx, V *fu, V *restrict T, V *xx,
    V *ux, V *uu)
{
    for (int j = 0; j < CPANELS - 1; j++) constrained_panel_second(k, g, top, bottom, j * CPANEL, fx, fu, T, CPANEL);
    constrained_panel_second(k, g, top, bottom, (CPANELS - 1) * CPANEL, fx, fu, T, CLAST);
    constrained_curvature(T, xx, ux, uu);
}
