/* dynamics_partials of constrained motion. Required before this text: constrained.h and the straight-line code first_unsolved(c,
   x, u, t, p, f, fx, fu, y, top, bottom, entries), which computes the value, the CABOVE rows of fx and fu above the solved ones,
   the forces y (CR), the right-hand sides top (CD x CC) and bottom (CR x CC), and the entries of constrained_factor_t. */

static void dynamics_partials(ctx_t c, const V *x, const V *u, V t, const V *p, V *f, V *fx, V *fu)
{
    constrained_factor_t *k = (constrained_factor_t *)c.w;
    V *top = (V *)(k + 1), *bottom = top + CD * CC, unasked[CR + !CR];
    c.w = bottom + CR * CC;
    first_unsolved(c, x, u, t, p, f, fx, fu, c.forces ? c.forces : unasked, top, bottom, (V *)k);
    constrained_first((constrained_sides_t){k, top, bottom}, fx + CABOVE * 2 * CD, fu + CABOVE * (CC - 2 * CD), c.forces ? c.forces + CR : NULL);
}
