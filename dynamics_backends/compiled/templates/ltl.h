/* M = L' D L along the branches of a tree, and M x = b; the twin of rigid_body/ltl.py (Featherstone, RBDA 6.5).
   `up` is the parent of each degree of freedom in the tree expanded to single ones, -1 at a root; `end` is one past the last
   degree of freedom of its subtree (numbering is depth first).  A factor is L (n x n, rows below the diagonal) and 1/D (n). */

static void ltl_factor(int n, const int *restrict up, const V *restrict M, V *restrict factor)
{
    V *L = factor, *D = factor + (long)n * n;
    for (int i = 0; i < n; i++)
        for (int j = i; j >= 0; j = up[j]) L[i * n + j] = M[i * n + j];
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

#define UNROLL _Pragma("GCC unroll 8")

#define TILE 6

/* w columns of x (n x m) <- sign M^-1 b, held in registers: L'y = b from the leaves, then D and L from the root.  The subtree of
   degree of freedom i is the range i + 1 .. end[i], so both sweeps are plain dot products.  Rows k with skip[k] are known to be
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

/* C = P F, where P[i][k] is zero unless i and k lie on one path. */
static void path_product(int n, const int *restrict up, const int *restrict end, const V *restrict P, const V *restrict F, V *restrict C)
{
    for (int i = 0; i < n; i++) {
        int c = 0;
        for (; c < n; c += TILE) {
            const int w = n - c < TILE ? n - c : TILE;
            V sum[TILE];
            for (int j = 0; j < TILE; j++) sum[j] = (V){};
            for (int k = up[i]; k >= 0; k = up[k])
                for (int j = 0; j < w; j++) sum[j] += P[i * n + k] * F[k * n + c + j];
            for (int k = i; k < end[i]; k++)
                for (int j = 0; j < w; j++) sum[j] += P[i * n + k] * F[k * n + c + j];
            for (int j = 0; j < w; j++) C[i * n + c + j] = sum[j];
        }
    }
}

/* L <- -(G + L + L') */
static void minus_symmetric_sum(int n, const V *restrict G, V *restrict L)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            const V s = L[i * n + j] + L[j * n + i];
            L[i * n + j] = -(G[i * n + j] + s);
            if (j < i) L[j * n + i] = -(G[j * n + i] + s);
        }
}
