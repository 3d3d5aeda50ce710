/* Constraint forces and their derivatives in (q, v, u). Required before this text: constrained.h and the straight-line code
   forces_unsolved(c, x, u, t, p, y, top, bottom, entries), which computes the forces y (CR), the right-hand sides top and bottom,
   and the entries of constrained_factor_t. */

ALWAYS_INLINE void forces_panel(constrained_sides_t s, int first, V *J, const int w)
{
    V x[CD * w], f[CR * w];
    constrained_columns(s, first, x, f, w);
    store_force_slopes(f, first, J, w);
}

/* Forces y (CR) and their derivatives J (CR x CC) */
static void forces_first(const V *x, const V *u, V t, V *y, V *J, V *w)
{
    constrained_factor_t *k = (constrained_factor_t *)w;
    V *top = (V *)(k + 1), *bottom = top + CD * CC;
    const ctx_t c = {.w = bottom + CR * CC};
    forces_unsolved(c, x, u, t, NULL, y, top, bottom, (V *)k);
    const constrained_sides_t s = {k, top, bottom};
    for (int j = 0; j < CPANELS - 1; j++) forces_panel(s, j * CPANEL, J, CPANEL);
    forces_panel(s, (CPANELS - 1) * CPANEL, J, CLAST);
}
