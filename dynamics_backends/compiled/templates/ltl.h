/* M = L' D L along the branches of a tree, and M x = b; the twin of rigid_body/ltl.py (Featherstone, RBDA 6.5).
   `up` is the parent of each degree of freedom in the tree expanded to single ones, -1 at a root; `end` is one past the last
   degree of freedom of its subtree, which is the range up to there where numbering is depth first; elsewhere others lie between,
   where L is zero.  A factor is L (n x n, rows below the diagonal) and 1/D (n). */

static void ltl_factor(int n, const int *restrict up, const V *restrict M, V *restrict factor)
{
    V *L = factor, *D = factor + (long)n * n;
    for (int i = 0; i < n; i++)
        for (int j = i; j >= 0; j = up[j]) {
            L[i * n + j] = M[i * n + j];
            for (int between = j - 1; between > up[j]; between--) L[i * n + between] = ZERO;
        }
    for (int k = n - 1; k >= 0; k--) {
        V inverse = 1.0 / L[k * n + k];
        D[k] = inverse;
        for (int i = up[k]; i >= 0; i = up[i]) {
            V a = L[k * n + i] * inverse;
            for (int j = i; j >= 0; j = up[j]) L[i * n + j] -= a * L[k * n + j];
        }
        for (int i = up[k]; i >= 0; i = up[i]) L[k * n + i] *= inverse;
    }
}

#define TILE 6

/* w columns of x (n x m) <- sign M^-1 b, held in registers: L'y = b from the leaves, then D and L from the root.  The subtree of
   degree of freedom i lies in the range i + 1 .. end[i], so both sweeps are plain dot products.  Rows k with skip[k] are known to be
   zero in these columns until the second sweep. */
static inline __attribute__((always_inline)) void ltl_solve_columns(
    int n, const int *restrict up, const int *restrict end, const V *restrict factor, const V *b, V *x, int m, double sign,
    const char *restrict skip, const int w)
{
    const V *L = factor, *D = factor + (long)n * n;
    for (int i = n - 1; i >= 0; i--) {
        V sum[w];
        UNROLL for (int c = 0; c < w; c++) sum[c] = sign * b[i * m + c];
        for (int k = i + 1; k < end[i]; k++) {
            if (skip[k]) continue;
            UNROLL for (int c = 0; c < w; c++) sum[c] -= L[k * n + i] * x[k * m + c];
        }
        UNROLL for (int c = 0; c < w; c++) x[i * m + c] = sum[c];
    }
    for (int k = 0; k < n; k++) {
        V sum[w];
        UNROLL for (int c = 0; c < w; c++) sum[c] = x[k * m + c] * D[k];
        for (int i = up[k]; i >= 0; i = up[i])
            UNROLL for (int c = 0; c < w; c++) sum[c] -= L[k * n + i] * x[i * m + c];
        UNROLL for (int c = 0; c < w; c++) x[k * m + c] = sum[c];
    }
}

/* Rows of a matrix with the branches' sparsity that vanish in the columns c .. c + w: no column is above, at or below the row. */
static void vanishing_rows(int n, const int *restrict up, const int *restrict end, int c, int w, char *restrict skip)
{
    char above[n]; /* whether the columns hold an ancestor */
    for (int k = 0; k < n; k++) {
        above[k] = up[k] >= 0 && ((up[k] >= c && up[k] < c + w) || above[up[k]]);
        skip[k] = !(above[k] || (c < end[k] && k < c + w));
    }
}

/* x (n x m) <- sign M^-1 b; x and b may be the same.  branches: b has the sparsity of M. */
static void ltl_solve(
    int n, const int *up, const int *end, const V *factor, const V *b, V *x, int m, double sign, int branches)
{
    char skip[n];
    memset(skip, 0, n);
    for (int c = 0; c < m;) {
        const int w = c + TILE <= m ? TILE : c + 2 <= m ? 2 : 1;
        if (branches) vanishing_rows(n, up, end, c, w, skip);
        if (w == TILE) ltl_solve_columns(n, up, end, factor, b + c, x + c, m, sign, skip, TILE);
        else if (w == 2) ltl_solve_columns(n, up, end, factor, b + c, x + c, m, sign, skip, 2);
        else ltl_solve_columns(n, up, end, factor, b + c, x + c, m, sign, skip, 1);
        c += w;
    }
}

