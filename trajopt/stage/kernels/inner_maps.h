/* Contribution of a function of y to the expansion of the cost: J' g and J' H J with J (rows x columns) = dy/d(x, u), whose columns are ndx
   for the state, then those of the first controls; g (rows), H (rows x rows), symmetric.  Products are computed by panels of columns in
   registers; of symmetric blocks only the lower half, which is then copied to the upper one. */
#pragma once
#include "knots.h"

#define INNER_PANEL 6

/* to (w) += a' B: a (rows) with stride `step`, B (rows x w) with row stride `columns` */
ALWAYS_INLINE void inner_panel(
    const int rows, const int columns, const V *restrict a, int step, const V *restrict B, V *restrict to, const int w)
{
    V sum[w];
    UNROLL for (int c = 0; c < w; c++) sum[c] = to[c];
    for (int r = 0; r < rows; r++) {
        const V x = a[r * step], *b = B + r * columns;
        UNROLL for (int c = 0; c < w; c++) sum[c] += x * b[c];
    }
    UNROLL for (int c = 0; c < w; c++) to[c] = sum[c];
}

/* inner_panel for n columns, in panels up to the one that contains column `last` */
ALWAYS_INLINE void inner_row(
    const int rows, const int columns, const V *restrict a, int step, const V *restrict B, V *restrict to, const int n, int last)
{
    const int panels = (n + INNER_PANEL - 1) / INNER_PANEL, width = panels ? (n + panels - 1) / panels : 0;
    for (int p = 0; p < panels - 1 && p * width <= last; p++)
        inner_panel(rows, columns, a, step, B + p * width, to + p * width, width);
    const int end = (panels - 1) * width;
    if (panels && end <= last) inner_panel(rows, columns, a, step, B + end, to + end, n - end);
}

/* Copy the lower half of A (n x n) to the upper one. */
ALWAYS_INLINE void inner_mirror(const int n, V *A, const int apart)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) A[j * apart + i] = A[i * apart + j];
}

/* Inner map y (rows) of x (ndx) and of the first columns - ndx of nu controls: gradient g and Hessian H of its terms in y, and
   J = dy/d(x, u). */
typedef struct { int rows, columns, ndx, nu; const V *g, *H, *J; } inner_t;
/* Gradient and Hessian of a sum of terms. */
typedef struct { V *lx, *lu, *lxx, *lux, *luu; } expanded_t;

/* Add J' g and J' H J to the gradient and the Hessian; T: workspace of rows x columns vectors. */
ALWAYS_INLINE void add_inner(const inner_t y, const expanded_t to, V *restrict T)
{
    const int rows = y.rows, columns = y.columns, ndx = y.ndx, nu = y.nu, own = columns - ndx;
    const V *g = y.g, *H = y.H, *restrict J = y.J;
    V *lx = to.lx, *lu = to.lu, *lxx = to.lxx, *lux = to.lux, *luu = to.luu;
    const V *J_u = J + ndx, *T_u = T + ndx;
    inner_row(rows, columns, g, 1, J, lx, ndx, ndx);
    inner_row(rows, columns, g, 1, J_u, lu, own, own);
    memset(T, 0, sizeof(V) * rows * columns);
    for (int r = 0; r < rows; r++) inner_row(rows, columns, H + r, rows, J, T + r * columns, columns, columns);
    for (int i = 0; i < ndx; i++) inner_row(rows, columns, J + i, columns, T, lxx + i * ndx, ndx, i);
    for (int i = 0; i < own; i++) {
        inner_row(rows, columns, J_u + i, columns, T, lux + i * ndx, ndx, ndx);
        inner_row(rows, columns, J_u + i, columns, T_u, luu + i * nu, own, i);
    }
    inner_mirror(ndx, lxx, ndx);
    inner_mirror(own, luu, nu);
}
