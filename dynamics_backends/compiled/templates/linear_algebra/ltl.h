/* Factorization M = L' D L along the branches of a tree, and solution of M x = b (Featherstone, RBDA 6.5). Python version:
   dynamics_backends/rigid_body/algorithms/ltl.py.
   `up` is the parent of each degree of freedom in the tree expanded to single ones, -1 at a root; `end` is one past the last
   degree of freedom of its subtree. With depth-first numbering the subtree is the whole range; otherwise the range contains
   other degrees of freedom, at which L is zero. A factor is L (n x n, rows below the diagonal) and 1/D (n). */
#pragma once
#include "../lanes/prelude.h"

/* Branches of a tree with n degrees of freedom. */
typedef struct { int n; const int *up, *end; } branches_t;
/* First derivatives of forward dynamics in q, v and tau. */
typedef struct { const V *q, *v, *tau; } forward_first_t;
/* Second derivatives of forward dynamics. */
typedef struct { V *qq, *vv, *qv, *qtau; } forward_second_t;

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

/* x <- M^-1 b, whose elimination accompanies the factorization; overwrites the lower triangle of M. */
static void ltl_solve_once(int n, const int *restrict up, V *restrict M, const V *restrict b, V *restrict x)
{
    V inverse[n];
    memcpy(x, b, sizeof(V) * n);
    for (int k = n - 1; k >= 0; k--) {
        const V *row = M + k * n, own = x[k];
        inverse[k] = 1.0 / row[k];
        for (int i = up[k]; i >= 0; i = up[i]) {
            const V a = row[i] * inverse[k];
            x[i] -= a * own;
            for (int j = i; j >= 0; j = up[j]) M[i * n + j] -= a * row[j];
        }
    }
    for (int k = 0; k < n; k++) {
        V sum = x[k];
        for (int i = up[k]; i >= 0; i = up[i]) sum -= M[k * n + i] * x[i];
        x[k] = sum * inverse[k];
    }
}

/* Zero a few vectors inline: compilers turn a plain loop into a call of memset, which would cost more. */
static inline void clear(V *x, long n)
{
    for (volatile V *at = x; at < x + n; at++) *at = ZERO;
}

/* Zero the entries of a matrix whose row and column lie on no common path; gaps: number of runs of entries, then begin and length
   of each run. */
static void clear_gaps(const int *restrict gaps, V *M)
{
    for (int i = 0; i < gaps[0]; i++) clear(M + gaps[1 + 2 * i], gaps[2 + 2 * i]);
}

#define TILE 6

/* w columns of x (n x m) <- sign M^-1 b, in registers: L'y = b from the leaves, then D and L from the root. The subtree of
   degree of freedom i lies in the range i + 1 .. end[i], so both sweeps are plain dot products. Rows k with skip[k] are zero in
   these columns until the second sweep. */
