/* dynamics_contracted of straight-line code. Required before this text: traced_contracted(c, x, u, t, p, lam, ...), whose
   outputs are GIVEN. */

static void dynamics_contracted(ctx_t c, const V *x, const V *u, V t, const V *p, const V *lam, contraction_t to)
{
    traced_contracted(c, x, u, t, p, lam, GIVEN);
}
