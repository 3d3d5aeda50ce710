/* dynamics_contracted of straight-line code, behind traced_contracted(c, x, u, t, p, lam, ...), which has GIVEN. */

static void dynamics_contracted(ctx_t c, const V *x, const V *u, V t, const V *p, const V *lam, contraction_t to)
{
    traced_contracted(c, x, u, t, p, lam, GIVEN);
}
