/* Matrices n x n and tensors n x n x n over DoFs, with structural zeros: an entry vanishes unless its DoFs lie on one path, or
   in one tree. See ltl.h for up and end: DoFs i < j lie on no common path if j >= end[i]. */
#pragma once
#include "ltl.h"

/* Tree of DoFs: its branches, the body of each DoF, the parent of each body, and the first DoF of each body. */
typedef struct { branches_t branches; const int *dof_body, *parent, *joint; } tree_t;
/* Second derivatives of inverse dynamics: qq and vv symmetric, qv, and M_q[i][d][b] = d M_db / d q_i. */
typedef struct { const V *qq, *vv, *qv, *M_q; } inverse_second_t;

/* One past the last DoF of the tree that begins at `first`; trees with interleaved numbers count as one. */
static int tree_end(const int *end, int first)
{
    int last = end[first];
    for (int i = first; i < last; i++)
        if (end[i] > last) last = end[i];
    return last;
}

/* out[b][c] <- G[b][c] + sum_d P[d][b] F[d][c] for the slice P = M_q[i], with b and c in the tree first .. last of i. M_q
   vanishes unless its DoFs lie on one path, and if the joint of b is attached to the world; G may be NULL. mirrored: out holds G on
   entry, and the transposed product is added too. */
static void tensor_product(const tree_t *tree, int i, int first, int last, const product_t *t)
{
    const int n = tree->branches.n, *end = tree->branches.end;
    product_row_t rows[n];
    int count = 0;
    for (int b = first; b < last; b++) {
        const int deep = b > i ? b : i, high = b < i ? b : i;
        const long row = (long)b * n;
        if (tree->parent[tree->dof_body[b]] >= 0 && deep < end[high]) rows[count++] = (product_row_t){b, deep};
        else if (!t->mirrored)
            for (int c = first; c < last; c++) t->out[row + c] = t->G ? t->G[row + c] : ZERO;
    }
    path_product(tree->branches, rows, count, t, first, last);
}

/* T <- -M^-1 T along the first index. T[i][b][c] vanishes unless i lies on one path with b or, if `either`, with c. symmetric: T
   is symmetric in its last two indices except within one joint, whose DoFs are joint[b] .. joint[b + 1] with b its body; only the
   columns from the joint of b are read. */
static void tensor_solve(const tree_t *tree, const V *restrict factor, V *T, int symmetric, int either)
{
    const branches_t on = tree->branches;
    const int n = on.n;
    const int *restrict dof_body = tree->dof_body, *restrict joint = tree->joint;
    char skip[n], other[n];
    for (int first = 0, last; first < n; first = last) {
        last = tree_end(on.end, first);
        for (int b = first; b < last; b++) {
            const int m = n * n;
            vanishing_rows(on, b, 1, skip);
            for (int c = symmetric ? joint[dof_body[b]] : first; c < last;) {
                const int w = c + TILE <= last ? TILE : c + 2 <= last ? 2 : 1;
                vanishing_rows(on, c, w, other);
                for (int k = 0; k < n; k++) other[k] = skip[k] && (other[k] || !either);
                V *x = T + (long)b * n + c;
                if (w == TILE) ltl_solve_columns(on, factor, x, x, m, -1.0, other, TILE);
                else if (w == 2) ltl_solve_columns(on, factor, x, x, m, -1.0, other, 2);
                else ltl_solve_columns(on, factor, x, x, m, -1.0, other, 1);
                c += w;
            }
            for (int i = first; symmetric && i < last; i++)
                for (int c = joint[dof_body[b] + 1]; c < last; c++)
                    T[((long)i * n + c) * n + b] = T[((long)i * n + b) * n + c];
        }
    }
}

/* Tensors of forward dynamics from those of inverse dynamics. Python version: COMBINE of
   experiments/baselines/fd_tensors.py. */
static void fd_tensors(
    const tree_t *tree, const V *factor, const inverse_second_t *tau, const forward_first_t *a, const forward_second_t *to)
{
    const int n = tree->branches.n;
    for (int first = 0, last; first < n; first = last) {
        last = tree_end(tree->branches.end, first);
        for (int i = first; i < last; i++) {
            const long at = (long)i * n * n;
            const V *slice = tau->M_q + at;
            memcpy(to->qq + at, tau->qq + at, sizeof(V) * n * n);
            memcpy(to->vv + at, tau->vv + at, sizeof(V) * n * n);
            tensor_product(tree, i, first, last, &(product_t){slice, 1, n, a->q, 0, to->qq + at, 1});
            tensor_product(tree, i, first, last, &(product_t){slice, 1, n, a->v, tau->qv + at, to->qv + at, 0});
            tensor_product(tree, i, first, last, &(product_t){slice, 1, n, a->tau, 0, to->qtau + at, 0});
        }
    }
    tensor_solve(tree, factor, to->qq, 1, 1);
    tensor_solve(tree, factor, to->vv, 1, 0);
    tensor_solve(tree, factor, to->qv, 0, 0);
    tensor_solve(tree, factor, to->qtau, 0, 0);
}
