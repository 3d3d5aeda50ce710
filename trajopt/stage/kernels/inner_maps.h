/* What a function of y adds to the expansion of the cost: J' g and J' H J with J (rows x columns) = dy/d(x, u), whose columns are ndx
   for the state, then those of the first controls; g (rows), H (rows x rows), symmetric.  T: workspace for rows x columns vectors. */

#define INNER_PANEL 6

/* sum (width) = row i of A' B in the columns from `first` on; A and B are rows x columns */
ALWAYS_INLINE void inner_panel(
    const int rows, const int columns, const V *restrict A, int step, const V *restrict B, int first, V *restrict sum, const int width)
{
    UNROLL for (int c = 0; c < width; c++) sum[c] = ZERO;
    for (int r = 0; r < rows; r++) {
        const V a = A[r * step], *b = B + r * columns + first;
        UNROLL for (int c = 0; c < width; c++) sum[c] += a * b[c];
    }
}

ALWAYS_INLINE void inner_columns(
    const int rows, const int columns, const V *A, int step, const V *B, int first, V *sum)
{
    if (first + INNER_PANEL <= columns) inner_panel(rows, columns, A, step, B, first, sum, INNER_PANEL);
    else for (int c = 0; first + c < columns; c++) inner_panel(rows, columns, A, step, B, first + c, sum + c, 1);
}

ALWAYS_INLINE void add_inner_entry(int i, int j, const int ndx, const int nu, V value, V *lxx, V *lux, V *luu)
{
    if (j < ndx) {
        lxx[i * ndx + j] += value;
        if (i != j) lxx[j * ndx + i] += value;
    } else if (i < ndx) {
        lux[(j - ndx) * ndx + i] += value;
    } else {
        luu[(i - ndx) * nu + j - ndx] += value;
        if (i != j) luu[(j - ndx) * nu + i - ndx] += value;
    }
}

/* lxx += xx, lux += ux in the rows of the first `own` controls */
ALWAYS_INLINE void add_bent(const int ndx, const int own, const V *restrict xx, const V *restrict ux, V *restrict lxx, V *restrict lux)
{
    for (int i = 0; i < ndx * ndx; i++) lxx[i] += xx[i];
    for (int i = 0; i < own * ndx; i++) lux[i] += ux[i];
}

ALWAYS_INLINE void add_inner(
    const int rows, const int columns, const int ndx, const int nu, const V *g, const V *H, const V *restrict J, V *lx, V *lu, V *lxx,
    V *lux, V *luu, V *restrict T)
{
    V sum[INNER_PANEL];
    for (int first = 0; first < columns; first += INNER_PANEL) {
        const int last = first + INNER_PANEL < columns ? first + INNER_PANEL : columns;
        inner_columns(rows, columns, g, 1, J, first, sum);
        for (int c = first; c < last; c++) *(c < ndx ? lx + c : lu + c - ndx) += sum[c - first];
        for (int r = 0; r < rows; r++) {
            inner_columns(rows, columns, H + r, rows, J, first, sum);
            for (int c = first; c < last; c++) T[r * columns + c] = sum[c - first];
        }
    }
    for (int i = 0; i < columns; i++)
        for (int first = i / INNER_PANEL * INNER_PANEL; first < columns; first += INNER_PANEL) {
            inner_columns(rows, columns, J + i, columns, T, first, sum);
            for (int c = 0; c < INNER_PANEL; c++)
                if (first + c >= i && first + c < columns) add_inner_entry(i, first + c, ndx, nu, sum[c], lxx, lux, luu);
        }
}
