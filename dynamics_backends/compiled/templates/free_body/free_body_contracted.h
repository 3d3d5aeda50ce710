/* dynamics_contracted of free rigid bodies. Required before this text: free_body.h, the kernel fd_second_order, called by
   FREE_FD_SECOND_ORDER, and joint_force_bends(q, v, u, bend): d^2 tau_i / d v_i^2. Workspace in addition to the kernel's: 7 nv^2
   vectors. */

static void dynamics_contracted(ctx_t c, const V *x, const V *u, V t, const V *p, const V *lam, contraction_t to)
{
    enum { nv = FREE_NV, nq = FREE_NQ, nu = FREE_NU };
    const V *v = x + nq;
    V *xx = to.xx, *ux = to.ux;
    V tau[nv], rotors[nv], slope[nv], bend[nv], q[nq];
    V *dq = c.w, *dv = dq + nv * nv, *inverse = dv + nv * nv, *qq = inverse + nv * nv, *qv = qq + nv * nv, *vv = qv + nv * nv,
      *qtau = vv + nv * nv, *w = qtau + nv * nv;
    (void)t;
    free_rotors(p, rotors);
    at_base(x, q);
    joint_forces(x, v, u, tau);
    FREE_FD_SECOND_ORDER(q, v, tau, lam + nv, rotors, to.f, dq, dv, inverse, qq, qv, vv, qtau, w);
    first_derivatives(x, u, dq, dv, inverse, to.fx, to.fu);
    joint_force_slopes(x, v, u, slope);
    joint_force_bends(x, v, u, bend);
    for (int i = 0; i < nv; i++) {
        V weight = ZERO;
        for (int j = 0; j < nv; j++) weight += inverse[i * nv + j] * lam[nv + j];
        for (int j = 0; j < nv; j++) {
            const V cross = qv[i * nv + j] + qtau[i * nv + j] * slope[j];
            const V springs = qtau[i * nv + j] * free_spring[j] + qtau[j * nv + i] * free_spring[i];
            xx[i * 2 * nv + j] = 0.5 * (qq[i * nv + j] + qq[j * nv + i]) - springs;
            xx[i * 2 * nv + nv + j] = cross;
            xx[(nv + j) * 2 * nv + i] = cross;
            xx[(nv + i) * 2 * nv + nv + j] = vv[i * nv + j];
        }
        xx[(nv + i) * 2 * nv + nv + i] += weight * bend[i];
        for (int j = 0; j < nu; j++) {
            ux[j * 2 * nv + i] = free_share[j] * qtau[i * nv + free_driven[j]];
            ux[j * 2 * nv + nv + i] = ZERO;
        }
    }
    for (int i = 0; i < nu * nu; i++) to.uu[i] = ZERO;
}
