/* dynamics_contracted of constrained motion. Required before this text: constrained_second.h and the straight-line code
   second_unsolved(c, x, u, t, p, lam, phi, f, fx, fu, top, bottom, xx, entries, slopes), which computes the outputs of
   first_unsolved in constrained_partials.h, the second derivatives xx of g at a constant solution, and the entries of
   constrained_slopes_t. */

static void dynamics_contracted(ctx_t c, const V *x, const V *u, V t, const V *p, const V *lam, contraction_t to)
{
    constrained_factor_t *k = (constrained_factor_t *)c.w;
    constrained_slopes_t *g = (constrained_slopes_t *)(k + 1);
    V *top = (V *)(g + 1), *bottom = top + CD * CC, *T = bottom + CR * CC, none[CR + !CR];
    if (!c.phi) memset(none, 0, sizeof none);
    c.w = T + CD * CC;
    second_unsolved(c, x, u, t, p, lam, c.phi ? c.phi : none, to.f, to.fx, to.fu, top, bottom, to.xx, (V *)k, (V *)g);
    to.fx += CABOVE * 2 * CD, to.fu += CABOVE * (CC - 2 * CD);
    constrained_second((constrained_sides_t){k, top, bottom}, g, T, to);
}
