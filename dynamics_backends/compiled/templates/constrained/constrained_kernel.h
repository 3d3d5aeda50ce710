/* What a kernel of constrained motion hands out that is not computed: the rows of qdot = v above the others. */

typedef struct { const int *const *ti; const double *const *td; V *w; } ctx_t;

/* f (rows) = v, and its derivatives fx (rows x columns), fu (rows x controls) */
ALWAYS_INLINE void velocity_rows(int rows, int columns, int controls, const V *v, V *f, V *fx, V *fu)
{
    for (int i = 0; i < rows; i++) {
        f[i] = v[i];
        for (int j = 0; j < columns; j++) fx[i * columns + j] = splat(j == rows + i);
        for (int j = 0; j < controls; j++) fu[i * controls + j] = ZERO;
    }
}
