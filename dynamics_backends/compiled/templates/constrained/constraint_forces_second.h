/* First and second derivatives of constraint forces. Required before this text: constrained.h, constrained_second.h and the
   straight-line code forces_bent(c, x, u, t, p, phi, top, bottom, xx, entries, slopes), which computes the outputs of
   forces_unsolved except the forces, the second derivatives xx of g at a constant solution, and the entries of
   constrained_slopes_t. */

ALWAYS_INLINE void forces_panel_second(
    constrained_sides_t s, const constrained_slopes_t *g, int first, V *J, V *T, const int w)
{
    V x[CD * w], f[CR * w];
    constrained_columns(s, first, x, f, w);
    store_force_slopes(f, first, J, w);
    constrained_slopes(g, x, f, first, T, w);
}

/* Derivatives J (CR x CC) of the forces, and second derivatives of phi' y in (q, v) and u; those in (u, u) vanish */
static void forces_second(const V *x, const V *u, V t, const V *phi, V *J, V *xx, V *ux, V *w)
{
    constrained_factor_t *k = (constrained_factor_t *)w;
    constrained_slopes_t *g = (constrained_slopes_t *)(k + 1);
    V *top = (V *)(g + 1), *bottom = top + CD * CC, *T = bottom + CR * CC, *uu = T + CD * CC;
    const ctx_t c = {.w = uu + CC * CC};
    forces_bent(c, x, u, t, NULL, phi, top, bottom, xx, (V *)k, (V *)g);
    const constrained_sides_t s = {k, top, bottom};
    for (int j = 0; j < CPANELS - 1; j++) forces_panel_second(s, g, j * CPANEL, J, T, CPANEL);
    forces_panel_second(s, g, (CPANELS - 1) * CPANEL, J, T, CLAST);
    constrained_curvature(T, xx, ux, uu);
}
