/* Free rigid bodies by loops: dynamics_value, and functions shared by first and second derivatives. Required before this text:
   FREE_NV, FREE_NQ, FREE_NU; free_driven, free_share (FREE_NU): the degree of freedom that each control drives, and its force per
   unit of control; free_spring (FREE_NV): stiffnesses; free_rotors(p, rotors): rotor inertias with the terms of implicit damping;
   the kernel aba, called by FREE_ABA; and the straight-line code at_base(q, r), the joint forces joint_forces(q, v, u, tau), and
   joint_force_slopes(q, v, u, slope): d tau_i / d v_i. */

static void dynamics_value(ctx_t c, const V *x, const V *u, V t, const V *p, V *f)
{
    V tau[FREE_NV], rotors[FREE_NV];
    (void)t;
    free_rotors(p, rotors);
    joint_forces(x, x + FREE_NQ, u, tau);
    FREE_ABA(x, x + FREE_NQ, tau, NULL, rotors, f, c.w);
}

/* fx (nv x 2 nv) and fu (nv x nu) from the derivatives dq, dv and inverse of a in q, v and tau (nv x nv each) */
static void first_derivatives(const V *x, const V *u, const V *dq, const V *dv, const V *inverse, V *fx, V *fu)
{
    enum { nv = FREE_NV, nu = FREE_NU };
    V slope[nv];
    joint_force_slopes(x, x + FREE_NQ, u, slope);
    for (int i = 0; i < nv; i++) {
        for (int j = 0; j < nv; j++) {
            fx[i * 2 * nv + j] = dq[i * nv + j] - inverse[i * nv + j] * free_spring[j];
            fx[i * 2 * nv + nv + j] = dv[i * nv + j] + inverse[i * nv + j] * slope[j];
        }
        for (int j = 0; j < nu; j++) fu[i * nu + j] = free_share[j] * inverse[i * nv + free_driven[j]];
    }
}
