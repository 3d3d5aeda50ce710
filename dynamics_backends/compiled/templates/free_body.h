/* Free rigid bodies by loops: dynamics_value, and what derivatives of both orders share.  Before this text stand FREE_NV, FREE_NQ, FREE_NU,
   free_driven (FREE_NU): the degree of freedom that each control drives; the kernel aba; and straight-line code for at_base(q, r), the
   joint forces joint_forces(v, u, tau), and joint_force_slopes(v, u, slope): d tau_i / d v_i. */

static void dynamics_value(ctx_t c, const V *x, const V *u, V t, const V *p, V *f)
{
    V tau[FREE_NV];
    (void)t; (void)p;
    joint_forces(x + FREE_NQ, u, tau);
    aba(c.ti, c.td, x, x + FREE_NQ, tau, f, c.w);
}

/* fx (nv x 2 nv) and fu (nv x nu) from the derivatives dq, dv and inverse of a in q, v and tau (nv x nv each) */
static void first_derivatives(const V *v, const V *u, const V *dq, const V *dv, const V *inverse, V *fx, V *fu)
{
    enum { nv = FREE_NV, nu = FREE_NU };
    V slope[nv];
    joint_force_slopes(v, u, slope);
    for (int i = 0; i < nv; i++) {
        for (int j = 0; j < nv; j++) {
            fx[i * 2 * nv + j] = dq[i * nv + j];
            fx[i * 2 * nv + nv + j] = dv[i * nv + j] + inverse[i * nv + j] * slope[j];
        }
        for (int j = 0; j < nu; j++) fu[i * nu + j] = inverse[i * nv + free_driven[j]];
    }
}
