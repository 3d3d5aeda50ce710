/* The forces of constrained motion and their derivatives in (q, v, u), behind constrained.h, forces_value_code and
   forces_unsolved(c, x, u, t, p, y, top, bottom, entries): straight-line code for the forces y (CR), the right-hand sides top and bottom,
   and the entries of constrained_factor_t. */

ALWAYS_INLINE void forces_panel(const constrained_factor_t *k, const V *top, const V *bottom, int first, V *J, const int w)
{
    V x[CD * w], f[CR * w];
    constrained_columns(k, top, bottom, first, x, f, w);
    for (int r = 0; r < CR; r++)
        for (int c = 0; c < w; c++) J[r * CC + first + c] = f[r * w + c];
}

/* y (CR) and its derivatives J (CR x CC) */
static void forces_first(const V *x, const V *u, V t, V *y, V *J, V *w)
{
    constrained_factor_t *k = (constrained_factor_t *)w;
    V *top = (V *)(k + 1), *bottom = top + CD * CC;
    const ctx_t c = {NULL, NULL, bottom + CR * CC};
    forces_unsolved(c, x, u, t, NULL, y, top, bottom, (V *)k);
    for (int j = 0; j < CPANELS - 1; j++) forces_panel(k, top, bottom, j * CPANEL, J, CPANEL);
    forces_panel(k, top, bottom, (CPANELS - 1) * CPANEL, J, CLAST);
}

/* y alone */
static void forces_value(const V *x, const V *u, V t, V *y, V *w)
{
    forces_alone((ctx_t){NULL, NULL, w}, x, u, t, NULL, y);
}
