/* Rows qdot = v that a kernel of constrained motion copies instead of computing them. */

/* f (rows) = v, and its derivatives fx (rows x columns), fu (rows x controls) */
ALWAYS_INLINE void velocity_rows(int rows, int columns, int controls, const V *v, V *f, V *fx, V *fu)
{
    for (int i = 0; i < rows; i++) {
        f[i] = v[i];
        for (int j = 0; j < columns; j++) fx[i * columns + j] = splat(j == rows + i);
        for (int j = 0; j < controls; j++) fu[i * controls + j] = ZERO;
    }
}
