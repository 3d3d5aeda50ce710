/* Derivatives of constrained motion from their right-hand sides, a panel of columns at a time. Python versions: solve in
   rigid_body/contact/constrained_solve.py, through_solution in systems/constraints/constrained_derivatives.py.

   Required before this text: CD, CR, CC (degrees of freedom, constraint rows, columns) and the positions of the entries of
   sparse matrices: row i of a matrix M has the columns M_at[M_start[i] .. M_start[i + 1]], and its values are in that order. The
   matrices are -L' and -L of the mass matrix, -W' and W, -L' and -L of the Delassus matrix; for second derivatives g_qa and
   -g_qf. */

#define CPANELS ((CC + 5) / 6)
#define CPANEL ((CC + CPANELS - 1) / CPANELS)
#define CLAST (CC - (CPANELS - 1) * CPANEL)

typedef struct {
    V up[CUP_SIZE], down[CDOWN_SIZE], along[CALONG_SIZE], across[CACROSS_SIZE], force_up[CFORCE_UP_SIZE], force_down[CFORCE_DOWN_SIZE],
        D[CD], force_D[CR + !CR];
} constrained_factor_t;

/* Factors of K and the right-hand sides of (x; -f): top (CD x CC), bottom (CR x CC). */
typedef struct {
    const constrained_factor_t *k;
    const V *top, *bottom;
} constrained_sides_t;

/* sum <- sum + row i of a matrix times w columns of Y */
ALWAYS_INLINE void add_sparse_row(const int *start, const int *at, const V *value, int i, const V *restrict Y, V *restrict sum, const int w)
{
    for (int s = start[i]; s < start[i + 1]; s++) {
        const V a = value[s], *y = Y + at[s] * w;
        UNROLL for (int c = 0; c < w; c++) sum[c] += a * y[c];
    }
}

/* Solve K (x; -f) = (top; bottom) for x (CD x w) and f (CR x w), in w columns from `first` */
ALWAYS_INLINE void constrained_columns(constrained_sides_t s, int first, V *restrict x, V *restrict f, const int w)
{
    const constrained_factor_t *k = s.k;
    const V *restrict top = s.top, *restrict bottom = s.bottom;
    V sum[w];
    for (int i = CD - 1; i >= 0; i--) {
        UNROLL for (int c = 0; c < w; c++) sum[c] = top[i * CC + first + c];
        add_sparse_row(cup_start, cup_at, k->up, i, x, sum, w);
        UNROLL for (int c = 0; c < w; c++) x[i * w + c] = sum[c];
    }
    for (int r = 0; r < CR; r++) {
        UNROLL for (int c = 0; c < w; c++) sum[c] = bottom[r * CC + first + c];
        add_sparse_row(calong_start, calong_at, k->along, r, x, sum, w);
        UNROLL for (int c = 0; c < w; c++) f[r * w + c] = sum[c];
    }
    for (int r = CR - 1; r >= 0; r--) {
        UNROLL for (int c = 0; c < w; c++) sum[c] = f[r * w + c];
        add_sparse_row(cforce_up_start, cforce_up_at, k->force_up, r, f, sum, w);
        UNROLL for (int c = 0; c < w; c++) f[r * w + c] = sum[c];
    }
    for (int r = 0; r < CR; r++) {
        UNROLL for (int c = 0; c < w; c++) sum[c] = f[r * w + c] * k->force_D[r];
        add_sparse_row(cforce_down_start, cforce_down_at, k->force_down, r, f, sum, w);
        UNROLL for (int c = 0; c < w; c++) f[r * w + c] = sum[c];
    }
    for (int i = 0; i < CD; i++) {
        UNROLL for (int c = 0; c < w; c++) sum[c] = x[i * w + c] * k->D[i];
        add_sparse_row(cacross_start, cacross_at, k->across, i, f, sum, w);
        add_sparse_row(cdown_start, cdown_at, k->down, i, x, sum, w);
        UNROLL for (int c = 0; c < w; c++) x[i * w + c] = sum[c];
    }
}

/* Store columns (q, v, u) of the derivatives of x in fx (CD x 2 CD) and fu */
ALWAYS_INLINE void store_constrained(const V *restrict x, int first, V *restrict fx, V *restrict fu, const int w)
{
    for (int i = 0; i < CD; i++)
        for (int c = 0; c < w; c++)
            *(first + c < 2 * CD ? fx + i * 2 * CD + first + c : fu + i * (CC - 2 * CD) + first + c - 2 * CD) = x[i * w + c];
}

/* Store the same columns of the derivatives of f in J (CR x CC) */
ALWAYS_INLINE void store_force_slopes(const V *restrict f, int first, V *restrict J, const int w)
{
    for (int r = 0; r < CR; r++)
        for (int c = 0; c < w; c++) J[r * CC + first + c] = f[r * w + c];
}

ALWAYS_INLINE void constrained_panel(constrained_sides_t s, int first, V *fx, V *fu, V *J, const int w)
{
    V x[CD * w], f[(CR + !CR) * w];
    constrained_columns(s, first, x, f, w);
    store_constrained(x, first, fx, fu, w);
    if (J) store_force_slopes(f, first, J, w);
}

/* First derivatives; J: derivatives of the forces, or NULL */
static void constrained_first(constrained_sides_t s, V *fx, V *fu, V *J)
{
    for (int j = 0; j < CPANELS - 1; j++) constrained_panel(s, j * CPANEL, fx, fu, J, CPANEL);
    constrained_panel(s, (CPANELS - 1) * CPANEL, fx, fu, J, CLAST);
}
