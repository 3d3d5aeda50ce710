/* Second derivatives of constrained motion. Required before this text: constrained.h. */

typedef struct {
    V qa[CQA_SIZE], qf[CQF_SIZE];
} constrained_slopes_t;

/* T (CD x CC) <- g_qy dy in w columns, where dy is the derivative of the solution in these columns */
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

/* Same as constrained_panel, and T in these columns */
ALWAYS_INLINE void constrained_panel_second(
    constrained_sides_t s, const constrained_slopes_t *g, int first, V *restrict T, contraction_t to, const int w)
{
    V x[CD * w], f[CR * w];
    constrained_columns(s, first, x, f, w);
    store_constrained(x, first, to.fx, to.fu, w);
    constrained_slopes(g, x, f, first, T, w);
}

/* Add the terms of the solution's dependence on (q, v) to xx, which holds the second derivatives of g; write ux and uu. */
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

/* Solved rows of fx and fu, and the second derivatives; T (CD x CC): workspace. */
static void constrained_second(constrained_sides_t s, const constrained_slopes_t *g, V *restrict T, contraction_t to)
{
    for (int j = 0; j < CPANELS - 1; j++) constrained_panel_second(s, g, j * CPANEL, T, to, CPANEL);
    constrained_panel_second(s, g, (CPANELS - 1) * CPANEL, T, to, CLAST);
    constrained_curvature(T, to.xx, to.ux, to.uu);
}
