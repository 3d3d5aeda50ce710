/* Matrices n x n and tensors n x n x n over DoFs, with structural zeros: an entry vanishes unless its DoFs lie on one path, or in one
   tree.  See ltl.h for up and end: DoFs i < j lie on no common path if j >= end[i]. */

/* Doubles from one knot's n numbers to the next: whole blocks of lanes, so that all of them are aligned. */
#define PADDED(n) (((n) + LANES - 1) / LANES * LANES)

/* LANES rows of n doubles each, PADDED(n) apart, <- n vectors, blocks of LANES numbers at a time: blocks[0] of them, numbered behind.
   All others of rows stay as they are, but for what is behind the n of a row: there may be anything, as up to LANES vectors behind x. */
static void unpack_blocks(
    const V *restrict x, long n, const int *restrict blocks, int count, double *restrict rows, int streamed)
{
    const long stride = PADDED(n);
    const int aligned = streamed && (unsigned long)rows % sizeof(V) == 0;
    for (int b = 1; b <= blocks[0]; b++) {
        const long i = (long)blocks[b] * LANES, rest = n - i < LANES ? n - i : LANES;
#if LANES == 8 || LANES == 4
        if (count == LANES) {
            V t[LANES];
            transpose(x + i, t);
            for (int l = 0; l < LANES; l++) store(t[l], rows + stride * l + i, aligned);
            continue;
        }
#endif
        for (int l = 0; l < count; l++)
            for (long j = i; j < i + rest; j++) rows[stride * l + j] = ((const double *)x)[j * LANES + l];
    }
}

/* The same where the vectors of a block are anywhere in x: blocks[0] times a block's number and the positions of its vectors. */
static void unpack_scattered(
    const V *restrict x, long n, const int *restrict blocks, int count, double *restrict rows, int streamed)
{
    const long stride = PADDED(n);
    const int aligned = streamed && (unsigned long)rows % sizeof(V) == 0;
    const int *restrict from = blocks + 1;
    for (int b = 0; b < blocks[0]; b++, from += LANES + 1) {
        const long i = (long)from[0] * LANES, rest = n - i < LANES ? n - i : LANES;
#if LANES == 8 || LANES == 4
        if (count == LANES) {
            V t[LANES], gathered[LANES];
            for (int j = 0; j < LANES; j++) gathered[j] = x[from[1 + j]];
            transpose(gathered, t);
            for (int l = 0; l < LANES; l++) store(t[l], rows + stride * l + i, aligned);
            continue;
        }
#endif
        for (int l = 0; l < count; l++)
            for (long j = 0; j < rest; j++) rows[stride * l + i + j] = ((const double *)x)[(long)from[1 + j] * LANES + l];
    }
}

/* One past the last DoF of the tree that begins at `first`; trees whose numbers interleave count as one. */
static int tree_end(const int *end, int first)
{
    int last = end[first];
    for (int i = first; i < last; i++)
        if (end[i] > last) last = end[i];
    return last;
}

/* X[b][c] <- G[b][c] + sum_d M_q[i][d][b] F[d][c] for one i, with b and c in the tree first .. last of i.  M_q vanishes unless its DoFs
   lie on one path, and where the joint of b hangs from the world; G may be null.  mirrored: X arrives as G, and X' is added too. */
static void tensor_product(
    int n, const int *up, const int *end, const int *dof_body, const int *parent, int i, int first, int last, const V *M_q,
    const V *F, const V *G, V *X, int mirrored)
{
    const long at = (long)i * n * n;
    product_row_t rows[n];
    int count = 0;
    for (int b = first; b < last; b++) {
        const int deep = b > i ? b : i, high = b < i ? b : i;
        const long row = at + (long)b * n;
        if (parent[dof_body[b]] >= 0 && deep < end[high]) rows[count++] = (product_row_t){b, deep};
        else if (!mirrored)
            for (int c = first; c < last; c++) X[row + c] = G ? G[row + c] : ZERO;
    }
    path_product(
        n, up, end, rows, count, &(product_t){M_q + at, 1, n, F, G ? G + at : 0, X + at, mirrored}, first, last);
}

/* T <- -M^-1 T along the first index.  T[i][b][c] vanishes unless i lies on one path with b or, where `either`, with c.  symmetric:
   T is so in its last two indices but for those of one joint, whose DoFs are joint[b] .. joint[b + 1] with b its body; only the
   columns from the joint of b on are read. */
static void tensor_solve(
    int n, const int *restrict up, const int *restrict end, const int *restrict dof_body, const int *restrict joint,
    const V *restrict factor, V *T, int symmetric, int either)
{
    char skip[n], other[n];
    for (int first = 0, last; first < n; first = last) {
        last = tree_end(end, first);
        for (int b = first; b < last; b++) {
            const int m = n * n;
            vanishing_rows(n, up, end, b, 1, skip);
            for (int c = symmetric ? joint[dof_body[b]] : first; c < last;) {
                const int w = c + TILE <= last ? TILE : c + 2 <= last ? 2 : 1;
                vanishing_rows(n, up, end, c, w, other);
                for (int k = 0; k < n; k++) other[k] = skip[k] && (other[k] || !either);
                V *x = T + (long)b * n + c;
                if (w == TILE) ltl_solve_columns(n, up, end, factor, x, x, m, -1.0, other, TILE);
                else if (w == 2) ltl_solve_columns(n, up, end, factor, x, x, m, -1.0, other, 2);
                else ltl_solve_columns(n, up, end, factor, x, x, m, -1.0, other, 1);
                c += w;
            }
            for (int i = first; symmetric && i < last; i++)
                for (int c = joint[dof_body[b] + 1]; c < last; c++)
                    T[((long)i * n + c) * n + b] = T[((long)i * n + b) * n + c];
        }
    }
}

/* The tensors of forward dynamics from those of inverse dynamics; the twin of COMBINE in rigid_body/derivatives/fd_tensors.py. */
static void fd_tensors(
    int n, const int *restrict up, const int *restrict end, const int *dof_body, const int *parent, const int *joint, const V *factor,
    const V *restrict qq, const V *restrict vv, const V *restrict qv, const V *M_q, const V *F_q, const V *F_v, const V *M_inverse,
    V *restrict a_qq, V *restrict a_vv, V *restrict a_qv, V *restrict a_qtau)
{
    for (int first = 0, last; first < n; first = last) {
        last = tree_end(end, first);
        for (int i = first; i < last; i++) {
            const long at = (long)i * n * n;
            memcpy(a_qq + at, qq + at, sizeof(V) * n * n);
            memcpy(a_vv + at, vv + at, sizeof(V) * n * n);
            tensor_product(n, up, end, dof_body, parent, i, first, last, M_q, F_q, 0, a_qq, 1);
            tensor_product(n, up, end, dof_body, parent, i, first, last, M_q, F_v, qv, a_qv, 0);
            tensor_product(n, up, end, dof_body, parent, i, first, last, M_q, M_inverse, 0, a_qtau, 0);
        }
    }
    tensor_solve(n, up, end, dof_body, joint, factor, a_qq, 1, 1);
    tensor_solve(n, up, end, dof_body, joint, factor, a_vv, 1, 0);
    tensor_solve(n, up, end, dof_body, joint, factor, a_qv, 0, 0);
    tensor_solve(n, up, end, dof_body, joint, factor, a_qtau, 0, 0);
}
