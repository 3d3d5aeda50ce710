/* Derivatives of constrained motion from their right-hand sides, a panel of columns at a time. Python versions: solve of
   dynamics_backends/rigid_body/contact/contact_dynamics.py, through_solution of
   dynamics_backends/systems/constraints/constrained_derivatives.py.

   Kernel of loops.h. ti[0]: head, the degrees of freedom n, constraint rows r and columns c, and 1 if slopes are given; ti[1 + 2 i] and
   ti[2 + 2 i]: positions of the entries of sparse matrix i; its row j has the columns at[start[j]] .. at[start[j + 1] - 1].
   Inputs: entries of -L' and -L of the mass matrix, -W' and W, -L' and -L of the Delassus matrix, an empty matrix as one zero; the inverses
   of both diagonals (n, r); with slopes the entries of g_qa and -g_qf; the right-hand sides top (n x c) and bottom (r x c).
   Outputs: x (n x c) and f (r x c) with K (x; -f) = (top; bottom); with slopes g_qy (x; -f) (n x c). */
#pragma once
#include "../../../machine/include/loops.h"
#include "../lanes/prelude.h"

#define CONSTRAINED_PANEL 6

typedef struct {
    const int *start, *at;
    const V *value;
} sparse_t;

enum { UP, DOWN, ALONG, ACROSS, FORCE_UP, FORCE_DOWN, SLOPE_A, SLOPE_F, CONSTRAINED_MATRICES };

typedef struct {
    int n, r, c, slopes;
    sparse_t M[CONSTRAINED_MATRICES];
    const V *D, *force_D, *top, *bottom;
    V *x, *f, *T;
} constrained_t;

/* sum <- sum + row i of a matrix times w columns of Y */
ALWAYS_INLINE void add_sparse_row(sparse_t M, int i, const V *restrict Y, V *restrict sum, const int w)
{
    for (int s = M.start[i]; s < M.start[i + 1]; s++) {
        const V a = M.value[s], *y = Y + M.at[s] * w;
        UNROLL for (int c = 0; c < w; c++) sum[c] += a * y[c];
    }
}

#define ROW(from) UNROLL for (int c = 0; c < w; c++) sum[c] = from
#define PUT(to) UNROLL for (int c = 0; c < w; c++) to = sum[c]

/* Solve in w columns from `first`; x (n x w), f (r x w): workspace. */
ALWAYS_INLINE void constrained_columns(const constrained_t *k, int first, V *restrict x, V *restrict f, const int w)
{
    V sum[w];
    for (int i = k->n - 1; i >= 0; i--) {
        ROW(k->top[i * k->c + first + c]);
        add_sparse_row(k->M[UP], i, x, sum, w);
        PUT(x[i * w + c]);
    }
    for (int r = 0; r < k->r; r++) {
        ROW(k->bottom[r * k->c + first + c]);
        add_sparse_row(k->M[ALONG], r, x, sum, w);
        PUT(f[r * w + c]);
    }
    for (int r = k->r - 1; r >= 0; r--) {
        ROW(f[r * w + c]);
        add_sparse_row(k->M[FORCE_UP], r, f, sum, w);
        PUT(f[r * w + c]);
    }
    for (int r = 0; r < k->r; r++) {
        ROW(f[r * w + c] * k->force_D[r]);
        add_sparse_row(k->M[FORCE_DOWN], r, f, sum, w);
        PUT(f[r * w + c]);
        PUT(k->f[r * k->c + first + c]);
    }
    for (int i = 0; i < k->n; i++) {
        ROW(x[i * w + c] * k->D[i]);
        add_sparse_row(k->M[ACROSS], i, f, sum, w);
        add_sparse_row(k->M[DOWN], i, x, sum, w);
        PUT(x[i * w + c]);
        PUT(k->x[i * k->c + first + c]);
    }
    for (int i = 0; k->slopes && i < k->n; i++) {
        ROW(ZERO);
        add_sparse_row(k->M[SLOPE_A], i, x, sum, w);
        add_sparse_row(k->M[SLOPE_F], i, f, sum, w);
        PUT(k->T[i * k->c + first + c]);
    }
}

static long constrained_solve_workspace(const int *head) { return (head[0] + head[1]) * CONSTRAINED_PANEL; }

static void constrained_solve_run(const tables_t *tables, const void *in, void *out, void *workspace)
{
    const int *const *ti = tables->ti, *head = ti[0];
    constrained_t k = {head[0], head[1], head[2], head[3]};
    const V *from = in;
    V *x = workspace, *f = x + k.n * CONSTRAINED_PANEL;
    for (int i = 0; i < CONSTRAINED_MATRICES; i++) {
        if (i == SLOPE_A) k.D = from, from += k.n, k.force_D = from, from += k.r;
        if (i >= SLOPE_A && !k.slopes) continue;
        const int rows = i == ALONG || i == FORCE_UP || i == FORCE_DOWN ? k.r : k.n, *start = ti[1 + 2 * i];
        k.M[i] = (sparse_t){start, ti[2 + 2 * i], from};
        from += start[rows] ? start[rows] : 1;
    }
    k.top = from, k.bottom = from + k.n * k.c;
    k.x = out, k.f = k.x + k.n * k.c, k.T = k.f + k.r * k.c;
    int first = 0;
    for (; first + CONSTRAINED_PANEL <= k.c; first += CONSTRAINED_PANEL) constrained_columns(&k, first, x, f, CONSTRAINED_PANEL);
    switch (k.c - first) {
        case 1: constrained_columns(&k, first, x, f, 1); break;
        case 2: constrained_columns(&k, first, x, f, 2); break;
        case 3: constrained_columns(&k, first, x, f, 3); break;
        case 4: constrained_columns(&k, first, x, f, 4); break;
        case 5: constrained_columns(&k, first, x, f, 5); break;
        default: break;
    }
}