/* X <- M^-1, column by column of the lower triangle: column c of L'^-1 ends at c, and X is symmetric. */
static void ltl_inverse(int n, const int *restrict up, const int *restrict end, const V *restrict factor, V *restrict X)
{
    const V *L = factor, *D = factor + (long)n * n;
    memset(X, 0, sizeof(V) * n * n);
    for (int k = 0; k < n; k++) X[k * n + k] = splat(1.0);
    for (int k = n - 1; k >= 0; k--)
        for (int i = up[k]; i >= 0; i = up[i]) {
            V l = L[k * n + i];
            for (int c = k; c < end[k]; c++) X[i * n + c] -= l * X[k * n + c];
        }
    for (int k = 0; k < n; k++) { /* each row from its diagonal on, then the mirror */
        for (int c = k; c < n; c++) X[k * n + c] *= D[k];
        for (int i = up[k]; i >= 0; i = up[i]) {
            V l = L[k * n + i];
            for (int c = k; c < n; c++) X[k * n + c] -= l * X[i * n + c];
        }
        for (int c = k + 1; c < n; c++) X[c * n + k] = X[k * n + c];
    }
}

/* w columns of one row of -(G + P F), held in registers; see path_row. */
static inline __attribute__((always_inline)) void path_sum(
    int n, const int *restrict up, int i, int last, const V *restrict p, long stride, const V *restrict F, const V *restrict G,
    V *restrict out, const int w)
{
    V sum[w];
    UNROLL for (int c = 0; c < w; c++) sum[c] = G ? -G[c] : ZERO;
    for (int k = up[i]; k >= 0; k = up[k])
        UNROLL for (int c = 0; c < w; c++) sum[c] -= p[stride * k] * F[(long)k * n + c];
    for (int k = i; k < last; k++)
        UNROLL for (int c = 0; c < w; c++) sum[c] -= p[stride * k] * F[(long)k * n + c];
    UNROLL for (int c = 0; c < w; c++) out[c] = sum[c];
}

/* out[c] <- -(G[c] + sum_k p[stride k] F[k][c]) for c < m, over the k that lie on one path with i; without G where it is null. */
static void path_row(
    int n, const int *up, const int *end, int i, const V *p, long stride, const V *F, int m, const V *G, V *out)
{
    int c = 0;
    for (; c + TILE <= m; c += TILE) path_sum(n, up, i, end[i], p, stride, F + c, G ? G + c : 0, out + c, TILE);
    for (; c + 2 <= m; c += 2) path_sum(n, up, i, end[i], p, stride, F + c, G ? G + c : 0, out + c, 2);
    for (; c < m; c++) path_sum(n, up, i, end[i], p, stride, F + c, G ? G + c : 0, out + c, 1);
}

/* out[c] <- -G[c] for c < m, or zero without G. */
static inline void negative(int m, const V *restrict G, V *restrict out)
{
    for (int c = 0; c < m; c++) out[c] = G ? -G[c] : ZERO;
}

/* L <- -(G + P F) with P[i][k] = d (M mu)_k / d q_i, zero unless i and k lie on one path, and where the joint of i hangs from the
   world; G may be null. */
static void minus_path_product(
    int n, const int *up, const int *end, const int *dof_body, const int *parent, const V *P, const V *F, const V *G, V *L)
{
    for (long i = 0; i < n; i++) {
        const V *row = G ? G + i * n : 0;
        if (parent[dof_body[i]] < 0) negative(n, row, L + i * n);
        else path_row(n, up, end, i, P + i * n, 1, F, n, row, L + i * n);
    }
}

/* L <- L + L' - G */
static void symmetric_sum(int n, const V *restrict G, V *restrict L)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            const V s = L[i * n + j] + L[j * n + i];
            L[i * n + j] = s - G[i * n + j];
            if (j < i) L[j * n + i] = s - G[j * n + i];
        }
}