static inline __attribute__((always_inline)) void ltl_solve_columns(
    branches_t tree, const V *restrict factor, const V *b, V *x, int m, double sign, const char *restrict skip, const int w)
{
    const int n = tree.n, *restrict up = tree.up, *restrict end = tree.end;
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

/* Mark rows that vanish in the columns c .. c + w of a matrix with the branches' sparsity: no column is above, at or below the
   row. */
static void vanishing_rows(branches_t tree, int c, int w, char *restrict skip)
{
    const int n = tree.n, *restrict up = tree.up, *restrict end = tree.end;
    char above[n]; /* 1 if the columns contain an ancestor */
    for (int k = 0; k < n; k++) {
        above[k] = up[k] >= 0 && ((up[k] >= c && up[k] < c + w) || above[up[k]]);
        skip[k] = !(above[k] || (c < end[k] && k < c + w));
    }
}

/* x (n x m) <- sign M^-1 b; x and b may be the same.  sparse: b has the sparsity of M. */
static void ltl_solve(branches_t tree, const V *factor, const V *b, V *x, int m, double sign, int sparse)
{
    char skip[tree.n];
    memset(skip, 0, tree.n);
    for (int c = 0; c < m;) {
        const int w = c + TILE <= m ? TILE : c + 2 <= m ? 2 : 1;
        if (sparse) vanishing_rows(tree, c, w, skip);
        if (w == TILE) ltl_solve_columns(tree, factor, b + c, x + c, m, sign, skip, TILE);
        else if (w == 2) ltl_solve_columns(tree, factor, b + c, x + c, m, sign, skip, 2);
        else ltl_solve_columns(tree, factor, b + c, x + c, m, sign, skip, 1);
        c += w;
    }
}

/* X <- M^-1, column by column of the lower triangle: column c of L'^-1 ends at c, and X is symmetric. */
static void ltl_inverse(branches_t tree, const V *restrict factor, V *restrict X)
{
    const int n = tree.n, *restrict up = tree.up, *restrict end = tree.end;
    const V *L = factor, *D = factor + (long)n * n;
    memset(X, 0, sizeof(V) * n * n);
    for (int k = 0; k < n; k++) X[k * n + k] = splat(1.0);
    for (int k = n - 1; k >= 0; k--)
        for (int i = up[k]; i >= 0; i = up[i]) {
            V l = L[k * n + i];
            for (int c = k; c < end[k]; c++) X[i * n + c] -= l * X[k * n + c];
        }
    for (int k = 0; k < n; k++) { /* each row from its diagonal, then its mirror image */
        for (int c = k; c < n; c++) X[k * n + c] *= D[k];
        for (int i = up[k]; i >= 0; i = up[i]) {
            V l = L[k * n + i];
            for (int c = k; c < n; c++) X[k * n + c] -= l * X[i * n + c];
        }
        for (int c = k + 1; c < n; c++) X[c * n + k] = X[k * n + c];
    }
}

/* Row of a product whose sums run over the degrees of freedom on one path with `deep`; see path_product. */
typedef struct { int row, deep; } product_row_t;

#if LANES == 8
#define TILE_ROWS 4 /* with TILE columns they fill the vector registers */
#else
#define TILE_ROWS 2
#endif

/* Product G + P F, or a part of it: out[i][c] <- G[i][c] + sum_k P[across i + down k] F[k][c]; G may be NULL or out.
   mirrored: out and its transpose += P F. */
typedef struct { const V *P; long across, down; const V *F, *G; V *out; int mirrored; } product_t;

/* Tile of h rows and w columns from column c, in registers, with sums over `support`. */
static inline __attribute__((always_inline)) void product_tile(
    int n, const product_t *t, const int *restrict support, int count, const product_row_t *rows, int c, const int h, const int w)
{
    V sum[TILE_ROWS][TILE];
    const V *p[TILE_ROWS], *F = t->F + c, *G = t->G;
    V *out = t->out;
    const long down = t->down;
    const int mirrored = t->mirrored;
    UNROLL for (int r = 0; r < h; r++) {
        const long row = rows[r].row;
        p[r] = t->P + t->across * row;
        UNROLL for (int j = 0; j < w; j++) sum[r][j] = G ? G[row * n + c + j] : ZERO;
    }
    for (int s = 0; s < count; s++) {
        const long k = support[s];
        UNROLL for (int r = 0; r < h; r++)
            UNROLL for (int j = 0; j < w; j++) sum[r][j] += p[r][down * k] * F[k * n + j];
    }
    UNROLL for (int r = 0; r < h; r++) {
        const long row = rows[r].row;
        V *at = out + row * n + c, *across = out + (long)c * n + row;
        if (mirrored)
            UNROLL for (int j = 0; j < w; j++) {
                at[j] += sum[r][j];
                across[j * n] += sum[r][j];
            }
        else
            UNROLL for (int j = 0; j < w; j++) at[j] = sum[r][j];
    }
}

/* Number of rows to compute next, so that the remaining rows are split evenly. */
static inline int tile_height(int left)
{
    const int tiles = (left + TILE_ROWS - 1) / TILE_ROWS;
    return (left + tiles - 1) / tiles;
}

/* All `height` rows, w columns from c. */
static inline __attribute__((always_inline)) void product_columns(
    int n, const product_t *t, const int *support, int count, const product_row_t *rows, int height, int c, const int w)
{
    for (int h; height > 0; rows += h, height -= h) {
        h = tile_height(height);
        if (h == 1) product_tile(n, t, support, count, rows, c, 1, w);
        else if (h == 2) product_tile(n, t, support, count, rows, c, 2, w);
#if TILE_ROWS == 4
        else if (h == 3) product_tile(n, t, support, count, rows, c, 3, w);
        else product_tile(n, t, support, count, rows, c, 4, w);
#endif
    }
}

/* All `height` rows, columns first <= c < last; a few columns of F at a time stay in the nearest cache for all rows. */
static void product(
    int n, const product_t *t, const int *support, int count, const product_row_t *rows, int height, int first, int last)
{
    int c = first;
    for (; c + TILE <= last; c += TILE) product_columns(n, t, support, count, rows, height, c, TILE);
    for (; c + 3 <= last; c += 3) product_columns(n, t, support, count, rows, height, c, 3);
    for (; c < last; c++) product_columns(n, t, support, count, rows, height, c, 1);
}

/* Product for `count` rows i and columns first <= c < last, summed over the k that lie on one path with the row's `deep`; P is
   zero elsewhere. */
static void path_product(branches_t tree, const product_row_t *rows, int count, const product_t *t, int first, int last)
{
    const int n = tree.n, *up = tree.up, *end = tree.end;
    while (count > 0) { /* rows of one branch: their sums run over nearly the same degrees of freedom */
        int h = 1, support[n], length = 0;
        char on_path[n];
        while (h < count && h < TILE_ROWS && rows[h].deep < end[rows[0].deep]) h++;
        memset(on_path, 0, n);
        for (int r = 0; r < h; r++) {
            const int deep = rows[r].deep;
            for (int k = up[deep]; k >= 0; k = up[k]) on_path[k] = 1;
            memset(on_path + deep, 1, end[deep] - deep);
        }
        for (int k = 0; k < n; k++)
            if (on_path[k]) support[length++] = k;
        product(n, t, support, length, rows, h, first, last);
        rows += h;
        count -= h;
    }
}

/* Product for the rows of all stretches and columns from c; stretches: see
   dynamics_backends/compiled/loops/kernel_data.py. */
static void product_along(int n, const int *restrict stretches, const product_t *t, int c)
{
    const int *at = stretches + 2;
    product_row_t rows[n];
    for (int i = 0; i < n; i++) rows[i].row = i;
    for (int s = 0; s < stretches[1]; s++) {
        const int first = at[0], last = at[1], count = at[2], *support = at + 3;
        product(n, t, support, count, rows + first, last - first, c, n);
        at = support + count;
    }
}

/* Second derivatives of lambda' FD (dynamics_backends/rigid_body/derivatives/fd_second_order.py) from those of mu' ID: on entry
   qq and qv hold G_qq and G_qv; vv, which is unchanged, holds the result. P[i][k] = d (M mu)_k / d q_i vanishes if the joint of i is attached to
   the world, or if i and k lie on no common path. For a free floating base (stretches[0] is the number of its DoFs, else 0) its
   rows and columns of qq, and the columns of qv of its translations, vanish outside its own block. */
static void fd_contraction(int n, const int *restrict dof_body, const int *restrict parent, const int *restrict stretches, const V *P,
                           forward_first_t a, forward_second_t to)
{
    const int free = stretches[0];
    for (int i = 0; i < n; i++)
        if (parent[dof_body[i]] < 0) clear(to.qtau + (long)i * n, n);
    for (int i = 0; i < free; i++) clear(to.qq + (long)i * n + free, n - free);
    for (int i = free; free && i < n; i++) {
        clear(to.qq + (long)i * n, free);
        clear(to.qv + (long)i * n, free / 2);
    }
    product_along(n, stretches, &(product_t){P, n, 1, a.q, 0, to.qq, 1}, free);
    product_along(n, stretches, &(product_t){P, n, 1, a.v, to.qv, to.qv, 0}, free / 2);
    product_along(n, stretches, &(product_t){P, n, 1, a.tau, 0, to.qtau, 0}, 0);
}
